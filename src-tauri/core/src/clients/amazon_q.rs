//! Amazon Q Developer CLI and Kiro, which it became. Agents carry servers of their own.

use std::path::Path;

use super::Search;
use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Reads, Target, TargetFile};

/// Amazon Q Developer.
pub(super) const AMAZON_Q: Client = Client {
    id: "amazon-q",
    name: "Amazon Q Developer",
    dialect: Dialect {
        syntax: Syntax::EnvInEnv,
        timeout: Timeout::CallMilliseconds,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        reads: Reads::PlainJson,
        restart: "start a new session",
        processes: &["q", "qchat"],
        ..Target::plain(|search| {
            vec![TargetFile::new(
                search.paths.home.join(".aws/amazonq/mcp.json"),
            )]
        })
    }),
    places: |search| {
        let home = search.paths.home.join(".aws/amazonq");
        let mut places = search.projects(&[".amazonq/mcp.json"]);
        places.push(Place::user(home.join("mcp.json")));
        places.extend(agents(search, &home.join("cli-agents")));
        places
    },
    read: |reading| reading.section(&["mcpServers"]),
};

/// Kiro.
pub(super) const KIRO: Client = Client {
    id: "kiro",
    name: "Kiro",
    dialect: Dialect {
        syntax: Syntax::Shell,
        timeout: Timeout::CallMilliseconds,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        processes: &["kiro", "kiro-cli"],
        ..Target::plain(|search| {
            vec![TargetFile::under(
                search.paths.home.join(".kiro"),
                "settings/mcp.json",
            )]
        })
    }),
    places: |search| {
        let home = search.paths.home.join(".kiro");
        let mut places = search.projects(&[".kiro/settings/mcp.json"]);
        places.push(Place::user(home.join("settings/mcp.json")));
        places.extend(agents(search, &home.join("agents")));
        places
    },
    read: |reading| reading.section(&["mcpServers"]),
};

fn agents(search: &Search<'_>, folder: &Path) -> Vec<Place> {
    search
        .files_in(folder, |name| {
            !name.starts_with('.') && name.to_ascii_lowercase().ends_with(".json")
        })
        .into_iter()
        .map(Place::user)
        .collect()
}
