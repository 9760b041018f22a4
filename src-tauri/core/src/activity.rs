//! The record of runs and their calls, for the person who wants to know what was done: kept for a
//! while, bounded, and never in the way of a run.
//!
//! Texts arrive redacted. Recording only puts an event into memory; one thread owns the file and
//! writes. If the file cannot be used (disk full, damaged, held), the bridge goes on: events wait in
//! memory within bounds, the problem is reported, and the thread tries again.

mod pending;
mod rows;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde::Serialize;

use crate::api::LogLine;
use crate::output::Captured;
use crate::store::{self, StoreError};
use crate::timestamp;
use pending::Pending;

/// Bytes of code that are kept of a run.
pub const CODE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of each end of each stream of a run, of its value and of its error.
pub const OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// Bytes of a call's arguments.
pub const ARGUMENTS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of every other text: names, the summary of an error.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Most rows of one page.
pub const PAGE_ROWS_MAX: usize = 200;

/// First and longest pause after a failed write.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// How long a query waits for what was just recorded.
const QUERY_WAIT: Duration = Duration::from_millis(500);

/// An event waits this long for others before it is written: calls in a row would each cost a
/// transaction otherwise, and the processor that the next of them needs. What a crash takes with it is
/// no more than that.
const LINGER: Duration = Duration::from_millis(50);

/// Retention is applied after this many written runs.
const PRUNE_EVERY_RUNS: usize = 100;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Most runs.
    pub runs_max: usize,
    /// Longest time.
    pub days_max: u32,
    /// Largest content of the file, which bounds it where many runs have much code and output.
    pub bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            runs_max: 10_000,
            days_max: 30,
            bytes_max: 256 << 20,
        }
    }
}

/// A run that begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunStarted {
    /// As in its reply.
    pub run_id: String,
    /// The client's name.
    pub client: String,
    /// The connection that asked; unique across bridges.
    pub connection: Option<String>,
    /// The named session, if it is not the connection's own.
    pub session: Option<String>,
    /// The first line of the code that says something.
    pub title: String,
    /// The Python.
    pub code: String,
    /// Which sandbox, such as `podman (rootless)`.
    pub sandbox: String,
    /// Milliseconds since 1970.
    pub started_at: i64,
}

/// A call that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// Its number in its run, from 1.
    pub number: u64,
    /// Which server.
    pub server: String,
    /// Which tool.
    pub tool: String,
    /// Its arguments as JSON text, redacted.
    pub arguments: String,
    /// Milliseconds since 1970.
    pub started_at: i64,
    /// How long it took.
    pub duration_ms: u64,
    /// Bytes of its result as JSON.
    pub result_bytes: u64,
    /// Why it failed; `None`: it did not.
    pub error_code: Option<String>,
    /// The same in words.
    pub error: Option<String>,
}

/// A run that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunEnded {
    /// The status of its reply.
    pub status: String,
    /// What it printed.
    pub stdout: Captured,
    /// What it printed to stderr.
    pub stderr: Captured,
    /// Value of the last expression.
    pub result: Option<String>,
    /// One line on what went wrong.
    pub error: Option<String>,
    /// All that is known of it: the traceback, if there is one.
    pub error_text: Option<String>,
    /// Servers it called.
    pub servers: Vec<String>,
    /// How many calls it made.
    pub calls: u64,
    /// How many of them failed.
    pub calls_failed: u64,
    /// What servers logged of them.
    pub log: Vec<LogLine>,
    /// The kind of sandbox: `container` or `wasi`.
    pub kind: Option<String>,
    /// Tokens of the reply.
    pub reply_tokens: u64,
    /// Tokens of the results of its calls.
    pub result_tokens: u64,
    /// Tokens of the definitions of all tools that it might have called.
    pub definition_tokens: u64,
    /// The most memory that it was seen to use, where that can be measured.
    pub memory_bytes_peak: Option<u64>,
    /// Milliseconds since 1970.
    pub ended_at: i64,
}

