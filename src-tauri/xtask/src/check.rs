//! What a commit must pass besides its tests.

use crate::shell::{cargo, run, say};
use crate::tidy;

/// `cargo xtask check`.
pub(crate) fn run_all() -> anyhow::Result<()> {
    format()?;
    clippy()?;
    tidy::run_all()
}

/// The code is formatted.
pub(crate) fn format() -> anyhow::Result<()> {
    say("cargo fmt --check");
    run(cargo().args(["fmt", "--all", "--check"]))
}

/// No warning of the compiler or of clippy.
pub(crate) fn clippy() -> anyhow::Result<()> {
    say("cargo clippy");
    run(cargo().args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))
}
