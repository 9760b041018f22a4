//! `cargo xtask fuzz`: let libFuzzer make up what a hostile guest could send.
//!
//! The targets are in `sandbox/fuzz`, with the inputs that are worth keeping; those are run again as
//! ordinary tests. What a run finds stays in the target folder unless it is asked to be kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::shell::{self, root, say, target};

const TARGETS: [&str; 4] = ["frames", "guest", "door", "files"];

/// The version that is installed if there is none.
const CARGO_FUZZ: &str = "0.13.1";

/// Inputs of one target that are kept in the tree, the smallest first, and how large one may be.
const KEPT_MAX: usize = 60;
const KEPT_BYTES_MAX: u64 = 512;

/// What one input may take, in seconds, and how long it may be.
const INPUT_S_MAX: u32 = 20;
const INPUT_BYTES_MAX: u32 = 4096;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Inputs to try on each target.
    #[arg(long, default_value_t = 1_000_000)]
    runs: u64,
    /// Put the smallest set of inputs that reaches all that was reached into the tree.
    #[arg(long)]
    keep: bool,
    /// Which targets; all if none is named.
    #[arg(value_parser = TARGETS)]
    targets: Vec<String>,
}

/// `cargo xtask fuzz`.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let program = program()?;
    let named = arguments.targets.iter().map(String::as_str);
    let targets: Vec<&str> = if arguments.targets.is_empty() {
        TARGETS.to_vec()
    } else {
        named.collect()
    };
    for name in &targets {
        let found = target().join("fuzz/found").join(name);
        fs::create_dir_all(&found)?;
        let kept = fuzz_folder().join("corpus").join(name);
        say(format_args!("{name}: {} inputs", arguments.runs));
        shell::run(
            cargo_fuzz(&program, "run", name)
                .args([&found, &kept])
                .arg("--")
                .arg(format!("-runs={}", arguments.runs))
                .arg(format!("-max_len={INPUT_BYTES_MAX}"))
                .arg(format!("-timeout={INPUT_S_MAX}"))
                .args(["-print_final_stats=1", "-verbosity=0"])
                .arg(format!(
                    "-artifact_prefix={}/",
                    found.parent().unwrap_or(&found).display()
                )),
        )
        .with_context(|| {
            format!("{name} has a fault, or could not be built; the input is in target/fuzz/found")
        })?;
        if arguments.keep {
            keep(&program, name, &found, &kept)?;
        }
    }
    say("no fault was found");
    Ok(())
}

/// The smallest of a set of inputs that covers what all of them do.
fn keep(program: &Path, name: &str, found: &Path, kept: &Path) -> anyhow::Result<()> {
    let merged = target().join("fuzz/merged").join(name);
    if merged.exists() {
        fs::remove_dir_all(&merged)?;
    }
    fs::create_dir_all(&merged)?;
    shell::run(
        cargo_fuzz(program, "run", name)
            .args([&merged, kept, found])
            .args(["--", "-merge=1", "-verbosity=0"]),
    )?;
    let mut inputs = Vec::new();
    for entry in fs::read_dir(&merged)? {
        let entry = entry?;
        inputs.push((entry.metadata()?.len(), entry.path()));
    }
    inputs.sort();
    fs::remove_dir_all(kept)?;
    fs::create_dir_all(kept)?;
    for (_, path) in inputs
        .iter()
        .filter(|(bytes, _)| *bytes <= KEPT_BYTES_MAX)
        .take(KEPT_MAX)
    {
        fs::copy(path, kept.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn fuzz_folder() -> PathBuf {
    root().join("src-tauri/sandbox/fuzz")
}

fn cargo_fuzz(program: &Path, command: &str, name: &str) -> Command {
    let mut fuzz = Command::new(program);
    fuzz.current_dir(root())
        // The coverage flags are the compiler's own and named unstable.
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["fuzz", command, "--fuzz-dir"])
        .arg(fuzz_folder())
        // Address checking needs a standard library that was built for it.
        .args(["--sanitizer", "none", "--target-dir"])
        .arg(target().join("fuzz"))
        .arg(name);
    fuzz
}

/// The fuzzer's driver, installed into the target folder if nobody has it.
fn program() -> anyhow::Result<PathBuf> {
    let name = format!("cargo-fuzz{}", std::env::consts::EXE_SUFFIX);
    if let Some(program) = shell::which(&name) {
        return Ok(program);
    }
    let tools = target().join("tools");
    let program = tools.join("bin").join(name);
    if !program.exists() {
        say(format_args!("installing cargo-fuzz {CARGO_FUZZ}"));
        let mut install = shell::cargo();
        install.args(["install", "--quiet", "--locked", "--version", CARGO_FUZZ]);
        shell::run(install.arg("--root").arg(&tools).arg("cargo-fuzz"))?;
    }
    Ok(program)
}
