//! A socket in a folder that only the user may enter.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::net::{UnixListener, UnixStream};

use super::ClaimError;
use crate::{atomic, token};

/// What comes from the other end.
pub type ReadHalf = tokio::net::unix::OwnedReadHalf;

/// What goes to the other end.
pub type WriteHalf = tokio::net::unix::OwnedWriteHalf;

/// Longest path of a socket that every Unix takes: macOS has 104 bytes with the zero at the end.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// The socket for a runtime folder: in there, or in another one if the path would be too long for a
/// socket.
pub(super) fn address(folder: &Path) -> PathBuf {
    let near = folder.join("app.sock");
    if near.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return near;
    }
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let uid = own_uid();
    let name = format!("{}.sock", token::hex(&digest[..8]));
    PathBuf::from(format!("/tmp/runbridge-{uid}")).join(name)
}

/// Have the folders of lock, token and socket, which only this user may enter.
pub(super) fn prepare(folder: &Path, address: &Path) -> Result<(), ClaimError> {
    make_private(folder)?;
    address.parent().map_or(Ok(()), make_private)
}

fn make_private(folder: &Path) -> Result<(), ClaimError> {
    atomic::create_folder(folder).map_err(ClaimError::io("create", folder))?;
    let found = fs::symlink_metadata(folder).map_err(ClaimError::io("look at", folder))?;
    if !found.is_dir() || found.uid() != own_uid() {
        return Err(ClaimError::NotOurs {
            folder: folder.to_owned(),
        });
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))
            .map_err(ClaimError::io("protect", folder))?;
    }
    Ok(())
}

/// Remove what a crashed app left in the way, which only the holder of the lock may.
pub(super) fn clear(address: &Path) -> Result<(), ClaimError> {
    match fs::symlink_metadata(address) {
        Ok(found) if found.file_type().is_socket() => {
            fs::remove_file(address).map_err(ClaimError::io("remove", address))
        }
        Ok(_) => Err(ClaimError::InTheWay {
            path: address.to_owned(),
            why: "it is no socket; remove it",
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(ClaimError::io("look at", address)(source)),
    }
}

/// The socket of the owner; its file goes with it.
pub(crate) struct Listening {
    listener: UnixListener,
    address: PathBuf,
}

impl Listening {
    /// Listen there, where nothing is.
    pub(super) fn at(address: &Path) -> Result<Self, ClaimError> {
        let listening = Self {
            listener: UnixListener::bind(address).map_err(ClaimError::io("listen on", address))?,
            address: address.to_owned(),
        };
        fs::set_permissions(address, Permissions::from_mode(0o600))
            .map_err(ClaimError::io("protect", address))?;
        Ok(listening)
    }

    /// Wait for someone to come in.
    pub(crate) async fn accept(&mut self) -> io::Result<Stream> {
        self.listener
            .accept()
            .await
            .map(|(stream, _)| Stream(stream))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        super::remove(&self.address);
    }
}

/// One end of a connection.
pub(crate) struct Stream(UnixStream);

impl Stream {
    /// To whoever listens there.
    pub(super) async fn connect(address: &Path) -> io::Result<Self> {
        UnixStream::connect(address).await.map(Self)
    }

    /// Whether the process at the other end belongs to our user. When in doubt it does not.
    pub(crate) fn is_own(&self) -> bool {
        self.0.peer_cred().is_ok_and(|peer| peer.uid() == own_uid())
    }

    /// Its directions, and what ends both.
    pub(crate) fn into_parts(self) -> io::Result<(ReadHalf, WriteHalf, Cutter)> {
        let cutter = Cutter(self.0.as_fd().try_clone_to_owned()?);
        let (read, write) = self.0.into_split();
        Ok((read, write, cutter))
    }
}

/// Ends a connection whose halves others have.
pub(crate) struct Cutter(OwnedFd);

impl Cutter {
    /// From now on nothing is read or written, and the other end sees that at once.
    pub(crate) fn cut(&self) {
        if let Err(error) = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both) {
            tracing::debug!("the other end was gone already: {error}");
        }
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    #[test]
    fn a_long_path_gets_a_short_socket_that_is_its_own() {
        let long = |name: &str| Path::new("/").join("long".repeat(40)).join(name);
        let (one, other) = (address(&long("one")), address(&long("other")));
        for address in [&one, &other] {
            assert!(address.as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
        }
        assert_ne!(one, other);
        assert_eq!(one, address(&long("one")));
        let near = Path::new("/home/u/run");
        assert_eq!(address(near), near.join("app.sock"));
    }

    #[test]
    fn folders_of_others_and_links_are_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let error = make_private(&link).unwrap_err();
        assert!(matches!(error, ClaimError::NotOurs { .. }), "{error}");
    }
}
