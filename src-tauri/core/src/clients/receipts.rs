//! What we changed in clients' files: enough to undo it to the byte, or, if others wrote since, to take
//! out what is ours.
//!
//! A receipt is written before the file it speaks of, so that no crash leaves a change without one.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::edit::Section;
use super::parse::Value;
use crate::atomic;
use crate::paths::Paths;

/// Another of our processes needs one file write.
const LOCK_WITHIN: Duration = Duration::from_secs(5);

/// Backups kept beside those that an undo needs.
const BACKUPS_MAX: usize = 50;

/// A longer file is no receipt.
const RECEIPT_BYTES_MAX: u64 = 4 << 20;

/// More files than clients with files.
const RECEIPTS_MAX: usize = 500;

/// What was done to one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The client's identifier.
    pub client: String,
    /// The file.
    pub file: PathBuf,
    /// Our entry as it was written.
    pub entry: Json,
    /// When.
    pub at: String,
    /// Put the entry back whenever it is lost.
    pub keep: bool,
    /// Keys above the entry that were made with it.
    pub(super) levels_made: usize,
    /// How our entry came in.
    pub(super) connected: Step,
    /// How the client's own servers went out.
    pub(super) moved: Option<Moved>,
}

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    /// The backup of what was there; `None`: nothing.
    pub(super) backup: Option<String>,
    /// The hash of what was there afterwards.
    pub(super) after: String,
}

/// Servers that were taken out of the file and are reached through us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) step: Step,
    /// Where they stood.
    pub(super) keys: Vec<String>,
    pub(super) list: bool,
    /// Name and content, in the file's order.
    pub(super) servers: Vec<(String, Json)>,
}

impl Receipt {
    /// The names of the servers that were moved.
    pub fn moved(&self) -> Vec<&str> {
        let servers = self.moved.iter().flat_map(|moved| &moved.servers);
        servers.map(|(name, _)| name.as_str()).collect()
    }
}

impl Moved {
    pub(super) fn new(step: Step, section: Section, servers: Vec<(String, Json)>) -> Self {
        Self {
            step,
            keys: section.keys.iter().map(|&key| key.to_owned()).collect(),
            list: section.list,
            servers,
        }
    }

    /// The servers as the client's file would say them.
    pub(super) fn document(&self) -> Value {
        let servers = self.servers.iter();
        let section = if self.list {
            Json::Array(
                servers
                    .map(|(name, entry)| {
                        let mut named = Map::new();
                        named.insert("name".to_owned(), name.as_str().into());
                        named.extend(entry.as_object().cloned().unwrap_or_default());
                        Json::Object(named)
                    })
                    .collect(),
            )
        } else {
            Json::Object(servers.cloned().collect())
        };
        let root = self.keys.iter().rev().fold(section, |inner, key| {
            Json::Object([(key.clone(), inner)].into_iter().collect())
        });
        Value::from_json(&root)
    }
}

/// The folder of receipts; it is watched, since servers may be parked in it.
pub(super) fn folder(paths: &Paths) -> PathBuf {
    paths.data.join("clients")
}

fn backups(paths: &Paths) -> PathBuf {
    folder(paths).join("backups")
}

/// All receipts, by client and file. One that cannot be read is reported in the log.
pub(super) fn all(paths: &Paths) -> Vec<Receipt> {
    let entries = fs::read_dir(folder(paths)).into_iter().flatten().flatten();
    let mut receipts: Vec<Receipt> = entries
        .take(RECEIPTS_MAX)
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .filter_map(|path| {
            read(&path)
                .inspect_err(|error| tracing::warn!("{} cannot be read: {error}", path.display()))
                .ok()
        })
        .collect();
    receipts.sort_by(|a, b| (&a.client, &a.file).cmp(&(&b.client, &b.file)));
    receipts
}

fn read(path: &Path) -> io::Result<Receipt> {
    if fs::metadata(path)?.len() > RECEIPT_BYTES_MAX {
        return Err(io::Error::other("it is too long"));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Keeps other processes of ours out while files and receipts change.
pub(super) fn lock(paths: &Paths) -> io::Result<atomic::Lock> {
    let folder = folder(paths);
    atomic::create_folder(&folder)?;
    atomic::Lock::take(&folder.join(".lock"), LOCK_WITHIN).map_err(io::Error::other)
}

pub(super) fn save(paths: &Paths, receipt: &Receipt) -> io::Result<()> {
    atomic::write(&place(paths, receipt), &serde_json::to_vec_pretty(receipt)?)
}

pub(super) fn forget(paths: &Paths, receipt: &Receipt) -> io::Result<()> {
    atomic::remove(&place(paths, receipt)).map(|_| ())
}

fn place(paths: &Paths, receipt: &Receipt) -> PathBuf {
    let hash = hash(receipt.file.as_os_str().as_encoded_bytes());
    folder(paths).join(format!("{}-{}.json", receipt.client, &hash[..12]))
}

/// The name that a backup of this content has.
pub(super) fn backup_name(client: &str, content: &[u8]) -> String {
    let time = crate::timestamp::now().replace(':', "");
    format!("{client}-{time}-{}.bak", &hash(content)[..12])
}

/// Keeps a copy of what a file held, in our own folder: some clients read every file beside theirs.
pub(super) fn save_backup(paths: &Paths, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let folder = backups(paths);
    atomic::create_folder(&folder)?;
    let path = folder.join(name);
    atomic::write(&path, content)?;
    Ok(path)
}

/// A backup, if it is still there.
pub(super) fn backup(paths: &Paths, name: &str) -> Option<Vec<u8>> {
    fs::read(backups(paths).join(name)).ok()
}

/// Removes the oldest backups that no undo needs.
pub(super) fn prune(paths: &Paths) -> io::Result<()> {
    let receipts = all(paths);
    let needed: Vec<&String> = receipts
        .iter()
        .flat_map(|receipt| {
            let moved = receipt
                .moved
                .as_ref()
                .and_then(|moved| moved.step.backup.as_ref());
            receipt.connected.backup.iter().chain(moved)
        })
        .collect();
    let mut others: Vec<(std::time::SystemTime, PathBuf)> = fs::read_dir(backups(paths))?
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            needed.iter().all(|needed| name != needed.as_str())
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    others.sort();
    for (_, path) in others.iter().take(others.len().saturating_sub(BACKUPS_MAX)) {
        atomic::remove(path)?;
    }
    Ok(())
}

/// A content's name.
pub(super) fn hash(content: &[u8]) -> String {
    let mut name = String::with_capacity(64);
    for byte in Sha256::digest(content) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}
