//! Read-only files for the `/packages` of a guest that lives. Knows their names and bytes, and neither
//! what is in them nor where they come from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut as _, BytesMut};
use tokio::sync::mpsc;

use crate::frame::{self, Kind};

/// Bytes of files that one guest takes in while it lives. They are in its worker's memory, beside what
/// its own limit counts; a guest that is started later has the same files in place.
pub const MOUNTED_BYTES_MAX: u64 = 64 << 20;

/// How files come to a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounting {
    /// It is sent each one. These it was started with.
    Sent(Vec<String>),
    /// It sees a folder of this machine, and what comes into it.
    Folder,
    /// It was not to see any; another guest may.
    Without,
    /// It cannot be given any.
    Never,
}

/// Why a guest was not given a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// Its sandbox has no `/packages`.
    #[error("this sandbox sees no files of this machine")]
    Never,
    /// It has taken in as much as it may.
    #[error("a session takes in {} MiB of packages while it lives; a new session has them all", MOUNTED_BYTES_MAX >> 20)]
    Full,
    /// It has ended.
    #[error("the interpreter has ended")]
    Gone,
}

/// The way to give one guest another file. Clones are of the same guest.
#[derive(Clone, Debug)]
pub struct Mounts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mounting: Mounting,
    /// Whoever writes to the guest ends with it, not with us.
    writes: mpsc::WeakSender<BytesMut>,
    there: Mutex<There>,
}

#[derive(Debug, Default)]
struct There {
    names: BTreeSet<String>,
    bytes: u64,
}

impl Mounts {
    pub(crate) fn new(mounting: Mounting, writes: mpsc::WeakSender<BytesMut>) -> Self {
        let names = match &mounting {
            Mounting::Sent(names) => names.iter().cloned().collect(),
            Mounting::Folder | Mounting::Without | Mounting::Never => BTreeSet::new(),
        };
        Self(Arc::new(Inner {
            mounting,
            writes,
            there: Mutex::new(There { names, bytes: 0 }),
        }))
    }

    /// Whether the guest can see files at all.
    pub fn are_possible(&self) -> bool {
        matches!(self.0.mounting, Mounting::Sent(_) | Mounting::Folder)
    }

    /// Whether it sees none for no other reason than that it was started without.
    pub fn were_not_wanted(&self) -> bool {
        self.0.mounting == Mounting::Without
    }

    /// Whether it sees this one. Of a folder, it sees what is in it.
    pub fn has(&self, name: &str) -> bool {
        match self.0.mounting {
            Mounting::Sent(_) => self.there().names.contains(name),
            Mounting::Folder => true,
            Mounting::Without | Mounting::Never => false,
        }
    }

    /// Put a file at `/packages/<name>`, before whatever is sent to the guest after this has returned.
    /// One that it has stays as it is.
    ///
    /// # Errors
    /// See [`MountError`].
    pub async fn add(&self, name: &str, content: &[u8]) -> Result<(), MountError> {
        if self.has(name) {
            return Ok(());
        }
        let length = u16::try_from(name.len()).map_err(|_| MountError::Never)?;
        let Mounting::Sent(_) = self.0.mounting else {
            return Err(MountError::Never);
        };
        let mut payload = BytesMut::with_capacity(2 + name.len() + content.len());
        payload.put_u16(length);
        payload.put_slice(name.as_bytes());
        payload.put_slice(content);
        let mut bytes = BytesMut::new();
        frame::encode(Kind::Mount, 0, &payload, &mut bytes);
        let writes = self.0.writes.upgrade().ok_or(MountError::Gone)?;
        let place = writes.reserve().await.map_err(|_| MountError::Gone)?;
        let mut there = self.there();
        let total = there.bytes + content.len() as u64;
        if total > MOUNTED_BYTES_MAX {
            return Err(MountError::Full);
        }
        if there.names.insert(name.to_owned()) {
            there.bytes = total;
            place.send(bytes);
        }
        Ok(())
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.0.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name and the content that a frame carries.
#[cfg(feature = "wasi")]
pub(crate) fn read(payload: &bytes::Bytes) -> Option<(&str, bytes::Bytes)> {
    let length = payload.first_chunk::<2>()?;
    let content_at = 2 + usize::from(u16::from_be_bytes(*length));
    let name = std::str::from_utf8(payload.get(2..content_at)?).ok()?;
    Some((name, payload.slice(content_at..)))
}
