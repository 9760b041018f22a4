//! What was learned of each server, kept on disk: its tools, so that a search covers servers that
//! have not been started yet, and its era, so that the question for it is asked once.
//!
//! One file per server, named by its fingerprint; the file can always be thrown away. No value of an
//! environment variable or header is in it, nor in the fingerprint.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::clients::entry::{Entry, EntryTransport};
use crate::upstream::ToolList;
use crate::upstream::lifecycle::Era;

/// The form of the files; others are ignored.
const VERSION: u32 = 1;

/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Files kept; beyond it the oldest go.
const FILES_MAX: usize = 500;

/// What is kept of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    version: u32,
    pub(crate) era: Option<Era>,
    pub(crate) list: ToolList,
}

/// The folder, or none: then nothing is kept.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: Option<PathBuf>,
}

/// Which server an entry means, however it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(String);

impl Fingerprint {
    pub(crate) fn of(entry: &Entry) -> Self {
        let mut hash = Sha256::new();
        // Every part is preceded by its length, so that parts cannot run into each other.
        let mut add = |part: &str| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        };
        match &entry.transport {
            EntryTransport::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                add("stdio");
                add(command);
                add(&args.len().to_string());
                for arg in args {
                    add(arg);
                }
                for name in env.keys() {
                    add(name);
                }
                add(&cwd.as_deref().unwrap_or(Path::new("")).to_string_lossy());
            }
            EntryTransport::Http { url, headers, sse } => {
                add("http");
                add(url);
                for name in headers.keys() {
                    add(name);
                }
                add(if *sse { "sse" } else { "" });
            }
        }
        let mut name = String::new();
        for byte in &hash.finalize()[..16] {
            let _ = write!(name, "{byte:02x}");
        }
        Self(name)
    }
}

impl Cache {
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    /// What is kept; anything that cannot be read is as good as nothing.
    pub(crate) fn load(&self, fingerprint: &Fingerprint) -> Option<Kept> {
        let path = self.path(fingerprint)?;
        if path.metadata().ok()?.len() > FILE_BYTES_MAX {
            return None;
        }
        let kept: Kept = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        (kept.version == VERSION).then_some(kept)
    }

    /// Keep it. A failure costs the next start its head start, nothing else.
    pub(crate) fn save(&self, fingerprint: &Fingerprint, era: Option<Era>, list: &ToolList) {
        let Some(path) = self.path(fingerprint) else {
            return;
        };
        let kept = Kept {
            version: VERSION,
            era,
            list: list.clone(),
        };
        if self.load(fingerprint).as_ref() == Some(&kept) {
            return;
        }
        if let Err(error) = self.write(&path, &kept) {
            tracing::warn!(path = %path.display(), %error, "what was learned of a server cannot be kept");
        }
    }

    fn write(&self, path: &Path, kept: &Kept) -> std::io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        std::fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.persist(path)?;
        prune(dir)
    }

    fn path(&self, fingerprint: &Fingerprint) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("{}.json", fingerprint.0)))
    }
}

/// Forget the servers that were not seen for longest.
fn prune(dir: &Path) -> std::io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(dir)?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let modified = path.metadata().ok()?.modified().ok()?;
            (path.extension()? == "json").then_some((modified, path))
        })
        .collect();
    if files.len() > FILES_MAX {
        files.sort();
        for (_, path) in &files[..files.len() - FILES_MAX] {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}
