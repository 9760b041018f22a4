//! Codex: its CLI, app and editor extension share one TOML file.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};

/// Codex.
pub(super) const CLIENT: Client = Client {
    id: "codex",
    name: "Codex",
    dialect: Dialect {
        syntax: Syntax::None,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    places: |search| {
        let home = search
            .environment
            .folder("CODEX_HOME")
            .unwrap_or_else(|| search.paths.home.join(".codex"));
        let mut places = search.projects(&[".codex/config.toml"]);
        places.push(Place::user(home.join("config.toml")));
        places
    },
    read: |reading| reading.section(&["mcp_servers"]),
};
