//! GitHub Copilot outside VS Code: its CLI, and its plugin for `JetBrains`.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::Search;
use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Target, TargetFile, stdio};
use super::vscode::SERVERS;
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
    target: Some(Target {
        entry: |program, _| json!({"type": "local", "command": program, "args": [], "tools": ["*"]}),
        restart: "start a new session",
        processes: &["copilot"],
        ..Target::plain(|search| vec![TargetFile::new(home(search).join("mcp-config.json"))])
    }),
    places: |search| {
        let mut places = search.projects(&[".github/mcp.json"]);
        places.push(Place::user(home(search).join("mcp-config.json")));
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
    target: Some(Target {
        section: |_| SERVERS,
        entry: |program, _| stdio(program),
        ..Target::plain(|search| {
            vec![TargetFile::under(
                config(search).join("github-copilot"),
                "intellij/mcp.json",
            )]
        })
    }),
    places: |search| {
        vec![Place::user(
            config(search).join("github-copilot/intellij/mcp.json"),
        )]
    },
    read: |reading| reading.section(&["servers"]),
};

fn home(search: &Search<'_>) -> PathBuf {
    search
        .environment
        .folder("COPILOT_HOME")
        .unwrap_or_else(|| search.paths.home.join(".copilot"))
}

fn config<'a>(search: &'a Search<'_>) -> &'a Path {
    if search.environment.os() == Os::Windows {
        &search.paths.user_local
    } else {
        &search.paths.xdg_config
    }
}