/// One line of the list of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRow {
    /// See [`RunStarted`].
    pub run_id: String,
    /// See [`RunStarted`].
    pub client: String,
    /// See [`RunStarted`].
    pub connection: Option<String>,
    /// See [`RunStarted`].
    pub session: Option<String>,
    /// See [`RunStarted`].
    pub title: String,
    /// See [`RunStarted`].
    pub sandbox: String,
    /// See [`RunStarted`].
    pub started_at: i64,
    /// See [`RunEnded`]; `None` while it runs.
    pub ended_at: Option<i64>,
    /// `running`, or the status of its reply, or `interrupted` if the bridge died with it.
    pub status: String,
    /// See [`RunEnded`].
    pub error: Option<String>,
    /// See [`RunEnded`].
    pub servers: Vec<String>,
    /// See [`RunEnded`].
    pub calls: u64,
    /// See [`RunEnded`].
    pub calls_failed: u64,
    /// See [`RunEnded`].
    pub kind: Option<String>,
    /// See [`RunEnded`].
    pub reply_tokens: u64,
    /// See [`RunEnded`].
    pub result_tokens: u64,
    /// See [`RunEnded`].
    pub definition_tokens: u64,
    /// See [`RunEnded`].
    pub memory_bytes_peak: Option<u64>,
}

/// One run with everything that is kept of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDetail {
    /// The line in the list.
    #[serde(flatten)]
    pub row: RunRow,
    /// The Python.
    pub code: String,
    /// See [`RunEnded`].
    pub stdout: Captured,
    /// See [`RunEnded`].
    pub stderr: Captured,
    /// See [`RunEnded`].
    pub result: Option<String>,
    /// See [`RunEnded`].
    pub error_text: Option<String>,
    /// Its calls in the order they ended, the first thousand.
    pub call_list: Vec<Call>,
    /// See [`RunEnded`].
    pub log: Vec<LogLine>,
}

/// Where a page of runs begins: behind this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// Of the last row seen.
    pub started_at: i64,
    /// Of the last row seen.
    pub run_id: String,
}

/// Which runs that have ended; `None` and an empty text ask for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this client.
    pub client: Option<String>,
    /// That called this server.
    pub server: Option<String>,
    /// That ended so.
    pub status: Option<String>,
    /// Whose code or output contains this, in either case of letters.
    pub text: String,
}

/// Some runs that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Newest first.
    pub runs: Vec<RunRow>,
    /// How many there are in all.
    pub total: u64,
    /// More runs follow.
    pub more: bool,
    /// Every client with a run on record, by name.
    pub clients: Vec<String>,
}

/// Sums over the runs that ended since some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Runs.
    pub runs: u64,
    /// Calls.
    pub calls: u64,
    /// Tokens of tool definitions, once per connection.
    pub definition_tokens: u64,
    /// Tokens of results above those of the replies.
    pub results_saved_tokens: u64,
}

/// The record. Dropping it writes what is waiting, for at most two seconds.
#[derive(Debug)]
pub struct Activity {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    retention: Mutex<Retention>,
    state: Mutex<State>,
    /// Something in `state` changed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: Pending,
    /// What is being written; it counts as recorded for queries.
    writing: Arc<Pending>,
    /// The file cannot be used now.
    failure: Option<String>,
    /// Something happened that the user should know, although it works again.
    notice: Option<String>,
    /// Try again without waiting.
    hurry: bool,
    /// Apply retention with the next write.
    prune: bool,
    closing: bool,
    closed: bool,
}

impl Activity {
    /// Record into the file `path`. Never fails: see [`Activity::problem`].
    pub fn open(path: &Path, retention: Retention) -> Self {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            retention: Mutex::new(retention),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let writer = Arc::clone(&shared);
        let spawned = thread::Builder::new()
            .name("activity".to_owned())
            .spawn(move || write_until_closed(&writer));
        if let Err(error) = spawned {
            let mut state = shared.lock();
            state.failure = Some(format!(
                "cannot start the thread that writes activity: {error}"
            ));
            state.closed = true;
        }
        Self { shared }
    }

