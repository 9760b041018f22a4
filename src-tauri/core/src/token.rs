//! Tokens that prove that somebody could read a private file.

use std::io;

use crate::secrets::Secret;

/// Bytes of chance in a token.
const BYTES: usize = 32;

/// A new one.
pub(crate) fn fresh() -> io::Result<Secret> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(Secret::new(hex(&bytes)))
}

/// Bytes as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compared in a time that does not tell how much of a guess was right.
pub(crate) fn same(guess: &[u8], token: &[u8]) -> bool {
    guess.len() == token.len()
        && guess
            .iter()
            .zip(token)
            .fold(0, |differing, (one, other)| differing | (one ^ other))
            == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        for guess in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(!same(guess, b"abc"));
        }
    }
}
