//! Podman where only its program is there: start its API service, or a machine that is stopped.
//!
//! Only exit codes and the socket are looked at, never the program's text. A machine is started as
//! it is, never changed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::ask::{self, Answer};
use super::search::{Address, EngineSearch, Findings, Os};
use super::{EngineKind, Wanted};
use crate::container::{Progress, hex};

/// A first start builds Podman's store and may set up its user namespace.
const SERVICE_WITHIN: Duration = Duration::from_secs(15);

/// A machine boots a whole Linux.
const MACHINE_WITHIN: Duration = Duration::from_mins(3);

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

/// Whether a machine is set up that could be started.
pub(super) fn may_start_machine(
    search: &EngineSearch,
    wanted: &Wanted,
    findings: &Findings,
) -> bool {
    search.os != Os::Linux
        && matches!(wanted, Wanted::Any | Wanted::Only(EngineKind::Podman))
        && !findings.podman_machines.is_empty()
}

/// Start the default machine as it is set up.
pub(super) async fn start_machine(
    search: &EngineSearch,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), String> {
    let Some(program) = program(search) else {
        return Err(
            "Podman machine: it is set up, but there is no `podman` program to start it".to_owned(),
        );
    };
    progress(Progress::StartingEngine {
        engine: "podman machine".to_owned(),
    });
    let mut command = Command::new(program);
    command
        .args(["machine", "start"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    #[cfg(windows)]
    command.creation_flags(windows_sys::Win32::System::Threading::CREATE_NO_WINDOW);
    let mut child = command
        .spawn()
        .map_err(|error| format!("Podman machine: {error}"))?;
    match tokio::time::timeout(MACHINE_WITHIN, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!(
            "Podman machine: `podman machine start` ended with {status}"
        )),
        Ok(Err(error)) => Err(format!("Podman machine: {error}")),
        Err(_) => Err(format!(
            "Podman machine: not started within {} s",
            MACHINE_WITHIN.as_secs()
        )),
    }
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
