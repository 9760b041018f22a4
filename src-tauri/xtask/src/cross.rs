//! `cargo xtask cross`: compile the product for the systems that this machine is not, as far as that
//! goes without their linkers: every error and every warning, and nothing that runs.
//!
//! Some crates bring C. For Windows it is compiled by mingw, for macOS by the compiler that builds the
//! embedded Python; Apple's headers and frameworks are not needed for what is not linked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::shell::{cargo, run, run_quietly, say, target};
use crate::{guest, machine, ui};

/// What is shipped, and the commands that pack it.
const PACKAGES: [&str; 5] = [
    "runbridge-sandbox",
    "runbridge-core",
    "runbridge",
    "runbridge-app",
    "xtask",
];

/// Options of `cargo xtask cross`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which systems; all of them if none is named.
    systems: Vec<System>,
}

/// A system that users have and this machine is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum System {
    Windows,
    Macos,
}

impl System {
    const ALL: [Self; 2] = [Self::Windows, Self::Macos];

    /// What Rust calls it. On Windows releases are built for `msvc`, whose C compiler runs nowhere else; to
    /// our code both are the same.
    fn target(self) -> &'static str {
        match self {
            Self::Windows => "x86_64-pc-windows-gnu",
            Self::Macos => "aarch64-apple-darwin",
        }
    }
}

/// `cargo xtask cross`.
pub(crate) fn run_command(arguments: &Arguments) -> anyhow::Result<()> {
    let systems = if arguments.systems.is_empty() {
        &System::ALL[..]
    } else {
        &arguments.systems
    };
    // A part of the app's code.
    ui::build()?;
    for system in systems {
        standard_library(system.target())?;
        let mut clippy = cargo();
        clippy.args(["clippy", "--quiet", "--target", system.target()]);
        for package in PACKAGES {
            clippy.args(["--package", package]);
        }
        match system {
            System::Windows => mingw()?,
            System::Macos => apple_compiler(&mut clippy)?,
        }
        say(format_args!("cargo clippy for {}", system.target()));
        run(clippy.args(["--", "--deny", "warnings"]))?;
    }
    say("no error and no warning; nothing of it was linked or run");
    Ok(())
}

/// Rust's own library, compiled for `triple`.
fn standard_library(triple: &str) -> anyhow::Result<()> {
    let rustup = || Command::new("rustup");
    let installed = run_quietly(rustup().args(["target", "list", "--installed"]))
        .context("Rust was not installed by rustup, which brings the libraries of other systems")?;
    if installed.lines().any(|line| line.trim() == triple) {
        return Ok(());
    }
    say(format_args!("rustup target add {triple}"));
    run(rustup().args(["target", "add", triple]))
}

/// The C compiler for Windows, which Cargo's build scripts find by its name.
fn mingw() -> anyhow::Result<()> {
    if machine::on_path("x86_64-w64-mingw32-gcc") {
        return Ok(());
    }
    machine::install(&["gcc-mingw-w64-x86-64-win32"])
}

/// A C compiler for macOS, told to `command` by variables.
fn apple_compiler(command: &mut Command) -> anyhow::Result<()> {
    let zig = guest::compiler()?;
    let folder = target().join("cross");
    fs::create_dir_all(&folder)?;
    let compiler = script(&folder, "cc", &compiler_script(&zig))?;
    let archiver = script(
        &folder,
        "ar",
        &format!("#!/bin/sh\nexec '{}' ar \"$@\"\n", zig.display()),
    )?;
    let cache = folder.join("cache");
    command
        .env("CC_aarch64_apple_darwin", compiler)
        .env("AR_aarch64_apple_darwin", archiver)
        // Asked for with Apple's own tool otherwise; what stands here is not looked into.
        .env("SDKROOT", &folder)
        .env("ZIG_GLOBAL_CACHE_DIR", &cache)
        .env("ZIG_LOCAL_CACHE_DIR", &cache);
    Ok(())
}

/// Build scripts speak to Apple's clang; this leaves out what only that one knows. Objective-C cannot do
/// without Apple's frameworks, so an empty object stands for it: what is not linked needs no more.
fn compiler_script(zig: &Path) -> String {
    format!(
        r#"#!/bin/sh
for word do
    shift
    if [ "$value" ]; then value=; continue; fi
    case $word in
        -arch | -isysroot) value=next ;;
        --target=* | -mmacosx-version-min=*) ;;
        *.m) set -- "$@" -x c /dev/null ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec '{}' cc -target aarch64-macos "$@"
"#,
        zig.display()
    )
}

fn script(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
