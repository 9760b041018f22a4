//! The embedded Python as files: find it, compile it once for this machine, and believe the result
//! only while it is what was compiled.
//!
//! Compiled code is run as it is, so that a damaged or planted file must never be loaded. It is kept
//! in a folder where nobody but the user may write, under a name that holds the hash of the module
//! and of the engine's version and settings, with its own SHA-256 beside it. The hash is checked
//! whenever the file is not the very one, untouched, that was checked before.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::machine;

/// What a build of the embedded Python wrote beside it.
#[derive(Deserialize)]
struct Inventory {
    files: Vec<InventoryFile>,
    parts: Vec<InventoryPart>,
}

#[derive(Deserialize)]
struct InventoryFile {
    name: String,
    sha256: String,
}

#[derive(Deserialize)]
struct InventoryPart {
    name: String,
    version: String,
}

/// The embedded Python as it was shipped.
#[derive(Clone, Debug)]
pub(super) struct Module {
    pub(super) wasm: PathBuf,
    /// The standard library and the bundled packages.
    pub(super) zips: Vec<PathBuf>,
    /// Such as `3.13.5`.
    pub(super) python: String,
    wasm_sha256: String,
}

impl Module {
    /// Look into the folder that holds `python.wasm`, its zips and `inventory.json`.
    pub(super) fn find(folder: &Path) -> Result<Self, String> {
        let path = folder.join("inventory.json");
        let inventory = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let inventory: Inventory = serde_json::from_slice(&inventory)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let wasm_sha256 = inventory
            .files
            .into_iter()
            .find(|file| file.name == "python.wasm")
            .map(|file| file.sha256)
            .filter(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .ok_or_else(|| format!("{} does not tell of python.wasm", path.display()))?;
        let python = inventory
            .parts
            .into_iter()
            .find(|part| part.name == "CPython");
        let module = Self {
            wasm: folder.join("python.wasm"),
            zips: ["python.zip", "packages.zip"]
                .map(|name| folder.join(name))
                .to_vec(),
            python: python.map(|part| part.version).unwrap_or_default(),
            wasm_sha256,
        };
        for file in std::iter::once(&module.wasm).chain(&module.zips) {
            if !file.is_file() {
                return Err(format!("{} is missing", file.display()));
            }
        }
        Ok(module)
    }

    /// Whether the module is the one that was shipped; asked before it is compiled.
    pub(super) fn verify(&self) -> Result<(), String> {
        let found = hash_of(&self.wasm)?;
        if found == self.wasm_sha256 {
            Ok(())
        } else {
            Err(format!(
                "{} has the SHA-256 {found}, not {}: it was changed after it was built",
                self.wasm.display(),
                self.wasm_sha256
            ))
        }
    }
}

/// Where the compiled code of one module is kept.
#[derive(Clone)]
pub(super) struct Cache {
    folder: PathBuf,
    name: String,
}

/// What was found out about a file of code.
#[derive(Deserialize, PartialEq, Serialize)]
struct Stamp {
    sha256: String,
    file: Identity,
}

/// Changes with every change of a file's content, as far as the system tells.
#[derive(Deserialize, PartialEq, Serialize)]
struct Identity {
    bytes: u64,
    device: u64,
    inode: u64,
    changed_at_s: i64,
    changed_at_ns: i64,
}

impl Cache {
    pub(super) fn new(folder: &Path, module: &Module) -> Result<Self, String> {
        let mut hasher = DefaultHasher::new();
        machine::engine()
            .map_err(|error| format!("{error:#}"))?
            .precompile_compatibility_hash()
            .hash(&mut hasher);
        let engine = hasher.finish();
        let cache = Self {
            folder: folder.to_owned(),
            name: format!("python-{}-{engine:016x}", &module.wasm_sha256[..16]),
        };
        private_folder(&cache.folder)?;
        Ok(cache)
    }

    fn code(&self) -> PathBuf {
        self.folder.join(format!("{}.code", self.name))
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }

