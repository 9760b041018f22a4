//! Servers, their entries and their tools.

use serde::{Deserialize, Serialize};

use super::{ApiError, LogLine};

/// An MCP server that a file names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Server {
    /// Its name, unique.
    pub name: String,
    /// Its name in Python.
    pub alias: String,
    /// What the server or the file says of it.
    pub description: Option<String>,
    /// How it is reached.
    pub transport: Transport,
    /// Command line or address, without secrets.
    pub target: String,
    /// Where it was found; the first one won.
    pub sources: Vec<Source>,
    /// It was added in this window and can be removed here.
    pub own: bool,
    /// Whether runs may call it.
    pub enabled: bool,
    /// Why it is off, when the user did not decide so here.
    pub off_reason: Option<String>,
    /// What it does now.
    pub state: ServerState,
    /// Protocol revision in use.
    pub revision: Option<String>,
    /// Since when its process runs.
    pub started_at: Option<i64>,
    /// How long the last start took.
    pub start_ms: Option<u64>,
    /// Its process.
    pub pid: Option<u32>,
    /// Memory of its processes.
    pub memory_bytes: Option<u64>,
    /// Tools known.
    pub tools_count: u32,
    /// Tools that runs may call.
    pub tools_enabled: u32,
    /// Tokens that all its tool definitions would cost a model.
    pub tokens: u64,
    /// Calls since midnight.
    pub calls_today: u32,
    /// What is odd about it, in words.
    pub notes: Vec<String>,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Transport {
    /// A child process.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// The older HTTP with server-sent events.
    Sse,
}

/// What a server does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum ServerState {
    /// Not running; the first call starts it.
    Stopped,
    /// On its way.
    Starting,
    /// Answers calls.
    Ready,
    /// The last start failed.
    Failed {
        /// Why.
        error: ApiError,
        /// When the next one is due.
        retry_at: Option<i64>,
    },
    /// Values have to be filled in before it can start.
    NeedsValue {
        /// Names of variables and inputs.
        names: Vec<String>,
    },
    /// Someone has to sign in.
    NeedsSignIn,
}

/// Where an entry came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Source {
    /// The client's identifier, `drop-folder` or `runbridge`.
    pub client: String,
    /// The file.
    pub path: String,
    /// The entry's name there.
    pub name: String,
}

/// A server with what only its own page shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ServerDetail {
    /// The server.
    pub server: Server,
    /// Its tools in the order that it lists them; without their schemas.
    pub tools: Vec<Tool>,
    /// Its environment or headers.
    pub variables: Vec<Variable>,
    /// Working directory.
    pub cwd: Option<String>,
    /// What the server says of its use.
    pub instructions: Option<String>,
}

/// The last words of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ServerOutput {
    /// The end of what it wrote to stderr.
    pub stderr: String,
    /// The last lines that it logged over the protocol.
    pub log: Vec<LogLine>,
}

/// A tool without its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The first line of its description.
    pub summary: String,
    /// Whether runs may call it.
    pub enabled: bool,
    /// The client's file denies it, so that it cannot be enabled here.
    pub denied_by_source: bool,
    /// Tokens that its definition would cost a model.
    pub tokens: u64,
    /// It says that it only reads.
    pub read_only: bool,
}

/// A tool whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ToolDetail {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// As Python sees it.
    pub signature: String,
    /// Schema of its arguments, as JSON text.
    pub input_schema: String,
    /// Schema of its value, as JSON text.
    pub output_schema: Option<String>,
}

/// A variable of the environment, or a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value; `None` when it is secret or missing.
    pub value: Option<String>,
    /// It is kept in the secret store or looks like a secret.
    pub secret: bool,
    /// It has no value yet.
    pub missing: bool,
}

/// An entry of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct EntryProblem {
    /// The client whose file it is.
    pub client: String,
    /// The file.
    pub path: String,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// The entry, when the rest of the file could be read.
    pub entry: Option<String>,
    /// What is wrong.
    pub message: String,
}

/// An entry that was left out on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct SkippedEntry {
    /// Where it is.
    pub source: Source,
    /// Why, in words.
    pub reason: String,
}

/// A server to add, as the window's form gives it. It may carry secrets, so it travels one way only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct NewServer {
    /// Its name.
    pub name: String,
    /// How to reach it.
    pub transport: NewTransport,
    /// Environment of a process, headers of a remote server.
    pub variables: Vec<NewVariable>,
}

impl std::fmt::Debug for NewServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewServer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How to reach a server that is to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum NewTransport {
    /// A child process.
    Stdio {
        /// Program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Working directory.
        cwd: Option<String>,
    },
    /// A remote server.
    Http {
        /// Its address.
        url: String,
        /// It speaks the older HTTP with server-sent events.
        sse: bool,
    },
}

/// A variable of a server that is to be added. `Debug` hides the value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct NewVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Keep it in the secret store.
    pub secret: bool,
}

impl std::fmt::Debug for NewVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewVariable")
            .field("name", &self.name)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

/// What a pasted piece of some client's JSON says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ParsedServers {
    /// Servers it names, with the variables that look like secrets marked so.
    pub servers: Vec<NewServer>,
    /// What could not be read.
    pub problems: Vec<EntryProblem>,
}
