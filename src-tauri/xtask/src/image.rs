//! `cargo xtask image`: build a Python image from Debian packages, without a registry, and load it
//! into the engines. The same inputs give the same bytes.

use std::fs::File;
use std::io::{BufWriter, Read, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use runbridge_sandbox::container::{EngineFound, EngineSearch, look_for_engines};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{http, machine};

/// Build an image of Debian's Python and load it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What is in it.
    #[arg(long, value_enum, default_value_t = Kind::Python)]
    kind: Kind,
    /// Write it to this file, for `docker load` or `podman load`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Load it into the engine on this socket, or `auto` for all that answer.
    #[arg(long, value_name = "SOCKET|auto")]
    load: Option<String>,
}

/// What is in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Python and its standard library.
    Python,
    /// Also numpy, pandas and matplotlib.
    Data,
}

impl Kind {
    /// How engines name it.
    pub(crate) fn reference(self) -> &'static str {
        match self {
            Self::Python => "localhost/runbridge-python:bookworm",
            Self::Data => "localhost/runbridge-data:bookworm",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Data => "data",
        }
    }

    fn packages(self) -> &'static str {
        match self {
            Self::Python => "busybox,python3",
            Self::Data => "busybox,python3,python3-numpy,python3-pandas,python3-matplotlib",
        }
    }
}

const SUITE: &str = "bookworm";

/// Every file of the image bears this time; a date of the suite.
const EPOCH: u64 = 1_700_000_000;

/// Asked of the engine while it unpacks.
const LOAD_WITHIN: Duration = Duration::from_mins(5);

/// What is not needed to run Python: texts, tests, and the compilers that some packages ask for.
const EXCLUDED: [&str; 14] = [
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
    "/usr/share/lintian/*",
    "/usr/share/icons/*",
    "/usr/share/matplotlib/sample_data/*",
    "/usr/include/*",
    "/usr/lib/gcc/*",
    "/usr/libexec/*",
    "/usr/bin/*-linux-gnu*",
    "/usr/lib/*.a",
    "/usr/lib/python3/dist-packages/*/tests/*",
    "/usr/lib/python3/dist-packages/sympy/*",
];

/// What packages' own scripts would do, as far as it matters: they do not run, which is what makes
/// the image small and the same each time. `$1` is the root of the new system.
const HOOKS: [&str; 5] = [
    // Docker gives a mount the mode of the folder below it.
    r#"mkdir -p "$1/workspace" && chmod 1777 "$1/workspace" "$1/tmp""#,
    r#"printf 'root:x:0:0:root:/root:/bin/false\nnobody:x:65534:65534:nobody:/workspace:/bin/false\n' >"$1/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$1/etc/group""#,
    // Code expects a shell and the common commands, as every image with Python has them.
    r#"chroot "$1" /bin/busybox --list | while read -r applet; do
  [ -e "$1/usr/bin/$applet" ] || ln -s /bin/busybox "$1/usr/bin/$applet"
done
[ -e "$1/bin/sh" ] || ln -s busybox "$1/bin/sh""#,
    // numpy finds these by links that update-alternatives would make.
    r#"for directory in "$1"/usr/lib/*-linux-gnu; do
  for library in blas lapack; do
    if [ -e "$directory/$library/lib$library.so.3" ]; then ln -sf "$library/lib$library.so.3" "$directory/lib$library.so.3"; fi
  done
done"#,
    // The root is read-only when it runs: a module that is not compiled now is compiled at each start.
    r#"PYTHONHASHSEED=0 chroot "$1" /usr/bin/python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.11 || true
rm -rf "$1/var/lib/apt" "$1/var/cache" "$1/var/log" "$1/var/lib/dpkg""#,
];

/// The command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let archive = build(arguments.kind)?;
    if let Some(out) = &arguments.out {
        std::fs::copy(&archive.path, out)
            .with_context(|| format!("cannot write {}", out.display()))?;
        eprintln!("wrote {}", out.display());
    }
    let sockets = match arguments.load.as_deref() {
        // Whoever asks for no file wants to use it.
        None if arguments.out.is_some() => Vec::new(),
        None | Some("auto") => running_engines()?,
        Some(socket) => vec![PathBuf::from(
            socket.strip_prefix("unix://").unwrap_or(socket),
        )],
    };
    for socket in &sockets {
        load(&archive, socket)?;
    }
    if !sockets.is_empty() {
        eprintln!("to use it: MCP_BRIDGE_IMAGE={}", arguments.kind.reference());
    }
    Ok(())
}

