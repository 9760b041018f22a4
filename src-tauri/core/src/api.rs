//! What the window is told and what it may ask: plain data, the list of commands, the list of changes.
//!
//! A window starts with the command `get_state`, which gives one whole [`State`], and then listens to
//! the one event [`EVENT`], whose payload is a [`BridgeEvent`]. Every event carries a number one higher
//! than the last. A window that misses a number asks for the state again; nothing is polled.
//!
//! Nothing here has behaviour and nothing here knows Tauri. Whoever fills these types has redacted them:
//! the value of a secret has no field to travel in.
//!
//! On the wire, fields are `camelCase`, values of enums and tags are `snake_case`, unions carry their
//! variant in `type`, identifiers are strings, `*_at` are milliseconds since 1970, sizes are bytes and
//! durations milliseconds. JSON that belongs to users (memory values, arguments, schemas) travels as its
//! text, so that a number keeps every digit that it was written with.

mod activity;
#[cfg(feature = "bindings")]
mod bindings;
mod client;
mod command;
mod error;
mod memory;
mod question;
mod sandbox;
mod server;
mod settings;

use serde::{Deserialize, Serialize};

pub use activity::{
    Call, CallState, LogLine, Run, RunCursor, RunDetail, RunFilter, RunPage, RunStatus, Savings,
    Severity, Stream,
};
#[cfg(feature = "bindings")]
pub use bindings::bindings;
pub use client::{Client, ClientAction, ClientPlan, ClientServer, ClientState};
pub use command::COMMANDS;
pub use error::{ApiError, Attention, ErrorCode, Level, Subject};
pub use memory::{
    Forgotten, ImportMode, ImportReport, MemoryInfo, MemoryItem, MemoryOrder, MemoryPage,
    MemoryTotals, SavedTool,
};
pub use question::{
    Choice, Question, QuestionAnswer, QuestionField, QuestionInput, QuestionWay, TextFormat,
};
pub use sandbox::{
    Backend, ContainerEngine, EngineChoice, EngineState, ImageState, InstalledPackage, Interpreter,
    Limit, LimitGroup, LimitUnit, Measure, Packages, PackagesPolicy, SandboxKind, SandboxState,
    SandboxStatus, SetBy, WasiState,
};
pub use server::{
    EntryProblem, NewServer, NewTransport, NewVariable, ParsedServers, Server, ServerDetail,
    ServerOutput, ServerState, SkippedEntry, Source, Tool, ToolDetail, Transport, Variable,
};
pub use settings::{
    AppInfo, AppSettings, Appearance, DiagnosticsFile, Licence, Place, SecretStore,
    SecretStoreKind, SettingsPatch, UpdateState,
};

/// The name of the one event.
pub const EVENT: &str = "bridge";

/// All that a window shows without asking further. Long lists (runs of the past, memory items, tools of
/// a server) are read by page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct State {
    /// Number of the last event that is already contained.
    pub seq: u64,
    /// This program and its places.
    pub app: AppInfo,
    /// The user's decisions that are not limits.
    pub settings: AppSettings,
    /// Every limit with its value and its range.
    pub limits: Vec<Limit>,
    /// While true, no run starts and no tool is called.
    pub paused: bool,
    /// What needs the user, the worst first.
    pub attention: Vec<Attention>,
    /// Clients attached now, the oldest first.
    pub connections: Vec<Connection>,
    /// Servers, by name.
    pub servers: Vec<Server>,
    /// Entries that could not be read.
    pub problems: Vec<EntryProblem>,
    /// Entries that were left out on purpose.
    pub skipped: Vec<SkippedEntry>,
    /// Where Python runs.
    pub sandbox: SandboxStatus,
    /// Interpreters alive now.
    pub interpreters: Vec<Interpreter>,
    /// Runs that are queued or running, the oldest first.
    pub runs: Vec<Run>,
    /// What servers ask the user, the oldest first.
    pub questions: Vec<Question>,
    /// What has ever happened here, for the list of first steps.
    pub seen: Seen,
    /// Tokens that stayed out of the models' context today.
    pub savings: Savings,
    /// How much is remembered.
    pub memory: MemoryTotals,
}

/// What has ever happened here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Seen {
    /// A client was connected.
    pub client: bool,
    /// A run ended well, whether a client or the window asked for it.
    pub run: bool,
}

