//! Server-sent events, out of bytes as they come, within bounds.
//!
//! It knows the format of an event stream and nothing of what is in it.

use std::mem::take;

/// The longest `id` kept: it goes back to the server in a header.
const ID_BYTES_MAX: usize = 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// What kind; empty means `message`.
    pub(super) name: String,
    pub(super) data: String,
}

/// An event is longer than the bound.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Takes bytes in pieces of any size.
#[derive(Debug)]
pub(super) struct EventParser {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    id: Option<String>,
    /// The id of the last whole event.
    last_id: Option<String>,
    retry_ms: Option<u64>,
    /// A line feed that comes now belongs to the line end before it.
    after_return: bool,
    at_start: bool,
    bytes_max: usize,
}

impl EventParser {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            id: None,
            last_id: None,
            retry_ms: None,
            after_return: false,
            at_start: true,
            bytes_max,
        }
    }

    /// Where to go on after a break; survives events without an id.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How long the server wants us to wait before that.
    pub(super) fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// The events that `bytes` complete, added to `events`.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        events: &mut impl Extend<Event>,
    ) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.data.len() + self.name.len() + piece.len() > self.bytes_max {
                return Err(TooLong);
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { break };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = take(&mut self.line);
            events.extend(self.line_done(&line));
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    fn line_done(&mut self, line: &[u8]) -> Option<Event> {
        let line = if take(&mut self.at_start) {
            line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            return self.event_done();
        }
        let (field, value) = match memchr::memchr(b':', line) {
            None => (line, &b""[..]),
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"id" if value.len() <= ID_BYTES_MAX && !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" => {
                let digits = std::str::from_utf8(value).ok();
                self.retry_ms = digits.and_then(|text| text.parse().ok()).or(self.retry_ms);
            }
            // Comments, which begin with the colon, and fields that nobody knows.
            _ => {}
        }
        None
    }

    fn event_done(&mut self) -> Option<Event> {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        let name = take(&mut self.name);
        let data = take(&mut self.data);
        take(&mut self.has_data).then(|| Event {
            name: String::from_utf8_lossy(&name).into_owned(),
            data: String::from_utf8(data)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> (Vec<Event>, EventParser) {
        let mut parser = EventParser::new(1000);
        let mut events = Vec::new();
        for piece in pieces {
            parser.feed(piece, &mut events).unwrap();
        }
        (events, parser)
    }

    const STREAM: &str = "\u{feff}: hello\r\nid: 1\r\nretry: 250\r\ndata:\r\n\r\nevent: endpoint\rdata: /messages?x=1\r\r\
        id:2\ndata: {\"a\":\ndata:  1}\nodd\n\n:\n\nid: 3\n\ndata: never ended\nid: 4\n";

    #[test]
    fn all_line_ends_and_fields_are_read() {
        let (events, parser) = parse(&[STREAM.as_bytes()]);
        let event = |name: &str, data: &str| Event {
            name: name.to_owned(),
            data: data.to_owned(),
        };
        assert_eq!(
            events,
            [
                event("", ""),
                event("endpoint", "/messages?x=1"),
                event("", "{\"a\":\n 1}"),
            ]
        );
        // An event that only moves the position counts; one that was not ended does not.
        assert_eq!(parser.last_id(), Some("3"));
        assert_eq!(parser.retry_ms(), Some(250));
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_makes_no_difference(
            cuts in proptest::collection::vec(0..STREAM.len(), 0..12)
        ) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts
                .windows(2)
                .map(|pair| &STREAM.as_bytes()[pair[0]..pair[1]])
                .collect();
            prop_assert_eq!(parse(&pieces).0, parse(&[STREAM.as_bytes()]).0);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
            parse(&[&bytes]);
        }
    }

    #[test]
    fn an_event_beyond_the_bound_ends_the_stream() {
        let mut parser = EventParser::new(100);
        let mut events = Vec::new();
        for _ in 0..4 {
            parser.feed(b"data: 0123456789\n", &mut events).unwrap();
        }
        let long = [b'x'; 80];
        assert_eq!(parser.feed(&long, &mut events), Err(TooLong));
        assert!(events.is_empty());
    }
}
