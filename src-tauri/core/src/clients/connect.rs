//! Connect Runbridge to a client, and undo it; move the client's own servers behind the bridge, and back.
//!
//! Everything begins as a [`Plan`], which changes nothing: what the file holds, what it would hold, and
//! what there is to say. [`Connector::apply`] then does exactly that or, if the file has changed since,
//! nothing. Only here are files of other programs written, by us or, where a client has a command for it
//! and rewrites its file all the time, by that command. An undo gives back the old bytes if nobody else
//! wrote since, and takes out just what is ours if somebody did.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value as Json;

use super::client::{Client, Found, format_of};
use super::edit::{self, EditError, Section};
use super::entry::Entry;
pub use super::own_servers::{Cost, OwnServer};
use super::parse::{Document, Format, Position, Value};
pub use super::receipts::Receipt;
use super::receipts::{self, Moved, Step};
use super::replace::{self, Refusal};
pub use super::running::Running;
use super::self_entry::SelfEntries;
use super::target::{Reads, Several, Target, program_of};
use super::{ORDER, Search};
use crate::redact::Redactor;

/// The name of our entry.
pub const NAME: &str = "runbridge";

/// How often a change is tried again because the client wrote its file at the same moment.
const TRIES_MAX: usize = 20;

/// Connects this program to clients.
pub struct Connector<'a> {
    search: &'a Search<'a>,
    program: String,
    running: Option<Running>,
    drops_mark: bool,
}

/// What to do with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put our entry into the client's file.
    Connect,
    /// Take it out again, and put back what was moved.
    Disconnect,
    /// Reach the client's own servers through us instead; connects it if need be.
    Move,
    /// Put back what was moved.
    Restore,
}

/// A change of a client's file that has not been made.
pub struct Plan {
    client: &'static Client,
    /// The file.
    pub file: PathBuf,
    /// What is worth saying: what stays as it is and why, what to do next.
    pub notes: Vec<String>,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    prior: Option<Receipt>,
    receipt: Option<Receipt>,
    backups: Vec<(String, Vec<u8>)>,
    secrets: Vec<crate::secrets::Secret>,
    /// What a conversation starts with, before and after.
    costs: [Cost; 2],
    /// The change is no more than our entry, which the client's own command can put in.
    entry_alone: bool,
}

/// How things stand with a client.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Its identifier.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The file, if it is clear which.
    pub file: Option<PathBuf>,
    /// Whether it runs; `None`: unknown.
    pub running: Option<bool>,
    /// What must be done to make it see a change; empty: nothing.
    pub restart: &'static str,
    /// Whether we are in its file.
    pub state: State,
    /// Our entry is put back whenever it is lost.
    pub keep: bool,
    /// How it may call itself when it attaches: beginnings of names, in lower case and without signs.
    #[serde(skip)]
    pub announces: Vec<String>,
    /// Its own servers: those in its file, then those that we reach for it.
    pub servers: Vec<OwnServer>,
}

impl Standing {
    /// Servers of its own that we reach for it.
    pub fn moved(&self) -> Vec<&str> {
        let moved = self.servers.iter().filter(|server| server.moved);
        moved.map(|server| server.name.as_str()).collect()
    }
}

