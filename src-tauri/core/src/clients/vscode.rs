//! VS Code and its kin: Insiders, `VSCodium`, Code - OSS, and the servers that they leave on remote machines.
//!
//! Values of `inputs` are in its secret store, where only VS Code may look: what needs one says so.

use std::path::PathBuf;

use super::Search;
use super::client::{Client, Place, Reading};
use super::edit::Section;
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::target::{Several, Target, TargetFile, stdio};

/// VS Code.
pub(super) const CLIENT: Client = Client {
    id: "vscode",
    name: "VS Code",
    dialect: Dialect {
        syntax: Syntax::VsCode,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        // Each is a program of its own.
        several: Several::Ask,
        section: |_| SERVERS,
        entry: |program, _| stdio(program),
        processes: &["code", "code-insiders", "codium", "Code", "Electron"],
        ..Target::plain(|search| {
            user_folders(search)
                .into_iter()
                .map(|user| TargetFile::new(user.join("mcp.json")))
                .collect()
        })
    }),
    places: |search| {
        let mut places = search.projects(&[
            ".vscode/mcp.json",
            ".devcontainer/devcontainer.json",
            ".devcontainer.json",
        ]);
        for project in search.projects {
            let files = search.files_in(project, |name| name.ends_with(".code-workspace"));
            let names = files.iter().filter_map(|file| file.file_name()?.to_str());
            places.extend(names.map(|file| Place::project(project, file)));
        }
        for user in user_folders(search) {
            places.push(Place::user(user.join("mcp.json")));
            let profiles = search.files_in(&user.join("profiles"), |name| !name.starts_with('.'));
            places.extend(
                profiles
                    .into_iter()
                    .map(|profile| Place::user(profile.join("mcp.json"))),
            );
            places.push(Place::user(user.join("settings.json")));
        }
        places
    },
    read,
};

/// Where VS Code, and what writes as it does, lists servers.
pub(super) const SERVERS: Section = Section {
    keys: &["servers"],
    list: false,
};

/// The `User` folder of each kin.
pub(super) fn user_folders(search: &Search<'_>) -> Vec<PathBuf> {
    let config = &search.paths.user_config;
    let home = &search.paths.home;
    ["Code", "Code - Insiders", "VSCodium", "Code - OSS"]
        .iter()
        .map(|name| config.join(name).join("User"))
        .chain(
            [".vscode-server", ".vscode-server-insiders"]
                .iter()
                .map(|name| home.join(name).join("data/User")),
        )
        .collect()
}

fn read(reading: &mut Reading<'_, '_>) {
    let name = reading.path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    if name.ends_with(".code-workspace") {
        // One file for a set of folders, with their settings in it.
        reading.section(&["settings", "mcp", "servers"]);
        reading.section(&["settings", "mcp.servers"]);
    } else if name == "devcontainer.json" || name == ".devcontainer.json" {
        reading.section(&["customizations", "vscode", "mcp", "servers"]);
    } else if name == "settings.json" {
        // The earlier place, written as a tree or flat. VS Code moves it to `mcp.json` when it sees it.
        reading.section(&["mcp", "servers"]);
        reading.section(&["mcp.servers"]);
    } else {
        reading.section(&["servers"]);
        // The commonest mistake in this file.
        reading.section(&["mcpServers"]);
    }
}
