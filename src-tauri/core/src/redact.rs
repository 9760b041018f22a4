//! Secret values out of text, once, at every exit: `***` in their place, in each form in which a
//! value usually travels.
//!
//! Knows nothing of where the text goes. It finds values, not meanings: a value that was reversed,
//! split or encrypted passes, and values shorter than [`VALUE_BYTES_MIN`] are left alone, because
//! replacing every `dev` or `1234` would destroy the text.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clients::entry::{Entry, EntryTransport};
use crate::secrets::{Secret, Secrets};

/// What stands in place of a secret.
pub const STARS: &str = "***";

/// Shorter values are not redacted.
pub const VALUE_BYTES_MIN: usize = 6;

/// Longer values are looked for in pieces of this length, which bounds what a stream holds back.
const PIECE_BYTES: usize = 1024;

/// A line of a value with several lines, such as a private key, is looked for by itself from this
/// length on: such values are often printed with other line ends or an indentation.
const LINE_BYTES_MIN: usize = 16;

/// Base64 of fewer characters is too likely to be something else.
const BASE64_CHARS_MIN: usize = 8;

/// Words in the name of a variable or header whose value is a secret.
const SECRET_WORDS: [&str; 14] = [
    "TOKEN",
    "SECRET",
    "KEY",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "AUTH",
    "CREDENTIAL",
    "COOKIE",
    "PRIVATE",
    "SESSION",
    "SIGNATURE",
    "WEBHOOK",
    "DSN",
];

/// Endings of names that hold a place or a label, whatever words come before.
const PLAIN_ENDINGS: [&str; 8] = [
    "_PATH", "_FILE", "_DIR", "_NAME", "_ID", "_TYPE", "_METHOD", "_REGION",
];

/// Beginnings of values that are secrets under any name.
const SECRET_BEGINNINGS: [&str; 14] = [
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "eyJ",
    "-----BEGIN ",
];

pub(crate) fn entry_secrets(entry: &Entry) -> Vec<Secret> {
    match &entry.transport {
        EntryTransport::Stdio { env, args, .. } => {
            let set = env
                .iter()
                .filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)));
            secrets_of(set.chain(options(args)), [])
        }
        EntryTransport::Http { headers, url, .. } => secrets_of(
            parameters(url),
            headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        ),
    }
}

/// `--name value` and `--name=value` as names with values; a word without a name has an empty one.
fn options(args: &[String]) -> impl Iterator<Item = (&str, &str)> {
    args.iter().enumerate().map(|(at, word)| {
        if let Some((name, value)) = word.split_once('=') {
            return (name, value);
        }
        // `--header "Authorization: Bearer …"` of programs that stand between.
        if let Some((name, value)) = word.split_once(':')
            && names_a_secret(name)
        {
            let (_scheme, credentials) = value.trim().split_once(' ').unwrap_or(("", value));
            return (name, credentials);
        }
        let before = at.checked_sub(1).and_then(|before| args.get(before));
        let name = before.filter(|name| name.starts_with('-') && !name.contains('='));
        (name.map_or("", String::as_str), word.as_str())
    })
}

/// The parameters of an address, and the address itself for the password in it.
fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    query
        .split('&')
        .filter_map(|parameter| parameter.split_once('='))
        .chain([("", url)])
}

/// The secrets among a server's variables and headers. Variables by their names, by how their
/// values begin, and the password inside a URL; of headers, the value and the part after a scheme
/// such as `Bearer`.
pub fn secrets_of<'a>(
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<Secret> {
    let mut secrets = Vec::new();
    let mut add = |value: &str| {
        // What it stands for is taken out; the name of it says nothing.
        if Secrets::reference(value).is_some() {
            return;
        }
        if value.trim().len() >= VALUE_BYTES_MIN {
            secrets.push(Secret::new(value.trim()));
        }
    };
    for (name, value) in variables {
        if names_a_secret(name)
            || SECRET_BEGINNINGS
                .iter()
                .any(|beginning| value.starts_with(beginning))
        {
            add(value);
        }
        if let Some(password) = url_password(value) {
            add(password);
        }
    }
    for (name, value) in headers {
        if names_a_secret(name)
            || SECRET_BEGINNINGS
                .iter()
                .any(|beginning| value.starts_with(beginning))
        {
            add(value);
            if let Some((_scheme, credentials)) = value.trim().split_once(' ') {
                add(credentials);
            }
        }
    }
    secrets
}

