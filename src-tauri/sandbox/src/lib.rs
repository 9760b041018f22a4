//! Run Python where it can do no harm.
//!
//! The crate knows nothing of MCP, of secrets or of the user's settings. It starts guests, drives
//! them over [`frame`]s and hands what they ask for to a [`CallHandler`]; that trait is the only
//! way out of a sandbox.

pub mod container;
mod error;
pub mod frame;
mod guest;
mod interpreter;
mod limits;
mod mounts;
mod usage;
#[cfg(feature = "wasi")]
pub mod wasi;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

pub use error::SandboxError;
pub use interpreter::{
    Guest, GuestExit, GuestHello, Image, Interpreter, OutputSink, PythonError, RunEnd, RunOutcome,
    RunRequest, Stream,
};
pub use limits::{Enforcement, LimitFact, SandboxLimits};
pub use mounts::{MOUNTED_BYTES_MAX, MountError, Mounting, Mounts};
pub use usage::{Gauge, Usage};

/// What the host does for a guest. One handler serves one run.
pub trait CallHandler: Send + Sync + 'static {
    /// Answer one call. Dropping the future cancels it: that happens when the guest no longer waits
    /// or when the run has ended.
    fn call(
        self: Arc<Self>,
        method: String,
        params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, CallError>>;

    /// How long calls of this run have waited for a person so far, which is not the run's time.
    fn stood_still(&self) -> Duration {
        Duration::ZERO
    }
}

/// A call that failed, as the guest raises it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CallError {
    /// Which Python exception: `mcp` (`MCPError`), `type` (`TypeError`), `value` (`ValueError`),
    /// `key` (`KeyError`), `runtime` (`RuntimeError`).
    pub kind: &'static str,
    /// The exception's message.
    pub message: String,
    /// The server of an `mcp` error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The tool of an `mcp` error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The error's code: a JSON-RPC code or one of ours, such as `tool_not_found`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Box<serde_json::Value>>,
    /// What the server sent with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<serde_json::Value>>,
}

impl CallError {
    /// An error of a kind with a message and nothing else.
    pub fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            server: None,
            tool: None,
            code: None,
            data: None,
        }
    }
}