/// One client attached through a sidecar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Connection {
    /// Identifier.
    pub id: String,
    /// As the client calls itself, such as `claude-desktop`.
    pub client: String,
    /// Its version, when it says so.
    pub version: Option<String>,
    /// Protocol revision in use.
    pub revision: Option<String>,
    /// Process of the sidecar.
    pub pid: u32,
    /// Working directory of the sidecar.
    pub cwd: Option<String>,
    /// Since when.
    pub since_at: i64,
}

/// One change, as the event's payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct BridgeEvent {
    /// One higher than the event before.
    pub seq: u64,
    /// What changed.
    pub change: Change,
}

/// What changed. A value replaces the one with the same identifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Change {
    /// A client attached, or told more about itself.
    Connection {
        /// The client.
        connection: Connection,
    },
    /// A client went away.
    ConnectionClosed {
        /// Its identifier.
        id: String,
    },
    /// A server is new or differs.
    Server {
        /// The server.
        server: Box<Server>,
    },
    /// A server is no longer named by any file.
    ServerRemoved {
        /// Its name.
        name: String,
    },
    /// A server wrote or logged something, which is read by `read_server_output`; told of the server that
    /// a window asked for by `watch_server_output`, about fifteen times a second at most.
    ServerOutput {
        /// Its name.
        server: String,
    },
    /// Files were read again.
    Entries {
        /// Entries that could not be read.
        problems: Vec<EntryProblem>,
        /// Entries that were left out on purpose.
        skipped: Vec<SkippedEntry>,
    },
    /// Clients came, went, gained or lost us; sent once `read_clients` was asked.
    Clients {
        /// All of them.
        clients: Vec<Client>,
    },
    /// The sandbox or its image differs; during a pull about ten times a second at most.
    Sandbox {
        /// The sandbox.
        sandbox: Box<SandboxStatus>,
    },
    /// An interpreter started or changed its state.
    Interpreter {
        /// The interpreter.
        interpreter: Interpreter,
    },
    /// An interpreter ended.
    InterpreterStopped {
        /// Its identifier.
        id: String,
    },
    /// What interpreters use; sent once a second while a window asked by `watch_interpreters`.
    Measured {
        /// When.
        at: i64,
        /// One per interpreter.
        measures: Vec<Measure>,
    },
    /// A run was queued, started or ended; it has ended when its status says so.
    Run {
        /// The run.
        run: Box<Run>,
    },
    /// A run wrote something. A late window gets what is missing from `read_run`.
    RunOutput {
        /// The run.
        run_id: String,
        /// Where it wrote.
        stream: Stream,
        /// What it wrote since the last such event.
        text: String,
    },
    /// A call began or ended.
    Call {
        /// The run.
        run_id: String,
        /// The call.
        call: Box<Call>,
    },
    /// A server asks the user.
    Question {
        /// What.
        question: Box<Question>,
    },
    /// A question was answered, or nobody waits for its answer any more.
    QuestionClosed {
        /// Its identifier.
        id: String,
    },
    /// A memory item is new or differs.
    MemorySaved {
        /// The item without its value.
        info: MemoryInfo,
        /// The new totals.
        totals: MemoryTotals,
    },
    /// A memory item is gone.
    MemoryForgotten {
        /// Its key.
        key: String,
        /// The new totals.
        totals: MemoryTotals,
    },
    /// The saved tools differ; read them again if they are shown.
    SavedTools {
        /// The new totals.
        totals: MemoryTotals,
    },
    /// Limits differ.
    Limits {
        /// All of them.
        limits: Vec<Limit>,
    },
    /// Settings differ.
    Settings {
        /// All of them.
        settings: AppSettings,
    },
    /// The program or its update state differs.
    App {
        /// The program.
        app: AppInfo,
    },
    /// Other things need the user.
    Attention {
        /// All of them.
        attention: Vec<Attention>,
    },
    /// Everything was paused or resumed.
    Paused {
        /// Whether it is paused now.
        paused: bool,
    },
    /// A run ended and saved tokens.
    Savings {
        /// Today's figures.
        savings: Savings,
    },
    /// Something happened here for the first time.
    Seen {
        /// What has ever happened.
        seen: Seen,
    },
}
