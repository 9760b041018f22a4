//! One entry put into or taken out of a config text, with every other byte left as it is.
//!
//! Pure: text in, text out. Whatever a format's own way of editing does, the result is parsed again and
//! compared with what was there: nothing may differ but the entry, or the edit is refused. Files are not
//! known here.

mod json;
mod toml;
mod yaml;

use std::ops::Range;

use serde_json::Value as Json;

use super::parse::{Document, Format, Kind, Member, Position, Unreadable, Value};

/// Where a client's file lists its servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    /// The keys that lead to it.
    pub(super) keys: &'static [&'static str],
    /// It is a list of entries with a `name`, not a map.
    pub(super) list: bool,
}

/// Why a text was not edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EditError {
    /// It does not parse.
    #[error("{}", .0.message)]
    Unreadable(Unreadable),
    /// Where the servers belong stands something else.
    #[error("`{key}` must be an object, not {found}")]
    InTheWay {
        /// The key.
        key: String,
        /// What stands there.
        found: &'static str,
        /// Where.
        position: Option<Position>,
    },
    /// The way in which the text is written leaves no safe place for the change.
    #[error(
        "the entry `{name}` is written in a way that cannot be changed safely; change it by hand"
    )]
    Unsure {
        /// The entry.
        name: String,
    },
}

impl EditError {
    /// Where in the text.
    pub(super) fn position(&self) -> Option<Position> {
        match self {
            Self::Unreadable(unreadable) => unreadable.position,
            Self::InTheWay { position, .. } => *position,
            Self::Unsure { .. } => None,
        }
    }
}

/// The text with the entry; one of the same name gives way.
pub(super) fn put(
    text: &str,
    format: Format,
    section: Section,
    name: &str,
    entry: &Json,
) -> Result<String, EditError> {
    let document = parse(text, format)?;
    check(&document, section)?;
    let new = Value::from_json(entry);
    let old = find(&document.root, section, name);
    if old.is_some_and(|old| alike(&unnamed(old, section), &new)) {
        return Ok(text.to_owned());
    }
    let edited = match format {
        Format::Json => Some(json::put(&document, section, name, entry)),
        Format::Toml | Format::Yaml => {
            let bare;
            let document = if find(&document.root, section, name).is_some() {
                bare = parse(&take(text, format, section, name, 0)?, format)?;
                &bare
            } else {
                &document
            };
            if format == Format::Toml {
                toml::put(document, section, name, entry)
            } else {
                yaml::put(document, section, name, entry)
            }
        }
    };
    let unsure = || EditError::Unsure {
        name: name.to_owned(),
    };
    let edited = edited.ok_or_else(unsure)?;
    let after = parse(&edited, format).map_err(|_| unsure())?;
    let stands =
        find(&after.root, section, name).is_some_and(|value| alike(&unnamed(value, section), &new));
    if stands && alike_but(&document.root, &after.root, section, name) {
        Ok(edited)
    } else {
        Err(unsure())
    }
}

/// The text without the entry. Of the section's keys, the last `levels_made` go with it if that leaves
/// them empty.
pub(super) fn take(
    text: &str,
    format: Format,
    section: Section,
    name: &str,
    levels_made: usize,
) -> Result<String, EditError> {
    let document = parse(text, format)?;
    if find(&document.root, section, name).is_none() {
        return Ok(text.to_owned());
    }
    let unsure = || EditError::Unsure {
        name: name.to_owned(),
    };
    let edited = match format {
        Format::Json => json::take(&document, section, name, levels_made),
        Format::Toml => toml::take(&document, section, name),
        Format::Yaml => yaml::take(&document, section, name, levels_made),
    }
    .ok_or_else(unsure)?;
    let after = parse(&edited, format).map_err(|_| unsure())?;
    if !alike_but(&document.root, &after.root, section, name) {
        return Err(unsure());
    }
    // A name that occurs twice must not leave its other half in force.
    take(&edited, format, section, name, levels_made)
}

/// How many of the section's keys a text lacks.
pub(super) fn levels_missing(root: &Value, section: Section) -> usize {
    let mut value = root;
    for (level, key) in section.keys.iter().enumerate() {
        match value.get(key) {
            Some(inner) => value = inner,
            None => return section.keys.len() - level,
        }
    }
    0
}

