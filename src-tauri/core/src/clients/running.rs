//! Which programs are running, by name.
//!
//! Each system is asked in its own way, for a bounded time; where none answers, nothing is known.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::paths::Os;

/// A list of processes takes some milliseconds.
const LISTED_WITHIN: Duration = Duration::from_secs(2);

/// A longer list is cut; the programs that are looked for are few.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// Names of running programs, as far as the system tells.
#[derive(Clone, Debug, Default)]
pub struct Running(BTreeSet<String>);

impl Running {
    /// These programs.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// The programs of this machine. `None` where the system does not tell.
    pub fn now() -> Option<Self> {
        if cfg!(target_os = "linux") {
            return Self::in_proc();
        }
        let (os, program, arguments): (_, _, &[&str]) = if cfg!(windows) {
            (Os::Windows, "tasklist", &["/fo", "csv", "/nh"])
        } else {
            (Os::Macos, "/bin/ps", &["-axco", "comm="])
        };
        listed(program, arguments).map(|list| Self::listed_by(os, &list))
    }

    fn in_proc() -> Option<Self> {
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        let names = processes
            .filter(|entry| {
                let name = entry.file_name();
                name.to_string_lossy()
                    .bytes()
                    .all(|byte| byte.is_ascii_digit())
            })
            // A process that has just ended has no name.
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("comm")).ok());
        Some(Self(names.map(|name| name.trim().to_owned()).collect()))
    }

    /// What a system's own list says: one name a line, on Windows the first field of each line.
    pub fn listed_by(os: Os, list: &str) -> Self {
        let names = list.lines().filter_map(|line| {
            let name = match os {
                Os::Windows => line.strip_prefix('"')?.split('"').next()?,
                Os::Linux | Os::Macos => line.trim(),
            };
            (!name.is_empty()).then(|| name.to_owned())
        });
        Self(names.collect())
    }

    /// Whether one of these runs. Windows names programs with an ending and in any case.
    pub fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| {
            self.0.contains(*name)
                || self.0.iter().any(|running| {
                    let ending = running.len().checked_sub(".exe".len());
                    ending
                        .and_then(|at| running.split_at_checked(at))
                        .is_some_and(|(stem, ending)| {
                            ending.eq_ignore_ascii_case(".exe") && stem.eq_ignore_ascii_case(name)
                        })
                })
        })
    }
}

/// What a program prints, if it does so in time.
fn listed(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    #[cfg(windows)]
    {
        use std::os::windows::process::CommandExt;
        // Otherwise a console window flashes up.
        command.creation_flags(windows_sys::Win32::System::Threading::CREATE_NO_WINDOW);
    }
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout
            .take(LIST_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map(|_| bytes)
    });
    let deadline = Instant::now() + LISTED_WITHIN;
    while !reader.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let in_time = reader.is_finished();
    // It has said all it will say, or too late.
    let _ = child.kill();
    let _ = child.wait();
    if !in_time {
        return None;
    }
    let bytes = reader.join().ok()?.ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    #[test]
    fn every_systems_list_is_understood() {
        let windows = "\"System Idle Process\",\"0\",\"Services\",\"0\",\"8 K\"\r\n\"Claude.exe\",\"4120\",\"Console\",\"1\",\"210,004 K\"\r\n";
        let windows = Running::listed_by(Os::Windows, windows);
        assert!(windows.any(&["claude"]));
        assert!(!windows.any(&["code"]));
        let macos = Running::listed_by(Os::Macos, "launchd\nClaude\nClaude Helper (Renderer)\n");
        assert!(macos.any(&["Claude"]));
        assert!(!macos.any(&["claude"]), "that is Claude Code there");
    }

    #[test]
    fn this_system_knows_this_program() {
        let own = std::env::current_exe().unwrap();
        let own = own.file_name().unwrap().to_str().unwrap();
        let running = Running::now().unwrap();
        // Linux keeps 15 bytes of a name.
        let cut = &own[..own.len().min(15)];
        assert!(
            running.any(&[own, cut]),
            "{own} is not among what is running"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_list_that_never_ends_is_given_up() {
        let begun = Instant::now();
        assert_eq!(listed("/bin/sleep", &["60"]), None);
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(listed("/bin/echo", &["a"]).as_deref(), Some("a\n"));
    }
}
