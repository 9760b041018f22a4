//! Build the embedded sandbox's Python: CPython and its libraries from source, for WebAssembly.
//!
//! The result is `target/guest/python/`: `python.wasm` (the interpreter, started and frozen with the
//! guest's own Python imported), `python.zip` (the standard library as bytecode), `packages.zip`
//! (some pure Python packages), `inventory.json` and the licences. It depends on the pins, on the files of `sandbox/guest-build` and
//! `sandbox/src/guest` and on nothing of the machine. Each stage is kept by the hash of what goes
//! into it, so that a change of the guest's Python costs seconds and not minutes.

mod build;
mod fetch;
mod index;
mod pins;
mod stage;
mod suite;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::shell;
use stage::Inputs;

/// Build the embedded Python (about 4 minutes from nothing on two idle cores).
#[derive(Default, clap::Args)]
pub(crate) struct Arguments {
    /// Build everything again, whatever is kept.
    #[arg(long)]
    fresh: bool,
    /// Build everything a second time, in another folder, and compare: both must be the same.
    #[arg(long)]
    twice: bool,
    /// Run CPython's own tests in it, and write down how they ended.
    #[arg(long)]
    test_suite: bool,
    /// Run these modules of the tests alone, such as `test_json`; the rest of the results stays.
    #[arg(long, value_name = "MODULE", requires = "test_suite", num_args = 1..)]
    only: Vec<String>,
}

/// What must not depend on when and where it was built.
const FILES: [&str; 3] = ["python.wasm", "python.zip", "packages.zip"];

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
    let result = build_in(&root)?;
    shell::say(format!("the embedded Python is in {}", result.display()));
    if arguments.twice {
        build_again(&root, &result)?;
    }
    if arguments.test_suite {
        suite::run(&root, &build::source(&root)?, &arguments.only)?;
    }
    Ok(result)
}

/// The C compiler that it is built with; it compiles for other systems, too.
#[cfg(target_os = "linux")]
pub(crate) fn compiler() -> anyhow::Result<PathBuf> {
    build::zig(&shell::target().join("guest"))
}

/// Build what `root` does not have yet.
fn build_in(root: &Path) -> anyhow::Result<PathBuf> {
    let recipe = shell::root().join("src-tauri/sandbox/guest-build");
    let guest = shell::root().join("src-tauri/sandbox/src/guest");
    let python = build::python(root, &recipe)?;

    let inputs = Inputs::new("frozen")
        .stage(&python)
        .folder(&recipe.join("src"))?
        .folder(&guest)?
        .folder(&shell::root().join("src-tauri/sandbox/src/wasi"))?
        .text(pins::WASMTIME);
    let frozen = stage::run(root, inputs, |out| freeze(&python, &guest, out))?;

    let result = root.join("python");
    let index = index::of_source(&build::source(root)?)?;
    publish(&python, &frozen, &index, &result)?;
    Ok(result)
}

/// Build all of it from the sources in a folder of its own, and compare with `first`.
fn build_again(root: &Path, first: &Path) -> anyhow::Result<()> {
    let elsewhere = root.with_extension("again");
    stage::remove(&elsewhere)?;
    let downloads = elsewhere.join("downloads");
    fs::create_dir_all(&downloads)?;
    for entry in fs::read_dir(root.join("downloads"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), downloads.join(entry.file_name()))?;
        }
    }
    let second = build_in(&elsewhere)?;
    let mut different = Vec::new();
    for name in FILES {
        let hashes = [first, &second].map(|folder| stage::file_hash(&folder.join(name)));
        let [one, other] = hashes;
        let (one, other) = (one?, other?);
        shell::say(format!("{name}: {one}"));
        if one != other {
            different.push(format!("{name}: {other} the second time"));
        }
    }
    ensure!(
        different.is_empty(),
        "the build is not reproducible; compare {} with {}\n{}",
        first.display(),
        second.display(),
        different.join("\n")
    );
    shell::say("both builds are the same, byte by byte");
    stage::remove(&elsewhere)
}

/// What the embedded Python is made of: name, version and licence of each part.
pub(crate) fn parts() -> Vec<(String, String, String)> {
    let inventory = pins::inventory(&[], None);
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
    let builder = shell::build_program("runbridge-guest-build", "runbridge-guest-build", false)?;
    let mut command = std::process::Command::new(builder);
    command.arg(python).arg(guest).arg(out.join("python.wasm"));
    shell::run(&mut command)
}

/// Put the result in its place under a name that does not change.
fn publish(python: &Path, frozen: &Path, index: &str, result: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for (from, name) in [
        (frozen, "python.wasm"),
        (python, "python.zip"),
        (python, "packages.zip"),
    ] {
        files.push((name, stage::file_hash(&from.join(name))?));
    }
    let inventory = serde_json::to_string_pretty(&pins::inventory(&files, Some(index)))? + "\n";
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
