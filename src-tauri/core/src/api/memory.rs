//! What models asked us to remember, and the tools they saved.

use serde::{Deserialize, Serialize};

use super::ApiError;

/// A memory item without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct MemoryInfo {
    /// Its key.
    pub key: String,
    /// Size of the value.
    pub size_bytes: u64,
    /// The start of the value's JSON, for the list.
    pub preview: String,
    /// First saved.
    pub created_at: i64,
    /// Last saved.
    pub updated_at: i64,
    /// Last loaded, when that is known.
    pub used_at: Option<i64>,
    /// Counts the saves.
    pub version: u64,
    /// The client that saved it last.
    pub client: Option<String>,
    /// The set of variables that saved it last.
    pub session: Option<String>,
    /// Its file cannot be read: why.
    pub damaged: Option<ApiError>,
}

/// A memory item with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct MemoryItem {
    /// The rest.
    pub info: MemoryInfo,
    /// The value as JSON text.
    pub value: String,
    /// The metadata as JSON text.
    pub metadata: Option<String>,
}

/// By what memory items are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum MemoryOrder {
    /// By key.
    Key,
    /// The largest first.
    Size,
    /// The last saved first.
    Updated,
    /// The last loaded first.
    Used,
}

/// Some memory items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct MemoryPage {
    /// The items.
    pub items: Vec<MemoryInfo>,
    /// How many match in all.
    pub total: u64,
}

/// How much is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct MemoryTotals {
    /// Items.
    pub items: u64,
    /// Their size.
    pub size_bytes: u64,
    /// Saved tools.
    pub saved_tools: u64,
}

/// A function that a model saved for later sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct SavedTool {
    /// Its name.
    pub name: String,
    /// Its first line of documentation.
    pub summary: String,
    /// Its source.
    pub source: String,
    /// Last saved.
    pub updated_at: i64,
    /// The client that saved it.
    pub client: Option<String>,
    /// It cannot be loaded: why.
    pub damaged: Option<ApiError>,
}

/// What was just forgotten. It can be had back until the program ends or 20 others are forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Forgotten {
    /// For `undo_forget`.
    pub undo_id: String,
}

/// What an import does with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum ImportMode {
    /// Keys that are there already keep their values.
    Keep,
    /// Keys that are there already get the imported values.
    Replace,
}

/// What an import did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ImportReport {
    /// Keys that were new.
    pub added: u64,
    /// Keys that got another value.
    pub replaced: u64,
    /// Keys that stayed as they were.
    pub kept: u64,
}
