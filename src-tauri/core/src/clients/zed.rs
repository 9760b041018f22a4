//! Zed. Servers that its extensions provide have no command and are listed as such.

use serde_json::json;

use super::client::{Client, Place};
use super::edit::Section;
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Several, Target, TargetFile};
use crate::paths::Os;

/// Zed.
pub(super) const CLIENT: Client = Client {
    id: "zed",
    name: "Zed",
    dialect: Dialect {
        syntax: Syntax::None,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        several: Several::Ask,
        section: |_| Section {
            keys: &["context_servers"],
            list: false,
        },
        entry: |program, _| json!({"command": program, "args": [], "env": {}}),
        processes: &["zed", "zed-editor"],
        ..Target::plain(|search| {
            (CLIENT.places)(search)
                .into_iter()
                .filter(|place| place.project.is_none())
                .map(|place| TargetFile::new(place.path))
                .collect()
        })
    }),
    places: |search| {
        let mut places = search.projects(&[".zed/settings.json"]);
        if search.environment.os() == Os::Windows {
            places.push(Place::user(
                search.paths.user_config.join("Zed/settings.json"),
            ));
        } else {
            places.push(Place::user(
                search.paths.xdg_config.join("zed/settings.json"),
            ));
            places.push(Place::user(
                search
                    .paths
                    .home
                    .join(".var/app/dev.zed.Zed/config/zed/settings.json"),
            ));
        }
        places
    },
    read: |reading| reading.section(&["context_servers"]),
};
