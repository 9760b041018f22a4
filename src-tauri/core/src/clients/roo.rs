//! Roo Code and its descendant Kilo Code, extensions of VS Code.

use serde_json::json;

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Several, Target, TargetFile};

const DIALECT: Dialect = Dialect {
    syntax: Syntax::Roo,
    timeout: Timeout::CallSeconds,
    bare_url_is_sse: false,
};
const FILE: &str = "mcp_settings.json";

/// Roo Code.
pub(super) const ROO: Client = Client {
    id: "roo-code",
    name: "Roo Code",
    dialect: DIALECT,
    target: Some(Target {
        several: Several::Ask,
        entry: |program, _| json!({"command": program, "args": [], "timeout": 180}),
        ..Target::plain(|search| {
            (ROO.places)(search)
                .into_iter()
                .filter(|place| place.project.is_none())
                .map(|place| TargetFile::new(place.path))
                .collect()
        })
    }),
    places: |search| {
        let mut places = search.projects(&[".roo/mcp.json"]);
        places.extend(search.extension_settings("rooveterinaryinc.roo-cline", FILE));
        places
    },
    read: |reading| reading.section(&["mcpServers"]),
};

/// Kilo Code.
pub(super) const KILO: Client = Client {
    id: "kilo-code",
    name: "Kilo Code",
    dialect: DIALECT,
    target: Some(Target {
        several: Several::Ask,
        entry: |program, _| json!({"command": program, "args": [], "timeout": 180}),
        ..Target::plain(|search| {
            (KILO.places)(search)
                .into_iter()
                .filter(|place| place.project.is_none())
                .map(|place| TargetFile::new(place.path))
                .collect()
        })
    }),
    places: |search| {
        let mut places = search.projects(&[".kilocode/mcp.json"]);
        places.extend(search.extension_settings("kilocode.kilo-code", FILE));
        places.push(Place::user(
            search
                .paths
                .home
                .join(".kilocode/cli/global/settings")
                .join(FILE),
        ));
        places
    },
    read: |reading| reading.section(&["mcpServers"]),
};
