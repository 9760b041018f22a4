//! Goose: a YAML map of extensions, of which some are MCP servers. Values of `env_keys` are in its keyring.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use crate::paths::Os;

/// Goose.
pub(super) const CLIENT: Client = Client {
    id: "goose",
    name: "Goose",
    dialect: Dialect {
        syntax: Syntax::Goose,
        timeout: Timeout::CallSeconds,
        bare_url_is_sse: false,
    },
    places: |search| {
        let path = if search.environment.os() == Os::Windows {
            search
                .paths
                .user_config
                .join("Block/goose/config/config.yaml")
        } else {
            search.paths.xdg_config.join("goose/config.yaml")
        };
        vec![Place::user(path)]
    },
    read: |reading| reading.section(&["extensions"]),
};
