//! A tool's JSON Schema as a Python signature and a docstring.
//!
//! It is for reading: what the model sees is short and close to what it would write. It checks
//! nothing; `arguments` does. Schemas come from servers and may be of any shape, refer to themselves
//! or be huge, so depth and length are bounded.

use std::cell::Cell;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::upstream::Tool;

/// Schemas inside schemas that are still described.
const DEPTH_MAX: usize = 6;

/// The text of one type.
const TYPE_CHARS_MAX: usize = 160;

/// The text of one description line.
const DESCRIPTION_CHARS_MAX: usize = 1_000;

/// Values of one enum that are shown.
const ENUM_VALUES_MAX: usize = 20;

/// Parameters of one tool that are shown.
const PARAMETERS_MAX: usize = 100;

/// Schemas looked at for one type or one list of parameters. Depth alone does not bound a schema
/// whose parts refer to each other many times over.
const SCHEMAS_MAX: u32 = 2_000;

/// The schema that references start from, and how many more schemas may be looked at.
struct Root<'a> {
    schema: &'a Value,
    left: Cell<u32>,
}

impl<'a> Root<'a> {
    fn new(schema: &'a Value) -> Self {
        Self {
            schema,
            left: Cell::new(SCHEMAS_MAX),
        }
    }

    fn exhausted(&self, depth: usize) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0 || depth > DEPTH_MAX
    }
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameter {
    /// Its real name.
    pub(crate) name: String,
    pub(crate) required: bool,
    schema: Value,
}

/// The parameters that a schema lists, through references and combinations, in its order; required
/// ones first.
pub(crate) fn parameters(schema: &Value) -> Vec<Parameter> {
    let mut found = Vec::new();
    collect(schema, &Root::new(schema), true, 0, &mut found);
    found.sort_by_key(|parameter: &Parameter| !parameter.required);
    found
}

/// `certain`: what is required here is required whatever else holds.
fn collect(
    schema: &Value,
    root: &Root<'_>,
    certain: bool,
    depth: usize,
    found: &mut Vec<Parameter>,
) {
    let Value::Object(schema) = schema else {
        return;
    };
    if root.exhausted(depth) {
        return;
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, property) in properties.iter().take(10 * PARAMETERS_MAX) {
            if !found.iter().any(|known| known.name == *name) {
                found.push(Parameter {
                    name: name.clone(),
                    required: false,
                    schema: property.clone(),
                });
            }
        }
    }
    if let Some(target) = reference(schema, root.schema) {
        collect(target, root, certain, depth + 1, found);
    }
    for (keyword, certain) in [
        ("allOf", certain),
        ("anyOf", false),
        ("oneOf", false),
        ("if", false),
        ("then", false),
        ("else", false),
    ] {
        for part in parts(schema.get(keyword)) {
            collect(part, root, certain, depth + 1, found);
        }
    }
    if let Some(dependent) = schema.get("dependentSchemas").and_then(Value::as_object) {
        for part in dependent.values() {
            collect(part, root, false, depth + 1, found);
        }
    }
    if certain && let Some(required) = schema.get("required").and_then(Value::as_array) {
        for name in required.iter().filter_map(Value::as_str) {
            if let Some(known) = found.iter_mut().find(|known| known.name == name) {
                known.required = true;
            } else {
                found.push(Parameter {
                    name: name.to_owned(),
                    required: true,
                    schema: Value::Bool(true),
                });
            }
        }
    }
}

fn parts(schema: Option<&Value>) -> &[Value] {
    match schema {
        Some(Value::Array(parts)) => parts,
        Some(part @ Value::Object(_)) => std::slice::from_ref(part),
        Some(_) | None => &[],
    }
}

/// What a local `$ref` points at.
fn reference<'a>(schema: &Map<String, Value>, root: &'a Value) -> Option<&'a Value> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    let pointer = percent_decoded(pointer);
    root.pointer(&pointer)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let decoded = hex
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            .filter(|_| *first == b'%');
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `create_issue(*, repo: str, title: str, labels: list[str] = None) -> dict`.
pub(crate) fn signature(alias: &str, tool: &Tool) -> String {
    let mut text = format!("{alias}({})", parameter_list(&tool.input_schema));
    if let Some(output) = &tool.output_schema {
        let output = if tool.result_is_wrapped() {
            output.pointer("/properties/result").unwrap_or(output)
        } else {
            output
        };
        let _ = write!(
            text,
            " -> {}",
            type_of(output, tool.output_schema.as_ref().unwrap_or(output))
        );
    }
    text
}

