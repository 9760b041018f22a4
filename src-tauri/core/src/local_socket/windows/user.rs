//! Users as Windows knows them: by a security identifier, which processes act under and objects belong to.

use std::fmt;
use std::io;
use std::os::windows::io::{
    AsHandle as _, AsRawHandle as _, BorrowedHandle, FromRawHandle as _, OwnedHandle,
};
use std::ptr::null_mut;

use windows_sys::Win32::Foundation::{HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo, SDDL_REVISION_1,
    SE_KERNEL_OBJECT,
};
use windows_sys::Win32::Security::{
    GetLengthSid, GetTokenInformation, OWNER_SECURITY_INFORMATION, PSID, TOKEN_QUERY, TOKEN_USER,
    TokenUser,
};
use windows_sys::Win32::System::Pipes::GetNamedPipeClientProcessId;
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, OpenProcess, OpenProcessToken, PROCESS_QUERY_LIMITED_INFORMATION,
};

/// Longest identifier: 15 numbers behind the head.
const SID_BYTES_MAX: usize = 8 + 15 * 4;

/// A user, as the bytes of the identifier.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User(Vec<u8>);

#[expect(unsafe_code, reason = "the system is asked by pointers and handles")]
impl User {
    /// Ours.
    pub(super) fn own() -> io::Result<Self> {
        // SAFETY: it is a constant that means this process for as long as that lives.
        Self::of(unsafe { BorrowedHandle::borrow_raw(GetCurrentProcess()) })
    }

    /// Of the process at the other end of a pipe that we made.
    pub(super) fn of_client(pipe: BorrowedHandle<'_>) -> io::Result<Self> {
        let mut pid = 0;
        // SAFETY: the pipe is open, and the number has room.
        done(unsafe { GetNamedPipeClientProcessId(pipe.as_raw_handle(), &raw mut pid) })?;
        // SAFETY: it takes no pointers, and nobody else has what it gives.
        let process = unsafe { owned(OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid)) }?;
        Self::of(process.as_handle())
    }

    /// To whom a pipe belongs that we opened.
    pub(super) fn owning(pipe: BorrowedHandle<'_>) -> io::Result<Self> {
        let mut owner: PSID = null_mut();
        let mut descriptor = null_mut();
        // SAFETY: the pipe is open; the two pointers have room, and the others are asked for by none of
        // the flags.
        let error = unsafe {
            GetSecurityInfo(
                pipe.as_raw_handle(),
                SE_KERNEL_OBJECT,
                OWNER_SECURITY_INFORMATION,
                &raw mut owner,
                null_mut(),
                null_mut(),
                null_mut(),
                &raw mut descriptor,
            )
        };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error as i32));
        }
        // SAFETY: the owner lies in the descriptor, which is freed only after it was copied, and once.
        unsafe {
            let user = Self::copied(owner);
            LocalFree(descriptor);
            user
        }
    }

    fn of(process: BorrowedHandle<'_>) -> io::Result<Self> {
        let mut token = null_mut();
        // SAFETY: the process is open, and the handle has room.
        done(unsafe { OpenProcessToken(process.as_raw_handle(), TOKEN_QUERY, &raw mut token) })?;
        // SAFETY: it was just made, and nobody else has it.
        let token = unsafe { owned(token) }?;
        // Words, for what is put there has pointers in it.
        let mut room = [0_u64; (size_of::<TOKEN_USER>() + SID_BYTES_MAX).div_ceil(8)];
        let mut used = 0;
        // SAFETY: the token is open and may be queried, and the room is as large as is said.
        done(unsafe {
            GetTokenInformation(
                token.as_raw_handle(),
                TokenUser,
                room.as_mut_ptr().cast(),
                size_of_val(&room) as u32,
                &raw mut used,
            )
        })?;
        // SAFETY: it succeeded, so a TOKEN_USER is there, and its identifier behind it in the same room.
        unsafe { Self::copied((*room.as_ptr().cast::<TOKEN_USER>()).User.Sid) }
    }

    /// # Safety
    /// It is null or points to a valid identifier.
    unsafe fn copied(sid: PSID) -> io::Result<Self> {
        if sid.is_null() {
            return Err(io::Error::other("it belongs to nobody"));
        }
        // SAFETY: as the caller promises; its length says how much may be read.
        let bytes =
            unsafe { std::slice::from_raw_parts(sid.cast::<u8>(), GetLengthSid(sid) as usize) };
        Ok(Self(bytes.to_vec()))
    }
}

/// As Windows writes it: `S-1-5-21-…`.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [revision, _count, a0, a1, a2, a3, a4, a5, numbers @ ..] = &*self.0 else {
            return Err(fmt::Error);
        };
        let authority = u64::from_be_bytes([0, 0, *a0, *a1, *a2, *a3, *a4, *a5]);
        write!(f, "S-{revision}-{authority}")?;
        for number in numbers.as_chunks().0 {
            write!(f, "-{}", u32::from_le_bytes(*number))?;
        }
        Ok(())
    }
}

/// Says who may do what with an object; without pointers in it, so that it can be kept anywhere.
pub(super) struct Descriptor(Vec<u64>);

impl Descriptor {
    /// The object is this user's, who may do everything with it, and nobody else anything.
    #[expect(unsafe_code, reason = "the system reads the text and gives memory")]
    pub(super) fn for_only(user: &User) -> io::Result<Self> {
        let text = format!("O:{user}D:P(A;;GA;;;{user})");
        let text: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let mut made = null_mut();
        let mut bytes = 0;
        // SAFETY: the text ends with a zero, and pointer and size have room.
        done(unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut made,
                &raw mut bytes,
            )
        })?;
        let mut kept = vec![0_u64; (bytes as usize).div_ceil(8)];
        // SAFETY: as many bytes were made, and there is room for them; what was made is freed once.
        unsafe {
            kept.as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(made.cast(), bytes as usize);
            LocalFree(made);
        }
        Ok(Self(kept))
    }

    /// For the system, which only reads it.
    pub(super) fn as_ptr(&self) -> *mut std::ffi::c_void {
        self.0.as_ptr().cast_mut().cast()
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    #[test]
    fn an_identifier_is_written_as_windows_writes_it() {
        let mut bytes = vec![1, 2, 0, 0, 0, 0, 0, 5];
        bytes.extend([32_u32, 544].map(u32::to_le_bytes).concat());
        assert_eq!(User(bytes).to_string(), "S-1-5-32-544");
        let own = User::own().unwrap();
        assert!(own.to_string().starts_with("S-1-5-21-"), "{own}");
        Descriptor::for_only(&own).unwrap();
    }
}
