//! Runs that have not ended: who asked, what they print and call as it happens, and the means to stop
//! them. Tells every step as a change.
//!
//! Texts arrive redacted. What a run prints is told in pieces, at most a few a second, and only its end
//! is kept: the record has the rest when the run has ended. Knows nothing of how code is executed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runbridge_sandbox::Stream as GuestStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::{
    ApiError, Call, CallState, Change, LogLine, Run, RunDetail, RunStatus, SandboxKind, Stream,
};
use crate::events::{Events, Hint};
use crate::interpreters::ConnectionId;
use crate::timestamp::now_ms;

/// Between two pieces of output that windows are told.
pub(crate) const TELL_EVERY: Duration = Duration::from_millis(60);

/// What is kept of each stream of a run, and the most that one piece tells.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Calls that are kept of a run; later ones are only counted.
const CALLS_MAX: usize = 1_000;

/// Lines that are kept of what servers log of a run, and their text together; the first ones, since
/// the server's own page has the last.
const LOG_LINES_MAX: usize = 200;
const LOG_BYTES_MAX: usize = 64 * 1024;

/// Code that is kept of a run, as the record does it.
const CODE_BYTES_MAX: usize = crate::activity::CODE_BYTES_MAX;

/// Arguments that are kept of a call.
const ARGUMENTS_BYTES_MAX: usize = crate::activity::ARGUMENTS_BYTES_MAX;

/// The longest title.
const TITLE_CHARS_MAX: usize = 120;

/// Why a run ended although neither its code nor its client wanted it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedBy {
    /// The user stopped this one.
    User,
    /// The user paused everything.
    Pause,
}

impl StoppedBy {
    /// The reason, for the model.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::User => "the user stopped the run in Runbridge",
            Self::Pause => {
                "the user paused Runbridge, which stopped the run; nothing runs until they resume it"
            }
        }
    }
}

/// A run that begins.
#[derive(Debug)]
pub(crate) struct Begun {
    /// As in its reply.
    pub(crate) id: String,
    /// The client's name.
    pub(crate) client: String,
    /// The connection that asked.
    pub(crate) connection: ConnectionId,
    /// The session it runs in.
    pub(crate) session: String,
    /// The named session, if it is not the connection's own.
    pub(crate) session_name: Option<String>,
    /// The Python.
    pub(crate) code: String,
    /// Ends it.
    pub(crate) cancel: CancellationToken,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: RunStatus,
    pub(crate) servers: Vec<String>,
    pub(crate) calls: u64,
    pub(crate) reply_tokens: u64,
    pub(crate) direct_tokens: u64,
}

/// All runs that have not ended.
#[derive(Debug)]
pub struct LiveRuns {
    events: Arc<Events>,
    runs: Mutex<Vec<Live>>,
    /// Something was printed.
    printed: Notify,
}

#[derive(Debug)]
struct Live {
    run: Run,
    connection: ConnectionId,
    session: String,
    code: String,
    began: Instant,
    streams: [Tail; 2],
    calls: Vec<Call>,
    calls_begun: u64,
    log: Vec<LogLine>,
    log_bytes: usize,
    cancel: CancellationToken,
    stopped_by: Option<StoppedBy>,
}

/// The end of a stream, and what of it was not told yet.
#[derive(Debug, Default)]
struct Tail {
    kept: VecDeque<u8>,
    untold: String,
    left_out_chars: u64,
}

/// One run under way. Dropped before its end, it counts as broken off.
#[derive(Debug)]
pub(crate) struct LiveRun {
    runs: Arc<LiveRuns>,
    id: String,
}

