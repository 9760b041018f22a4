//! How things stand with a client.

use std::path::PathBuf;

use serde::Serialize;

use super::OwnServer;
use crate::clients::parse::Position;

/// How things stand with a client.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Its identifier.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The file, if it is clear which.
    pub file: Option<PathBuf>,
    /// Whether it runs; `None`: unknown.
    pub running: Option<bool>,
    /// What must be done to make it see a change; empty: nothing.
    pub restart: &'static str,
    /// Whether we are in its file.
    pub state: State,
    /// Our entry is put back whenever it is lost.
    pub keep: bool,
    /// How it may call itself when it attaches: beginnings of names, in lower case and without signs.
    #[serde(skip)]
    pub announces: Vec<String>,
    /// Its own servers: those in its file, then those that we reach for it.
    pub servers: Vec<OwnServer>,
}

impl Standing {
    /// Servers of its own that we reach for it.
    pub fn moved(&self) -> Vec<&str> {
        let moved = self.servers.iter().filter(|server| server.moved);
        moved.map(|server| server.name.as_str()).collect()
    }
}

/// Whether a client's file names us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It could be connected.
    NotConnected,
    /// Its file has our entry.
    Connected {
        /// Under this name.
        name: String,
    },
    /// It has us as an extension of its own, and needs no entry.
    Extension {
        /// The extension's manifest.
        manifest: PathBuf,
    },
    /// Our entry was there and is gone.
    Lost,
    /// Somebody changed our entry.
    Changed,
    /// Our entry is in a file that is not the one the client reads now.
    Shadowed {
        /// The one it reads.
        by: PathBuf,
    },
    /// Another program's entry has our name.
    NameTaken,
    /// The client is not allowed to start us.
    Forbidden {
        /// Who says so, and where.
        reason: String,
    },
    /// Several files could be meant.
    Several {
        /// These.
        files: Vec<PathBuf>,
    },
    /// The file cannot be read.
    Unreadable {
        /// Where.
        position: Option<Position>,
        /// Why.
        message: String,
        /// It begins with a byte order mark, and nothing else is wrong.
        mark_only: bool,
    },
}

pub(super) fn connected(name: &str) -> State {
    State::Connected {
        name: name.to_owned(),
    }
}
