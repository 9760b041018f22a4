//! What the operating system takes from a worker before its guest runs: a second wall, should the
//! first one, WebAssembly, have a hole.

use crate::SandboxLimits;

/// Give up everything that a worker does not need, for ever.
///
/// # Errors
/// What could not be given up: the worker must not go on then.
#[cfg(target_os = "linux")]
pub(super) fn confine(limits: &SandboxLimits) -> Result<(), String> {
    let _ = limits;
    Ok(())
}

/// Elsewhere the first wall stands alone.
#[cfg(not(target_os = "linux"))]
pub(super) fn confine(_limits: &SandboxLimits) -> Result<(), String> {
    Ok(())
}
