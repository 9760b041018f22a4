//! A job of one process, no privilege, the lowest integrity, and no code but what is there.
//!
//! A process cannot give up by itself what its user may read, nor the network; that takes a token or a
//! container which it is started with.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr::{null, null_mut};

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, CreateWellKnownSid, GetLengthSid, GetTokenInformation,
    LUID_AND_ATTRIBUTES, SE_PRIVILEGE_REMOVED, SECURITY_MAX_SID_SIZE, SID_AND_ATTRIBUTES,
    SetTokenInformation, TOKEN_ADJUST_DEFAULT, TOKEN_ADJUST_PRIVILEGES, TOKEN_MANDATORY_LABEL,
    TOKEN_PRIVILEGES, TOKEN_QUERY, TokenIntegrityLevel, TokenPrivileges, WinUntrustedLabelSid,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
    JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION, JOB_OBJECT_LIMIT_PROCESS_MEMORY,
    JOB_OBJECT_UILIMIT_DESKTOP, JOB_OBJECT_UILIMIT_DISPLAYSETTINGS, JOB_OBJECT_UILIMIT_EXITWINDOWS,
    JOB_OBJECT_UILIMIT_GLOBALATOMS, JOB_OBJECT_UILIMIT_HANDLES, JOB_OBJECT_UILIMIT_READCLIPBOARD,
    JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS, JOB_OBJECT_UILIMIT_WRITECLIPBOARD,
    JOBOBJECT_BASIC_UI_RESTRICTIONS, JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JOBOBJECTINFOCLASS,
    JobObjectBasicUIRestrictions, JobObjectExtendedLimitInformation, SetInformationJobObject,
};
use windows_sys::Win32::System::SystemServices::{
    PROCESS_MITIGATION_DYNAMIC_CODE_POLICY, SE_GROUP_INTEGRITY,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, OpenProcessToken, ProcessDynamicCodePolicy, SetProcessMitigationPolicy,
};

use super::DATA_BYTES_BESIDE;
use crate::SandboxLimits;

/// Counted here and not on Linux: the compiled code, whose pages are the process's own to be loaded.
const CODE_BYTES: u64 = 128 << 20;

/// More privileges than Windows has.
const PRIVILEGES_MAX: usize = 64;

pub(super) fn before_threads(limits: &SandboxLimits) -> Result<(), String> {
    enter_job(limits).map_err(|error| format!("cannot enter a job: {error}"))?;
    let token = own_token().map_err(|error| format!("cannot open the own token: {error}"))?;
    give_up_privileges(&token).map_err(|error| format!("cannot give up privileges: {error}"))?;
    lower_integrity(&token).map_err(|error| format!("cannot give up integrity: {error}"))
}

/// No process beside this one, no more memory than this, and nothing of the desktop. The limits stay
/// without the handle, for as long as the process is there.
#[expect(unsafe_code, reason = "a job is made by the system's functions")]
fn enter_job(limits: &SandboxLimits) -> io::Result<()> {
    // SAFETY: both pointers may be null: the usual rights, and no name.
    let job = unsafe { owned(CreateJobObjectW(null(), null())) }?;
    let mut most = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    most.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_ACTIVE_PROCESS
        | JOB_OBJECT_LIMIT_PROCESS_MEMORY
        | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION;
    most.BasicLimitInformation.ActiveProcessLimit = 1;
    most.ProcessMemoryLimit =
        (limits.memory_bytes_max / 2 * 3 + DATA_BYTES_BESIDE + CODE_BYTES) as usize;
    set(&job, JobObjectExtendedLimitInformation, &most)?;
    let desktop = JOBOBJECT_BASIC_UI_RESTRICTIONS {
        UIRestrictionsClass: JOB_OBJECT_UILIMIT_DESKTOP
            | JOB_OBJECT_UILIMIT_DISPLAYSETTINGS
            | JOB_OBJECT_UILIMIT_EXITWINDOWS
            | JOB_OBJECT_UILIMIT_GLOBALATOMS
            | JOB_OBJECT_UILIMIT_HANDLES
            | JOB_OBJECT_UILIMIT_READCLIPBOARD
            | JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS
            | JOB_OBJECT_UILIMIT_WRITECLIPBOARD,
    };
    set(&job, JobObjectBasicUIRestrictions, &desktop)?;
    // SAFETY: the job is open, and the other is a constant that means this process.
    done(unsafe { AssignProcessToJobObject(job.as_raw_handle(), GetCurrentProcess()) })
}

