//! Runs of Python and the calls they made.

use serde::{Deserialize, Serialize};

use super::{ApiError, SandboxKind};

/// One run without its code and output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Run {
    /// Identifier.
    pub id: String,
    /// The client that asked; `runbridge` for the window's own.
    pub client: String,
    /// The connection that asked.
    pub connection_id: Option<String>,
    /// The set of variables it ran with.
    pub session: Option<String>,
    /// The first line of the code that says something.
    pub title: String,
    /// How it stands.
    pub status: RunStatus,
    /// When it was asked for.
    pub started_at: i64,
    /// How long it took; `None` until it ended.
    pub duration_ms: Option<u64>,
    /// Servers it called.
    pub servers: Vec<String>,
    /// Calls it made.
    pub calls: u32,
    /// Calls of them that failed.
    pub calls_failed: u32,
    /// Where it ran.
    pub kind: Option<SandboxKind>,
    /// The most memory it used, where that can be measured.
    pub memory_bytes_peak: Option<u64>,
    /// Tokens of the reply.
    pub reply_tokens: Option<u64>,
    /// Tokens that the tool definitions and results of the same calls would have cost without the bridge.
    pub direct_tokens: Option<u64>,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum RunStatus {
    /// Waits for its turn.
    Queued,
    /// Runs.
    Running,
    /// Ended well.
    Success,
    /// The code raised, or the sandbox failed.
    Error,
    /// Took too long.
    Timeout,
    /// Was stopped.
    Cancelled,
    /// Used too much memory.
    OutOfMemory,
    /// Was refused before it began.
    ValidationError,
    /// The bridge ended in the middle of it.
    Interrupted,
}

impl RunStatus {
    /// As the record spells it.
    pub fn of_record(text: &str) -> Self {
        match text {
            "queued" => Self::Queued,
            "running" => Self::Running,
            "success" => Self::Success,
            "timeout" => Self::Timeout,
            "cancelled" => Self::Cancelled,
            "out_of_memory" => Self::OutOfMemory,
            "validation_error" => Self::ValidationError,
            "interrupted" => Self::Interrupted,
            _ => Self::Error,
        }
    }

    /// The word in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::OutOfMemory => "out_of_memory",
            Self::ValidationError => "validation_error",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether the run has ended.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// A run whole. Long texts are cut at the record's bounds and say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// Its code.
    pub code: String,
    /// What it printed.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
    /// Value of the last expression.
    pub result: Option<String>,
    /// Why it did not end well; the message holds the traceback.
    pub error: Option<ApiError>,
    /// Characters of output that the record left out.
    pub chars_left_out: u64,
    /// Its calls in the order they began.
    pub calls: Vec<Call>,
    /// What servers logged of its calls.
    pub log: Vec<LogLine>,
    /// The number of the last event that is contained, so that later output is added once.
    pub seq: u64,
}

/// One tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Call {
    /// Identifier, unique in its run.
    pub id: String,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Arguments as JSON text, redacted and cut.
    pub arguments: String,
    /// Milliseconds after the run's start.
    pub start_ms: u64,
    /// How it stands.
    pub state: CallState,
    /// How long it took, once it ended.
    pub duration_ms: Option<u64>,
    /// Size of its result.
    pub result_bytes: Option<u64>,
}

/// How a call stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum CallState {
    /// Under way.
    Open,
    /// Answered.
    Done,
    /// Failed or denied.
    Failed {
        /// Why.
        error: ApiError,
    },
}

/// A line that a server logged over the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct LogLine {
    /// The server.
    pub server: String,
    /// When it came.
    pub at: i64,
    /// How much it matters.
    pub severity: Severity,
    /// What part of the server logged it, if it says so.
    pub logger: Option<String>,
    /// What it says, cut.
    pub text: String,
}

/// How much a line of a log matters, in the protocol's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Severity {
    /// For who looks for a fault.
    Debug,
    /// What happens.
    Info,
    /// What happens seldom.
    Notice,
    /// What may go wrong.
    Warning,
    /// What went wrong.
    Error,
    /// A part does not work.
    Critical,
    /// Somebody must act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

/// Where a run wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which runs of the past to read; `None` and empty text ask for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct RunFilter {
    /// Of this client.
    pub client: Option<String>,
    /// That called this server.
    pub server: Option<String>,
    /// That ended so.
    pub status: Option<RunStatus>,
    /// Whose code or output contains this.
    pub text: String,
}

/// The last run of a page; the next page begins behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct RunCursor {
    /// When it was asked for.
    pub started_at: i64,
    /// Its identifier.
    pub id: String,
}

/// Some runs of the past, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<Run>,
    /// How many there are in all.
    pub total: u64,
    /// Where the next page begins; `None` at the end.
    pub next: Option<RunCursor>,
    /// Every client with a run on record, for the filter.
    pub clients: Vec<String>,
}

/// Tokens that stayed out of the models' context since midnight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Savings {
    /// Runs since midnight.
    pub runs_today: u32,
    /// Calls since midnight.
    pub calls_today: u32,
    /// Tokens of tool definitions that clients did not have to read.
    pub definitions_tokens: u64,
    /// Tokens of results that stayed in the sandbox.
    pub results_tokens: u64,
}
