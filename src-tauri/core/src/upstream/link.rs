//! What is at the other end of a connection, a child process or an address, and how that ends.

use std::sync::Arc;

use rmcp::model::RequestId;

use super::EXIT_STATUS;
use super::error::UpstreamError;
use super::http::{Fault, Remote};
use super::stdio::{Noise, Process, ProcessHandle, StderrTail};

/// The means of one connection. Dropping it ends them in the background.
pub(super) enum Link {
    Child {
        process: Process,
        stderr: Arc<StderrTail>,
        noise: Arc<Noise>,
    },
    Remote(Arc<Remote>),
}

impl Link {
    pub(super) fn process(&self) -> Option<ProcessHandle> {
        match self {
            Self::Child { process, .. } => Some(process.handle()),
            Self::Remote(_) => None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Child { process, .. } => process.has_exited(),
            Self::Remote(_) => false,
        }
    }

    /// What is odd about the way that messages come.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Self::Child { noise, .. } => noise.first().map(|line| {
                format!("writes to stdout, which is for messages alone; the first line was: {line}")
            }),
            Self::Remote(_) => None,
        }
    }

    /// Why a request has no answer, when it is not the server that says so.
    pub(super) fn take_fault(&self, id: &RequestId) -> Option<Fault> {
        match self {
            Self::Child { .. } => None,
            Self::Remote(remote) => remote.take_fault(id),
        }
    }

    /// Why there is no connection any more.
    pub(super) async fn death(&self, server: &str) -> UpstreamError {
        match self {
            Self::Child {
                process, stderr, ..
            } => {
                let exit = if let Some(exit) = process.exit(EXIT_STATUS).await {
                    exit.to_string()
                } else {
                    // Without its output it is of no use, and it must not stay beside its successor.
                    process.begin_stop();
                    "closed its output".to_owned()
                };
                UpstreamError::Died {
                    server: server.to_owned(),
                    exit,
                    stderr_last: stderr.last_line(),
                }
            }
            Self::Remote(remote) => match remote.fault() {
                // What was under way may have been carried out; only the request that was refused
                // for it knows better.
                None | Some(Fault::SessionLost) => UpstreamError::Unreachable {
                    server: server.to_owned(),
                    reason: "it ended the session during this call".to_owned(),
                },
                Some(fault) => fault.into_error(server),
            },
        }
    }

    /// End it and wait until nothing of it is left.
    pub(super) async fn stop(&self) {
        match self {
            Self::Child { process, .. } => process.stop().await,
            Self::Remote(remote) => remote.stop().await,
        }
    }
}
