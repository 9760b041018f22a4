//! What is installed, on disk: a list, the wheels that sandboxes see, the hashes that hold for ever,
//! and a cache of what was fetched. Several bridges share it. Knows nothing of indexes; all of it
//! blocks.
//!
//! ```text
//! data/packages/installed.json   what is in force, one version of each package
//! data/packages/pins.json        the hash that each file had when it was first installed
//! data/packages/wheels/          the files in force and nothing else: what containers see
//! cache/packages/<hash>.whl      what was fetched
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Package, PackagesError};
use crate::atomic::{self, Lock};
use crate::paths::Paths;

/// The holder of the lock copies some megabytes.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// What is installed for all sessions together.
const INSTALLED_MAX: usize = 500;
const INSTALLED_BYTES_MAX: u64 = 512 << 20;

/// Of the cache; what was not used for longest goes first.
const CACHE_BYTES_MAX: u64 = 256 << 20;

/// A hash costs a hundred bytes, and is kept when its package is not.
const PINS_MAX: usize = 20_000;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    data: PathBuf,
    cache: PathBuf,
}

#[derive(Default, Deserialize, Serialize)]
struct List {
    packages: Vec<Package>,
}

/// What a file was when it was first installed.
#[derive(Clone, Deserialize, Serialize)]
struct Pin {
    name: String,
    version: String,
    sha256: String,
}

type Pins = BTreeMap<String, Pin>;

/// A package to install, with the file that it is.
pub(super) struct New {
    pub(super) package: Package,
    pub(super) content: Vec<u8>,
}

impl Store {
    pub(crate) fn new(paths: &Paths) -> Self {
        Self {
            data: paths.packages(),
            cache: paths.packages_cache(),
        }
    }

    /// The folder that containers see, made if it is not there: anybody may read it, so that a user of
    /// a container can.
    pub(crate) fn folder(&self) -> io::Result<PathBuf> {
        let folder = self.data.join("wheels");
        if !folder.is_dir() {
            atomic::create_folder(&self.data)?;
            fs::create_dir_all(&folder)?;
            readable(&folder, 0o755)?;
        }
        Ok(folder)
    }

    /// All that is installed, by name. What cannot be read counts as nothing, with a word in the log.
    pub(crate) fn installed(&self) -> Vec<Package> {
        match read::<List>(&self.data.join("installed.json")) {
            Ok(list) => list.unwrap_or_default().packages,
            Err(error) => {
                tracing::warn!("the list of installed packages cannot be read: {error}");
                Vec::new()
            }
        }
    }

    /// Whether nothing was ever installed.
    pub(crate) fn is_empty(&self) -> bool {
        !self.data.join("installed.json").exists()
    }

    /// Where the file of an installed package is.
    pub(crate) fn path(&self, package: &Package) -> PathBuf {
        self.data.join("wheels").join(&package.file)
    }

    /// The hash that a file must have, if it was ever installed.
    pub(super) fn check_pin(&self, file: &str, sha256: &str) -> Result<(), PackagesError> {
        check_pin(&self.pins()?, file, sha256)
    }

    fn pins(&self) -> Result<Pins, PackagesError> {
        // Whoever could take them away could have anything taken for right: no pins is an error here.
        Ok(read(&self.data.join("pins.json"))
            .map_err(PackagesError::disk("read what was installed before"))?
            .unwrap_or_default())
    }

    /// A file that was fetched before, if it still is what it was.
    pub(super) fn cached(&self, sha256: &str) -> Option<Vec<u8>> {
        let path = self.cached_path(sha256);
        let content = fs::read(&path).ok()?;
        if hash_of(&content) != sha256 {
            let _ = fs::remove_file(&path);
            return None;
        }
        // Used now: others go first.
        let file = File::options().append(true).open(&path);
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
        Some(content)
    }

    /// Keep what was fetched. It is a convenience: a disk that is full costs a download.
    pub(super) fn keep(&self, sha256: &str, content: &[u8]) {
        let kept = atomic::create_folder(&self.cache)
            .and_then(|()| atomic::write(&self.cached_path(sha256), content))
            .and_then(|()| self.bound_cache());
        if let Err(error) = kept {
            tracing::debug!(%error, "a wheel was not kept in the cache");
        }
    }

    fn cached_path(&self, sha256: &str) -> PathBuf {
        self.cache.join(format!("{sha256}.whl"))
    }

