//! What a backend must enforce around one interpreter.

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
