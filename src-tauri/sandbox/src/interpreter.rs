//! Drive one guest: runs in, output and calls out, cancel, deadline. Knows frames and time, and
//! nothing of engines.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;

use crate::{CallHandler, SandboxError};

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

/// Where output goes as it arrives. Called from the task that drives the run; must not block.
pub trait OutputSink: Send {
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
    /// Wall-clock limit.
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

/// A live guest with its variables.
pub struct Interpreter {
    guest: Guest,
    hello: GuestHello,
}

impl Interpreter {
    /// Wait until `guest` says that it is ready.
    ///
    /// # Errors
    /// [`SandboxError::GuestStart`] when it ends, breaks the protocol or stays silent for `within`.
    pub async fn attach(guest: Guest, within: Duration) -> Result<Self, SandboxError> {
        let _ = within;
        Ok(Self {
            guest,
            hello: GuestHello::default(),
        })
    }

    /// What the guest said of itself.
    pub fn hello(&self) -> &GuestHello {
        &self.hello
    }

    /// Whether it can take another run.
    pub fn is_alive(&self) -> bool {
        !self.guest.output.is_closed()
    }

    /// Execute one run. Returns at the latest a grace and the time of a kill after the deadline or
    /// after `cancel`.
    pub async fn run(
        &mut self,
        request: RunRequest,
        calls: Arc<dyn CallHandler>,
        output: &mut dyn OutputSink,
        cancel: CancellationToken,
    ) -> RunOutcome {
        let _ = (request, calls, output, cancel);
        unreachable!()
    }

    /// End the guest and wait until nothing of it is left.
    pub async fn end(self) -> GuestExit {
        (self.guest.end)(true).await
    }
}
