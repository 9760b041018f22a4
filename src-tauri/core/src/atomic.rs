//! Replace a file so that a crash leaves either the old or the new one, and take the lock that
//! keeps other processes out meanwhile.
//!
//! Knows nothing of what the files hold. All of it blocks; async callers use a blocking task.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Temporary files start with this; nothing else of ours does, so leftovers can be told apart.
const TEMP_PREFIX: &str = ".runbridge-tmp-";

/// A temporary file this old belongs to no living write, which takes milliseconds.
const LEFTOVER_AGE_MIN: Duration = Duration::from_mins(1);

/// Longest pause between two tries for a lock.
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(1);

/// A lock that was not had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process or thread kept it for the whole time allowed.
    #[error("`{}` was held by another process for more than {waited_ms} ms", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited_ms: u128,
    },
    /// The lock file cannot be opened or locked.
    #[error("cannot lock `{}`: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// An exclusive lock on a file, respected by every process that takes it the same way. The system
/// releases it when the value is dropped and also when the process dies, however it dies.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Take the lock on `path`, which is created if absent and never removed: removing a lock file
    /// would let two processes hold "the" lock on two files.
    ///
    /// # Errors
    /// [`LockError::Busy`] when `within` passes without success.
    pub fn take(path: &Path, within: Duration) -> Result<Self, LockError> {
        let failed = |source| LockError::Io {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let started = Instant::now();
        let mut pause = Duration::from_micros(100);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) => {}
            }
            // A blocking lock has no deadline on any system, so this asks again; the holder needs
            // about as long as one file write.
            let waited = started.elapsed();
            if waited >= within {
                return Err(LockError::Busy {
                    path: path.to_owned(),
                    waited_ms: waited.as_millis(),
                });
            }
            std::thread::sleep(pause.min(within.saturating_sub(waited)));
            pause = (pause * 2).min(LOCK_PAUSE_MAX);
        }
    }

    /// The locked file itself, for the few bytes that its holders share.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Create `folder` with its parents. On Unix only the user may enter folders made here.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

/// Give `path` the content `bytes`: temporary file in the same folder, flushed, renamed over the
/// old file, folder flushed. When it returns, the new content survives a power cut; when it fails,
/// the old content is untouched.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(path)?;
    let temp = folder.join(format!(
        "{TEMP_PREFIX}{:016x}",
        getrandom::u64().map_err(io::Error::other)?
    ));
    let written = write_new(&temp, bytes).and_then(|()| fs::rename(&temp, path));
    if let Err(error) = written {
        // The write already failed; what matters is its reason. A leftover is removed later.
        let _ = fs::remove_file(&temp);
        return Err(error);
    }
    flush_folder(folder)
}

/// Remove `path` for good; tells whether it was there.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => flush_folder(folder_of(path)?).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Rename `path` to `<name>.damaged-<n>` with the first free number, and return where it now is.
/// The caller holds the lock of the folder.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let folder = folder_of(path)?;
    let name = path.file_name().unwrap_or_default();
    let mut number = 1_u32;
    loop {
        let mut aside = name.to_owned();
        aside.push(format!(".damaged-{number}"));
        let aside = folder.join(aside);
        if !aside.try_exists()? {
            fs::rename(path, &aside)?;
            flush_folder(folder)?;
            return Ok(aside);
        }
        number += 1;
    }
}

/// Remove the temporary files that killed writers left in `folder`. The caller holds the lock.
pub fn remove_leftovers(folder: &Path, now: SystemTime) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let ours = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX);
        let age = entry
            .metadata()
            .and_then(|data| data.modified())
            .map(|at| now.duration_since(at));
        if ours && matches!(age, Ok(Ok(age)) if age >= LEFTOVER_AGE_MIN) {
            // Another process that cleans up at the same time may have been faster.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn folder_of(path: &Path) -> io::Result<&Path> {
    path.parent()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no folder"))
}

#[cfg(unix)]
pub(crate) fn flush_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some network file systems cannot flush a folder and flush it with the rename anyway.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "the same signature as on Unix")]
pub(crate) fn flush_folder(_folder: &Path) -> io::Result<()> {
    // Windows has no way to flush a folder; NTFS journals the rename.
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_content_and_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "old").unwrap();
        write(&path, b"a file cannot replace a folder that is not empty").unwrap_err();
        assert_eq!(fs::read_to_string(path.join("inside")).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_old_temporary_files_of_ours_are_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".runbridge-tmp-1", "mine.json", ".lock"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove_leftovers(folder.path(), SystemTime::now()).unwrap();
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            3,
            "a young one may be in use"
        );
        remove_leftovers(folder.path(), SystemTime::now() + Duration::from_mins(2)).unwrap();
        assert!(!folder.path().join(".runbridge-tmp-1").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_held_lock_is_reported_with_its_file_after_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".lock");
        let held = Lock::take(&path, Duration::ZERO).unwrap();
        let error = Lock::take(&path, Duration::from_millis(20)).unwrap_err();
        assert!(
            matches!(&error, LockError::Busy { path: at, .. } if *at == path),
            "{error}"
        );
        drop(held);
        Lock::take(&path, Duration::ZERO).unwrap();
    }
}
