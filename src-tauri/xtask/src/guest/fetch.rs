//! Bring the sources here, and believe none of them before its hash is right.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::{pins, stage};
use crate::shell;

/// Tools of the building machine: the program, and Debian's package with it.
const TOOLS: [(&str, &str); 5] = [
    ("cc", "gcc"),
    ("make", "make"),
    ("python3", "python3"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
];

/// Make sure that the tools are there: as root they are installed, else the command is told.
pub(super) fn tools() -> anyhow::Result<()> {
    let mut missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(program, _)| shell::which(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if missing.contains(&"gcc") {
        missing.push("libc6-dev");
    }
    if !missing.contains(&"python3") && !has_pip() {
        missing.push("python3-pip");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install --yes {}", missing.join(" "));
    if shell::which("apt-get").is_none() {
        bail!(
            "the build needs {}; please install them",
            missing.join(", ")
        );
    }
    if !is_root() {
        bail!(
            "the build needs {}; run `sudo {command}`",
            missing.join(", ")
        );
    }
    shell::say(&command);
    shell::run_quietly(Command::new("apt-get").args(["--quiet", "update"]))?;
    shell::run_quietly(
        Command::new("apt-get")
            .args(["--quiet", "install", "--yes"])
            .args(missing)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    Ok(())
}

fn has_pip() -> bool {
    shell::run_quietly(Command::new("python3").args(["-m", "pip", "--version"])).is_ok()
}

fn is_root() -> bool {
    shell::run_quietly(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// The C compiler, unpacked into `out`.
pub(super) fn zig(out: &Path) -> anyhow::Result<()> {
    shell::say("fetching the C compiler (94 MB)");
    let mut requirement = format!("ziglang=={}", pins::ZIG_VERSION);
    for hash in pins::ZIG_WHEELS {
        let _ = write!(requirement, " --hash=sha256:{hash}");
    }
    wheels(out, &requirement, &[])?;
    shell::run_quietly(Command::new("chmod").arg("+x").arg(out.join("ziglang/zig")))?;
    Ok(())
}

/// The packages that every guest has, unpacked into `out`.
pub(super) fn packages(out: &Path) -> anyhow::Result<()> {
    shell::say("fetching the bundled packages (2 MB)");
    let mut requirements = String::new();
    for package in pins::PACKAGES {
        let _ = writeln!(
            requirements,
            "{}=={} --hash=sha256:{}",
            package.name, package.version, package.sha256
        );
    }
    // One set of wheels, whatever machine this is.
    let platform = ["--platform=manylinux2014_x86_64", "--python-version=3.13"];
    wheels(out, &requirements, &platform)
}

/// Have pip download wheels of known hashes, and unpack them into `out`.
fn wheels(out: &Path, requirements: &str, options: &[&str]) -> anyhow::Result<()> {
    let list = out.join("requirements.txt");
    fs::write(&list, requirements)?;
    shell::run_quietly(
        Command::new("python3")
            .args(["-m", "pip", "download", "--quiet"])
            .args(["--disable-pip-version-check", "--no-deps"])
            .args(["--only-binary=:all:", "--require-hashes"])
            .args(options)
            .arg("--dest")
            .arg(out)
            .arg("--requirement")
            .arg(&list),
    )?;
    fs::remove_file(&list)?;
    let found = fs::read_dir(out)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect::<Vec<_>>();
    for wheel in found {
        shell::run_quietly(
            Command::new("python3")
                .args(["-m", "zipfile", "--extract"])
                .arg(&wheel)
                .arg(out),
        )?;
        fs::remove_file(&wheel)?;
    }
    Ok(())
}

/// CPython's source archive. It stays in `downloads`, by its hash.
pub(super) fn python(root: &Path) -> anyhow::Result<PathBuf> {
    let downloads = root.join("downloads");
    fs::create_dir_all(&downloads)?;
    let archive = downloads.join(format!("Python-{}.tar.xz", pins::PYTHON.version));
    if archive.exists() && stage::file_hash(&archive)? == pins::PYTHON.sha256 {
        return Ok(archive);
    }
    shell::say("fetching CPython's source (23 MB)");
    let mut reasons = Vec::new();
    for (place, fetch) in [
        (
            "Debian",
            from_debian as fn(&Path) -> anyhow::Result<PathBuf>,
        ),
        ("upstream", from_upstream),
    ] {
        match fetch(&downloads).and_then(|path| Ok((stage::file_hash(&path)?, path))) {
            Ok((hash, path)) if hash == pins::PYTHON.sha256 => {
                fs::rename(path, &archive)?;
                return Ok(archive);
            }
            Ok((hash, _)) => reasons.push(format!("{place}: its SHA-256 is {hash}")),
            Err(error) => reasons.push(format!("{place}: {error:#}")),
        }
    }
    bail!(
        "CPython {} with SHA-256 {} could not be had\n{}",
        pins::PYTHON.version,
        pins::PYTHON.sha256,
        reasons.join("\n")
    )
}

/// Through apt, with lists of its own, so that the machine's lists stay as they are.
fn from_debian(downloads: &Path) -> anyhow::Result<PathBuf> {
    if shell::which("apt-get").is_none() {
        bail!("there is no apt-get here");
    }
    let apt = downloads.join("apt");
    fs::create_dir_all(apt.join("lists/partial"))?;
    fs::create_dir_all(apt.join("cache/archives/partial"))?;
    let mirror = debian_mirror().context("no Debian mirror is set up in /etc/apt")?;
    let list = format!(
        "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {} main\n",
        pins::PYTHON.debian_release
    );
    fs::write(apt.join("sources.list"), list)?;
    let here = apt.display();
    let config = format!(
        "Dir::Etc::sourcelist \"{here}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
         Dir::State::lists \"{here}/lists\";\nDir::Cache \"{here}/cache\";\n\
         APT::Sandbox::User \"root\";\n"
    );
    fs::write(apt.join("apt.conf"), config)?;
    let apt_get = |arguments: &[&str]| {
        shell::run_quietly(
            Command::new("apt-get")
                .args(arguments)
                .env("APT_CONFIG", apt.join("apt.conf"))
                .current_dir(&apt),
        )
    };
    apt_get(&["--quiet", "update"])?;
    // Packaging files of a version that was just replaced may be gone while the archive is not.
    let fetched = apt_get(&[
        "--quiet",
        "source",
        "--download-only",
        pins::PYTHON.debian_source,
    ]);
    fs::read_dir(&apt)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(".orig.tar.xz"))
        .with_context(|| {
            fetched
                .err()
                .map_or_else(String::new, |error| format!("{error:#}"))
        })
}

/// The first mirror that the machine's own apt uses.
fn debian_mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .flat_map(|text| {
            text.lines()
                .filter(|line| line.starts_with("URIs:") || line.starts_with("deb "))
                .flat_map(|line| {
                    line.split_whitespace()
                        .map(str::to_owned)
                        .collect::<Vec<_>>()
                })
                .collect::<Vec<_>>()
        })
        .find(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"))
}

fn from_upstream(downloads: &Path) -> anyhow::Result<PathBuf> {
    let path = downloads.join("Python.tar.xz.partial");
    shell::run_quietly(
        Command::new("curl")
            .args(["--fail", "--silent", "--show-error", "--location"])
            .args(["--connect-timeout", "20", "--max-time", "600", "--output"])
            .arg(&path)
            .arg(pins::PYTHON.upstream),
    )?;
    Ok(path)
}

/// The C libraries, each in a folder `<crate>` of `out`.
pub(super) fn libraries(out: &Path) -> anyhow::Result<()> {
    shell::say("fetching zlib, bzip2, liblzma and SQLite");
    let mut manifest = String::from(
        "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [workspace]\n[lib]\npath = \"lib.rs\"\n[dependencies]\n",
    );
    for library in pins::LIBRARIES {
        let _ = writeln!(
            manifest,
            "{} = \"={}\"",
            library.crate_name, library.crate_version
        );
    }
    fs::write(out.join("Cargo.toml"), manifest)?;
    fs::write(out.join("lib.rs"), "")?;
    shell::run_quietly(
        shell::cargo()
            .current_dir(out)
            .args(["vendor", "--quiet", "vendored"]),
    )?;
    for library in pins::LIBRARIES {
        let folder = out.join("vendored").join(library.crate_name);
        let checksums = fs::read_to_string(folder.join(".cargo-checksum.json"))?;
        let checksums: serde_json::Value = serde_json::from_str(&checksums)?;
        if checksums["package"] != library.sha256 {
            bail!(
                "{} has another checksum than the pinned one",
                library.crate_name
            );
        }
        fs::rename(folder, out.join(library.crate_name))?;
    }
    stage::remove(&out.join("vendored"))
}
