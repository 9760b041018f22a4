//! Continue: YAML with a list of named servers, and JSON files in the shapes of other clients.

use super::client::{Client, Place, Reading};
use super::edit::Section;
use super::expand::Syntax;
use super::explicit::any_shape;
use super::fields::{Dialect, Timeout};
use super::parse::{Format, Value};
use super::target::{Target, TargetFile};

/// Continue.
pub(super) const CLIENT: Client = Client {
    id: "continue",
    name: "Continue",
    dialect: Dialect {
        syntax: Syntax::Continue,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        section: |_| Section {
            keys: &["mcpServers"],
            list: true,
        },
        ..Target::plain(|search| {
            ["config.yaml", "config.json"]
                .iter()
                .map(|file| TargetFile::new(search.paths.home.join(".continue").join(file)))
                .collect()
        })
    }),
    places: |search| {
        let mut places = Vec::new();
        for project in search.projects {
            let files = search.files_in(&project.join(".continue/mcpServers"), is_block);
            places.extend(
                files
                    .iter()
                    .filter_map(|file| file.strip_prefix(project).ok()?.to_str())
                    .map(|file| Place::project(project, file)),
            );
        }
        let home = search.paths.home.join(".continue");
        places.extend(
            ["config.yaml", "config.json"]
                .iter()
                .map(|file| Place::user(home.join(file))),
        );
        places.extend(
            search
                .files_in(&home.join("mcpServers"), is_block)
                .into_iter()
                .map(Place::user),
        );
        places
    },
    read,
};

fn is_block(name: &str) -> bool {
    !name.starts_with('.')
        && [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
}

fn read(reading: &mut Reading<'_, '_>) {
    let document = reading.document;
    match document.root.get("mcpServers") {
        Some(list) if list.items().is_some() => {
            for item in list.items().unwrap_or_default() {
                match item.get("name").and_then(Value::text) {
                    Some(name) => reading.entry(name, item.at, item),
                    // `uses: owner/block` stands for a block on Continue's hub.
                    None if item.get("uses").is_some() => {}
                    None => reading.problem(
                        item.at,
                        None,
                        "a server in the list has no `name`".to_owned(),
                    ),
                }
            }
        }
        Some(map) if !map.is_null() => reading.entries(map, "mcpServers"),
        _ if reading.path.ends_with("config.json") || reading.path.ends_with("config.yaml") => {}
        _ if super::client::format_of(reading.path) == Format::Json => any_shape(reading),
        _ => {}
    }
}
