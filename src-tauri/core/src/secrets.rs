//! Secret values: their type, so that none is printed, logged or serialised by accident, and where
//! they are kept.
//!
//! All of them lie in one encrypted file, and the key of that file is the one thing kept in the
//! system's keyring. So the keyring is asked once and not for each value, no system's bound on the
//! size of an item matters, and a person is asked for permission at most once. Where no keyring
//! opens, a second file with a key of our own takes what is new, and its content moves over as soon
//! as the keyring opens. What a secret is for is not known here.

mod keyring;
mod vault;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::keyring::Keyring;
use self::vault::{Entries, Vaults};
use crate::paths::{Environment, Paths};

/// Characters of a name.
const NAME_CHARS_MAX: usize = 200;

/// One value; the longest known are signed tokens of some kilobytes.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Values known to this process, so that they can be taken out of what leaves it.
const KNOWN_MAX: usize = 512;

/// Begins a value that stands for a secret.
const REFERENCE: &str = "keyring:";

/// A value that must not be shown. It prints as `***`, cannot be serialised, and its bytes are
/// overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keep `value` secret from here on.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value. Every use of this is a place where a secret leaves our care.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        wipe(&mut bytes);
    }
}

/// Overwrite what was secret.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // Otherwise the optimiser sees that nobody reads the zeros.
    std::hint::black_box(&bytes);
}

/// Where secrets are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file whose key is in the system's keyring.
    Keyring,
    /// In a file whose key is a file too, since no keyring opens.
    File {
        /// Why, in words for a person.
        reason: String,
    },
    /// Nowhere: they are gone with the process.
    Memory,
}