/// Whether a variable or header of this name holds a secret.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    SECRET_WORDS.iter().any(|word| name.contains(word))
        && !PLAIN_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a value is a secret under any name.
pub fn is_secret_value(value: &str) -> bool {
    SECRET_BEGINNINGS
        .iter()
        .any(|beginning| value.starts_with(beginning))
        || url_password(value).is_some()
}

/// `p` of `scheme://user:p@host`.
fn url_password(value: &str) -> Option<&str> {
    let (_scheme, rest) = value.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (userinfo, _host) = authority.rsplit_once('@')?;
    userinfo.split_once(':').map(|(_user, password)| password)
}

/// Finds a fixed set of secrets. Building one costs about a millisecond; share it.
#[derive(Debug, Default)]
pub struct Redactor {
    /// `None`: there is nothing to find.
    patterns: Option<AhoCorasick>,
    pattern_bytes_max: usize,
    /// All patterns in order, to tell what may still become one.
    sorted: Vec<String>,
}

impl Redactor {
    /// A redactor for `secrets`.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut patterns = BTreeSet::new();
        for secret in secrets {
            let value = secret.expose().trim();
            for piece in pieces(value) {
                add_forms(piece, &mut patterns);
            }
            if value.contains('\n') {
                for line in value
                    .lines()
                    .map(str::trim)
                    .filter(|line| line.len() >= LINE_BYTES_MIN)
                {
                    pieces(line).for_each(|piece| add_forms(piece, &mut patterns));
                }
            }
        }
        let pattern_bytes_max = patterns.iter().map(String::len).max().unwrap_or(0);
        if patterns.is_empty() {
            return Self::default();
        }
        match AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns)
        {
            Ok(automaton) => Self {
                patterns: Some(automaton),
                pattern_bytes_max,
                sorted: patterns.into_iter().collect(),
            },
            Err(error) => {
                // Only more than two thousand million bytes of patterns come here. To show nothing
                // would be worse than to end.
                unreachable!("{} patterns are too many: {error}", patterns.len())
            }
        }
    }

    /// `text` without secrets.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(patterns) = self
            .patterns
            .as_ref()
            .filter(|patterns| patterns.is_match(text))
        else {
            return Cow::Borrowed(text);
        };
        let mut clean = String::with_capacity(text.len());
        patterns.replace_all_with(text, &mut clean, |_, _, out| {
            out.push_str(STARS);
            true
        });
        Cow::Owned(clean)
    }

    /// JSON text without secrets; all else in it, such as the spelling of numbers, stays.
    pub fn json_text<'t>(&self, json: &'t RawValue) -> Cow<'t, RawValue> {
        let Cow::Owned(clean) = self.text(json.get()) else {
            return Cow::Borrowed(json);
        };
        if let Ok(clean) = RawValue::from_string(clean) {
            return Cow::Owned(clean);
        }
        // A secret that is a number, or that has quotes and commas, was matched outside a string.
        let mut value = serde_json::from_str(json.get()).unwrap_or(Value::String(STARS.to_owned()));
        self.json(&mut value);
        serde_json::value::to_raw_value(&value).map_or(Cow::Borrowed(RawValue::NULL), Cow::Owned)
    }

    /// Take the secrets out of all strings, keys and numbers of `value`.
    pub fn json(&self, value: &mut Value) {
        if self.patterns.is_none() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                if let Cow::Owned(clean) = self.text(&number.to_string()) {
                    *value = Value::String(clean);
                }
            }
            Value::String(text) => {
                if let Cow::Owned(clean) = self.text(text) {
                    *text = clean;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => {
                if fields
                    .keys()
                    .any(|key| matches!(self.text(key), Cow::Owned(_)))
                {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(key, value)| (self.text(&key).into_owned(), value))
                        .collect();
                }
                fields.values_mut().for_each(|value| self.json(value));
            }
        }
    }

    /// Up to where nothing can become a match, or a longer one, by what follows `bytes`.
    fn decided(&self, bytes: &[u8]) -> usize {
        let earliest = bytes.len().saturating_sub(self.pattern_bytes_max - 1);
        let may_begin = |at: &usize| {
            let rest = &bytes[*at..];
            let from = self
                .sorted
                .partition_point(|pattern| pattern.as_bytes() < rest);
            // Of the patterns that are not less, the least begins with `rest` if any does.
            let first = self.sorted.get(from);
            first.is_some_and(|pattern| pattern.as_bytes().starts_with(rest))
        };
        (earliest..bytes.len())
            .find(may_begin)
            .unwrap_or(bytes.len())
    }

    /// A redactor of bytes that arrive in pieces.
    pub fn stream(self: &Arc<Self>) -> RedactStream {
        RedactStream {
            redactor: Arc::clone(self),
            held: Vec::new(),
        }
    }
}

