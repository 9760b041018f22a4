//! `MCP_SERVERS_CONFIG` and the servers that the user gave to us: read first, since both were meant for us.

use super::client::{Client, Reading};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout, looks_like_entry};
use super::parse::Value;

/// `MCP_SERVERS_CONFIG`: a JSON, TOML or YAML file, or the JSON itself.
pub(super) const VARIABLE: Client = Client {
    id: "mcp-servers-config",
    name: "MCP_SERVERS_CONFIG",
    dialect: PASTED,
    // Its text may stand in the variable itself, so `discover` opens it.
    target: None,
    places: |_| Vec::new(),
    read: any_shape,
};

/// `own_servers` of the settings file.
pub(super) const OWN: Client = Client {
    id: "runbridge",
    name: "Runbridge",
    dialect: PASTED,
    target: None,
    places: |_| Vec::new(),
    read: |reading| {
        let document = reading.document;
        reading.entries(&document.root, "own_servers");
    },
};

/// What people paste was written for some client or other.
pub(super) const PASTED: Dialect = Dialect {
    syntax: Syntax::Pasted,
    timeout: Timeout::Unknown,
    bare_url_is_sse: false,
};

/// Any shape that names servers: `mcpServers`, `servers`, `mcp_servers`, `context_servers`, `mcp.servers`,
/// a bare map of entries, or one entry named after its file.
pub(super) fn any_shape(reading: &mut Reading<'_, '_>) {
    let document = reading.document;
    let root = &document.root;
    let Some(members) = root.members() else {
        return reading.problem(
            root.at,
            None,
            format!("the file must hold an object, not {}", root.kind_name()),
        );
    };
    for key in ["mcpServers", "servers", "mcp_servers", "context_servers"] {
        if let Some(section) = root.get(key).filter(|section| section.members().is_some()) {
            return reading.entries(section, key);
        }
    }
    if let Some(section) = root.get("mcp").and_then(|mcp| mcp.get("servers")) {
        return reading.entries(section, "mcp.servers");
    }
    if looks_like_entry(root) {
        let name = reading
            .path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default()
            .to_owned();
        return reading.entry(&name, root.at, root);
    }
    let is_entry = |value: &Value| looks_like_entry(value);
    if members.iter().any(|member| is_entry(&member.value)) {
        for member in members
            .iter()
            .filter(|member| !member.name.starts_with('$'))
        {
            reading.entry(&member.name, member.at, &member.value);
        }
    } else if !members.is_empty() {
        let message = "it names no servers; give `mcpServers`, `servers`, a map of entries, or one entry with `command` or `url`";
        reading.problem(root.at, None, message.to_owned());
    }
}
