//! Cursor. Its on/off switch is in its own state, so a server that is off there looks on to us.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Target, TargetFile};

/// Cursor.
pub(super) const CLIENT: Client = Client {
    id: "cursor",
    name: "Cursor",
    dialect: Dialect {
        syntax: Syntax::Cursor,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        processes: &["cursor", "Cursor"],
        ..Target::plain(|search| vec![TargetFile::new(search.paths.home.join(".cursor/mcp.json"))])
    }),
    places: |search| {
        let mut places = search.projects(&[".cursor/mcp.json"]);
        places.push(Place::user(search.paths.home.join(".cursor/mcp.json")));
        places
    },
    read: |reading| reading.section(&["mcpServers"]),
};
