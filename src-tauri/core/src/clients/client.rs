//! What a client's own file says about it: where its servers are listed, and in which dialect.
//!
//! A [`Client`] knows places and quirks. How a document becomes entries is the same for all: [`Reading`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::entry::{Entry, Lent, Source};
use super::expand::Scope;
use super::fields::{self, Dialect, Refusal};
use super::merge::Candidate;
use super::parse::{Document, Format, Member, Value};
use super::target::Target;
use super::{EntryProblem, Search, Skipped};

/// One client.
pub(super) struct Client {
    /// Its identifier, as it stands in [`Source`].
    pub(super) id: &'static str,
    /// Its name as its makers write it.
    pub(super) name: &'static str,
    pub(super) dialect: Dialect,
    /// How it is connected to us; `None`: it has no file that we may write.
    pub(super) target: Option<Target>,
    /// Every file that may list its servers, in the client's own order of precedence.
    pub(super) places: fn(&Search<'_>) -> Vec<Place>,
    /// Finds the entries in one of them.
    pub(super) read: fn(&mut Reading<'_, '_>),
}

/// A file that may list servers.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    /// The project it belongs to. Whoever wrote such a file is not the user, so its servers start off.
    pub(super) project: Option<PathBuf>,
}

impl Place {
    /// A file of the user's own.
    pub(super) fn user(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self {
            format: format_of(&path),
            path,
            project: None,
        }
    }

    /// A file inside a project.
    pub(super) fn project(project: &Path, file: &str) -> Self {
        let path = project.join(file);
        Self {
            format: format_of(&path),
            path,
            project: Some(project.to_owned()),
        }
    }
}

pub(super) fn format_of(path: &Path) -> Format {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => Format::Toml,
        Some("yaml" | "yml") => Format::Yaml,
        _ => Format::Json,
    }
}

/// What all files together gave.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    pub(super) problems: Vec<EntryProblem>,
    pub(super) skipped: Vec<Skipped>,
}

/// More servers than anybody has; the rest is reported, not read.
const ENTRIES_MAX: usize = 2_000;

/// A longer name fits into no list and no Python name.
const NAME_CHARS_MAX: usize = 200;

/// One document being read for one client.
pub(super) struct Reading<'a, 's> {
    pub(super) client: &'a Client,
    pub(super) search: &'a Search<'s>,
    pub(super) path: &'a Path,
    pub(super) document: &'a Document,
    /// The project whose servers are being read.
    pub(super) project: Option<PathBuf>,
    /// Why servers of this name are off; the name `*` means all.
    pub(super) off: BTreeMap<String, String>,
    /// Values for placeholders that only this file's entries have.
    pub(super) given: Vec<(String, String)>,
    pub(super) found: &'a mut Found,
}

impl Reading<'_, '_> {
    /// Reads the map of entries under `keys`, if there is one.
    pub(super) fn section(&mut self, keys: &[&str]) {
        let document = self.document;
        let mut value = &document.root;
        for key in keys {
            match value.get(key) {
                Some(inner) if !inner.is_null() => value = inner,
                _ => return,
            }
        }
        self.entries(value, keys.join(".").as_str());
    }

    /// Reads a map of entries.
    pub(super) fn entries(&mut self, value: &Value, key: &str) {
        let Some(members) = value.members() else {
            return self.problem(
                value.at,
                None,
                format!("`{key}` must be an object, not {}", value.kind_name()),
            );
        };
        for (index, Member { name, at, value }) in members.iter().enumerate() {
            if members[index + 1..].iter().any(|later| later.name == *name) {
                self.problem(
                    *at,
                    Some(name),
                    "it occurs twice; the last one is used".to_owned(),
                );
                continue;
            }
            self.entry(name, *at, value);
        }
    }

    /// Reads one entry.
    pub(super) fn entry(&mut self, name: &str, at: usize, value: &Value) {
        if name.trim().is_empty()
            || name.chars().any(char::is_control)
            || name.chars().count() > NAME_CHARS_MAX
        {
            let shown: String = name.escape_debug().take(40).collect();
            return self.problem(at, None, format!("`{shown}` cannot be a server's name"));
        }
        if self.found.candidates.len() >= ENTRIES_MAX {
            return self.problem(
                at,
                Some(name),
                format!("there are more than {ENTRIES_MAX} servers; it is not read"),
            );
        }
        let scope = Scope {
            syntax: self.client.dialect.syntax,
            environment: self.search.environment,
            given: &self.given,
            answers: &self.search.answers,
            home: &self.search.paths.home,
            project: self.project.as_deref(),
            file: self.path,
            consulted: &self.search.consulted,
        };
        let source = Source {
            client: self.client.id.to_owned(),
            path: self.path.to_owned(),
            name: name.to_owned(),
        };
        let fields = match fields::read(value, self.client.dialect, &scope) {
            Ok(fields) => fields,
            Err(Refusal::Wrong(at, message)) => return self.problem(at, Some(name), message),
            Err(Refusal::NotRunnable(reason)) => {
                return self.found.skipped.push(Skipped {
                    name: name.to_owned(),
                    source,
                    reason,
                });
            }
        };
        for (at, warning) in fields.warnings {
            self.problem(at, Some(name), warning);
        }
        let off = self.off.get(name).or_else(|| self.off.get("*")).cloned();
        self.found.candidates.push(Candidate {
            entry: Entry {
                name: name.to_owned(),
                transport: fields.transport,
                description: fields.description,
                off: fields.off.or(off),
                needs: fields.needs,
                tools_allowed: fields.tools_allowed,
                tools_denied: fields.tools_denied,
                start_ms_max: fields.start_ms_max,
                call_ms_max: fields.call_ms_max,
                lent: Lent::default(),
                sources: vec![source],
            },
            cwd_assumed: fields.cwd_assumed,
        });
    }

    /// Reports what cannot be used.
    pub(super) fn problem(&mut self, at: usize, entry: Option<&str>, message: String) {
        self.found.problems.push(EntryProblem {
            client: self.client.id.to_owned(),
            path: self.path.to_owned(),
            position: self.document.position(at),
            entry: entry.map(str::to_owned),
            message,
        });
    }

    /// Turns off every name in the list under `keys`.
    pub(super) fn off_by_list(&mut self, list: Option<&Value>, reason: &str) {
        for name in list
            .and_then(Value::items)
            .into_iter()
            .flatten()
            .filter_map(Value::text)
        {
            self.off.insert(name.to_owned(), reason.to_owned());
        }
    }
}
