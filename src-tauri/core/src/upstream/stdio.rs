//! A server as a child process: found, started with a clean environment, spoken to line by line,
//! and ended with everything that it started.
//!
//! This is one of the two places of the crate that may look at the environment, and even here it
//! comes from the caller: the child gets the login environment, what its entry adds, and nothing of
//! ours. It knows lines and processes; what the messages mean, and when to start or stop, is decided
//! elsewhere.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::wire::{Line, LineReader, Parsed, parse};
use crate::paths::Os;

#[cfg_attr(unix, path = "stdio/unix.rs")]
#[cfg_attr(windows, path = "stdio/windows.rs")]
mod os;
mod program;

pub(crate) use self::program::{Program, SpawnError, environment};

/// Kept of a server's stderr: what the contract promises to show.
const STDERR_BYTES_MAX: usize = 64 * 1024;

/// Messages waiting for a server that does not read. Callers wait beyond it, each until its own
/// deadline.
const OUTGOING_MAX: usize = 64;

/// Kept of the first line on stdout that is not JSON-RPC.
const NOISE_CHARS_MAX: usize = 200;

/// How long output that is already in the pipe may still arrive after the process has ended. A
/// grandchild that holds the pipe open would otherwise keep calls waiting for ever.
const DRAIN: Duration = Duration::from_millis(200);

/// How long messages that are already queued may take to reach a server that is being stopped.
const FLUSH: Duration = Duration::from_millis(500);

/// Time after stdin was closed before the first signal, and between SIGTERM and SIGKILL. Servers
/// that save their state on end of input need the first.
const GRACE: Duration = Duration::from_secs(2);

/// How often the end of a whole process group is looked for; there is no event for it.
const GROUP_POLL: Duration = Duration::from_millis(20);

/// A started server: the two halves that live apart.
pub(crate) struct Started {
    pub(crate) transport: StdioTransport,
    pub(crate) process: Process,
}

/// Start `program`. Needs a tokio runtime.
pub(crate) async fn start(
    program: &Program,
    stderr: Arc<StderrTail>,
    noise: Arc<Noise>,
) -> Result<Started, SpawnError> {
    let path = program.file(Os::CURRENT)?;
    if let Some(cwd) = program.cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
        return Err(SpawnError {
            reason: format!("its working directory `{}` is not there", cwd.display()),
            hint: None,
        });
    }
    let mut command = Command::new(&path);
    command
        .args(&program.args)
        .env_clear()
        .envs(&program.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
    os::prepare(&mut command);
    let failed = |error: io::Error| SpawnError {
        reason: format!("`{}` could not be run: {error}", path.display()),
        hint: None,
    };
    let mut child = os::spawn(command).await.map_err(failed)?;
    let pipes = (
        child.stdin.take(),
        child.stdout.take(),
        child.stderr.take(),
        child.id(),
    );
    let (Some(stdin), Some(stdout), Some(stderr_pipe), Some(pid)) = pipes else {
        return Err(failed(io::Error::other("its pipes are missing")));
    };
    let (outgoing, queue) = mpsc::channel(OUTGOING_MAX);
    let writer = tokio::spawn(write(stdin, queue));
    let reader = tokio::spawn(keep_tail(stderr_pipe, Arc::clone(&stderr)));
    let drained = CancellationToken::new();
    let stop = CancellationToken::new();
    let (state, watched) = watch::channel(ProcessState::Running);
    tokio::spawn(supervise(
        child,
        pid,
        writer,
        reader,
        stop.clone(),
        drained.clone(),
        state,
    ));
    Ok(Started {
        transport: StdioTransport {
            lines: LineReader::new(stdout),
            messages: VecDeque::new(),
            outgoing: Some(outgoing),
            noise,
            drained,
        },
        process: Process(ProcessHandle {
            pid,
            stop,
            state: watched,
        }),
    })
}

