//! `cargo xtask bindings`: the window's types in `ui/src/ipc/bindings.ts`, written from the core's.
//!
//! The types are made by an example of the core, so that xtask itself depends on nothing of ours.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Where the types go, under the repository's root.
const BINDINGS: &str = "ui/src/ipc/bindings.ts";

/// Writes the file; with `check`, fails instead when it is not what would be written.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args([
            "run",
            "--quiet",
            "--package",
            "runbridge-core",
            "--features",
            "bindings",
            "--example",
            "bindings",
        ])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(
        output.status.success(),
        "the example `bindings` of runbridge-core ended with {}",
        output.status
    );

    let path = root.join(BINDINGS);
    if check {
        let present = std::fs::read(&path).with_context(|| format!("reading {BINDINGS}"))?;
        ensure!(
            present == output.stdout,
            "{BINDINGS} is out of date; run `cargo xtask bindings`"
        );
    } else {
        std::fs::write(&path, output.stdout).with_context(|| format!("writing {BINDINGS}"))?;
    }
    Ok(())
}
