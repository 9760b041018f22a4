//! YAML, by the lines that a block of it takes. Sections in brackets are edited like JSON.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::{
    Comments, Section, appended, indentation, item_spans, line_break, line_end, line_start,
    member_spans, next_line, spliced, take_bracketed,
};
use crate::clients::parse::{Document, Kind, Value};

pub(super) fn put(
    document: &Document,
    section: Section,
    name: &str,
    entry: &Json,
) -> Option<String> {
    let text = document.source();
    let [key] = section.keys else { return None };
    let end = line_break(text);
    let root = document.root.members()?;
    let base = root.first().map_or("", |first| indentation(text, first.at));
    let under = format!("{base}  ");
    let Some(member) = root.iter().rev().find(|member| member.name == *key) else {
        let block = block(section, name, entry, &under, end)?;
        return Some(appended(text, &format!("{base}{key}:{end}{block}")));
    };
    let value = &member.value;
    let source = text.get(value.at..value.end)?;
    if value.is_null() || matches!(source, "[]" | "{}") {
        let block = block(section, name, entry, &under, end)?;
        let lines = block.trim_end();
        let kept = text[line_start(text, member.at)..value.at].trim_end().len();
        let start = line_start(text, member.at) + kept;
        let bare = if source.is_empty() {
            text.to_owned()
        } else {
            spliced(text, start..value.end, "")
        };
        let at = line_end(&bare, member.at);
        return Some(spliced(&bare, at..at, &format!("{end}{lines}")));
    }
    if source.starts_with(['[', '{']) {
        let item = if section.list {
            let mut named = serde_json::Map::new();
            named.insert("name".to_owned(), name.into());
            named.extend(entry.as_object()?.clone());
            flow(&Json::Object(named))
        } else {
            format!("{}: {}", Json::from(name), flow(entry))
        };
        return Some(spliced(
            text,
            value.at + 1..value.at + 1,
            &format!("{item}, "),
        ));
    }
    let first = match &value.kind {
        Kind::List(items) => items.first()?.at,
        Kind::Map(members) => members.first()?.at,
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) => return None,
    };
    let at = next_line(text, member.at);
    if at > line_start(text, first) {
        return None;
    }
    let block = block(section, name, entry, indentation(text, first), end)?;
    Some(spliced(text, at..at, &block))
}

/// The lines of an entry.
fn block(section: Section, name: &str, entry: &Json, indent: &str, end: &str) -> Option<String> {
    let mut lines = String::new();
    if section.list {
        let _ = write!(lines, "{indent}- name: {}{end}", scalar(name));
    } else {
        let _ = write!(lines, "{indent}{}:{end}", scalar(name));
    }
    for (name, value) in entry.as_object()? {
        let _ = write!(lines, "{indent}  {}: {}{end}", scalar(name), flow(value));
    }
    Some(lines)
}

/// A value on one line.
fn flow(value: &Json) -> String {
    match value {
        Json::String(text) => scalar(text),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(Json::to_string).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}: {value}", Json::from(name.as_str())))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => value.to_string(),
    }
}

/// A text, in quotes unless it cannot be mistaken for anything else.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/_-.+".contains(c))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain {
        text.to_owned()
    } else {
        Json::from(text).to_string()
    }
}

pub(super) fn take(
    document: &Document,
    section: Section,
    name: &str,
    levels_made: usize,
) -> Option<String> {
    let text = document.source();
    let [key] = section.keys else { return None };
    let member = document
        .root
        .members()?
        .iter()
        .rev()
        .find(|member| member.name == *key)?;
    let value = &member.value;
    let (spans, index) = if section.list {
        let items = value.items()?;
        let index = items.iter().position(|item| super::is_named(item, name))?;
        (item_spans(items), index)
    } else {
        let members = value.members()?;
        let index = members.iter().position(|member| member.name == name)?;
        (member_spans(members), index)
    };
    let source = text.get(value.at..value.end)?;
    if source.starts_with(['[', '{']) {
        return take_bracketed(text, value.at..value.end, &spans, index, Comments::Hash);
    }
    let entry = super::find(&document.root, section, name)?;
    let start = line_start(text, spans.get(index)?.start);
    let dashed = text[start..].trim_start_matches(' ').starts_with('-');
    if section.list != dashed {
        return None;
    }
    let end = next_line(text, last_end(text, entry));
    if spans.len() > 1 {
        return Some(spliced(text, start..end, ""));
    }
    if levels_made > 0 {
        return Some(spliced(text, line_start(text, member.at)..end, ""));
    }
    let edited = spliced(text, start..end, "");
    let colon = member.at + text[member.at..].find(':')? + 1;
    let empty = if section.list { " []" } else { " {}" };
    Some(spliced(&edited, colon..colon, empty))
}

/// Where the last value inside ends; blocks themselves end only where the next thing begins.
fn last_end(text: &str, value: &Value) -> usize {
    let bracketed = text
        .get(value.at..)
        .is_some_and(|source| source.starts_with(['[', '{']));
    let last = match &value.kind {
        Kind::Map(members) => members.last().map(|member| &member.value),
        Kind::List(items) => items.last(),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) => None,
    };
    match last {
        Some(last) if !bracketed => last_end(text, last),
        // A text in a block may end with the line break.
        _ => {
            value.at
                + text
                    .get(value.at..value.end)
                    .unwrap_or_default()
                    .trim_end()
                    .len()
        }
    }
}
