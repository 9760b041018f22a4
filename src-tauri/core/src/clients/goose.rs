//! Goose: a YAML map of extensions, of which some are MCP servers. Values of `env_keys` are in its keyring.

use std::path::PathBuf;

use serde_json::json;

use super::Search;
use super::client::{Client, Place};
use super::edit::Section;
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Target, TargetFile};
use crate::paths::Os;

/// Goose.
pub(super) const CLIENT: Client = Client {
    id: "goose",
    name: "Goose",
    dialect: Dialect {
        syntax: Syntax::Goose,
        timeout: Timeout::CallSeconds,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        section: |_| Section {
            keys: &["extensions"],
            list: false,
        },
        entry: |program, _| json!({"type": "stdio", "name": "runbridge", "enabled": true, "cmd": program, "args": [], "envs": {}, "timeout": 300}),
        restart: "start a new session",
        processes: &["goose", "goosed"],
        ..Target::plain(|search| vec![TargetFile::new(file(search))])
    }),
    places: |search| vec![Place::user(file(search))],
    read: |reading| reading.section(&["extensions"]),
};

fn file(search: &Search<'_>) -> PathBuf {
    if search.environment.os() == Os::Windows {
        search
            .paths
            .user_config
            .join("Block/goose/config/config.yaml")
    } else {
        search.paths.xdg_config.join("goose/config.yaml")
    }
}
