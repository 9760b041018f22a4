//! Lines of a server's stdout turned into messages, within bounds and forgiving where that is safe.
//!
//! Results stay the text that the server wrote: they cross rmcp's service loop as one JSON string
//! ([`raw_result`] takes them out again), because parsing a result into rmcp's untagged union costs
//! more than the call and would refuse a whole list for one odd tool. It knows JSON-RPC, not what
//! any method means.

use std::borrow::Cow;

use rmcp::model::{
    CustomRequest, CustomResult, ErrorCode, ErrorData, Extensions, ProgressNotification,
    ProgressNotificationParam, ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerRequest, ServerResult, ToolListChangedNotification, ToolListChangedNotificationMethod,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::log;

/// The longest line taken from a server: the contract's bound on one tool result.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Kept of each end of a longer line, enough to find the id of the request that it answers.
const ENDS_BYTES: usize = 256;

/// Above this the buffer of a long line is given back once the line is done.
const BUFFER_KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Reads lines; cancel safe, since a read that is dropped half-way loses nothing.
pub(crate) struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    tail: Vec<u8>,
    /// Bytes seen of the current line, kept or not.
    length: usize,
    /// The last line was handed out and is to be forgotten before the next.
    handed_out: bool,
    bytes_max: usize,
}

/// One line, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    /// Longer than the bound; only its ends were kept.
    TooLong {
        head: &'a [u8],
        tail: &'a [u8],
        bytes: usize,
    },
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self::with_bound(reader, LINE_BYTES_MAX)
    }

    fn with_bound(reader: R, bytes_max: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, reader),
            line: Vec::new(),
            tail: Vec::new(),
            length: 0,
            handed_out: false,
            bytes_max,
        }
    }

    /// The next line; `None` at the end. What follows the last line end counts as a line.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line<'_>>> {
        if self.handed_out {
            self.handed_out = false;
            self.length = 0;
            self.tail.clear();
            if self.line.capacity() > BUFFER_KEPT_BYTES_MAX {
                self.line = Vec::new();
            } else {
                self.line.clear();
            }
        }
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                if self.length == 0 {
                    return Ok(None);
                }
                break;
            }
            let end = memchr::memchr(b'\n', available);
            let piece = &available[..end.unwrap_or(available.len())];
            self.length += piece.len();
            if self.length <= self.bytes_max {
                self.line.extend_from_slice(piece);
            } else {
                if self.length - piece.len() <= self.bytes_max {
                    self.tail = self.line.split_off(self.line.len().min(ENDS_BYTES));
                    let wanted = (ENDS_BYTES - self.line.len()).min(piece.len());
                    self.line.extend_from_slice(&piece[..wanted]);
                    self.line.shrink_to(ENDS_BYTES);
                }
                self.tail
                    .extend_from_slice(&piece[piece.len().saturating_sub(ENDS_BYTES)..]);
                self.tail
                    .drain(..self.tail.len().saturating_sub(ENDS_BYTES));
                self.tail.shrink_to(ENDS_BYTES * 2);
            }
            let taken = piece.len() + usize::from(end.is_some());
            self.reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        self.handed_out = true;
        Ok(Some(if self.length <= self.bytes_max {
            Line::Whole(&self.line)
        } else {
            Line::TooLong {
                head: &self.line,
                tail: &self.tail,
                bytes: self.length,
            }
        }))
    }
}

/// What a line holds.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Messages in order: one, or several for the batches of older revisions. Notifications that
    /// concern nobody here are left out.
    Messages(Vec<ServerJsonRpcMessage>),
    /// Nothing at all.
    Blank,
    /// Not JSON-RPC: a log line, most likely.
    Noise,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(default)]
    id: Option<Value>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// `null` is a value here, not an absence.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Read one line.
pub(crate) fn parse(line: &Line<'_>) -> Parsed {
    let line = match line {
        Line::Whole(line) => String::from_utf8_lossy(line),
        Line::TooLong { head, tail, bytes } => {
            return match id_near_the_ends(head, tail) {
                Some(id) => Parsed::Messages(vec![too_long(id, *bytes)]),
                None => Parsed::Noise,
            };
        }
    };
    let text = line.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Parsed::Blank;
    }
    if text.starts_with('{') {
        return match message(text) {
            Some(found) => Parsed::Messages(found),
            None => Parsed::Noise,
        };
    }
    if text.starts_with('[')
        && let Ok(batch) = serde_json::from_str::<Vec<&RawValue>>(text)
        && !batch.is_empty()
        && let Some(found) = batch
            .into_iter()
            .map(|one| message(one.get()))
            .collect::<Option<Vec<_>>>()
    {
        return Parsed::Messages(found.into_iter().flatten().collect());
    }
    Parsed::Noise
}

