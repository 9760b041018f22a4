//! `cargo xtask mcpb`: the sidecar as a bundle that Claude Desktop installs by itself when it is opened.
//!
//! The second road into Claude Desktop, for those whose configuration file it keeps rewriting. One bundle
//! holds the sidecar of each platform that was given; what is in it is the sidecar and nothing else, since
//! everything but the protocol belongs to the app.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::shell::{build_sidecar, root, say, target};

/// Options of `cargo xtask mcpb`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A sidecar that was built for a platform, as `darwin=FILE`, `win32=FILE` or `linux=FILE`; none: this
    /// machine's is built
    #[arg(long, value_name = "PLATFORM=FILE")]
    program: Vec<String>,
    /// Where the bundle goes
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// As the bundle's manifest calls the systems.
const PLATFORMS: [&str; 3] = ["darwin", "linux", "win32"];

const ICON: &str = "icons/icon.png";

/// `cargo xtask mcpb`.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut programs = Vec::new();
    for given in &arguments.program {
        let (platform, file) = given
            .split_once('=')
            .with_context(|| format!("`{given}` is not PLATFORM=FILE"))?;
        programs.push((platform.to_owned(), PathBuf::from(file)));
    }
    if programs.is_empty() {
        programs.push((this_platform().to_owned(), build_sidecar(true)?));
    }
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => target().join("runbridge.mcpb"),
    };
    pack(&programs, &output)?;
    say(format_args!("written to {}", output.display()));
    Ok(())
}

fn this_platform() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        _ => "linux",
    }
}

/// Writes the bundle, whole or not at all.
fn pack(programs: &[(String, PathBuf)], output: &Path) -> anyhow::Result<()> {
    let platforms: Vec<&str> = programs.iter().map(|(platform, _)| &**platform).collect();
    for platform in &platforms {
        ensure!(
            PLATFORMS.contains(platform),
            "no platform is called `{platform}`; there are {}",
            PLATFORMS.join(", ")
        );
    }
    let folder = output
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder)
        .with_context(|| format!("cannot write into {}", folder.display()))?;
    let mut zip = ZipWriter::new(file);
    let manifest = serde_json::to_vec_pretty(&manifest(&platforms))?;
    add(&mut zip, "manifest.json", &manifest, 0o644)?;
    let icon = std::fs::read(root().join(ICON)).with_context(|| format!("cannot read {ICON}"))?;
    add(&mut zip, "icon.png", &icon, 0o644)?;
    for (platform, program) in programs {
        let content =
            std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        if content.is_empty() {
            bail!("{} is empty", program.display());
        }
        add(&mut zip, &place(platform), &content, 0o755)?;
    }
    let file: tempfile::NamedTempFile = zip.finish()?;
    file.persist(output)
        .with_context(|| format!("cannot write {}", output.display()))?;
    Ok(())
}

fn add(
    zip: &mut ZipWriter<impl std::io::Write + std::io::Seek>,
    name: &str,
    content: &[u8],
    mode: u32,
) -> anyhow::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(mode);
    zip.start_file(name, options)?;
    zip.write_all(content)?;
    Ok(())
}

/// Where a platform's program lies in the bundle.
fn place(platform: &str) -> String {
    let ending = if platform == "win32" { ".exe" } else { "" };
    format!("server/{platform}/runbridge{ending}")
}

fn manifest(platforms: &[&str]) -> Value {
    let command = |platform: &str| format!("${{__dirname}}/{}", place(platform));
    let first = platforms.first().copied().unwrap_or("linux");
    let overrides: serde_json::Map<String, Value> = platforms
        .iter()
        .map(|&platform| (platform.to_owned(), json!({ "command": command(platform) })))
        .collect();
    json!({
        "manifest_version": "0.3",
        "name": "runbridge",
        "display_name": "Runbridge",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "One tool instead of hundreds: Claude writes Python, which runs in a sandbox and calls your MCP servers.",
        "long_description": "Runbridge gives Claude one tool, `run_python`. The Python that Claude writes runs in a sandbox without network or access to your files and calls the MCP servers that you already have through the bridge, which keeps their processes and secrets to itself.",
        "author": { "name": "Runbridge" },
        "license": env!("CARGO_PKG_LICENSE"),
        "icon": "icon.png",
        "keywords": ["python", "sandbox", "mcp", "bridge"],
        "server": {
            "type": "binary",
            "entry_point": place(first),
            "mcp_config": {
                "command": command(first),
                "args": [],
                "env": {},
                "platform_overrides": overrides,
            },
        },
        "tools": [{
            "name": "run_python",
            "description": "Runs Python in a sandbox, from where it calls your MCP servers.",
        }],
        "compatibility": { "platforms": platforms },
    })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        reason = "a failed assumption fails the test"
    )]

    #[cfg(unix)]
    use std::process::Command;

    #[cfg(unix)]
    use runbridge_testkit::Components;

    use super::*;

    /// The makers' own tool reads the bundle, and what it unpacks is what was packed.
    #[cfg(unix)]
    #[test]
    fn the_real_tool_accepts_the_bundle() {
        use std::os::unix::fs::PermissionsExt as _;
        let components = Components::from_env().expect("RUNBRIDGE_TEST_COMPONENTS");
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("built");
        std::fs::write(&program, "#!/bin/sh\necho it runs\n").unwrap();
        let programs = PLATFORMS.map(|platform| (platform.to_owned(), program.clone()));
        let bundle = folder.path().join("runbridge.mcpb");
        pack(&programs, &bundle).unwrap();
        let unpacked = folder.path().join("unpacked");
        let tool = |arguments: &[&Path]| {
            let output = Command::new(components.client("mcpb"))
                .args(arguments)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            said
        };
        tool(&[Path::new("unpack"), &bundle, &unpacked]);
        let said = tool(&[Path::new("validate"), &unpacked.join("manifest.json")]);
        assert!(said.contains("passes"), "{said}");
        assert!(said.contains("Icon validation passed"), "{said}");
        for platform in PLATFORMS {
            let placed = unpacked.join(place(platform));
            let mode = placed.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o111, 0o111, "{platform}");
            let output = Command::new(&placed).output().unwrap();
            assert_eq!(output.stdout, b"it runs\n");
        }
    }

    #[test]
    fn what_cannot_be_packed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("runbridge.mcpb");
        for (platform, program) in [("linux", "nowhere"), ("beos", "nowhere")] {
            let programs = [(platform.to_owned(), folder.path().join(program))];
            pack(&programs, &bundle).unwrap_err();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
