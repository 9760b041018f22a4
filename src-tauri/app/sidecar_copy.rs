//! A copy of the sidecar at a path that stays true. Clients' files hold an absolute path for years;
//! ours may change with every start (an `AppImage` mounts somewhere new) or be locked during an update.
//! The Python of the built-in sandbox goes with it, since a sidecar that runs alone looks for it there.
//! Knows files and nothing of who starts them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use runbridge_core::paths::{Environment, Paths};

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

/// The Python beside the copy of the sidecar.
pub(crate) fn python_place(paths: &Paths) -> PathBuf {
    paths.data.join("bin").join("python")
}

/// Whether what was installed with the app is there only while the app runs: an `AppImage` is mounted for
/// so long. Windows lets only some users make a link that would do otherwise.
pub(crate) fn must_copy(environment: &Environment) -> bool {
    cfg!(windows) || environment.filled("APPIMAGE").is_some()
}

/// Make the Python at `place` the one of the folder `original`: by a link to it, or as a copy. Takes a
/// moment where it is copied.
pub(crate) fn refresh_python(original: &Path, place: &Path, copied: bool) -> anyhow::Result<()> {
    if copied {
        copy_python(original, place)
    } else {
        link_python(original, place)
    }
}

#[cfg(unix)]
fn link_python(original: &Path, place: &Path) -> anyhow::Result<()> {
    if fs::read_link(place).is_ok_and(|found| found == original) {
        return Ok(());
    }
    let folder = place.parent().context("the link has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let new = tempfile::Builder::new()
        .prefix(".new-")
        .tempdir_in(folder)
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    let link = new.path().join("python");
    std::os::unix::fs::symlink(original, &link)
        .with_context(|| format!("cannot link to {}", original.display()))?;
    if fs::symlink_metadata(place).is_ok_and(|found| found.is_dir()) {
        // A copy of an earlier time; no link takes the place of a folder.
        fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    fs::rename(&link, place).with_context(|| format!("cannot put {} in place", place.display()))
}

#[cfg(not(unix))]
fn link_python(original: &Path, place: &Path) -> anyhow::Result<()> {
    copy_python(original, place)
}

fn copy_python(original: &Path, place: &Path) -> anyhow::Result<()> {
    // It has the hash of every other file.
    let inventory = |folder: &Path| fs::read(folder.join("inventory.json")).ok();
    if inventory(original).is_some_and(|one| inventory(place).is_some_and(|other| one == other)) {
        return Ok(());
    }
    let folder = place.parent().context("the copy has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let new = tempfile::Builder::new()
        .prefix(".new-")
        .tempdir_in(folder)
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    let entries =
        fs::read_dir(original).with_context(|| format!("cannot read {}", original.display()))?;
    for entry in entries {
        let entry = entry?;
        fs::copy(entry.path(), new.path().join(entry.file_name()))
            .with_context(|| format!("cannot copy {}", entry.path().display()))?;
    }
    // Whoever has the old files open keeps them; on Windows they cannot be moved then, and the next
    // start of the app tries again.
    let old = tempfile::Builder::new()
        .prefix(".old-")
        .tempdir_in(folder)?;
    if fs::symlink_metadata(place).is_ok() {
        fs::rename(place, old.path().join("python"))
            .with_context(|| format!("cannot move {}", place.display()))?;
    }
    fs::rename(new.path(), place)
        .with_context(|| format!("cannot put {} in place", place.display()))
}

/// What earlier updates set aside and could not remove yet.
fn remove_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".old-") {
            // It may still run; the next update tries again.
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
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
    fn the_python_is_linked_or_copied_and_follows_what_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("bin/python");
        let installed = |name: &str| {
            let python = folder.path().join(name);
            fs::create_dir(&python).unwrap();
            fs::write(python.join("inventory.json"), name).unwrap();
            fs::write(python.join("python.wasm"), name).unwrap();
            python
        };
        let (old, new) = (installed("old"), installed("new"));
        let wasm = || fs::read_to_string(place.join("python.wasm")).unwrap();
        for copied in [false, true, true, false, true] {
            for python in [&old, &new] {
                refresh_python(python, &place, copied).unwrap();
                assert_eq!(wasm(), python.file_name().unwrap().to_str().unwrap());
                assert_eq!(place.is_symlink(), !copied);
            }
        }
        // A copy lives on without what it was made from.
        fs::remove_dir_all(&new).unwrap();
        assert_eq!(wasm(), "new");
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