    fn bound_cache(&self) -> io::Result<()> {
        atomic::remove_leftovers(&self.cache, SystemTime::now())?;
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.cache)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if entry.file_name().to_string_lossy().ends_with(".whl") {
                files.push((about.modified()?, about.len(), entry.path()));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if total <= CACHE_BYTES_MAX {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }

    /// Put packages in force, all or none: each takes the place of another version of it. `still` looks
    /// at what is installed now, for another bridge may have been faster.
    pub(super) fn install(
        &self,
        new: &[New],
        still: impl FnOnce(&[Package]) -> Result<(), PackagesError>,
    ) -> Result<(), PackagesError> {
        let wheels = self
            .folder()
            .map_err(PackagesError::disk("make the folder of packages"))?;
        let _lock = self.lock()?;
        let mut installed = self.installed();
        still(&installed)?;
        let mut pins = self.pins()?;
        for New { package, .. } in new {
            check_pin(&pins, &package.file, &package.sha256)?;
            installed.retain(|known| known.name != package.name);
            installed.push(package.clone());
            let pin = Pin {
                name: package.name.clone(),
                version: package.version.clone(),
                sha256: package.sha256.clone(),
            };
            pins.insert(package.file.clone(), pin);
        }
        let bytes: u64 = installed.iter().map(|package| package.bytes).sum();
        if installed.len() > INSTALLED_MAX || bytes > INSTALLED_BYTES_MAX || pins.len() > PINS_MAX {
            return Err(PackagesError::Full {
                packages_max: INSTALLED_MAX,
                bytes_max: INSTALLED_BYTES_MAX,
            });
        }
        for New { package, content } in new {
            place(&wheels, &package.file, content)
                .map_err(PackagesError::disk("write a package"))?;
        }
        self.write("pins.json", &pins)?;
        self.write_list(installed, &wheels)
    }

    /// Take a package away; tells whether it was there.
    pub(super) fn remove(&self, name: &str) -> Result<bool, PackagesError> {
        if self.installed().iter().all(|known| known.name != name) {
            return Ok(false);
        }
        let wheels = self
            .folder()
            .map_err(PackagesError::disk("make the folder of packages"))?;
        let _lock = self.lock()?;
        let mut installed = self.installed();
        let before = installed.len();
        installed.retain(|known| known.name != name);
        let removed = installed.len() < before;
        self.write_list(installed, &wheels)?;
        Ok(removed)
    }

    /// The list first, so that it never names what is not there but for a moment in between.
    fn write_list(&self, mut installed: Vec<Package>, wheels: &Path) -> Result<(), PackagesError> {
        installed.sort_by(|one, other| one.name.cmp(&other.name));
        let list = List {
            packages: installed,
        };
        self.write("installed.json", &list)?;
        sweep(wheels, &list.packages).map_err(PackagesError::disk("remove an old package"))
    }

    fn write(&self, file: &str, value: &impl Serialize) -> Result<(), PackagesError> {
        serde_json::to_vec_pretty(value)
            .map_err(io::Error::other)
            .and_then(|bytes| atomic::write(&self.data.join(file), &bytes))
            .map_err(PackagesError::disk("write what is installed"))
    }

    fn lock(&self) -> Result<Lock, PackagesError> {
        Lock::take(&self.data.join(".lock"), LOCK_WAIT).map_err(|error| PackagesError::Disk {
            doing: "lock the list of packages",
            why: error.to_string(),
        })
    }
}

fn check_pin(pins: &Pins, file: &str, sha256: &str) -> Result<(), PackagesError> {
    match pins.get(file) {
        Some(pin) if pin.sha256 != sha256 => Err(PackagesError::Pin {
            file: file.to_owned(),
            pinned: pin.sha256.clone(),
            now: sha256.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// SHA-256 in hexadecimal.
pub(super) fn hash_of(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

/// `None`: there is no such file.
fn read<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Written in the folder itself: a file that comes from another one keeps what `SELinux` calls it there.
fn place(wheels: &Path, file: &str, content: &[u8]) -> io::Result<()> {
    let path = wheels.join(file);
    if fs::read(&path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let mut temporary = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(wheels)?;
    temporary.write_all(content)?;
    readable(temporary.path(), 0o644)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path)?;
    atomic::flush_folder(wheels)
}

/// Whatever is there and not installed, what a writer that was killed left included. For the holder of
/// the lock.
fn sweep(wheels: &Path, installed: &[Package]) -> io::Result<()> {
    for entry in fs::read_dir(wheels)? {
        let entry = entry?;
        let name = entry.file_name();
        if !installed.iter().any(|package| *package.file == *name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn readable(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "fails elsewhere")]
fn readable(_path: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    fn new(name: &str, version: &str, content: &str) -> New {
        New {
            package: Package {
                name: name.to_owned(),
                version: version.to_owned(),
                file: format!("{name}-{version}-py3-none-any.whl"),
                sha256: hash_of(content.as_bytes()),
                bytes: content.len() as u64,
                ..Package::default()
            },
            content: content.as_bytes().to_vec(),
        }
    }

    fn files(store: &Store) -> Vec<String> {
        let entries = fs::read_dir(store.folder().unwrap()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn one_version_of_each_is_in_force_and_nothing_else_is_in_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(&Paths::under(home.path()));
        assert_eq!(store.installed(), []);
        let fine = |_: &[Package]| Ok(());
        store
            .install(&[new("a", "1", "one"), new("b", "1", "b")], fine)
            .unwrap();
        fs::write(store.folder().unwrap().join(".new-left"), "half").unwrap();
        store.install(&[new("a", "2", "two")], fine).unwrap();
        assert_eq!(
            files(&store),
            ["a-2-py3-none-any.whl", "b-1-py3-none-any.whl"]
        );
        assert!(store.remove("b").unwrap());
        assert!(!store.remove("b").unwrap());
        assert_eq!(files(&store), ["a-2-py3-none-any.whl"]);
    }

    #[test]
    fn a_file_keeps_the_hash_that_it_had_first() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(&Paths::under(home.path()));
        let fine = |_: &[Package]| Ok(());
        store.install(&[new("a", "1", "one")], fine).unwrap();
        store.remove("a").unwrap();
        let error = store.install(&[new("a", "1", "other")], fine).unwrap_err();
        assert!(matches!(error, PackagesError::Pin { .. }), "{error}");
        assert_eq!(store.installed(), []);
        fs::write(home.path().join(".runbridge/data/packages/pins.json"), "{").unwrap();
        let error = store.install(&[new("a", "1", "other")], fine).unwrap_err();
        assert!(matches!(error, PackagesError::Disk { .. }), "{error}");
    }

    #[test]
    fn what_is_kept_is_believed_while_it_has_its_hash() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(&Paths::under(home.path()));
        let hash = hash_of(b"wheel");
        store.keep(&hash, b"wheel");
        assert_eq!(store.cached(&hash).as_deref(), Some(&b"wheel"[..]));
        fs::write(store.cached_path(&hash), "whee1").unwrap();
        assert_eq!(store.cached(&hash), None);
        assert!(!store.cached_path(&hash).exists());
    }
}
