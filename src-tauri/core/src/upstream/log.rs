//! What a server says of its own work over the protocol (`notifications/message`): its last lines are
//! kept, and whose call they belong to is told them.
//!
//! A server may log as fast as it can, so that lines beyond a rate are only counted. Nothing is
//! redacted here; whoever shows a line does that. What a run is, is not known here: it has a name.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::model::{CustomNotification, RequestId, ServerJsonRpcMessage, ServerNotification};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use super::lock;
use crate::api::{LogLine, Severity};
use crate::timestamp::now_ms;

/// From what severity on servers are asked to log.
pub(super) const ASKED_FOR: &str = "info";

/// Lines that are kept of a server, and their text together.
const LINES_MAX: usize = 200;
const BYTES_MAX: usize = 64 * 1024;

/// Of one line, and of the name of what logs it.
const TEXT_CHARS_MAX: usize = 2_000;
const LOGGER_CHARS_MAX: usize = 100;

/// What is taken apart to be shown; longer data is only measured.
const DATA_BYTES_MAX: usize = 64 * 1024;

/// Lines that may come at once, and those of each second after that.
const BURST: f64 = 100.0;
const PER_SECOND: f64 = 10.0;

/// Hears lines of a server.
pub type HearLine = Arc<dyn Fn(&LogLine) + Send + Sync>;

/// Who hears what is logged of a call.
#[derive(Clone)]
pub struct LogReader {
    /// Names the run.
    pub run: String,
    /// Hears the lines.
    pub hear: HearLine,
}

/// A line as it came, on its way past rmcp.
#[derive(Clone, Debug)]
pub(super) struct Said {
    severity: Severity,
    logger: Option<String>,
    text: String,
    /// The request that it came beside, where the transport shows that.
    of: Option<RequestId>,
}

/// Read the parameters of `notifications/message`; servers get them wrong in many ways, and each is
/// still something said.
pub(super) fn message(params: &RawValue) -> ServerJsonRpcMessage {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(default)]
        level: Value,
        #[serde(default)]
        logger: Value,
        #[serde(borrow, default)]
        data: Option<&'a RawValue>,
    }
    // An array would be taken for the fields in their order.
    let is_object = params.get().trim_start().starts_with('{');
    let said = match serde_json::from_str::<Params<'_>>(params.get()) {
        Ok(read) if is_object => Said {
            severity: read.level.as_str().map_or(Severity::Info, severity),
            logger: read
                .logger
                .as_str()
                .filter(|name| !name.trim().is_empty())
                .map(|name| name.chars().take(LOGGER_CHARS_MAX).collect()),
            text: text_of(read.data.map_or("null", RawValue::get)),
            of: None,
        },
        Ok(_) | Err(_) => Said {
            severity: Severity::Info,
            logger: None,
            text: text_of(params.get()),
            of: None,
        },
    };
    let mut notification = CustomNotification::new("notifications/message", None);
    notification.extensions.insert(said);
    ServerJsonRpcMessage::notification(ServerNotification::CustomNotification(notification))
}

fn severity(word: &str) -> Severity {
    match word.trim().to_ascii_lowercase().as_str() {
        "trace" | "debug" => Severity::Debug,
        "notice" => Severity::Notice,
        "warn" | "warning" => Severity::Warning,
        "error" | "err" => Severity::Error,
        "critical" | "fatal" => Severity::Critical,
        "alert" => Severity::Alert,
        "emergency" => Severity::Emergency,
        _ => Severity::Info,
    }
}

/// A text as it is, everything else as JSON.
fn text_of(data: &str) -> String {
    if data.len() > DATA_BYTES_MAX {
        return format!("({} bytes)", data.len());
    }
    let text = match serde_json::from_str(data) {
        Ok(Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => data.to_owned(),
    };
    let text = text.trim_end();
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
        None => text.to_owned(),
    }
}

/// What a message logs, if it is one that does.
fn said(message: &ServerJsonRpcMessage) -> Option<&Said> {
    match message {
        ServerJsonRpcMessage::Notification(notification) => match &notification.notification {
            ServerNotification::CustomNotification(custom) => custom.extensions.get::<Said>(),
            _ => None,
        },
        _ => None,
    }
}

