//! Gemini CLI, Qwen Code and Antigravity, which grew out of one another.

use super::client::{Client, Place, Reading};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::parse::{Document, Format, Member, Value};
use super::target::{Reads, Several, Target, TargetFile};
use crate::paths::Os;

const DIALECT: Dialect = Dialect {
    syntax: Syntax::Gemini,
    timeout: Timeout::CallMilliseconds,
    bare_url_is_sse: true,
};

/// Gemini CLI.
pub(super) const GEMINI: Client = Client {
    id: "gemini-cli",
    name: "Gemini CLI",
    dialect: DIALECT,
    target: Some(Target {
        reads: Reads::NoMark,
        restart: "start a new session, or run /mcp refresh",
        processes: &["gemini"],
        ..Target::plain(|search| {
            vec![TargetFile::new(
                search.paths.home.join(".gemini/settings.json"),
            )]
        })
    }),
    places: |search| {
        let system = match search.environment.os() {
            Os::Linux => "etc/gemini-cli/settings.json",
            Os::Macos => "Library/Application Support/GeminiCli/settings.json",
            Os::Windows => "ProgramData/gemini-cli/settings.json",
        };
        let system = search
            .environment
            .folder("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
            .unwrap_or_else(|| search.system(system));
        let home = search.paths.home.join(".gemini");
        let mut places = vec![Place::user(system)];
        places.extend(search.projects(&[".gemini/settings.json"]));
        places.push(Place::user(home.join("settings.json")));
        let extensions = search.files_in(&home.join("extensions"), |name| !name.starts_with('.'));
        places.extend(
            extensions
                .into_iter()
                .map(|extension| Place::user(extension.join("gemini-extension.json"))),
        );
        places
    },
    read: |reading| {
        excluded(reading);
        switched_off(reading);
        reading.section(&["mcpServers"]);
    },
};

/// Qwen Code.
pub(super) const QWEN: Client = Client {
    id: "qwen-code",
    name: "Qwen Code",
    dialect: DIALECT,
    target: Some(Target {
        reads: Reads::NoMark,
        restart: "start a new session",
        processes: &["qwen"],
        ..Target::plain(|search| {
            vec![TargetFile::new(
                search.paths.home.join(".qwen/settings.json"),
            )]
        })
    }),
    places: |search| {
        let mut places = search.projects(&[".qwen/settings.json"]);
        places.push(Place::user(search.paths.home.join(".qwen/settings.json")));
        places
    },
    read: |reading| {
        excluded(reading);
        reading.section(&["mcpServers"]);
    },
};

/// Antigravity.
pub(super) const ANTIGRAVITY: Client = Client {
    id: "antigravity",
    name: "Antigravity",
    dialect: Dialect {
        syntax: Syntax::None,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        several: Several::Ask,
        processes: &["antigravity"],
        ..Target::plain(|search| {
            (ANTIGRAVITY.places)(search)
                .into_iter()
                .map(|place| TargetFile::new(place.path))
                .collect()
        })
    }),
    places: |search| {
        let home = search.paths.home.join(".gemini");
        ["antigravity/mcp_config.json", "config/mcp_config.json"]
            .iter()
            .map(|file| Place::user(home.join(file)))
            .collect()
    },
    read: |reading| reading.section(&["mcpServers"]),
};

/// The lists `mcp.allowed` and `mcp.excluded`.
fn excluded(reading: &mut Reading<'_, '_>) {
    let document = reading.document;
    let Some(mcp) = document.root.get("mcp") else {
        return;
    };
    if let Some(allowed) = mcp
        .get("allowed")
        .and_then(Value::items)
        .filter(|allowed| !allowed.is_empty())
    {
        let servers = document
            .root
            .get("mcpServers")
            .and_then(Value::members)
            .unwrap_or_default();
        for Member { name, .. } in servers {
            if !allowed.iter().any(|item| item.text() == Some(name)) {
                reading.off.insert(
                    name.clone(),
                    "`mcp.allowed` in its file does not name it".to_owned(),
                );
            }
        }
    }
    reading.off_by_list(mcp.get("excluded"), "`mcp.excluded` in its file names it");
}

/// `gemini mcp disable` writes a file of its own.
fn switched_off(reading: &mut Reading<'_, '_>) {
    let path = reading
        .search
        .paths
        .home
        .join(".gemini/mcp-server-enablement.json");
    reading.search.consult(&path);
    let Some(Ok(switches)) = Document::read(&path, Format::Json) else {
        return;
    };
    for Member { name, value, .. } in switches.root.members().unwrap_or_default() {
        if value.get("enabled").and_then(Value::bool) == Some(false) {
            reading.off.insert(
                name.clone(),
                "it was turned off with `gemini mcp disable`".to_owned(),
            );
        }
    }
}