/// Whether a client's file names us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It could be connected.
    NotConnected,
    /// Its file has our entry.
    Connected {
        /// Under this name.
        name: String,
    },
    /// It has us as an extension of its own, and needs no entry.
    Extension {
        /// The extension's manifest.
        manifest: PathBuf,
    },
    /// Our entry was there and is gone.
    Lost,
    /// Somebody changed our entry.
    Changed,
    /// Our entry is in a file that is not the one the client reads now.
    Shadowed {
        /// The one it reads.
        by: PathBuf,
    },
    /// Another program's entry has our name.
    NameTaken,
    /// The client is not allowed to start us.
    Forbidden {
        /// Who says so, and where.
        reason: String,
    },
    /// Several files could be meant.
    Several {
        /// These.
        files: Vec<PathBuf>,
    },
    /// The file cannot be read.
    Unreadable {
        /// Where.
        position: Option<Position>,
        /// Why.
        message: String,
        /// It begins with a byte order mark, and nothing else is wrong.
        mark_only: bool,
    },
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no such client.
    #[error("no client is called `{name}`; these are known: {known}")]
    UnknownClient {
        /// What was asked for.
        name: String,
        /// All that can be connected.
        known: String,
    },
    /// It is not on this machine, or has never been started.
    #[error(
        "{client} was not found; none of its folders is there: {looked}. If it is installed, start it once"
    )]
    NotInstalled {
        /// The client.
        client: &'static str,
        /// Where it would be.
        looked: String,
    },
    /// It has several files, of which it reads one.
    #[error("{client} has several files, and only you know which one it reads: {}. Name it with --file", list(.files))]
    SeveralFiles {
        /// The client.
        client: &'static str,
        /// These.
        files: Vec<PathBuf>,
    },
    /// The file named is none of the client's.
    #[error("{client} does not read {}; it reads {}", .file.display(), list(.files))]
    NotItsFile {
        /// The client.
        client: &'static str,
        /// What was named.
        file: PathBuf,
        /// What it reads.
        files: Vec<PathBuf>,
    },
    /// The file cannot be read, so it is not written.
    #[error("{}{}: {message}; nothing was changed", .file.display(), place(.position.as_ref()))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Where.
        position: Option<Position>,
        /// Why.
        message: String,
    },
    /// The file begins with a byte order mark, because of which the client reads nothing of it.
    #[error("{} begins with a byte order mark, which {client} does not accept; `--drop-bom` saves it without one; nothing was changed", .file.display())]
    ByteOrderMark {
        /// The client.
        client: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// The client is not allowed to start us.
    #[error("{client} cannot be connected: {reason}")]
    Forbidden {
        /// The client.
        client: &'static str,
        /// Who says so, and where.
        reason: String,
    },
    /// Our name stands for something else.
    #[error("{} already has an entry `{NAME}` that starts something else; rename or remove it first", .file.display())]
    NameTaken {
        /// The file.
        file: PathBuf,
    },
    /// Nothing was moved.
    #[error("no servers of {client} were moved behind the bridge")]
    NothingMoved {
        /// The client.
        client: &'static str,
    },
    /// The file kept changing, or changed since the plan was made.
    #[error("{} is being changed by another program; close it, or try again", .file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// Our program will not be where it is now.
    #[error("{} is a temporary place; install Runbridge where it stays and run it from there", .program.display())]
    Fleeting {
        /// The program.
        program: PathBuf,
    },
    /// The disk refused.
    #[error("{} cannot be written: {error}", .file.display())]
    Disk {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

fn list(files: &[PathBuf]) -> String {
    let files: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    files.join(", ")
}

fn place(position: Option<&Position>) -> String {
    position.map_or_else(String::new, |at| format!(":{}:{}", at.line, at.column))
}

/// The path of this program that may stand in a client's file: one that an update does not move.
pub fn stable_program(search: &Search<'_>, program: &Path) -> Result<PathBuf, ConnectError> {
    // Package managers keep versions apart and link the current one from a folder in PATH.
    let name = program.file_name().unwrap_or_default();
    let linked = search
        .environment
        .get("PATH")
        .into_iter()
        .flat_map(std::env::split_paths)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| dunce::canonicalize(path).is_ok_and(|path| path == program));
    let program = linked.unwrap_or_else(|| program.to_owned());
    let text = program.to_string_lossy();
    if text.contains("/.mount_") || text.contains("/AppTranslocation/") {
        return Err(ConnectError::Fleeting { program });
    }
    Ok(program)
}

/// A file as it was read.
struct Opened {
    bytes: Option<Vec<u8>>,
    text: String,
    mark: bool,
}

const MARK: &[u8] = b"\xEF\xBB\xBF";

impl Opened {
    fn bytes_of(&self, text: &str) -> Vec<u8> {
        let mark = if self.mark { MARK } else { &[] };
        [mark, text.as_bytes()].concat()
    }
}

impl<'a> Connector<'a> {
    /// `program` is what clients are to start.
    pub fn new(search: &'a Search<'a>, program: &Path, running: Option<Running>) -> Self {
        Self {
            search,
            program: program.to_string_lossy().into_owned(),
            running,
            drops_mark: false,
        }
    }

    /// With the user's consent, a byte order mark that a client does not accept goes when its file is
    /// written.
    #[must_use]
    pub fn dropping_mark(mut self) -> Self {
        self.drops_mark = true;
        self
    }

    /// How things stand with every client that is on this machine.
    pub fn standings(&self) -> Vec<Standing> {
        let receipts = receipts::all(&self.search.paths.clone());
        targets()
            .filter_map(|(client, target)| self.standing(client, target, &receipts))
            .collect()
    }

    fn standing(
        &self,
        client: &'static Client,
        target: &'static Target,
        receipts: &[Receipt],
    ) -> Option<Standing> {
        let receipt = receipts.iter().find(|receipt| receipt.client == client.id);
        let (file, state) = match (self.live_file(client, target, None), receipt) {
            (Err(ConnectError::SeveralFiles { files, .. }), None) => {
                let connected = files.iter().find_map(|file| {
                    let state = self.state(target, file, None);
                    matches!(state, State::Connected { .. }).then(|| (Some(file.clone()), state))
                });
                connected.unwrap_or((None, State::Several { files }))
            }
            (Err(_), None) => return None,
            (Ok(live), None) => {
                let state = match (target.forbidden)(self.search, NAME, &self.program) {
                    Some(reason) => State::Forbidden { reason },
                    None => self.state(target, &live, None),
                };
                (Some(live), state)
            }
            (_, Some(receipt)) => {
                let state = self.state_of(client, target, receipt);
                let file = match &state {
                    State::Shadowed { by } => by.clone(),
                    _ => receipt.file.clone(),
                };
                (Some(file), state)
            }
        };
        let state = match (state, self.extension(target)) {
            (State::NotConnected | State::Lost | State::Several { .. }, Some(manifest)) => {
                State::Extension { manifest }
            }
            (state, _) => state,
        };
        let processes = target.processes;
        let running = self.running.as_ref().filter(|_| !processes.is_empty());
        let servers = file
            .as_deref()
            .map(|file| self.own_servers(client, target, file, receipt));
        Some(Standing {
            id: client.id,
            name: client.name,
            file,
            running: running.map(|running| running.any(processes)),
            restart: target.restart,
            state,
            keep: receipt.is_some_and(|receipt| receipt.keep),
            announces: announces(client),
            servers: servers.unwrap_or_default(),
        })
    }

    /// What became of an entry that we wrote.
    pub(super) fn standing_of(&self, receipt: &Receipt) -> Option<Standing> {
        let (client, target) = find(&receipt.client).ok()?;
        self.standing(client, target, std::slice::from_ref(receipt))
    }

    fn state_of(
        &self,
        client: &'static Client,
        target: &'static Target,
        receipt: &Receipt,
    ) -> State {
        match self.live_file(client, target, None) {
            // The client may read a file in which we are, too.
            Ok(live) if live != receipt.file => match self.state(target, &live, None) {
                connected @ State::Connected { .. } => connected,
                _ => State::Shadowed { by: live },
            },
            Ok(_) | Err(ConnectError::SeveralFiles { .. }) => {
                self.state(target, &receipt.file, Some(receipt))
            }
            Err(_) => State::Lost,
        }
    }

    fn state(&self, target: &Target, file: &Path, receipt: Option<&Receipt>) -> State {
        // One without an entry is about an entry that the user wrote.
        let receipt = receipt.filter(|receipt| !receipt.entry.is_null());
        let opened = open(file).and_then(|opened| {
            let document = parse(file, &opened.text)?;
            legible(target, file, &opened)?;
            Ok((opened, document))
        });
        let document = match opened {
            Ok((opened, _)) if is_marked(target, &opened) => {
                return State::Unreadable {
                    position: Some(Position { line: 1, column: 1 }),
                    message: "it begins with a byte order mark, because of which the client reads nothing of it".to_owned(),
                    mark_only: true,
                };
            }
            Ok((_, document)) => document,
            Err(error) => {
                let (position, message) = match error {
                    ConnectError::Unreadable {
                        position, message, ..
                    } => (position, message),
                    error => (None, error.to_string()),
                };
                return State::Unreadable {
                    position,
                    message,
                    mark_only: false,
                };
            }
        };
        let root = &document.root;
        let section = (target.section)(root);
        match (edit::find(root, section, NAME), receipt) {
            (Some(entry), Some(receipt)) => {
                let entry = edit::unnamed(entry, section);
                let written = Value::from_json(&receipt.entry);
                if edit::alike(&entry, &written) || program_of(&entry) == program_of(&written) {
                    connected(NAME)
                } else {
                    State::Changed
                }
            }
            (Some(entry), None) if self.starts_us(entry) => connected(NAME),
            (Some(_), None) => State::NameTaken,
            (None, receipt) => match self.other_name(root, section) {
                Some(name) => connected(&name),
                None if receipt.is_some() => State::Lost,
                None => State::NotConnected,
            },
        }
    }

    /// The name under which the user put us in himself.
    fn other_name(&self, root: &Value, section: Section) -> Option<String> {
        edit::entries(root, section)
            .into_iter()
            .find(|(_, entry)| self.starts_us(entry))
            .map(|(name, _)| name.to_owned())
    }

    pub(super) fn starts_us(&self, entry: &Value) -> bool {
        let Some(program) = program_of(entry) else {
            return false;
        };
        self.is_us(program)
    }

    fn is_us(&self, program: &str) -> bool {
        program == self.program
            || SelfEntries::new(self.search.environment, &self.search.own_programs).is_us(program)
    }

    /// Where a client has us as an extension.
    fn extension(&self, target: &Target) -> Option<PathBuf> {
        (target.extension)(self.search, &|program| self.is_us(program))
    }

    /// The file that a client reads.
    fn live_file(
        &self,
        client: &'static Client,
        target: &Target,
        wanted: Option<&Path>,
    ) -> Result<PathBuf, ConnectError> {
        let files = (target.files)(self.search);
        let paths = || {
            files
                .iter()
                .map(|file| file.path.clone())
                .collect::<Vec<_>>()
        };
        if let Some(wanted) = wanted {
            return match files.iter().find(|file| file.path == wanted) {
                Some(file) if file.path.exists() || file.installed.is_dir() => {
                    Ok(wanted.to_owned())
                }
                Some(file) => Err(ConnectError::NotInstalled {
                    client: client.name,
                    looked: file.installed.display().to_string(),
                }),
                None => Err(ConnectError::NotItsFile {
                    client: client.name,
                    file: wanted.to_owned(),
                    files: paths(),
                }),
            };
        }
        let existing: Vec<PathBuf> = files
            .iter()
            .filter(|file| file.path.symlink_metadata().is_ok())
            .map(|file| file.path.clone())
            .collect();
        match (existing.as_slice(), target.several) {
            ([_, _, ..], Several::Ask) => Err(ConnectError::SeveralFiles {
                client: client.name,
                files: existing,
            }),
            ([first, ..], _) => Ok(first.clone()),
            ([], _) => {
                let installed = files.iter().find(|file| file.installed.is_dir());
                installed.map(|file| file.path.clone()).ok_or_else(|| {
                    let mut folders: Vec<PathBuf> =
                        files.iter().map(|file| file.installed.clone()).collect();
                    folders.dedup();
                    ConnectError::NotInstalled {
                        client: client.name,
                        looked: list(&folders),
                    }
                })
            }
        }
    }

    /// What an action would do. `file` says which of several files is meant; `keep` asks that the entry
    /// be put back whenever it is lost.
    pub fn plan(
        &self,
        client: &str,
        action: Action,
        file: Option<&Path>,
        keep: bool,
    ) -> Result<Plan, ConnectError> {
        let (client, target) = find(client)?;
        let receipts = receipts::all(self.search.paths);
        let mine = |receipt: &&Receipt| {
            receipt.client == client.id && file.is_none_or(|file| receipt.file == file)
        };
        let undo = matches!(action, Action::Disconnect | Action::Restore);
        let path = match receipts.iter().find(mine) {
            // What is undone is what was done, even if the client has moved on to another file.
            Some(receipt) if undo => receipt.file.clone(),
            Some(receipt) if file.is_none() => match self.live_file(client, target, None) {
                Err(ConnectError::SeveralFiles { .. }) => receipt.file.clone(),
                live => live?,
            },
            _ => self.live_file(client, target, file)?,
        };
        let prior = receipts
            .into_iter()
            .find(|receipt| receipt.client == client.id && receipt.file == path);
        let opened = open(&path)?;
        let mut plan = Plan {
            client,
            notes: Vec::new(),
            before: opened.bytes.clone(),
            after: opened.bytes.clone(),
            receipt: prior.clone(),
            prior,
            backups: Vec::new(),
            secrets: Vec::new(),
            costs: [Cost::default(); 2],
            entry_alone: false,
            file: path,
        };
        let mut change = Change {
            connector: self,
            target,
            format: format_of(&plan.file),
            opened,
            plan: &mut plan,
        };
        match action {
            Action::Connect => change.connect(keep)?,
            Action::Disconnect => change.disconnect()?,
            Action::Move => {
                change.connect(keep)?;
                if !change.plan.is_change() {
                    change.plan.notes.clear();
                }
                change.move_servers()?;
            }
            Action::Restore => change.restore()?,
        }
        plan.entry_alone &= action == Action::Connect;
        plan.secrets = self.secrets(client, &plan);
        plan.costs = [&plan.before, &plan.after]
            .map(|bytes| self.cost(client, target, &plan.file, &plain_text(bytes.as_deref())));
        if plan.is_change() && !target.restart.is_empty() {
            let runs = self
                .running
                .as_ref()
                .map(|running| running.any(target.processes));
            if plan.entry_alone
                && let Some(own) = &target.own_command
                && own.find(self.search).is_some()
            {
                plan.notes.push(format!(
                    "`{}`, {}'s own command, makes the change and may lay out the file anew",
                    own.title(),
                    client.name
                ));
            }
            if runs != Some(false) {
                plan.notes.push(format!(
                    "to make {} see it: {}",
                    client.name, target.restart
                ));
            }
        }
        Ok(plan)
    }

    fn secrets(&self, client: &'static Client, plan: &Plan) -> Vec<crate::secrets::Secret> {
        let entries = |bytes: &Option<Vec<u8>>| {
            self.entries(client, &plan.file, plain_text(bytes.as_deref()))
        };
        let (before, after) = (entries(&plan.before), entries(&plan.after));
        before
            .iter()
            .chain(&after)
            .flat_map(crate::redact::entry_secrets)
            .collect()
    }

    /// The servers of a text as the client reads them.
    fn entries(&self, client: &'static Client, file: &Path, text: String) -> Vec<Entry> {
        match Document::parse(text, format_of(file)) {
            Ok(document) => self.entries_of(client, file, &document),
            Err(_) => Vec::new(),
        }
    }

    pub(super) fn search(&self) -> &Search<'_> {
        self.search
    }

    /// The servers of a document as the client reads them.
    pub(super) fn entries_of(
        &self,
        client: &'static Client,
        file: &Path,
        document: &Document,
    ) -> Vec<Entry> {
        let mut found = Found::default();
        super::read_document(self.search, client, file, None, document, &mut found);
        found
            .candidates
            .into_iter()
            .map(|candidate| candidate.entry)
            .collect()
    }

    /// Makes the planned change, or none.
    pub fn apply(&self, plan: &Plan) -> Result<(), ConnectError> {
        let paths = self.search.paths;
        let ours = |error| ConnectError::Disk {
            file: receipts::folder(paths),
            error,
        };
        if !plan.is_change() && plan.prior == plan.receipt {
            return Ok(());
        }
        let _lock = receipts::lock(paths).map_err(ours)?;
        // Another process of ours may have been here since the plan was made.
        let now = receipts::all(paths)
            .into_iter()
            .find(|receipt| receipt.client == plan.client.id && receipt.file == plan.file);
        let found = open(&plan.file)?.bytes;
        if now != plan.prior || found != plan.before {
            return Err(ConnectError::Changed {
                file: plan.file.clone(),
            });
        }
        for (name, content) in &plan.backups {
            receipts::save_backup(paths, name, content).map_err(ours)?;
        }
        if let Some(receipt) = &plan.receipt {
            receipts::save(paths, receipt).map_err(ours)?;
        }
        if plan.is_change() && !self.put_by_client(plan)? {
            let replaced =
                replace::replace(&plan.file, plan.before.as_deref(), plan.after.as_deref());
            if let Err(refusal) = replaced {
                match (&plan.prior, &plan.receipt) {
                    (Some(prior), _) => receipts::save(paths, prior).map_err(ours)?,
                    (None, Some(receipt)) => receipts::forget(paths, receipt).map_err(ours)?,
                    (None, None) => {}
                }
                let file = plan.file.clone();
                return Err(match refusal {
                    Refusal::Changed => ConnectError::Changed { file },
                    Refusal::Disk(error) => ConnectError::Disk { file, error },
                });
            }
        }
        if let (Some(prior), None) = (&plan.prior, &plan.receipt) {
            receipts::forget(paths, prior).map_err(ours)?;
        }
        // A backup too many does no harm.
        if let Err(error) = receipts::prune(paths) {
            tracing::debug!("old backups stay: {error}");
        }
        Ok(())
    }

    /// Has the client's own command make the change, if it has one and that is here. Says whether the entry
    /// stands in the file.
    fn put_by_client(&self, plan: &Plan) -> Result<bool, ConnectError> {
        let (Some(target), Some(receipt)) = (&plan.client.target, &plan.receipt) else {
            return Ok(false);
        };
        let Some(own) = target.own_command.as_ref().filter(|_| plan.entry_alone) else {
            return Ok(false);
        };
        let Some(program) = own.find(self.search) else {
            return Ok(false);
        };
        if let Err(error) = own.put(&program, self.search, NAME, &receipt.entry) {
            tracing::info!("`{}`: {error}; the file is written directly", own.title());
        }
        let now = open(&plan.file)?;
        let document = parse(&plan.file, &now.text)?;
        let section = (target.section)(&document.root);
        let stands = edit::find(&document.root, section, NAME).is_some_and(|entry| {
            program_of(entry) == program_of(&Value::from_json(&receipt.entry))
        });
        if !stands {
            // It may have written all the same; then what the plan saw is no longer there.
            return if now.bytes == plan.before {
                Ok(false)
            } else {
                Err(ConnectError::Changed {
                    file: plan.file.clone(),
                })
            };
        }
        let planned = plan
            .after
            .as_deref()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let planned = parse(&plan.file, &planned.unwrap_or_default())?;
        let mut receipt = receipt.clone();
        // What the client wrote besides is its own: an undo must not take it back.
        receipt.connected.after = if edit::alike(&document.root, &planned.root) {
            receipts::hash(now.bytes.as_deref().unwrap_or_default())
        } else {
            String::new()
        };
        receipts::save(self.search.paths, &receipt).map_err(|error| ConnectError::Disk {
            file: receipts::folder(self.search.paths),
            error,
        })?;
        Ok(true)
    }

    /// Whether our entry in this client's files is put back whenever it is lost.
    pub fn keep(&self, client: &str, keep: bool) -> Result<(), ConnectError> {
        let (client, _) = find(client)?;
        let paths = self.search.paths;
        let disk = |error| ConnectError::Disk {
            file: receipts::folder(paths),
            error,
        };
        let _lock = receipts::lock(paths).map_err(disk)?;
        let mine = receipts::all(paths)
            .into_iter()
            .filter(|receipt| receipt.client == client.id && receipt.keep != keep);
        for receipt in mine {
            receipts::save(paths, &Receipt { keep, ..receipt }).map_err(disk)?;
        }
        Ok(())
    }

    /// The file of a client that a person may want to see: the one named, if it is the client's, or the
    /// one that it reads.
    pub fn file(&self, client: &str, file: Option<&Path>) -> Result<PathBuf, ConnectError> {
        let (client, target) = find(client)?;
        if file.is_none()
            && let Some(receipt) = receipts::all(self.search.paths)
                .into_iter()
                .find(|receipt| receipt.client == client.id)
        {
            return Ok(receipt.file);
        }
        self.live_file(client, target, file)
    }

    /// Plans and applies, again if the client writes its file at the same moment.
    pub fn carry_out(
        &self,
        client: &str,
        action: Action,
        file: Option<&Path>,
        keep: bool,
    ) -> Result<Plan, ConnectError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let done = self
                .plan(client, action, file, keep)
                .and_then(|plan| self.apply(&plan).map(|()| plan));
            match done {
                // A file that is being written may be empty or broken for a moment.
                Err(ConnectError::Changed { .. } | ConnectError::Unreadable { .. })
                    if tries < TRIES_MAX => {}
                done => return done,
            }
        }
    }
}