/// Note which request a message came beside.
pub(super) fn came_beside(message: &mut ServerJsonRpcMessage, id: &RequestId) {
    if let ServerJsonRpcMessage::Notification(notification) = message
        && let ServerNotification::CustomNotification(custom) = &mut notification.notification
        && let Some(said) = custom.extensions.get_mut::<Said>()
    {
        said.of = Some(id.clone());
    }
}

/// The last lines of a server, also of its earlier processes.
pub(super) struct ServerLog {
    kept: Mutex<Kept>,
    written: watch::Sender<()>,
}

struct Kept {
    lines: VecDeque<LogLine>,
    bytes: usize,
    allowance: f64,
    refilled: Instant,
    /// Since the last line that was kept.
    left_out: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            lines: VecDeque::new(),
            bytes: 0,
            allowance: BURST,
            refilled: Instant::now(),
            left_out: 0,
        }
    }
}

impl ServerLog {
    /// None yet; `written` is told of each that comes.
    pub(super) fn new(written: watch::Sender<()>) -> Self {
        Self {
            kept: Mutex::default(),
            written,
        }
    }

    /// The oldest first.
    pub(super) fn lines(&self, server: &str) -> Vec<LogLine> {
        let kept = lock(&self.kept);
        let gap = kept.gap(server);
        kept.lines.iter().cloned().chain(gap).collect()
    }

    /// Keep a line; gives what is new, which is nothing while they come too fast.
    fn take(&self, server: &str, said: &Said) -> Vec<LogLine> {
        let new = self.keep(server, said);
        self.written.send_replace(());
        new
    }

    fn keep(&self, server: &str, said: &Said) -> Vec<LogLine> {
        let mut kept = lock(&self.kept);
        let now = Instant::now();
        let passed = now.duration_since(kept.refilled).as_secs_f64();
        kept.allowance = (kept.allowance + passed * PER_SECOND).min(BURST);
        kept.refilled = now;
        if kept.allowance < 1.0 {
            kept.left_out += 1;
            return Vec::new();
        }
        kept.allowance -= 1.0;
        let line = LogLine {
            server: server.to_owned(),
            at: now_ms(),
            severity: said.severity,
            logger: said.logger.clone(),
            text: said.text.clone(),
        };
        let new: Vec<_> = kept.gap(server).into_iter().chain([line]).collect();
        kept.left_out = 0;
        for line in &new {
            kept.bytes += line.text.len();
            kept.lines.push_back(line.clone());
        }
        while kept.lines.len() > LINES_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.lines.pop_front() else {
                break;
            };
            kept.bytes -= oldest.text.len();
        }
        new
    }
}

impl Kept {
    /// The line that stands for those that were left out.
    fn gap(&self, server: &str) -> Option<LogLine> {
        (self.left_out > 0).then(|| LogLine {
            server: server.to_owned(),
            at: now_ms(),
            severity: Severity::Notice,
            logger: Some("runbridge".to_owned()),
            text: format!(
                "{} lines were left out: the server logged faster than is kept",
                self.left_out
            ),
        })
    }
}

/// What one connection logs, and the calls under way that it may be about.
pub(super) struct Log {
    server: String,
    kept: Arc<ServerLog>,
    readers: Mutex<Readers>,
}

#[derive(Default)]
struct Readers {
    /// By call.
    calls: HashMap<u64, LogReader>,
    /// The call of each request.
    requests: HashMap<RequestId, u64>,
}

impl Log {
    pub(super) fn new(server: String, kept: Arc<ServerLog>) -> Arc<Self> {
        Arc::new(Self {
            server,
            kept,
            readers: Mutex::default(),
        })
    }