/// The entry called `name`.
pub(super) fn find<'v>(root: &'v Value, section: Section, name: &str) -> Option<&'v Value> {
    let servers = servers(root, section)?;
    if section.list {
        servers.items()?.iter().find(|item| is_named(item, name))
    } else {
        servers.get(name)
    }
}

/// All entries with their names.
pub(super) fn entries(root: &Value, section: Section) -> Vec<(&str, &Value)> {
    let Some(servers) = servers(root, section) else {
        return Vec::new();
    };
    if section.list {
        let items = servers.items().unwrap_or_default().iter();
        items
            .filter_map(|item| Some((item.get("name")?.text()?, item)))
            .collect()
    } else {
        let members = servers.members().unwrap_or_default().iter();
        members
            .map(|member| (member.name.as_str(), &member.value))
            .collect()
    }
}

/// An entry as it is kept beside its name: one of a list without its `name`.
pub(super) fn unnamed(value: &Value, section: Section) -> Value {
    let mut value = value.clone();
    if let (true, Kind::Map(members)) = (section.list, &mut value.kind) {
        members.retain(|member| member.name != "name");
    }
    value
}

fn servers(root: &Value, section: Section) -> Option<&Value> {
    section
        .keys
        .iter()
        .try_fold(root, |value, key| value.get(key))
}

fn is_named(item: &Value, name: &str) -> bool {
    item.get("name").and_then(Value::text) == Some(name)
}

fn parse(text: &str, format: Format) -> Result<Document, EditError> {
    Document::parse(text.to_owned(), format).map_err(EditError::Unreadable)
}

/// Nothing but objects may stand on the way to the entries.
fn check(document: &Document, section: Section) -> Result<(), EditError> {
    let mut value = &document.root;
    let mut key = "the file";
    for level in 0..=section.keys.len() {
        let fits = if level == section.keys.len() && section.list {
            value.items().is_some()
        } else {
            value.members().is_some()
        };
        let made_anew = level > 0 && value.is_null();
        if !fits && !made_anew {
            return Err(EditError::InTheWay {
                key: key.to_owned(),
                found: value.kind_name(),
                position: document.position(value.at),
            });
        }
        let Some(next) = section.keys.get(level) else {
            break;
        };
        key = next;
        match value.get(next) {
            Some(inner) => value = inner,
            None => break,
        }
    }
    Ok(())
}

/// Whether two trees say the same in the same order, the entry left aside.
fn alike_but(before: &Value, after: &Value, section: Section, name: &str) -> bool {
    alike(
        &without(before, section.keys, section.list, name),
        &without(after, section.keys, section.list, name),
    )
}

/// The tree without the entry and without what holds nothing but it.
fn without(value: &Value, keys: &[&str], list: bool, name: &str) -> Value {
    let mut value = value.clone();
    match (&mut value.kind, keys.split_first()) {
        (Kind::List(items), None) if list => items.retain(|item| !is_named(item, name)),
        (Kind::Map(members), None) => members.retain(|member| member.name != name),
        (Kind::Map(members), Some((key, rest))) => {
            // Of two with the same name the last counts.
            if let Some(at) = members.iter().rposition(|member| member.name == *key) {
                let inner = without(&members[at].value, rest, list, name);
                if is_empty(&inner) {
                    members.remove(at);
                } else {
                    members[at].value = inner;
                }
            }
        }
        _ => {}
    }
    value
}

fn is_empty(value: &Value) -> bool {
    match &value.kind {
        Kind::Null => true,
        Kind::List(items) => items.is_empty(),
        Kind::Map(members) => members.is_empty(),
        Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) => false,
    }
}

