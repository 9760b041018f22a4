//! LM Studio, whose home folder can be moved.

use super::client::{Client, Place};
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::parse::read_text;
use super::target::{Target, TargetFile};
use crate::paths::under_home;

/// LM Studio.
pub(super) const CLIENT: Client = Client {
    id: "lm-studio",
    name: "LM Studio",
    dialect: Dialect {
        syntax: Syntax::None,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        processes: &["lm-studio", "LM Studio"],
        ..Target::plain(|search| {
            (CLIENT.places)(search)
                .into_iter()
                .map(|place| TargetFile::new(place.path))
                .collect()
        })
    }),
    places: |search| {
        let home = &search.paths.home;
        let pointer = home.join(".lmstudio-home-pointer");
        search.consult(&pointer);
        let pointer = read_text(&pointer).and_then(Result::ok);
        let moved =
            pointer.map(|text| under_home(text.trim(), home).unwrap_or_else(|| text.trim().into()));
        moved
            .into_iter()
            .filter(|folder: &std::path::PathBuf| folder.is_absolute())
            .chain([home.join(".lmstudio"), home.join(".cache/lm-studio")])
            .map(|folder| Place::user(folder.join("mcp.json")))
            .collect()
    },
    read: |reading| reading.section(&["mcpServers"]),
};
