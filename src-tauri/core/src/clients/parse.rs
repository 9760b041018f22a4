//! JSON, TOML and YAML texts as one kind of value that remembers where it stood.
//!
//! The texts belong to other programs and may be broken, huge or hostile: size is checked first, then
//! encoding, then syntax. What the values mean is not known here.

mod bytes;
mod yaml;

use std::io::ErrorKind;
use std::path::Path;

use jsonc_parser::ast;

/// Deeper nesting is no configuration, and every reader after us recurses.
const DEPTH_MAX: usize = 128;

/// The position of a value that no file holds.
const NOWHERE: usize = usize::MAX;

/// A text's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON with comments, trailing commas and the other freedoms that people take.
    Json,
    /// TOML.
    Toml,
    /// YAML; the first document.
    Yaml,
}

/// A place in a text, both counted from 1, the column in characters.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// A text that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Where, if it is a matter of syntax.
    pub position: Option<Position>,
    /// Why.
    pub message: String,
}

/// A text and what it says.
#[derive(Debug)]
pub struct Document {
    text: String,
    /// Byte offsets at which lines begin.
    lines: Vec<usize>,
    /// What the text says; an empty text says an empty map.
    pub root: Value,
}

/// A value and where it stood.
#[derive(Clone, Debug)]
pub struct Value {
    /// Byte offset.
    pub at: usize,
    /// Byte offset behind it. A block of YAML ends where the next thing begins.
    pub end: usize,
    /// What it is.
    pub kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A number as it was written.
    Number(String),
    /// A text.
    Text(String),
    /// A sequence.
    List(Vec<Value>),
    /// Names with values; a name may occur twice.
    Map(Vec<Member>),
}

/// A name with its value.
#[derive(Clone, Debug)]
pub struct Member {
    /// The name.
    pub name: String,
    /// Where the name stood, as a byte offset.
    pub at: usize,
    /// The value.
    pub value: Value,
}

impl Value {
    /// The members of a map.
    pub fn members(&self) -> Option<&[Member]> {
        match &self.kind {
            Kind::Map(members) => Some(members),
            _ => None,
        }
    }

    /// The member called `name`; of two, the last, as JavaScript reads it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members()?
            .iter()
            .rev()
            .find(|member| member.name == name)
            .map(|member| &member.value)
    }

    /// The items of a list.
    pub fn items(&self) -> Option<&[Value]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// The text.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is `true` or `false`.
    pub fn bool(&self) -> Option<bool> {
        match self.kind {
            Kind::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// What it is, for a message.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "an object",
        }
    }

    /// The same without positions.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.kind {
            Kind::Null => serde_json::Value::Null,
            Kind::Bool(value) => (*value).into(),
            Kind::Number(number) => {
                serde_json::from_str(number).unwrap_or_else(|_| number.clone().into())
            }
            Kind::Text(text) => text.clone().into(),
            Kind::List(items) => items.iter().map(Self::to_json).collect(),
            Kind::Map(members) => serde_json::Value::Object(
                members
                    .iter()
                    .map(|member| (member.name.clone(), member.value.to_json()))
                    .collect(),
            ),
        }
    }

    /// A value that stands in no text of ours.
    pub fn from_json(json: &serde_json::Value) -> Self {
        let kind = match json {
            serde_json::Value::Null => Kind::Null,
            serde_json::Value::Bool(value) => Kind::Bool(*value),
            serde_json::Value::Number(number) => Kind::Number(number.to_string()),
            serde_json::Value::String(text) => Kind::Text(text.clone()),
            serde_json::Value::Array(items) => {
                Kind::List(items.iter().map(Self::from_json).collect())
            }
            serde_json::Value::Object(members) => Kind::Map(
                members
                    .iter()
                    .map(|(name, value)| Member {
                        name: name.clone(),
                        at: NOWHERE,
                        value: Self::from_json(value),
                    })
                    .collect(),
            ),
        };
        Self {
            at: NOWHERE,
            end: NOWHERE,
            kind,
        }
    }
}

