//! Drive one guest: runs in, output and calls out, cancel, deadline. Knows frames and time, and
//! nothing of engines.
//!
//! One task owns the guest for its whole life, so that a guest that talks or dies between two runs
//! is heard. A second task writes to it, so that a guest that does not read never keeps the first
//! from reading.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::frame::{self, Frame, Kind};
use crate::mounts::{Mounting, Mounts};
use crate::{CallError, CallHandler, Gauge, SandboxError};

/// Calls of one guest that are answered at the same time, whatever they are for. Above it the guest
/// is not read from; the bound on tool calls is the handler's and far lower.
const CALLS_AT_ONCE_MAX: usize = 2048;

/// Images that one run shows, beside the bound on their bytes: an image may be of no bytes at all.
const IMAGES_MAX: usize = 256;

/// Bytes of parameters that calls under way may hold; as above.
const CALL_BYTES_AT_ONCE_MAX: usize = 2 * frame::PAYLOAD_BYTES_MAX;

/// Messages waiting to be written to a guest that reads slowly.
const WRITES_WAITING_MAX: usize = 64;

/// Between two looks at whether the time of a run goes on.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A started guest, as a backend hands it over: its two byte streams and the way to end it.
pub struct Guest {
    /// Frames to the guest.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// Bytes of the guest's frame stream, in pieces of any size. The channel closes when the guest
    /// has ended.
    pub output: tokio::sync::mpsc::Receiver<Bytes>,
    /// Ends the guest and removes all of it; tells how it ended. May be called once the guest ended
    /// by itself; idempotent.
    pub end: Box<dyn FnOnce(bool) -> BoxFuture<'static, GuestExit> + Send>,
    /// Measures what it uses, where the backend can.
    pub gauge: Option<Gauge>,
    /// How files come into its `/packages` while it lives.
    pub mounting: Mounting,
}

/// How a guest ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestExit {
    /// The exit status of the Python process; 128 + signal where a signal ended it.
    pub code: Option<i64>,
    /// The engine or the kernel ended it for memory.
    pub out_of_memory: bool,
    /// The last bytes of what it wrote to its raw stderr before frames began.
    pub stderr_tail: String,
}

/// What a guest tells of itself when it is ready.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct GuestHello {
    /// `3.14.0`
    pub python: String,
    /// Effective user id inside.
    pub uid: u32,
    /// Resource limits the runner could set by itself, by name, in bytes or counts.
    #[serde(default)]
    pub rlimits: serde_json::Map<String, serde_json::Value>,
}

/// Which stream a piece of output belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// stdout
    Stdout,
    /// stderr
    Stderr,
}

/// Where output of an interpreter goes as it arrives. Called from the task that drives the guest;
/// must not block.
pub trait OutputSink: Send + 'static {
    /// Bytes that `run` printed. `run` may be an earlier run of the same interpreter, whose task or
    /// thread still prints.
    fn write(&mut self, run: u64, stream: Stream, bytes: &[u8]);
}

/// One execution to do.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Unguessable; it names the run in every frame.
    pub id: u64,
    /// Python source.
    pub code: String,
    /// What tracebacks call the source, such as `<run 3>`.
    pub file_name: String,
    /// What the guest's API needs to know: servers this run may call, saved tools.
    pub context: serde_json::Value,
    /// Wall-clock limit, without the time that calls wait for a person.
    pub run_ms_max: u64,
    /// How long an interrupted run may take to stop before the guest is killed.
    pub grace_ms_max: u64,
    /// Bytes of images the run may show; more are refused inside the guest.
    pub images_bytes_max: usize,
}

/// An image that the code showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Such as `image/png`.
    pub mime_type: String,
    /// The encoded picture.
    pub data: Bytes,
}

