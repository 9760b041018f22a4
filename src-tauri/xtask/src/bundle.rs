//! `cargo xtask bundle`: packages of the desktop app for the system this runs on, with the sidecar and
//! the embedded Python in them. Signing and updates are asked for by variables; without them the packages are plain.

#[cfg(target_os = "linux")]
mod clean_root;
#[cfg(target_os = "linux")]
mod deb;
mod msi;
mod sizes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::shell::{build_sidecar, root, run, run_quietly, say, target};
use crate::{app, guest, ui};

/// Brings the packaging program.
const CLI: &str = "@tauri-apps/cli@2.12.5";

/// Beside the app's own configuration, for packages alone: a file that is named there must exist
/// whenever the app is compiled.
const OVERLAY: &str = "src-tauri/app/tauri.bundle.conf.json";

/// The sidecar, as Cargo leaves it.
const NAME: &str = if cfg!(windows) {
    "runbridge.exe"
} else {
    "runbridge"
};

/// The public half of the key that signs updates, as `tauri signer generate` prints it.
const UPDATE_KEY: &str = "RUNBRIDGE_UPDATE_KEY";

/// The address of the file that says which version is the newest.
const UPDATE_ADDRESS: &str = "RUNBRIDGE_UPDATE_ADDRESS";

/// Which certificate of the machine's store signs programs and installers of Windows.
const WINDOWS_CERTIFICATE: &str = "RUNBRIDGE_WINDOWS_CERTIFICATE";

/// What a failure is most likely to mean where an `AppImage` was asked for.
const APPIMAGE: &str = "an AppImage is made with programs that the packaging program loads from GitHub: \
     where that cannot be reached none is made, and the release workflow makes it";

/// Options of `cargo xtask bundle`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Kinds of packages, such as `deb,rpm`; the usual ones of this system otherwise.
    #[arg(long)]
    kinds: Option<String>,
    /// Without optimisation: quick to build, for trying the packages themselves.
    #[arg(long)]
    debug: bool,
    /// Pack what was built before, and build nothing.
    #[arg(long)]
    built: bool,
    /// The embedded Python, built by `cargo xtask guest` on another machine: it is the same for every
    /// system, and can be built on Linux alone. Without this it is built here.
    #[arg(long, value_name = "FOLDER")]
    python: Option<PathBuf>,
    /// Then install the .deb into a clean Debian, start it there and remove it; as root.
    #[cfg(target_os = "linux")]
    #[arg(long)]
    try_install: bool,
}

/// `cargo xtask bundle`.
pub(crate) fn run_command(arguments: &Arguments) -> anyhow::Result<()> {
    let profile = if arguments.debug { "debug" } else { "release" };
    let built = target().join(profile).join(NAME);
    if !arguments.built {
        app::prepare()?;
        build_sidecar(!arguments.debug)?;
    }
    let python = python(arguments.python.as_deref())?;
    app::prepare_packaging()?;
    stage(&built)?;
    let cli = cli()?;
    let kinds = arguments.kinds.as_deref().unwrap_or(usual_kinds());
    let begun = SystemTime::now();
    let mut build = Command::new(&cli);
    build
        .current_dir(root())
        .args([
            if arguments.built { "bundle" } else { "build" },
            "--config",
            OVERLAY,
        ])
        .args(["--bundles", kinds]);
    if arguments.debug {
        build.arg("--debug");
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    for more in [
        Some(with_python(std::env::consts::OS, &python)),
        for_the_user_alone(std::env::consts::OS, &python)?,
        of_variables(variable),
    ] {
        build.args(
            more.iter()
                .flat_map(|more| ["--config".to_owned(), more.to_string()]),
        );
    }
    if !arguments.built {
        // Cargo would build the members that it builds by default, of which the app is none.
        build.args(["--", "--package", "runbridge-app"]);
    }
    let packed = run(&mut build);
    if kinds.split(',').any(|kind| kind == "appimage") {
        packed.context(APPIMAGE)?;
    } else {
        packed?;
    }
    let bundle = target().join(profile).join("bundle");
    #[cfg(target_os = "linux")]
    deb::squeeze_all(&bundle, begun, &cli)?;
    let made = sizes::newer(&bundle, begun)?;
    sizes::say_all(&made);
    if !arguments.debug {
        sizes::hold(&made)?;
    }
    #[cfg(target_os = "linux")]
    if arguments.try_install {
        clean_root::try_newest(&bundle, !arguments.debug)?;
    }
    Ok(())
}

fn usual_kinds() -> &'static str {
    match std::env::consts::OS {
        "linux" => "deb,rpm",
        "macos" => "app,dmg",
        _ => "msi,nsis",
    }
}

