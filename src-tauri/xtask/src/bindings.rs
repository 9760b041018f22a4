//! `cargo xtask bindings`: the window's types in `ui/src/ipc/bindings.ts`, written from the core's.
//!
//! The types are made by an example of the core, so that xtask itself depends on nothing of ours.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::shell::{cargo, root, run_quietly, target};

/// Where the types go, under the repository's root.
const BINDINGS: &str = "ui/src/ipc/bindings.ts";

/// Options of `cargo xtask bindings`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if the file is not what would be written.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.check {
        return check();
    }
    std::fs::write(root().join(BINDINGS), text()?)
        .with_context(|| format!("cannot write {BINDINGS}"))
}

/// The file is what the core's types say.
pub(crate) fn check() -> anyhow::Result<()> {
    let path = root().join(BINDINGS);
    let present =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {BINDINGS}"))?;
    if present != text()? {
        bail!("{BINDINGS} is out of date; run `cargo xtask bindings`");
    }
    Ok(())
}

fn text() -> anyhow::Result<String> {
    // With all packages, as tests are, so that what they have compiled is not compiled once more.
    run_quietly(
        cargo()
            .args(["build", "--quiet", "--workspace"])
            .args(["--features", "runbridge-core/bindings"])
            .args(["--example", "bindings"]),
    )?;
    run_quietly(&mut Command::new(target().join("debug/examples/bindings")))
}
