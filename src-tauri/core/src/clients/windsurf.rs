//! Windsurf, the editor, and Codeium's plugins for other editors.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};

/// Windsurf.
pub(super) const CLIENT: Client = Client {
    id: "windsurf",
    name: "Windsurf",
    dialect: Dialect {
        syntax: Syntax::Env,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    places: |search| {
        let codeium = search.paths.home.join(".codeium");
        vec![
            Place::user(codeium.join("windsurf/mcp_config.json")),
            Place::user(codeium.join("mcp_config.json")),
        ]
    },
    read: |reading| reading.section(&["mcpServers"]),
};