/// An exception that nothing caught.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct PythonError {
    /// `ValueError`
    pub r#type: String,
    /// `str()` of it.
    pub message: String,
    /// Traceback of the user's frames, with source lines.
    pub traceback: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The code ran to its end, or raised; see [`RunOutcome::error`] and [`RunOutcome::exit_code`].
    Finished,
    /// The deadline came. `killed`: the interrupt did not help, the guest and its variables are gone.
    TimedOut {
        /// The guest is gone.
        killed: bool,
    },
    /// The caller cancelled; as [`RunEnd::TimedOut`].
    Cancelled {
        /// The guest is gone.
        killed: bool,
    },
    /// The guest was ended for memory.
    OutOfMemory,
    /// The guest ended by itself in mid-run.
    Died(GuestExit),
    /// The guest broke the protocol and was ended.
    Violated(String),
}

/// Everything a run gave, but its text output, which went to the [`OutputSink`].
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// How it ended.
    pub end: RunEnd,
    /// `repr` of the last expression, unless `None`.
    pub result: Option<String>,
    /// The exception that ended it.
    pub error: Option<PythonError>,
    /// Argument of `SystemExit`.
    pub exit_code: Option<i64>,
    /// Images in the order they were shown.
    pub images: Vec<Image>,
    /// Remarks of the guest for the reply, such as a coroutine that was never awaited.
    pub notes: Vec<String>,
}

/// A live guest with its variables. Dropping it ends the guest.
pub struct Interpreter {
    commands: mpsc::Sender<Command>,
    hello: GuestHello,
    exit: watch::Receiver<Option<GuestExit>>,
    gauge: Option<Gauge>,
    mounts: Mounts,
}

enum Command {
    Run(Box<RunCommand>),
    End,
}

struct RunCommand {
    request: RunRequest,
    calls: Arc<dyn CallHandler>,
    cancel: CancellationToken,
    done: oneshot::Sender<RunOutcome>,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interpreter")
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

impl Interpreter {
    /// Wait until `guest` says that it is ready. Everything it ever prints goes to `sink`.
    ///
    /// # Errors
    /// [`SandboxError::GuestStart`] when it ends, breaks the protocol or stays silent for `within`.
    pub async fn attach(
        mut guest: Guest,
        sink: Box<dyn OutputSink>,
        within: Duration,
    ) -> Result<Self, SandboxError> {
        let mut buffer = BytesMut::new();
        let hello = tokio::time::timeout(within, hello(&mut guest.output, &mut buffer)).await;
        let reason = match hello {
            Ok(Ok(hello)) => {
                let (commands, inbox) = mpsc::channel(1);
                let (exit_sender, exit) = watch::channel(None);
                let (writes, to_write) = mpsc::channel(WRITES_WAITING_MAX);
                tokio::spawn(write_frames(guest.input, to_write));
                let mounts = Mounts::new(guest.mounting, writes.downgrade());
                let driver = Driver {
                    output: guest.output,
                    end: Some(guest.end),
                    writes,
                    buffer,
                    sink,
                    tasks: JoinSet::new(),
                    calls: HashMap::new(),
                    call_bytes: Arc::default(),
                };
                tokio::spawn(driver.live(inbox, exit_sender));
                return Ok(Self {
                    commands,
                    hello,
                    exit,
                    gauge: guest.gauge,
                    mounts,
                });
            }
            Ok(Err(reason)) => reason,
            Err(_) => format!("it gave no sign of life for {} s", within.as_secs()),
        };
        let exit = (guest.end)(true).await;
        let tail = exit.stderr_tail.trim();
        let reason = if tail.is_empty() {
            reason
        } else {
            format!("{reason}: {tail}")
        };
        Err(SandboxError::GuestStart { reason })
    }

    /// What the guest said of itself.
    pub fn hello(&self) -> &GuestHello {
        &self.hello
    }

    /// Measures what the guest uses, where its backend can.
    pub fn gauge(&self) -> Option<Gauge> {
        self.gauge.clone()
    }