impl Plan {
    /// Whether the file would change.
    pub fn is_change(&self) -> bool {
        self.before != self.after
    }

    /// The client's name.
    pub fn client(&self) -> &'static str {
        self.client.name
    }

    /// Where what the file held is kept, if it is.
    pub fn backups(&self, connector: &Connector<'_>) -> Vec<PathBuf> {
        let folder = receipts::folder(connector.search.paths).join("backups");
        self.backups
            .iter()
            .map(|(name, _)| folder.join(name))
            .collect()
    }

    /// The names of servers that are behind the bridge afterwards.
    pub fn moved(&self) -> Vec<&str> {
        self.receipt.iter().flat_map(Receipt::moved).collect()
    }

    /// Whether the file is to be made.
    pub fn creates(&self) -> bool {
        self.before.is_none()
    }

    /// What a conversation starts with before the change and after it.
    pub fn costs(&self) -> [Cost; 2] {
        self.costs
    }

    /// A name of this very change, which another change of the same file does not have.
    pub fn name(&self) -> String {
        let content = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(receipts::hash);
        let all = format!(
            "{} {} {:?} {:?}",
            self.client.id,
            self.file.display(),
            content(&self.before),
            content(&self.after)
        );
        receipts::hash(all.as_bytes())
    }

    /// The change as a unified diff, secrets left out.
    pub fn diff(&self) -> String {
        let text = |bytes: &Option<Vec<u8>>| {
            String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
        };
        let (before, after) = (text(&self.before), text(&self.after));
        let name = self.file.display().to_string();
        let diff = similar::TextDiff::from_lines(&before, &after)
            .unified_diff()
            .context_radius(3)
            .header(&name, &name)
            .to_string();
        Redactor::new(&self.secrets).text(&diff).into_owned()
    }
}