/// The folder of the embedded Python, which is whole.
fn python(given: Option<&Path>) -> anyhow::Result<String> {
    let folder = match given {
        Some(folder) => root().join(folder),
        None => guest::run(&guest::Arguments::default())?,
    };
    let inventory = folder.join("inventory.json");
    if !inventory.is_file() {
        anyhow::bail!(
            "{} holds no Python: there is no {}",
            folder.display(),
            inventory.display()
        );
    }
    // As configurations write paths, on Windows too.
    Ok(folder.display().to_string().replace('\\', "/"))
}

/// Put the sidecar where the overlay names it, under the name that the packaging program wants.
fn stage(sidecar: &Path) -> anyhow::Result<()> {
    let version = run_quietly(Command::new("rustc").arg("-vV"))?;
    let triple = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc does not say what it compiles for")?;
    let folder = root().join("target/bundle");
    std::fs::create_dir_all(&folder)?;
    let staged = folder.join(format!(
        "runbridge-{triple}{}",
        std::env::consts::EXE_SUFFIX
    ));
    std::fs::copy(sidecar, &staged)
        .with_context(|| format!("cannot copy {} to {}", sidecar.display(), staged.display()))?;
    Ok(())
}

/// The packaging program, installed once.
fn cli() -> anyhow::Result<PathBuf> {
    let folder = target().join("tauri-cli");
    let name = if cfg!(windows) { "tauri.cmd" } else { "tauri" };
    let program = folder.join("node_modules/.bin").join(name);
    let stamp = folder.join("stamp");
    if !std::fs::read_to_string(&stamp).is_ok_and(|found| found == CLI) {
        say(format_args!("installing {CLI}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("package.json"), r#"{"private":true}"#)?;
        ui::install(&folder, CLI)?;
        std::fs::write(&stamp, CLI)?;
    }
    Ok(program)
}

/// Where the embedded Python goes in a package: to one of the places in which the core looks for it,
/// seen from the sidecar in the same package.
fn with_python(os: &str, python: &str) -> Value {
    if os == "linux" {
        let files = json!({ "files": { "/usr/lib/runbridge/python": python } });
        json!({ "bundle": { "linux": { "deb": files, "rpm": files, "appimage": files } } })
    } else {
        // macOS: `Contents/Resources/python`; Windows: beside the programs.
        json!({ "bundle": { "resources": { (format!("{python}/")): "python/" } } })
    }
}

/// What makes the installers of Windows ask for no administrator: a template of ours for one of them,
/// and the maker's own program for the webview, which both take where that is missing.
fn for_the_user_alone(os: &str, python: &str) -> anyhow::Result<Option<Value>> {
    if os != "windows" {
        return Ok(None);
    }
    let template = msi::template(Path::new(python))?;
    Ok(Some(json!({ "bundle": { "windows": {
        "wix": { "template": template },
        "webviewInstallMode": { "type": "embedBootstrapper", "silent": true },
    } } })))
}

/// What the variables ask for besides: updates, and on macOS a signature of no one where there is no
/// certificate, since a program without any does not start there.
fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Value> {
    let mut more = json!({});
    if let (Some(key), Some(address)) = (variable(UPDATE_KEY), variable(UPDATE_ADDRESS)) {
        more["plugins"]["updater"] = json!({
            "pubkey": key,
            "endpoints": [address],
            // Or whoever holds the address could offer an old version as a new one.
            "requireSignedVersion": true,
        });
        more["bundle"]["createUpdaterArtifacts"] = json!(true);
    }
    if let Some(thumbprint) = variable(WINDOWS_CERTIFICATE) {
        more["bundle"]["windows"] = json!({
            "certificateThumbprint": thumbprint,
            "digestAlgorithm": "sha256",
            "timestampUrl": "http://timestamp.digicert.com",
        });
    }
    if std::env::consts::OS == "macos" && variable("APPLE_SIGNING_IDENTITY").is_none() {
        more["bundle"]["macOS"]["signingIdentity"] = json!("-");
    }
    (more != json!({})).then_some(more)
}

/// Options of `cargo xtask update-manifest`.
#[derive(clap::Args)]
pub(crate) struct ManifestArguments {
    /// The folder of all packages with their `.sig` files.
    packages: PathBuf,
    /// The address under which that folder is published.
    address: String,
}

/// `cargo xtask update-manifest`: the file that installed apps ask for the newest version.
pub(crate) fn manifest(arguments: &ManifestArguments) -> anyhow::Result<()> {
    let mut names: Vec<String> = std::fs::read_dir(&arguments.packages)
        .with_context(|| format!("cannot read {}", arguments.packages.display()))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let manifest = manifest_of(
        env!("CARGO_PKG_VERSION"),
        &arguments.address,
        &names,
        |name| Ok(std::fs::read_to_string(arguments.packages.join(name))?),
    )?;
    let path = arguments.packages.join("latest.json");
    std::fs::write(&path, serde_json::to_string_pretty(&manifest)?)?;
    say(format_args!("written to {}", path.display()));
    Ok(())
}

fn manifest_of(
    version: &str,
    address: &str,
    names: &[String],
    signature: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Value> {
    let mut platforms = serde_json::Map::new();
    for name in names {
        let Some(package) = name.strip_suffix(".sig") else {
            continue;
        };
        let Some(platform) = platform_of(package) else {
            continue;
        };
        let entry = json!({
            "signature": signature(name)?.trim(),
            "url": format!("{}/{package}", address.trim_end_matches('/')),
        });
        platforms.entry(platform).or_insert(entry);
    }
    if platforms.is_empty() {
        anyhow::bail!("no package is signed, so there is nothing to update to");
    }
    Ok(json!({ "version": version, "platforms": platforms }))
}

/// The platform as the updater calls it, from a package's name; those that it cannot install have none.
fn platform_of(package: &str) -> Option<String> {
    let machine = if package.contains("aarch64") || package.contains("arm64") {
        "aarch64"
    } else {
        "x86_64"
    };
    let ending = |ending: &str| Path::new(package).to_string_lossy().ends_with(ending);
    let system = if ending(".AppImage") || ending(".AppImage.tar.gz") {
        "linux"
    } else if ending(".deb") {
        return Some(format!("linux-{machine}-deb"));
    } else if ending(".rpm") {
        return Some(format!("linux-{machine}-rpm"));
    } else if ending(".app.tar.gz") {
        "darwin"
    } else if ending("-setup.exe") {
        "windows"
    } else if ending(".msi") {
        return Some(format!("windows-{machine}-msi"));
    } else {
        return None;
    };
    Some(format!("{system}-{machine}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where its set-up fails")]

    use super::*;

    #[test]
    fn the_manifest_names_each_signed_package_once() {
        let names = [
            "Runbridge_0.1.0_amd64.deb",
            "Runbridge_0.1.0_amd64.deb.sig",
            "Runbridge_0.1.0_x64-setup.exe.sig",
            "Runbridge_aarch64.app.tar.gz.sig",
            "checksums.txt",
        ]
        .map(str::to_owned);
        let manifest = manifest_of("0.1.0", "https://example.com/v/", &names, |name| {
            Ok(format!("{name}!\n"))
        });
        assert_eq!(
            manifest.unwrap(),
            json!({
                "version": "0.1.0",
                "platforms": {
                    "linux-x86_64-deb": {
                        "signature": "Runbridge_0.1.0_amd64.deb.sig!",
                        "url": "https://example.com/v/Runbridge_0.1.0_amd64.deb",
                    },
                    "windows-x86_64": {
                        "signature": "Runbridge_0.1.0_x64-setup.exe.sig!",
                        "url": "https://example.com/v/Runbridge_0.1.0_x64-setup.exe",
                    },
                    "darwin-aarch64": {
                        "signature": "Runbridge_aarch64.app.tar.gz.sig!",
                        "url": "https://example.com/v/Runbridge_aarch64.app.tar.gz",
                    },
                },
            })
        );
        assert!(manifest_of("0.1.0", "a", &["x.deb".to_owned()], |_| Ok(String::new())).is_err());
    }

    /// The core looks for it in these places, seen from a sidecar that was installed.
    #[test]
    fn the_python_goes_where_the_sidecar_looks_for_it() {
        let linux = with_python("linux", "p");
        for kind in ["deb", "rpm", "appimage"] {
            let files = &linux["bundle"]["linux"][kind]["files"];
            assert_eq!(files, &json!({ "/usr/lib/runbridge/python": "p" }));
        }
        let other = with_python("windows", "p");
        assert_eq!(other["bundle"]["resources"], json!({ "p/": "python/" }));
    }

    #[test]
    fn updates_are_asked_for_by_key_and_address_together() {
        let of = |given: &[&str]| {
            of_variables(|name| given.contains(&name).then(|| format!("the {name}")))
        };
        let asked = of(&[UPDATE_KEY, UPDATE_ADDRESS]).unwrap();
        assert_eq!(
            asked["plugins"]["updater"]["pubkey"],
            format!("the {UPDATE_KEY}")
        );
        let signed = of(&[WINDOWS_CERTIFICATE, "APPLE_SIGNING_IDENTITY"]).unwrap();
        assert_eq!(
            signed["bundle"]["windows"]["certificateThumbprint"],
            format!("the {WINDOWS_CERTIFICATE}")
        );
        let without = of(&[UPDATE_KEY, "APPLE_SIGNING_IDENTITY"]);
        assert_eq!(without, None);
    }
}
