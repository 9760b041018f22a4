//! How many tokens a text costs a model, near enough for a figure on a screen.
//!
//! Counted as the tokenizers of today's models split: words, numbers, runs of signs. The exact number
//! differs by model and needs tables of megabytes; this is within a tenth or so of o200k for the JSON of
//! tool definitions and for prose.

/// Longer texts are judged by a part of this length.
const SAMPLE_BYTES: usize = 64 * 1024;

/// Letters that one token holds on average beyond the first word piece.
const LETTERS_PER_TOKEN: usize = 12;

/// The tokens of `text`, about.
pub fn estimate(text: &str) -> u64 {
    if text.len() <= SAMPLE_BYTES {
        return count(text);
    }
    let mut end = SAMPLE_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let scale = text.len() as f64 / end as f64;
    (count(&text[..end]) as f64 * scale).round() as u64
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    Sign,
    /// Letters of scripts that tokens hold one or two of.
    Dense,
}

fn class(character: char) -> Class {
    match character {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Digit,
        _ if character.is_whitespace() => Class::Space,
        _ if character.is_ascii() => Class::Sign,
        '\u{00c0}'..='\u{024f}' => Class::Letter,
        _ => Class::Dense,
    }
}

fn count(text: &str) -> u64 {
    let mut tokens = 0;
    let mut characters = text.chars().peekable();
    while let Some(first) = characters.next() {
        let kind = class(first);
        let mut length = 1;
        let mut last = first;
        while let Some(&next) = characters.peek() {
            // A capital begins a word of its own: `createIssue` is two.
            let new_word = kind == Class::Letter && next.is_uppercase() && last.is_lowercase();
            if class(next) != kind || new_word {
                break;
            }
            last = next;
            length += 1;
            characters.next();
        }
        tokens += match kind {
            Class::Letter => 1 + (length - 1) / LETTERS_PER_TOKEN,
            // One blank belongs to the word behind it.
            Class::Space => usize::from(length > 1 || last == '\n'),
            // Digits by threes; quotes, colons and braces in pieces that tokens know.
            // An underscore belongs to the word behind it.
            Class::Sign if first == '_' && length == 1 => 0,
            Class::Digit | Class::Sign => length.div_ceil(3),
            Class::Dense => (length * 2).div_ceil(3),
        };
    }
    tokens as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROSE: &str = "Create a new issue in a repository. The body may use Markdown. Labels that \
        do not exist are created; assignees must be collaborators, otherwise the call fails.";

    const SCHEMA: &str = r#"{"name":"create_issue","description":"Create a new issue in a GitHub repository","inputSchema":{"type":"object","properties":{"owner":{"type":"string","description":"Repository owner"},"repo":{"type":"string","description":"Repository name"},"title":{"type":"string"},"body":{"type":"string"},"assignees":{"type":"array","items":{"type":"string"}},"milestone":{"type":"number"},"labels":{"type":"array","items":{"type":"string"}},"perPage":{"type":"integer","minimum":1,"maximum":100}},"required":["owner","repo","title"],"additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}}"#;

    const ROWS: &str = r#"[{"id":48213,"name":"Ada Lovelace","joined_at":"2021-03-14T09:26:53Z","score":97.25},{"id":48214,"name":"Grace Hopper","joined_at":"2020-11-02T17:05:11Z","score":88.5}]"#;

    #[test]
    fn it_is_near_what_a_tokenizer_counts() {
        let tokenizer = bpe_openai::o200k_base();
        for text in [PROSE, SCHEMA, ROWS, &format!("{SCHEMA}\n").repeat(200)] {
            let exact = tokenizer.count(text) as f64;
            let about = estimate(text) as f64;
            let off = (about - exact).abs() / exact;
            assert!(
                off < 0.12,
                "{about} for {exact} of {}",
                &text[..60.min(text.len())]
            );
        }
        assert_eq!(estimate(""), 0);
    }
}
