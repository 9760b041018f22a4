//! The encrypted files: one whose key is in the keyring, and one whose key lies in a file of ours.
//!
//! A value in the second file is newer than one of the same name in the first, because whatever
//! writes to the first empties the second. What was forgotten while only the second was at hand stays
//! there as a name without a value, so that it is forgotten in the first one too. A file that its key
//! does not open is kept beside and begun anew: its key is gone, and nothing else can read it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Secret, SecretsError, files, wipe};
use crate::atomic::{self, Lock};
use crate::paths::Paths;

/// Names in one file.
pub(super) const ENTRIES_MAX: usize = 1_000;

/// A file that is longer is none of ours.
const FILE_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Another process holds the lock for one write.
const LOCK: Duration = Duration::from_secs(2);

/// Bound into each file, so that no other one can be put in its place.
const FORMAT: &str = "runbridge secrets 1";

/// Names with their values; no value: forgotten.
pub(super) type Entries = BTreeMap<String, Option<Secret>>;

/// Opens one file.
#[derive(Clone)]
pub(super) struct Key([u8; 32]);

impl Key {
    pub(super) fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    /// As text, since some keyrings keep nothing else.
    pub(super) fn to_text(&self) -> Secret {
        Secret::new(BASE64_STANDARD.encode(self.0))
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut bytes = BASE64_STANDARD.decode(text.trim()).ok()?;
        let key = bytes.as_slice().try_into().ok().map(Self);
        wipe(&mut bytes);
        key
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, &self.0)
            .ok()
            .map(LessSafeKey::new)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Both files.
pub(super) struct Vaults {
    folder: PathBuf,
    with_keyring: PathBuf,
    with_file: PathBuf,
    /// Apart from the data, so that a copy of the data alone is of no use.
    key_file: PathBuf,
}

impl Vaults {
    pub(super) fn new(paths: &Paths) -> Self {
        let folder = paths.secrets();
        Self {
            with_keyring: folder.join("keyring.json"),
            with_file: folder.join("file.json"),
            key_file: paths.secrets_key(),
            folder,
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps other processes out.
    pub(super) fn lock(&self) -> Result<Lock, SecretsError> {
        atomic::create_folder(&self.folder).map_err(|error| files(&self.folder, &error))?;
        let path = self.folder.join(".lock");
        Lock::take(&path, LOCK).map_err(|error| SecretsError::Files {
            path,
            reason: error.to_string(),
        })
    }

    /// `key` is that of the keyring, or why there is none.
    pub(super) fn get(
        &self,
        name: &str,
        key: Result<&Key, &String>,
    ) -> Result<Option<Secret>, SecretsError> {
        let mut newer = self.beside()?.unwrap_or_default();
        match (newer.remove(name), key) {
            (Some(value), _) => {
                if let Ok(key) = key {
                    self.take_over(key)?;
                }
                Ok(value)
            }
            (None, Ok(key)) => Ok(read(&self.with_keyring, key)?
                .and_then(|mut entries| entries.remove(name))
                .flatten()),
            (None, Err(reason)) if self.with_keyring.exists() => Err(SecretsError::Locked {
                name: name.to_owned(),
                reason: reason.clone(),
            }),
            (None, Err(_)) => Ok(None),
        }
    }

    pub(super) fn names(&self, key: Option<&Key>) -> Result<Vec<String>, SecretsError> {
        let mut entries = match key {
            Some(key) => read(&self.with_keyring, key)?.unwrap_or_default(),
            None => Entries::new(),
        };
        entries.extend(self.beside()?.unwrap_or_default());
        Ok(entries
            .into_iter()
            .filter_map(|(name, value)| value.map(|_| name))
            .collect())
    }

    /// Set or, with no value, forget.
    pub(super) fn change(
        &self,
        name: &str,
        value: Option<Secret>,
        key: Option<&Key>,
    ) -> Result<(), SecretsError> {
        let _lock = self.lock()?;
        if let Some(key) = key {
            let mut entries = self.merged(key)?;
            match value {
                Some(value) => entries.insert(name.to_owned(), Some(value)),
                None => entries.remove(name),
            };
            return self.write_with_keyring(&entries, key);
        }
        let mut entries = self.beside_or_anew()?;
        if value.is_some() || self.with_keyring.exists() {
            entries.insert(name.to_owned(), value);
        } else {
            entries.remove(name);
        }
        if entries.is_empty() && !self.with_file.exists() {
            return Ok(());
        }
        let key = match self.file_key()? {
            Some(key) => key,
            None => self.new_file_key()?,
        };
        write(&self.with_file, &entries, &key)
    }

    /// The keyring opens: what was written without it moves over.
    fn take_over(&self, key: &Key) -> Result<(), SecretsError> {
        let _lock = self.lock()?;
        let entries = self.merged(key)?;
        self.write_with_keyring(&entries, key)
    }

    fn merged(&self, key: &Key) -> Result<Entries, SecretsError> {
        let mut entries = if let Some(entries) = read(&self.with_keyring, key)? {
            entries
        } else {
            begin_anew(&self.with_keyring)?;
            Entries::new()
        };
        entries.extend(self.beside_or_anew()?);
        entries.retain(|_, value| value.is_some());
        Ok(entries)
    }

    fn write_with_keyring(&self, entries: &Entries, key: &Key) -> Result<(), SecretsError> {
        write(&self.with_keyring, entries, key)?;
        // Only now: a crash between the two leaves the same values twice.
        atomic::remove(&self.with_file)
            .map(|_| ())
            .map_err(|error| files(&self.with_file, &error))
    }

    /// What was written without the keyring; `None`: it cannot be read any more.
    fn beside(&self) -> Result<Option<Entries>, SecretsError> {
        if !self.with_file.exists() {
            return Ok(Some(Entries::new()));
        }
        match self.file_key()? {
            Some(key) => read(&self.with_file, &key),
            None => Ok(None),
        }
    }

    /// The same under the lock, where a file that cannot be read makes room.
    fn beside_or_anew(&self) -> Result<Entries, SecretsError> {
        if let Some(entries) = self.beside()? {
            return Ok(entries);
        }
        begin_anew(&self.with_file)?;
        Ok(Entries::new())
    }

    fn file_key(&self) -> Result<Option<Key>, SecretsError> {
        match fs::read_to_string(&self.key_file) {
            Ok(text) => Ok(Key::from_text(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(files(&self.key_file, &error)),
        }
    }

    fn new_file_key(&self) -> Result<Key, SecretsError> {
        let made = Key::random().and_then(|key| {
            if let Some(folder) = self.key_file.parent() {
                atomic::create_folder(folder)?;
            }
            atomic::write(&self.key_file, key.to_text().expose().as_bytes())?;
            Ok(key)
        });
        made.map_err(|error| files(&self.key_file, &error))
    }
}

fn begin_anew(file: &Path) -> Result<(), SecretsError> {
    match atomic::set_aside(file) {
        Ok(aside) => {
            tracing::warn!(
                "the secrets in {} cannot be read any more, since their key is gone; they are kept as {}, and servers that used them need them again",
                file.display(),
                aside.display()
            );
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(files(file, &error)),
    }
}

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    nonce: String,
    sealed: String,
}

/// `None`: the key does not open it. A file that is not there is empty.
fn read(path: &Path, key: &Key) -> Result<Option<Entries>, SecretsError> {
    let failed = |error: io::Error| files(path, &error);
    let text = match fs::metadata(path) {
        Ok(about) if about.len() > FILE_BYTES_MAX => return Ok(None),
        Ok(_) => fs::read(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Entries::new())),
        Err(error) => return Err(failed(error)),
    };
    Ok(unseal(&text, key))
}

fn unseal(text: &[u8], key: &Key) -> Option<Entries> {
    let file: File = serde_json::from_slice(text).ok()?;
    if file.format != FORMAT {
        return None;
    }
    let nonce = BASE64_STANDARD.decode(file.nonce).ok()?;
    let nonce = Nonce::try_assume_unique_for_key(&nonce).ok()?;
    let mut sealed = BASE64_STANDARD.decode(file.sealed).ok()?;
    let plain = key
        .cipher()?
        .open_in_place(nonce, Aad::from(FORMAT), &mut sealed)
        .ok()?;
    let values: BTreeMap<String, Option<String>> = serde_json::from_slice(plain).ok()?;
    wipe(&mut sealed);
    Some(
        values
            .into_iter()
            .map(|(name, value)| (name, value.map(Secret::new)))
            .collect(),
    )
}

fn write(path: &Path, entries: &Entries, key: &Key) -> Result<(), SecretsError> {
    if entries.len() > ENTRIES_MAX {
        return Err(SecretsError::Full);
    }
    let sealed = seal(entries, key)
        .ok_or_else(|| io::Error::other("the values could not be encrypted"))
        .and_then(|bytes| atomic::write(path, &bytes));
    sealed.map_err(|error| files(path, &error))
}

fn seal(entries: &Entries, key: &Key) -> Option<Vec<u8>> {
    let values: serde_json::Map<String, Value> = entries
        .iter()
        .map(|(name, value)| {
            let value = value.as_ref().map(Secret::expose);
            (name.clone(), value.map_or(Value::Null, Value::from))
        })
        .collect();
    let mut bytes = serde_json::to_vec(&values).ok()?;
    for (_, value) in values {
        if let Value::String(value) = value {
            drop(Secret::new(value));
        }
    }
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).ok()?;
    key.cipher()?
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(FORMAT),
            &mut bytes,
        )
        .ok()?;
    serde_json::to_vec(&File {
        format: FORMAT.to_owned(),
        nonce: BASE64_STANDARD.encode(nonce),
        sealed: BASE64_STANDARD.encode(&bytes),
    })
    .ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    fn vaults(home: &Path) -> Vaults {
        Vaults::new(&Paths::under(home))
    }

    fn get(vaults: &Vaults, name: &str, key: Option<&Key>) -> Option<String> {
        let locked = "locked".to_owned();
        let found = vaults.get(name, key.ok_or(&locked)).unwrap();
        found.map(|secret| secret.expose().to_owned())
    }

    fn set(vaults: &Vaults, name: &str, value: &str, key: Option<&Key>) {
        vaults.change(name, Some(Secret::new(value)), key).unwrap();
    }

    #[test]
    fn nothing_on_disk_shows_a_value_or_a_name() {
        let home = tempfile::tempdir().unwrap();
        let vaults = vaults(home.path());
        set(&vaults, "the-name", "the-value", None);
        assert_eq!(get(&vaults, "the-name", None).as_deref(), Some("the-value"));
        let text = fs::read_to_string(&vaults.with_file).unwrap();
        assert!(
            !text.contains("the-name") && !text.contains("the-value"),
            "{text}"
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            for path in [&vaults.with_file, &vaults.key_file] {
                let mode = fs::metadata(path).unwrap().permissions().mode();
                assert_eq!(mode & 0o077, 0, "{}", path.display());
            }
        }
    }

    #[test]
    fn what_was_written_without_the_keyring_moves_over_when_it_opens() {
        let home = tempfile::tempdir().unwrap();
        let vaults = vaults(home.path());
        let key = Key::random().unwrap();
        set(&vaults, "old", "1", Some(&key));
        set(&vaults, "gone", "1", Some(&key));
        set(&vaults, "old", "2", None);
        set(&vaults, "new", "1", None);
        vaults.change("gone", None, None).unwrap();
        assert_eq!(vaults.names(Some(&key)).unwrap(), ["new", "old"]);
        assert_eq!(get(&vaults, "old", Some(&key)).as_deref(), Some("2"));
        assert!(!vaults.with_file.exists());
        assert_eq!(vaults.names(Some(&key)).unwrap(), ["new", "old"]);
        assert_eq!(get(&vaults, "gone", Some(&key)), None);
    }

    #[test]
    fn a_name_that_may_be_behind_the_keyring_is_not_said_to_be_absent() {
        let home = tempfile::tempdir().unwrap();
        let vaults = vaults(home.path());
        let locked = "it is locked".to_owned();
        assert!(vaults.get("a", Err(&locked)).unwrap().is_none());
        set(&vaults, "a", "1", Some(&Key::random().unwrap()));
        let error = vaults.get("a", Err(&locked)).unwrap_err();
        assert!(matches!(error, SecretsError::Locked { .. }), "{error}");
    }

    #[test]
    fn a_file_whose_key_is_gone_is_kept_beside_and_begun_anew() {
        let home = tempfile::tempdir().unwrap();
        let vaults = vaults(home.path());
        set(&vaults, "a", "1", Some(&Key::random().unwrap()));
        let key = Key::random().unwrap();
        assert_eq!(get(&vaults, "a", Some(&key)), None);
        set(&vaults, "b", "2", Some(&key));
        assert_eq!(get(&vaults, "b", Some(&key)).as_deref(), Some("2"));
        assert!(vaults.folder.join("keyring.json.damaged-1").exists());
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let key = Key::random().unwrap();
        let entries = Entries::from([("a".to_owned(), Some(Secret::new("1")))]);
        let sealed = seal(&entries, &key).unwrap();
        assert!(unseal(&sealed, &key).is_some());
        let mut file: File = serde_json::from_slice(&sealed).unwrap();
        let mut bytes = BASE64_STANDARD.decode(&file.sealed).unwrap();
        bytes[0] ^= 1;
        file.sealed = BASE64_STANDARD.encode(bytes);
        assert!(unseal(&serde_json::to_vec(&file).unwrap(), &key).is_none());
    }
}