/// One action on its way from a file's content to a plan.
struct Change<'p, 'c> {
    connector: &'c Connector<'c>,
    target: &'static Target,
    format: Format,
    opened: Opened,
    plan: &'p mut Plan,
}

impl Change<'_, '_> {
    fn text(&self) -> Result<Document, ConnectError> {
        parse(&self.plan.file, &self.opened.text)
    }

    fn edited(&self, edited: Result<String, EditError>) -> Result<String, ConnectError> {
        edited.map_err(|error| ConnectError::Unreadable {
            file: self.plan.file.clone(),
            position: error.position(),
            message: error.to_string(),
        })
    }

    /// Takes the text as the file's new content. What it held becomes a backup.
    fn becomes(&mut self, text: String) -> Step {
        let before = self.plan.after.take();
        let after = self.opened.bytes_of(&text);
        let step = Step {
            backup: before
                .as_ref()
                .map(|before| receipts::backup_name(self.plan.client.id, before)),
            after: receipts::hash(&after),
        };
        self.plan.backups.extend(step.backup.clone().zip(before));
        self.plan.after = Some(after);
        self.opened.text = text;
        step
    }

    /// Gives back what was there before a step, if nothing else has changed since.
    fn undone(&mut self, step: &Step) -> bool {
        let now = self.plan.after.as_deref().map(receipts::hash);
        if now.as_ref() != Some(&step.after) {
            return false;
        }
        let before = match &step.backup {
            Some(name) => match receipts::backup(self.connector.search.paths, name) {
                Some(before) => Some(before),
                None => return false,
            },
            None => None,
        };
        let text = before
            .as_deref()
            .map(|bytes| bytes.strip_prefix(MARK).unwrap_or(bytes));
        self.opened.text = text
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default();
        self.plan.after = before;
        true
    }