    /// A run begins.
    pub fn run_started(&self, run: RunStarted) {
        self.shared.record(|pending| pending.run_started(run));
    }

    /// A call of a running run has ended.
    pub fn call_ended(&self, run_id: &str, call: Call) {
        self.shared
            .record(|pending| pending.call_ended(run_id, call));
    }

    /// A run has ended.
    pub fn run_ended(&self, run_id: &str, end: RunEnded) {
        self.shared.record(|pending| pending.run_ended(run_id, end));
    }

    /// Keep by these bounds from now on. What is too old or too much goes with the next runs.
    pub fn set_retention(&self, retention: Retention) {
        let mut kept = self.shared.retention.lock();
        let kept = kept
            .as_deref_mut()
            .unwrap_or_else(|poisoned| poisoned.get_mut());
        if *kept != retention {
            *kept = retention;
            self.shared.lock().prune = true;
        }
    }

    /// A memory item was loaded.
    pub fn memory_used(&self, key: &str, at: i64) {
        self.shared.record(|pending| pending.memory_used(key, at));
    }

    /// When memory items were last loaded, by key, as far as that is on record. Blocks.
    pub fn memory_uses(&self) -> HashMap<String, i64> {
        let stored = self.shared.open_to_read().ok().flatten();
        let stored = stored.and_then(|connection| rows::memory_uses(&connection).ok());
        let mut uses = stored.unwrap_or_default();
        let state = self.shared.lock();
        for pending in [&*state.writing, &state.pending] {
            uses.extend(pending.memory_uses());
        }
        uses
    }

    /// What the user should know about the record; `None`: all is well.
    pub fn problem(&self) -> Option<String> {
        let state = self.shared.lock();
        let failure = state.failure.as_ref().map(|reason| {
            let lost = match state.pending.lost() {
                0 => String::new(),
                lost => format!(", {lost} older runs are lost"),
            };
            format!(
                "activity is not being written: {reason}; the newest runs are kept in memory{lost}"
            )
        });
        failure.or_else(|| state.notice.clone())
    }

    /// Runs, newest first, at most `rows` and [`PAGE_ROWS_MAX`]. Blocks.
    pub fn recent_runs(
        &self,
        after: Option<&After>,
        rows: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let rows = rows.min(PAGE_ROWS_MAX);
        let mut page = match self.shared.open_to_read()? {
            Some(connection) => rows::recent(&connection, after, rows)
                .map_err(store::failed("read", &self.shared.path))?,
            None => Vec::new(),
        };
        {
            let state = self.shared.lock();
            for pending in [&*state.writing, &state.pending] {
                pending.apply_to_page(after, &mut page);
            }
        }
        page.sort_by(|a, b| (b.started_at, &b.run_id).cmp(&(a.started_at, &a.run_id)));
        page.truncate(rows);
        Ok(page)
    }

    /// Runs that have ended and that `filter` lets through, newest first. Blocks.
    pub fn page(
        &self,
        filter: &Filter,
        after: Option<&After>,
        rows: usize,
    ) -> Result<Page, StoreError> {
        let rows = rows.min(PAGE_ROWS_MAX);
        let mut page = match self.shared.open_to_read()? {
            Some(connection) => rows::page(&connection, filter, after, rows)
                .map_err(store::failed("read", &self.shared.path))?,
            None => Page::default(),
        };
        // Only what could not be written is still in memory; it is newer than all that was.
        let state = self.shared.lock();
        for pending in [&*state.writing, &state.pending] {
            for detail in pending.ended() {
                if page.runs.iter().any(|row| row.run_id == detail.row.run_id)
                    || !filter.accepts(&detail)
                {
                    continue;
                }
                page.total += 1;
                if !page.clients.contains(&detail.row.client) {
                    page.clients.push(detail.row.client.clone());
                }
                if after.is_none() {
                    page.runs.push(detail.row);
                }
            }
        }
        drop(state);
        page.runs
            .sort_by(|a, b| (b.started_at, &b.run_id).cmp(&(a.started_at, &a.run_id)));
        page.more |= page.runs.len() > rows;
        page.runs.truncate(rows);
        page.clients.sort();
        Ok(page)
    }

