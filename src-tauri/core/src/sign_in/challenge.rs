//! `WWW-Authenticate`: what a server that refuses says of the sign-in that it wants.

/// Characters of one parameter; longer ones are no addresses and no scopes.
const VALUE_CHARS_MAX: usize = 2_048;

/// Parameters of one header.
const PARAMETERS_MAX: usize = 32;

/// What was said of the scheme `Bearer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// Where the server describes itself.
    pub(crate) resource_metadata: Option<String>,
    /// The rights that are needed, separated by spaces.
    pub(crate) scope: Option<String>,
    /// Such as `invalid_token` and `insufficient_scope`.
    pub(crate) error: Option<String>,
    /// The server answered, and did not refuse.
    pub(crate) none_needed: bool,
}

impl Challenge {
    /// Read all headers of one answer; `None`: none asks for a bearer token.
    pub(crate) fn read<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        headers.into_iter().find_map(Self::read_one)
    }

    /// The sign-in is valid and its rights are too few.
    pub(crate) fn wants_more_rights(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn read_one(header: &str) -> Option<Self> {
        let mut found: Option<Self> = None;
        let mut rest = header;
        for _ in 0..PARAMETERS_MAX {
            rest = rest.trim_start_matches([' ', ',', '\t']);
            if rest.is_empty() {
                break;
            }
            let end = rest.find([' ', ',', '=', '\t']).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let after_spaces = after.trim_start();
            let Some(value) = after_spaces.strip_prefix('=') else {
                // A word without a value names a scheme; the first bearer counts.
                if found.is_some() {
                    break;
                }
                if word.eq_ignore_ascii_case("bearer") {
                    found = Some(Self::default());
                }
                if end == 0 {
                    break;
                }
                rest = after;
                continue;
            };
            let (value, after) = value_of(value.trim_start());
            if let Some(found) = &mut found
                && value.chars().count() <= VALUE_CHARS_MAX
            {
                match word.to_ascii_lowercase().as_str() {
                    "resource_metadata" => found.resource_metadata = Some(value),
                    "scope" => found.scope = Some(value),
                    "error" => found.error = Some(value),
                    _ => {}
                }
            }
            rest = after;
        }
        found
    }
}

/// A token or a quoted text, and what follows it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', ',', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return (value, &quoted[at + 1..]),
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    fn read(header: &str) -> Option<Challenge> {
        Challenge::read([header])
    }

    #[test]
    fn what_servers_write_is_read() {
        let metadata = Some("https://a.example/.well-known/x?y=1,2".to_owned());
        let full = read(
            r#"Bearer realm="mcp", error="insufficient_scope", scope="a:read b:write", resource_metadata="https://a.example/.well-known/x?y=1,2""#,
        )
        .unwrap();
        assert!(full.wants_more_rights());
        assert_eq!(full.scope.as_deref(), Some("a:read b:write"));
        assert_eq!(full.resource_metadata, metadata);
        let bare = read("bearer resource_metadata=https://a.example/.well-known/x").unwrap();
        assert_eq!(
            bare.resource_metadata.as_deref(),
            Some("https://a.example/.well-known/x")
        );
        assert_eq!(read("Bearer"), Some(Challenge::default()));
        let second = read(r#"Basic realm="x", Bearer scope="a \"b\"""#).unwrap();
        assert_eq!(second.scope.as_deref(), Some(r#"a "b""#));
        let first = read(r#"Bearer scope="a", DPoP scope="b""#).unwrap();
        assert_eq!(first.scope.as_deref(), Some("a"));
    }

    #[test]
    fn nonsense_is_no_challenge_and_no_harm() {
        for header in ["", "Basic realm=\"x\"", "=", "\"", ",,,", "Negotiate abc=="] {
            assert_eq!(read(header), None, "{header}");
        }
        let long = format!("Bearer scope=\"{}\"", "x".repeat(3_000));
        assert_eq!(read(&long), Some(Challenge::default()));
        assert_eq!(
            read("Bearer scope=\"never ends"),
            read("Bearer scope=\"never ends\"")
        );
    }
}