/// A secret that could not be had or kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SecretsError {
    /// No such name can be.
    #[error(
        "`{name}` cannot name a secret: names have 1 to {NAME_CHARS_MAX} characters, none of them a control character"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The value is too long.
    #[error(
        "the value of `{name}` has {bytes} bytes; a secret has at most {VALUE_BYTES_MAX} (64 KiB)"
    )]
    TooLong {
        /// The name.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// There are too many.
    #[error(
        "there are {} secrets already, which is the limit; forget some first",
        vault::ENTRIES_MAX
    )]
    Full,
    /// The file is there and its key is not to be had.
    #[error("the secret `{name}` is kept with the system's keyring, which does not open: {reason}")]
    Locked {
        /// The name.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A file of ours cannot be read or written.
    #[error("secrets cannot be kept in `{}`: {reason}", path.display())]
    Files {
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

/// All secrets of this user that Runbridge keeps.
pub struct Secrets {
    kept: Kept,
    known: Mutex<Known>,
}

enum Kept {
    Files {
        vaults: Arc<Vaults>,
        keyring: Arc<Keyring>,
    },
    Memory(Mutex<Entries>),
}

#[derive(Default)]
struct Known {
    values: VecDeque<Secret>,
    generation: u64,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// The secrets of the user of `environment`. Nothing is opened before it is needed.
    pub fn open(paths: &Paths, environment: &Environment) -> Arc<Self> {
        let vaults = Arc::new(Vaults::new(paths));
        let keyring = Arc::new(Keyring::new(environment, paths, Arc::clone(&vaults)));
        Arc::new(Self {
            kept: Kept::Files { vaults, keyring },
            known: Mutex::default(),
        })
    }

    /// Secrets that last as long as the value.
    pub fn in_memory() -> Arc<Self> {
        Arc::new(Self {
            kept: Kept::Memory(Mutex::default()),
            known: Mutex::default(),
        })
    }

    /// The name in a value that stands for a secret: `TOKEN` of `keyring:TOKEN`.
    pub fn reference(value: &str) -> Option<&str> {
        let name = value.trim().strip_prefix(REFERENCE)?;
        check_name(name).ok()?;
        Some(name)
    }

    /// Where a secret would be kept now. Asks the keyring if nobody has; takes at most as long as
    /// that may take.
    pub async fn place(&self) -> Place {
        match &self.kept {
            Kept::Memory(_) => Place::Memory,
            Kept::Files { keyring, .. } => match keyring.key().await {
                Ok(_) => Place::Keyring,
                Err(reason) => Place::File { reason },
            },
        }
    }

    /// The secret of that name.
    ///
    /// # Errors
    /// [`SecretsError::Locked`] if it may be there and cannot be read now.
    pub async fn get(&self, name: &str) -> Result<Option<Secret>, SecretsError> {
        check_name(name)?;
        let found = match &self.kept {
            Kept::Memory(entries) => lock(entries).get(name).cloned().flatten(),
            Kept::Files { vaults, keyring } => {
                let key = keyring.key().await;
                let wanted = name.to_owned();
                on_disk(vaults, move |vaults| vaults.get(&wanted, key.as_ref())).await?
            }
        };
        if let Some(found) = &found {
            self.know(found);
        }
        Ok(found)
    }

    /// Keep a secret under that name, in place of an earlier one.
    pub async fn set(&self, name: &str, value: Secret) -> Result<(), SecretsError> {
        check_name(name)?;
        let bytes = value.expose().len();
        if bytes > VALUE_BYTES_MAX {
            let name = name.to_owned();
            return Err(SecretsError::TooLong { name, bytes });
        }
        self.know(&value);
        match &self.kept {
            Kept::Memory(entries) => {
                lock(entries).insert(name.to_owned(), Some(value));
                Ok(())
            }
            Kept::Files { vaults, keyring } => {
                let key = keyring.key().await;
                let name = name.to_owned();
                on_disk(vaults, move |vaults| {
                    vaults.change(&name, Some(value), key.as_ref().ok())
                })
                .await
            }
        }
    }

    /// Forget the secret of that name, if there is one.
    pub async fn forget(&self, name: &str) -> Result<(), SecretsError> {
        check_name(name)?;
        match &self.kept {
            Kept::Memory(entries) => {
                lock(entries).remove(name);
                Ok(())
            }
            Kept::Files { vaults, keyring } => {
                let key = keyring.key().await;
                let name = name.to_owned();
                on_disk(vaults, move |vaults| {
                    vaults.change(&name, None, key.as_ref().ok())
                })
                .await
            }
        }
    }

    /// The names of all secrets that can be read now.
    pub async fn names(&self) -> Result<Vec<String>, SecretsError> {
        match &self.kept {
            Kept::Memory(entries) => Ok(lock(entries).keys().cloned().collect()),
            Kept::Files { vaults, keyring } => {
                let key = keyring.key().await;
                on_disk(vaults, move |vaults| vaults.names(key.as_ref().ok())).await
            }
        }
    }

    /// Remember a value only to take it out of what leaves this process.
    pub(crate) fn know(&self, value: &Secret) {
        let mut known = lock(&self.known);
        if known.values.contains(value) {
            return;
        }
        if known.values.len() >= KNOWN_MAX {
            known.values.pop_front();
        }
        known.values.push_back(value.clone());
        known.generation += 1;
    }

    /// Changes with [`Self::known`].
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.known).generation
    }

    /// The values that went through here.
    pub(crate) fn known(&self) -> (u64, Vec<Secret>) {
        let known = lock(&self.known);
        (known.generation, known.values.iter().cloned().collect())
    }
}

async fn on_disk<T: Send + 'static>(
    vaults: &Arc<Vaults>,
    work: impl FnOnce(&Vaults) -> Result<T, SecretsError> + Send + 'static,
) -> Result<T, SecretsError> {
    let vaults = Arc::clone(vaults);
    let folder = vaults.folder().to_owned();
    match tokio::task::spawn_blocking(move || work(&vaults)).await {
        Ok(done) => done,
        Err(error) => Err(SecretsError::Files {
            path: folder,
            reason: error.to_string(),
        }),
    }
}

fn check_name(name: &str) -> Result<(), SecretsError> {
    let length = name.chars().count();
    if (1..=NAME_CHARS_MAX).contains(&length) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(SecretsError::Name {
        name: name
            .chars()
            .filter(|c| !c.is_control())
            .take(NAME_CHARS_MAX)
            .collect(),
    })
}

fn files(path: &std::path::Path, error: &io::Error) -> SecretsError {
    SecretsError::Files {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_inside_any_debug_output_is_stars() {
        let shown = format!("{:?}", Some(vec![Secret::new("hunter2-hunter2")]));
        assert_eq!(shown, "Some([***])");
    }

    #[test]
    fn only_a_whole_value_is_a_reference() {
        assert_eq!(Secrets::reference("keyring:GITHUB"), Some("GITHUB"));
        assert_eq!(Secrets::reference(" keyring:my token "), Some("my token"));
        for plain in ["keyring:", "my keyring:X", "keyring:a\nb", "ghp_x"] {
            assert_eq!(Secrets::reference(plain), None, "{plain}");
        }
    }
}
