//! What the user decided, resolved once: defaults, then `settings.json`, then `MCP_BRIDGE_*` variables.
//!
//! A value that cannot be used costs only itself: the one below it stays in force, and a
//! [`SettingsProblem`] names the variable or the key, the value, and the forms it takes. Which servers
//! the machine has is not known here; see [`crate::clients`].

mod file;
mod layers;
pub mod limits;
mod migrate;
pub mod units;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

pub use file::{SettingsError, SettingsFile};
pub use limits::Limits;
pub use migrate::VERSION;

use crate::activity::Retention;
use crate::clients::entry::Entry;
use crate::clients::parse::Position;
use crate::sign_in::ClientSettings;

/// A layer that can set a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The settings file.
    File,
    /// A variable of the environment.
    Variable,
}

/// The user's decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Start the desktop app with the computer.
    pub launch_at_login: bool,
    /// Tell about what needs the user, by the system's notifications.
    pub notifications: bool,
    /// Look for a newer version now and then.
    pub check_for_updates: bool,
    /// Light or dark.
    pub appearance: Appearance,
    /// Days that a run stays on record.
    pub keep_runs_days: u32,
    /// Runs that stay on record.
    pub keep_runs_max: u32,
    /// Where and in what Python runs.
    pub sandbox: SandboxSettings,
    /// Packages that code may have installed.
    pub packages: PackagesSettings,
    /// The bounds in force.
    pub limits: Limits,
    /// Which layer set a limit; one that is missing here has its default.
    pub limits_set: BTreeMap<&'static str, Layer>,
    /// Decisions on single servers, by `<client>/<name>` or plain name; ask [`Settings::decided`].
    pub servers: BTreeMap<String, ServerSettings>,
    /// Servers that the user gave to us and to no client, in the shape of `mcpServers`.
    pub own_servers: serde_json::Map<String, serde_json::Value>,
    /// What the user told us for names that entries need and that have no value elsewhere: a plain
    /// value, or `keyring:NAME`.
    pub answers: BTreeMap<String, String>,
    /// Folders whose project files may name servers.
    pub projects: Vec<PathBuf>,
    /// Clients whose files come before those of the others, by identifier.
    pub client_order: Vec<String>,
    /// Folders that servers are told of when they ask for roots.
    pub roots: Vec<PathBuf>,
    /// What becomes of requests of servers for a model's words.
    pub sampling: Sampling,
    /// `MCP_SERVERS_CONFIG`: a path, or the JSON itself.
    pub servers_config: Option<String>,
    /// Let entries that start Runbridge itself into the catalog.
    pub allow_self_server: bool,
    /// How a reply is written.
    pub output_mode: OutputMode,
    /// What is logged.
    pub log_level: LogLevel,
}

/// Where and in what Python runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Which kind of sandbox.
    pub backend: Backend,
    /// Which container engine.
    pub engine: Engine,
    /// The image, by name or digest.
    pub image: String,
    /// User and group inside, as `uid:gid`.
    pub container_user: String,
    /// Started guests that wait for the next session.
    pub spares: u32,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            engine: Engine::Auto,
            image: "python:3.14-slim".to_owned(),
            container_user: "65534:65534".to_owned(),
            spares: 1,
        }
    }
}

/// Packages that code may have installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackagesSettings {
    /// Whether it may.
    pub policy: PackagesPolicy,
    /// The index that they come from; `None`: the one that the user's pip or uv asks, or else Python's
    /// own.
    pub index: Option<String>,
}

/// Decisions on one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// On or off; `None` leaves it to the file that names the server.
    pub enabled: Option<bool>,
    /// Tools that may be called; `None`: all.
    pub tools_allowed: Option<Vec<String>>,
    /// Tools that may not be called.
    pub tools_denied: Vec<String>,
    /// Bounds that differ for this server: `call_ms_max`, `server_start_ms_max`, `server_idle_ms_max`, `calls_at_once_max`.
    pub limits: BTreeMap<&'static str, u64>,
    /// As which client to sign in there.
    pub sign_in: ClientSettings,
    /// Folders that differ for this server.
    pub roots: Option<Vec<PathBuf>>,
    /// The same of requests for a model's words.
    pub sampling: Option<Sampling>,
}

macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$variant_about:meta])* $variant:ident = $text:literal),* $(,)? } default $default:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$variant_about])* $variant,)* }

        impl Default for $name {
            fn default() -> Self { Self::$default }
        }

        impl $name {
            pub(super) const FORMS: &'static str = choice!(@forms $($text)*);

            /// As it is written in settings.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            pub(super) fn read(text: &str) -> Option<Self> {
                match text.trim().to_ascii_lowercase().as_str() { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
    (@forms $first:literal $($rest:literal)*) => { concat!($first, $(", ", $rest),*) };
}

impl Default for Settings {
    fn default() -> Self {
        let retention = Retention::default();
        Self {
            launch_at_login: false,
            notifications: true,
            check_for_updates: true,
            appearance: Appearance::default(),
            keep_runs_days: retention.days_max,
            keep_runs_max: retention.runs_max as u32,
            sandbox: SandboxSettings::default(),
            packages: PackagesSettings::default(),
            limits: Limits::default(),
            limits_set: BTreeMap::new(),
            servers: BTreeMap::new(),
            own_servers: serde_json::Map::new(),
            answers: BTreeMap::new(),
            projects: Vec::new(),
            client_order: Vec::new(),
            roots: Vec::new(),
            sampling: Sampling::default(),
            servers_config: None,
            allow_self_server: false,
            output_mode: OutputMode::default(),
            log_level: LogLevel::default(),
        }
    }
}

choice! {
    /// How the window looks.
    Appearance {
        /// As the system.
        System = "system",
        /// Light.
        Light = "light",
        /// Dark.
        Dark = "dark",
    } default System
}

choice! {
    /// Which kind of sandbox runs Python.
    Backend {
        /// The best one that works here.
        Auto = "auto",
        /// A container.
        Container = "container",
        /// WebAssembly.
        Wasi = "wasi",
    } default Auto
}

impl Backend {
    /// As [`Backend::read`], and by the name that people know the built-in sandbox by.
    pub(super) fn named(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "builtin" | "built-in" => Some(Self::Wasi),
            _ => Self::read(text),
        }
    }
}

choice! {
    /// Which container engine.
    Engine {
        /// Podman, then Docker.
        Auto = "auto",
        /// Podman and no other.
        Podman = "podman",
        /// Docker and no other.
        Docker = "docker",
    } default Auto
}

choice! {
    /// Whether code may have packages installed.
    PackagesPolicy {
        /// No, and those that are installed are not seen.
        Off = "off",
        /// The user is asked each time.
        Ask = "ask",
        /// Yes.
        Allow = "allow",
    } default Ask
}

choice! {
    /// What becomes of a server's request for a model's words.
    Sampling {
        /// It is refused.
        Off = "off",
        /// It goes to the client of the run, if that client takes such requests.
        Client = "client",
    } default Off
}

choice! {
    /// How a reply is written.
    OutputMode {
        /// Plain text.
        Text = "text",
        /// A fenced block of TOON.
        Toon = "toon",
        /// A fenced block of JSON.
        Json = "json",
    } default Text
}

choice! {
    /// What is logged.
    LogLevel {
        /// Only what failed.
        Error = "error",
        /// Also what may fail soon.
        Warn = "warn",
        /// Also what happened.
        Info = "info",
        /// Also why.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    } default Info
}

impl LogLevel {
    /// As `tracing` takes it.
    pub fn filter(self) -> &'static str {
        match self {
            // The protocol's library tells of the end of each of its own tasks.
            Self::Info => "info,rmcp=warn",
            other => other.as_str(),
        }
    }
}

/// A value that could not be used, so that the one below it is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingsProblem {
    /// The variable, or the settings file.
    pub place: String,
    /// Where in the file.
    pub position: Option<Position>,
    /// What is wrong and what to do.
    pub message: String,
}

impl std::fmt::Display for SettingsProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.position {
            Some(at) => write!(
                f,
                "{}:{}:{}: {}",
                self.place, at.line, at.column, self.message
            ),
            None => write!(f, "{}: {}", self.place, self.message),
        }
    }
}

/// Runs and days that a user may have kept, each from 1.
pub const KEEP_RUNS_RANGE: (u32, u32) = (100_000, 3_650);

impl Settings {
    /// What the record of runs keeps.
    pub fn retention(&self) -> Retention {
        Retention {
            runs_max: self.keep_runs_max as usize,
            days_max: self.keep_runs_days,
            ..Retention::default()
        }
    }

    /// The decisions on a server, by one of its sources as `<client>/<name>`, else by its name alone;
    /// nothing decided is the default.
    pub fn decided(&self, entry: &Entry) -> ServerSettings {
        let sources = entry
            .sources
            .iter()
            .map(|source| format!("{}/{}", source.client, source.name));
        sources
            .chain([entry.name.clone()])
            .find_map(|key| self.servers.get(&key).cloned())
            .unwrap_or_default()
    }
}
