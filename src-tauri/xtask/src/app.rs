//! `cargo xtask app`: the desktop app from a clean clone. It brings what a build of it needs; the app
//! itself knows nothing of this.

use std::path::PathBuf;
use std::process::Command;

use crate::machine;
use crate::shell::{build_program, build_sidecar, run, run_quietly, say};
use crate::ui;

/// What it is compiled against and what it loads when it starts, as Debian packages.
const PACKAGES: &[&str] = &["libwebkit2gtk-4.1-dev", "libayatana-appindicator3-1"];

/// What its tests drive it with.
#[cfg(unix)]
const TEST_PACKAGES: &[&str] = &[
    "webkit2gtk-driver",
    "xvfb",
    "openbox",
    "dbus-daemon",
    "python3-gi",
    "xdotool",
];

/// Options of `cargo xtask app`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Given to the app, such as `--hidden`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// `cargo xtask app`.
pub(crate) fn run_command(arguments: &Arguments) -> anyhow::Result<()> {
    let app = build(false)?;
    say("starting the app; it ends by Quit in its tray or with Ctrl+C");
    run(Command::new(app).args(&arguments.arguments))
}

/// Build the app with its window and the sidecar beside it; gives its path.
pub(crate) fn build(release: bool) -> anyhow::Result<PathBuf> {
    prepare()?;
    build_sidecar(release)?;
    build_program("runbridge-app", "runbridge-app", release)
}

/// All that the compiler asks for: the system's webview and the page that goes into the app.
pub(crate) fn prepare() -> anyhow::Result<()> {
    packages(PACKAGES)?;
    ui::build()
}

/// What the tests of the app need besides.
#[cfg(unix)]
pub(crate) fn set_up_tests() -> anyhow::Result<()> {
    packages(TEST_PACKAGES)?;
    build(false).map(|_| ())
}

/// A screen for whoever measures.
#[cfg(unix)]
pub(crate) fn set_up_screen() -> anyhow::Result<()> {
    packages(&["xvfb"])
}

/// Installs what is missing, where packages are Debian's; elsewhere the build says what it lacks.
fn packages(wanted: &[&'static str]) -> anyhow::Result<()> {
    if !machine::on_path("dpkg-query") {
        return Ok(());
    }
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    machine::install(&missing)
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Abbrev}", package]);
    run_quietly(&mut query).is_ok_and(|status| status.starts_with("ii"))
}
