//! Connect Runbridge to a client, and undo it; move the client's own servers behind the bridge, and back.
//!
//! Everything begins as a [`Plan`], which changes nothing: what the file holds, what it would hold, and
//! what there is to say. [`Connector::apply`] then does exactly that or, if the file has changed since,
//! nothing. Only here are files of other programs written, by us or, where a client has a command for it
//! and rewrites its file all the time, by that command. An undo gives back the old bytes if nobody else
//! wrote since, and takes out just what is ours if somebody did.

mod change;
mod error;
mod opened;
mod plan;
mod standing;

use std::path::{Path, PathBuf};

use self::change::Change;
pub use self::error::ConnectError;
use self::error::list;
use self::opened::{is_marked, legible, open, parse, plain_text};
pub use self::plan::Plan;
use self::standing::connected;
pub use self::standing::{Standing, State};
use super::client::{Client, Found, format_of};
use super::edit::{self, Section};
use super::entry::Entry;
pub use super::own_servers::{Cost, OwnServer};
use super::parse::{Document, Position, Value};
use super::receipts;
pub use super::receipts::Receipt;
use super::replace::{self, Refusal};
pub use super::running::Running;
use super::self_entry::SelfEntries;
use super::target::{Several, Target, program_of};
use super::{ORDER, Search};

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
