//! JSON with comments. A new entry becomes the first of its object: that adds lines and changes none.

use serde_json::Value as Json;

use super::{
    Comments, Section, begins_line, indentation, line_break, line_end, line_start, member_spans,
    skip, spliced, take_bracketed,
};
use crate::clients::parse::{Document, Value};

/// How a value is laid out.
struct Layout {
    line_break: &'static str,
    /// What one more level of indentation adds.
    unit: String,
    shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A line for each member.
    Lines,
    /// One line: `{"a": 1}`.
    Line,
    /// One line without spaces: `{"a":1}`.
    Tight,
}

pub(super) fn put(document: &Document, section: Section, name: &str, entry: &Json) -> String {
    let text = document.source();
    let root = &document.root;
    if let Some(old) = super::find(root, section, name) {
        let layout = Layout::new(text, root, shape_of(text, old));
        let new = layout.print(entry, indentation(text, old.at));
        return spliced(text, old.at..old.end, &new);
    }
    let mut object = root;
    let mut keys = section.keys;
    let mut null = None;
    while let Some((key, rest)) = keys.split_first() {
        match object.get(key) {
            Some(inner) if inner.is_null() => {
                null = Some(inner);
                keys = rest;
                break;
            }
            Some(inner) => {
                object = inner;
                keys = rest;
            }
            None => break,
        }
    }
    let mut path: Vec<&str> = keys.to_vec();
    path.push(name);
    let first = path.remove(0);
    let value = nested(&path, entry);
    if let Some(null) = null {
        let layout = Layout::new(text, root, Shape::Lines);
        let new = layout.print(&nested(&[first], &value), indentation(text, null.at));
        return spliced(text, null.at..null.end, &new);
    }
    if root.end == 0 {
        let layout = Layout::new(text, root, Shape::Lines);
        let new = layout.print(&nested(&[first], &value), "");
        return super::appended(text, &format!("{new}{}", layout.line_break));
    }
    put_member(text, root, object, first, &value)
}

/// `{"a": {"b": value}}` for the path `a`, `b`.
fn nested(path: &[&str], value: &Json) -> Json {
    path.iter().rev().fold(value.clone(), |inner, key| {
        Json::Object([((*key).to_owned(), inner)].into_iter().collect())
    })
}

fn put_member(text: &str, root: &Value, object: &Value, name: &str, value: &Json) -> String {
    let inside = object.at + 1;
    let Some(first) = object.members().unwrap_or_default().first() else {
        let one_line = !text.trim().contains('\n') && root.at != object.at;
        let shape = if one_line {
            shape_of(text, root)
        } else {
            Shape::Lines
        };
        let layout = Layout::new(text, root, shape);
        let base = indentation(text, object.at).to_owned();
        if shape != Shape::Lines {
            let member = layout.member(name, value, "");
            return spliced(text, inside..object.end - 1, &member);
        }
        let indent = format!("{base}{}", layout.unit);
        let line_break = layout.line_break;
        let member = layout.member(name, value, &indent);
        return match rest_of_line(text, inside).filter(|&end| end < object.end - 1) {
            // The brackets stand on lines of their own, perhaps with comments between them.
            Some(end) => spliced(text, end..end, &format!("{line_break}{indent}{member}")),
            None => spliced(
                text,
                inside..inside + blank(&text[inside..object.end - 1]),
                &format!("{line_break}{indent}{member}{line_break}{base}"),
            ),
        };
    };
    if line_start(text, first.at) > object.at {
        let layout = Layout::new(text, root, Shape::Lines);
        let indent = if begins_line(text, first.at) {
            indentation(text, first.at).to_owned()
        } else {
            format!("{}{}", indentation(text, object.at), layout.unit)
        };
        let member = layout.member(name, value, &indent);
        let at = rest_of_line(text, inside).unwrap_or(inside);
        let line_break = layout.line_break;
        return spliced(text, at..at, &format!("{line_break}{indent}{member},"));
    }
    let layout = Layout::new(text, root, shape_of(text, object));
    let space = if layout.shape == Shape::Tight {
        ""
    } else {
        " "
    };
    let member = layout.member(name, value, "");
    spliced(text, first.at..first.at, &format!("{member},{space}"))
}

/// The length of the white space at the beginning.
fn blank(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// The end of the line, if nothing but comments stands between.
fn rest_of_line(text: &str, at: usize) -> Option<usize> {
    let end = line_end(text, at);
    let rest = &text[at..end];
    // A block comment that goes on after the line has no end in it.
    (skip(rest, 0, Comments::Slashes) == rest.len()
        && rest.matches("/*").count() == rest.matches("*/").count())
    .then_some(end)
}

/// How an object of the text is laid out.
fn shape_of(text: &str, value: &Value) -> Shape {
    let source = &text[value.at..value.end];
    if source.contains('\n') || !text.trim().contains('\n') && source.len() == 2 {
        return Shape::Lines;
    }
    let spaced = value
        .members()
        .unwrap_or_default()
        .first()
        .is_none_or(|first| text[first.at..first.value.at].ends_with([' ', '\t']));
    if spaced { Shape::Line } else { Shape::Tight }
}

impl Layout {
    fn new(text: &str, root: &Value, shape: Shape) -> Self {
        let unit = root
            .members()
            .unwrap_or_default()
            .iter()
            .find(|member| begins_line(text, member.at))
            .and_then(|member| {
                indentation(text, member.at).strip_prefix(indentation(text, root.at))
            })
            .filter(|unit| !unit.is_empty())
            .unwrap_or("  ");
        Self {
            line_break: line_break(text),
            unit: unit.to_owned(),
            shape,
        }
    }

    fn member(&self, name: &str, value: &Json, indent: &str) -> String {
        let space = if self.shape == Shape::Tight { "" } else { " " };
        format!("{}:{space}{}", Json::from(name), self.print(value, indent))
    }

    fn print(&self, value: &Json, indent: &str) -> String {
        let between = if self.shape == Shape::Tight {
            ","
        } else {
            ", "
        };
        match value {
            Json::Object(members) if members.is_empty() => "{}".to_owned(),
            Json::Object(members) => {
                let inner = format!("{indent}{}", self.unit);
                let members = members
                    .iter()
                    .map(|(name, value)| self.member(name, value, &inner));
                if self.shape != Shape::Lines {
                    return format!("{{{}}}", members.collect::<Vec<_>>().join(between));
                }
                let line_break = self.line_break;
                let lines: Vec<String> = members.map(|member| format!("{inner}{member}")).collect();
                let lines = lines.join(&format!(",{line_break}"));
                format!("{{{line_break}{lines}{line_break}{indent}}}")
            }
            Json::Array(items) => {
                let items: Vec<String> =
                    items.iter().map(|item| self.print(item, indent)).collect();
                format!("[{}]", items.join(between))
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value.to_string(),
        }
    }
}

pub(super) fn take(
    document: &Document,
    section: Section,
    name: &str,
    levels_made: usize,
) -> Option<String> {
    let mut objects = vec![&document.root];
    for key in section.keys {
        objects.push(objects.last()?.get(key)?);
    }
    let mut name = name;
    let mut object = objects.pop()?;
    let mut keys = section.keys;
    for _ in 0..levels_made {
        if object.members()?.len() > 1 {
            break;
        }
        let (key, rest) = keys.split_last()?;
        object = objects.pop()?;
        name = key;
        keys = rest;
    }
    let members = object.members()?;
    let index = members.iter().rposition(|member| member.name == name)?;
    take_bracketed(
        document.source(),
        object.at..object.end,
        &member_spans(members),
        index,
        Comments::Slashes,
    )
}
