//! Errors as the window sees them: a code to branch on, facts to show.

use serde::{Deserialize, Serialize};

/// Why a command failed, or what is wrong with a thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ApiError {
    /// What kind; the window has a sentence for each.
    pub code: ErrorCode,
    /// The facts: what happened, to which thing.
    pub message: String,
    /// What to do now, when that is known.
    pub hint: Option<String>,
    /// Under which the log has more.
    pub log_id: Option<String>,
}

impl ApiError {
    /// What happened, to which thing.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            log_id: None,
        }
    }

    /// And what to do now.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What kind of error. The window and the tests branch on it, never on text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum ErrorCode {
    /// The code of a run raised.
    PythonError,
    /// A tool said that it failed.
    ToolFailed,
    /// A tool did not answer in time.
    ToolTimeout,
    /// No such tool.
    ToolNotFound,
    /// The user's decisions keep the tool away.
    ToolDenied,
    /// Arguments do not fit the tool's schema.
    InvalidArguments,
    /// A run took too long.
    RunTimeout,
    /// A run used too much memory.
    RunOutOfMemory,
    /// A run was stopped.
    RunCancelled,
    /// The run is not there, or no longer.
    RunNotFound,
    /// The question was answered, or nobody waits for its answer any more.
    QuestionNotFound,
    /// No sandbox can be started.
    SandboxUnavailable,
    /// The image is not there and cannot be had.
    ImageMissing,
    /// The built-in Python is not there.
    WasiModuleMissing,
    /// An engine does not enforce a limit that was asked of it.
    LimitNotEnforced,
    /// The server does not start or does not answer.
    ServerUnreachable,
    /// The server wants a sign-in or a value.
    ServerAuthRequired,
    /// The server breaks the protocol.
    ServerProtocol,
    /// No server of that name.
    ServerNotFound,
    /// The name is taken.
    ServerExists,
    /// An entry of a client's file cannot be read.
    EntryUnreadable,
    /// A client's file changed while it was to be written, or since the change was looked at.
    ClientConfigConflict,
    /// No such client, or it is not on this machine.
    ClientNotFound,
    /// A client's file cannot be read or written.
    ClientFileUnreadable,
    /// What stands in a client's file, or who manages it, does not let it be connected so.
    ClientRefused,
    /// A setting cannot be used.
    SettingsInvalid,
    /// A newer version wrote the settings.
    SettingsNewer,
    /// A secret is not stored.
    SecretMissing,
    /// The system's keyring does not open.
    SecretStoreLocked,
    /// No room for another memory item.
    MemoryFull,
    /// No such memory item.
    MemoryNotFound,
    /// Someone else changed the item meanwhile.
    MemoryConflict,
    /// The value is not JSON or is too large.
    MemoryInvalid,
    /// The bridge was restarted in the middle.
    BridgeRestarted,
    /// Too much at once; try again.
    BridgeBusy,
    /// An update cannot be had.
    UpdateFailed,
    /// A fault of ours.
    Internal,
}

impl ErrorCode {
    /// The kind of a call's failure, by the code that Python sees. Servers have codes of their own.
    pub fn of_call(code: &str) -> Self {
        match code {
            "server_disabled" | "server_denied" => Self::ToolDenied,
            _ => serde_json::from_value(code.into()).unwrap_or(Self::ToolFailed),
        }
    }
}

/// Something that needs the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Attention {
    /// Stays the same while the same thing is wrong.
    pub id: String,
    /// How bad.
    pub level: Level,
    /// What is wrong.
    pub error: ApiError,
    /// With which thing.
    pub subject: Subject,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Level {
    /// Runs work, but something is missing.
    Warning,
    /// Runs do not work.
    Error,
}

/// The thing that needs the user; the window leads there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Subject {
    /// The sandbox or its image.
    Sandbox,
    /// A server.
    Server {
        /// Its name.
        name: String,
    },
    /// An entry of a file.
    Entry {
        /// The file.
        path: String,
    },
    /// The settings file.
    Settings,
    /// The place where secrets are kept.
    Secrets,
    /// What is remembered.
    Memory,
    /// An update.
    Update,
    /// A client's registration.
    Client {
        /// The client.
        client: String,
    },
}