    /// Sums over the runs that were asked for at `since` or later. Blocks.
    pub fn sums(&self, since: i64) -> Result<Sums, StoreError> {
        match self.shared.open_to_read()? {
            Some(connection) => {
                rows::sums(&connection, since).map_err(store::failed("read", &self.shared.path))
            }
            None => Ok(Sums::default()),
        }
    }

    /// Calls of each server since some time. Blocks.
    pub fn calls_by_server(&self, since: i64) -> Result<Vec<(String, u64)>, StoreError> {
        match self.shared.open_to_read()? {
            Some(connection) => rows::calls_by_server(&connection, since)
                .map_err(store::failed("read", &self.shared.path)),
            None => Ok(Vec::new()),
        }
    }

    /// Whether any run has ever ended well. Blocks.
    pub fn any_success(&self) -> Result<bool, StoreError> {
        match self.shared.open_to_read()? {
            Some(connection) => {
                rows::any_success(&connection).map_err(store::failed("read", &self.shared.path))
            }
            None => Ok(false),
        }
    }

    /// Forget every run that has ended. Blocks.
    pub fn clear(&self) -> Result<(), StoreError> {
        self.shared.flush(QUERY_WAIT);
        let (connection, _) = store::open_or_set_aside(&self.shared.path, rows::MIGRATIONS)?;
        rows::clear(&connection).map_err(store::failed("write", &self.shared.path))
    }

    /// One run with its calls. Blocks.
    pub fn run(&self, run_id: &str) -> Result<Option<RunDetail>, StoreError> {
        let mut detail = match self.shared.open_to_read()? {
            Some(connection) => rows::detail(&connection, run_id)
                .map_err(store::failed("read", &self.shared.path))?,
            None => None,
        };
        let state = self.shared.lock();
        for pending in [&*state.writing, &state.pending] {
            pending.apply_to_detail(run_id, &mut detail);
        }
        Ok(detail)
    }

    /// Wait until everything recorded so far is written; `false`: it was not within the time.
    /// Blocks.
    pub fn flush(&self, within: Duration) -> bool {
        self.shared.flush(within)
    }
}

impl Filter {
    fn accepts(&self, detail: &RunDetail) -> bool {
        let row = &detail.row;
        let wanted = self.text.to_lowercase();
        let contains = |text: &str| text.to_lowercase().contains(&wanted);
        self.client
            .as_ref()
            .is_none_or(|client| *client == row.client)
            && self
                .server
                .as_ref()
                .is_none_or(|server| row.servers.contains(server))
            && self
                .status
                .as_ref()
                .is_none_or(|status| *status == row.status)
            && (wanted.is_empty()
                || contains(&detail.code)
                || contains(&detail.stdout.head)
                || contains(&detail.stdout.tail)
                || contains(&detail.stderr.head)
                || contains(&detail.stderr.tail))
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(2);
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.changed.notify_all();
        while !state.closed {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return;
            };
            state = self.shared.wait(state, Some(left));
        }
    }
}

impl Shared {
    fn record(&self, event: impl FnOnce(&mut Pending)) {
        let mut state = self.lock();
        let is_first = state.pending.is_empty();
        event(&mut state.pending);
        drop(state);
        // The thread looks again by itself for those that join the first.
        if is_first {
            self.changed.notify_all();
        }
    }

    fn retention(&self) -> Retention {
        *self
            .retention
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut state = self.lock();
        state.hurry = true;
        self.changed.notify_all();
        while !(state.pending.is_empty() && state.writing.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed {
                return false;
            }
            state = self.wait(state, Some(left));
        }
        true
    }

