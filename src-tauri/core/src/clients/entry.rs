//! One server entry of a client's config file, as a value.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A server as a file describes it, with variables already expanded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The key in the file; unique among all entries after the merge.
    pub name: String,
    /// How to reach it.
    pub transport: EntryTransport,
    /// What the file says of it, if it says anything.
    pub description: Option<String>,
    /// Why it is off by default: the file or its client says so. `None`: on.
    pub off: Option<String>,
    /// Names of variables and inputs that have no value; a server that lacks one is never started.
    pub needs: Vec<String>,
    /// Tools the client's file allows; `None`: all.
    pub tools_allowed: Option<Vec<String>>,
    /// Tools the client's file denies.
    pub tools_denied: Vec<String>,
    /// Time allowed for the start, when the file says so.
    pub start_ms_max: Option<u64>,
    /// Time allowed for one call, when the file says so.
    pub call_ms_max: Option<u64>,
    /// What it gets when it asks for it.
    #[serde(default, skip_serializing_if = "Lent::is_nothing")]
    pub lent: Lent,
    /// Where it was found; the first is the one that won.
    pub sources: Vec<Source>,
}

/// What a server gets when it asks for it. The user's settings say so, and no file of a client does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    /// Folders that it is told of as roots.
    pub roots: Vec<PathBuf>,
    /// Its requests for a model's words (sampling) go to the client of the run.
    pub sampling: bool,
}

impl Lent {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum EntryTransport {
    /// A child process.
    Stdio {
        /// Program, as written, after expansion.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Added to the login environment. A value of `None` removes the variable.
        env: BTreeMap<String, Option<String>>,
        /// Working directory.
        cwd: Option<PathBuf>,
    },
    /// A remote server.
    Http {
        /// Its address.
        url: String,
        /// Sent with every request.
        headers: BTreeMap<String, String>,
        /// The file says that it speaks the older HTTP+SSE.
        sse: bool,
    },
}

/// Where an entry came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The client's identifier, such as `claude-desktop`; `drop-folder` for our own folders.
    pub client: String,
    /// The file.
    pub path: PathBuf,
    /// The entry's name there.
    pub name: String,
}