/// `None`: not JSON-RPC. Empty: a notification that concerns nobody here.
fn message(text: &str) -> Option<Vec<ServerJsonRpcMessage>> {
    let envelope: Envelope<'_> = serde_json::from_str(text).ok()?;
    let id = envelope.id.and_then(request_id);
    if let Some(method) = envelope.method {
        // A structured log line may well have a `method`; it has no `jsonrpc`.
        envelope.jsonrpc?;
        let Some(id) = id else {
            let notification = match &*method {
                "notifications/tools/list_changed" => Some(tools_changed()),
                "notifications/progress" => envelope.params.and_then(progress),
                "notifications/message" => envelope.params.map(log::message),
                _ => None,
            };
            return Some(notification.into_iter().collect());
        };
        // Requests keep their generic form, so that one with odd parameters is answered too.
        let params = envelope
            .params
            .and_then(|params| serde_json::from_str(params.get()).ok());
        let request = ServerRequest::CustomRequest(CustomRequest::new(method, params));
        return Some(vec![ServerJsonRpcMessage::request(request, id)]);
    }
    if let Some(error) = envelope.error
        && (id.is_some() || envelope.jsonrpc.is_some())
        && error.get() != "null"
    {
        let error = ServerJsonRpcMessage::error(error_data(error.get()), id);
        return Some(vec![error]);
    }
    let (id, result) = (id?, envelope.result?);
    let result = CustomResult(Value::String(result.get().to_owned()));
    let result = ServerResult::CustomResult(result);
    Some(vec![ServerJsonRpcMessage::response(result, id)])
}

fn tools_changed() -> ServerJsonRpcMessage {
    let notification = ToolListChangedNotification {
        method: ToolListChangedNotificationMethod,
        extensions: Extensions::default(),
    };
    ServerJsonRpcMessage::notification(ServerNotification::ToolListChangedNotification(
        notification,
    ))
}

/// `None`: it names no request that it belongs to.
fn progress(params: &RawValue) -> Option<ServerJsonRpcMessage> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "progressToken")]
        token: Value,
        #[serde(default)]
        progress: Option<f64>,
        #[serde(default)]
        total: Option<f64>,
        #[serde(default)]
        message: Option<String>,
    }
    let read: Params = serde_json::from_str(params.get()).ok()?;
    let token = ProgressToken(request_id(read.token)?);
    let mut params = ProgressNotificationParam::new(token, read.progress.unwrap_or_default());
    params.total = read.total;
    params.message = read.message;
    Some(ServerJsonRpcMessage::notification(
        ServerNotification::ProgressNotification(ProgressNotification::new(params)),
    ))
}

/// Numbers that a server's language made into floats are still the numbers that we sent.
fn request_id(value: Value) -> Option<RequestId> {
    match value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| {
                number
                    .as_f64()
                    .filter(|float| float.fract() == 0.0)
                    .map(|float| float as i64)
            })
            .map(RequestId::Number),
        Value::String(text) => Some(RequestId::String(text.into())),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Servers get error objects wrong in many ways; each still is an error.
fn error_data(text: &str) -> ErrorData {
    let mut error = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(error)) => error,
        Ok(Value::String(message)) => {
            return ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
        }
        Ok(_) | Err(_) => return ErrorData::new(ErrorCode::INTERNAL_ERROR, text.to_owned(), None),
    };
    let code = error
        .get("code")
        .and_then(|code| code.as_i64().or_else(|| code.as_str()?.parse().ok()))
        .and_then(|code| i32::try_from(code).ok())
        .map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
    let message = match error.remove("message") {
        Some(Value::String(message)) => message,
        Some(other) => other.to_string(),
        None => "the server gave no message".to_owned(),
    };
    ErrorData::new(
        code,
        message,
        error.remove("data").filter(|data| !data.is_null()),
    )
}

/// The text of a result, whichever transport it came by.
pub(crate) fn raw_result(result: ServerResult) -> Result<Box<RawValue>, serde_json::Error> {
    match result {
        ServerResult::CustomResult(CustomResult(Value::String(text))) => {
            RawValue::from_string(text)
        }
        other => serde_json::value::to_raw_value(&other),
    }
}

