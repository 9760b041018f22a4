//! Shorten text to a number of characters, so that its beginning, its end and a way to the rest
//! remain.

use crate::output::{Captured, first_chars, last_chars};

/// A stretch of text, part of which may be known only by its length.
pub(super) enum Piece<'a> {
    Text(&'a str),
    Captured(&'a Captured),
}

impl Piece<'_> {
    fn parts(&self) -> (&str, u64, &str) {
        match self {
            Self::Text(text) => (text, 0, ""),
            Self::Captured(captured) => (&captured.head, captured.omitted, &captured.tail),
        }
    }
}

pub(super) fn chars_of(captured: &Captured) -> u64 {
    count(&captured.head) + captured.omitted + count(&captured.tail)
}

/// The pieces as one text of at most `chars_max` characters.
pub(super) fn cut_text(pieces: &[Piece<'_>], chars_max: usize, run_id: &str) -> String {
    let total: u64 = pieces
        .iter()
        .map(|piece| {
            let (head, omitted, tail) = piece.parts();
            count(head) + omitted + count(tail)
        })
        .sum();
    let known = pieces.iter().all(|piece| piece.parts().1 == 0);
    if known && total <= chars_max as u64 {
        return pieces
            .iter()
            .flat_map(|piece| {
                let (head, _, tail) = piece.parts();
                [head, tail]
            })
            .collect();
    }
    // Positions take the most room where they are largest.
    let room = chars_max.saturating_sub(notice(run_id, total, total, total).chars().count());
    let head = beginning(pieces, room - room / 2);
    let tail = ending(pieces, room / 2);
    let (from, to) = (count(&head), total - count(&tail));
    format!("{head}{}{tail}", notice(run_id, to - from, from, to))
}

/// What stands in place of `omitted` characters, which are those at `from..to` of the whole text.
pub(super) fn notice(run_id: &str, omitted: u64, from: u64, to: u64) -> String {
    format!(
        "\n[... {} characters left out; runtime.output(\"{run_id}\", {from}, {to}) returns them ...]\n",
        grouped(omitted)
    )
}

/// The first characters of all pieces together, at most `room`; ends where a piece is not known.
fn beginning(pieces: &[Piece<'_>], room: usize) -> String {
    let mut text = String::new();
    let mut room = room;
    for piece in pieces {
        let (head, omitted, tail) = piece.parts();
        for part in if omitted == 0 {
            [head, tail]
        } else {
            [head, ""]
        } {
            let taken = first_chars(part, room);
            room -= taken.chars().count();
            text.push_str(taken);
        }
        if omitted > 0 {
            break;
        }
    }
    text
}

/// As [`beginning`], from the end.
fn ending(pieces: &[Piece<'_>], room: usize) -> String {
    let mut parts = Vec::new();
    let mut room = room;
    for piece in pieces.iter().rev() {
        let (head, omitted, tail) = piece.parts();
        for part in if omitted == 0 {
            [tail, head]
        } else {
            [tail, ""]
        } {
            let taken = last_chars(part, room);
            room -= taken.chars().count();
            parts.push(taken);
        }
        if omitted > 0 {
            break;
        }
    }
    parts.into_iter().rev().collect()
}

/// As much of `text` as JSON writes in `chars_max` characters, with dots if that is not all.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    if prefix_of_cost(text, chars_max).len() == text.len() {
        text.to_owned()
    } else {
        format!("{}...", prefix_of_cost(text, chars_max - 3))
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn count(text: &str) -> u64 {
    text.chars().count() as u64
}

/// Characters that JSON writes for `text`.
pub(super) fn json_chars(text: &str) -> usize {
    text.chars().map(json_cost).sum()
}

/// Characters that JSON writes for this one.
fn json_cost(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => 1,
    }
}

/// The beginning of `text` that JSON writes in `room` characters.
pub(super) fn prefix_of_cost(text: &str, room: usize) -> &str {
    let mut left = room;
    for (at, character) in text.char_indices() {
        match left.checked_sub(json_cost(character)) {
            Some(rest) => left = rest,
            None => return &text[..at],
        }
    }
    text
}

/// The end of `text` that JSON writes in `room` characters.
pub(super) fn suffix_of_cost(text: &str, room: usize) -> &str {
    let mut left = room;
    for (at, character) in text.char_indices().rev() {
        match left.checked_sub(json_cost(character)) {
            Some(rest) => left = rest,
            None => return &text[at + character.len_utf8()..],
        }
    }
    text
}