    /// A connection for a query that sees what was just recorded, as far as that can be written.
    fn open_to_read(&self) -> Result<Option<Connection>, StoreError> {
        if self.lock().failure.is_some() {
            // What is in memory is better than an error.
            return Ok(store::open_to_read(&self.path).unwrap_or_default());
        }
        self.flush(QUERY_WAIT);
        store::open_to_read(&self.path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every holder leaves the state whole, also one that panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        at_most: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match at_most {
            Some(time) => {
                self.changed
                    .wait_timeout(state, time)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The thread that owns the file.
fn write_until_closed(shared: &Shared) {
    let mut file = None;
    let mut pause = RETRY_PAUSES.0;
    let mut written_since_pruning = PRUNE_EVERY_RUNS;
    loop {
        let mut state = shared.lock();
        while state.pending.is_empty() && !state.closing {
            state = shared.wait(state, None);
        }
        if state.pending.is_empty() {
            state.closed = true;
            shared.changed.notify_all();
            return;
        }
        let until = Instant::now() + LINGER;
        while !state.hurry && !state.closing {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                break;
            };
            state = shared.wait(state, Some(left));
        }
        state.hurry = false;
        let batch = Arc::new(std::mem::take(&mut state.pending));
        state.writing = Arc::clone(&batch);
        drop(state);

        let done = write(shared, &mut file, &batch);
        let mut state = shared.lock();
        state.writing = Arc::default();
        match done {
            Ok(()) => {
                state.failure = None;
                pause = RETRY_PAUSES.0;
                written_since_pruning += batch.runs();
            }
            Err(error) => {
                file = None;
                state.failure = Some(error.to_string());
                state.pending.put_back(Arc::unwrap_or_clone(batch));
                if state.closing {
                    state.closed = true;
                    shared.changed.notify_all();
                    return;
                }
                shared.changed.notify_all();
                let until = Instant::now() + pause;
                pause = (pause * 2).min(RETRY_PAUSES.1);
                while !state.hurry && !state.closing {
                    let Some(left) = until.checked_duration_since(Instant::now()) else {
                        break;
                    };
                    state = shared.wait(state, Some(left));
                }
                continue;
            }
        }
        if std::mem::take(&mut state.prune) {
            written_since_pruning = PRUNE_EVERY_RUNS;
        }
        drop(state);
        shared.changed.notify_all();
        if written_since_pruning >= PRUNE_EVERY_RUNS
            && let Some(connection) = &mut file
        {
            written_since_pruning = 0;
            if let Err(error) = rows::prune(connection, shared.retention(), timestamp::now_ms()) {
                tracing::warn!(%error, "cannot remove old activity");
            }
        }
    }
}

fn write(
    shared: &Shared,
    file: &mut Option<Connection>,
    batch: &Pending,
) -> Result<(), StoreError> {
    let failed = store::failed("write", &shared.path);
    let mut connection = match file.take() {
        Some(connection) => connection,
        None => open_file(shared)?,
    };
    let mut done = rows::write(&mut connection, batch).map_err(&failed);
    if done.as_ref().is_err_and(StoreError::is_damage) {
        // The connection holds the damaged file open; let go of it first.
        drop(connection);
        connection = open_file(shared)?;
        done = rows::write(&mut connection, batch).map_err(&failed);
    }
    *file = Some(connection);
    done
}

fn open_file(shared: &Shared) -> Result<Connection, StoreError> {
    let (connection, aside) = store::open_or_set_aside(&shared.path, rows::MIGRATIONS)?;
    if let Some(aside) = aside {
        let notice = format!(
            "the activity record `{}` was damaged; it is kept as `{}` and a new one was begun",
            shared.path.display(),
            aside.display()
        );
        tracing::warn!("{notice}");
        shared.lock().notice = Some(notice);
    }
    rows::mark_interrupted(&connection, timestamp::now_ms())
        .map_err(store::failed("write", &shared.path))?;
    Ok(connection)
}