#[expect(unsafe_code, reason = "the system takes a pointer and its size")]
fn set<T>(job: &OwnedHandle, class: JOBOBJECTINFOCLASS, what: &T) -> io::Result<()> {
    let pointer: *const T = what;
    // SAFETY: the job is open, and what is read is as large as is said. A structure that is none of the
    // class has another size and is refused.
    done(unsafe {
        SetInformationJobObject(
            job.as_raw_handle(),
            class,
            pointer.cast(),
            size_of::<T>() as u32,
        )
    })
}

#[expect(unsafe_code, reason = "a handle is asked for")]
fn own_token() -> io::Result<OwnedHandle> {
    let mut token = null_mut();
    let rights = TOKEN_QUERY | TOKEN_ADJUST_PRIVILEGES | TOKEN_ADJUST_DEFAULT;
    // SAFETY: the process is a constant that means this one, and the handle has room.
    done(unsafe { OpenProcessToken(GetCurrentProcess(), rights, &raw mut token) })?;
    // SAFETY: it was just made, and nobody else has it.
    unsafe { owned(token) }
}

/// Not only switched off: removed, for nothing brings one back.
#[expect(
    unsafe_code,
    reason = "the system fills and reads a structure of changing length"
)]
fn give_up_privileges(token: &OwnedHandle) -> io::Result<()> {
    /// The system's structure, which ends with as many entries as it says, with room for them.
    #[repr(C)]
    struct Privileges {
        count: u32,
        entries: [LUID_AND_ATTRIBUTES; PRIVILEGES_MAX],
    }
    let mut privileges = Privileges {
        count: 0,
        entries: [LUID_AND_ATTRIBUTES::default(); PRIVILEGES_MAX],
    };
    let mut used = 0;
    // SAFETY: the token is open, and the room is as large as is said.
    done(unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            TokenPrivileges,
            (&raw mut privileges).cast(),
            size_of::<Privileges>() as u32,
            &raw mut used,
        )
    })?;
    for entry in &mut privileges.entries {
        entry.Attributes = SE_PRIVILEGE_REMOVED;
    }
    let pointer: *const Privileges = &raw const privileges;
    // SAFETY: as before; the count is the system's own. No former state is asked for.
    done(unsafe {
        AdjustTokenPrivileges(
            token.as_raw_handle(),
            0,
            pointer.cast::<TOKEN_PRIVILEGES>(),
            0,
            null_mut(),
            null_mut(),
        )
    })
}

/// Nothing of the user's may be written to, and no window or process of his be touched. What is open
/// stays so.
#[expect(
    unsafe_code,
    reason = "the system takes a structure with a pointer in it"
)]
fn lower_integrity(token: &OwnedHandle) -> io::Result<()> {
    let mut sid = [0_u32; (SECURITY_MAX_SID_SIZE as usize).div_ceil(4)];
    let mut bytes = size_of_val(&sid) as u32;
    // SAFETY: the room is as large as is said, and the level needs no domain.
    done(unsafe {
        CreateWellKnownSid(
            WinUntrustedLabelSid,
            null_mut(),
            sid.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    })?;
    let label = TOKEN_MANDATORY_LABEL {
        Label: SID_AND_ATTRIBUTES {
            Sid: sid.as_mut_ptr().cast(),
            Attributes: SE_GROUP_INTEGRITY as u32,
        },
    };
    let pointer: *const c_void = (&raw const label).cast();
    // SAFETY: the token is open; label and identifier outlive the call, and the size is that of both.
    done(unsafe {
        let size = size_of_val(&label) as u32 + GetLengthSid(label.Label.Sid);
        SetTokenInformation(token.as_raw_handle(), TokenIntegrityLevel, pointer, size)
    })
}

/// All code is loaded by now.
#[expect(unsafe_code, reason = "the system takes a structure")]
pub(super) fn before_guest() -> Result<(), String> {
    let mut policy = PROCESS_MITIGATION_DYNAMIC_CODE_POLICY::default();
    // The first bit prohibits it; the others would make exceptions.
    policy.Anonymous.Flags = 1;
    // SAFETY: the structure is the policy's, and the size its own.
    done(unsafe {
        SetProcessMitigationPolicy(
            ProcessDynamicCodePolicy,
            (&raw const policy).cast(),
            size_of_val(&policy),
        )
    })
    .map_err(|error| format!("cannot give up new code: {error}"))
}

/// A handle that is closed with this, unless there is none.
///
/// # Safety
/// It is null, or open and nobody else's to close.
#[expect(unsafe_code, reason = "a handle gets an owner")]
unsafe fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn done(succeeded: i32) -> io::Result<()> {
    if succeeded == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
