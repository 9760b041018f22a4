//! MCP clients on this machine and the servers that their files name.
//!
//! [`discover`] reads every known file and gives one list of servers. Each client is one small file that
//! says only places, dialect and quirks; see [`client`]. Nothing is started or written by it, and a file or
//! entry that is broken costs only itself. Servers that were moved behind the bridge are read as if they
//! still stood in their client's file. [`connect`] writes those files.
//!
//! The order of [`ORDER`] decides who keeps a name. Files that are meant for us come first, then the
//! clients by how many people use them, each in its own order of precedence. Files inside projects come
//! after all of these whatever their client says: the user has not written them, and they must not take a
//! name away from what he wrote. Clients that the setting `client_order` names come before the others, in
//! its order; what is meant for us stays first. The same definition in several files is one server with
//! several sources, whatever it is called there; the same name with another definition is listed as
//! `name@client`.

mod amazon_q;
mod claude_code;
mod claude_desktop;
mod client;
mod cline;
mod codex;
pub mod connect;
mod continue_dev;
mod copilot;
mod cursor;
mod drop_folder;
mod edit;
pub mod entry;
mod expand;
mod explicit;
mod extensions;
mod fields;
mod gemini;
mod goose;
pub mod guardian;
mod jan;
mod lm_studio;
mod merge;
mod opencode;
mod own_command;
mod own_servers;
pub mod parse;
mod pasted;
mod plain;
mod receipts;
mod replace;
mod roo;
mod running;
mod self_entry;
mod target;
mod vscode;
mod windsurf;
mod zed;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::paths::{Environment, Os, Paths, under_home};
use crate::settings::{Sampling, Settings};
use client::{Client, Found, Place, Reading};
use entry::{Entry, Lent, Source};
use parse::{Document, Format, Position, Value};
pub use pasted::read_pasted;
use self_entry::SelfEntries;

/// Who keeps a name, unless the user chose another order: the earlier one.
const ORDER: &[&Client] = &[
    &explicit::VARIABLE,
    &explicit::OWN,
    &drop_folder::CLIENT,
    &claude_desktop::CLIENT,
    &claude_code::CLIENT,
    &cursor::CLIENT,
    &windsurf::CLIENT,
    &vscode::CLIENT,
    &cline::CLIENT,
    &roo::ROO,
    &roo::KILO,
    &continue_dev::CLIENT,
    &zed::CLIENT,
    &gemini::GEMINI,
    &gemini::QWEN,
    &gemini::ANTIGRAVITY,
    &codex::CLIENT,
    &opencode::CLIENT,
    &goose::CLIENT,
    &amazon_q::AMAZON_Q,
    &amazon_q::KIRO,
    &lm_studio::CLIENT,
    &jan::CLIENT,
    &copilot::CLI,
    &copilot::JETBRAINS,
    &plain::WARP,
    &plain::JUNIE,
    &plain::AMP,
    &plain::TRAE,
    &plain::KIMI,
    &plain::DROID,
    &plain::QODER,
    &plain::CRUSH,
    &plain::VIBE,
];

/// Where to look, and what the user decided.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// The user's places.
    pub paths: &'a Paths,
    /// Values for placeholders. A program started from a dock lacks the user's own variables:
    /// fill it from the login environment first.
    pub environment: &'a Environment,
    /// The user's decisions.
    pub settings: &'a Settings,
    /// What the user told us for names that have no value elsewhere, by name as it is needed.
    pub answers: BTreeMap<String, String>,
    /// Folders whose project files count.
    pub projects: &'a [PathBuf],
    /// Programs that are us: the running one and the copies that we keep.
    pub own_programs: Vec<PathBuf>,
    /// The root of the file system, for files of the whole machine.
    pub system_root: PathBuf,
    /// What was looked at besides the places themselves.
    consulted: RefCell<Vec<PathBuf>>,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Discovery {
    /// Servers by unique name, in order of precedence.
    pub entries: Vec<Entry>,
    /// Names that files give to servers which stand in the list under another one.
    pub aliases: BTreeMap<String, String>,
    /// What could not be read or used.
    pub problems: Vec<EntryProblem>,
    /// What was left out on purpose.
    pub skipped: Vec<Skipped>,
    /// Files and folders whose change may change this, whether they exist or not.
    pub watched: Vec<PathBuf>,
}

/// A file or entry that cannot be used, or is odd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryProblem {
    /// The client's identifier.
    pub client: String,
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub position: Option<Position>,
    /// The entry, if it is not the whole file.
    pub entry: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for EntryProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(at) = self.position {
            write!(f, ":{}:{}", at.line, at.column)?;
        }
        match &self.entry {
            Some(entry) => write!(f, ": `{entry}`: {}", self.message),
            None => write!(f, ": {}", self.message),
        }
    }
}

/// An entry that was left out on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub source: Source,
    /// Why.
    pub reason: String,
}