/// `*, repo: str, title: str = None`: empty without parameters.
pub(crate) fn parameter_list(schema: &Value) -> String {
    let parameters = parameters(schema);
    let open = takes_more(schema);
    let mut items = Vec::new();
    for parameter in parameters.iter().take(PARAMETERS_MAX) {
        let name = super::alias::identifier(&parameter.name);
        let mut item = format!("{name}: {}", type_of(&parameter.schema, schema));
        if !parameter.required {
            let default = parameter
                .schema
                .get("default")
                .map_or_else(|| "None".to_owned(), python);
            let _ = write!(item, " = {}", cut(&default, 60));
        }
        items.push(item);
    }
    if parameters.len() > PARAMETERS_MAX {
        items.push("...".to_owned());
    }
    if open {
        items.push("**more".to_owned());
    }
    if items.is_empty() || (items.len() == 1 && open) {
        return items.join("");
    }
    format!("*, {}", items.join(", "))
}

/// A schema that says what unlisted names hold, or lists none, takes more.
fn takes_more(schema: &Value) -> bool {
    match schema.get("additionalProperties") {
        Some(Value::Bool(more)) => *more,
        Some(Value::Object(_)) => true,
        _ => schema.get("patternProperties").is_some(),
    }
}

/// The docstring: what the tool does, then one line for each parameter that has more to say than
/// the signature.
pub(crate) fn docs(tool: &Tool) -> String {
    let mut text = String::new();
    if let Some(description) = tool.description.as_ref().or(tool.title.as_ref()) {
        text.push_str(cut(description.trim(), 20 * DESCRIPTION_CHARS_MAX));
    }
    let schema = &tool.input_schema;
    let parameters = parameters(schema);
    if !parameters.is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str("Parameters:");
        for parameter in parameters.iter().take(PARAMETERS_MAX) {
            text.push_str("\n  ");
            text.push_str(&parameter_line(parameter, schema));
        }
    }
    if let Some(output) = &tool.output_schema {
        let fields = parameters_of_output(output);
        if !fields.is_empty() && !tool.result_is_wrapped() {
            let _ = write!(text, "\n\nReturns: {fields}");
        }
    }
    text.trim_start().to_owned()
}

fn parameter_line(parameter: &Parameter, root: &Value) -> String {
    let mut line = parameter.name.clone();
    let alias = super::alias::identifier(&parameter.name);
    if alias != parameter.name {
        let _ = write!(line, " (in Python: {alias})");
    }
    let _ = write!(line, ": {}", type_of(&parameter.schema, root));
    if parameter.required {
        line.push_str(", required");
    } else if let Some(default) = parameter.schema.get("default") {
        let _ = write!(line, ", default {}", cut(&python(default), 200));
    }
    let bounds = bounds(&parameter.schema);
    if !bounds.is_empty() {
        let _ = write!(line, ", {bounds}");
    }
    if let Some(description) = description(&parameter.schema, root) {
        let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = write!(line, ". {}", cut(&description, DESCRIPTION_CHARS_MAX));
    }
    line
}

fn description<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a str> {
    let own = schema.get("description").and_then(Value::as_str);
    own.or_else(|| {
        reference(schema.as_object()?, root)?
            .get("description")?
            .as_str()
    })
    .filter(|text| !text.trim().is_empty())
}

fn bounds(schema: &Value) -> String {
    let words = [
        ("minimum", "at least "),
        ("exclusiveMinimum", "more than "),
        ("maximum", "at most "),
        ("exclusiveMaximum", "less than "),
        ("minLength", "at least this many characters: "),
        ("maxLength", "at most this many characters: "),
        ("minItems", "at least this many items: "),
        ("maxItems", "at most this many items: "),
        ("pattern", "pattern "),
        ("format", "format "),
    ];
    let mut found = Vec::new();
    for (keyword, words) in words {
        match schema.get(keyword) {
            Some(Value::Number(number)) => found.push(format!("{words}{number}")),
            Some(Value::String(text)) => found.push(format!("{words}{}", cut(text, 100))),
            _ => {}
        }
    }
    found.join(", ")
}

fn parameters_of_output(schema: &Value) -> String {
    let fields: Vec<String> = parameters(schema)
        .iter()
        .take(PARAMETERS_MAX)
        .map(|field| format!("{}: {}", field.name, type_of(&field.schema, schema)))
        .collect();
    cut(&fields.join(", "), DESCRIPTION_CHARS_MAX).to_owned()
}

