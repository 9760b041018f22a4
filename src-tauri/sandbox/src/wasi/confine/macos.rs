//! The system's own sandbox, in a form that lets a process compute and nothing else.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use rustix::process::{Resource, Rlimit};

use crate::SandboxLimits;

/// `sandbox.h`: the profile is one of those that the system has a name for.
const SANDBOX_NAMED: u64 = 1;

// Declared in no crate that we have; the header calls them deprecated in favour of entitlements, which
// only a signed app has.
#[expect(unsafe_code, reason = "functions of the system's C library")]
unsafe extern "C" {
    /// "All operating-system services are prohibited": no file, no network, no process.
    #[link_name = "kSBXProfilePureComputation"]
    static PURE_COMPUTATION: c_char;
    fn sandbox_init(profile: *const c_char, flags: u64, error: *mut *mut c_char) -> c_int;
    fn sandbox_free_error(error: *mut c_char);
}

/// There is no limit here that counts a process's memory; WebAssembly's own holds the guest's.
pub(super) fn before_threads(_limits: &SandboxLimits) -> Result<(), String> {
    for resource in [
        Resource::Core,
        Resource::Fsize,
        Resource::Nproc,
        // None beyond those that are open.
        Resource::Nofile,
    ] {
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        rustix::process::setrlimit(resource, none)
            .map_err(|error| format!("cannot set a resource limit: {error}"))?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the system is called by its C functions")]
pub(super) fn before_guest() -> Result<(), String> {
    let mut error = null_mut();
    // SAFETY: the profile is a constant text of the system's, and the pointer has room.
    let refused =
        unsafe { sandbox_init(&raw const PURE_COMPUTATION, SANDBOX_NAMED, &raw mut error) };
    if refused == 0 {
        return Ok(());
    }
    if error.is_null() {
        return Err("cannot give up the system's services".to_owned());
    }
    // SAFETY: it is a text of the system's, which is copied before it is given back, once.
    let reason = unsafe {
        let reason = CStr::from_ptr(error).to_string_lossy().into_owned();
        sandbox_free_error(error);
        reason
    };
    Err(format!("cannot give up the system's services: {reason}"))
}
