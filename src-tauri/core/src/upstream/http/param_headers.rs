//! Arguments that a tool's schema wants in headers too (`x-mcp-header`), so that what stands before
//! the server can route by them.

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
}