/// The first line on stdout that is not JSON-RPC. Servers that print there work all the same; their
/// authors want to know.
#[derive(Debug, Default)]
pub(crate) struct Noise(Mutex<Option<String>>);

impl Noise {
    pub(crate) fn first(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn saw(&self, line: &Line<'_>) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            let bytes = match line {
                Line::Whole(bytes) => &bytes[..bytes.len().min(NOISE_CHARS_MAX * 4)],
                Line::TooLong { head, .. } => head,
            };
            let text: String = String::from_utf8_lossy(bytes)
                .chars()
                .take(NOISE_CHARS_MAX)
                .collect();
            tracing::debug!(line = %text, "a server writes something else than messages to its stdout");
            *first = Some(text);
        }
    }
}

/// The end of what a server wrote to stderr.
#[derive(Debug)]
pub(crate) struct StderrTail {
    kept: Mutex<VecDeque<u8>>,
    written: watch::Sender<()>,
}

impl StderrTail {
    /// Nothing yet; `written` is told when that changes.
    pub(crate) fn new(written: watch::Sender<()>) -> Self {
        Self {
            kept: Mutex::default(),
            written,
        }
    }

    /// All that was kept; bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (front, back) = kept.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }

    /// The last line with something on it, cut to a length that fits a message.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.text()
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(|line| line.chars().take(500).collect())
    }

    fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(STDERR_BYTES_MAX)..];
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = (kept.len() + bytes.len()).saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..surplus);
        kept.extend(bytes);
        drop(kept);
        self.written.send_replace(());
    }
}

/// Drains stderr for as long as anybody holds it, so that a server never blocks on it.
async fn keep_tail(mut stderr: impl AsyncRead + Unpin, tail: Arc<StderrTail>) {
    let mut buffer = [0; 8 * 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        tail.push(&buffer[..count]);
    }
}

async fn write(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = queue.recv().await {
        if let Err(error) = stdin.write_all(&line).await {
            tracing::debug!(%error, "a server does not take its input any more");
            return;
        }
    }
}

