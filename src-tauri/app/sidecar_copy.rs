//! A copy of the sidecar at a path that stays true. Clients' files hold an absolute path for years;
//! ours may change with every start (an `AppImage` mounts somewhere new) or be locked during an update.
//! Knows two files and nothing of who starts them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use runbridge_core::paths::Paths;

/// The sidecar's name, beside the app and in the place that stays.
const NAME: &str = if cfg!(windows) {
    "runbridge.exe"
} else {
    "runbridge"
};

/// Bytes compared at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Where the copy is.
pub(crate) fn place(paths: &Paths) -> PathBuf {
    paths.data.join("bin").join(NAME)
}

/// The sidecar that was installed with this app.
pub(crate) fn beside(app: &Path) -> PathBuf {
    app.with_file_name(NAME)
}

/// Make the copy what `original` is. Clients may be running the old one, and one may start it at any
/// moment: there is always a whole file at the path.
pub(crate) fn refresh(original: &Path, copy: &Path) -> anyhow::Result<()> {
    if is_same(original, copy).unwrap_or(false) {
        return Ok(());
    }
    let folder = copy.parent().context("the copy has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    remove_old(folder);
    let new = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(folder)
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    let source =
        File::open(original).with_context(|| format!("cannot read {}", original.display()))?;
    io::copy(&mut &source, &mut new.as_file())
        .with_context(|| format!("cannot copy {}", original.display()))?;
    new.as_file()
        .set_permissions(source.metadata()?.permissions())?;
    new.as_file().sync_all()?;
    // A file that is open for writing, even by us, cannot be started.
    let new = new.into_temp_path();
    if cfg!(windows) && copy.exists() {
        // Windows lets nobody replace a program that runs, but lets it be renamed.
        let old = folder.join(format!(".old-{}", std::process::id()));
        fs::rename(copy, old).with_context(|| format!("cannot rename {}", copy.display()))?;
    }
    new.persist(copy)
        .with_context(|| format!("cannot put {} in place", copy.display()))
}

/// What earlier updates set aside and could not remove yet.
fn remove_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".old-") {
            // It may still run; the next update tries again.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where its set-up fails")]

    use super::*;

    #[test]
    fn the_copy_follows_the_original_and_is_left_alone_while_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (original, copy) = (
            folder.path().join("original"),
            folder.path().join("bin/copy"),
        );
        fs::write(&original, "first").unwrap();
        refresh(&original, &copy).unwrap();
        let modified = || fs::metadata(&copy).unwrap().modified().unwrap();
        let first = modified();
        refresh(&original, &copy).unwrap();
        assert_eq!(modified(), first);
        // Of the same length, so that content and not size is compared.
        fs::write(&original, "other").unwrap();
        fs::write(folder.path().join("bin/.old-1"), "left by an update").unwrap();
        refresh(&original, &copy).unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "other");
        assert_eq!(fs::read_dir(folder.path().join("bin")).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_runs_is_replaced_and_the_new_one_starts() {
        use std::process::{Command, Stdio};
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("bin/copy");
        refresh(Path::new("/bin/cat"), &copy).unwrap();
        let mut running = Command::new(&copy)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        refresh(Path::new("/bin/echo"), &copy).unwrap();
        assert!(running.try_wait().unwrap().is_none());
        let output = Command::new(&copy).arg("new").output().unwrap();
        assert_eq!(output.stdout, b"new\n");
        drop(running.stdin.take());
        running.wait().unwrap();
    }
}
