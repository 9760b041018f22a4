//! Replace a file of another program without losing what that program writes meanwhile.
//!
//! The new content is swapped with the old in one step where the system can do that, and what was swapped
//! out is compared with what was expected; a difference is swapped back. So at every moment the file is
//! whole, old or new, and a change made by its owner wins over ours. What the content means is not known
//! here. [`crate::atomic`] does the same for our own files, where a lock keeps others out.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Begins the name of a temporary file; no client reads such a name.
const TEMP_PREFIX: &str = ".runbridge-tmp-";

/// A program that writes into the file instead of replacing it may have opened the old one before the
/// swap. It is given this time to finish; there is no event to wait for.
const SETTLE: Duration = Duration::from_millis(20);

/// A program that replaces its file between any two of so many swaps does nothing else.
const SWAPS_MAX: usize = 100;

/// How long another program may keep the file from being replaced, as Windows allows.
const BUSY_WITHIN: Duration = Duration::from_secs(2);

/// Links within links.
const LINKS_MAX: usize = 40;

/// Why a file was not replaced.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It no longer holds what was expected. What its owner wrote stands.
    Changed,
    /// The system refused.
    Disk(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Gives the file `new` in place of `old`; `None` is no file. Links are followed and stay; mode and
/// owner stay.
pub(super) fn replace(path: &Path, old: Option<&[u8]>, new: Option<&[u8]>) -> Result<(), Refusal> {
    let path = &target(path);
    if super::parse::read_bytes(path)?.as_deref() != old {
        return Err(Refusal::Changed);
    }
    match (old, new) {
        (None, None) => Ok(()),
        (None, Some(new)) => create(path, new),
        (Some(old), Some(new)) => exchange(path, old, new),
        (Some(old), None) => remove(path, old),
    }
}

/// The file that a path stands for, even if a link on the way leads to none.
fn target(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(link) = fs::read_link(&path) else {
            break;
        };
        // A relative link starts from its folder; joining an absolute one gives the link.
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    path
}

fn folder_of(path: &Path) -> io::Result<&Path> {
    path.parent()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no folder"))
}

/// A flushed temporary file beside `path`, looking like `path` if there is one.
fn prepared(path: &Path, content: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let folder = folder_of(path)?;
    // Leftovers of a killed write; another process may be faster at removing them.
    let _ = crate::atomic::remove_leftovers(folder, std::time::SystemTime::now());
    let mut file = tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .tempfile_in(folder)?;
    file.write_all(content)?;
    if let Ok(metadata) = fs::metadata(path) {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let ours = file.as_file().metadata()?;
            if (ours.uid(), ours.gid()) != (metadata.uid(), metadata.gid()) {
                // Only some users may give files away; the content matters more than the group.
                let _ = std::os::unix::fs::fchown(
                    file.as_file(),
                    Some(metadata.uid()),
                    Some(metadata.gid()),
                );
            }
        }
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.as_file().sync_all()?;
    Ok(file)
}

fn create(path: &Path, new: &[u8]) -> Result<(), Refusal> {
    let folder = folder_of(path)?;
    fs::create_dir_all(folder)?;
    match prepared(path, new)?.persist_noclobber(path) {
        Ok(_) => Ok(crate::atomic::flush_folder(folder)?),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(Refusal::Changed),
        Err(error) => Err(error.error.into()),
    }
}

fn remove(path: &Path, old: &[u8]) -> Result<(), Refusal> {
    let folder = folder_of(path)?;
    let aside = tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .tempdir_in(folder)?;
    let moved = aside.path().join("removed");
    fs::rename(path, &moved)?;
    if fs::read(&moved)? != old {
        // It comes back unless its owner has already made another.
        if !path.exists() {
            fs::rename(&moved, path)?;
        }
        return Err(Refusal::Changed);
    }
    Ok(crate::atomic::flush_folder(folder)?)
}

fn exchange(path: &Path, old: &[u8], new: &[u8]) -> Result<(), Refusal> {
    let folder = folder_of(path)?;
    let temporary = prepared(path, new)?.into_temp_path();
    match swap(&temporary, path) {
        Some(Ok(())) => {}
        Some(Err(error)) => return Err(error.into()),
        None => {
            // No swap here: compare once more and replace, with as little between as can be.
            if super::parse::read_bytes(path)?.as_deref() != Some(old) {
                return Err(Refusal::Changed);
            }
            persist(temporary, path)?;
            return Ok(crate::atomic::flush_folder(folder)?);
        }
    }
    if fs::read(&temporary)? == old {
        std::thread::sleep(SETTLE);
        if fs::read(&temporary)? == old {
            return Ok(crate::atomic::flush_folder(folder)?);
        }
    }
    give_back(&temporary, path, new)?;
    crate::atomic::flush_folder(folder)?;
    Err(Refusal::Changed)
}

/// Puts the owner's content back in the place of ours, at once: whoever is still writing into it goes on
/// writing in the right place. If the owner replaces the file meanwhile, his newest content stays.
fn give_back(temporary: &Path, path: &Path, ours: &[u8]) -> io::Result<()> {
    let mut expected = ours.to_owned();
    for _ in 0..SWAPS_MAX {
        let putting = fs::read(temporary)?;
        if let Some(swapped) = swap(temporary, path) {
            swapped?;
        }
        if fs::read(temporary)? == expected {
            break;
        }
        expected = putting;
    }
    Ok(())
}

/// Exchanges two files in one step; `None` where that is impossible.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn swap(a: &Path, b: &Path) -> Option<io::Result<()>> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Some(Ok(())),
        // Network and foreign file systems.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => None,
        Err(error) => Some(Err(error.into())),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn swap(_a: &Path, _b: &Path) -> Option<io::Result<()>> {
    None
}

/// Windows refuses while another program has the file open, which for a config file is a moment.
fn persist(mut temporary: tempfile::TempPath, path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + BUSY_WITHIN;
    loop {
        match temporary.persist(path) {
            Ok(()) => return Ok(()),
            Err(refused)
                if refused.error.kind() == io::ErrorKind::PermissionDenied
                    && Instant::now() < deadline =>
            {
                temporary = refused.path;
                std::thread::sleep(SETTLE);
            }
            Err(refused) => return Err(refused.error),
        }
    }
}
