//! Who owns which container: a label names the owner, and a lock file that its process holds says
//! that the owner lives. The lock goes with the process, however it ends.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The folder of lock files, and an id that tells it from every other such folder: bridges with
/// folders of their own may share an engine, and cannot judge of one another's owners.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    dir: PathBuf,
    /// Random; kept in the folder.
    pub(crate) folder_id: String,
}

impl Owners {
    /// Use `dir`, creating it if need be.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join("folder-id");
        // Written aside and linked into place, so that whoever comes first wins and nobody reads half.
        let id = random_hex()?;
        let aside = dir.join(format!("folder-id.{id}"));
        File::create_new(&aside)?.write_all(id.as_bytes())?;
        let linked = std::fs::hard_link(&aside, &path);
        std::fs::remove_file(&aside)?;
        let folder_id = match linked {
            Ok(()) => id,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut text = String::new();
                File::open(&path)?.take(64).read_to_string(&mut text)?;
                text
            }
            Err(error) => return Err(error),
        };
        if folder_id.is_empty() || !folder_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(io::Error::other(format!(
                "{} is damaged; delete it",
                path.display()
            )));
        }
        Ok(Self {
            dir: dir.to_owned(),
            folder_id,
        })
    }

    /// Declare `owner` alive until the lock is dropped.
    pub(crate) fn hold(&self, owner: &str) -> io::Result<OwnerLock> {
        let path = self.lock_path(owner)?;
        if path.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("owner `{owner}` exists already"),
            ));
        }
        // Locked before it has its name, or another process could take it for a dead one's.
        let unnamed = path.with_extension("new");
        let file = File::create_new(&unnamed)?;
        file.lock()?;
        std::fs::rename(&unnamed, &path)?;
        Ok(OwnerLock { path, _file: file })
    }

    /// Whether `owner` has ended. When in doubt it lives.
    pub(crate) fn is_dead(&self, owner: &str) -> bool {
        let Ok(path) = self.lock_path(owner) else {
            return false;
        };
        match File::open(&path) {
            // Shared, so that two who look at the same time do not take each other for the owner.
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
            },
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Remove the lock files of dead owners. Their absence says the same.
    pub(crate) fn tidy(&self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return;
        };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let owner = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_suffix(".lock"));
            if owner.is_some_and(|owner| self.is_dead(owner)) {
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    fn lock_path(&self, owner: &str) -> io::Result<PathBuf> {
        // It becomes a file name, a label and a container's name, and may come from a label.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if owner.is_empty() || owner.len() > 64 || !owner.bytes().all(plain) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("`{owner}` is no owner id: give up to 64 letters, digits and dashes"),
            ));
        }
        Ok(self.dir.join(format!("{owner}.lock")))
    }
}

/// While it lives, its owner does.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    path: PathBuf,
    _file: File,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn random_hex() -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(super::hex(&random))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use super::*;

    #[test]
    fn an_owner_lives_as_long_as_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let lock = owners.hold("a1").unwrap();
        assert!(!owners.is_dead("a1"));
        owners.tidy();
        assert!(!owners.is_dead("a1"), "tidying removed a live lock");
        assert!(owners.hold("a1").is_err(), "an id was held twice");
        drop(lock);
        assert!(owners.is_dead("a1"));
    }

    #[test]
    fn a_lock_that_its_process_left_behind_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let left = dir.path().join("gone.lock");
        std::fs::write(&left, "").unwrap();
        assert!(owners.is_dead("gone"));
        owners.tidy();
        assert!(!left.exists());
    }

    #[test]
    fn a_folder_keeps_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let first = Owners::open(dir.path()).unwrap().folder_id;
        assert_eq!(Owners::open(dir.path()).unwrap().folder_id, first);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(Owners::open(other.path()).unwrap().folder_id, first);
    }

    #[test]
    fn a_label_cannot_name_a_file_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        for owner in ["", "../x", "a/b", "a.b", &"x".repeat(65)] {
            assert!(!owners.is_dead(owner), "{owner:?}");
            assert!(owners.hold(owner).is_err(), "{owner:?}");
        }
    }
}
