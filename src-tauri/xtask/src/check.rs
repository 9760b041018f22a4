//! What a commit must pass besides its tests.

use crate::shell::{cargo, run, say};
use crate::{app, tidy};

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
    app::prepare()?;
    // All at once, so that what they share is checked with one set of features and not with three.
    clippy_of(&["--workspace"])
}

/// The same for the embedded backend, by itself: it has wasmtime compiled.
#[cfg(unix)]
pub(crate) fn clippy_embedded() -> anyhow::Result<()> {
    say("cargo clippy of the embedded backend");
    clippy_of(&["--package", "runbridge-sandbox", "--features", "wasi"])
}

fn clippy_of(packages: &[&str]) -> anyhow::Result<()> {
    run(cargo()
        .args(["clippy", "--quiet", "--all-targets"])
        .args(packages)
        .args(["--", "--deny", "warnings"]))
}
