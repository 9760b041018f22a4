//! Notices when a client has lost the entry that connects it to us, and puts it back where the user asked
//! for that.
//!
//! It looks when it is called; when that is worth it, its caller knows. A client that keeps throwing the
//! entry out is not fought for ever.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Search;
use super::connect::{Action, Connector, Running, State};
use super::parse::Value;
use super::receipts::{self, Receipt};
use super::target::program_of;

/// So often one guardian puts an entry back into one file. Who removes it more often means it.
const RESTORED_MAX: u32 = 5;

/// Watches over the entries that we wrote.
#[derive(Debug, Default)]
pub struct Guardian {
    restored: BTreeMap<PathBuf, u32>,
    open: BTreeMap<PathBuf, Finding>,
}

/// Something that happened to an entry of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The client's identifier.
    pub id: &'static str,
    /// The client.
    pub client: &'static str,
    /// The file that had it.
    pub file: PathBuf,
    /// What is the matter.
    pub state: State,
    /// It was put back.
    pub restored: bool,
    /// What makes the client see that.
    pub restart: &'static str,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.display();
        match &self.state {
            State::Lost => write!(
                f,
                "{} lost its connection to Runbridge: the entry is gone from {file}",
                self.client
            )?,
            State::Changed => write!(
                f,
                "the entry for Runbridge in {file} was changed, so {} may start something else",
                self.client
            )?,
            State::Shadowed { by } => write!(
                f,
                "{} now reads {}, and the entry for Runbridge is in {file}",
                self.client,
                by.display()
            )?,
            State::Unreadable { message, .. } => write!(
                f,
                "{} may not read {file}, which connects it to Runbridge: {message}",
                self.client
            )?,
            State::NotConnected
            | State::Connected { .. }
            | State::Extension { .. }
            | State::NameTaken
            | State::Forbidden { .. }
            | State::Several { .. } => {
                write!(f, "{} is not connected as it was in {file}", self.client)?;
            }
        }
        match (self.restored, self.restart) {
            (true, "") => write!(f, "; it was put back"),
            (true, restart) => write!(f, "; it was put back. To make it count: {restart}"),
            (false, _) => write!(f, "; `runbridge connect` puts it right"),
        }
    }
}

impl Guardian {
    /// Looks at every file that we changed. The same state of a file is told once.
    pub fn look(&mut self, search: &Search<'_>, running: Option<&Running>) -> Vec<Finding> {
        let receipts: Vec<_> = receipts::all(search.paths)
            .into_iter()
            .filter(|receipt| !receipt.entry.is_null())
            .collect();
        // What was disconnected is nobody's loss.
        self.open
            .retain(|file, _| receipts.iter().any(|receipt| receipt.file == *file));
        // Restored is what was there, whichever copy of us does it.
        let connector = |receipt: &Receipt| {
            let entry = Value::from_json(&receipt.entry);
            let program = program_of(&entry).unwrap_or_default();
            Connector::new(search, Path::new(program), running.cloned())
        };
        let mut findings = Vec::new();
        for receipt in &receipts {
            let connector = connector(receipt);
            let Some(standing) = connector.standing_of(receipt) else {
                continue;
            };
            let file = &receipt.file;
            if matches!(
                standing.state,
                State::Connected { .. } | State::Extension { .. }
            ) {
                self.open.remove(file);
                continue;
            }
            let may_restore = receipt.keep
                && matches!(standing.state, State::Lost | State::Shadowed { .. })
                && self
                    .restored
                    .get(file)
                    .is_none_or(|&times| times < RESTORED_MAX);
            let mut restored = false;
            if may_restore {
                *self.restored.entry(file.clone()).or_default() += 1;
                let into = (standing.state == State::Lost).then_some(file.as_path());
                match connector.carry_out(standing.id, Action::Connect, into, true) {
                    Ok(_) => restored = true,
                    Err(error) => tracing::warn!("{error}"),
                }
            }
            let finding = Finding {
                id: standing.id,
                client: standing.name,
                file: file.clone(),
                state: standing.state,
                restored,
                restart: standing.restart,
            };
            let known = if restored {
                self.open.remove(file)
            } else {
                self.open.insert(file.clone(), finding.clone())
            };
            if restored || known.as_ref() != Some(&finding) {
                findings.push(finding);
            }
        }
        findings
    }

    /// What was wrong at the last look and has not been put right.
    pub fn open(&self) -> Vec<Finding> {
        self.open.values().cloned().collect()
    }
}
