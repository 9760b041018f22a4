//! Starting other programs and saying so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// The repository's root: two folders above this package.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// Where Cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The Cargo that started us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What the Cargo that started us told of our own package. The build scripts of some crates look at
    // it, so that they, and whatever needs them, would be compiled anew after each build without us.
    let of_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Tell what is being done, on stderr.
pub(crate) fn say(text: impl std::fmt::Display) {
    eprintln!("xtask: {text}");
}

/// Run a command whose output the developer sees; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Run a command and show its output only if it fails.
pub(crate) fn run_quietly(command: &mut Command) -> anyhow::Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}\n{stdout}{stderr}", output.status);
    }
    Ok(stdout)
}

/// Where `program` is on `PATH`.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Build the sidecar and give its path.
pub(crate) fn build_sidecar(release: bool) -> anyhow::Result<PathBuf> {
    build_program("runbridge", "runbridge", release)
}

/// Build a program and give its path. What is shipped is built by itself.
///
/// Everything else is built as a part of the whole workspace, as tests are: Cargo decides for each
/// command which features the packages have that are shared, and would otherwise compile wasmtime, by
/// far the heaviest of them, once for each of our programs.
pub(crate) fn build_program(package: &str, name: &str, release: bool) -> anyhow::Result<PathBuf> {
    let mut command = cargo();
    if release {
        command.args(["build", "--release", "--package", package, "--bin", name]);
    } else {
        command
            .args(["build", "--workspace", "--bin", name])
            .args(FEATURES_OF_TESTS);
    }
    run(&mut command)?;
    let profile = if release { "release" } else { "debug" };
    Ok(target()
        .join(profile)
        .join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}

/// A small example that is built besides: with one, Cargo counts the features that tests ask for.
pub(crate) const FEATURES_OF_TESTS: [&str; 2] = ["--example", "sandbox_owner"];

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
