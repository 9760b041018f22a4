//! Codex: its CLI, app and editor extension share one TOML file.

use std::path::PathBuf;

use serde_json::json;

use super::Search;
use super::client::{Client, Place};
use super::edit::Section;
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Target, TargetFile};

/// Codex.
pub(super) const CLIENT: Client = Client {
    id: "codex",
    name: "Codex",
    dialect: Dialect {
        syntax: Syntax::None,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        section: |_| Section {
            keys: &["mcp_servers"],
            list: false,
        },
        // Its own default is shorter than the longest run.
        entry: |program, _| json!({"command": program, "args": [], "tool_timeout_sec": 180}),
        restart: "start a new session",
        processes: &["codex"],
        ..Target::plain(|search| vec![TargetFile::new(home(search).join("config.toml"))])
    }),
    places: |search| {
        let mut places = search.projects(&[".codex/config.toml"]);
        places.push(Place::user(home(search).join("config.toml")));
        places
    },
    read: |reading| reading.section(&["mcp_servers"]),
};

fn home(search: &Search<'_>) -> PathBuf {
    search
        .environment
        .folder("CODEX_HOME")
        .unwrap_or_else(|| search.paths.home.join(".codex"))
}
