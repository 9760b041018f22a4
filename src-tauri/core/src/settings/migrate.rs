//! Settings files of earlier versions, brought up to date: one pure function per step.
//!
//! The file itself is not written here; it keeps its old version until the user changes something.

use jsonc_parser::cst::{CstInputValue, CstObject};

use crate::clients::parse::{Document, Format};

/// The version that this program reads and writes.
pub const VERSION: u64 = 1;

/// Brings `settings` from `version` to [`VERSION`]; the caller has refused newer ones.
pub(super) fn migrate(settings: &CstObject, version: u64) {
    if version < 1 {
        from_unversioned(settings);
    }
    match settings.get("version") {
        Some(member) => member.set_value(VERSION.into()),
        None => {
            settings.insert(0, "version", VERSION.into());
        }
    }
}

/// A file without a version was written by hand, often by pasting what a server's README shows.
fn from_unversioned(settings: &CstObject) {
    let Some(pasted) = settings.get("mcpServers") else {
        return;
    };
    if settings.get("own_servers").is_none()
        && let Some(servers) = pasted.value()
        && let Ok(servers) = Document::parse(servers.to_string(), Format::Json)
    {
        settings.append("own_servers", input(&servers.root.to_json()));
        pasted.remove();
    }
}

/// A JSON value as the editor takes it.
pub(super) fn input(value: &serde_json::Value) -> CstInputValue {
    match value {
        serde_json::Value::Null => CstInputValue::Null,
        serde_json::Value::Bool(value) => CstInputValue::Bool(*value),
        serde_json::Value::Number(number) => CstInputValue::Number(number.to_string()),
        serde_json::Value::String(text) => CstInputValue::String(text.clone()),
        serde_json::Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        serde_json::Value::Object(members) => CstInputValue::Object(
            members
                .iter()
                .map(|(name, value)| (name.clone(), input(value)))
                .collect(),
        ),
    }
}
