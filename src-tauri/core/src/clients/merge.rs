//! What many files say of the same servers, as one list with one name for each.
//!
//! Order decides everything and timing nothing: the first source of a name keeps it. The same definition
//! in several files is one server with several sources, under the first of its names. The same name with
//! another definition is `name@client`. Whoever writes one definition twice into one file wants two.

use std::collections::{BTreeMap, HashMap};

use super::entry::{Entry, EntryTransport, Source};

/// An entry as one file has it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) entry: Entry,
    /// Its working directory is its project's and not its own.
    pub(super) cwd_assumed: bool,
}

/// Entries by unique name, in the order found, and the other names that files give to them.
pub(super) fn merge(candidates: Vec<Candidate>) -> (Vec<Entry>, BTreeMap<String, String>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut by_definition: HashMap<String, Vec<usize>> = HashMap::new();
    let mut others = Vec::new();
    for Candidate {
        mut entry,
        cwd_assumed,
    } in candidates
    {
        let definition = definition(&entry, cwd_assumed);
        let known = by_definition.entry(definition).or_default();
        let same = known
            .iter()
            .find(|&&index| entries[index].sources[0].name == entry.name)
            .or_else(|| {
                let elsewhere = |source: &Source| source.path != entry.sources[0].path;
                known
                    .iter()
                    .find(|&&index| entries[index].sources.iter().all(elsewhere))
            });
        if let Some(&same) = same {
            others.push((entry.name.clone(), same));
            entries[same].sources.append(&mut entry.sources);
            continue;
        }
        if by_name.contains_key(&entry.name) {
            entry.name = free_name(&entry, &by_name);
        }
        let index = entries.len();
        by_name.insert(entry.name.clone(), index);
        known.push(index);
        entries.push(entry);
    }
    let aliases = others
        .into_iter()
        // A name that is another server's own means that one.
        .filter(|(name, _)| !by_name.contains_key(name))
        .map(|(name, index)| (name, entries[index].name.clone()))
        .collect();
    (entries, aliases)
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