fn too_long(id: RequestId, bytes: usize) -> ServerJsonRpcMessage {
    let message =
        format!("the answer has {bytes} bytes, more than the limit of {LINE_BYTES_MAX} (64 MiB)");
    ServerJsonRpcMessage::error(
        ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None),
        Some(id),
    )
}

/// Writers put the id first or last; a line too long to parse is answered for by it.
fn id_near_the_ends(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    let compact = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .chars()
            .filter(|c| !c.is_whitespace())
            .collect::<String>()
    };
    let number = |text: &str| {
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        text[..digits].parse().ok().map(RequestId::Number)
    };
    let head = compact(head);
    for start in ["{\"jsonrpc\":\"2.0\",\"id\":", "{\"id\":"] {
        if let Some(rest) = head.strip_prefix(start) {
            return number(rest);
        }
    }
    let tail = compact(tail);
    let tail = tail
        .strip_suffix('}')?
        .trim_end_matches(",\"jsonrpc\":\"2.0\"");
    number(&tail[tail.rfind("\"id\":")? + "\"id\":".len()..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    fn one(text: &str) -> ServerJsonRpcMessage {
        match parse(&Line::Whole(text.as_bytes())) {
            Parsed::Messages(mut messages) if messages.len() == 1 => messages.remove(0),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_result_crosses_as_the_text_it_was() {
        // A lone surrogate and a number beyond 64 bits would not survive a parse.
        let raw = r#"{"content":[],"n":123456789012345678901234567890,"s":"\ud800"}"#;
        let line = format!("{{\"result\":{raw},\"jsonrpc\":\"2.0\",\"id\":3}}\r");
        let ServerJsonRpcMessage::Response(response) = one(&line) else {
            panic!()
        };
        assert_eq!(response.id, RequestId::Number(3));
        assert_eq!(raw_result(response.result).unwrap().get(), raw);
    }

    #[test]
    fn log_lines_are_noise_even_when_they_are_json() {
        for line in [
            "Server running on stdio",
            r#"{"level":"info","msg":"ready"}"#,
            r#"{"method":"GET","path":"/"}"#,
            r#"{"level":"error","error":"boom"}"#,
            "[INFO] ready",
            "[1, 2]",
            "[]",
            "\u{1b}[32mready\u{1b}[0m",
        ] {
            assert!(
                matches!(parse(&Line::Whole(line.as_bytes())), Parsed::Noise),
                "{line}"
            );
        }
        assert!(matches!(parse(&Line::Whole(b" \r")), Parsed::Blank));
    }

    #[test]
    fn odd_but_meant_messages_are_taken() {
        assert!(matches!(
            one("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":4.0,\"result\":null}"),
            ServerJsonRpcMessage::Response(response) if response.id == RequestId::Number(4)
        ));
        let ServerJsonRpcMessage::Error(error) = one(r#"{"jsonrpc":"2.0","id":1,"error":"boom"}"#)
        else {
            panic!()
        };
        assert_eq!(error.error.message, "boom");
        let ServerJsonRpcMessage::Error(error) = one(
            r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":"-32000","message":{"a":1}}}"#,
        ) else {
            panic!()
        };
        assert_eq!(
            (error.error.code.0, &*error.error.message),
            (-32000, r#"{"a":1}"#)
        );
    }

    #[test]
    fn a_batch_is_its_messages() {
        let batch = r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"notifications/message"},{"jsonrpc":"2.0","id":2,"result":{}}]"#;
        let Parsed::Messages(messages) = parse(&Line::Whole(batch.as_bytes())) else {
            panic!()
        };
        assert_eq!(messages.len(), 2);
    }

    #[tokio::test]
    async fn a_line_beyond_the_bound_answers_the_request_it_was_for() {
        let long = "x".repeat(3000);
        let input = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{long}\"}}\n{{\"result\":\"{long}\",\"jsonrpc\":\"2.0\",\"id\":8}}\nshort\nlast"
        );
        let mut lines = LineReader::with_bound(input.as_bytes(), 1000);
        for id in [7, 8] {
            let line = lines.next().await.unwrap().unwrap();
            assert!(matches!(line, Line::TooLong { .. }));
            let Parsed::Messages(messages) = parse(&line) else {
                panic!("{line:?}")
            };
            assert!(matches!(
                &messages[0],
                ServerJsonRpcMessage::Error(error) if error.id == Some(RequestId::Number(id))
            ));
        }
        assert_eq!(lines.next().await.unwrap(), Some(Line::Whole(b"short")));
        assert_eq!(lines.next().await.unwrap(), Some(Line::Whole(b"last")));
        assert_eq!(lines.next().await.unwrap(), None);
    }
}
