//! opencode, both generations: `mcp.<name>` with `enabled`, and `mcp.servers.<name>` with `disabled`.

use super::client::{Client, Place, Reading};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout, looks_like_entry};

/// opencode.
pub(super) const CLIENT: Client = Client {
    id: "opencode",
    name: "opencode",
    dialect: Dialect {
        syntax: Syntax::OpenCode,
        timeout: Timeout::StartMilliseconds,
        bare_url_is_sse: false,
    },
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
    let servers = reading
        .document
        .root
        .get("mcp")
        .and_then(|mcp| mcp.get("servers"));
    let second_generation =
        servers.is_some_and(|servers| servers.members().is_some() && !looks_like_entry(servers));
    if second_generation {
        reading.section(&["mcp", "servers"]);
    } else {
        reading.section(&["mcp"]);
    }
}
