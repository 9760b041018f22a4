//! Process groups and signals.
//!
//! Every server leads a process group of its own, and signals go to the group. When this process is
//! killed outright, servers see the end of their input, and on Linux get SIGTERM as well; a
//! grandchild that ignores the end of its input can only be reached while we live.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};

/// Where programs are when nobody says.
pub(super) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(super) fn prepare(command: &mut Command) {
    command.process_group(0);
    #[cfg(target_os = "linux")]
    die_with_us(command);
}

#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "the one way to ask for a signal at the parent's death"
)]
fn die_with_us(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec; it makes one system call, allocates nothing
    // and takes no lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
                .map_err(io::Error::from)
        });
    }
}

/// Start the command. On Linux the signal at the parent's death is sent when the *thread* that
/// started the child ends, so one thread that lives as long as the process starts them all.
#[cfg(target_os = "linux")]
pub(super) async fn spawn(command: Command) -> io::Result<Child> {
    use std::sync::LazyLock;
    use std::sync::mpsc;

    use tokio::runtime::Handle;
    use tokio::sync::oneshot;

    type Job = (Command, Handle, oneshot::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<Option<mpsc::Sender<Job>>> = LazyLock::new(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                while let Ok((mut command, runtime, reply)) = queue.recv() {
                    let _entered = runtime.enter();
                    let _ = reply.send(command.spawn());
                }
            })
            .ok()
            .map(|_| jobs)
    });
    let (reply, child) = oneshot::channel();
    let lost = || io::Error::other("the thread that starts processes is not there");
    let spawner = SPAWNER.as_ref().ok_or_else(lost)?;
    spawner
        .send((command, Handle::current(), reply))
        .map_err(|_| lost())?;
    child.await.map_err(|_| lost())?
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unused_async, reason = "the same shape on every system")]
pub(super) async fn spawn(mut command: Command) -> io::Result<Child> {
    command.spawn()
}

/// A file with the right to be run.
pub(super) fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        (None, None) => "ended".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        6 => " (SIGABRT)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

/// The group bears the number of its leader, and keeps it while any member lives.
fn group(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

pub(super) fn group_lives(pid: u32) -> bool {
    group(pid).is_some_and(|group| test_kill_process_group(group).is_ok())
}

pub(super) fn terminate_group(pid: u32) {
    signal(pid, Signal::TERM);
}

pub(super) fn kill_group(pid: u32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: u32, signal: Signal) {
    if let Some(group) = group(pid)
        && let Err(error) = kill_process_group(group, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::debug!(pid, %error, "a server's process group cannot be signalled");
    }
}