/// The Python type of a schema.
pub(crate) fn type_of(schema: &Value, root: &Value) -> String {
    let text = type_at(schema, &Root::new(root), 0);
    if text.chars().count() > TYPE_CHARS_MAX {
        shape_only(&text).to_owned()
    } else {
        text
    }
}

/// A type too long to show is still a list or a mapping.
fn shape_only(text: &str) -> &'static str {
    if text.starts_with("list[") {
        "list"
    } else if text.starts_with('{') || text.starts_with("dict") {
        "dict"
    } else {
        "Any"
    }
}

fn type_at(schema: &Value, root: &Root<'_>, depth: usize) -> String {
    let schema = match schema {
        Value::Object(schema) => schema,
        Value::Bool(false) => return "Never".to_owned(),
        _ => return "Any".to_owned(),
    };
    if root.exhausted(depth) {
        return "Any".to_owned();
    }
    if let Some(value) = schema.get("const") {
        return format!("Literal[{}]", cut(&python(value), 60));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let mut shown: Vec<String> = values
            .iter()
            .take(ENUM_VALUES_MAX)
            .map(|value| cut(&python(value), 60).to_owned())
            .collect();
        if values.len() > ENUM_VALUES_MAX {
            shown.push("...".to_owned());
        }
        return format!("Literal[{}]", shown.join(", "));
    }
    if schema.contains_key("$ref") {
        return reference(schema, root.schema).map_or_else(
            || "Any".to_owned(),
            |target| type_at(target, root, depth + 1),
        );
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(options) = schema.get(keyword).and_then(Value::as_array) {
            // Options that only say which names are required do not describe a type of their own.
            let own = schema.contains_key("type") || schema.contains_key("properties");
            if !own {
                return union(
                    options
                        .iter()
                        .map(|option| type_at(option, root, depth + 1)),
                );
            }
        }
    }
    if let Some([only]) = schema
        .get("allOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        && !schema.contains_key("type")
    {
        return type_at(only, root, depth + 1);
    }
    match schema.get("type") {
        Some(Value::String(name)) => named(name, schema, root, depth),
        Some(Value::Array(names)) => union(
            names
                .iter()
                .filter_map(Value::as_str)
                .map(|name| named(name, schema, root, depth)),
        ),
        _ if schema.contains_key("properties") || schema.contains_key("allOf") => {
            named("object", schema, root, depth)
        }
        _ if schema.contains_key("items") => named("array", schema, root, depth),
        _ => "Any".to_owned(),
    }
}

fn named(name: &str, schema: &Map<String, Value>, root: &Root<'_>, depth: usize) -> String {
    match name {
        "string" => "str".to_owned(),
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "boolean" => "bool".to_owned(),
        "null" => "None".to_owned(),
        "array" => match schema.get("items") {
            Some(items @ Value::Object(_)) => {
                let items = type_at(items, root, depth + 1);
                if items == "Any" {
                    "list".to_owned()
                } else {
                    format!("list[{items}]")
                }
            }
            _ => "list".to_owned(),
        },
        "object" => object(schema, root, depth),
        _ => "Any".to_owned(),
    }
}

fn object(schema: &Map<String, Value>, root: &Root<'_>, depth: usize) -> String {
    let Some(properties) = schema
        .get("properties")
        .and_then(Value::as_object)
        .filter(|names| !names.is_empty())
    else {
        return match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => match type_at(values, root, depth + 1).as_str() {
                "Any" => "dict".to_owned(),
                values => format!("dict[str, {values}]"),
            },
            _ => "dict".to_owned(),
        };
    };
    if depth >= 3 || properties.len() > 12 {
        return "dict".to_owned();
    }
    let required = schema.get("required").and_then(Value::as_array);
    let fields: Vec<String> = properties
        .iter()
        .map(|(name, property)| {
            let needed = required
                .is_some_and(|names| names.iter().any(|known| known.as_str() == Some(name)));
            let mark = if needed { "" } else { "?" };
            format!("{name}{mark}: {}", type_at(property, root, depth + 1))
        })
        .collect();
    let text = format!("{{{}}}", fields.join(", "));
    if text.chars().count() > TYPE_CHARS_MAX {
        "dict".to_owned()
    } else {
        text
    }
}

