//! Where Python runs, and the limits around it.

use serde::{Deserialize, Serialize};

use super::ApiError;

/// The user's choice of backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Backend {
    /// The best one that works here.
    Auto,
    /// A container.
    Container,
    /// The built-in WebAssembly Python.
    Wasi,
}

/// A backend that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum SandboxKind {
    /// A container.
    Container,
    /// The built-in WebAssembly Python.
    Wasi,
}

/// The user's choice of engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum EngineChoice {
    /// Podman, then Docker.
    Auto,
    /// Podman and no other.
    Podman,
    /// Docker and no other.
    Docker,
}

/// Where Python runs, measured and not assumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct SandboxStatus {
    /// The choice.
    pub backend: Backend,
    /// The choice of engine.
    pub engine: EngineChoice,
    /// The image to use, by name or digest.
    pub image: String,
    /// What came of the choice.
    pub state: SandboxState,
    /// Engines found on this machine, the one in use first.
    pub engines: Vec<ContainerEngine>,
    /// The image in the engine in use.
    pub image_state: ImageState,
    /// The built-in Python.
    pub wasi: WasiState,
    /// Python's version inside, once a guest said so.
    pub python: Option<String>,
    /// Limits that this sandbox does not enforce, and other things to know.
    pub warnings: Vec<ApiError>,
    /// Packages that code had installed.
    pub packages: Packages,
}

/// Whether code may have packages installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum PackagesPolicy {
    /// No, and those that are installed are not seen.
    Off,
    /// The user is asked each time.
    Ask,
    /// Yes.
    Allow,
}

/// Packages that code had installed, for all sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Packages {
    /// The choice.
    pub policy: PackagesPolicy,
    /// The host that they come from; `None`: none is known.
    pub index: Option<String>,
    /// By name.
    pub installed: Vec<InstalledPackage>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct InstalledPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Of its wheel.
    pub size_bytes: u64,
    /// The host that it came from.
    pub index: String,
    /// Nobody asked for it by name: another one needs it, or did.
    pub needed: bool,
}

/// What came of the choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum SandboxState {
    /// Still looking, or preparing the image.
    Preparing,
    /// Runs can start.
    Ready {
        /// In which.
        kind: SandboxKind,
        /// Its user on this machine is not root; the built-in one never is.
        rootless: bool,
    },
    /// Runs cannot start.
    Unavailable {
        /// Why.
        error: ApiError,
    },
}

/// A container engine found on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ContainerEngine {
    /// `Podman`, `Docker Desktop`, `Colima` and so on.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Where it listens.
    pub socket: String,
    /// It runs as the user.
    pub rootless: bool,
    /// Whether it can be used.
    pub state: EngineState,
    /// It is the one in use.
    pub in_use: bool,
}

/// Whether an engine can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum EngineState {
    /// It answers.
    Running,
    /// It is installed and stopped.
    Stopped,
    /// It is there and cannot be used.
    Failed {
        /// Why.
        error: ApiError,
    },
}

/// The image in the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum ImageState {
    /// No engine to ask.
    Unknown,
    /// Not there yet.
    Missing,
    /// On its way.
    Pulling {
        /// Bytes so far.
        done_bytes: u64,
        /// Bytes in all, once known.
        total_bytes: Option<u64>,
    },
    /// There.
    Present {
        /// Its digest.
        digest: String,
        /// Its size.
        size_bytes: u64,
    },
    /// It cannot be had.
    Failed {
        /// Why.
        error: ApiError,
    },
}

/// The built-in Python.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum WasiState {
    /// Ready to start.
    Ready {
        /// Python's version.
        python: String,
    },
    /// It is being compiled for this machine, once.
    Preparing,
    /// It cannot be used.
    Unavailable {
        /// Why.
        error: ApiError,
    },
}

/// A live Python with its variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Interpreter {
    /// Identifier.
    pub id: String,
    /// The client it belongs to; `runbridge` for the window's own.
    pub client: String,
    /// The connection it belongs to.
    pub connection_id: Option<String>,
    /// Its name among those of the connection.
    pub session: Option<String>,
    /// Where it runs.
    pub kind: SandboxKind,
    /// Since when.
    pub started_at: i64,
    /// Since when it has done nothing; `None` while it runs something.
    pub idle_since_at: Option<i64>,
    /// Runs it has done.
    pub runs: u32,
    /// The memory limit it was started with.
    pub memory_bytes_max: u64,
}

/// What one interpreter uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Measure {
    /// The interpreter.
    pub interpreter_id: String,
    /// Memory.
    pub memory_bytes: u64,
    /// Thousandths of one CPU since the last measure; `None` when the backend cannot tell.
    pub cpu_thousandths: Option<u32>,
}

/// A bound that is enforced: one row of the table of limits, with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Limit {
    /// Name in the table and in the settings file.
    pub name: String,
    /// What it is, in one line.
    pub about: String,
    /// Where a window shows it.
    pub group: LimitGroup,
    /// What the numbers count.
    pub unit: LimitUnit,
    /// In force now.
    pub value: u64,
    /// In force unless someone says otherwise.
    pub default: u64,
    /// Smallest; the same as `ceiling` where nobody can change the limit.
    pub min: u64,
    /// Largest that a slider offers.
    pub usual_max: u64,
    /// Largest that may be typed.
    pub ceiling: u64,
    /// The variable that sets it, if there is one.
    pub variable: Option<String>,
    /// Who set the value.
    pub set_by: SetBy,
}

/// Where a window shows a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum LimitGroup {
    /// Of one run.
    Run,
    /// Of one sandbox.
    Sandbox,
    /// Of tool calls and servers.
    Calls,
    /// Of what is remembered.
    Memory,
}

/// What a limit's numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum LimitUnit {
    /// Time.
    Milliseconds,
    /// Size.
    Bytes,
    /// Thousandths of a CPU; 0 sets no limit.
    CpuThousandths,
    /// Things.
    Count,
    /// Characters.
    Characters,
}

/// Who set a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum SetBy {
    /// Nobody.
    Default,
    /// The settings file, which is what this window writes.
    Settings,
    /// A variable of the environment, which wins over this window.
    Variable,
}
