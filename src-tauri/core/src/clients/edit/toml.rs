//! TOML. A new entry becomes a table at the end of the file, or a member of the inline table there is.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::Value as Json;

use super::{
    Comments, Section, appended, begins_line, item_spans, line_break, line_start, member_spans,
    next_line, spliced, take_bracketed,
};
use crate::clients::parse::{Document, Kind, Value};

pub(super) fn put(
    document: &Document,
    section: Section,
    name: &str,
    entry: &Json,
) -> Option<String> {
    let text = document.source();
    let members = entry.as_object()?;
    if let Some(servers) = super::servers(&document.root, section)
        && is_inline(text, servers, section)
    {
        let inline = inline(entry);
        let (item, empty) = if section.list {
            let inner = inline.strip_prefix('{')?;
            let named = format!("{{ name = {},{inner}", string(name));
            (named, servers.items()?.is_empty())
        } else {
            let empty = servers.members()?.is_empty();
            (format!("{} = {inline}", key(name)), empty)
        };
        let at = servers.at + 1;
        let item = if empty {
            format!(" {item} ")
        } else {
            format!(" {item},")
        };
        return Some(spliced(text, at..at, &item));
    }
    let end = line_break(text);
    let path = section
        .keys
        .iter()
        .map(|part| key(part))
        .collect::<Vec<_>>()
        .join(".");
    let mut block = String::new();
    if !text.trim().is_empty() {
        block.push_str(end);
    }
    if section.list {
        let _ = write!(block, "[[{path}]]{end}name = {}{end}", string(name));
    } else {
        let _ = write!(block, "[{path}.{}]{end}", key(name));
    }
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        let _ = write!(block, "{} = {}{end}", key(name), inline(value));
    }
    Some(appended(text, &block))
}

/// A section in brackets on its own lines, and not one that headers make.
fn is_inline(text: &str, servers: &Value, section: Section) -> bool {
    let source = text.get(servers.at..).unwrap_or_default();
    if section.list {
        source.starts_with('[') && !source.starts_with("[[")
    } else {
        source.starts_with('{')
    }
}

fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) {
        name.to_owned()
    } else {
        string(name)
    }
}

fn string(text: &str) -> String {
    ::toml::Value::String(text.to_owned()).to_string()
}

fn inline(value: &Json) -> String {
    match value {
        // There is no null; members that are null are left out.
        Json::Null => "\"\"".to_owned(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        Json::String(text) => string(text),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| format!("{} = {}", key(name), inline(value)))
                .collect();
            if members.is_empty() {
                "{}".to_owned()
            } else {
                format!("{{ {} }}", members.join(", "))
            }
        }
    }
}

pub(super) fn take(document: &Document, section: Section, name: &str) -> Option<String> {
    let text = document.source();
    let servers = super::servers(&document.root, section)?;
    if is_inline(text, servers, section) {
        let list = servers.at..servers.end;
        return if section.list {
            let items = servers.items()?;
            let index = items.iter().position(|item| super::is_named(item, name))?;
            take_bracketed(text, list, &item_spans(items), index, Comments::Hash)
        } else {
            let members = servers.members()?;
            let index = members.iter().position(|member| member.name == name)?;
            take_bracketed(text, list, &member_spans(members), index, Comments::Hash)
        };
    }
    let strings = long_strings(&document.root);
    let headers = headers(text, &strings);
    let is_ours: Vec<bool> = if section.list {
        let index = servers
            .items()?
            .iter()
            .position(|item| super::is_named(item, name))?;
        let mut seen = 0;
        let mut ours = false;
        headers
            .iter()
            .map(|header| {
                if header.path == section.keys {
                    ours = seen == index;
                    seen += 1;
                } else if !starts_with(&header.path, section.keys) {
                    ours = false;
                }
                ours
            })
            .collect()
    } else {
        headers
            .iter()
            .map(|header| {
                starts_with(&header.path, section.keys)
                    && header.path.get(section.keys.len()).map(String::as_str) == Some(name)
            })
            .collect()
    };
    let mut edited = text.to_owned();
    let mut found = false;
    for (index, header) in headers.iter().enumerate().rev() {
        if !is_ours[index] {
            continue;
        }
        let end = headers.get(index + 1).map_or(text.len(), |next| next.at);
        edited = spliced(&edited, block(text, header.at, end), "");
        found = true;
    }
    if found {
        return Some(edited);
    }
    // `[mcp_servers]` with `name = { … }` under it.
    let member = servers
        .members()?
        .iter()
        .find(|member| member.name == name)?;
    if !begins_line(text, member.at) || !text.get(member.value.at..)?.starts_with('{') {
        return None;
    }
    let lines = line_start(text, member.at)..next_line(text, member.value.end);
    Some(spliced(text, lines, ""))
}

/// A table from its header to its last value. Comments behind that belong to what follows.
fn block(text: &str, start: usize, end: usize) -> Range<usize> {
    let mut behind = start;
    let mut at = start;
    while at < end {
        let next = next_line(text, at).min(end);
        let line = text[at..next].trim();
        if !line.is_empty() && !line.starts_with('#') {
            behind = next;
        }
        at = next;
    }
    // The empty line that set it apart goes with it, unless it now sets apart what follows.
    let before = text[..start].strip_suffix('\n').map_or(start, |rest| {
        let rest = rest.strip_suffix('\r').unwrap_or(rest);
        if rest.is_empty() || rest.ends_with('\n') {
            rest.len()
        } else {
            start
        }
    });
    let blank_follows = text[behind..].starts_with('\n') || text[behind..].starts_with("\r\n");
    if behind == text.len() || blank_follows {
        before..behind
    } else {
        start..behind
    }
}

/// A line that opens a table.
struct Header {
    at: usize,
    path: Vec<String>,
}

fn headers(text: &str, strings: &[Range<usize>]) -> Vec<Header> {
    let mut headers = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let next = next_line(text, at);
        let line = &text[at..next];
        let within = strings
            .iter()
            .any(|range| range.contains(&at) && range.start < at);
        if !within
            && line.trim_start().starts_with('[')
            && let Some(path) = header_path(line)
        {
            headers.push(Header { at, path });
        }
        at = next;
    }
    headers
}

fn header_path(line: &str) -> Option<Vec<String>> {
    let document = Document::parse(line.to_owned(), crate::clients::parse::Format::Toml).ok()?;
    let mut path = Vec::new();
    let mut value = &document.root;
    loop {
        match &value.kind {
            Kind::Map(members) => match members.first() {
                Some(member) => {
                    path.push(member.name.clone());
                    value = &member.value;
                }
                None => return Some(path),
            },
            Kind::List(items) => value = items.first()?,
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) => return None,
        }
    }
}

fn starts_with(path: &[String], keys: &[&str]) -> bool {
    path.len() >= keys.len() && path.iter().zip(keys).all(|(part, key)| part == key)
}

/// Where texts and lists stand, whose lines may look like headers.
fn long_strings(value: &Value) -> Vec<Range<usize>> {
    match &value.kind {
        Kind::Text(_) => std::iter::once(value.at..value.end).collect(),
        Kind::List(items) => items.iter().flat_map(long_strings).collect(),
        Kind::Map(members) => members
            .iter()
            .flat_map(|member| long_strings(&member.value))
            .collect(),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => Vec::new(),
    }
}
