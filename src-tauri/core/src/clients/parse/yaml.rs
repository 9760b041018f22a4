//! YAML events into values, with bounds on depth and on what aliases multiply.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use super::{Kind, Member, Value};

/// Values that one text may make; aliases make many of few bytes.
const VALUES_MAX: usize = 200_000;

/// The first document of `text`; an error has a byte offset and a reason.
pub(super) fn parse(text: &str, depth_max: usize) -> Result<Option<Value>, YamlError> {
    // The parser counts characters.
    let offsets: Vec<usize> = if text.is_ascii() {
        Vec::new()
    } else {
        text.char_indices().map(|(at, _)| at).collect()
    };
    let offset = |index: usize| {
        if text.is_ascii() {
            index
        } else {
            offsets.get(index).copied().unwrap_or(text.len())
        }
    };
    Reader {
        parser: Parser::new_from_str(text),
        offset: &offset,
        anchors: Vec::new(),
        values_left: VALUES_MAX,
    }
    .document(depth_max)
}

/// Builds values from a stream of events; `offset` turns a character index into a byte offset.
struct Reader<'a, 'o> {
    parser: Parser<'a, StrInput<'a>>,
    offset: &'o dyn Fn(usize) -> usize,
    anchors: Vec<(usize, Value, usize)>,
    values_left: usize,
}

type YamlError = (usize, String);

/// Byte offsets of where something begins and ends.
type Span = (usize, usize);

impl<'a> Reader<'a, '_> {
    /// An event with where it begins and ends.
    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((
                event,
                (
                    (self.offset)(span.start.index()),
                    (self.offset)(span.end.index()),
                ),
            )),
            Some(Err(error)) => Err((
                (self.offset)(error.marker().index()),
                error.info().to_owned(),
            )),
            None => Ok((Event::StreamEnd, (0, 0))),
        }
    }

    fn document(&mut self, depth_max: usize) -> Result<Option<Value>, YamlError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(None),
                (
                    Event::StreamStart
                    | Event::DocumentStart(_)
                    | Event::DocumentEnd
                    | Event::Nothing,
                    _,
                ) => {}
                (event, span) => return self.value(event, span, depth_max).map(Some),
            }
        }
    }

    fn value(
        &mut self,
        event: Event<'a>,
        (at, mut end): Span,
        depth_left: usize,
    ) -> Result<Value, YamlError> {
        let depth_left = depth_left
            .checked_sub(1)
            .ok_or_else(|| (at, "it is nested too deeply".to_owned()))?;
        self.spend(1, at)?;
        let values_before = self.values_left;
        let (kind, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(&text, style, tag.is_some()), anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, (_, behind)) => {
                            end = behind;
                            break;
                        }
                        (event, span) => items.push(self.value(event, span, depth_left)?),
                    }
                }
                (Kind::List(items), anchor)
            }
            Event::MappingStart(anchor, _) => {
                let mut members = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    let (at, behind) = span;
                    if matches!(event, Event::MappingEnd) {
                        end = behind;
                        break;
                    }
                    let name = match self.value(event, span, depth_left)?.kind {
                        Kind::Text(name) | Kind::Number(name) => name,
                        Kind::Bool(name) => name.to_string(),
                        Kind::Null => String::new(),
                        Kind::List(_) | Kind::Map(_) => {
                            return Err((at, "a key is not a text".to_owned()));
                        }
                    };
                    let (event, span) = self.next()?;
                    let value = self.value(event, span, depth_left)?;
                    members.push(Member { name, at, value });
                }
                (Kind::Map(merged(members)), anchor)
            }
            Event::Alias(anchor) => {
                let Some((_, value, size)) = self
                    .anchors
                    .iter()
                    .rev()
                    .find(|(id, ..)| *id == anchor)
                    .cloned()
                else {
                    return Err((at, "an alias refers to nothing before it".to_owned()));
                };
                self.spend(size, at)?;
                return Ok(Value {
                    at,
                    end,
                    kind: value.kind,
                });
            }
            Event::SequenceEnd
            | Event::MappingEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Nothing => return Err((at, "a value is missing".to_owned())),
        };
        let value = Value { at, end, kind };
        if anchor != 0 {
            self.anchors
                .push((anchor, value.clone(), values_before - self.values_left + 1));
        }
        Ok(value)
    }

    fn spend(&mut self, values: usize, at: usize) -> Result<(), YamlError> {
        self.values_left = self
            .values_left
            .checked_sub(values)
            .ok_or_else(|| (at, "it holds too many values".to_owned()))?;
        Ok(())
    }
}

/// `<<: *base` gives the members of `base` that the map does not have itself.
fn merged(members: Vec<Member>) -> Vec<Member> {
    let (bases, mut own): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|member| member.name == "<<");
    for base in bases {
        let maps = match base.value.kind {
            Kind::List(maps) => maps,
            _ => vec![base.value],
        };
        for member in maps
            .into_iter()
            .filter_map(|map| match map.kind {
                Kind::Map(members) => Some(members),
                _ => None,
            })
            .flatten()
        {
            if own.iter().all(|mine| mine.name != member.name) {
                own.push(member);
            }
        }
    }
    own
}

/// A plain scalar by the YAML 1.2 core schema; a quoted one is a text.
fn scalar(text: &str, style: ScalarStyle, tagged: bool) -> Kind {
    if style != ScalarStyle::Plain || tagged {
        return Kind::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Bool(true),
        "false" | "False" | "FALSE" => Kind::Bool(false),
        _ if serde_json::from_str::<serde_json::Number>(text).is_ok() => {
            Kind::Number(text.to_owned())
        }
        _ => Kind::Text(text.to_owned()),
    }
}
