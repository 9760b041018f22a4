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

    /// Why the annotations of a schema make no headers, so that its tool cannot be called as its
    /// server wants it.
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
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(wanted) = property.get("x-mcp-header") {
            let wanted = wanted.as_str().unwrap_or_default();
            let whole = format!("mcp-param-{wanted}");
            if wanted.is_empty() || HeaderName::from_bytes(whole.as_bytes()).is_err() {
                return Some(format!(
                    "the `x-mcp-header` of `{name}` is no name of a header"
                ));
            }
            if !names.insert(wanted.to_ascii_lowercase()) {
                return Some(format!("two arguments want the header `{wanted}`"));
            }
            let kind = property.get("type").and_then(Value::as_str);
            if matches!(kind, Some("array" | "object" | "null")) {
                return Some(format!(
                    "`{name}` cannot be a header, being more than one value"
                ));
            }
        }
        if depth < DEPTH_MAX
            && let Some(found) = problem(property, names, depth + 1)
        {
            return Some(found);
        }
    }
    None
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
    fn annotations_that_make_no_header_are_named() {
        let problem =
            |properties: Value| ParamHeaders::problem(&json!({ "properties": properties }));
        let good = json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {}});
        assert_eq!(problem(good), None);
        for (properties, why) in [
            (json!({"a": {"x-mcp-header": ""}}), "no name of a header"),
            (json!({"a": {"x-mcp-header": 5}}), "no name of a header"),
            (
                json!({"a": {"x-mcp-header": "two words"}}),
                "no name of a header",
            ),
            (
                json!({"a": {"x-mcp-header": "a\r\nb"}}),
                "no name of a header",
            ),
            (
                json!({"a": {"x-mcp-header": "X"}, "b": {"properties": {"c": {"x-mcp-header": "x"}}}}),
                "two arguments",
            ),
            (
                json!({"a": {"type": "array", "x-mcp-header": "A"}}),
                "more than one value",
            ),
        ] {
            let found = problem(properties).unwrap();
            assert!(found.contains(why), "{found}");
        }
    }

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
}
