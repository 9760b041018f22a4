//! Claude Desktop. Its file moved with each way of packaging it for Windows; all candidates are read.

use std::path::PathBuf;

use super::Search;
use super::client::{Client, Place};
use super::expand::Syntax;
use super::extensions;
use super::fields::{Dialect, Timeout};
use super::target::{Reads, Several, Target, TargetFile};
use crate::paths::Os;

const FILE: &str = "claude_desktop_config.json";

/// Claude Desktop.
pub(super) const CLIENT: Client = Client {
    id: "claude-desktop",
    name: "Claude Desktop",
    dialect: Dialect {
        syntax: Syntax::None,
        timeout: Timeout::Unknown,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        // Each belongs to another package of the app, of which it reads one.
        several: Several::Ask,
        reads: Reads::PlainJson,
        restart: "quit Claude Desktop, in the tray or menu bar too, and start it again",
        processes: &["claude-desktop", "Claude"],
        extension: |search, is_us| {
            folders(search)
                .iter()
                .find_map(|folder| extensions::of_us(search, folder, is_us))
        },
        ..Target::plain(|search| {
            folders(search)
                .into_iter()
                .map(|folder| TargetFile::new(folder.join(FILE)))
                .collect()
        })
    }),
    places: |search| {
        let folders = folders(search);
        let files = folders.iter().map(|folder| Place::user(folder.join(FILE)));
        let extensions = folders
            .iter()
            .flat_map(|folder| extensions::places(search, folder));
        files.chain(extensions).collect()
    },
    read: |reading| {
        if !extensions::note(reading) {
            reading.section(&["mcpServers"]);
        }
    },
};

/// Folders that may hold the file, in order.
fn folders(search: &Search<'_>) -> Vec<PathBuf> {
    let config = &search.paths.user_config;
    let local = &search.paths.user_local;
    let mut folders = vec![config.join("Claude")];
    match search.environment.os() {
        // Some repackagings write the name in lower case.
        Os::Linux => folders.push(config.join("claude")),
        Os::Macos => {}
        Os::Windows => {
            // The newest package first: where it runs, the older files are left behind unread.
            let newest = search.files_in(&local.join("Claude-Data"), |name| {
                name.to_ascii_lowercase().starts_with("claude_") && name != FILE
            });
            let packages =
                search.files_in(&local.join("Packages"), |name| name.starts_with("Claude_"));
            let packages = packages
                .into_iter()
                .map(|package| package.join("LocalCache/Roaming/Claude"));
            let classic = std::mem::take(&mut folders);
            folders.extend(newest);
            folders.push(local.join("Claude-Data"));
            folders.extend(packages);
            folders.extend(classic);
        }
    }
    folders
}
