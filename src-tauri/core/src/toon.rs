//! Print JSON values in TOON, an indented notation that costs a model fewer tokens than JSON: no
//! braces, few quotes, arrays with their length, uniform objects as a table.
//!
//! Encodes only; comma as the delimiter, two spaces per level. Control characters that TOON has no
//! escape for stand in a quoted string as they are.

use serde_json::{Map, Number, Value};

/// Deeper values are refused, so that a hostile one cannot exhaust the stack.
const DEPTH_MAX: usize = 64;

/// The value is nested more deeply than [`encode`] goes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the value is nested more than {DEPTH_MAX} levels deep")]
pub struct TooDeep;

/// `value` in TOON, without a line end behind it.
pub fn encode(value: &Value) -> Result<String, TooDeep> {
    let mut out = Lines::default();
    match value {
        Value::Object(fields) => object(fields, 0, &mut out)?,
        Value::Array(items) => array("", items, 0, 1, &mut out)?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.line(0, &primitive(value));
        }
    }
    Ok(out.text)
}

#[derive(Default)]
struct Lines {
    text: String,
    /// Put in place of the last two spaces of the next line's indentation.
    marker: Option<&'static str>,
}

impl Lines {
    fn line(&mut self, depth: usize, content: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let marker = self.marker.take();
        for _ in 0..depth - usize::from(marker.is_some()) {
            self.text.push_str("  ");
        }
        self.text.push_str(marker.unwrap_or_default());
        self.text.push_str(content);
    }
}

fn object(fields: &Map<String, Value>, depth: usize, out: &mut Lines) -> Result<(), TooDeep> {
    if depth > DEPTH_MAX {
        return Err(TooDeep);
    }
    for (name, value) in fields {
        let name = key(name);
        match value {
            Value::Object(fields) => {
                out.line(depth, &format!("{name}:"));
                object(fields, depth + 1, out)?;
            }
            Value::Array(items) => array(&name, items, depth, depth + 1, out)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                out.line(depth, &format!("{name}: {}", primitive(value)));
            }
        }
    }
    Ok(())
}

/// The array `items` under the already encoded `name`, which is empty for an array without one. Its
/// first line stands at `depth`, its rows or items at `below`.
fn array(
    name: &str,
    items: &[Value],
    depth: usize,
    below: usize,
    out: &mut Lines,
) -> Result<(), TooDeep> {
    if depth > DEPTH_MAX {
        return Err(TooDeep);
    }
    let length = items.len();
    if items.iter().all(is_primitive) {
        let space = if items.is_empty() { "" } else { " " };
        out.line(
            depth,
            &format!(
                "{name}[{length}]:{space}{}",
                joined(items.iter().map(primitive))
            ),
        );
        return Ok(());
    }
    if let Some(columns) = table_columns(items) {
        out.line(
            depth,
            &format!(
                "{name}[{length}]{{{}}}:",
                joined(columns.keys().map(|name| key(name)))
            ),
        );
        for row in items.iter().filter_map(Value::as_object) {
            let cells = columns
                .keys()
                .filter_map(|name| row.get(name))
                .map(primitive);
            out.line(below, &joined(cells));
        }
        return Ok(());
    }
    out.line(depth, &format!("{name}[{length}]:"));
    for item in items {
        list_item(item, below, out)?;
    }
    Ok(())
}

/// One item of a list whose markers stand at `depth`.
fn list_item(item: &Value, depth: usize, out: &mut Lines) -> Result<(), TooDeep> {
    match item {
        Value::Object(fields) if fields.is_empty() => out.line(depth, "-"),
        Value::Object(fields) => {
            out.marker = Some("- ");
            object(fields, depth + 1, out)?;
        }
        Value::Array(items) => {
            out.marker = Some("- ");
            array("", items, depth + 1, depth + 1, out)?;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.line(depth, &format!("- {}", primitive(item)));
        }
    }
    Ok(())
}