/// Redacts bytes that arrive in pieces of any size, so that a secret is found across their borders.
/// Holds back what may be the beginning of a secret, and nothing else.
#[derive(Debug)]
pub struct RedactStream {
    redactor: Arc<Redactor>,
    held: Vec<u8>,
}

impl RedactStream {
    /// Take `bytes` in and give what can be given out.
    pub fn push<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        if self.redactor.patterns.is_none() {
            return Cow::Borrowed(bytes);
        }
        self.held.extend_from_slice(bytes);
        let decided = self.redactor.decided(&self.held);
        Cow::Owned(self.give(decided))
    }

    /// Give what was held back; nothing follows.
    pub fn finish(&mut self) -> Vec<u8> {
        self.give(self.held.len())
    }

    /// Give what begins before `decided`, redacted.
    fn give(&mut self, decided: usize) -> Vec<u8> {
        let Some(patterns) = &self.redactor.patterns else {
            return Vec::new();
        };
        let mut clean = Vec::with_capacity(decided);
        let mut done = 0;
        for found in patterns
            .find_iter(&self.held)
            .take_while(|found| found.start() < decided)
        {
            clean.extend_from_slice(&self.held[done..found.start()]);
            clean.extend_from_slice(STARS.as_bytes());
            done = found.end();
        }
        if done < decided {
            clean.extend_from_slice(&self.held[done..decided]);
            done = decided;
        }
        self.held.drain(..done);
        clean
    }
}

/// `value` whole, or in pieces if it is long; the last piece is never too short to be looked for.
fn pieces(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        if end > PIECE_BYTES + VALUE_BYTES_MIN {
            end = PIECE_BYTES;
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

fn add_forms(value: &str, patterns: &mut BTreeSet<String>) {
    if value.len() < VALUE_BYTES_MIN {
        return;
    }
    let json = json_escaped(value);
    let ascii = ascii_escaped(&json);
    patterns.insert(json_escaped(&json));
    patterns.insert(json_escaped(&ascii));
    patterns.insert(json.replace('/', "\\/"));
    patterns.insert(json);
    patterns.insert(ascii);
    // `repr` of Python.
    patterns.insert(value.replace('\\', "\\\\").replace('\'', "\\'"));
    for (plain, space) in [("-._~", "%20"), ("-._~/", "%20"), ("-._*", "+")] {
        let percent = percent_encoded(value, plain, space);
        patterns.insert(lower_case_escapes(&percent));
        patterns.insert(percent);
    }
    for offset in 0..3 {
        let mut bytes = vec![0; offset];
        bytes.extend_from_slice(value.as_bytes());
        // Characters that bytes before or after the value take part in are not the value's.
        let first = [0, 2, 3][offset];
        let cut = usize::from(!bytes.len().is_multiple_of(3));
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let encoded = engine.encode(&bytes);
            let own = &encoded[first..encoded.len() - cut];
            if own.len() >= BASE64_CHARS_MIN {
                patterns.insert(own.to_owned());
            }
        }
    }
    patterns.insert(value.to_owned());
}

fn json_escaped(value: &str) -> String {
    let quoted = Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// With `\uXXXX` for all that is not ASCII, as many JSON writers do.
fn ascii_escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing into a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

fn percent_encoded(value: &str, plain: &str, space: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        let character = char::from(byte);
        if byte.is_ascii_alphanumeric() || plain.contains(character) {
            out.push(character);
        } else if byte == b' ' {
            out.push_str(space);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn lower_case_escapes(percent: &str) -> String {
    let mut pieces = percent.split('%');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // Each begins with the two digits that `percent_encoded` wrote.
        let (digits, rest) = piece.split_at(2);
        out.push('%');
        out.push_str(&digits.to_ascii_lowercase());
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests;