    /// A call begins.
    pub(super) fn enter(&self, reader: LogReader) -> Reading<'_> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let call = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.readers).calls.insert(call, reader);
        Reading { log: self, call }
    }

    /// Take what a message logs; false: it does not.
    pub(super) fn take(&self, message: &ServerJsonRpcMessage) -> bool {
        let Some(said) = said(message) else {
            return false;
        };
        let lines = self.kept.take(&self.server, said);
        if let Some(reader) = self.reader(said.of.as_ref()) {
            for line in &lines {
                (reader.hear)(line);
            }
        }
        true
    }

    /// Whose call it is about: that of the request or, where none is known, of the only run that uses
    /// the server now.
    fn reader(&self, of: Option<&RequestId>) -> Option<LogReader> {
        let readers = lock(&self.readers);
        if let Some(id) = of {
            let call = readers.requests.get(id)?;
            return readers.calls.get(call).cloned();
        }
        let mut all = readers.calls.values();
        let first = all.next()?;
        all.all(|other| other.run == first.run)
            .then(|| first.clone())
    }
}

/// A call under way whose log is read.
pub(super) struct Reading<'a> {
    log: &'a Log,
    call: u64,
}

impl Reading<'_> {
    /// The call makes this request.
    pub(super) fn asks(&self, id: RequestId) {
        lock(&self.log.readers).requests.insert(id, self.call);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut readers = lock(&self.log.readers);
        readers.calls.remove(&self.call);
        readers.requests.retain(|_, call| *call != self.call);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    fn read(params: &str) -> Said {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        said(&message(&params)).unwrap().clone()
    }

    #[test]
    fn whatever_a_server_logs_becomes_a_line_within_bounds() {
        let plain = read(r#"{"level":"WARN","logger":"db","data":"slow\n"}"#);
        assert_eq!(plain.severity, Severity::Warning);
        assert_eq!(
            (plain.logger.as_deref(), &plain.text[..]),
            (Some("db"), "slow")
        );
        assert_eq!(read(r#"{"data":{"a":1}}"#).text, r#"{"a":1}"#);
        assert_eq!(read(r#"{"level":7,"logger":"","data":null}"#).text, "null");
        assert_eq!(read("[1]").text, "[1]");
        let long = read(&format!(r#"{{"data":"{}"}}"#, "é".repeat(3_000)));
        assert!(long.text.ends_with("… (3000 characters)"), "{}", long.text);
        let huge = read(&format!(r#"{{"data":"{}"}}"#, "x".repeat(100_000)));
        assert_eq!(huge.text, "(100002 bytes)");
    }

    #[test]
    fn a_flood_is_counted_and_the_newest_lines_stay() {
        let log = ServerLog::new(watch::Sender::default());
        let line = read(&format!(r#"{{"data":"{}"}}"#, "y".repeat(1_000)));
        for _ in 0..1_000 {
            log.take("s", &line);
        }
        let kept = log.lines("s");
        let bytes: usize = kept.iter().map(|line| line.text.len()).sum();
        assert!(bytes <= BYTES_MAX + 100, "{bytes}");
        let last = kept.last().unwrap();
        assert!(last.text.contains("lines were left out"), "{}", last.text);
    }

    #[test]
    fn a_line_goes_to_the_call_that_it_is_about_or_to_no_run() {
        let kept = ServerLog::new(watch::Sender::default());
        let log = Log::new("s".to_owned(), Arc::new(kept));
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let reader = |run: &str| {
            let (heard, name) = (Arc::clone(&heard), run.to_owned());
            LogReader {
                run: run.to_owned(),
                hear: Arc::new(move |line| lock(&heard).push(format!("{name}: {}", line.text))),
            }
        };
        let say = |text: &str, of: Option<i64>| {
            let params = RawValue::from_string(format!(r#"{{"data":"{text}"}}"#)).unwrap();
            let mut message = message(&params);
            if let Some(id) = of {
                came_beside(&mut message, &RequestId::Number(id));
            }
            assert!(log.take(&message));
        };
        say("alone", None);
        let one = log.enter(reader("one"));
        one.asks(RequestId::Number(1));
        let again = log.enter(reader("one"));
        say("of the only run", None);
        drop(again);
        let two = log.enter(reader("two"));
        two.asks(RequestId::Number(2));
        say("whose", None);
        say("second", Some(2));
        drop(two);
        say("late", Some(2));
        let heard = lock(&heard).clone();
        assert_eq!(heard, ["one: of the only run", "two: second"]);
        assert_eq!(log.kept.lines("s").len(), 5);
    }
}
