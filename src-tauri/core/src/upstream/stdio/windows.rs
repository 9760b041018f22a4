//! Windows has no process groups that could be ended; `taskkill` walks the tree of children.

use std::io;
use std::os::windows::process::CommandExt as _;
use std::path::Path;
use std::process::ExitStatus;

use tokio::process::{Child, Command};
use windows_sys::Win32::System::Threading::CREATE_NO_WINDOW;

/// Where programs are when nobody says.
pub(super) const DEFAULT_PATH: &str = r"C:\Windows\System32;C:\Windows";

/// No console window flashes up for a server.
pub(super) fn prepare(command: &mut Command) {
    command.creation_flags(CREATE_NO_WINDOW);
}

#[allow(clippy::unused_async, reason = "the same shape on every system")]
pub(super) async fn spawn(mut command: Command) -> io::Result<Child> {
    command.spawn()
}

/// Windows tells programs by their endings alone.
pub(super) fn is_executable(path: &Path) -> bool {
    path.is_file()
}

pub(super) fn describe(status: ExitStatus) -> String {
    status.code().map_or_else(
        || "ended".to_owned(),
        |code| format!("exited with code {code}"),
    )
}

/// Unknown here; the tree was ended with its root.
pub(super) fn group_lives(_pid: u32) -> bool {
    false
}

/// There is no gentle signal for a process without a console.
pub(super) fn terminate_group(pid: u32) {
    kill_group(pid);
}

pub(super) fn kill_group(pid: u32) {
    let killed = std::process::Command::new("taskkill")
        .args(["/T", "/F", "/PID", &pid.to_string()])
        .creation_flags(CREATE_NO_WINDOW)
        .output();
    if let Err(error) = killed {
        tracing::debug!(pid, %error, "a server's processes cannot be ended");
    }
}
