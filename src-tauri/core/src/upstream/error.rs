//! What can go wrong between us and a server: facts, the code to branch on, and words that a model
//! can act upon.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

/// A server, a tool or a call that could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No server of that name or alias.
    #[error("no server is named `{name}`{}", did_you_mean(nearest))]
    ServerNotFound {
        /// The name asked for.
        name: String,
        /// Names close to it.
        nearest: Vec<String>,
    },
    /// The server is off.
    #[error("server `{server}` is off: {reason}")]
    ServerDisabled {
        /// Which server.
        server: String,
        /// Why.
        reason: String,
    },
    /// The entry names variables that have no value.
    #[error(
        "server `{server}` was not started because it needs a value for {}; set it and try again",
        quoted(needs)
    )]
    NeedsValue {
        /// Which server.
        server: String,
        /// The variables and inputs without a value.
        needs: Vec<String>,
    },
    /// The entry stands on a secret that cannot be had.
    #[error("server `{server}` was not started: {detail}")]
    Secret {
        /// Which server.
        server: String,
        /// Which secret, why, and what to do.
        detail: String,
    },
    /// A remote server wants to know who calls. No browser is opened for it.
    #[error("server `{server}` needs you to sign in: {detail}")]
    SignIn {
        /// Which server.
        server: String,
        /// What it answered, and what to do.
        detail: String,
    },
    /// A remote server cannot be reached, or the connection broke during the call.
    #[error("server `{server}` cannot be reached: {reason}")]
    Unreachable {
        /// Which server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// A remote server has forgotten the session, and did not carry the request out for that.
    #[error("server `{server}` has ended its session again and again; restart it to try anew")]
    SessionLost {
        /// Which server.
        server: String,
    },
    /// The server did not come up.
    #[error("server `{server}` did not start: {reason}{}{}", last_line(stderr_last.as_deref()), sentence(hint.as_deref()))]
    Start {
        /// Which server.
        server: String,
        /// What happened.
        reason: String,
        /// The last line that it wrote to stderr.
        stderr_last: Option<String>,
        /// What to do now.
        hint: Option<String>,
    },
    /// An earlier start failed and the next one is not due.
    #[error("{last} (it is tried again in {}; restart the server to try now)", seconds(*retry_in))]
    BackingOff {
        /// Why the last start failed.
        last: Arc<UpstreamError>,
        /// When the next one is due.
        retry_in: Duration,
    },
    /// The server's process ended while the call was open. The call is not repeated, since nobody
    /// knows how far it got.
    #[error(
        "server `{server}` {exit} during this call{}; the next call starts it again",
        last_line(stderr_last.as_deref())
    )]
    Died {
        /// Which server.
        server: String,
        /// How it ended, such as `exited with code 7`.
        exit: String,
        /// The last line that it wrote to stderr.
        stderr_last: Option<String>,
    },
    /// The server was stopped by us while the call was open.
    #[error("server `{server}` was stopped during this call")]
    Stopped {
        /// Which server.
        server: String,
    },
    /// The server broke the protocol.
    #[error("server `{server}`: {detail}")]
    Protocol {
        /// Which server.
        server: String,
        /// How.
        detail: String,
    },
    /// The server answered with a JSON-RPC error.
    #[error("{message}")]
    Rpc {
        /// Which server.
        server: String,
        /// The error's code.
        rpc_code: i64,
        /// Its message.
        message: String,
        /// Its data.
        data: Option<Box<Value>>,
    },
    /// The tool said that it failed (`isError`).
    #[error("{message}")]
    ToolFailed {
        /// Which server.
        server: String,
        /// What the tool said.
        message: String,
    },
    /// The server has no such tool.
    #[error("server `{server}` has no tool `{tool}`{}", did_you_mean(nearest))]
    ToolNotFound {
        /// Which server.
        server: String,
        /// The name asked for.
        tool: String,
        /// Names close to it.
        nearest: Vec<String>,
    },
    /// The client's file that names the server keeps this tool away.
    #[error("tool `{tool}` of server `{server}` is not allowed by the server's configuration")]
    ToolDenied {
        /// Which server.
        server: String,
        /// Which tool.
        tool: String,
    },
    /// The call took too long. The server was told to stop working on it and lives on.
    #[error(
        "tool `{tool}` of server `{server}` timed out {} after the call; the server keeps running",
        seconds(*after)
    )]
    ToolTimeout {
        /// Which server.
        server: String,
        /// Which tool.
        tool: String,
        /// The limit.
        after: Duration,
    },
    /// The arguments do not fit the tool's schema; nothing was sent. Python raises `TypeError`.
    #[error("{message}")]
    Arguments {
        /// What does not fit, and what is expected.
        message: String,
    },
}

