//! How large packages are, and how large they may be: somebody waits for each megabyte.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};

use crate::shell::say;

/// An installer with all that is in it.
const INSTALLER_BYTES_MAX: u64 = 40_000_000;

/// What users load and start, by the end of its name.
const INSTALLERS: [&str; 6] = ["deb", "rpm", "dmg", "msi", "exe", "AppImage"];

/// Those whose size is ours to answer for. An `AppImage` brings the system's webview, which is larger than
/// all of ours, and how a disk image is compressed is not for us to say.
const HELD: [&str; 4] = ["deb", "rpm", "msi", "exe"];

/// A package with its size in bytes.
pub(super) type Package = (PathBuf, u64);

/// The packages below `bundle` that were written since then, in the order of their names.
pub(super) fn newer(bundle: &Path, since: SystemTime) -> anyhow::Result<Vec<Package>> {
    let mut found = Vec::new();
    for kind in std::fs::read_dir(bundle)
        .with_context(|| format!("cannot read {}", bundle.display()))?
        .flatten()
    {
        // A folder for each kind; `.app` of macOS is a folder itself.
        for entry in std::fs::read_dir(kind.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let (path, facts) = (entry.path(), entry.metadata()?);
            if is_one_of(&INSTALLERS, &path) && facts.is_file() && facts.modified()? >= since {
                found.push((path, facts.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Tell where they are and how large.
pub(super) fn say_all(packages: &[Package]) {
    for (path, bytes) in packages {
        say(format_args!("{} {}", megabytes(*bytes), path.display()));
    }
}

/// An error if one of them is larger than it may be.
pub(super) fn hold(packages: &[Package]) -> anyhow::Result<()> {
    let large: Vec<String> = packages
        .iter()
        .filter(|(path, bytes)| is_one_of(&HELD, path) && *bytes > INSTALLER_BYTES_MAX)
        .map(|(path, bytes)| format!("{} has {}", path.display(), megabytes(*bytes)))
        .collect();
    if !large.is_empty() {
        bail!(
            "an installer may have {}: {}",
            megabytes(INSTALLER_BYTES_MAX),
            large.join(", ")
        );
    }
    Ok(())
}

fn is_one_of(endings: &[&str], path: &Path) -> bool {
    let ending = path.extension();
    ending.is_some_and(|ending| endings.iter().any(|known| ending == *known))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where its set-up fails")]

    use super::*;

    #[test]
    fn only_what_users_install_now_is_counted() {
        let bundle = tempfile::tempdir().unwrap();
        for name in [
            "deb/a.deb",
            "deb/a.deb.sig",
            "rpm/a.rpm",
            "macos/a.app/Info.plist",
        ] {
            let path = bundle.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let old = bundle.path().join("rpm/old.rpm");
        let before = SystemTime::now() - std::time::Duration::from_mins(1);
        let file = std::fs::File::create(old).unwrap();
        file.set_modified(before - std::time::Duration::from_mins(1))
            .unwrap();
        let found = newer(bundle.path(), before).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|(path, bytes)| (path.file_name().unwrap().to_str().unwrap(), *bytes))
            .collect();
        assert_eq!(names, [("a.deb", 9), ("a.rpm", 9)]);
    }

    #[test]
    fn an_installer_has_at_most_forty_megabytes() {
        let of = |name: &str, bytes| vec![(PathBuf::from(name), bytes)];
        hold(&of("a.deb", INSTALLER_BYTES_MAX)).unwrap();
        hold(&of("a.AppImage", 2 * INSTALLER_BYTES_MAX)).unwrap();
        let error = hold(&of("a.deb", 47_120_000)).unwrap_err().to_string();
        assert_eq!(error, "an installer may have 40.0 MB: a.deb has 47.1 MB");
    }
}
