//! Arguments that a tool's schema wants in headers too (`x-mcp-header`), so that what stands before
//! the server can route by them.

use std::collections::HashSet;

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::streamable::header_value;

/// Objects within objects that are looked into.
const DEPTH_MAX: usize = 16;

/// Headers of one call.
const HEADERS_MAX: usize = 64;

/// Of one value; servers bound all headers together, most often at 8 or 16 KiB.
const VALUE_BYTES_MAX: usize = 4 * 1024;

/// The headers that go with a request. They travel as an extension of it, which is not part of the
/// message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParamHeaders(pub(super) Vec<(HeaderName, HeaderValue)>);

impl ParamHeaders {
    /// What `schema` wants to see of `arguments`. Annotations that make no header are passed over.
    pub(crate) fn of(schema: &Value, arguments: &Map<String, Value>) -> Self {
        let mut headers = Self::default();
        headers.collect(schema, arguments, 0);
        headers
    }

    /// What is wrong with the headers that `schema` asks for, if anything is.
    pub(crate) fn problem(schema: &Value) -> Option<String> {
        let mut names = HashSet::new();
        problem(schema, &mut names, 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn collect(&mut self, schema: &Value, arguments: &Map<String, Value>, depth: usize) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let Some(value) = arguments.get(name) else {
                continue;
            };
            if let Some(wanted) = property.get("x-mcp-header").and_then(Value::as_str)
                && let Some(text) = plain(value)
                && text.len() <= VALUE_BYTES_MAX
                && let Ok(name) = HeaderName::from_bytes(format!("mcp-param-{wanted}").as_bytes())
                && let Some(value) = header_value(&text)
                && !wanted.is_empty()
                && self.0.len() < HEADERS_MAX
            {
                self.0.push((name, value));
            }
            if let Some(inner) = value.as_object()
                && depth < DEPTH_MAX
            {
                self.collect(property, inner, depth + 1);
            }
        }
    }
}

fn problem(schema: &Value, names: &mut HashSet<String>, depth: usize) -> Option<String> {
    let properties = schema.get("properties").and_then(Value::as_object)?;
    properties.iter().find_map(|(property, schema)| {
        let Some(wanted) = schema.get("x-mcp-header") else {
            return (depth < DEPTH_MAX)
                .then(|| problem(schema, names, depth + 1))
                .flatten();
        };
        let wanted = wanted.as_str().unwrap_or_default();
        let is_token = !wanted.is_empty()
            && wanted
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        let kind = schema.get("type").and_then(Value::as_str);
        if !is_token {
            Some(format!("`{property}` names none"))
        } else if !matches!(kind, Some("string" | "integer" | "boolean")) {
            Some(format!("`{property}` is no text, integer or truth value"))
        } else if !names.insert(wanted.to_ascii_lowercase()) {
            Some(format!("`{property}` names the same one as another"))
        } else {
            None
        }
    })
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_annotated_on_the_way_of_properties_becomes_a_header() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
            "odd": {"type": "string", "x-mcp-header": "two words"},
            "empty": {"type": "string", "x-mcp-header": ""},
            "list": {"type": "array", "x-mcp-header": "List"},
            "where": {"type": "object", "properties": {
                "exact": {"type": "boolean", "x-mcp-header": "Exact"},
            }},
        }});
        let arguments = json!({"region": "a\nb", "odd": "x", "empty": "x", "list": ["x"],
            "where": {"exact": true}});
        let headers = ParamHeaders::of(&schema, arguments.as_object().unwrap());
        let shown: Vec<_> = headers
            .0
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        assert_eq!(
            shown,
            ["mcp-param-region: =?base64?YQpi?=", "mcp-param-exact: true"]
        );
    }

    #[test]
    fn headers_that_cannot_be_are_told() {
        let problem = |one: Value, other: Value| {
            ParamHeaders::problem(&json!({ "properties": { "one": one, "other": other } }))
        };
        let fine = json!({ "type": "string", "x-mcp-header": "Region" });
        let plain = json!({ "type": "object", "properties": { "inner": fine } });
        assert_eq!(problem(fine.clone(), json!({ "type": "array" })), None);
        assert_eq!(problem(json!({}), plain.clone()), None);
        for wrong in [
            json!({ "type": "string", "x-mcp-header": "" }),
            json!({ "type": "string", "x-mcp-header": "two words" }),
            json!({ "type": "string", "x-mcp-header": "Région" }),
            json!({ "type": "string", "x-mcp-header": 5 }),
            json!({ "type": "number", "x-mcp-header": "Number" }),
            json!({ "type": "null", "x-mcp-header": "Null" }),
            json!({ "type": "string", "x-mcp-header": "rEGION" }),
        ] {
            assert!(problem(wrong.clone(), plain.clone()).is_some(), "{wrong}");
        }
    }
}
