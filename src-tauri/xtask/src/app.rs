//! `cargo xtask app`: the desktop app from a clean clone. It brings what a build of it needs; the app
//! itself knows nothing of this.

use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;

use crate::machine;
use crate::shell::{build_program, build_sidecar, run, run_quietly, say};
use crate::ui;

/// What it is compiled against and what it loads when it starts, as Debian packages.
const PACKAGES: &[&str] = &["libwebkit2gtk-4.1-dev", "libayatana-appindicator3-1"];

/// Where the packaging program looks which library shows a tray, to have packages ask for it.
const PACKAGING_PACKAGES: &[&str] = &["libayatana-appindicator3-dev"];

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

const NO_SCREEN: &str = "there is no screen: neither WAYLAND_DISPLAY nor DISPLAY is set. Run this in a \
     session with a desktop, or on a screen that nobody sees: `apt-get install xvfb xauth`, then \
     `xvfb-run cargo xtask app`";

/// Whether the app's window has somewhere to be; other systems always have a screen.
fn has_screen(os: &str, is_set: impl Fn(&str) -> bool) -> bool {
    os != "linux" || ["WAYLAND_DISPLAY", "DISPLAY"].into_iter().any(is_set)
}

/// Options of `cargo xtask app`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Given to the app, such as `--hidden`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// `cargo xtask app`.
pub(crate) fn run_command(arguments: &Arguments) -> anyhow::Result<()> {
    // Said at once, and not after the minutes of a first build.
    ensure!(
        has_screen(std::env::consts::OS, |name| std::env::var_os(name)
            .is_some()),
        NO_SCREEN
    );
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

/// What packing the app asks for besides.
pub(crate) fn prepare_packaging() -> anyhow::Result<()> {
    packages(PACKAGING_PACKAGES)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_alone_may_have_no_screen() {
        for (os, set, has) in [
            ("linux", None, false),
            ("linux", Some("DISPLAY"), true),
            ("linux", Some("WAYLAND_DISPLAY"), true),
            ("macos", None, true),
            ("windows", None, true),
        ] {
            assert_eq!(
                has_screen(os, |name| Some(name) == set),
                has,
                "{os} {set:?}"
            );
        }
    }
}