    fn connect(&mut self, keep: bool) -> Result<(), ConnectError> {
        let client = self.plan.client.name;
        let connector = self.connector;
        if let Some(reason) = (self.target.forbidden)(connector.search, NAME, &connector.program) {
            return Err(ConnectError::Forbidden { client, reason });
        }
        let document = self.text()?;
        let had_mark = self.opened.mark;
        if is_marked(self.target, &self.opened) {
            if !connector.drops_mark {
                return Err(ConnectError::ByteOrderMark {
                    client,
                    file: self.plan.file.clone(),
                });
            }
            self.opened.mark = false;
            self.plan.notes.push(format!(
                "the byte order mark goes, so that {client} can read the file; the backup has it"
            ));
        }
        legible(self.target, &self.plan.file, &self.opened)?;
        let root = &document.root;
        let section = (self.target.section)(root);
        let entry = (self.target.entry)(&self.connector.program, section);
        if let Some(old) = edit::find(root, section, NAME) {
            let as_we_write = program_of(old) == Some(self.connector.program.as_str());
            let known = self.plan.prior.is_some();
            if as_we_write {
                self.plan
                    .notes
                    .push(format!("{} is connected already", self.plan.client.name));
                if let Some(receipt) = &mut self.plan.receipt {
                    receipt.keep |= keep;
                }
                if self.opened.mark != had_mark {
                    let text = self.opened.text.clone();
                    self.becomes(text);
                }
                return Ok(());
            }
            if !known && !self.connector.starts_us(old) {
                return Err(ConnectError::NameTaken {
                    file: self.plan.file.clone(),
                });
            }
        } else if let Some(name) = self.connector.other_name(root, section) {
            self.plan.notes.push(format!(
                "{} is connected already, under the name `{name}`",
                self.plan.client.name
            ));
            return Ok(());
        } else if let Some(manifest) = connector.extension(self.target) {
            self.plan.notes.push(format!(
                "{client} has Runbridge as an extension already ({}), and would start it twice with an entry in its file",
                manifest.display()
            ));
            return Ok(());
        }
        let levels_made = edit::levels_missing(root, section);
        let text = self.edited(edit::put(
            document.source(),
            self.format,
            section,
            NAME,
            &entry,
        ))?;
        let anew = edit::find(root, section, NAME).is_none();
        self.plan.entry_alone = anew && self.opened.mark == had_mark;
        let connected = self.becomes(text);
        let prior = self.plan.prior.as_ref();
        self.plan.receipt = Some(Receipt {
            client: self.plan.client.id.to_owned(),
            file: self.plan.file.clone(),
            entry,
            at: crate::timestamp::now(),
            keep: keep || prior.is_some_and(|prior| prior.keep),
            levels_made,
            connected,
            moved: prior.and_then(|prior| prior.moved.clone()),
        });
        Ok(())
    }