impl<'a> Search<'a> {
    /// A search on this machine.
    pub fn new(paths: &'a Paths, environment: &'a Environment, settings: &'a Settings) -> Self {
        let system_root = match environment.os() {
            Os::Windows => environment
                .filled("SystemDrive")
                .map_or_else(|| "C:/".into(), |drive| format!("{drive}/").into()),
            Os::Linux | Os::Macos => "/".into(),
        };
        let own_programs = std::env::current_exe().into_iter().collect();
        Self {
            paths,
            environment,
            settings,
            answers: BTreeMap::new(),
            projects: &settings.projects,
            own_programs,
            system_root,
            consulted: RefCell::default(),
        }
    }

    /// Files of a folder whose names `keep` accepts, by name; no folder is an empty one.
    fn files_in(&self, folder: &Path, keep: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        // More are not configuration, and the list is made again at each change.
        const FILES_MAX: usize = 1_000;
        self.consult(folder);
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .take(10 * FILES_MAX)
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(&keep)
            })
            .collect();
        files.sort();
        files.truncate(FILES_MAX);
        files
    }

    /// Notes that a file or folder has a say, so that it is watched.
    fn consult(&self, path: &Path) {
        self.consulted.borrow_mut().push(path.to_owned());
    }

    /// Our own folders for servers, in order.
    fn drop_folders(&self) -> [PathBuf; 2] {
        [
            self.paths.home.join("MCPs"),
            self.paths.xdg_config.join("mcp/servers"),
        ]
    }

    /// `files` in every registered project.
    fn projects(&self, files: &[&str]) -> Vec<Place> {
        let place = |project: &PathBuf| -> Vec<Place> {
            files
                .iter()
                .map(|file| Place::project(project, file))
                .collect()
        };
        self.projects.iter().flat_map(place).collect()
    }

    /// A settings file of a VS Code extension, in every editor that runs such extensions.
    fn extension_settings(&self, extension: &str, file: &str) -> Vec<Place> {
        let kin = ["Cursor", "Windsurf"]
            .iter()
            .map(|name| self.paths.user_config.join(name).join("User"));
        vscode::user_folders(self)
            .into_iter()
            .chain(kin)
            .map(|user| {
                Place::user(
                    user.join("globalStorage")
                        .join(extension)
                        .join("settings")
                        .join(file),
                )
            })
            .collect()
    }

    /// A file of the whole machine.
    fn system(&self, file: &str) -> PathBuf {
        self.system_root.join(file)
    }

    /// Whether the user registered this folder with us.
    fn is_registered(&self, folder: &str) -> bool {
        self.projects
            .iter()
            .any(|project| claude_code::same_folder(folder, project))
    }
}

/// Every server that the user already has.
///
/// It reads files and may take some milliseconds: call it where blocking is allowed.
pub fn discover(search: &Search<'_>) -> Discovery {
    let mut found = Found::default();
    let mut watched = Vec::new();
    let mut in_projects = Vec::new();
    let receipts = receipts::all(search.paths);
    watched.push(receipts::folder(search.paths));
    for client in order(search, &mut found) {
        let before = found.candidates.len();
        if client.id == explicit::VARIABLE.id {
            watched.extend(read_variable(search, &mut found));
        } else if client.id == explicit::OWN.id {
            let own = serde_json::Value::Object(search.settings.own_servers.clone());
            let document = Document::of_value(Value::from_json(&own));
            read_document(
                search,
                client,
                &search.paths.settings(),
                None,
                &document,
                &mut found,
            );
        }
        for place in (client.places)(search) {
            watched.push(place.path.clone());
            if place.project.is_some() {
                in_projects.push((client, place));
            } else {
                read_place(search, client, &place, &mut found);
            }
        }
        for receipt in receipts
            .iter()
            .filter(|receipt| receipt.client == client.id)
        {
            if let Some(moved) = &receipt.moved {
                let document = Document::of_value(moved.document());
                read_document(search, client, &receipt.file, None, &document, &mut found);
            }
        }
        tracing::trace!(
            client = client.name,
            servers = found.candidates.len() - before,
            "read"
        );
    }
    for (client, place) in in_projects {
        read_place(search, client, &place, &mut found);
    }
    watched.append(&mut search.consulted.borrow_mut());
    watched.extend(
        found
            .candidates
            .iter()
            .flat_map(|candidate| &candidate.entry.sources)
            .map(|source| source.path.clone()),
    );
    watched.sort();
    watched.dedup();
    leave_out_ourselves(search, &mut found);
    let (mut entries, aliases) = merge::merge(found.candidates);
    for entry in &mut entries {
        decide(search.settings, entry);
    }
    Discovery {
        entries,
        aliases,
        problems: found.problems,
        skipped: found.skipped,
        watched,
    }
}

