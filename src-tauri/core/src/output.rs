//! What runs print, kept within bounds: the beginning and the end of each stream in memory for the
//! reply, the uncut text in an unnamed temporary file for `runtime.output(run_id, start, end)`.
//!
//! Knows nothing of replies or guests. Text is redacted and decoded on the way in: bytes that are
//! not UTF-8 become `\xNN`, so that nothing is lost and nothing is guessed. Positions count Unicode
//! characters of the *whole text* of a run: stdout, then what the reply puts between, stderr, the
//! rest of the reply, and last what its threads and tasks printed after it had ended.
//!
//! The temporary files have no name (on Unix) or vanish when closed (on Windows), so a killed
//! process leaves none.

mod segment;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runbridge_sandbox::{OutputSink, Stream};
use serde::Serialize;

use crate::redact::{RedactStream, Redactor};
use segment::{Decoder, Segment};
pub(crate) use segment::{first_chars, last_chars};

/// Most characters of one [`ConnectionOutputs::read`]; with JSON's escapes they fit a frame.
pub const READ_CHARS_MAX: u64 = 4_000_000;

/// Text is written to the file in pieces of about this size. Each piece is also an entry of the
/// index from characters to bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// The bounds of kept output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Characters of each stream's beginning and of its end that are kept in memory: the cap of a
    /// reply, so that any cut of it can be made.
    pub edge_chars_max: usize,
    /// A run with less text than this needs no file.
    pub memory_bytes_max: usize,
    /// Text of one run in its file; beyond it only the beginning and the end are known.
    pub run_bytes_max: u64,
    /// Text of all runs in files; beyond it the oldest finished runs are forgotten.
    pub all_bytes_max: u64,
    /// Runs kept per connection; beyond it the oldest is forgotten.
    pub runs_max: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            edge_chars_max: 20_000,
            memory_bytes_max: 256 * 1024,
            run_bytes_max: 64 << 20,
            all_bytes_max: 256 << 20,
            runs_max: 32,
        }
    }
}

/// The beginning and the end of a text. `omitted` characters are between them; if there are none,
/// `head` is the whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Captured {
    /// The beginning.
    pub head: String,
    /// The end.
    pub tail: String,
    /// Characters between.
    pub omitted: u64,
}

impl From<&str> for Captured {
    fn from(whole: &str) -> Self {
        Self {
            head: whole.to_owned(),
            ..Self::default()
        }
    }
}

/// Both streams of a run that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    /// stdout
    pub stdout: Captured,
    /// stderr
    pub stderr: Captured,
}

/// A part of a run's whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputText {
    /// The characters asked for, as far as there are any.
    pub text: String,
    /// Number of characters in the whole text.
    pub chars: u64,
}

/// Why output cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// No such run, or it is no longer kept.
    #[error("the output of run {run} is not kept; the newest {runs_max} runs are, as long as their output together is less than {} MiB", all_bytes_max >> 20)]
    Unknown {
        /// As in the reply.
        run: String,
        /// The bound that may have removed it.
        runs_max: usize,
        /// The other one.
        all_bytes_max: u64,
    },
    /// Too much at once.
    #[error(
        "{chars} characters are too many to read at once, at most {READ_CHARS_MAX}; read them in parts"
    )]
    TooMuch {
        /// How many were asked for.
        chars: u64,
    },
    /// This part was over the bound of one run.
    #[error("characters from {from} on are not kept for this stream: {reason}")]
    NotKept {
        /// Position in the whole text.
        from: u64,
        /// Which bound or failure.
        reason: String,
    },
    /// The file cannot be read.
    #[error("cannot read kept output: {0}")]
    Io(#[from] io::Error),
}

/// Hears what runs print while they run: the run, the stream, the redacted text. Must not block.
pub type Heard = Arc<dyn Fn(u64, Stream, &str) + Send + Sync>;

/// The output of all runs of all connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outputs(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    limits: OutputLimits,
    /// In place of `limits.edge_chars_max`, which can change.
    edge_chars_max: AtomicUsize,
    heard: Option<Heard>,
    next_connection: AtomicU64,
    kept: Mutex<Kept>,
}

/// Runs in the order of their beginnings. A handful per connection, and the newest are wanted, so
/// they are searched from the back.
#[derive(Debug, Default)]
struct Kept {
    runs: VecDeque<KeptRun>,
}