    /// The way to give it another package.
    pub fn mounts(&self) -> Mounts {
        self.mounts.clone()
    }

    /// Whether it can take another run.
    pub fn is_alive(&self) -> bool {
        self.exit.borrow().is_none() && !self.commands.is_closed()
    }

    /// Execute one run. Returns at the latest a grace and the time of a kill after the deadline or
    /// after `cancel`. Dropping the future does not stop the run; cancel it instead.
    pub async fn run(
        &mut self,
        request: RunRequest,
        calls: Arc<dyn CallHandler>,
        cancel: CancellationToken,
    ) -> RunOutcome {
        let (done, outcome) = oneshot::channel();
        let command = Command::Run(Box::new(RunCommand {
            request,
            calls,
            cancel,
            done,
        }));
        if self.commands.send(command).await.is_ok()
            && let Ok(outcome) = outcome.await
        {
            return outcome;
        }
        RunOutcome::ended(RunEnd::Died(self.exit.borrow().clone().unwrap_or_default()))
    }

    /// End the guest and wait until nothing of it is left.
    pub async fn end(mut self) -> GuestExit {
        // A guest that has ended already takes no command; its exit is known then.
        let _ = self.commands.send(Command::End).await;
        match self.exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_default(),
            Err(_) => GuestExit::default(),
        }
    }
}

