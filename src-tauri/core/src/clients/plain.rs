//! Clients that need no more than a place and a key: `mcpServers` or near it, with nothing filled in.

use std::path::Path;

use serde_json::json;

use super::Search;
use super::client::{Client, Place, Reading};
use super::edit::Section;
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::parse::Value;
use super::target::{Target, TargetFile, stdio};
use crate::paths::Os;

const DIALECT: Dialect = Dialect {
    syntax: Syntax::None,
    timeout: Timeout::Unknown,
    bare_url_is_sse: false,
};

fn servers(reading: &mut Reading<'_, '_>) {
    reading.section(&["mcpServers"]);
}

/// Warp; what is added in its window lives in its cloud.
pub(super) const WARP: Client = Client {
    id: "warp",
    name: "Warp",
    dialect: DIALECT,
    target: Some(Target::plain(|search| {
        vec![TargetFile::under(
            search.paths.home.join(".warp"),
            ".mcp.json",
        )]
    })),
    places: |search| {
        let mut places = search.projects(&[".warp/.mcp.json"]);
        places.push(Place::user(search.paths.home.join(".warp/.mcp.json")));
        places
    },
    read: servers,
};

/// Junie, the agent of `JetBrains`.
pub(super) const JUNIE: Client = Client {
    id: "junie",
    name: "JetBrains Junie",
    dialect: DIALECT,
    target: Some(Target {
        restart: "start a new session",
        ..Target::plain(|search| {
            vec![TargetFile::under(
                search.paths.home.join(".junie"),
                "mcp/mcp.json",
            )]
        })
    }),
    places: |search| {
        let mut places = search.projects(&[".junie/mcp/mcp.json"]);
        places.push(Place::user(search.paths.home.join(".junie/mcp/mcp.json")));
        places
    },
    read: servers,
};

/// Amp; the dot belongs to the key.
pub(super) const AMP: Client = Client {
    id: "amp",
    name: "Amp",
    dialect: DIALECT,
    target: Some(Target {
        section: |_| Section {
            keys: &["amp.mcpServers"],
            list: false,
        },
        ..Target::plain(|search| {
            vec![TargetFile::new(
                search.paths.xdg_config.join("amp/settings.json"),
            )]
        })
    }),
    places: |search| {
        vec![Place::user(
            search.paths.xdg_config.join("amp/settings.json"),
        )]
    },
    read: |reading| reading.section(&["amp.mcpServers"]),
};

/// Trae.
pub(super) const TRAE: Client = Client {
    id: "trae",
    name: "Trae",
    dialect: DIALECT,
    target: Some(Target::plain(|search| {
        vec![TargetFile::new(
            search.paths.user_config.join("Trae/User/mcp.json"),
        )]
    })),
    places: |search| {
        vec![Place::user(
            search.paths.user_config.join("Trae/User/mcp.json"),
        )]
    },
    read: servers,
};

/// Kimi.
pub(super) const KIMI: Client = Client {
    id: "kimi",
    name: "Kimi",
    dialect: DIALECT,
    target: Some(Target {
        restart: "start a new session",
        ..Target::plain(|search| vec![TargetFile::new(search.paths.home.join(".kimi/mcp.json"))])
    }),
    places: |search| vec![Place::user(search.paths.home.join(".kimi/mcp.json"))],
    read: servers,
};

/// Factory Droid.
pub(super) const DROID: Client = Client {
    id: "factory-droid",
    name: "Factory Droid",
    dialect: DIALECT,
    target: Some(Target {
        entry: |program, _| stdio(program),
        restart: "start a new session",
        ..Target::plain(|search| vec![TargetFile::new(search.paths.home.join(".factory/mcp.json"))])
    }),
    places: |search| vec![Place::user(search.paths.home.join(".factory/mcp.json"))],
    read: servers,
};

/// Qoder.
pub(super) const QODER: Client = Client {
    id: "qoder",
    name: "Qoder",
    dialect: DIALECT,
    target: Some(Target::plain(|search| {
        vec![TargetFile::new(search.paths.home.join(".qoder/mcp.json"))]
    })),
    places: |search| vec![Place::user(search.paths.home.join(".qoder/mcp.json"))],
    read: servers,
};

/// Crush.
pub(super) const CRUSH: Client = Client {
    id: "crush",
    name: "Crush",
    dialect: DIALECT,
    target: Some(Target {
        section: |_| Section {
            keys: &["mcp"],
            list: false,
        },
        entry: |program, _| stdio(program),
        restart: "start it again",
        ..Target::plain(|search| vec![TargetFile::new(crush(search).join("crush/crush.json"))])
    }),
    places: |search| {
        let mut places = search.projects(&[".crush.json"]);
        places.push(Place::user(crush(search).join("crush/crush.json")));
        places
    },
    read: |reading| reading.section(&["mcp"]),
};

/// Mistral Vibe, whose servers are a TOML array of tables.
pub(super) const VIBE: Client = Client {
    id: "mistral-vibe",
    name: "Mistral Vibe",
    dialect: DIALECT,
    target: Some(Target {
        section: |_| Section {
            keys: &["mcp_servers"],
            list: true,
        },
        entry: |program, _| json!({"transport": "stdio", "command": program, "args": []}),
        restart: "start it again",
        ..Target::plain(|search| vec![TargetFile::new(search.paths.home.join(".vibe/config.toml"))])
    }),
    places: |search| vec![Place::user(search.paths.home.join(".vibe/config.toml"))],
    read: |reading| {
        let document = reading.document;
        let Some(list) = document.root.get("mcp_servers") else {
            return;
        };
        for item in list.items().unwrap_or_default() {
            match item.get("name").and_then(Value::text) {
                Some(name) => reading.entry(name, item.at, item),
                None => reading.problem(
                    item.at,
                    None,
                    "a server in the list has no `name`".to_owned(),
                ),
            }
        }
    },
};

fn crush<'a>(search: &'a Search<'_>) -> &'a Path {
    if search.environment.os() == Os::Windows {
        &search.paths.user_local
    } else {
        &search.paths.xdg_config
    }
}
