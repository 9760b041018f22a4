//! What a backend must enforce around one interpreter, and what became of it.

use serde::{Deserialize, Serialize};

/// The bounds of one sandbox. Time is not among them: a run brings its own deadline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Memory, swap included.
    pub memory_bytes_max: u64,
    /// Processes and threads.
    pub processes_max: u32,
    /// CPUs it may use at once; `None` sets no limit.
    pub cpus_max: Option<f64>,
    /// Size of `/tmp`.
    pub tmp_bytes_max: u64,
    /// Size of `/workspace`.
    pub workspace_bytes_max: u64,
    /// Open files of one process.
    pub open_files_max: u32,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            memory_bytes_max: 512 << 20,
            processes_max: 128,
            cpus_max: None,
            tmp_bytes_max: 64 << 20,
            workspace_bytes_max: 128 << 20,
            open_files_max: 1024,
        }
    }
}

/// How a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// By the kernel, for the container as a whole.
    Cgroup,
    /// By the kernel, for each process by itself.
    Rlimit,
    /// By the size of the file system.
    Mount,
    /// By the worker process that holds the embedded guest.
    Worker,
    /// Not at all.
    None,
}

/// One limit as it was asked for and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitFact {
    /// In bytes, counts or CPUs; `None` when no limit was asked for.
    pub asked: Option<f64>,
    /// Whether something holds the guest to it.
    pub enforced: bool,
    /// What does.
    pub how: Enforcement,
}