impl Document {
    /// Reads and parses a file; `None` if there is none.
    pub fn read(path: &Path, format: Format) -> Option<Result<Self, Unreadable>> {
        match bytes::read(path) {
            Ok(bytes) => Some(bytes::decode(bytes).and_then(|text| Self::parse(text, format))),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                None
            }
            Err(error) => Some(Err(unreadable(error.to_string()))),
        }
    }

    /// Parses a text.
    pub fn parse(text: String, format: Format) -> Result<Self, Unreadable> {
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let mut document = Self {
            text,
            lines,
            root: Value {
                at: 0,
                end: 0,
                kind: Kind::Map(Vec::new()),
            },
        };
        let root = match format {
            Format::Json => document.json(),
            Format::Toml => document.toml(),
            Format::Yaml => document.yaml(),
        }?;
        if let Some(root) = root {
            document.root = root;
        }
        Ok(document)
    }

    /// A document around a value that stands in no text.
    pub fn of_value(root: Value) -> Self {
        Self {
            text: String::new(),
            lines: vec![0],
            root,
        }
    }

    /// The text.
    pub fn source(&self) -> &str {
        &self.text
    }

    /// Where in the text `at` is.
    pub fn position(&self, at: usize) -> Option<Position> {
        if at == NOWHERE {
            return None;
        }
        let line = self.lines.partition_point(|&start| start <= at).max(1);
        let before = self
            .text
            .get(self.lines[line - 1]..at.min(self.text.len()))
            .unwrap_or_default();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Some(Position {
            line: number(line),
            column: number(before.chars().count() + 1),
        })
    }

    fn json(&self) -> Result<Option<Value>, Unreadable> {
        let options = jsonc_parser::ParseOptions {
            allow_missing_commas: false,
            ..Default::default()
        };
        let parsed = jsonc_parser::parse_to_ast(
            &self.text,
            &jsonc_parser::CollectOptions::default(),
            &options,
        );
        match parsed {
            Ok(parsed) => Ok(parsed.value.map(from_jsonc)),
            Err(error) => Err(self.broken("JSON", error.range().start, &error.kind().to_string())),
        }
    }

    fn toml(&self) -> Result<Option<Value>, Unreadable> {
        match toml::de::DeTable::parse(&self.text) {
            Ok(table) => {
                let span = table.span();
                from_toml(
                    toml::de::DeValue::Table(table.into_inner()),
                    span,
                    DEPTH_MAX,
                )
                .map(Some)
                .ok_or_else(|| unreadable("it is nested too deeply".to_owned()))
            }
            Err(error) => Err(self.broken(
                "TOML",
                error.span().map_or(0, |span| span.start),
                error.message(),
            )),
        }
    }

    fn yaml(&self) -> Result<Option<Value>, Unreadable> {
        yaml::parse(&self.text, DEPTH_MAX)
            .map_err(|(at, message)| self.broken("YAML", at, &message))
    }

    fn broken(&self, language: &str, at: usize, message: &str) -> Unreadable {
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        Unreadable {
            position: self.position(at),
            message: format!("this is not valid {language}: {message}"),
        }
    }
}

