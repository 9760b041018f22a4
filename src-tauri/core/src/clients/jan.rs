//! Jan. An entry for a remote server may carry an empty command, and `active` is its switch.

use serde_json::json;

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Several, Target, TargetFile};
use crate::paths::Os;

/// Jan.
pub(super) const CLIENT: Client = Client {
    id: "jan",
    name: "Jan",
    dialect: Dialect {
        syntax: Syntax::None,
        timeout: Timeout::CallSeconds,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        several: Several::Ask,
        entry: |program, _| json!({"command": program, "args": [], "env": {}, "active": true}),
        restart: "quit Jan and start it again",
        processes: &["jan", "Jan"],
        ..Target::plain(|search| {
            (CLIENT.places)(search)
                .into_iter()
                .map(|place| TargetFile::new(place.path))
                .collect()
        })
    }),
    places: |search| {
        let paths = search.paths;
        let folders = match search.environment.os() {
            Os::Linux => vec![
                paths.user_local.join("Jan/data"),
                paths.user_config.join("Jan/data"),
            ],
            Os::Macos | Os::Windows => vec![paths.user_config.join("Jan/data")],
        };
        folders
            .into_iter()
            .map(|folder| Place::user(folder.join("mcp_config.json")))
            .collect()
    },
    read: |reading| reading.section(&["mcpServers"]),
};