impl RunOutcome {
    fn ended(end: RunEnd) -> Self {
        Self {
            end,
            result: None,
            error: None,
            exit_code: None,
            images: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Read up to the guest's greeting, and no further.
async fn hello(
    output: &mut mpsc::Receiver<Bytes>,
    buffer: &mut BytesMut,
) -> Result<GuestHello, String> {
    loop {
        match frame::decode(buffer) {
            Ok(Some(Frame {
                kind: Kind::Hello,
                payload,
                ..
            })) => {
                return serde_json::from_slice(&payload)
                    .map_err(|error| format!("its greeting is malformed: {error}"));
            }
            Ok(Some(frame)) => return Err(format!("it sent {:?} before its greeting", frame.kind)),
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
        match output.recv().await {
            Some(bytes) => buffer.extend_from_slice(&bytes),
            None => return Err("it ended at once".to_owned()),
        }
    }
}

async fn write_frames(
    mut input: Box<dyn AsyncWrite + Send + Unpin>,
    mut to_write: mpsc::Receiver<BytesMut>,
) {
    while let Some(bytes) = to_write.recv().await {
        let written = async {
            input.write_all(&bytes).await?;
            input.flush().await
        };
        // A guest that no longer takes input has ended or is about to: its output says so.
        if written.await.is_err() {
            return;
        }
    }
    let _ = input.shutdown().await;
}

/// What the driving task owns.
struct Driver {
    output: mpsc::Receiver<Bytes>,
    end: Option<Box<dyn FnOnce(bool) -> BoxFuture<'static, GuestExit> + Send>>,
    writes: mpsc::Sender<BytesMut>,
    buffer: BytesMut,
    sink: Box<dyn OutputSink>,
    /// Calls being answered; each gives its id.
    tasks: JoinSet<u64>,
    calls: HashMap<u64, AbortHandle>,
    call_bytes: Arc<AtomicUsize>,
}

/// The run under way, as far as frames have told.
struct ActiveRun {
    id: u64,
    calls: Arc<dyn CallHandler>,
    images: Vec<Image>,
    image_bytes_left: usize,
    done: Option<Done>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Done {
    result: Option<String>,
    error: Option<PythonError>,
    exit_code: Option<i64>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Call {
    method: String,
    params: Box<RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Ok(Box<RawValue>),
    Error(Box<CallError>),
}

/// The guest is no more, or must be.
enum Lost {
    Ended,
    Violated(String),
}

impl Driver {
    async fn live(
        mut self,
        mut inbox: mpsc::Receiver<Command>,
        exit: watch::Sender<Option<GuestExit>>,
    ) {
        let kill = loop {
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(Command::Run(command)) => {
                        let RunCommand { request, calls, cancel, done } = *command;
                        let (outcome, ended) = self.run(request, calls, cancel).await;
                        if let Some(ended) = ended {
                            exit.send_replace(Some(ended));
                        }
                        // A caller that no longer waits has dropped the reply on purpose.
                        let _ = done.send(outcome);
                        if exit.borrow().is_some() {
                            return;
                        }
                    }
                    Some(Command::End) | None => break true,
                },
                lost = self.step(None) => match lost {
                    Ok(()) => {}
                    Err(Lost::Ended) => break false,
                    Err(Lost::Violated(_)) => break true,
                },
            }
        };
        let ended = self.end(kill).await;
        exit.send_replace(Some(ended));
    }

    /// Execute one run; the exit is given when the guest did not outlive it.
    async fn run(
        &mut self,
        request: RunRequest,
        calls: Arc<dyn CallHandler>,
        cancel: CancellationToken,
    ) -> (RunOutcome, Option<GuestExit>) {
        let (began, limit) = (Instant::now(), Duration::from_millis(request.run_ms_max));
        let handler = Arc::clone(&calls);
        let grace = Duration::from_millis(request.grace_ms_max);
        let mut active = ActiveRun {
            id: request.id,
            calls,
            images: Vec::new(),
            image_bytes_left: request.images_bytes_max,
            done: None,
        };
        let payload = serde_json::json!({
            "code": request.code,
            "name": request.file_name,
            "images_bytes_max": request.images_bytes_max,
            "context": request.context,
        });
        // On its own: a guest that does not read its input must not keep the deadline from coming.
        tokio::spawn(send(self.writes.clone(), Kind::Run, request.id, payload));
        let mut stopped = None;
        let lost = tokio::select! {
            lost = self.until_done(&mut active) => lost,
            () = time_is_up(began, limit, &*handler) => {
                stopped = Some(RunEnd::TimedOut { killed: false });
                None
            }
            () = cancel.cancelled() => {
                stopped = Some(RunEnd::Cancelled { killed: false });
                None
            }
        };
        let (end, exit) = match (lost, stopped) {
            (Some(lost), _) => self.lost(lost).await,
            (None, None) => (RunEnd::Finished, None),
            (None, Some(stopped)) => {
                let lost = self.interrupt(&mut active, grace).await;
                match lost {
                    None => (stopped, None),
                    Some(_) => (stopped.killed(), Some(self.end(true).await)),
                }
            }
        };
        self.abort_calls();
        let done = active.done.unwrap_or_default();
        let outcome = RunOutcome {
            end,
            result: done.result,
            error: done.error,
            exit_code: done.exit_code,
            images: active.images,
            notes: done.notes,
        };
        (outcome, exit)
    }

    /// Ask the run to stop and wait for a grace; what is lost, if the guest must be ended.
    async fn interrupt(&mut self, active: &mut ActiveRun, grace: Duration) -> Option<Lost> {
        self.abort_calls();
        let mut bytes = BytesMut::new();
        frame::encode(Kind::Interrupt, active.id, b"{}", &mut bytes);
        // A full queue means that the guest reads nothing: the grace will end it.
        let _ = self.writes.try_send(bytes);
        match tokio::time::timeout(grace, self.until_done(active)).await {
            Ok(lost) => lost,
            Err(_) => Some(Lost::Ended),
        }
    }

    async fn until_done(&mut self, active: &mut ActiveRun) -> Option<Lost> {
        while active.done.is_none() {
            if let Err(lost) = self.step(Some(active)).await {
                return Some(lost);
            }
        }
        None
    }

    /// How a run ended whose guest was lost in the middle of it.
    async fn lost(&mut self, lost: Lost) -> (RunEnd, Option<GuestExit>) {
        match lost {
            Lost::Ended => {
                let exit = self.end(false).await;
                let end = if exit.out_of_memory {
                    RunEnd::OutOfMemory
                } else {
                    RunEnd::Died(exit.clone())
                };
                (end, Some(exit))
            }
            Lost::Violated(reason) => (RunEnd::Violated(reason), Some(self.end(true).await)),
        }
    }

    async fn end(&mut self, kill: bool) -> GuestExit {
        self.abort_calls();
        match self.end.take() {
            Some(end) => end(kill).await,
            None => GuestExit::default(),
        }
    }

    fn abort_calls(&mut self) {
        for (_, call) in self.calls.drain() {
            call.abort();
        }
    }

    /// Take in what the guest sends next, or see one of its calls end. Cancel safe.
    async fn step(&mut self, mut active: Option<&mut ActiveRun>) -> Result<(), Lost> {
        loop {
            // Ended calls too, until they were seen to end: a guest that makes and cancels calls
            // faster than that must not fill the memory with them.
            while let Some(ended) = self.tasks.try_join_next() {
                self.call_ended(ended);
            }
            let roomy = self.tasks.len() < CALLS_AT_ONCE_MAX
                && self.call_bytes.load(Relaxed) < CALL_BYTES_AT_ONCE_MAX;
            if roomy {
                match frame::decode(&mut self.buffer) {
                    Ok(Some(frame)) => return self.take(&frame, active.as_deref_mut()),
                    Ok(None) => {}
                    Err(error) => return Err(Lost::Violated(error.to_string())),
                }
            }
            tokio::select! {
                bytes = self.output.recv(), if roomy => match bytes {
                    Some(bytes) => self.buffer.extend_from_slice(&bytes),
                    None => return Err(Lost::Ended),
                },
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    self.call_ended(ended);
                }
            }
        }
    }

    fn take(&mut self, frame: &Frame, active: Option<&mut ActiveRun>) -> Result<(), Lost> {
        match frame.kind {
            Kind::Stdout => self.sink.write(frame.id, Stream::Stdout, &frame.payload),
            Kind::Stderr => self.sink.write(frame.id, Stream::Stderr, &frame.payload),
            Kind::Call => {
                let handler = active.map(|active| active.calls.clone());
                self.start_call(frame.id, &frame.payload, handler)?;
            }
            Kind::CancelCall => {
                if let Some(call) = self.calls.remove(&frame.id) {
                    call.abort();
                }
            }
            Kind::Display => {
                if let Some(active) = active.filter(|active| active.id == frame.id) {
                    active.show(&frame.payload)?;
                }
            }
            Kind::Done => {
                // Any other id is that of a run which has already been answered.
                if let Some(active) = active.filter(|active| active.id == frame.id) {
                    let done = serde_json::from_slice(&frame.payload).map_err(|error| {
                        Lost::Violated(format!("malformed end of run: {error}"))
                    })?;
                    active.done = Some(done);
                }
            }
            Kind::Hello => return Err(Lost::Violated("a second greeting".to_owned())),
            Kind::Run | Kind::Reply | Kind::Interrupt | Kind::Mount => {
                return Err(Lost::Violated(format!("{:?} from a guest", frame.kind)));
            }
        }
        Ok(())
    }

    fn start_call(
        &mut self,
        id: u64,
        payload: &Bytes,
        handler: Option<Arc<dyn CallHandler>>,
    ) -> Result<(), Lost> {
        let call: Call = serde_json::from_slice(payload)
            .map_err(|error| Lost::Violated(format!("malformed call: {error}")))?;
        if self.calls.contains_key(&id) {
            return Err(Lost::Violated(format!("call {id} was made twice")));
        }
        let writes = self.writes.clone();
        let held = HeldBytes::take(&self.call_bytes, payload.len());
        let answer = async move {
            let reply = match handler {
                Some(handler) => handler.call(call.method, call.params).await,
                None => Err(CallError::new(
                    "runtime",
                    "no run is active: the run that made this call has ended",
                )),
            };
            let reply = match reply {
                Ok(value) if value.get().len() > frame::PAYLOAD_BYTES_MAX - 64 => {
                    Reply::Error(Box::new(CallError::new(
                        "value",
                        format!(
                            "the answer is {} bytes long, more than the {} that cross the sandbox wall",
                            value.get().len(),
                            frame::PAYLOAD_BYTES_MAX
                        ),
                    )))
                }
                Ok(value) => Reply::Ok(value),
                Err(error) => Reply::Error(Box::new(error)),
            };
            send(writes, Kind::Reply, id, reply).await;
            drop(held);
            id
        };
        let handle = self.tasks.spawn(answer);
        self.calls.insert(id, handle);
        Ok(())
    }

    fn call_ended(&mut self, ended: Result<u64, tokio::task::JoinError>) {
        match ended {
            Ok(id) => {
                self.calls.remove(&id);
            }
            Err(error) if error.is_panic() => {
                tracing::error!(%error, "a call handler panicked");
                self.calls.retain(|_, call| call.id() != error.id());
            }
            // Aborted, and forgotten when that was done.
            Err(_) => {}
        }
    }
}

/// Resolves when a run has taken its time.
async fn time_is_up(began: Instant, limit: Duration, calls: &dyn CallHandler) {
    let mut until = began + limit;
    loop {
        tokio::time::sleep_until(until).await;
        let end = began + limit + calls.stood_still();
        let now = Instant::now();
        if end <= now {
            return;
        }
        // While a person thinks, the end moves as fast as time does.
        until = end.max(now + LOOK_AGAIN);
    }
}

/// Encode a message and hand it to the writing task.
async fn send(writes: mpsc::Sender<BytesMut>, kind: Kind, id: u64, message: impl Serialize) {
    let mut bytes = BytesMut::new();
    match serde_json::to_vec(&message) {
        Ok(payload) => frame::encode(kind, id, &payload, &mut bytes),
        Err(error) => {
            tracing::error!(%error, "a message to a guest could not be written as JSON");
            return;
        }
    }
    // The writing task is gone when the guest is; the driver hears of that by the guest's output.
    let _ = writes.send(bytes).await;
}

/// Counts the bytes that a call under way holds, until it is dropped.
struct HeldBytes {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl HeldBytes {
    fn take(total: &Arc<AtomicUsize>, bytes: usize) -> Self {
        total.fetch_add(bytes, Relaxed);
        Self {
            total: total.clone(),
            bytes,
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Relaxed);
    }
}

impl ActiveRun {
    fn show(&mut self, payload: &Bytes) -> Result<(), Lost> {
        let malformed = || Lost::Violated("malformed image".to_owned());
        let length = payload.first_chunk::<2>().ok_or_else(malformed)?;
        let data_at = 2 + usize::from(u16::from_be_bytes(*length));
        let mime_type = payload.get(2..data_at).ok_or_else(malformed)?;
        let mime_type = std::str::from_utf8(mime_type).map_err(|_| malformed())?;
        let data = payload.slice(data_at..);
        // The guest keeps to the bound by itself; one that does not is cut short without a word.
        let roomy = self.images.len() < IMAGES_MAX && data.len() <= self.image_bytes_left;
        if roomy && is_image_type(mime_type) {
            self.image_bytes_left -= data.len();
            self.images.push(Image {
                mime_type: mime_type.to_owned(),
                data,
            });
        }
        Ok(())
    }
}

/// Only what a client could be asked to show; a type is part of the reply and must not smuggle text.
fn is_image_type(mime_type: &str) -> bool {
    matches!(
        mime_type,
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/svg+xml"
    )
}

impl RunEnd {
    fn killed(self) -> Self {
        match self {
            Self::TimedOut { .. } => Self::TimedOut { killed: true },
            Self::Cancelled { .. } => Self::Cancelled { killed: true },
            other => other,
        }
    }
}
