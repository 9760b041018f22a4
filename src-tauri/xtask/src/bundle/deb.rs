//! A `.deb` as small as it can be. The packaging program knows gzip alone, and most of a package of ours
//! is programs, of which xz leaves a third less.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;

use super::sizes;
use crate::machine;
use crate::shell::{run_quietly, say};

/// Pack each `.deb` anew that was made below `bundle` since then. Where one is signed, so is what comes
/// of it, by the program that signed the other.
pub(super) fn squeeze_all(bundle: &Path, since: SystemTime, cli: &Path) -> anyhow::Result<()> {
    if !machine::on_path("dpkg-deb") {
        say("there is no dpkg-deb, so the .deb stays as large as it is");
        return Ok(());
    }
    for (package, _) in sizes::newer(bundle, since)? {
        if package.extension().is_none_or(|kind| kind != "deb") {
            continue;
        }
        squeeze(&package).with_context(|| format!("cannot pack {} anew", package.display()))?;
        if package.with_added_extension("sig").is_file() {
            let mut sign = Command::new(cli);
            sign.args(["signer", "sign", "--app-version"])
                .arg(env!("CARGO_PKG_VERSION"))
                .arg(&package);
            run_quietly(&mut sign)?;
        }
    }
    Ok(())
}

fn squeeze(package: &Path) -> anyhow::Result<()> {
    let folder = package.parent().context("it is in no folder")?;
    let work = tempfile::tempdir_in(folder)?;
    let (content, packed) = (work.path().join("content"), work.path().join("packed"));
    let dpkg = || Command::new("dpkg-deb");
    run_quietly(dpkg().arg("--raw-extract").arg(package).arg(&content))?;
    run_quietly(
        dpkg()
            .args(["--root-owner-group", "-Zxz", "-z6", "--build"])
            .args([&content, &packed]),
    )?;
    std::fs::rename(&packed, package)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where its set-up fails")]

    use super::*;

    #[test]
    fn what_is_packed_anew_holds_the_same_and_is_smaller() {
        let bundle = tempfile::tempdir().unwrap();
        let tree = bundle.path().join("tree");
        std::fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        std::fs::create_dir_all(tree.join("usr/bin")).unwrap();
        let control = "Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n";
        std::fs::write(tree.join("DEBIAN/control"), control).unwrap();
        // What a small window of gzip does not see twice.
        let unlike: Vec<u8> = (0..100_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        std::fs::write(tree.join("usr/bin/a"), [unlike.clone(), unlike].concat()).unwrap();
        let package = bundle.path().join("deb/a.deb");
        std::fs::create_dir(bundle.path().join("deb")).unwrap();
        let mut make = Command::new("dpkg-deb");
        make.args(["--root-owner-group", "-Zgzip", "--build"])
            .args([&tree, &package]);
        run_quietly(&mut make).unwrap();
        let listed = || {
            let mut list = Command::new("dpkg-deb");
            run_quietly(list.arg("--contents").arg(&package)).unwrap()
        };
        let (held, bytes) = (listed(), package.metadata().unwrap().len());
        squeeze_all(bundle.path(), SystemTime::UNIX_EPOCH, Path::new("none")).unwrap();
        assert_eq!(listed(), held);
        assert!(package.metadata().unwrap().len() < bytes);
        assert_eq!(
            std::fs::read_dir(bundle.path().join("deb"))
                .unwrap()
                .count(),
            1
        );
    }
}
