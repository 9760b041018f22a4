//! Finds integers that would not survive being read: JSON has no largest number and neither has
//! Python, but whoever reads one here and at most servers has 64 bits, and rounds the rest silently.

/// The first integer in `json`, which is valid JSON, that neither `i64` nor `u64` can hold.
pub(super) fn too_large(json: &str) -> Option<&str> {
    /// All numbers of fewer digits fit.
    const DIGITS_FIT: usize = 18;
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let length = bytes[at..]
                    .iter()
                    .take_while(|byte| {
                        matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                    })
                    .count();
                let number = &json[at..at + length];
                let whole = !number.contains(['.', 'e', 'E']);
                if whole
                    && length > DIGITS_FIT
                    && number.parse::<i64>().is_err()
                    && number.parse::<u64>().is_err()
                {
                    return Some(number);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

/// Where the string that opens at `at` has ended.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        if bytes[at + found] == b'"' {
            return at + found + 1;
        }
        at += found + 2;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::too_large;

    #[test]
    fn only_whole_numbers_that_do_not_fit_are_found() {
        for (json, found) in [
            (r#"{"n": 9223372036854775807}"#, None),
            (r#"{"n": -9223372036854775808}"#, None),
            (r#"{"n": 18446744073709551615}"#, None),
            (
                r#"{"n": 18446744073709551616}"#,
                Some("18446744073709551616"),
            ),
            (
                r#"[1, {"a": [-9223372036854775809]}]"#,
                Some("-9223372036854775809"),
            ),
            (r#"{"n": 123456789012345678901234.5}"#, None),
            (r#"{"n": 1e400}"#, None),
            (r#"{"99999999999999999999": "88888888888888888888"}"#, None),
            (
                r#"{"a": "\"99999999999999999999", "b": "\\", "c": 1}"#,
                None,
            ),
            (
                r#"{"a": "\\", "b": 99999999999999999999}"#,
                Some("99999999999999999999"),
            ),
        ] {
            assert_eq!(too_large(json), found, "{json}");
        }
    }
}
