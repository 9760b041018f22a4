//! What the operating system takes from a worker before its guest runs: a second wall, should the
//! first one, WebAssembly, have a hole.
//!
//! A worker needs to read and write the descriptors it has, to map memory without running it, to
//! wait and to end. As far as the system can do it, everything else is refused by the kernel: opening a
//! file, a socket, a process. That a worker ends with its host needs no help: its reader meets the end
//! of stdin.

#[cfg_attr(target_os = "linux", path = "confine/linux.rs")]
#[cfg_attr(target_os = "macos", path = "confine/macos.rs")]
#[cfg_attr(windows, path = "confine/windows.rs")]
mod os;

use crate::SandboxLimits;

/// What a worker takes beside its guest's memory and the checkpoint, which is half of it at
/// most: frames that wait (128 MiB) or are read or written (64 MiB each), the engine, the
/// guest's reserve, and files that come while it lives.
#[cfg(any(target_os = "linux", windows))]
const DATA_BYTES_BESIDE: u64 = (384 << 20) + crate::MOUNTED_BYTES_MAX;

/// Close what the host's other libraries may have left open across the start. To be called before
/// anything is opened.
pub(super) fn close_inherited() {
    // On Windows nothing is left open that was not meant to be; macOS has no call for it.
    #[cfg(target_os = "linux")]
    os::close_inherited();
}

/// Give up files, ports and memory beyond the limits. For the calling thread and those that it
/// starts: call it before it has started any.
///
/// # Errors
/// What could not be given up: the worker must not go on then.
pub(super) fn before_threads(limits: &SandboxLimits) -> Result<(), String> {
    os::before_threads(limits)
}

/// Give up all that is not needed any more. For all threads: none can be started after it.
///
/// # Errors
/// As above.
pub(super) fn before_guest() -> Result<(), String> {
    os::before_guest()
}
