//! Build the embedded sandbox's Python: CPython and its libraries from source, for WebAssembly.
//!
//! The result is `target/guest/python/`: `python.wasm` (the interpreter, started and frozen with the
//! guest's own Python imported), `python.zip` (the standard library as bytecode), `packages.zip`
//! (some pure Python packages), `inventory.json` and the licences. It depends on the pins, on the files of `sandbox/guest-build` and
//! `sandbox/src/guest` and on nothing of the machine. Each stage is kept by the hash of what goes
//! into it, so that a change of the guest's Python costs seconds and not minutes.

mod build;
mod fetch;
mod pins;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::shell;
use stage::Inputs;

/// Build the embedded Python (about 4 minutes from nothing on two idle cores).
#[derive(Default, clap::Args)]
pub(crate) struct Arguments {
    /// Build everything again, whatever is kept.
    #[arg(long)]
    fresh: bool,
}

/// Build what is not there yet and give the folder that holds the result.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    let root = shell::target().join("guest");
    if arguments.fresh && root.exists() {
        for entry in fs::read_dir(&root)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name != "downloads") {
                stage::remove(&path)?;
            }
        }
    }
    let recipe = shell::root().join("src-tauri/sandbox/guest-build");
    let guest = shell::root().join("src-tauri/sandbox/src/guest");
    let python = build::python(&root, &recipe)?;

    let inputs = Inputs::new("frozen")
        .stage(&python)
        .folder(&recipe.join("src"))?
        .folder(&guest)?
        .folder(&shell::root().join("src-tauri/sandbox/src/wasi"))?
        .text(pins::WASMTIME);
    let frozen = stage::run(&root, inputs, |out| freeze(&python, &guest, out))?;

    let result = root.join("python");
    publish(&python, &frozen, &result)?;
    shell::say(format!("the embedded Python is in {}", result.display()));
    Ok(result)
}

/// What the embedded Python is made of: name, version and licence of each part.
pub(crate) fn parts() -> Vec<(String, String, String)> {
    let inventory = pins::inventory(&[]);
    let parts = inventory["parts"].as_array().into_iter().flatten();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    parts
        .map(|part| {
            let [name, version, licence] =
                ["name", "version", "licence"].map(|key| text(&part[key]));
            (name, version, licence)
        })
        .collect()
}

/// Start the interpreter, import the guest, and write down its memory as a new module.
fn freeze(python: &Path, guest: &Path, out: &Path) -> anyhow::Result<()> {
    shell::say("starting Python and freezing it");
    let mut command = shell::cargo();
    command
        .args(["run", "--quiet", "--package", "runbridge-guest-build", "--"])
        .arg(python)
        .arg(guest)
        .arg(out.join("python.wasm"));
    shell::run(&mut command)
}

/// Put the result in its place under a name that does not change.
fn publish(python: &Path, frozen: &Path, result: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for (from, name) in [
        (frozen, "python.wasm"),
        (python, "python.zip"),
        (python, "packages.zip"),
    ] {
        files.push((name, stage::file_hash(&from.join(name))?));
    }
    let inventory = serde_json::to_string_pretty(&pins::inventory(&files))? + "\n";
    // Bridges that run have the files open; they are left alone while they are the right ones.
    if fs::read_to_string(result.join("inventory.json")).is_ok_and(|found| found == inventory) {
        return Ok(());
    }
    let partial = result.with_extension("partial");
    stage::remove(&partial)?;
    fs::create_dir_all(&partial)?;
    let copy = |from: &Path, name: &str| {
        fs::copy(from.join(name), partial.join(name)).with_context(|| format!("cannot copy {name}"))
    };
    copy(frozen, "python.wasm")?;
    copy(python, "python.zip")?;
    copy(python, "packages.zip")?;
    copy(python, "LICENSES.txt")?;
    fs::write(partial.join("inventory.json"), inventory)?;
    stage::remove(result)?;
    fs::rename(&partial, result).context("cannot put the result in its place")
}