impl UpstreamError {
    /// The code that the model's Python, the UI and the tests branch on.
    pub fn code(&self) -> Value {
        match self {
            Self::ServerNotFound { .. } => "server_not_found".into(),
            Self::ServerDisabled { .. } => "server_disabled".into(),
            Self::NeedsValue { .. } | Self::Secret { .. } | Self::SignIn { .. } => {
                "server_auth_required".into()
            }
            Self::Unreachable { .. }
            | Self::SessionLost { .. }
            | Self::Start { .. }
            | Self::Died { .. }
            | Self::Stopped { .. } => "server_unreachable".into(),
            Self::BackingOff { last, .. } => last.code(),
            Self::Protocol { .. } => "server_protocol".into(),
            Self::Rpc { rpc_code, .. } => (*rpc_code).into(),
            Self::ToolFailed { .. } => "tool_failed".into(),
            Self::ToolNotFound { .. } => "tool_not_found".into(),
            Self::ToolDenied { .. } => "tool_denied".into(),
            Self::ToolTimeout { .. } => "tool_timeout".into(),
            Self::Arguments { .. } => "invalid_arguments".into(),
        }
    }

    /// Whether it passes when the user has signed in, and no sooner.
    pub fn wants_sign_in(&self) -> bool {
        match self {
            Self::SignIn { .. } => true,
            Self::BackingOff { last, .. } => last.wants_sign_in(),
            Self::ServerNotFound { .. }
            | Self::ServerDisabled { .. }
            | Self::NeedsValue { .. }
            | Self::Secret { .. }
            | Self::Unreachable { .. }
            | Self::SessionLost { .. }
            | Self::Start { .. }
            | Self::Died { .. }
            | Self::Stopped { .. }
            | Self::Protocol { .. }
            | Self::Rpc { .. }
            | Self::ToolFailed { .. }
            | Self::ToolNotFound { .. }
            | Self::ToolDenied { .. }
            | Self::ToolTimeout { .. }
            | Self::Arguments { .. } => false,
        }
    }

    /// The whole message, hint included.
    pub fn message(&self) -> String {
        self.to_string()
    }

    /// What the server sent with a JSON-RPC error.
    pub fn data(&self) -> Option<&Value> {
        match self {
            Self::Rpc { data, .. } => data.as_deref(),
            Self::ServerNotFound { .. }
            | Self::ServerDisabled { .. }
            | Self::NeedsValue { .. }
            | Self::Secret { .. }
            | Self::SignIn { .. }
            | Self::Unreachable { .. }
            | Self::SessionLost { .. }
            | Self::Start { .. }
            | Self::BackingOff { .. }
            | Self::Died { .. }
            | Self::Stopped { .. }
            | Self::Protocol { .. }
            | Self::ToolFailed { .. }
            | Self::ToolNotFound { .. }
            | Self::ToolDenied { .. }
            | Self::ToolTimeout { .. }
            | Self::Arguments { .. } => None,
        }
    }
}

fn quoted(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn did_you_mean(nearest: &[String]) -> String {
    if nearest.is_empty() {
        String::new()
    } else {
        format!("; the nearest names are {}", quoted(nearest))
    }
}

fn last_line(stderr_last: Option<&str>) -> String {
    stderr_last.map_or_else(String::new, |line| {
        format!("; its last line on stderr: {line}")
    })
}

fn sentence(hint: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(hint) = hint {
        let _ = write!(text, ". {hint}");
    }
    text
}

/// `3 s`, `1.5 s`: as people write it.
pub(crate) fn seconds(duration: Duration) -> String {
    let tenths = duration.as_millis().div_ceil(100);
    if tenths.is_multiple_of(10) {
        format!("{} s", tenths / 10)
    } else {
        format!("{}.{} s", tenths / 10, tenths % 10)
    }
}