/// Have the image in the engine on `socket`, as it would be built now.
pub(crate) fn ensure(socket: &Path, kind: Kind) -> anyhow::Result<()> {
    if loaded_inputs(socket, kind)?.as_deref() == Some(inputs(kind).as_str()) {
        return Ok(());
    }
    load(&build(kind)?, socket)
}

/// A built image in a file.
struct Archive {
    kind: Kind,
    path: PathBuf,
}

/// Build the image unless the same one has been built before.
fn build(kind: Kind) -> anyhow::Result<Archive> {
    let inputs = inputs(kind);
    let dir = cache_dir();
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{}-{}.tar", kind.name(), &inputs[..16]));
    if path.exists() {
        return Ok(Archive { kind, path });
    }
    if !machine::on_path("mmdebstrap") {
        machine::install(&["mmdebstrap"])?;
    }
    eprintln!("building {} from Debian {SUITE} packages", kind.reference());
    let start = Instant::now();
    // Aside and renamed, so that what is there is whole.
    let layer = dir.join(format!("{}.{}.layer", kind.name(), std::process::id()));
    let aside = layer.with_extension("archive");
    let built = bootstrap(kind, &layer).and_then(|()| write_archive(kind, &inputs, &layer, &aside));
    let _ = std::fs::remove_file(&layer);
    if let Err(error) = built {
        let _ = std::fs::remove_file(&aside);
        return Err(error);
    }
    std::fs::rename(&aside, &path)?;
    remove_older(&dir, kind, &path);
    let size = std::fs::metadata(&path)?.len();
    eprintln!(
        "built {} ({} MB) in {} s",
        kind.reference(),
        size / 1_000_000,
        start.elapsed().as_secs()
    );
    Ok(Archive { kind, path })
}