#[derive(Clone, Debug)]
struct KeptRun {
    connection: u64,
    run: u64,
    /// Bytes in its file and whether it has ended, readable without its lock.
    spooled: Arc<AtomicU64>,
    ended: bool,
    output: Arc<Mutex<RunOutput>>,
}

impl Outputs {
    /// Keep output in files under `folder`, which is created when the first file is.
    pub fn new(folder: &Path, limits: OutputLimits) -> Self {
        Self::told(folder, limits, None)
    }

    /// The same; `heard` is told everything as it comes.
    pub fn telling(folder: &Path, limits: OutputLimits, heard: Heard) -> Self {
        Self::told(folder, limits, Some(heard))
    }

    fn told(folder: &Path, limits: OutputLimits, heard: Option<Heard>) -> Self {
        Self(Arc::new(Inner {
            folder: folder.to_owned(),
            limits,
            edge_chars_max: AtomicUsize::new(limits.edge_chars_max),
            heard,
            next_connection: AtomicU64::new(0),
            kept: Mutex::default(),
        }))
    }

    /// Keep ends of this length of what is printed from now on.
    pub fn keep_edges(&self, chars: usize) {
        self.0.edge_chars_max.store(chars, Ordering::Relaxed);
    }

    /// The place for one connection's output; it cannot read another's.
    pub fn connection(&self) -> ConnectionOutputs {
        let connection = self.0.next_connection.fetch_add(1, Ordering::Relaxed);
        ConnectionOutputs {
            inner: Arc::clone(&self.0),
            connection,
        }
    }
}

/// The output of one connection's runs. Dropping it forgets them.
#[derive(Debug)]
pub struct ConnectionOutputs {
    inner: Arc<Inner>,
    connection: u64,
}

impl ConnectionOutputs {
    /// Expect output of `run`. Without this, what arrives for it is dropped.
    pub fn begin(&self, run: u64, redactor: &Arc<Redactor>) {
        let mut kept = lock(&self.inner.kept);
        let mine = kept
            .runs
            .iter()
            .filter(|kept| kept.connection == self.connection)
            .count();
        if mine >= self.inner.limits.runs_max
            && let Some(oldest) = kept
                .runs
                .iter()
                .position(|kept| kept.connection == self.connection && kept.ended)
        {
            kept.runs.remove(oldest);
        }
        kept.runs.push_back(KeptRun {
            connection: self.connection,
            run,
            spooled: Arc::default(),
            ended: false,
            output: Arc::new(Mutex::new(RunOutput::new(run, self.inner.edge(), redactor))),
        });
    }

    /// A sink for the runs of this connection. Writing blocks only as long as writing to a file
    /// does that the system buffers.
    pub fn sink(&self) -> ConnectionSink {
        ConnectionSink {
            inner: Arc::clone(&self.inner),
            connection: self.connection,
        }
    }

    /// `run` has ended: what it printed. Later output of it is kept behind everything else.
    pub fn finish(&self, run: u64) -> Captures {
        let Some(found) = self.inner.find(self.connection, run, true) else {
            return Captures::default();
        };
        let mut output = lock(&found.output);
        for stream in [Stream::Stdout, Stream::Stderr] {
            output.flush(stream, &self.inner, &found.spooled);
        }
        output.ended = true;
        Captures {
            stdout: output.segments[0].captured(output.edge_chars_max),
            stderr: output.segments[1].captured(output.edge_chars_max),
        }
    }

    /// What `run`, which goes on, has printed so far.
    pub fn so_far(&self, run: u64) -> Captures {
        let Some(found) = self.inner.find(self.connection, run, false) else {
            return Captures::default();
        };
        let output = lock(&found.output);
        Captures {
            stdout: output.segments[0].captured(output.edge_chars_max),
            stderr: output.segments[1].captured(output.edge_chars_max),
        }
    }

    /// Complete the whole text of `run` as the reply shows it: what it puts between the streams, and
    /// what follows them.
    pub fn seal(&self, run: u64, between: &str, after: &str) {
        let Some(found) = self.inner.find(self.connection, run, false) else {
            return;
        };
        let mut output = lock(&found.output);
        between.clone_into(&mut output.between);
        output.append(Part::After, after, &self.inner, &found.spooled);
    }

