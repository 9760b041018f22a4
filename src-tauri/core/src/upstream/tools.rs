//! What a server's `tools/list` said, as values that later code can rely on.
//!
//! A tool without a usable name is left out and named in the notes; anything else that is odd about
//! a tool costs only itself.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Tools of one server; the largest known lists have hundreds.
pub(crate) const TOOLS_MAX: usize = 10_000;

/// Longer names are no names.
const NAME_CHARS_MAX: usize = 512;

/// Notes of one list; a list with more mistakes is not described mistake by mistake.
const NOTES_MAX: usize = 20;

/// One tool as its server describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name, unique in its list.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    /// What it does, for the model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub description: Option<String>,
    /// JSON Schema of its arguments: an object or a boolean.
    pub input_schema: Value,
    /// JSON Schema of `structuredContent`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_schema: Option<Value>,
    /// Hints such as `readOnlyHint`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub annotations: Option<Value>,
    /// It can only be called as a task.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub needs_task: bool,
}

/// The tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolList {
    /// In the server's order.
    pub tools: Vec<Tool>,
    /// What is wrong with the list, one sentence each.
    pub notes: Vec<String>,
}

impl Tool {
    /// Whether `structuredContent` is a plain value that `FastMCP` wrapped as `{"result": …}`.
    pub fn result_is_wrapped(&self) -> bool {
        let Some(schema) = self.output_schema.as_ref().and_then(Value::as_object) else {
            return false;
        };
        if schema.get("x-fastmcp-wrap-result") == Some(&Value::Bool(true)) {
            return true;
        }
        let only_result =
            |names: &Map<String, Value>| names.len() == 1 && names.contains_key("result");
        schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(only_result)
    }
}

impl ToolList {
    pub(crate) fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// Read the tools of all pages.
    pub(crate) fn read(objects: Vec<Value>) -> Self {
        let mut list = Self::default();
        let mut names = HashSet::new();
        for (index, object) in objects.into_iter().enumerate() {
            let Value::Object(mut object) = object else {
                list.note(format!(
                    "tool number {} is not an object and was left out",
                    index + 1
                ));
                continue;
            };
            let name = match object.remove("name") {
                Some(Value::String(name))
                    if !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX =>
                {
                    name
                }
                Some(Value::String(name)) if name.is_empty() => {
                    list.note(format!(
                        "tool number {} has an empty name and was left out",
                        index + 1
                    ));
                    continue;
                }
                Some(Value::String(_)) => {
                    list.note(format!(
                        "tool number {} has an overlong name and was left out",
                        index + 1
                    ));
                    continue;
                }
                Some(other) => {
                    list.note(format!(
                        "tool number {} has a name that is not a string ({}) and was left out",
                        index + 1,
                        other.to_string().chars().take(40).collect::<String>()
                    ));
                    continue;
                }
                None => {
                    list.note(format!(
                        "tool number {} has no name and was left out",
                        index + 1
                    ));
                    continue;
                }
            };
            if !names.insert(name.clone()) {
                list.note(format!("tool `{name}` is listed twice; the first counts"));
                continue;
            }
            let input_schema = match object.remove("inputSchema") {
                Some(schema @ (Value::Object(_) | Value::Bool(_))) => schema,
                None | Some(Value::Null) => Value::Object(Map::new()),
                Some(_) => {
                    list.note(format!("tool `{name}` has an input schema that is none; its arguments are not checked"));
                    Value::Object(Map::new())
                }
            };
            let text = |object: &mut Map<String, Value>, key: &str| match object.remove(key) {
                Some(Value::String(text)) if !text.trim().is_empty() => Some(text),
                _ => None,
            };
            list.tools.push(Tool {
                title: text(&mut object, "title"),
                description: text(&mut object, "description"),
                input_schema,
                output_schema: object.remove("outputSchema").filter(Value::is_object),
                annotations: object.remove("annotations").filter(Value::is_object),
                needs_task: object
                    .get("execution")
                    .and_then(|execution| execution.get("taskSupport"))
                    .is_some_and(|support| support == "required"),
                name,
            });
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_broken_tool_costs_only_itself() {
        let list = ToolList::read(vec![
            json!({"name": "ok", "inputSchema": {"type": "object"}}),
            json!({"inputSchema": {}}),
            json!({"name": 5}),
            json!({"name": ""}),
            json!("just text"),
            json!(null),
            json!({"name": "odd", "inputSchema": "object", "description": null, "icons": "x"}),
            json!({"name": "bare"}),
            json!({"name": "ok", "description": "again"}),
        ]);
        let names: Vec<_> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["ok", "odd", "bare"]);
        insta::assert_snapshot!(list.notes.join("\n"), @r"
        tool number 2 has no name and was left out
        tool number 3 has a name that is not a string (5) and was left out
        tool number 4 has an empty name and was left out
        tool number 5 is not an object and was left out
        tool number 6 is not an object and was left out
        tool `odd` has an input schema that is none; its arguments are not checked
        tool `ok` is listed twice; the first counts
        ");
    }

    #[test]
    fn only_the_wrapper_is_unwrapped() {
        let wrapped = |schema: Value| {
            let list = ToolList::read(vec![json!({"name": "t", "outputSchema": schema})]);
            list.tools[0].result_is_wrapped()
        };
        assert!(wrapped(
            json!({"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]})
        ));
        assert!(wrapped(
            json!({"x-fastmcp-wrap-result": true, "properties": {"result": {}, "more": {}}})
        ));
        assert!(!wrapped(
            json!({"type": "object", "properties": {"result": {}, "count": {}}})
        ));
        assert!(!wrapped(json!({"type": "object"})));
    }
}