/// Whether two trees say the same in the same order, wherever they stand.
pub(super) fn alike(a: &Value, b: &Value) -> bool {
    match (&a.kind, &b.kind) {
        (Kind::Null, Kind::Null) => true,
        (Kind::Bool(a), Kind::Bool(b)) => a == b,
        (Kind::Number(a), Kind::Number(b)) | (Kind::Text(a), Kind::Text(b)) => a == b,
        (Kind::List(a), Kind::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Kind::Map(a), Kind::Map(b)) => {
            let same = |(a, b): (&Member, &Member)| a.name == b.name && alike(&a.value, &b.value);
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        _ => false,
    }
}

/// How the text ends its lines.
fn line_break(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Where the line that holds `at` begins.
fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Where the line that holds `at` ends, before its line break.
fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    if end > at && text[..end].ends_with('\r') {
        end - 1
    } else {
        end
    }
}

/// Where the line after the one that holds `at` begins.
fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// The white space with which the line that holds `at` begins.
fn indentation(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    let end = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    &line[..end]
}

/// Whether only white space stands before `at` on its line.
fn begins_line(text: &str, at: usize) -> bool {
    text[line_start(text, at)..at].trim().is_empty()
}

/// The text with `new` at `range`.
fn spliced(text: &str, range: Range<usize>, new: &str) -> String {
    let mut edited = String::with_capacity(text.len() + new.len());
    edited.push_str(&text[..range.start]);
    edited.push_str(new);
    edited.push_str(&text[range.end..]);
    edited
}

/// The text with a block of lines at its end. A text without a final line break stays one.
fn appended(text: &str, block: &str) -> String {
    if text.is_empty() {
        return block.to_owned();
    }
    let ends = text.ends_with('\n');
    let (before, block) = if ends {
        ("", block)
    } else {
        (line_break(text), block.trim_end())
    };
    format!("{text}{before}{block}")
}

/// How comments begin between the items of a bracketed list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comments {
    /// `//` and `/* */`.
    Slashes,
    /// `#`.
    Hash,
}

/// The first byte from `at` on that is neither white space nor comment.
fn skip(text: &str, mut at: usize, comments: Comments) -> usize {
    loop {
        let rest = &text[at..];
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        let length = match comments {
            Comments::Slashes if trimmed.starts_with("//") => trimmed.find('\n'),
            Comments::Slashes if trimmed.starts_with("/*") => trimmed.find("*/").map(|end| end + 2),
            Comments::Hash if trimmed.starts_with('#') => trimmed.find('\n'),
            Comments::Slashes | Comments::Hash => return at,
        };
        at += length.unwrap_or(trimmed.len());
    }
}

/// Takes one of the items at `spans` out of a bracketed list, with the comma that belongs to it.
fn take_bracketed(
    text: &str,
    list: Range<usize>,
    spans: &[Range<usize>],
    index: usize,
    comments: Comments,
) -> Option<String> {
    let item = spans.get(index)?.clone();
    let own_line = begins_line(text, item.start) && line_start(text, item.start) > list.start;
    let behind = skip(text, item.end, comments);
    if text[behind..].starts_with(',') {
        let rest = &text[behind + 1..];
        let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let end = behind + 1 + blank;
        if own_line && (text[end..].starts_with('\n') || text[end..].starts_with("\r\n")) {
            return Some(spliced(
                text,
                line_start(text, item.start)..next_line(text, end),
                "",
            ));
        }
        return Some(spliced(text, item.start..end, ""));
    }
    let before = text[..item.start].trim_end().len().max(list.start + 1);
    let start = if own_line {
        line_end(text, line_start(text, item.start) - 1).max(before.min(item.start))
    } else {
        before
    };
    let Some(previous) = index.checked_sub(1).and_then(|index| spans.get(index)) else {
        let inner = list.start + 1..list.end.checked_sub(1)?;
        let alone = text[inner.start..item.start].trim().is_empty()
            && text[item.end..inner.end].trim().is_empty();
        let range = if alone { inner } else { start..item.end };
        return Some(spliced(text, range, ""));
    };
    let comma = skip(text, previous.end, comments);
    if !text[comma..].starts_with(',') {
        return None;
    }
    let edited = spliced(text, start.max(comma + 1)..item.end, "");
    Some(spliced(&edited, comma..comma + 1, ""))
}

/// The spans of a map's members.
fn member_spans(members: &[Member]) -> Vec<Range<usize>> {
    members
        .iter()
        .map(|member| member.at..member.value.end)
        .collect()
}

/// The spans of a list's items.
fn item_spans(items: &[Value]) -> Vec<Range<usize>> {
    items.iter().map(|item| item.at..item.end).collect()
}

#[cfg(test)]
mod tests;