impl LiveRuns {
    /// None yet.
    pub(crate) fn new(events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            events,
            runs: Mutex::default(),
            printed: Notify::new(),
        })
    }

    /// A run was asked for.
    pub(crate) fn begin(self: &Arc<Self>, begun: Begun) -> LiveRun {
        let mut code = begun.code;
        cut(&mut code, CODE_BYTES_MAX);
        let run = Run {
            id: begun.id.clone(),
            client: begun.client,
            connection_id: Some(begun.connection.to_string()),
            session: begun.session_name,
            title: title(&code),
            status: RunStatus::Queued,
            started_at: now_ms(),
            duration_ms: None,
            servers: Vec::new(),
            calls: 0,
            calls_failed: 0,
            kind: None,
            memory_bytes_peak: None,
            reply_tokens: None,
            direct_tokens: None,
        };
        self.lock().push(Live {
            run: run.clone(),
            connection: begun.connection,
            session: begun.session,
            code,
            began: Instant::now(),
            streams: Default::default(),
            calls: Vec::new(),
            calls_begun: 0,
            log: Vec::new(),
            log_bytes: 0,
            cancel: begun.cancel,
            stopped_by: None,
        });
        self.events.tell(Change::Run { run: Box::new(run) });
        LiveRun {
            runs: Arc::clone(self),
            id: begun.id,
        }
    }

    /// The oldest first.
    pub fn list(&self) -> Vec<Run> {
        self.lock().iter().map(|live| live.run.clone()).collect()
    }

    /// One of them whole. What it printed so far is told before, so that a window which has read this
    /// is told later output once.
    pub fn detail(&self, id: &str) -> Option<RunDetail> {
        let mut runs = self.lock();
        let live = runs.iter_mut().find(|live| live.run.id == id)?;
        live.tell_output(&self.events);
        let [stdout, stderr] = &live.streams;
        Some(RunDetail {
            run: live.run.clone(),
            code: live.code.clone(),
            stdout: stdout.text(),
            stderr: stderr.text(),
            result: None,
            error: None,
            chars_left_out: stdout.left_out_chars + stderr.left_out_chars,
            calls: live.calls.clone(),
            log: live.log.clone(),
            seq: self.events.seq(),
        })
    }

    /// End one; false: it has ended already.
    pub fn stop(&self, id: &str) -> bool {
        self.stop_those(StoppedBy::User, |live| live.run.id == id) > 0
    }

    /// End all.
    pub(crate) fn stop_all(&self, by: StoppedBy) {
        self.stop_those(by, |_| true);
    }

    /// End those of one session.
    pub(crate) fn stop_session(&self, connection: ConnectionId, session: &str) {
        self.stop_those(StoppedBy::User, |live| {
            live.connection == connection && live.session == session
        });
    }

    fn stop_those(&self, by: StoppedBy, which: impl Fn(&Live) -> bool) -> usize {
        let mut runs = self.lock();
        let stopped = runs.iter_mut().filter(|live| which(live));
        stopped
            .map(|live| {
                live.stopped_by.get_or_insert(by);
                live.cancel.cancel();
            })
            .count()
    }

    /// A run printed something.
    pub(crate) fn printed(&self, id: &str, stream: GuestStream, text: &str) {
        let mut runs = self.lock();
        // Output of a run that has ended is nobody's.
        let Some(live) = runs.iter_mut().find(|live| live.run.id == id) else {
            return;
        };
        live.streams[match stream {
            GuestStream::Stdout => 0,
            GuestStream::Stderr => 1,
        }]
        .push(text);
        self.printed.notify_one();
    }

    /// Tell what runs print. Runs until it is dropped, and only while something is printed.
    pub(crate) async fn tell_output(&self) {
        loop {
            self.printed.notified().await;
            for live in self.lock().iter_mut() {
                live.tell_output(&self.events);
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    /// Change one run and tell it.
    fn change(&self, id: &str, change: impl FnOnce(&mut Run)) {
        let mut runs = self.lock();
        if let Some(live) = runs.iter_mut().find(|live| live.run.id == id) {
            change(&mut live.run);
            let run = Box::new(live.run.clone());
            self.events.tell(Change::Run { run });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Live>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveRun {
    /// Its turn has come.
    pub(crate) fn running(&self, kind: Option<SandboxKind>) {
        self.runs.change(&self.id, |run| {
            run.status = RunStatus::Running;
            run.kind = kind;
        });
    }

    /// Why it was stopped, if the user did it.
    pub(crate) fn stopped_by(&self) -> Option<StoppedBy> {
        let runs = self.runs.lock();
        let live = runs.iter().find(|live| live.run.id == self.id)?;
        live.stopped_by
    }

    /// It uses so much memory now.
    pub(crate) fn uses(&self, memory_bytes: u64) {
        let mut runs = self.runs.lock();
        let Some(live) = runs.iter_mut().find(|live| live.run.id == self.id) else {
            return;
        };
        let peak = live.run.memory_bytes_peak;
        if peak.is_none_or(|peak| peak < memory_bytes) {
            live.run.memory_bytes_peak = Some(memory_bytes);
            let run = Box::new(live.run.clone());
            self.runs.events.tell(Change::Run { run });
        }
    }

    /// The most memory that it was seen to use.
    pub(crate) fn memory_bytes_peak(&self) -> Option<u64> {
        let runs = self.runs.lock();
        let live = runs.iter().find(|live| live.run.id == self.id)?;
        live.run.memory_bytes_peak
    }

    /// A server logged something of its calls.
    pub(crate) fn logged(&self, line: LogLine) {
        let mut runs = self.runs.lock();
        let Some(live) = runs.iter_mut().find(|live| live.run.id == self.id) else {
            return;
        };
        let bytes = live.log_bytes + line.text.len();
        if live.log.len() < LOG_LINES_MAX && bytes <= LOG_BYTES_MAX {
            live.log_bytes = bytes;
            live.log.push(line);
        }
    }

    /// What was logged so far.
    pub(crate) fn log(&self) -> Vec<LogLine> {
        let runs = self.runs.lock();
        let live = runs.iter().find(|live| live.run.id == self.id);
        live.map(|live| live.log.clone()).unwrap_or_default()
    }

    /// It calls something; gives the call's number in the run.
    pub(crate) fn call_began(&self, server: &str, tool: &str, arguments: &str) -> u64 {
        let mut runs = self.runs.lock();
        let Some(live) = runs.iter_mut().find(|live| live.run.id == self.id) else {
            return 0;
        };
        live.calls_begun += 1;
        live.run.calls += 1;
        if !live.run.servers.iter().any(|known| known == server) {
            live.run.servers.push(server.to_owned());
        }
        if live.calls.len() < CALLS_MAX {
            let mut arguments = arguments.to_owned();
            cut(&mut arguments, ARGUMENTS_BYTES_MAX);
            let call = Call {
                id: live.calls_begun.to_string(),
                server: server.to_owned(),
                tool: tool.to_owned(),
                arguments,
                start_ms: live.began.elapsed().as_millis() as u64,
                state: CallState::Open,
                duration_ms: None,
                result_bytes: None,
            };
            live.calls.push(call.clone());
            self.runs.events.tell(Change::Call {
                run_id: self.id.clone(),
                call: Box::new(call),
            });
        }
        live.calls_begun
    }

    /// A call has ended; `error` says that it failed.
    pub(crate) fn call_ended(
        &self,
        number: u64,
        duration_ms: u64,
        result_bytes: Option<u64>,
        error: Option<ApiError>,
    ) {
        let mut runs = self.runs.lock();
        let Some(live) = runs.iter_mut().find(|live| live.run.id == self.id) else {
            return;
        };
        live.run.calls_failed += u32::from(error.is_some());
        // They are numbered from 1, and the first of them are kept.
        let place = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .wrapping_sub(1);
        if let Some(call) = live.calls.get_mut(place) {
            call.duration_ms = Some(duration_ms);
            call.result_bytes = result_bytes;
            call.state = match error {
                None => CallState::Done,
                Some(error) => CallState::Failed { error },
            };
            self.runs.events.tell(Change::Call {
                run_id: self.id.clone(),
                call: Box::new(call.clone()),
            });
        }
        let run = Box::new(live.run.clone());
        self.runs.events.tell(Change::Run { run });
    }

    /// Calls of it that failed so far.
    pub(crate) fn calls_failed(&self) -> u32 {
        let runs = self.runs.lock();
        let live = runs.iter().find(|live| live.run.id == self.id);
        live.map_or(0, |live| live.run.calls_failed)
    }

    /// It has ended. The record must have it by now.
    pub(crate) fn ended(&self, ended: Ended) {
        self.take(|run| {
            run.status = ended.status;
            run.servers = ended.servers;
            run.calls = u32::try_from(ended.calls).unwrap_or(u32::MAX);
            run.reply_tokens = Some(ended.reply_tokens);
            run.direct_tokens = Some(ended.direct_tokens);
        });
    }

    fn take(&self, change: impl FnOnce(&mut Run)) {
        let mut runs = self.runs.lock();
        let Some(at) = runs.iter().position(|live| live.run.id == self.id) else {
            return;
        };
        let mut live = runs.remove(at);
        live.tell_output(&self.runs.events);
        live.run.duration_ms = Some(live.began.elapsed().as_millis() as u64);
        change(&mut live.run);
        let run = Box::new(live.run);
        self.runs.events.tell(Change::Run { run });
        self.runs.events.hint(Hint::RunEnded);
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        self.take(|run| run.status = RunStatus::Interrupted);
    }
}

impl Live {
    fn tell_output(&mut self, events: &Events) {
        for (tail, stream) in self
            .streams
            .iter_mut()
            .zip([Stream::Stdout, Stream::Stderr])
        {
            if !tail.untold.is_empty() {
                events.tell(Change::RunOutput {
                    run_id: self.run.id.clone(),
                    stream,
                    text: std::mem::take(&mut tail.untold),
                });
            }
        }
    }
}

impl Tail {
    fn push(&mut self, text: &str) {
        self.kept.extend(text.as_bytes());
        if self.kept.len() > OUTPUT_BYTES_MAX {
            let over = self.kept.len() - OUTPUT_BYTES_MAX;
            let left_out = self.kept.drain(..over).filter(|byte| begins_char(*byte));
            self.left_out_chars += left_out.count() as u64;
            // What is left of a character that was cut in two counts as left out already.
            while self.kept.front().is_some_and(|byte| !begins_char(*byte)) {
                self.kept.pop_front();
            }
        }
        self.untold.push_str(text);
        if self.untold.len() > OUTPUT_BYTES_MAX {
            let mut start = self.untold.len() - OUTPUT_BYTES_MAX;
            while !self.untold.is_char_boundary(start) {
                start += 1;
            }
            self.untold.drain(..start);
        }
    }

    fn text(&self) -> String {
        let (front, back) = self.kept.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
}

fn begins_char(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

/// Cut `text` to `bytes_max` bytes at the end of a character.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let mut end = bytes_max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

/// The first line of code that says something: no comment and no import, if there is another.
pub(crate) fn title(code: &str) -> String {
    let lines = || code.lines().map(str::trim).filter(|line| !line.is_empty());
    let says_something = |line: &&str| {
        !(line.starts_with('#') || line.starts_with("import ") || line.starts_with("from "))
    };
    let line = lines().find(says_something).or_else(|| lines().next());
    line.unwrap_or_default()
        .chars()
        .take(TITLE_CHARS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_is_the_first_line_that_does_something() {
        assert_eq!(title("\n# a plan\nimport json\n  x = 1\nprint(x)"), "x = 1");
        assert_eq!(title("# only a remark"), "# only a remark");
        assert_eq!(title(""), "");
    }

    #[test]
    fn the_end_of_a_stream_is_kept_whole_and_counted() {
        let mut tail = Tail::default();
        for _ in 0..30_000 {
            tail.push("★\n");
        }
        let text = tail.text();
        assert!(text.len() <= OUTPUT_BYTES_MAX && text.starts_with(['★', '\n']));
        assert_eq!(
            text.chars().count() as u64 + tail.left_out_chars,
            60_000,
            "nothing is lost from the count"
        );
        assert!(tail.untold.len() <= OUTPUT_BYTES_MAX);
    }
}