/// The messages of one server.
pub(crate) struct StdioTransport {
    lines: LineReader<ChildStdout>,
    messages: VecDeque<ServerJsonRpcMessage>,
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    noise: Arc<Noise>,
    drained: CancellationToken,
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the server's input is closed");
        // The place in the queue is taken now, not when the future is polled: the futures of several
        // messages run side by side, and a cancellation must not overtake its request.
        let queued = serde_json::to_vec(&message)
            .map_err(io::Error::other)
            .and_then(|mut line| {
                line.push(b'\n');
                let outgoing = self.outgoing.as_ref().ok_or_else(closed)?;
                match outgoing.try_send(line) {
                    Ok(()) => Ok(None),
                    Err(mpsc::error::TrySendError::Full(line)) => {
                        Ok(Some((outgoing.clone(), line)))
                    }
                    Err(mpsc::error::TrySendError::Closed(_)) => Err(closed()),
                }
            });
        async move {
            match queued? {
                None => Ok(()),
                Some((outgoing, line)) => outgoing.send(line).await.map_err(|_| closed()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Some(message);
            }
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                () = self.drained.cancelled() => return None,
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(error) => {
                    tracing::debug!(%error, "a server's output cannot be read");
                    return None;
                }
            };
            match parse(&line) {
                Parsed::Messages(messages) => self.messages.extend(messages),
                Parsed::Blank => {}
                Parsed::Noise => self.noise.saw(&line),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outgoing = None;
        Ok(())
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit(String);

impl Exit {
    fn of(status: &io::Result<ExitStatus>) -> Self {
        Self(match status {
            Ok(status) => os::describe(*status),
            Err(error) => format!("was lost: {error}"),
        })
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ProcessState {
    Running,
    /// The process has ended; what it started may still live.
    Exited(Exit),
    /// Nothing of it is left.
    Gone(Exit),
}

/// A running process and its group. Dropping it stops the group in the background, gently first.
#[derive(Debug)]
pub(crate) struct Process(ProcessHandle);

/// A way to stop a process and to wait for its end that does not keep it.
#[derive(Clone, Debug)]
pub(crate) struct ProcessHandle {
    pid: u32,
    stop: CancellationToken,
    state: watch::Receiver<ProcessState>,
}

impl Process {
    pub(crate) fn handle(&self) -> ProcessHandle {
        self.0.clone()
    }
}

impl std::ops::Deref for Process {
    type Target = ProcessHandle;

    fn deref(&self) -> &ProcessHandle {
        &self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.begin_stop();
    }
}

impl ProcessHandle {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn has_exited(&self) -> bool {
        *self.state.borrow() != ProcessState::Running
    }

    /// Wait for its end, at most `limit`.
    pub(crate) async fn exit(&self, limit: Duration) -> Option<Exit> {
        let mut state = self.state.clone();
        let ended = timeout(
            limit,
            state.wait_for(|state| *state != ProcessState::Running),
        )
        .await;
        match &*ended.ok()?.ok()? {
            ProcessState::Running => None,
            ProcessState::Exited(exit) | ProcessState::Gone(exit) => Some(exit.clone()),
        }
    }

    /// Begin what [`Self::stop`] does, and do not wait.
    pub(crate) fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Close its input, wait, terminate, wait, kill: until it and all that it started are gone.
    pub(crate) async fn stop(&self) {
        self.begin_stop();
        let mut state = self.state.clone();
        // The supervisor bounds every step; it never takes longer than its graces together.
        let _ = state
            .wait_for(|state| matches!(state, ProcessState::Gone(_)))
            .await;
    }
}

async fn supervise(
    mut child: Child,
    pid: u32,
    mut writer: JoinHandle<()>,
    reader: JoinHandle<()>,
    stop: CancellationToken,
    drained: CancellationToken,
    state: watch::Sender<ProcessState>,
) {
    let by_itself = tokio::select! {
        status = child.wait() => Some(status),
        () = stop.cancelled() => None,
    };
    let stopped = by_itself.is_none();
    let status = if let Some(status) = by_itself {
        status
    } else {
        // The transport's owner has dropped the queue; when the rest is written, stdin closes.
        if timeout(FLUSH, &mut writer).await.is_err() {
            writer.abort();
        }
        let ended = async {
            let status = child.wait().await;
            while os::group_lives(pid) {
                sleep(GROUP_POLL).await;
            }
            status
        };
        if let Ok(status) = timeout(GRACE, ended).await {
            status
        } else {
            os::terminate_group(pid);
            if let Ok(status) = timeout(GRACE, child.wait()).await {
                status
            } else {
                os::kill_group(pid);
                child.wait().await
            }
        }
    };
    let exit = Exit::of(&status);
    if !stopped {
        // Its last words on stderr belong to the error that tells of its end.
        let _ = timeout(DRAIN, async {
            while !reader.is_finished() {
                sleep(GROUP_POLL).await;
            }
        })
        .await;
    }
    state.send_replace(ProcessState::Exited(exit.clone()));
    drained_after(&drained, stopped);
    end_group(pid).await;
    writer.abort();
    reader.abort();
    drained.cancel();
    state.send_replace(ProcessState::Gone(exit));
}

/// Output in the pipe may be read for a moment longer, unless nobody waits for it.
fn drained_after(drained: &CancellationToken, at_once: bool) {
    if at_once {
        drained.cancel();
    } else {
        let drained = drained.clone();
        tokio::spawn(async move {
            sleep(DRAIN).await;
            drained.cancel();
        });
    }
}

/// End what the process left behind.
async fn end_group(pid: u32) {
    if !os::group_lives(pid) {
        return;
    }
    os::terminate_group(pid);
    let deadline = Instant::now() + GRACE;
    while os::group_lives(pid) {
        if Instant::now() >= deadline {
            os::kill_group(pid);
            return;
        }
        sleep(GROUP_POLL).await;
    }
}