fn union(types: impl Iterator<Item = String>) -> String {
    let mut different: Vec<String> = Vec::new();
    for one in types.take(ENUM_VALUES_MAX) {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    if different.is_empty() || different.iter().any(|one| one == "Any") {
        return "Any".to_owned();
    }
    // `None` reads best at the end.
    different.sort_by_key(|one| one == "None");
    different.join(" | ")
}

/// A JSON value as Python writes it.
pub(crate) fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let quoted = serde_json::to_string(text).unwrap_or_default();
            if text.contains('\'') {
                quoted
            } else {
                format!("'{}'", quoted[1..quoted.len() - 1].replace("\\\"", "\""))
            }
        }
        Value::Array(items) => {
            format!(
                "[{}]",
                items
                    .iter()
                    .take(ENUM_VALUES_MAX)
                    .map(python)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                format!("{}: {}", python(&name.clone().into()), python(value))
            };
            format!(
                "{{{}}}",
                fields
                    .iter()
                    .take(ENUM_VALUES_MAX)
                    .map(field)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
    }
}

fn cut(text: &str, chars_max: usize) -> &str {
    text.char_indices()
        .nth(chars_max)
        .map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use serde_json::json;

    use super::*;

    fn tool(input: Value, output: Option<Value>) -> Tool {
        Tool {
            name: "create-issue".to_owned(),
            title: None,
            description: Some("Create an issue.".to_owned()),
            input_schema: input,
            output_schema: output,
            annotations: None,
            needs_task: false,
        }
    }

    fn shown(input: Value) -> String {
        let tool = tool(input, None);
        format!("{}\n{}", signature("f", &tool), docs(&tool))
    }

    #[test]
    fn an_ordinary_tool() {
        let shown = shown(json!({
            "type": "object",
            "properties": {
                "labels": {"type": "array", "items": {"type": "string"}, "description": "Names of labels"},
                "repo": {"type": "string", "description": "owner/name"},
                "title": {"type": "string", "maxLength": 256},
                "state": {"enum": ["open", "closed", null], "default": "open"},
                "per-page": {"type": "integer", "minimum": 1, "maximum": 100, "default": 30},
                "from": {"type": ["string", "null"], "format": "date"},
            },
            "required": ["repo", "title"],
            "additionalProperties": false,
        }));
        insta::with_settings!({ snapshot_path => "../../../../tests/snapshots" }, {
            insta::assert_snapshot!(shown);
        });
    }

    #[test]
    fn odd_schemas() {
        let schemas = [
            json!({"anyOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "integer"}}}]}),
            json!({"type": "object"}),
            json!({}),
            json!(true),
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"type": "object", "properties": {
                "e": {"enum": [1, "1", true, null, 1.5, {"k": 1}]}, "c": {"const": 3}, "t": true, "f": false,
                "arr": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                "definitions": {"q": {"type": "string", "description": "from afar"}},
                "properties": {"q": {"$ref": "#/definitions/q"}}}),
            json!({"$ref": "#/$defs/args", "$defs": {"args": {"type": "object",
                "properties": {"x": {"type": "number", "exclusiveMinimum": 0}}, "required": ["x"]}}}),
            json!({"type": "object", "$defs": {"node": {"type": "object", "properties": {
                "next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}}}},
                "properties": {"node": {"$ref": "#/$defs/node"}}, "required": ["node"]}),
            json!({"allOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}}}]}),
            json!({"type": "object", "properties": {"p": {"$ref": "https://example.com/s.json"}}, "required": ["p", "unlisted"]}),
            json!({"properties": {"o": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x"]}}}),
        ];
        let all: Vec<String> = schemas.into_iter().map(shown).collect();
        insta::with_settings!({ snapshot_path => "../../../../tests/snapshots" }, {
            insta::assert_snapshot!(all.join("\n---\n"));
        });
    }

    #[test]
    fn results() {
        let wrapped = tool(
            json!({}),
            Some(
                json!({"properties": {"result": {"type": "array", "items": {"type": "integer"}}}}),
            ),
        );
        assert_eq!(signature("f", &wrapped), "f() -> list[int]");
        let plain = tool(
            json!({}),
            Some(
                json!({"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}),
            ),
        );
        assert_eq!(signature("f", &plain), "f() -> {id: int, name?: str}");
        insta::assert_snapshot!(docs(&plain), @r"
        Create an issue.

        Returns: id: int, name: str
        ");
    }

    #[test]
    fn a_schema_that_multiplies_is_cut() {
        // Each level names the next twice; written out it would be 2^40 types.
        let mut definitions = Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
            definitions.insert(
                format!("l{level}"),
                json!({"anyOf": [next, {"type": "array", "items": next}]}),
            );
        }
        let schema = json!({"properties": {"p": {"$ref": "#/$defs/l0"}}, "$defs": definitions});
        assert!(signature("f", &tool(schema, None)).len() < 1_000);
    }
}
