//! The file name of a key: one name per key on every file system, and the same key always the same
//! name. Knows nothing of files.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Longest encoded key that is used whole. Leaves room for suffixes under the 255 bytes that file
/// systems allow, and for the folder under the 260 characters that older Windows programs take.
const ENCODED_BYTES_MAX: usize = 120;

/// What is kept of a longer one, so that a person finds it.
const PREFIX_BYTES: usize = 48;

/// Names that Windows gives to devices, whatever ending follows.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

/// The file name of `key`, without an ending.
///
/// Lower-case ASCII letters, digits, `_` and `-` stand for themselves; every other byte is `%` and
/// two lower-case hexadecimal digits. Capital letters are encoded too, because `Foo` and `foo` are
/// one file on macOS and Windows. A long result is cut and ends in `~` (which encoding never makes)
/// and the SHA-256 of the key.
pub(crate) fn encode(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for (at, byte) in key.bytes().enumerate() {
        let plain =
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
        if plain && !(at == 0 && is_device(key)) {
            name.push(char::from(byte));
        } else {
            percent(&mut name, byte);
        }
    }
    if name.len() > ENCODED_BYTES_MAX {
        let mut cut = PREFIX_BYTES;
        // Not inside a `%xx`.
        while name.as_bytes()[cut - 1] == b'%' || name.as_bytes()[cut - 2] == b'%' {
            cut -= 1;
        }
        name.truncate(cut);
        name.push('~');
        for byte in Sha256::digest(key.as_bytes()) {
            hex(&mut name, byte);
        }
    }
    name
}

/// The key whose file name this is; `None` if the name does not hold all of it.
pub(crate) fn decode(name: &str) -> Option<String> {
    if name.contains('~') {
        return None;
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = after
                .get(..2)
                .and_then(|digits| std::str::from_utf8(digits).ok())?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

fn is_device(key: &str) -> bool {
    let numbered = |prefix| {
        key.strip_prefix(prefix)
            .is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
    };
    DEVICES.contains(&key) || numbered("com") || numbered("lpt")
}

fn percent(name: &mut String, byte: u8) {
    name.push('%');
    hex(name, byte);
}

fn hex(name: &mut String, byte: u8) {
    // Writing into a string cannot fail.
    let _ = write!(name, "{byte:02x}");
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn ordinary_keys_read_as_themselves() {
        assert_eq!(encode("build_state-2"), "build_state-2");
        assert_eq!(encode("Foo/bar"), "%46oo%2fbar");
    }

    #[test]
    fn hostile_and_similar_keys_get_distinct_plain_names() {
        let long = "x".repeat(200);
        let longer = format!("{}y", &long[1..]);
        let emoji = "🎉".repeat(200);
        let keys = [
            "../../outside",
            "..\\..\\outside",
            "/tmp/outside",
            ".",
            "..",
            "a\0b",
            "a%00b",
            "Foo",
            "foo",
            "FOO",
            "a/b",
            "a b",
            "a%2fb",
            "привет",
            "CON",
            "con",
            "%63on",
            "nul",
            "com1",
            "com",
            "foo.",
            "foo ",
            " foo",
            "é",
            "e\u{301}",
            "~",
            &long,
            &longer,
            &emoji,
            &emoji[4..],
            "*?\"<>|:",
        ];
        let mut seen = HashMap::new();
        for key in keys {
            let name = encode(key);
            assert!(name.len() <= ENCODED_BYTES_MAX, "{key}: {}", name.len());
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase()
                    || byte.is_ascii_digit()
                    || b"_-%~".contains(&byte)),
                "{key}: {name}"
            );
            assert!(!is_device(&name), "{key}: {name}");
            assert_eq!(seen.insert(name.clone(), key), None, "{name}");
        }
    }
}