/// All clients, those first that the user put first.
fn order(search: &Search<'_>, found: &mut Found) -> Vec<&'static Client> {
    let for_us = |client: &&&Client| [explicit::VARIABLE.id, explicit::OWN.id].contains(&client.id);
    let mut order: Vec<&Client> = ORDER.iter().filter(for_us).copied().collect();
    for id in &search.settings.client_order {
        match ORDER.iter().find(|client| client.id == id) {
            Some(client) if order.iter().any(|known| known.id == client.id) => {}
            Some(client) => order.push(client),
            None => found.problems.push(EntryProblem {
                client: explicit::OWN.id.to_owned(),
                path: search.paths.settings(),
                position: None,
                entry: None,
                message: format!(
                    "`client_order`: no client is called `{id}`; known are {}",
                    ORDER
                        .iter()
                        .filter(|client| !for_us(client))
                        .map(|client| client.id)
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            }),
        }
    }
    for client in ORDER {
        if !order.iter().any(|known| known.id == client.id) {
            order.push(client);
        }
    }
    order
}

/// `MCP_SERVERS_CONFIG`: the JSON itself if it begins like JSON, else a path. Gives the path to watch.
fn read_variable(search: &Search<'_>, found: &mut Found) -> Option<PathBuf> {
    let text = search.settings.servers_config.as_deref()?.trim();
    let client = &explicit::VARIABLE;
    if text.starts_with('{') {
        let path = PathBuf::from(client.name);
        match Document::parse(text.to_owned(), Format::Json) {
            Ok(document) => read_document(search, client, &path, None, &document, found),
            Err(unreadable) => found.problems.push(problem_of(client, &path, unreadable)),
        }
        return None;
    }
    let path = under_home(text, &search.paths.home).unwrap_or_else(|| PathBuf::from(text));
    let place = Place::user(path.clone());
    if path.exists() {
        read_place(search, client, &place, found);
    } else {
        found.problems.push(EntryProblem {
            client: client.id.to_owned(),
            path: path.clone(),
            position: None,
            entry: None,
            message: "MCP_SERVERS_CONFIG names this file, and there is none; give a path or the JSON itself".to_owned(),
        });
    }
    Some(path)
}

fn read_place(search: &Search<'_>, client: &Client, place: &Place, found: &mut Found) {
    match Document::read(&place.path, place.format) {
        None => {}
        Some(Err(unreadable)) => found
            .problems
            .push(problem_of(client, &place.path, unreadable)),
        Some(Ok(document)) => {
            read_document(
                search,
                client,
                &place.path,
                place.project.as_deref(),
                &document,
                found,
            );
        }
    }
}

fn read_document(
    search: &Search<'_>,
    client: &Client,
    path: &Path,
    project: Option<&Path>,
    document: &Document,
    found: &mut Found,
) {
    let off = project.map(|_| {
        (
            "*".to_owned(),
            "a project file names it; it waits for your approval".to_owned(),
        )
    });
    let mut reading = Reading {
        client,
        search,
        path,
        document,
        project: project.map(Path::to_owned),
        off: off.into_iter().collect(),
        given: Vec::new(),
        found,
    };
    (client.read)(&mut reading);
}

fn problem_of(client: &Client, path: &Path, unreadable: parse::Unreadable) -> EntryProblem {
    EntryProblem {
        client: client.id.to_owned(),
        path: path.to_owned(),
        position: unreadable.position,
        entry: None,
        message: unreadable.message,
    }
}

fn leave_out_ourselves(search: &Search<'_>, found: &mut Found) {
    if search.settings.allow_self_server {
        return;
    }
    let ourselves = SelfEntries::new(search.environment, &search.own_programs);
    let skipped = &mut found.skipped;
    found.candidates.retain(|candidate| {
        let Some(reason) = ourselves.reason(&candidate.entry.transport) else {
            return true;
        };
        let source = candidate.entry.sources.first().cloned();
        skipped.extend(source.map(|source| Skipped {
            name: candidate.entry.name.clone(),
            source,
            reason,
        }));
        false
    });
}

/// What the user decided with us wins over what the files say.
fn decide(settings: &Settings, entry: &mut Entry) {
    let decided = settings.decided(entry);
    match decided.enabled {
        Some(true) => entry.off = None,
        Some(false) => entry.off = Some("you turned it off".to_owned()),
        None => {}
    }
    if decided.tools_allowed.is_some() {
        entry.tools_allowed = decided.tools_allowed;
    }
    entry.tools_denied.extend(decided.tools_denied);
    entry.tools_denied.sort();
    entry.tools_denied.dedup();
    if let Some(&limit) = decided.limits.get("server_start_ms_max") {
        entry.start_ms_max = Some(limit);
    }
    if let Some(&limit) = decided.limits.get("call_ms_max") {
        entry.call_ms_max = Some(limit);
    }
    let sampling = decided.sampling.unwrap_or(settings.sampling);
    entry.lent = Lent {
        roots: decided.roots.unwrap_or_else(|| settings.roots.clone()),
        sampling: sampling == Sampling::Client,
    };
}
