//! What is installed on this machine, and how more comes, where packages are Debian's.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Install Debian packages when root; else say how.
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    if !is_root() {
        bail!(
            "missing on this machine: sudo apt-get install -y --no-install-recommends {}",
            packages.join(" ")
        );
    }
    eprintln!("installing {}", packages.join(", "));
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    run(apt().args(["update", "-qq"]))?;
    run(apt()
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages))
}

/// Whether a program can be started; some live where only root's `PATH` looks.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let endings: &[&str] = if cfg!(windows) {
        &[".exe", ".cmd"]
    } else {
        &[""]
    };
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|dir| {
            endings
                .iter()
                .any(|ending| dir.join(format!("{program}{ending}")).is_file())
        })
}

/// Run a command and show what it says only if it fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[cfg(unix)]
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self")
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

#[cfg(not(unix))]
pub(crate) fn is_root() -> bool {
    false
}