    /// Characters `start` up to, not including, `end` of the whole text of `run`. Positions beyond
    /// its end are no error, as in a Python slice.
    pub fn read(&self, run: u64, start: u64, end: u64) -> Result<OutputText, OutputError> {
        let limits = self.inner.limits;
        let found = self
            .inner
            .find(self.connection, run, false)
            .ok_or_else(|| OutputError::Unknown {
                run: run_name(run),
                runs_max: limits.runs_max,
                all_bytes_max: limits.all_bytes_max,
            })?;
        let mut output = lock(&found.output);
        let end = end.min(output.chars());
        let asked = end.saturating_sub(start);
        if asked > READ_CHARS_MAX {
            return Err(OutputError::TooMuch { chars: asked });
        }
        output.read(start, end)
    }
}

impl Drop for ConnectionOutputs {
    fn drop(&mut self) {
        lock(&self.inner.kept)
            .runs
            .retain(|kept| kept.connection != self.connection);
    }
}

/// See [`ConnectionOutputs::sink`].
#[derive(Debug)]
pub struct ConnectionSink {
    inner: Arc<Inner>,
    connection: u64,
}

impl OutputSink for ConnectionSink {
    fn write(&mut self, run: u64, stream: Stream, bytes: &[u8]) {
        if let Some(found) = self.inner.find(self.connection, run, false) {
            lock(&found.output).write(stream, bytes, &self.inner, &found.spooled);
        }
    }
}

/// How replies and `runtime.output` spell the id of a run.
pub fn run_name(run: u64) -> String {
    format!("{run:016x}")
}

