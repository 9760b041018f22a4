//! Cline; it moved out of VS Code's storage, where its old file may linger.

use serde_json::json;

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Reads, Target, TargetFile};

/// Cline.
pub(super) const CLIENT: Client = Client {
    id: "cline",
    name: "Cline",
    dialect: Dialect {
        syntax: Syntax::Env,
        timeout: Timeout::CallSeconds,
        bare_url_is_sse: true,
    },
    target: Some(Target {
        entry: |program, _| json!({"command": program, "args": [], "timeout": 180}),
        reads: Reads::PlainJson,
        ..Target::plain(|search| {
            (CLIENT.places)(search)
                .into_iter()
                .map(|place| TargetFile::new(place.path))
                .collect()
        })
    }),
    places: |search| {
        let file = "cline_mcp_settings.json";
        let environment = search.environment;
        if let Some(path) = environment.folder("CLINE_MCP_SETTINGS_PATH") {
            return vec![Place::user(path)];
        }
        let data = environment.folder("CLINE_DATA_DIR").unwrap_or_else(|| {
            environment
                .folder("CLINE_DIR")
                .unwrap_or_else(|| search.paths.home.join(".cline"))
                .join("data")
        });
        let mut places = vec![Place::user(data.join("settings").join(file))];
        places.extend(search.extension_settings("saoudrizwan.claude-dev", file));
        places
    },
    read: |reading| reading.section(&["mcpServers"]),
};
