//! opencode, both generations: `mcp.<name>` with `enabled`, and `mcp.servers.<name>` with `disabled`.

use serde_json::json;

use super::Search;
use super::client::{Client, Place, Reading};
use super::edit::Section;
use super::expand::Syntax;
use super::fields::{Dialect, Timeout, looks_like_entry};
use super::parse::Value;
use super::target::{Target, TargetFile};

/// opencode.
pub(super) const CLIENT: Client = Client {
    id: "opencode",
    name: "opencode",
    dialect: Dialect {
        syntax: Syntax::OpenCode,
        timeout: Timeout::StartMilliseconds,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        section,
        entry: |program, section| {
            let command = json!([program]);
            if section.keys.len() == 2 {
                json!({"type": "local", "command": command})
            } else {
                json!({"type": "local", "command": command, "enabled": true})
            }
        },
        restart: "start it again",
        processes: &["opencode"],
        ..Target::plain(files)
    }),
    places: |search| {
        let files = [
            "opencode.json",
            "opencode.jsonc",
            ".opencode/opencode.json",
            ".opencode/opencode.jsonc",
        ];
        let mut places: Vec<Place> = search
            .environment
            .folder("OPENCODE_CONFIG")
            .map(Place::user)
            .into_iter()
            .collect();
        places.extend(search.projects(&files));
        // It keeps to `~/.config` on every system.
        let config = search.paths.xdg_config.join("opencode");
        places.extend(files[..2].iter().map(|file| Place::user(config.join(file))));
        places
    },
    read,
};

fn read(reading: &mut Reading<'_, '_>) {
    reading.section(section(&reading.document.root).keys);
}

/// The second generation has an object of entries where the first may have an entry of that name.
fn section(root: &Value) -> Section {
    let servers = root.get("mcp").and_then(|mcp| mcp.get("servers"));
    let second_generation =
        servers.is_some_and(|servers| servers.members().is_some() && !looks_like_entry(servers));
    Section {
        keys: if second_generation {
            &["mcp", "servers"]
        } else {
            &["mcp"]
        },
        list: false,
    }
}

fn files(search: &Search<'_>) -> Vec<TargetFile> {
    let moved = search.environment.folder("OPENCODE_CONFIG");
    let config = search.paths.xdg_config.join("opencode");
    moved
        .into_iter()
        .chain(["opencode.json", "opencode.jsonc"].map(|file| config.join(file)))
        .map(TargetFile::new)
        .collect()
}