/// The id that [`run_name`] spelled.
pub fn run_of_name(name: &str) -> Option<u64> {
    // The parser alone would take a sign.
    let digits = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outputs")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn edge(&self) -> usize {
        self.edge_chars_max.load(Ordering::Relaxed)
    }

    fn tell(&self, run: u64, part: Part, text: &str) {
        let stream = match part {
            Part::Stdout => Stream::Stdout,
            Part::Stderr => Stream::Stderr,
            Part::After | Part::Late => return,
        };
        if let Some(heard) = &self.heard {
            heard(run, stream, text);
        }
    }

    fn find(&self, connection: u64, run: u64, ends: bool) -> Option<KeptRun> {
        let mut kept = lock(&self.kept);
        let found = kept
            .runs
            .iter_mut()
            .rev()
            .find(|kept| kept.connection == connection && kept.run == run)?;
        found.ended |= ends;
        Some(found.clone())
    }

    /// Make room for `bytes` in files by forgetting finished runs, oldest first; tells whether there
    /// is room.
    fn make_room(&self, bytes: u64, for_run: &Arc<AtomicU64>) -> bool {
        let mut kept = lock(&self.kept);
        loop {
            let spooled: u64 = kept
                .runs
                .iter()
                .map(|kept| kept.spooled.load(Ordering::Relaxed))
                .sum();
            if spooled + bytes <= self.limits.all_bytes_max {
                return true;
            }
            let oldest = kept.runs.iter().position(|kept| {
                kept.ended
                    && kept.spooled.load(Ordering::Relaxed) > 0
                    && !Arc::ptr_eq(&kept.spooled, for_run)
            });
            match oldest {
                Some(oldest) => drop(kept.runs.remove(oldest)),
                None => return false,
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Part {
    Stdout,
    Stderr,
    After,
    Late,
}

/// All text of one run.
#[derive(Debug)]
struct RunOutput {
    run: u64,
    /// Of its whole time.
    edge_chars_max: usize,
    /// Per stream.
    redact: [RedactStream; 2],
    /// Per stream.
    decoders: [Decoder; 2],
    /// Per [`Part`].
    segments: [Segment; 4],
    /// What the reply puts between stdout and stderr.
    between: String,
    file: Option<File>,
    ended: bool,
}

impl RunOutput {
    fn new(run: u64, edge_chars_max: usize, redactor: &Arc<Redactor>) -> Self {
        Self {
            run,
            edge_chars_max,
            redact: [redactor.stream(), redactor.stream()],
            decoders: Default::default(),
            segments: Default::default(),
            between: String::new(),
            file: None,
            ended: false,
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8], inner: &Inner, spooled: &Arc<AtomicU64>) {
        let at = index(stream);
        // In slices, so that a write of many megabytes needs no second buffer of that size.
        for slice in bytes.chunks(PIECE_BYTES) {
            let text = self.decoders[at].push(&self.redact[at].push(slice));
            self.append(self.part(stream), &text, inner, spooled);
        }
    }

    /// Take what redaction and decoding still hold back.
    fn flush(&mut self, stream: Stream, inner: &Inner, spooled: &Arc<AtomicU64>) {
        let at = index(stream);
        let rest = self.redact[at].finish();
        let mut text = self.decoders[at].push(&rest);
        text.push_str(&self.decoders[at].finish());
        self.append(self.part(stream), &text, inner, spooled);
    }

    fn part(&self, stream: Stream) -> Part {
        match stream {
            _ if self.ended => Part::Late,
            Stream::Stdout => Part::Stdout,
            Stream::Stderr => Part::Stderr,
        }
    }

    fn append(&mut self, part: Part, text: &str, inner: &Inner, spooled: &Arc<AtomicU64>) {
        if text.is_empty() {
            return;
        }
        inner.tell(self.run, part, text);
        self.segments[part as usize].append(text, self.edge_chars_max);
        let in_memory: usize = self.segments.iter().map(Segment::pending_bytes).sum();
        let full = in_memory > inner.limits.memory_bytes_max;
        for at in 0..self.segments.len() {
            let pending = self.segments[at].pending_bytes();
            if pending > 0 && (full || self.file.is_some() && pending >= PIECE_BYTES) {
                self.spool(at, inner, spooled);
            }
        }
    }

    /// Move the pending text of a segment to the file, or drop it with the reason why.
    fn spool(&mut self, at: usize, inner: &Inner, spooled: &Arc<AtomicU64>) {
        let bytes = self.segments[at].pending_bytes() as u64;
        let offset = spooled.load(Ordering::Relaxed);
        let limits = inner.limits;
        if offset + bytes > limits.run_bytes_max {
            let reason = format!(
                "a run's output is kept up to {} MiB",
                limits.run_bytes_max >> 20
            );
            return self.segments[at].lose_pending(reason);
        }
        if !inner.make_room(bytes, spooled) {
            let reason = format!(
                "the output of all runs is kept up to {} MiB",
                limits.all_bytes_max >> 20
            );
            return self.segments[at].lose_pending(reason);
        }
        match self.write_pending(at, offset, &inner.folder) {
            Ok(()) => {
                self.segments[at].pending_is_at(offset);
                spooled.store(offset + bytes, Ordering::Relaxed);
            }
            Err(error) => {
                let reason = format!("writing to `{}` failed: {error}", inner.folder.display());
                self.segments[at].lose_pending(reason);
            }
        }
    }

    fn write_pending(&mut self, at: usize, offset: u64, folder: &Path) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                crate::atomic::create_folder(folder)?;
                none.insert(tempfile::tempfile_in(folder)?)
            }
        };
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(self.segments[at].pending().as_bytes())
    }

    fn chars(&self) -> u64 {
        self.segments.iter().map(Segment::chars).sum::<u64>() + self.between.chars().count() as u64
    }

    /// Characters `start..end` of the whole text; `end` is within it.
    fn read(&mut self, start: u64, end: u64) -> Result<OutputText, OutputError> {
        let mut text = String::new();
        let mut base = 0;
        for at in 0..self.segments.len() {
            if at == Part::Stderr as usize {
                let chars = self.between.chars().count() as u64;
                let from = start.saturating_sub(base).min(chars);
                let to = end.saturating_sub(base).min(chars);
                text.extend(
                    self.between
                        .chars()
                        .skip(from as usize)
                        .take(to.saturating_sub(from) as usize),
                );
                base += chars;
            }
            let segment = &self.segments[at];
            let from = start.saturating_sub(base);
            let to = end.saturating_sub(base).min(segment.chars());
            if from < to {
                segment
                    .read(from, to, self.file.as_mut(), &mut text)
                    .map_err(|error| match error {
                        OutputError::NotKept { from, reason } => OutputError::NotKept {
                            from: base + from,
                            reason,
                        },
                        other => other,
                    })?;
            }
            base += segment.chars();
        }
        Ok(OutputText { text, chars: base })
    }
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every holder leaves the value whole, also one that panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
