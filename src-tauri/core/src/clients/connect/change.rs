//! What each action makes of a file's content.

use serde_json::Value as Json;

use super::opened::{MARK, Opened, is_marked, legible, parse};
use super::{ConnectError, Connector, NAME, Plan, Receipt};
use crate::clients::edit::{self, EditError};
use crate::clients::entry::Entry;
use crate::clients::parse::{Document, Format, Value};
use crate::clients::receipts::{self, Moved, Step};
use crate::clients::target::{Target, program_of};

/// One action on its way from a file's content to a plan.
pub(super) struct Change<'p, 'c> {
    pub(super) connector: &'c Connector<'c>,
    pub(super) target: &'static Target,
    pub(super) format: Format,
    pub(super) opened: Opened,
    pub(super) plan: &'p mut Plan,
}

impl Change<'_, '_> {
    pub(super) fn text(&self) -> Result<Document, ConnectError> {
        parse(&self.plan.file, &self.opened.text)
    }

    pub(super) fn edited(&self, edited: Result<String, EditError>) -> Result<String, ConnectError> {
        edited.map_err(|error| ConnectError::Unreadable {
            file: self.plan.file.clone(),
            position: error.position(),
            message: error.to_string(),
        })
    }

    /// Takes the text as the file's new content. What it held becomes a backup.
    pub(super) fn becomes(&mut self, text: String) -> Step {
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
    pub(super) fn undone(&mut self, step: &Step) -> bool {
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

    pub(super) fn connect(&mut self, keep: bool) -> Result<(), ConnectError> {
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

    pub(super) fn disconnect(&mut self) -> Result<(), ConnectError> {
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

    pub(super) fn move_servers(&mut self) -> Result<(), ConnectError> {
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

    pub(super) fn restore(&mut self) -> Result<(), ConnectError> {
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

    pub(super) fn put_back(&mut self, moved: &Moved) -> Result<(), ConnectError> {
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
