//! A piece of some client's file that a person pasted: which servers it names, as it is written.
//!
//! Placeholders stay as they are, since what is kept must be what was pasted. It knows every shape in
//! which clients list servers, and the pieces of them that people copy.

use super::client::{Client, Found, Reading};
use super::entry::Entry;
use super::expand::Syntax;
use super::explicit::{PASTED, any_shape};
use super::fields::Dialect;
use super::parse::{Document, Format, Unreadable};
use super::{EntryProblem, Search, problem_of};

const CLIENT: Client = Client {
    id: "runbridge",
    name: "pasted",
    dialect: Dialect {
        syntax: Syntax::AsWritten,
        ..PASTED
    },
    target: None,
    places: |_| Vec::new(),
    read: any_shape,
};

/// The servers that `text` names.
pub fn read_pasted(search: &Search<'_>, text: &str) -> (Vec<Entry>, Vec<EntryProblem>) {
    let path = std::path::Path::new("server");
    let document = match parse(text) {
        Ok(document) => document,
        Err(unreadable) => return (Vec::new(), vec![problem_of(&CLIENT, path, unreadable)]),
    };
    let mut found = Found::default();
    let mut reading = Reading {
        client: &CLIENT,
        search,
        path,
        document: &document,
        project: None,
        off: std::collections::BTreeMap::new(),
        given: Vec::new(),
        found: &mut found,
    };
    (CLIENT.read)(&mut reading);
    let left_out = found.skipped.into_iter().map(|skipped| EntryProblem {
        client: CLIENT.id.to_owned(),
        path: path.to_owned(),
        position: None,
        entry: Some(skipped.name),
        message: skipped.reason,
    });
    found.problems.extend(left_out);
    let entries = found.candidates.into_iter().map(|found| found.entry);
    (entries.collect(), found.problems)
}

/// JSON, or members of an object without their braces; else TOML; else YAML. What none of them reads
/// is judged as what it looks like.
fn parse(text: &str) -> Result<Document, Unreadable> {
    let text = text.trim().trim_end_matches(',');
    if text.starts_with('{') {
        return Document::parse(text.to_owned(), Format::Json);
    }
    if text.starts_with('"') {
        return Document::parse(format!("{{{text}}}"), Format::Json);
    }
    let toml = Document::parse(text.to_owned(), Format::Toml);
    if text.starts_with('[') || toml.is_ok() {
        return toml;
    }
    Document::parse(text.to_owned(), Format::Yaml)
}