    fn disconnect(&mut self) -> Result<(), ConnectError> {
        let mut receipt = self.plan.receipt.take();
        if self.plan.before.is_none() {
            self.plan.notes.push(format!(
                "{} is not there any more",
                self.plan.file.display()
            ));
            if let Some(receipt) = receipt.take_if(|receipt| receipt.moved.is_some()) {
                self.plan.notes.push(
                    "the servers that were moved stay behind the bridge; `restore` puts them into a new file".to_owned(),
                );
                self.plan.receipt = Some(Receipt {
                    entry: Json::Null,
                    ..receipt
                });
            }
            return Ok(());
        }
        if let Some(moved) = receipt.as_ref().and_then(|receipt| receipt.moved.as_ref()) {
            self.put_back(moved)?;
        }
        if receipt
            .as_ref()
            .is_some_and(|receipt| self.undone(&receipt.connected))
        {
            return Ok(());
        }
        let document = self.text()?;
        let root = &document.root;
        let section = (self.target.section)(root);
        let name = match edit::find(root, section, NAME) {
            Some(entry) => {
                let starts_us = self.connector.starts_us(entry);
                let written = receipt.as_ref().is_some_and(|receipt| {
                    program_of(entry) == program_of(&Value::from_json(&receipt.entry))
                });
                match &receipt {
                    Some(_) if !written && !starts_us => {
                        self.plan.notes.push(
                            "our entry had been changed by hand; a backup keeps it".to_owned(),
                        );
                    }
                    None if !starts_us => {
                        return Err(ConnectError::NameTaken {
                            file: self.plan.file.clone(),
                        });
                    }
                    _ => {}
                }
                Some(NAME.to_owned())
            }
            None => self.connector.other_name(root, section),
        };
        let Some(name) = name else {
            self.plan
                .notes
                .push(format!("{} does not name us", self.plan.file.display()));
            return Ok(());
        };
        let levels_made = receipt.map_or(0, |receipt| receipt.levels_made);
        let text = edit::take(document.source(), self.format, section, &name, levels_made);
        let text = self.edited(text)?;
        self.becomes(text);
        Ok(())
    }

