//! Which programs are running, by name.

use std::collections::BTreeSet;

/// Names of running programs, as far as the system tells.
#[derive(Clone, Debug, Default)]
pub struct Running(BTreeSet<String>);

impl Running {
    /// These programs.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// The programs of this machine. `None` where we have no way to ask.
    pub fn now() -> Option<Self> {
        if cfg!(target_os = "linux") {
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
        } else {
            None
        }
    }

    /// Whether one of these runs.
    pub fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains(*name))
    }
}
