//! The client's own command that puts an entry into its file.
//!
//! It is preferred where the client rewrites its file all the time, because only the client knows its own
//! lock. It runs with the user's variables and nothing else, for a bounded time, and what it says is not
//! believed: whoever calls it looks at the file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Search;
use crate::paths::Os;

/// A client that is started for this takes about a second, on a busy machine several.
const WITHIN: Duration = Duration::from_secs(20);

/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A command of a client.
pub(super) struct OwnCommand {
    /// The program's name.
    pub(super) program: &'static str,
    /// Folders in the home folder where its installer puts it, beside those of PATH.
    pub(super) folders: &'static [&'static str],
    /// What makes it take an entry: the entry's name, then the entry as JSON, follow.
    pub(super) arguments: &'static [&'static str],
    /// What follows these.
    pub(super) last: &'static [&'static str],
}

impl OwnCommand {
    /// As a person would type it.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.program, self.arguments.join(" "))
    }

    /// Where the program is.
    pub(super) fn find(&self, search: &Search<'_>) -> Option<PathBuf> {
        let path = search.environment.get("PATH").into_iter();
        let folders = path
            .flat_map(std::env::split_paths)
            .chain(self.folders.iter().map(|at| search.paths.home.join(at)))
            .filter(|folder| folder.is_absolute());
        let name = match search.environment.os() {
            // A script there would need a shell and its quoting.
            Os::Windows => format!("{}.exe", self.program),
            Os::Linux | Os::Macos => self.program.to_owned(),
        };
        folders
            .map(|folder| folder.join(&name))
            .find(|program| is_program(program))
    }

    /// Has the program take the entry. It may have done so or not, whatever this says.
    pub(super) fn put(
        &self,
        program: &Path,
        search: &Search<'_>,
        name: &str,
        entry: &serde_json::Value,
    ) -> Result<(), String> {
        let mut command = Command::new(program);
        command
            .args(self.arguments)
            .arg(name)
            .arg(entry.to_string())
            .args(self.last)
            .env_clear()
            .envs(search.environment.variables())
            .current_dir(&search.paths.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt;
            // What it starts ends with it.
            command.process_group(0);
        }
        #[cfg(windows)]
        {
            use std::os::windows::process::CommandExt;
            // Otherwise a console window flashes up.
            command.creation_flags(windows_sys::Win32::System::Threading::CREATE_NO_WINDOW);
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let deadline = Instant::now() + WITHIN;
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(status.to_string()),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Ok(None) => {
                    end(&mut child);
                    return Err(format!("it took longer than {} s", WITHIN.as_secs()));
                }
                Err(error) => {
                    end(&mut child);
                    return Err(error.to_string());
                }
            }
        }
    }
}

fn end(child: &mut std::process::Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // It may have gone this moment.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn is_program(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else {
        return false;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if metadata.permissions().mode() & 0o111 == 0 {
            return false;
        }
    }
    metadata.is_file()
}