    fn move_servers(&mut self) -> Result<(), ConnectError> {
        let Some(mut receipt) = self.plan.receipt.clone() else {
            // The user put us in himself.
            let step = Step {
                backup: None,
                after: String::new(),
            };
            self.plan.receipt = Some(Receipt {
                client: self.plan.client.id.to_owned(),
                file: self.plan.file.clone(),
                entry: Json::Null,
                at: crate::timestamp::now(),
                keep: false,
                levels_made: 0,
                connected: step,
                moved: None,
            });
            return self.move_servers();
        };
        let document = self.text()?;
        let section = (self.target.section)(&document.root);
        let text = document.source().to_owned();
        let read = self
            .connector
            .entries(self.plan.client, &self.plan.file, text.clone());
        let mut servers = receipt
            .moved
            .take()
            .map(|moved| moved.servers)
            .unwrap_or_default();
        let mut edited = text;
        let mut count = 0;
        for (name, value) in edit::entries(&document.root, section) {
            if self.connector.starts_us(value) || name == NAME {
                continue;
            }
            let standing: Vec<&Entry> = read.iter().filter(|entry| entry.name == name).collect();
            // What the client does not start, or what only it can start, costs it nothing or stays.
            let reason = match standing.as_slice() {
                [] => Some("it is no server that can be started from here".to_owned()),
                [entry] => match (&entry.off, entry.needs.as_slice()) {
                    (Some(off), _) => Some(format!("it is off: {off}")),
                    (None, []) => None,
                    (None, needs) => {
                        let needs = needs.join(", ");
                        Some(format!("only {} knows {needs}", self.plan.client.name))
                    }
                },
                _ => Some("the file has several servers of that name".to_owned()),
            };
            if let Some(reason) = reason {
                self.plan
                    .notes
                    .push(format!("`{name}` stays where it is: {reason}"));
                continue;
            }
            edited = self.edited(edit::take(&edited, self.format, section, name, 0))?;
            let entry = edit::unnamed(value, section).to_json();
            servers.retain(|(known, _)| known != name);
            servers.push((name.to_owned(), entry));
            count += 1;
        }
        if count == 0 {
            self.plan
                .notes
                .push(format!("{} has no server to move", self.plan.client.name));
            return Ok(());
        }
        let step = self.becomes(edited);
        receipt.moved = Some(Moved::new(step, section, servers));
        self.plan.receipt = Some(receipt);
        Ok(())
    }

