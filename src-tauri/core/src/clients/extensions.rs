//! Extensions of Claude Desktop (MCP bundles): servers that it unpacks and starts by itself.
//!
//! They are noted, not run: what the user filled in for them is in the app's own store. One of them may
//! be us, and then the app needs no entry in its file. Knows where they lie and what their manifests
//! say; what an entry means is said elsewhere.

use std::path::{Path, PathBuf};

use super::client::{Place, Reading};
use super::entry::Source;
use super::parse::{Document, Format, Value};
use super::self_entry::SelfEntries;
use super::{Search, Skipped};
use crate::paths::Os;

/// In the app's folder, one folder for each.
const FOLDER: &str = "Claude Extensions";

/// Beside it, one file for each.
const SETTINGS: &str = "Claude Extensions Settings";

const MANIFEST: &str = "manifest.json";

/// The manifests of what is installed in an app that keeps its data in `folder`.
pub(super) fn places(search: &Search<'_>, folder: &Path) -> Vec<Place> {
    let extensions = search.files_in(&folder.join(FOLDER), |name| !name.starts_with('.'));
    extensions
        .into_iter()
        .map(|extension| Place::user(extension.join(MANIFEST)))
        .collect()
}

/// Notes the extension whose manifest is being read; false: it is another file.
pub(super) fn note(reading: &mut Reading<'_, '_>) -> bool {
    if reading.path.file_name().is_none_or(|name| name != MANIFEST) {
        return false;
    }
    let text = |key: &str| reading.document.root.get(key).and_then(Value::text);
    let Some(name) = text("name").filter(|name| !name.trim().is_empty()) else {
        return true;
    };
    let shown = text("display_name").unwrap_or(name);
    let program = program(reading.path, reading.search.environment.os());
    let us = SelfEntries::new(reading.search.environment, &reading.search.own_programs);
    let reason = if program.is_some_and(|program| us.is_us(&program)) {
        "it is Runbridge itself, as an extension of its client".to_owned()
    } else if is_on(reading.search, reading.path) {
        format!(
            "it is the extension {shown:?}, which only its client can run; to have it behind \
             Runbridge, add the same server here and remove the extension there"
        )
    } else {
        format!("it is the extension {shown:?}, which is switched off in its client")
    };
    reading.found.skipped.push(Skipped {
        name: name.to_owned(),
        source: Source {
            client: reading.client.id.to_owned(),
            path: reading.path.to_owned(),
            name: name.to_owned(),
        },
        reason,
    });
    true
}

/// The manifest of the installed extension which is switched on and whose program `is_us`.
pub(super) fn of_us(
    search: &Search<'_>,
    folder: &Path,
    is_us: impl Fn(&str) -> bool,
) -> Option<PathBuf> {
    places(search, folder)
        .into_iter()
        .map(|place| place.path)
        .find(|manifest| {
            let program = program(manifest, search.environment.os());
            program.is_some_and(|program| is_us(&program)) && is_on(search, manifest)
        })
}

/// What an extension starts.
fn program(manifest: &Path, os: Os) -> Option<String> {
    let document = Document::read(manifest, Format::Json)?.ok()?;
    let config = document.root.get("server")?.get("mcp_config")?;
    let platform = match os {
        Os::Linux => "linux",
        Os::Macos => "darwin",
        Os::Windows => "win32",
    };
    let own = config
        .get("platform_overrides")
        .and_then(|all| all.get(platform)?.get("command"));
    let command = own.or_else(|| config.get("command"))?.text()?;
    let folder = manifest.parent()?.to_string_lossy();
    Some(command.replace("${__dirname}", &folder))
}

/// The app says only of those that are off that they are.
fn is_on(search: &Search<'_>, manifest: &Path) -> bool {
    let settings = || {
        let extension = manifest.parent()?;
        let file = format!("{}.json", extension.file_name()?.to_str()?);
        let path = extension.parent()?.parent()?.join(SETTINGS).join(file);
        search.consult(&path);
        let document = Document::read(&path, Format::Json)?.ok()?;
        document.root.get("isEnabled")?.bool()
    };
    settings() != Some(false)
}
