//! One stretch of text: its two ends in memory, all of it in memory or in a file, and an index from
//! characters to bytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::{Captured, OutputError};

#[derive(Debug, Default)]
pub(super) struct Segment {
    head: String,
    head_chars: usize,
    /// At least the last characters that were asked to be kept, if there are that many.
    tail: String,
    chars: u64,
    /// What is in the file, in order.
    extents: Vec<Extent>,
    /// What is not there yet; begins at character `pending_from`.
    pending: String,
    pending_from: u64,
    /// From where on nothing is kept, and why.
    lost: Option<(u64, String)>,
}

#[derive(Debug)]
struct Extent {
    chars_from: u64,
    chars_to: u64,
    offset: u64,
    bytes: usize,
}

impl Segment {
    pub(super) fn append(&mut self, text: &str, edge_chars_max: usize) {
        self.chars += text.chars().count() as u64;
        if self.head_chars < edge_chars_max {
            let beginning = first_chars(text, edge_chars_max - self.head_chars);
            self.head_chars += beginning.chars().count();
            self.head.push_str(beginning);
        }
        self.tail.push_str(text);
        // Cut seldom, so that many short writes do not each move the whole tail.
        if self.tail.len() > 8 * edge_chars_max {
            let keep = last_chars(&self.tail, edge_chars_max).len();
            self.tail.drain(..self.tail.len() - keep);
        }
        if self.lost.is_none() {
            self.pending.push_str(text);
        }
    }

    pub(super) fn chars(&self) -> u64 {
        self.chars
    }

    pub(super) fn pending(&self) -> &str {
        &self.pending
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// The pending text is now in the file at `offset`.
    pub(super) fn pending_is_at(&mut self, offset: u64) {
        let bytes = self.pending.len();
        self.extents.push(Extent {
            chars_from: self.pending_from,
            chars_to: self.chars,
            offset,
            bytes,
        });
        self.pending.clear();
        self.pending_from = self.chars;
    }

    /// The pending text and all that follows cannot be kept.
    pub(super) fn lose_pending(&mut self, reason: String) {
        self.lost = Some((self.pending_from, reason));
        self.pending = String::new();
    }

    pub(super) fn captured(&self, edge_chars_max: usize) -> Captured {
        let after_head = self.chars - self.head_chars as u64;
        let tail_chars = after_head.min(edge_chars_max as u64);
        Captured {
            head: self.head.clone(),
            tail: last_chars(&self.tail, tail_chars as usize).to_owned(),
            omitted: after_head - tail_chars,
        }
    }

    /// Put characters `from..to` behind what `out` holds.
    pub(super) fn read(
        &self,
        from: u64,
        to: u64,
        mut file: Option<&mut File>,
        out: &mut String,
    ) -> Result<(), OutputError> {
        if let Some((lost_from, reason)) = &self.lost
            && to > *lost_from
        {
            return Err(OutputError::NotKept {
                from: *lost_from,
                reason: reason.clone(),
            });
        }
        let first = self
            .extents
            .partition_point(|extent| extent.chars_to <= from);
        for extent in self.extents[first..]
            .iter()
            .take_while(|extent| extent.chars_from < to)
        {
            let Some(file) = file.as_deref_mut() else {
                break;
            };
            let mut bytes = vec![0; extent.bytes];
            file.seek(SeekFrom::Start(extent.offset))?;
            file.read_exact(&mut bytes)?;
            out.push_str(between(
                &String::from_utf8_lossy(&bytes),
                extent.chars_from,
                from,
                to,
            ));
        }
        if to > self.pending_from {
            out.push_str(between(&self.pending, self.pending_from, from, to));
        }
        Ok(())
    }
}

/// The part of `text`, whose first character has position `base`, at positions `from..to`.
fn between(text: &str, base: u64, from: u64, to: u64) -> &str {
    let skipped = first_chars(text, from.saturating_sub(base) as usize).len();
    first_chars(&text[skipped..], (to - base.max(from)) as usize)
}

pub(crate) fn first_chars(text: &str, chars: usize) -> &str {
    // A text of fewer bytes has fewer characters.
    if text.len() <= chars {
        return text;
    }
    text.char_indices()
        .nth(chars)
        .map_or(text, |(at, _)| &text[..at])
}

pub(crate) fn last_chars(text: &str, chars: usize) -> &str {
    if chars == 0 {
        return "";
    }
    text.char_indices()
        .nth_back(chars - 1)
        .map_or(text, |(at, _)| &text[at..])
}

/// Turns bytes that arrive in pieces into text.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of a character that the next piece may complete.
    held: Vec<u8>,
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len() + self.held.len());
        let joined;
        let bytes = if self.held.is_empty() {
            bytes
        } else {
            self.held.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.held);
            &joined
        };
        let mut left = bytes.len();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            left -= chunk.valid().len() + invalid.len();
            let unfinished = left == 0
                && matches!(std::str::from_utf8(invalid), Err(error) if error.error_len().is_none());
            if unfinished {
                self.held = invalid.to_vec();
            } else {
                escape(invalid, &mut text);
            }
        }
        text
    }

    pub(super) fn finish(&mut self) -> String {
        let mut text = String::new();
        escape(&std::mem::take(&mut self.held), &mut text);
        text
    }
}

fn escape(bytes: &[u8], text: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push_str("\\x");
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_cut_anywhere_decode_whole_and_other_bytes_show_as_they_are() {
        let bytes = "a★🎉ř".as_bytes();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut decoder = Decoder::default();
                let mut text = decoder.push(&bytes[..first]);
                text += &decoder.push(&bytes[first..second]);
                text += &decoder.push(&bytes[second..]);
                text += &decoder.finish();
                assert_eq!(text, "a★🎉ř");
            }
        }
        let mut decoder = Decoder::default();
        assert_eq!(
            decoder.push(b"\xff\xed\xa0\x80 \x00\x1b \xf0\x9f"),
            "\\xff\\xed\\xa0\\x80 \0\u{1b} "
        );
        assert_eq!(decoder.push(b"x\xe2"), "\\xf0\\x9fx");
        assert_eq!(decoder.finish(), "\\xe2");
    }
}
