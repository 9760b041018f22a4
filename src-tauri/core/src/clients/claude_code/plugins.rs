//! Servers that plugins of Claude Code bring: `.mcp.json` in the plugin's folder, or `mcpServers` in its
//! manifest, there or in files that the manifest names.
//!
//! A plugin that is off where it was installed brings servers that are off.

use std::path::{Component, Path, PathBuf};

use super::super::Search;
use super::super::client::{Place, Reading};
use super::super::explicit::any_shape;
use super::super::parse::{Document, Format, Value};
use super::settings_folder;

/// More plugins than anybody installs.
const PLUGINS_MAX: usize = 500;

const MANIFEST: &str = ".claude-plugin/plugin.json";

/// One installed plugin.
struct Plugin {
    /// `name@marketplace`.
    id: String,
    folder: PathBuf,
    on: bool,
}

/// Files of all plugins that may list servers.
pub(super) fn places(search: &Search<'_>) -> Vec<Place> {
    let mut places = Vec::new();
    for plugin in installed(search) {
        let manifest = plugin.folder.join(MANIFEST);
        let mut files = vec![plugin.folder.join(".mcp.json"), manifest.clone()];
        for named in named_files(search, &manifest) {
            let file = plugin.folder.join(named);
            if !files.contains(&file) {
                files.push(file);
            }
        }
        places.extend(files.into_iter().map(Place::user));
    }
    places
}

/// Reads a file of a plugin; says whether it is one.
pub(super) fn read(reading: &mut Reading<'_, '_>) -> bool {
    let Some(plugin) = installed(reading.search)
        .into_iter()
        .find(|plugin| reading.path.starts_with(&plugin.folder))
    else {
        return false;
    };
    let folder = plugin.folder.to_string_lossy().into_owned();
    reading.given = vec![("CLAUDE_PLUGIN_ROOT".to_owned(), folder)];
    let data = settings_folder(reading.search)
        .join("plugins/data")
        .join(plugin.id.replace(['@', '/', '\\'], "-"));
    reading.given.push((
        "CLAUDE_PLUGIN_DATA".to_owned(),
        data.to_string_lossy().into_owned(),
    ));
    if !plugin.on {
        reading.off.insert(
            "*".to_owned(),
            format!("its plugin `{}` is off in Claude Code", plugin.id),
        );
    }
    if reading.path.ends_with(MANIFEST) {
        let document = reading.document;
        if let Some(servers) = document
            .root
            .get("mcpServers")
            .filter(|servers| servers.members().is_some())
        {
            reading.entries(servers, "mcpServers");
        }
    } else {
        any_shape(reading);
    }
    true
}

fn installed(search: &Search<'_>) -> Vec<Plugin> {
    let settings = settings_folder(search);
    let Some(root) = document(search, &settings.join("plugins/installed_plugins.json")) else {
        return Vec::new();
    };
    let everywhere = document(search, &settings.join("settings.json"));
    let mut plugins = Vec::new();
    let all = root.get("plugins").and_then(Value::members);
    for member in all.unwrap_or_default().iter().take(PLUGINS_MAX) {
        // The first form of the file has one installation where the second has a list of them.
        let one = std::slice::from_ref(&member.value);
        for installation in member.value.items().unwrap_or(one) {
            let text = |key| installation.get(key).and_then(Value::text);
            let Some(folder) = text("installPath").map(PathBuf::from) else {
                continue;
            };
            if !folder.is_absolute() {
                continue;
            }
            let on = match text("projectPath") {
                None => switch(everywhere.as_ref(), &member.name).unwrap_or(false),
                Some(project) if search.is_registered(project) => {
                    ["settings.local.json", "settings.json"]
                        .iter()
                        .find_map(|file| {
                            let path = Path::new(project).join(".claude").join(file);
                            switch(document(search, &path).as_ref(), &member.name)
                        })
                        .unwrap_or(false)
                }
                // It is there for a project that we have nothing to do with.
                Some(_) => continue,
            };
            plugins.push(Plugin {
                id: member.name.clone(),
                folder,
                on,
            });
        }
    }
    plugins
}

fn switch(settings: Option<&Value>, plugin: &str) -> Option<bool> {
    settings?.get("enabledPlugins")?.get(plugin)?.bool()
}

/// Files inside the plugin's folder to which its manifest points.
fn named_files(search: &Search<'_>, manifest: &Path) -> Vec<PathBuf> {
    let Some(root) = document(search, manifest) else {
        return Vec::new();
    };
    let Some(servers) = root.get("mcpServers") else {
        return Vec::new();
    };
    let one = std::slice::from_ref(servers);
    let texts = servers
        .items()
        .unwrap_or(one)
        .iter()
        .filter_map(Value::text);
    texts
        .map(|text| Path::new(text.strip_prefix("./").unwrap_or(text)))
        .filter(|path| {
            path.components()
                .all(|part| matches!(part, Component::Normal(_)))
        })
        .map(Path::to_owned)
        .collect()
}

fn document(search: &Search<'_>, path: &Path) -> Option<Value> {
    search.consult(path);
    Document::read(path, Format::Json)
        .and_then(Result::ok)
        .map(|document| document.root)
}