/// The first item, if all items are objects with the same keys and only primitive values.
fn table_columns(items: &[Value]) -> Option<&Map<String, Value>> {
    let columns = items
        .first()?
        .as_object()
        .filter(|columns| !columns.is_empty())?;
    let uniform = items.iter().all(|item| {
        item.as_object().is_some_and(|row| {
            row.len() == columns.len()
                && row
                    .iter()
                    .all(|(name, value)| columns.contains_key(name) && is_primitive(value))
        })
    });
    uniform.then_some(columns)
}

fn is_primitive(value: &Value) -> bool {
    !matches!(value, Value::Object(_) | Value::Array(_))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn primitive(value: &Value) -> String {
    match value {
        Value::String(text) if needs_quotes(text) => quoted(text),
        Value::String(text) => text.clone(),
        Value::Number(number) => decimal(number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Without exponent, and without a sign of zero.
fn decimal(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            if float == 0.0 {
                "0".to_owned()
            } else {
                float.to_string()
            }
        }
        _ => number.to_string(),
    }
}

fn key(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if first && chars.all(|next| next.is_ascii_alphanumeric() || matches!(next, '_' | '.')) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

fn needs_quotes(text: &str) -> bool {
    text.is_empty()
        || text.trim() != text
        || matches!(text, "true" | "false" | "null")
        || text.starts_with(['-', '#'])
        || looks_numeric(text)
        || text.chars().any(|next| {
            next.is_control() || matches!(next, ':' | '"' | '\\' | '[' | ']' | '{' | '}' | ',')
        })
}

/// Whether a reader could take it for a number: all that begins like one.
fn looks_numeric(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '.']).unwrap_or(text);
    digits.starts_with(|first: char| first.is_ascii_digit())
        && digits
            .chars()
            .all(|next| next.is_ascii_digit() || matches!(next, '.' | 'e' | 'E' | '+' | '-' | '_'))
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for next in text.chars() {
        match next {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]
    use super::*;
    use serde_json::json;

    #[test]
    fn every_shape_is_printed_as_the_format_says() {
        let value = json!({
            "status": "success", "empty": "", "number-like": "05", "n": 1.50, "tiny": 1e-7, "big": 1e21, "zero": -0.0,
            "text": "a: b\n\tc \\ \"d\"", "dash": "-x", "flag": "true", "yes": true, "none": null, "space ": " x",
            "names": ["a", "b,c", 3, null], "no_names": [],
            "rows": [{"id": 1, "name": "A, B"}, {"name": "C", "id": 2}],
            "mixed": [1, {"a": 1, "b": {"c": []}}, {}, [1, 2], [[3], {"x": "y"}], {"t": [{"q": 1}], "u": 2}],
            "object": {"inner": {}, "list": [[1], []]},
        });
        insta::assert_snapshot!(encode(&value).unwrap(), @r#"
        status: success
        empty: ""
        "number-like": "05"
        n: 1.5
        tiny: 0.0000001
        big: 1000000000000000000000
        zero: 0
        text: "a: b\n\tc \\ \"d\""
        dash: "-x"
        flag: "true"
        yes: true
        none: null
        "space ": " x"
        names[4]: a,"b,c",3,null
        no_names[0]:
        rows[2]{id,name}:
          1,"A, B"
          2,C
        mixed[6]:
          - 1
          - a: 1
            b:
              c[0]:
          -
          - [2]: 1,2
          - [2]:
            - [1]: 3
            - x: y
          - t[1]{q}:
              1
            u: 2
        object:
          inner:
          list[2]:
            - [1]: 1
            - [0]:
        "#);
    }

    #[test]
    fn roots_that_are_no_objects() {
        assert_eq!(encode(&json!([{"a": 1}])).unwrap(), "[1]{a}:\n  1");
        assert_eq!(encode(&json!("x")).unwrap(), "x");
        assert_eq!(encode(&json!({})).unwrap(), "");
    }

    #[test]
    fn a_deep_value_is_refused() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep, {"a": 1}]);
        }
        assert_eq!(encode(&deep), Err(TooDeep));
    }
}
