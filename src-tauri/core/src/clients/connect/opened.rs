//! A client's file as it was read, and whether the client itself could read it.

use std::path::Path;

use super::ConnectError;
use crate::clients::client::format_of;
use crate::clients::parse::{self, Document, Position};
use crate::clients::target::{Reads, Target};

pub(super) const MARK: &[u8] = b"\xEF\xBB\xBF";

/// A file as it was read.
pub(super) struct Opened {
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) text: String,
    pub(super) mark: bool,
}

impl Opened {
    pub(super) fn bytes_of(&self, text: &str) -> Vec<u8> {
        let mark = if self.mark { MARK } else { &[] };
        [mark, text.as_bytes()].concat()
    }
}

/// A file's text without its mark; what is not UTF-8 holds nothing that we could read.
pub(super) fn plain_text(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default();
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    std::str::from_utf8(bytes).unwrap_or_default().to_owned()
}

pub(super) fn open(file: &Path) -> Result<Opened, ConnectError> {
    let unreadable = |position, message| ConnectError::Unreadable {
        file: file.to_owned(),
        position,
        message,
    };
    let bytes = parse::read_bytes(file).map_err(|error| unreadable(None, error.to_string()))?;
    let content = bytes.as_deref().unwrap_or_default();
    if content.starts_with(b"\xFF\xFE") || content.starts_with(b"\xFE\xFF") {
        let message = "it is UTF-16 text; save it as UTF-8";
        return Err(unreadable(None, message.to_owned()));
    }
    let text = parse::decode(content.to_vec())
        .map_err(|broken| unreadable(broken.position, broken.message))?;
    Ok(Opened {
        mark: content.starts_with(MARK),
        text,
        bytes,
    })
}

pub(super) fn parse(file: &Path, text: &str) -> Result<Document, ConnectError> {
    Document::parse(text.to_owned(), format_of(file)).map_err(|broken| ConnectError::Unreadable {
        file: file.to_owned(),
        position: broken.position,
        message: broken.message,
    })
}

/// Whether the client itself can read the file. What it cannot read it may replace, and us with it.
pub(super) fn legible(target: &Target, file: &Path, opened: &Opened) -> Result<(), ConnectError> {
    if target.reads == Reads::PlainJson
        && !opened.text.trim().is_empty()
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&opened.text)
    {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let position = Position {
            line: number(error.line()),
            column: number(error.column()),
        };
        let message = "the client accepts plain JSON only, without comments or trailing commas";
        return Err(ConnectError::Unreadable {
            file: file.to_owned(),
            position: Some(position),
            message: message.to_owned(),
        });
    }
    Ok(())
}

/// Whether the file begins with a byte order mark that the client does not accept.
pub(super) fn is_marked(target: &Target, opened: &Opened) -> bool {
    opened.mark && target.reads != Reads::Anything
}