/// What other inputs gave is not asked for again, and large.
fn remove_older(dir: &Path, kind: Kind, newest: &Path) {
    let prefix = format!("{}-", kind.name());
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) && entry.path() != newest {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Everything that the bytes of an image depend on but the versions of the packages.
fn inputs(kind: Kind) -> String {
    let mut hash = Sha256::new();
    for part in [SUITE, kind.packages(), &EPOCH.to_string()]
        .into_iter()
        .chain(EXCLUDED)
        .chain(HOOKS)
    {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn bootstrap(kind: Kind, layer: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("mmdebstrap");
    command.env("SOURCE_DATE_EPOCH", EPOCH.to_string());
    command.args(["--quiet", "--variant=extract", "--format=tar"]);
    command.arg(format!("--include={}", kind.packages()));
    command.args(EXCLUDED.map(|path| format!("--dpkgopt=path-exclude={path}")));
    command.args(HOOKS.map(|hook| format!("--extract-hook={hook}")));
    command.arg(SUITE).arg(layer);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start mmdebstrap")?;
    if !output.status.success() {
        bail!(
            "mmdebstrap ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Wrap the layer as `docker save` does: both engines load that under its right name.
fn write_archive(kind: Kind, inputs: &str, layer: &Path, path: &Path) -> anyhow::Result<()> {
    let mut file = File::open(layer)?;
    let size = file.metadata()?.len();
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut HashWriter(&mut hash))?;
    let digest = hex(&hash.finalize());
    let config = json!({
        "architecture": architecture()?,
        "os": "linux",
        "created": "2023-11-14T22:13:20Z",
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "Cmd": ["python3"],
            "Labels": { INPUTS_LABEL: inputs },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        "history": [{ "created": "2023-11-14T22:13:20Z", "created_by": "cargo xtask image" }],
    })
    .to_string();
    let config_name = format!("{}.json", hex(&Sha256::digest(&config)));
    let layer_name = format!("{digest}/layer.tar");
    let manifest =
        json!([{ "Config": config_name, "RepoTags": [kind.reference()], "Layers": [layer_name] }])
            .to_string();

    let mut out = BufWriter::new(File::create(path)?);
    file.rewind()?;
    tar_entry(&mut out, &layer_name, size, &mut file)?;
    tar_entry(
        &mut out,
        &config_name,
        config.len() as u64,
        &mut config.as_bytes(),
    )?;
    tar_entry(
        &mut out,
        "manifest.json",
        manifest.len() as u64,
        &mut manifest.as_bytes(),
    )?;
    // Two empty blocks end a tar.
    out.write_all(&[0; 1024])?;
    out.flush()?;
    Ok(())
}

const INPUTS_LABEL: &str = "runbridge.image.inputs";

/// As engines name it.
fn architecture() -> anyhow::Result<&'static str> {
    Ok(match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no image is built for {other}"),
    })
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One regular file of a POSIX tar.
fn tar_entry(
    out: &mut impl Write,
    name: &str,
    size: u64,
    data: &mut impl Read,
) -> anyhow::Result<()> {
    let mut header = [0u8; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{EPOCH:011o}\0").as_bytes());
    // The sum counts its own field as spaces.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.write_all(&header)?;
    let written = std::io::copy(&mut data.take(size), out)?;
    if written != size {
        bail!("{name} changed while it was read");
    }
    let over = usize::try_from(size % 512)?;
    if over > 0 {
        out.write_all(&[0; 512][over..])?;
    }
    Ok(())
}

fn load(archive: &Archive, socket: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut file = File::open(&archive.path)?;
    let size = file.metadata()?.len();
    let target = "/v1.41/images/load?quiet=1";
    let (status, text) =
        http::request(socket, "POST", target, Some((&mut file, size)), LOAD_WITHIN)?;
    // A failure may come behind a status of 200, as one of the lines.
    let failure = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|line| {
            line.get("error")
                .or_else(|| line.get("message"))
                .and_then(Value::as_str)
                .map(str::to_owned)
        });
    if status != 200 || failure.is_some() {
        bail!(
            "{} did not load the image: {}",
            socket.display(),
            failure.unwrap_or(text)
        );
    }
    if loaded_inputs(socket, archive.kind)?.is_none() {
        bail!(
            "{} loaded the image but does not know {}",
            socket.display(),
            archive.kind.reference()
        );
    }
    eprintln!(
        "loaded {} into {} in {} ms",
        archive.kind.reference(),
        socket.display(),
        start.elapsed().as_millis()
    );
    Ok(())
}

/// What the engine's image was built from; `None` when it has none of ours.
fn loaded_inputs(socket: &Path, kind: Kind) -> anyhow::Result<Option<String>> {
    let target = format!("/v1.41/images/{}/json", kind.reference());
    let (status, text) = http::request(socket, "GET", &target, None, Duration::from_secs(30))?;
    if status != 200 {
        return Ok(None);
    }
    let image: Value =
        serde_json::from_str(&text).context("cannot read what the engine says of the image")?;
    let label = image
        .pointer("/Config/Labels")
        .and_then(|labels| labels.get(INPUTS_LABEL));
    Ok(label.and_then(Value::as_str).map(str::to_owned))
}

/// Sockets of all engines that answer, found as the product finds them.
pub(crate) fn running_engines() -> anyhow::Result<Vec<PathBuf>> {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let path = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let search = EngineSearch {
        uid: std::fs::metadata("/proc/self")
            .ok()
            .map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)),
        home: path("HOME"),
        xdg_runtime_dir: path("XDG_RUNTIME_DIR"),
        container_host: text("CONTAINER_HOST"),
        docker_host: text("DOCKER_HOST"),
        docker_context: text("DOCKER_CONTEXT"),
        docker_config_dir: path("DOCKER_CONFIG"),
        ..EngineSearch::bare()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let places = runtime.block_on(look_for_engines(&search));
    let sockets: Vec<_> = places
        .iter()
        .filter(|place| matches!(place.found, EngineFound::Engine { .. }))
        .filter_map(|place| place.address.strip_prefix("unix://").map(PathBuf::from))
        .collect();
    if sockets.is_empty() {
        let tried: Vec<_> = places
            .iter()
            .filter_map(|place| match &place.found {
                EngineFound::Engine { .. } => None,
                EngineFound::Nothing { reason } => {
                    Some(format!("  {} ({}): {reason}", place.address, place.source))
                }
            })
            .collect();
        bail!(
            "no engine answers; looked at:\n{}\nwrite a file instead: --out FILE",
            tried.join("\n")
        );
    }
    Ok(sockets)
}

fn cache_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    target.join("images")
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use super::*;

    #[test]
    fn a_tar_that_we_write_is_one_that_tar_reads() {
        let dir = std::env::temp_dir().join(format!("runbridge-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("x.tar");
        let mut file = File::create(&path).unwrap();
        tar_entry(&mut file, "a/long.txt", 700, &mut [b'x'; 700].as_slice()).unwrap();
        tar_entry(&mut file, "b", 0, &mut [].as_slice()).unwrap();
        file.write_all(&[0; 1024]).unwrap();
        let listing = Command::new("tar").arg("tvf").arg(&path).output().unwrap();
        let text = String::from_utf8(listing.stdout).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(
            listing.status.success(),
            "{}",
            String::from_utf8_lossy(&listing.stderr)
        );
        assert!(
            text.contains("700 2023-11-14")
                && text.contains("a/long.txt")
                && text.lines().count() == 2,
            "{text}"
        );
    }

    #[test]
    fn kinds_differ_in_their_inputs() {
        assert_ne!(inputs(Kind::Python), inputs(Kind::Data));
    }
}
