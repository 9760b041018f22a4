//! Work that is done once: a folder named by the hash of everything that goes into it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// Marks a folder whose work was finished.
const DONE: &str = ".done";

/// What goes into a stage.
pub(super) struct Inputs {
    name: &'static str,
    hash: Sha256,
}

impl Inputs {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            hash: Sha256::new(),
        }
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        self.add(text.as_bytes());
        self
    }

    /// The result of an earlier stage; its folder's name holds its hash.
    pub(super) fn stage(self, folder: &Path) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        self.text(&name)
    }

    pub(super) fn file(mut self, path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.add(name.as_bytes());
        self.add(&bytes);
        Ok(self)
    }

    /// Every file below `folder`.
    pub(super) fn folder(mut self, folder: &Path) -> anyhow::Result<Self> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            if path.file_name().is_some_and(|name| name == "__pycache__") {
                continue;
            }
            self = if path.is_dir() {
                self.folder(&path)?
            } else {
                self.file(&path)?
            };
        }
        Ok(self)
    }

    fn add(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }
}

/// Do `work` in the folder of `inputs` unless it was done before; gives the folder.
pub(super) fn run(
    root: &Path,
    inputs: Inputs,
    work: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let hash = hex(&inputs.hash.finalize());
    let folder = root.join(format!("{}-{}", inputs.name, &hash[..16]));
    if folder.join(DONE).exists() {
        return Ok(folder);
    }
    remove(&folder)?;
    fs::create_dir_all(&folder)?;
    work(&folder)?;
    fs::write(folder.join(DONE), "")?;
    Ok(folder)
}

/// Remove a file or a folder if it is there.
pub(super) fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// SHA-256 of a file, in hexadecimal.
pub(super) fn file_hash(path: &Path) -> anyhow::Result<String> {
    let mut file =
        fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
