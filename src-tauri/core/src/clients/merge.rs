//! What many files say of the same servers, as one list with one name for each.
//!
//! Order decides everything and timing nothing: the first source of a name keeps it. The same name with
//! the same definition is one server with several sources. The same name with another definition is
//! `name@client`.

use std::collections::{BTreeMap, HashMap};

use super::entry::{Entry, EntryTransport};

/// An entry as one file has it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) entry: Entry,
    /// Its working directory is its project's and not its own.
    pub(super) cwd_assumed: bool,
}

/// Entries by unique name, in the order found, and which of them start the same thing as an earlier one.
pub(super) fn merge(candidates: Vec<Candidate>) -> (Vec<Entry>, BTreeMap<String, String>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut by_definition: HashMap<String, usize> = HashMap::new();
    let mut variants: HashMap<(String, String), usize> = HashMap::new();
    let mut twins = BTreeMap::new();
    for Candidate {
        mut entry,
        cwd_assumed,
    } in candidates
    {
        let definition = definition(&entry, cwd_assumed);
        let variant = (entry.name.clone(), definition.clone());
        if let Some(&known) = variants.get(&variant) {
            entries[known].sources.append(&mut entry.sources);
            continue;
        }
        if by_name.contains_key(&entry.name) {
            entry.name = free_name(&entry, &by_name);
        }
        if let Some(&first) = by_definition.get(&definition) {
            twins.insert(entry.name.clone(), entries[first].name.clone());
        }
        let index = entries.len();
        by_name.insert(entry.name.clone(), index);
        by_definition.entry(definition).or_insert(index);
        variants.insert(variant, index);
        entries.push(entry);
    }
    (entries, twins)
}

/// `name@client`, and a number if the client itself has several.
fn free_name(entry: &Entry, taken: &HashMap<String, usize>) -> String {
    let client = entry
        .sources
        .first()
        .map_or("", |source| source.client.as_str());
    let plain = format!("{}@{client}", entry.name);
    let mut name = plain.clone();
    let mut number = 2_usize;
    while taken.contains_key(&name) {
        name = format!("{plain}-{number}");
        number += 1;
    }
    name
}

/// What is started and how, as a text that two entries share exactly if they start the same thing.
fn definition(entry: &Entry, cwd_assumed: bool) -> String {
    let mut transport = entry.transport.clone();
    if let EntryTransport::Stdio { cwd, .. } = &mut transport
        && cwd_assumed
    {
        *cwd = None;
    }
    // What is missing has left nothing behind in the texts, so it is named beside them.
    format!("{transport:?}\n{:?}", entry.needs)
}
