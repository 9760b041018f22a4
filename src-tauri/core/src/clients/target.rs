//! What it takes to connect one client: the file it reads, where in it, and what an entry looks like.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::Search;
use super::edit::Section;
use super::own_command::OwnCommand;
use super::parse::Value;

/// Whether a program is us.
pub(super) type IsUs<'a> = &'a dyn Fn(&str) -> bool;

/// How a client is connected.
pub(super) struct Target {
    /// Files that the client may read, in its own order.
    pub(super) files: fn(&Search<'_>) -> Vec<TargetFile>,
    /// What to do if several of them exist.
    pub(super) several: Several,
    /// Where the servers are listed in a file that says this.
    pub(super) section: fn(&Value) -> Section,
    /// An entry that starts this program.
    pub(super) entry: fn(&str, Section) -> Json,
    /// What the client itself makes of a file that is not plain JSON.
    pub(super) reads: Reads,
    /// What makes a change count, as an order to the user.
    pub(super) restart: &'static str,
    /// Names of its processes.
    pub(super) processes: &'static [&'static str],
    /// The client's own command for an entry; `None`: we write the file.
    pub(super) own_command: Option<OwnCommand>,
    /// Why the client would not start this program under this name, whatever its file says.
    pub(super) forbidden: fn(&Search<'_>, name: &str, program: &str) -> Option<String>,
    /// Where the client has us otherwise than by its file: the manifest of its extension whose program
    /// is us.
    pub(super) extension: fn(&Search<'_>, is_us: IsUs<'_>) -> Option<PathBuf>,
}

/// A file that a client may read.
pub(super) struct TargetFile {
    pub(super) path: PathBuf,
    /// A folder that is there if the client is. A client that is not there gets no file.
    pub(super) installed: PathBuf,
}

impl TargetFile {
    /// A file whose own folder belongs to the client.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let installed = path.parent().map(Path::to_owned).unwrap_or_default();
        Self { path, installed }
    }

    /// A file somewhere under the client's folder.
    pub(super) fn under(folder: impl Into<PathBuf>, file: &str) -> Self {
        let installed = folder.into();
        Self {
            path: installed.join(file),
            installed,
        }
    }
}

/// Which of several existing files is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Several {
    /// The first: the client reads all, or the first only.
    First,
    /// The user must say: each belongs to another way of installing the client.
    Ask,
}

/// What the client accepts as JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// Plain JSON; with a comment or a byte order mark the whole file counts for nothing.
    PlainJson,
    /// More, but no byte order mark.
    NoMark,
    /// Whatever we read.
    Anything,
}

/// The section of most clients.
pub(super) const MCP_SERVERS: Section = Section {
    keys: &["mcpServers"],
    list: false,
};

impl Target {
    /// A client with `mcpServers` that sees a change by itself.
    pub(super) const fn plain(files: fn(&Search<'_>) -> Vec<TargetFile>) -> Self {
        Self {
            files,
            several: Several::First,
            section: |_| MCP_SERVERS,
            entry: |program, _| command(program),
            reads: Reads::Anything,
            restart: "",
            processes: &[],
            own_command: None,
            forbidden: |_, _, _| None,
            extension: |_, _| None,
        }
    }
}

/// `command` and `args`.
pub(super) fn command(program: &str) -> Json {
    json!({"command": program, "args": []})
}

/// The same with the type spelled out.
pub(super) fn stdio(program: &str) -> Json {
    json!({"type": "stdio", "command": program, "args": []})
}

/// The program that an entry starts, in whatever way clients write it.
pub(super) fn program_of(entry: &Value) -> Option<&str> {
    let command = entry.get("command").or_else(|| entry.get("cmd"))?;
    command
        .text()
        .or_else(|| command.items()?.first()?.text())
        .or_else(|| command.get("path")?.text())
}
