//! Windsurf, the editor, and Codeium's plugins for other editors.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Reads, Several, Target, TargetFile};

/// Windsurf.
pub(super) const CLIENT: Client = Client {
    id: "windsurf",
    name: "Windsurf",
    dialect: Dialect {
        syntax: Syntax::Env,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        // One is the editor's, the other its plugins'.
        several: Several::Ask,
        reads: Reads::NoMark,
        restart: "press Refresh in the MCP panel",
        processes: &["windsurf", "Windsurf"],
        ..Target::plain(|search| {
            let codeium = search.paths.home.join(".codeium");
            vec![
                TargetFile::new(codeium.join("windsurf/mcp_config.json")),
                TargetFile::new(codeium.join("mcp_config.json")),
            ]
        })
    }),
    places: |search| {
        let codeium = search.paths.home.join(".codeium");
        vec![
            Place::user(codeium.join("windsurf/mcp_config.json")),
            Place::user(codeium.join("mcp_config.json")),
        ]
    },
    read: |reading| reading.section(&["mcpServers"]),
};
