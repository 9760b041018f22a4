//! Zed. Servers that its extensions provide have no command and are listed as such.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
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
