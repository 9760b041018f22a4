//! Clients: whether their files name us, and what it would take.

use serde::{Deserialize, Serialize};

/// An MCP client that is on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Client {
    /// Its identifier.
    pub id: String,
    /// Its name as its makers write it.
    pub name: String,
    /// How it may call itself when it attaches: beginnings of names, in lower case and without signs.
    pub announces: Vec<String>,
    /// The file that it reads, if that is clear.
    pub file: Option<String>,
    /// How things stand.
    pub state: ClientState,
    /// Whether it runs; `None`: the system does not tell.
    pub running: Option<bool>,
    /// What makes it see a change, as an order; `None`: it sees changes by itself.
    pub restart: Option<String>,
    /// Whenever our entry is lost, it is put back.
    pub keep: bool,
    /// Where another client has a server of the same name, this one's keeps the name.
    pub preferred: bool,
    /// Its own servers, those first that it starts itself.
    pub servers: Vec<ClientServer>,
}

/// Whether a client's file names us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum ClientState {
    /// It could be connected.
    NotConnected,
    /// Its file names us.
    Connected {
        /// Under this name.
        name: String,
    },
    /// It has us as an extension of its own, and needs no entry.
    Extension {
        /// The extension's manifest.
        manifest: String,
    },
    /// Its file named us and does so no longer.
    Lost,
    /// Somebody changed our entry.
    Changed,
    /// It reads another file now than the one that names us.
    Shadowed {
        /// The one it reads.
        by: String,
    },
    /// Another program's entry has our name.
    NameTaken,
    /// It may not start us.
    Forbidden {
        /// Who says so, and where.
        reason: String,
    },
    /// Several files could be meant, and only the user knows which.
    Several {
        /// These.
        files: Vec<String>,
    },
    /// Its file cannot be read.
    Unreadable {
        /// Line, from 1.
        line: Option<u32>,
        /// Column, from 1.
        column: Option<u32>,
        /// Why.
        message: String,
        /// A byte order mark is all that is wrong, and connecting may take it out.
        mark_only: bool,
    },
}

/// A server of a client's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ClientServer {
    /// Its name there.
    pub name: String,
    /// Why the client does not start it, if it does not.
    pub off: Option<String>,
    /// It was moved behind the bridge.
    pub moved: bool,
    /// Its tools; `None`: nobody has listed them yet.
    pub tools: Option<u32>,
    /// Tokens of their definitions, about.
    pub tokens: Option<u64>,
}

/// What to do with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum ClientAction {
    /// Put our entry into its file.
    Connect,
    /// Take it out again, and put back what was moved.
    Disconnect,
    /// Reach its own servers through us instead; connects it if need be.
    Move,
    /// Put back what was moved.
    Restore,
}

/// A change of a client's file, to be looked at before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct ClientPlan {
    /// The client.
    pub client: String,
    /// The file.
    pub file: String,
    /// The file is not there yet.
    pub creates: bool,
    /// Whether the file changes at all.
    pub changes: bool,
    /// The change as a unified diff without its heading, secrets left out.
    pub diff: String,
    /// What is worth saying: what stays as it is and why, what to do next.
    pub notes: Vec<String>,
    /// Tokens of definitions that the client reads now, about.
    pub tokens_before: u64,
    /// And afterwards.
    pub tokens_after: u64,
    /// Servers of which nobody has listed the tools, so that these figures lack them.
    pub tokens_unknown: u32,
    /// Names this very change: only the change that was looked at is made.
    pub seen: String,
}