    fn restore(&mut self) -> Result<(), ConnectError> {
        let nothing = ConnectError::NothingMoved {
            client: self.plan.client.name,
        };
        let receipt = self.plan.receipt.as_mut().ok_or(nothing)?;
        let Some(moved) = receipt.moved.take() else {
            return Err(ConnectError::NothingMoved {
                client: self.plan.client.name,
            });
        };
        if receipt.entry.is_null() {
            self.plan.receipt = None;
        }
        self.put_back(&moved)
    }

    fn put_back(&mut self, moved: &Moved) -> Result<(), ConnectError> {
        if self.undone(&moved.step) {
            return Ok(());
        }
        let document = self.text()?;
        let section = (self.target.section)(&document.root);
        let mut text = document.source().to_owned();
        // Each goes to the front.
        for (name, entry) in moved.servers.iter().rev() {
            match edit::find(&document.root, section, name) {
                Some(other) => {
                    let same =
                        edit::alike(&edit::unnamed(other, section), &Value::from_json(entry));
                    if !same {
                        self.plan.notes.push(format!(
                            "`{name}` is in the file again with another content; that one stays"
                        ));
                    }
                }
                None => text = self.edited(edit::put(&text, self.format, section, name, entry))?,
            }
        }
        if text != self.opened.text || self.plan.after.is_none() {
            self.becomes(text);
        }
        Ok(())
    }
}

fn connected(name: &str) -> State {
    State::Connected {
        name: name.to_owned(),
    }
}

fn targets() -> impl Iterator<Item = (&'static Client, &'static Target)> {
    ORDER
        .iter()
        .filter_map(|&client| Some((client, client.target.as_ref()?)))
}

/// A client by its identifier or name, however it is spelled.
fn find(name: &str) -> Result<(&'static Client, &'static Target), ConnectError> {
    let wanted = plain(name);
    targets()
        .find(|(client, _)| plain(client.id) == wanted || plain(client.name) == wanted)
        .ok_or_else(|| ConnectError::UnknownClient {
            name: name.to_owned(),
            known: targets()
                .map(|(client, _)| client.id)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// Beginnings of the names under which a client attaches.
fn announces(client: &Client) -> Vec<String> {
    let others: &[&str] = match client.id {
        "claude-desktop" => &["claudeai"],
        "vscode" => &["visualstudiocode"],
        "copilot-cli" => &["githubcopilot"],
        "amazon-q" => &["qdevcli"],
        _ => &[],
    };
    let mut names = vec![plain(client.id)];
    names.extend(Some(plain(client.name)).filter(|name| *name != names[0]));
    names.extend(others.iter().map(|&name| name.to_owned()));
    names
}

fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// A file's text without its mark; what is not UTF-8 holds nothing that we could read.
fn plain_text(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default();
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    std::str::from_utf8(bytes).unwrap_or_default().to_owned()
}

fn open(file: &Path) -> Result<Opened, ConnectError> {
    let unreadable = |position, message| ConnectError::Unreadable {
        file: file.to_owned(),
        position,
        message,
    };
    let bytes =
        super::parse::read_bytes(file).map_err(|error| unreadable(None, error.to_string()))?;
    let content = bytes.as_deref().unwrap_or_default();
    if content.starts_with(b"\xFF\xFE") || content.starts_with(b"\xFE\xFF") {
        let message = "it is UTF-16 text; save it as UTF-8";
        return Err(unreadable(None, message.to_owned()));
    }
    let text = super::parse::decode(content.to_vec())
        .map_err(|broken| unreadable(broken.position, broken.message))?;
    Ok(Opened {
        mark: content.starts_with(MARK),
        text,
        bytes,
    })
}

fn parse(file: &Path, text: &str) -> Result<Document, ConnectError> {
    Document::parse(text.to_owned(), format_of(file)).map_err(|broken| ConnectError::Unreadable {
        file: file.to_owned(),
        position: broken.position,
        message: broken.message,
    })
}

/// Whether the client itself can read the file. What it cannot read it may replace, and us with it.
fn legible(target: &Target, file: &Path, opened: &Opened) -> Result<(), ConnectError> {
    if target.reads == Reads::PlainJson
        && !opened.text.trim().is_empty()
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&opened.text)
    {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let position = Position {
            line: number(error.line()),
            column: number(error.column()),
        };
        let message = "the client accepts plain JSON only, without comments or trailing commas";
        return Err(ConnectError::Unreadable {
            file: file.to_owned(),
            position: Some(position),
            message: message.to_owned(),
        });
    }
    Ok(())
}

/// Whether the file begins with a byte order mark that the client does not accept.
fn is_marked(target: &Target, opened: &Opened) -> bool {
    opened.mark && target.reads != Reads::Anything
}