    /// The compiled code, if it is there and what it was when it was compiled.
    pub(super) fn trusted(&self) -> Option<PathBuf> {
        let code = self.code();
        let stamp: Stamp = serde_json::from_slice(&fs::read(self.stamp()).ok()?).ok()?;
        let identity = identity(&code)?;
        if identity == stamp.file {
            return Some(code);
        }
        if hash_of(&code).ok()? != stamp.sha256 {
            tracing::warn!(file = %code.display(), "compiled code was changed; it is compiled anew");
            return None;
        }
        // Moved or copied; remember it as it is now.
        let stamp = Stamp {
            file: identity,
            ..stamp
        };
        if let Err(error) = self.write_stamp(&stamp) {
            tracing::debug!(%error, "cannot remember that the compiled code was checked");
        }
        Some(code)
    }

    /// Wait for the right to compile: one process does it, the others then find it done. Given back
    /// when the file is dropped, or by the system when the process ends.
    pub(super) fn lock(&self) -> Result<File, String> {
        let path = self.folder.join("compile.lock");
        let told = |error: io::Error| format!("{}: {error}", path.display());
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(told)?;
        file.lock().map_err(told)?;
        Ok(file)
    }

    /// A place for a compiler to write to; see [`Cache::keep`].
    pub(super) fn scratch(&self) -> Result<PathBuf, String> {
        let number = getrandom::u64().map_err(|error| error.to_string())?;
        Ok(self
            .folder
            .join(format!("{}.{number:016x}.partial", self.name)))
    }

    /// Take over what a compiler has written, and remove what other versions left.
    pub(super) fn keep(&self, scratch: &Path) -> Result<PathBuf, String> {
        let told = |error: io::Error| format!("{}: {error}", scratch.display());
        private_file(scratch).map_err(told)?;
        let sha256 = hash_of(scratch)?;
        // Windows flushes only for those who may write.
        File::options()
            .write(true)
            .open(scratch)
            .and_then(|file| file.sync_all())
            .map_err(told)?;
        let code = self.code();
        fs::rename(scratch, &code).map_err(told)?;
        let file = identity(&code).ok_or_else(|| format!("{} has vanished", code.display()))?;
        self.write_stamp(&Stamp { sha256, file })?;
        self.sweep();
        Ok(code)
    }

    fn write_stamp(&self, stamp: &Stamp) -> Result<(), String> {
        let path = self.stamp();
        let scratch = self.scratch()?;
        serde_json::to_vec(stamp)
            .map_err(io::Error::other)
            .and_then(|bytes| fs::write(&scratch, bytes))
            .and_then(|()| private_file(&scratch))
            .and_then(|()| fs::rename(&scratch, &path))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Remove what compilations that were killed left. For the holder of [`Cache::lock`] alone, since
    /// a file that is still being written looks the same.
    pub(super) fn sweep_unfinished(&self) {
        self.remove(|name| name.ends_with(".partial"));
    }

    /// Files of other versions. One in use elsewhere stays usable there: it is mapped.
    fn sweep(&self) {
        self.remove(|name| {
            [".code", ".json"].iter().any(|end| name.ends_with(end))
                && !name.starts_with(&self.name)
        });
    }

    /// Remove those of our files that `which` picks by name.
    fn remove(&self, which: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("python-") && which(&name) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn hash_of(path: &Path) -> Result<String, String> {
    let mut hash = Sha256::new();
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut hash))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("{:x}", hash.finalize()))
}

/// Make the folder, for the user alone, and refuse one where others may write.
#[cfg(unix)]
fn private_folder(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let found = fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(format!(
            "{}: others may write there, and code is run from it; make it yours alone (chmod 700)",
            folder.display()
        ));
    }
    Ok(())
}

#[cfg(not(unix))]
fn private_folder(folder: &Path) -> Result<(), String> {
    // A user's own folders are the user's alone by inheritance.
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(unix)]
fn private_file(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "fails elsewhere")]
fn private_file(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Nothing if it is not a file of the user's own.
#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;

    let found = fs::symlink_metadata(path).ok()?;
    let own = found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0;
    own.then(|| Identity {
        bytes: found.len(),
        device: found.dev(),
        inode: found.ino(),
        changed_at_s: found.ctime(),
        changed_at_ns: found.ctime_nsec(),
    })
}

/// The system does not tell enough to know a file again: no identity equals another, and the hash
/// is checked every time.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    let found = fs::symlink_metadata(path).ok()?;
    found.is_file().then(|| Identity {
        bytes: found.len(),
        device: 0,
        inode: getrandom::u64().unwrap_or_default(),
        changed_at_s: 0,
        changed_at_ns: 0,
    })
}
