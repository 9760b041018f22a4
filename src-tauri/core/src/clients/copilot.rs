//! GitHub Copilot outside VS Code: its CLI, and its plugin for `JetBrains`.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use crate::paths::Os;

/// GitHub Copilot CLI. The `.mcp.json` of a project is read as Claude Code's.
pub(super) const CLI: Client = Client {
    id: "copilot-cli",
    name: "GitHub Copilot CLI",
    dialect: Dialect {
        syntax: Syntax::Shell,
        timeout: Timeout::CallMilliseconds,
        bare_url_is_sse: false,
    },
    places: |search| {
        let home = search
            .environment
            .folder("COPILOT_HOME")
            .unwrap_or_else(|| search.paths.home.join(".copilot"));
        let mut places = search.projects(&[".github/mcp.json"]);
        places.push(Place::user(home.join("mcp-config.json")));
        places
    },
    read: |reading| reading.section(&["mcpServers"]),
};

/// GitHub Copilot for `JetBrains`, in VS Code's shape.
pub(super) const JETBRAINS: Client = Client {
    id: "copilot-jetbrains",
    name: "GitHub Copilot for JetBrains",
    dialect: Dialect {
        syntax: Syntax::VsCode,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    places: |search| {
        let config = if search.environment.os() == Os::Windows {
            &search.paths.user_local
        } else {
            &search.paths.xdg_config
        };
        vec![Place::user(config.join("github-copilot/intellij/mcp.json"))]
    },
    read: |reading| reading.section(&["servers"]),
};