/// The bytes of a file as they are; `None` if there is none.
pub(super) fn read_bytes(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match bytes::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The text that bytes stand for.
pub(super) fn decode(bytes: Vec<u8>) -> Result<String, Unreadable> {
    bytes::decode(bytes)
}

/// The text of a file; `None` if there is none.
pub(super) fn read_text(path: &Path) -> Option<Result<String, Unreadable>> {
    match bytes::read(path) {
        Ok(bytes) => Some(bytes::decode(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            None
        }
        Err(error) => Some(Err(unreadable(error.to_string()))),
    }
}

fn unreadable(message: String) -> Unreadable {
    Unreadable {
        position: None,
        message,
    }
}

/// The parser has bounded the depth.
fn from_jsonc(value: ast::Value<'_>) -> Value {
    use jsonc_parser::common::Ranged;
    let (at, end) = (value.range().start, value.range().end);
    let kind = match value {
        ast::Value::StringLit(text) => Kind::Text(text.value.into_owned()),
        ast::Value::NumberLit(number) => Kind::Number(number.value.to_owned()),
        ast::Value::BooleanLit(bool) => Kind::Bool(bool.value),
        ast::Value::NullKeyword(_) => Kind::Null,
        ast::Value::Array(array) => {
            Kind::List(array.elements.into_iter().map(from_jsonc).collect())
        }
        ast::Value::Object(object) => Kind::Map(
            object
                .properties
                .into_iter()
                .map(|property| Member {
                    at: property.range.start,
                    name: property.name.into_string(),
                    value: from_jsonc(property.value),
                })
                .collect(),
        ),
    };
    Value { at, end, kind }
}

fn from_toml(
    value: toml::de::DeValue<'_>,
    span: std::ops::Range<usize>,
    depth_left: usize,
) -> Option<Value> {
    use toml::de::DeValue;
    let depth_left = depth_left.checked_sub(1)?;
    let kind = match value {
        DeValue::String(text) => Kind::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(value) => Kind::Number(value.to_string()),
            Err(_) => Kind::Number(number.as_str().to_owned()),
        },
        DeValue::Float(number) => Kind::Number(number.as_str().to_owned()),
        DeValue::Boolean(value) => Kind::Bool(value),
        DeValue::Datetime(time) => Kind::Text(time.to_string()),
        DeValue::Array(items) => Kind::List(
            items
                .into_iter()
                .map(|item| {
                    let span = item.span();
                    from_toml(item.into_inner(), span, depth_left)
                })
                .collect::<Option<_>>()?,
        ),
        DeValue::Table(table) => {
            let members = table.into_iter().map(|(name, value)| {
                let (name_at, span) = (name.span().start, value.span());
                let value = from_toml(value.into_inner(), span, depth_left)?;
                Some(Member {
                    at: name_at,
                    name: name.into_inner().into_owned(),
                    value,
                })
            });
            let mut members = members.collect::<Option<Vec<_>>>()?;
            // The parser sorts by name; people wrote an order.
            members.sort_by_key(|member| member.at);
            Kind::Map(members)
        }
    };
    Some(Value {
        at: span.start,
        end: span.end,
        kind,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use std::fmt::Write;

    use super::*;

    fn parse(text: &str, format: Format) -> Result<serde_json::Value, Unreadable> {
        Document::parse(text.to_owned(), format).map(|document| document.root.to_json())
    }

    #[test]
    fn the_three_formats_say_the_same() {
        let json = parse(
            "{\"a\": [1, 'x', true,], // no\n \"b\": {\"c\": null}}",
            Format::Json,
        )
        .unwrap();
        let toml = parse("a = [1, \"x\", true]\n[b]\n", Format::Toml).unwrap();
        let yaml = parse("a: [1, 'x', true]\nb:\n  c:\n", Format::Yaml).unwrap();
        assert_eq!(json, yaml);
        assert_eq!(json["a"], toml["a"]);
    }

    #[test]
    fn errors_say_where() {
        for (format, text, line) in [
            (Format::Json, "{\n  \"a\": 1\n  \"b\": 2\n}", 2),
            (Format::Json, "{\n\"a\": }", 2),
            (Format::Toml, "a = 1\nb = \n", 2),
            (Format::Yaml, "a: 1\nb: [1\nc: 2\n", 3),
        ] {
            let error = parse(text, format).unwrap_err();
            assert_eq!(
                error.position.unwrap().line,
                line,
                "{format:?} {text}: {error:?}"
            );
        }
    }

    #[test]
    fn positions_count_characters_in_every_format() {
        for (format, text) in [
            (Format::Json, "{\"ää\": 1,\n\"öö\": {\"x\": 1}}"),
            (Format::Yaml, "ää: 1\nöö: {x: 1}\n"),
            (Format::Toml, "\"ää\" = 1\n\"öö\" = {x = 1}\n"),
        ] {
            let document = Document::parse(text.to_owned(), format).unwrap();
            let member = document
                .root
                .members()
                .unwrap()
                .iter()
                .find(|member| member.name == "öö")
                .unwrap();
            assert_eq!(
                document.position(member.at).unwrap(),
                Position { line: 2, column: 1 },
                "{format:?}"
            );
            let x = &member.value.members().unwrap()[0];
            assert!(document.position(x.at).unwrap().column >= 6, "{format:?}");
        }
    }

    #[test]
    fn hostile_texts_are_refused_not_obeyed() {
        assert!(parse(&"[".repeat(100_000), Format::Json).is_err());
        assert!(parse(&"[".repeat(100_000), Format::Yaml).is_err());
        let mut laughs = "a0: &a0 [x, x]\n".to_owned();
        for n in 1..40 {
            writeln!(laughs, "a{n}: &a{n} [*a{0}, *a{0}]", n - 1).unwrap();
        }
        assert!(
            parse(&laughs, Format::Yaml)
                .unwrap_err()
                .message
                .contains("too many")
        );
    }

    #[test]
    fn yaml_anchors_and_merge_keys_work() {
        let value = parse("base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\n", Format::Yaml).unwrap();
        assert_eq!(value["use"], serde_json::json!({"y": 3, "x": 1}));
    }

    #[test]
    fn an_empty_text_is_an_empty_map() {
        for format in [Format::Json, Format::Toml, Format::Yaml] {
            assert_eq!(
                parse(" \n", format).unwrap(),
                serde_json::json!({}),
                "{format:?}"
            );
        }
    }
}
