//! Why a client was not connected, or is not any more.

use std::path::PathBuf;

use super::NAME;
use crate::clients::parse::Position;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no such client.
    #[error("no client is called `{name}`; these are known: {known}")]
    UnknownClient {
        /// What was asked for.
        name: String,
        /// All that can be connected.
        known: String,
    },
    /// It is not on this machine, or has never been started.
    #[error(
        "{client} was not found; none of its folders is there: {looked}. If it is installed, start it once"
    )]
    NotInstalled {
        /// The client.
        client: &'static str,
        /// Where it would be.
        looked: String,
    },
    /// It has several files, of which it reads one.
    #[error("{client} has several files, and only you know which one it reads: {}. Name it with --file", list(.files))]
    SeveralFiles {
        /// The client.
        client: &'static str,
        /// These.
        files: Vec<PathBuf>,
    },
    /// The file named is none of the client's.
    #[error("{client} does not read {}; it reads {}", .file.display(), list(.files))]
    NotItsFile {
        /// The client.
        client: &'static str,
        /// What was named.
        file: PathBuf,
        /// What it reads.
        files: Vec<PathBuf>,
    },
    /// The file cannot be read, so it is not written.
    #[error("{}{}: {message}; nothing was changed", .file.display(), place(.position.as_ref()))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Where.
        position: Option<Position>,
        /// Why.
        message: String,
    },
    /// The file begins with a byte order mark, because of which the client reads nothing of it.
    #[error("{} begins with a byte order mark, which {client} does not accept; `--drop-bom` saves it without one; nothing was changed", .file.display())]
    ByteOrderMark {
        /// The client.
        client: &'static str,
        /// The file.
        file: PathBuf,
    },
    /// The client is not allowed to start us.
    #[error("{client} cannot be connected: {reason}")]
    Forbidden {
        /// The client.
        client: &'static str,
        /// Who says so, and where.
        reason: String,
    },
    /// Our name stands for something else.
    #[error("{} already has an entry `{NAME}` that starts something else; rename or remove it first", .file.display())]
    NameTaken {
        /// The file.
        file: PathBuf,
    },
    /// Nothing was moved.
    #[error("no servers of {client} were moved behind the bridge")]
    NothingMoved {
        /// The client.
        client: &'static str,
    },
    /// The file kept changing, or changed since the plan was made.
    #[error("{} is being changed by another program; close it, or try again", .file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// Our program will not be where it is now.
    #[error("{} is a temporary place; install Runbridge where it stays and run it from there", .program.display())]
    Fleeting {
        /// The program.
        program: PathBuf,
    },
    /// The disk refused.
    #[error("{} cannot be written: {error}", .file.display())]
    Disk {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

pub(super) fn list(files: &[PathBuf]) -> String {
    let files: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    files.join(", ")
}

fn place(position: Option<&Position>) -> String {
    position.map_or_else(String::new, |at| format!(":{}:{}", at.line, at.column))
}
