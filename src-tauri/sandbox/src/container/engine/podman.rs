//! Podman where only its program is there: start its API service, or a machine that is stopped.
//!
//! Only exit codes and the socket decide; what the program says is passed on and not understood. A
//! machine is started as it is, never made and never changed.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::ask::{self, Answer};
use super::search::{Address, EngineSearch, Findings, Os};
use super::{EngineKind, Wanted, shorten};
use crate::container::{Progress, hex};

/// A first start builds Podman's store and may set up its user namespace.
const SERVICE_WITHIN: Duration = Duration::from_secs(15);

/// A machine boots a whole Linux.
const MACHINE_WITHIN: Duration = Duration::from_mins(3);

/// What Podman calls a machine that is made without a name.
const DEFAULT_MACHINE: &str = "podman-machine-default";

/// Runs the service until stdin ends, which it does when we end, however we end; then removes the
/// socket's folder. `$0` is the program, `$1` the address, `$2` the folder. A signal on our death
/// would not do: it is bound to the thread that started the child.
const KEEPER: &str = r#"exec 3<&0
"$0" system service --time=0 "$1" </dev/null &
service=$!
{ read -r _ <&3; kill "$service"; } &
reader=$!
wait "$service"
status=$?
kill "$reader"
rm -rf "$2"
exit "$status""#;

/// The API service as our child; it ends when this is dropped.
pub(super) struct Service {
    /// Its stdin is what keeps the service running.
    _keeper: Child,
    /// Holds the socket; removed with it.
    _dir: PrivateDir,
}

/// Whether starting the service could give a better engine than the one that answered.
pub(super) fn may_serve(
    search: &EngineSearch,
    wanted: &Wanted,
    best: Option<(bool, bool)>,
) -> bool {
    let rootless = search.uid.is_some_and(|uid| uid != 0);
    search.os == Os::Linux
        && matches!(wanted, Wanted::Any | Wanted::Only(EngineKind::Podman))
        && best.is_none_or(|best| (rootless, true) > best)
}

/// Start the service. `None` when there is no `podman` program.
pub(super) async fn serve(
    search: &EngineSearch,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Option<(Answer, Service)>, String> {
    let Some(program) = program(search) else {
        return Ok(None);
    };
    progress(Progress::StartingEngine {
        engine: "podman".to_owned(),
    });
    let failed = |reason: String| format!("{} (its API service): {reason}", program.display());

    let dir = PrivateDir::new(search)
        .map_err(|error| failed(format!("no folder for its socket: {error}")))?;
    let address = Address::Unix(dir.path.join("podman.sock"));
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", KEEPER])
        .arg(&program)
        .arg(address.to_string())
        .arg(&dir.path)
        // Podman's monitors leave a file `oom` where they run; the client's folder is not for that.
        .current_dir(&dir.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // A Ctrl-C meant for us must not end the service before we have removed our containers.
    #[cfg(unix)]
    command.process_group(0);
    let mut keeper = command.spawn().map_err(|error| failed(error.to_string()))?;

    let answer = async {
        loop {
            match ask::who_is_there(&address, ask::ANSWER_WITHIN).await {
                Ok(answer) => return Ok(answer),
                Err(_) => match keeper.try_wait() {
                    Ok(Some(status)) => return Err(format!("it ended with {status}")),
                    // Nothing tells when a socket starts to listen.
                    Ok(None) => tokio::time::sleep(Duration::from_millis(15)).await,
                    Err(error) => return Err(error.to_string()),
                },
            }
        }
    };
    match tokio::time::timeout(SERVICE_WITHIN, answer).await {
        Ok(Ok(answer)) => Ok(Some((
            answer,
            Service {
                _keeper: keeper,
                _dir: dir,
            },
        ))),
        Ok(Err(reason)) => Err(failed(reason)),
        Err(_) => Err(failed(format!(
            "not ready within {} s",
            SERVICE_WITHIN.as_secs()
        ))),
    }
}

/// The machine to start, of those that are set up: Podman's default one, or else the first.
pub(super) fn machine_to_start<'a>(
    search: &EngineSearch,
    wanted: &Wanted,
    findings: &'a Findings,
) -> Option<&'a str> {
    let may_start =
        search.os != Os::Linux && matches!(wanted, Wanted::Any | Wanted::Only(EngineKind::Podman));
    let machines = Some(&findings.podman_machines).filter(|_| may_start)?;
    let default = machines.iter().find(|name| *name == DEFAULT_MACHINE);
    default.or(machines.first()).map(String::as_str)
}

/// Start a machine as it is set up.
pub(super) async fn start_machine(
    search: &EngineSearch,
    machine: &str,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), String> {
    let failed = |reason: String| format!("Podman machine `{machine}`: {reason}");
    let Some(program) = program(search) else {
        let reason = "it is set up, but there is no `podman` program to start it";
        return Err(failed(reason.to_owned()));
    };
    progress(Progress::StartingEngine {
        engine: "podman machine".to_owned(),
    });
    // Not a pipe: what the machine is made of lives on, and may hold on to it.
    let aside = PrivateDir::new(search).ok();
    let words = aside.as_ref().map(|dir| dir.path.join("stderr"));
    let stderr = words.as_ref().and_then(|path| File::create(path).ok());
    let mut command = Command::new(program);
    command
        // By its name: without one, a machine that is not called as usual is not found.
        .args(["machine", "start", machine])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.map_or_else(Stdio::null, Stdio::from))
        .kill_on_drop(true);
    #[cfg(windows)]
    command.creation_flags(windows_sys::Win32::System::Threading::CREATE_NO_WINDOW);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    match tokio::time::timeout(MACHINE_WITHIN, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(match words.and_then(|path| last_line(&path)) {
            Some(line) => format!("`podman machine start` ended with {status}: {line}"),
            None => format!("`podman machine start` ended with {status}"),
        })),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!(
            "not started within {} s",
            MACHINE_WITHIN.as_secs()
        ))),
    }
}

/// The last line of a file with something on it.
fn last_line(path: &Path) -> Option<String> {
    const BYTES_MAX: u64 = 4096;
    let mut file = File::open(path).ok()?;
    let start = file.metadata().ok()?.len().saturating_sub(BYTES_MAX);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut end = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty()).map(shorten)
}

fn program(search: &EngineSearch) -> Option<PathBuf> {
    let name = if search.os == Os::Windows {
        "podman.exe"
    } else {
        "podman"
    };
    std::env::split_paths(search.path.as_ref()?)
        .map(|dir| dir.join(name))
        .find(|path| runs(path))
}

#[cfg(unix)]
fn runs(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn runs(path: &Path) -> bool {
    path.is_file()
}

/// A folder that only we can enter, so that nobody else can use or replace the socket.
struct PrivateDir {
    path: PathBuf,
}

impl PrivateDir {
    fn new(search: &EngineSearch) -> std::io::Result<Self> {
        let root = search.xdg_runtime_dir.clone().filter(|dir| dir.is_dir());
        let root = root
            .or_else(|| search.temp_dir.clone())
            .unwrap_or_else(|| PathBuf::from("/tmp"));
        // Unguessable, and short: a socket's path has room for 107 bytes.
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let path = root.join(format!("runbridge-{}", hex(&random)));
        create_private(&path)?;
        Ok(Self { path })
    }
}

#[cfg(unix)]
fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Temporary folders of Windows are the user's alone by inheritance.
#[cfg(not(unix))]
fn create_private(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir(folder)
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "left a folder behind");
        }
    }
}
