//! What the model asked us to remember: one JSON document per key, written whole or not at all,
//! under a lock that other bridges on the same folder respect.
//!
//! Knows nothing of guests, of connections or of what the values mean: a value is JSON text and
//! goes through unparsed, so that `2**70` and `0.1` come back as they were. Everything here blocks
//! for the time of a file write; async callers use a blocking task.

mod document;
pub(crate) mod file_name;
mod takeover;
mod transfer;

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::atomic::{self, Lock, LockError};
use crate::timestamp;
use document::Document;

pub use transfer::{ImportMode, ImportReport};

/// Longest key, in Unicode characters.
pub const KEY_CHARS_MAX: usize = 200;

/// Largest metadata of one key. It is a label, not a second value.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;

/// How long a write waits for another process. A write takes milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The name of the lock file; it also holds the [`Tally`].
const LOCK_NAME: &str = ".lock";

const ENDING: &str = "json";

/// The bounds of one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Largest value, in bytes of its JSON text.
    pub value_bytes_max: usize,
    /// Most keys.
    pub keys_max: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            value_bytes_max: 1024 * 1024,
            keys_max: 10_000,
        }
    }
}

/// A remembered value with all that is kept beside it.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The value's JSON text, as it was saved.
    pub value: Box<RawValue>,
    /// All but the value.
    #[serde(flatten)]
    pub info: Info,
}

/// What is kept beside a value.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// The key.
    pub key: String,
    /// What the code gave with the value.
    pub metadata: Option<Box<RawValue>>,
    /// When the key was first saved: ISO 8601, UTC, milliseconds.
    pub created_at: String,
    /// When it was last changed; as `created_at`.
    pub updated_at: String,
    /// Grows with every change, also across deletion: a version never names two values.
    pub version: u64,
    /// Who wrote it last: the client's name.
    pub writer: Option<String>,
    /// The named session that wrote it last, if it was not the client's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Size of the value's JSON text.
    pub value_bytes: usize,
}

/// A file that should hold a key and does not. It stays where it is until a new value is saved for
/// its key, and even then it is only renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Everything remembered.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Listing {
    /// Readable items, sorted by key.
    pub items: Vec<Info>,
    /// The others, sorted by path.
    pub damaged: Vec<Damaged>,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer<'a> {
    /// The client's name.
    pub client: &'a str,
    /// The named session, if it is not the client's own.
    pub session: Option<&'a str>,
}

impl<'a> From<&'a str> for Writer<'a> {
    fn from(client: &'a str) -> Self {
        Self {
            client,
            session: None,
        }
    }
}

/// What came of a compare-and-set.
#[derive(Clone, Debug)]
pub enum UpdateResult {
    /// The value is the new one.
    Saved(Info),
    /// Somebody was faster and nothing was written. The version now there; `None`: no such key.
    Conflict(Option<u64>),
}

/// Why memory could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The key is empty or too long.
    #[error("a memory key has 1 to {KEY_CHARS_MAX} characters, this one has {chars}")]
    Key {
        /// Its length.
        chars: usize,
    },
    /// The value is too large.
    #[error(
        "memory_full: the value of {key:?} is {bytes} bytes of JSON, at most {bytes_max} are kept per key; \
         split it over several keys or keep less of it"
    )]
    ValueTooLarge {
        /// The key.
        key: String,
        /// Its size.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// The metadata is too large.
    #[error(
        "memory_full: the metadata of {key:?} is {bytes} bytes of JSON, at most {METADATA_BYTES_MAX} are kept"
    )]
    MetadataTooLarge {
        /// The key.
        key: String,
        /// Its size.
        bytes: usize,
    },
    /// There is no room for another key.
    #[error(
        "memory_full: {keys_max} keys are kept, which is the limit, so {key:?} was not saved; \
         delete_memory() keys that are no longer needed, list_memories() names them"
    )]
    TooManyKeys {
        /// The key that was not saved.
        key: String,
        /// The bound.
        keys_max: usize,
    },
    /// The file of this key cannot be read as one of ours.
    #[error(
        "the memory of {key:?} is damaged: {reason}; its file `{}` is kept as it is, \
         saving the key again puts the file aside",
        path.display()
    )]
    Damaged {
        /// The key.
        key: String,
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What was to be brought back is there again.
    #[error("{key:?} is remembered again by now; what was forgotten was not brought back")]
    Exists {
        /// The key.
        key: String,
    },
    /// An import that is not an export.
    #[error("this is not an exported memory: {0}; nothing was imported")]
    Import(String),
    /// Another process holds the memory.
    #[error("memory is busy: {0}; try again")]
    Busy(#[source] LockError),
    /// The disk or its file system refused.
    #[error("cannot {operation} `{}`: {source}; what was there before is unchanged", path.display())]
    Io {
        /// What was being done.
        operation: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl MemoryError {
    /// The word that programs branch on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Key { .. } => "memory_key_invalid",
            Self::ValueTooLarge { .. }
            | Self::MetadataTooLarge { .. }
            | Self::TooManyKeys { .. } => "memory_full",
            Self::Damaged { .. } => "memory_damaged",
            Self::Exists { .. } => "memory_exists",
            Self::Import(_) => "memory_import_invalid",
            Self::Busy(_) => "memory_busy",
            Self::Io { .. } => "memory_io",
        }
    }
}

/// A folder of remembered values. Cheap to share behind an `Arc`; holds no open file.
#[derive(Debug)]
pub struct Memory {
    folder: PathBuf,
    limits: MemoryLimits,
    /// Files of the earlier bridge that could not be taken over.
    not_taken_over: Vec<Damaged>,
}

impl Memory {
    /// Open the memory in `folder`, which is created if absent, and take over what the earlier
    /// bridge kept in `legacy_folder` and this one has not seen yet.
    ///
    /// # Errors
    /// When the folder cannot be made or written to. A file that cannot be taken over is no error;
    /// it is listed as damaged.
    pub fn open(
        folder: &Path,
        legacy_folder: Option<&Path>,
        limits: MemoryLimits,
    ) -> Result<Self, MemoryError> {
        atomic::create_folder(folder).map_err(io_error("create", folder))?;
        let mut memory = Self {
            folder: folder.to_owned(),
            limits,
            not_taken_over: Vec::new(),
        };
        {
            let locked = memory.lock()?;
            atomic::remove_leftovers(folder, SystemTime::now())
                .map_err(io_error("tidy", folder))?;
            let tally = Tally {
                keys: Some(memory.count_keys()?),
                ..locked.tally
            };
            locked.record(tally)?;
        }
        if let Some(legacy) = legacy_folder {
            memory.not_taken_over = takeover::take_over(&memory, legacy)?;
        }
        Ok(memory)
    }

    /// Remember `value` under `key` in place of whatever was there, its metadata included. A
    /// damaged file of this key is put aside first.
    pub fn save<'a>(
        &self,
        key: &str,
        value: &RawValue,
        metadata: Option<&RawValue>,
        writer: impl Into<Writer<'a>>,
    ) -> Result<Info, MemoryError> {
        let writer = writer.into();
        self.check(key, value, metadata)?;
        let mut locked = self.lock()?;
        let old = match self.load(key) {
            Err(MemoryError::Damaged { path, .. }) => {
                locked.set_aside(&path)?;
                None
            }
            other => other?,
        };
        self.write(&mut locked, old.as_ref(), key, value, metadata, writer)
    }

    /// The record of `key`, if there is one.
    pub fn load(&self, key: &str) -> Result<Option<Record>, MemoryError> {
        check_key(key)?;
        let path = self.path_of(key);
        let text = match self.read(&path) {
            Ok(Ok(text)) => text,
            Ok(Err(reason)) => return Err(damaged(key, path, reason)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        match Document::parse(&text) {
            Ok(document) if document.key == key => Ok(Some(document.record())),
            Ok(document) => {
                let reason = format!("it holds the key {:?}", document.key);
                Err(damaged(key, path, reason))
            }
            Err(reason) => Err(damaged(key, path, reason)),
        }
    }

    /// Replace the value of `key` if it still is at `expected_version` (`None`: if there is no such
    /// key); metadata is kept. The caller computes the new value from what it loaded and, after a
    /// conflict, loads and computes again.
    pub fn update<'a>(
        &self,
        key: &str,
        value: &RawValue,
        expected_version: Option<u64>,
        writer: impl Into<Writer<'a>>,
    ) -> Result<UpdateResult, MemoryError> {
        let writer = writer.into();
        self.check(key, value, None)?;
        let mut locked = self.lock()?;
        let old = self.load(key)?;
        let version = old.as_ref().map(|record| record.info.version);
        if version != expected_version {
            return Ok(UpdateResult::Conflict(version));
        }
        let metadata = old
            .as_ref()
            .and_then(|record| record.info.metadata.as_deref());
        self.write(&mut locked, old.as_ref(), key, value, metadata, writer)
            .map(UpdateResult::Saved)
    }

    /// Forget `key`; tells whether there was anything. A damaged file is put aside, not removed.
    pub fn delete(&self, key: &str) -> Result<bool, MemoryError> {
        check_key(key)?;
        let mut locked = self.lock()?;
        match self.load(key) {
            Ok(None) => Ok(false),
            Ok(Some(record)) => {
                let path = self.path_of(key);
                locked.change_count(-1, record.info.version, || {
                    atomic::remove(&path).map_err(io_error("remove", &path))
                })
            }
            Err(MemoryError::Damaged { path, .. }) => locked.set_aside(&path).map(|()| true),
            Err(error) => Err(error),
        }
    }

    /// Bring back what was forgotten, as it was but for its version, which no value had before.
    ///
    /// # Errors
    /// [`MemoryError::Exists`] when its key is in use again.
    pub fn restore(&self, record: &Record) -> Result<Info, MemoryError> {
        let info = &record.info;
        self.check(&info.key, &record.value, info.metadata.as_deref())?;
        let mut locked = self.lock()?;
        if self.load(&info.key)?.is_some() {
            let key = info.key.clone();
            return Err(MemoryError::Exists { key });
        }
        let document = Document {
            key: info.key.as_str().into(),
            value: &record.value,
            metadata: info.metadata.as_deref(),
            created_at: info.created_at.as_str().into(),
            updated_at: info.updated_at.as_str().into(),
            version: locked.tally.version_floor + 1,
            writer: info.writer.as_deref().map(Into::into),
            session: info.session.as_deref().map(Into::into),
        };
        self.put(&mut locked, &document, true)?;
        Ok(document.info())
    }

    /// All keys without their values. Reads every file; a file that cannot be read as one of ours
    /// is listed as damaged and costs only itself.
    pub fn list(&self) -> Result<Listing, MemoryError> {
        let mut items = Vec::new();
        let damaged = self.visit(&mut |info, _| items.push(info))?;
        items.sort_by(|a: &Info, b| a.key.cmp(&b.key));
        Ok(Listing { items, damaged })
    }

    /// Show every readable item to `see`, in no order; gives the others, sorted by path.
    pub fn visit(&self, see: &mut dyn FnMut(Info, &RawValue)) -> Result<Vec<Damaged>, MemoryError> {
        let mut all_damaged = self.not_taken_over.clone();
        for path in self.paths()? {
            let text = match self.read(&path) {
                Ok(Ok(text)) => text,
                Ok(Err(reason)) => {
                    all_damaged.push(Damaged { path, reason });
                    continue;
                }
                // Deleted since the folder was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    all_damaged.push(Damaged {
                        path,
                        reason: error.to_string(),
                    });
                    continue;
                }
            };
            match Document::parse(&text) {
                Ok(document) if self.path_of(&document.key) == path => {
                    see(document.info(), document.value);
                }
                Ok(document) => {
                    let reason = format!(
                        "it holds the key {:?}, which belongs to another file",
                        document.key
                    );
                    all_damaged.push(Damaged { path, reason });
                }
                Err(reason) => all_damaged.push(Damaged { path, reason }),
            }
        }
        all_damaged.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all_damaged)
    }

    /// What is kept beside the value of `key`; `None`: no such key.
    pub fn info(&self, key: &str) -> Result<Option<Info>, MemoryError> {
        Ok(self.load(key)?.map(|record| record.info))
    }

    /// Write everything readable to `out` as one JSON document that [`Memory::import`] takes, item
    /// by item, and return what could not be included.
    pub fn export(&self, out: &mut dyn Write) -> Result<Vec<Damaged>, MemoryError> {
        transfer::export(self, out)
    }

    /// Take in an exported document. It is checked whole before anything is written; an item that
    /// meets its own key replaces it.
    pub fn import(
        &self,
        text: &str,
        mode: ImportMode,
        writer: &str,
    ) -> Result<ImportReport, MemoryError> {
        transfer::import(self, text, mode, writer)
    }

    /// The bounds in force.
    pub fn limits(&self) -> MemoryLimits {
        self.limits
    }

    /// The folder of the documents.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn write(
        &self,
        locked: &mut Locked<'_>,
        old: Option<&Record>,
        key: &str,
        value: &RawValue,
        metadata: Option<&RawValue>,
        writer: Writer<'_>,
    ) -> Result<Info, MemoryError> {
        let now = timestamp::now();
        let document = Document {
            key: key.into(),
            value,
            metadata,
            created_at: old
                .map_or_else(|| now.clone(), |old| old.info.created_at.clone())
                .into(),
            version: old.map_or(locked.tally.version_floor, |old| old.info.version) + 1,
            updated_at: now.into(),
            writer: Some(writer.client.into()),
            session: writer.session.map(Into::into),
        };
        self.put(locked, &document, old.is_none())?;
        Ok(document.info())
    }

    /// Write `document` to its file. `new`: no file of this key is there.
    fn put(
        &self,
        locked: &mut Locked<'_>,
        document: &Document<'_>,
        new: bool,
    ) -> Result<(), MemoryError> {
        let path = self.path_of(&document.key);
        let text = document.print().map_err(io_error("write", &path))?;
        let write = || atomic::write(&path, &text).map_err(io_error("write", &path));
        if !new {
            return write();
        }
        if locked.keys()? >= self.limits.keys_max {
            return Err(MemoryError::TooManyKeys {
                key: document.key.clone().into_owned(),
                keys_max: self.limits.keys_max,
            });
        }
        locked.change_count(1, 0, write)
    }

    fn check(
        &self,
        key: &str,
        value: &RawValue,
        metadata: Option<&RawValue>,
    ) -> Result<(), MemoryError> {
        check_key(key)?;
        let bytes = value.get().len();
        if bytes > self.limits.value_bytes_max {
            let bytes_max = self.limits.value_bytes_max;
            return Err(MemoryError::ValueTooLarge {
                key: key.to_owned(),
                bytes,
                bytes_max,
            });
        }
        let bytes = metadata.map_or(0, |metadata| metadata.get().len());
        if bytes > METADATA_BYTES_MAX {
            return Err(MemoryError::MetadataTooLarge {
                key: key.to_owned(),
                bytes,
            });
        }
        Ok(())
    }

    /// The text of one file; the inner error says why it is none of ours.
    fn read(&self, path: &Path) -> io::Result<Result<String, String>> {
        // A limit that was larger when the file was written must not make the file unreadable.
        let bytes_max = (self.limits.value_bytes_max + METADATA_BYTES_MAX).max(16 << 20) as u64 * 2;
        let mut bytes = Vec::new();
        fs::File::open(path)?
            .take(bytes_max + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Ok(Err(format!("it is larger than {bytes_max} bytes")));
        }
        Ok(String::from_utf8(bytes)
            .map_err(|error| format!("it is not UTF-8: {}", error.utf8_error())))
    }

    fn path_of(&self, key: &str) -> PathBuf {
        self.folder
            .join(format!("{}.{ENDING}", file_name::encode(key)))
    }

    /// Files that hold keys, in no order.
    fn paths(&self) -> Result<Vec<PathBuf>, MemoryError> {
        let failed = io_error("list", &self.folder);
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(&failed)? {
            let path = entry.map_err(&failed)?.path();
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.extension().is_some_and(|ending| ending == ENDING) {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    fn count_keys(&self) -> Result<usize, MemoryError> {
        self.paths().map(|paths| paths.len())
    }

    fn lock(&self) -> Result<Locked<'_>, MemoryError> {
        let path = self.folder.join(LOCK_NAME);
        let lock = Lock::take(&path, LOCK_WAIT).map_err(|error| match error {
            LockError::Busy { .. } => MemoryError::Busy(error),
            LockError::Io { path, source } => MemoryError::Io {
                operation: "lock",
                path,
                source,
            },
        })?;
        let mut locked = Locked {
            memory: self,
            lock,
            tally: Tally::default(),
        };
        locked.tally = locked.read_tally()?;
        Ok(locked)
    }
}

/// What all writers share, kept in the lock file and touched only under the lock. It spares a scan
/// of the folder for each new key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// How many keys there are; `None` while one is being added or removed, so that a writer killed
    /// in between leaves a mark and the next one counts.
    keys: Option<usize>,
    /// The highest version that was deleted. New keys begin above it: a key that was deleted and
    /// saved again must not pass a compare-and-set of somebody who read the deleted one.
    version_floor: u64,
}

impl Tally {
    fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace();
        Self {
            keys: words.next().and_then(|word| word.parse().ok()),
            version_floor: words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
        }
    }

    fn print(self) -> String {
        let keys = self
            .keys
            .map_or_else(|| "?".to_owned(), |keys| keys.to_string());
        format!("{keys} {}\n", self.version_floor)
    }
}

/// The memory while this process alone may write to it.
struct Locked<'a> {
    memory: &'a Memory,
    lock: Lock,
    tally: Tally,
}

impl Locked<'_> {
    /// Do `change`, which adds or removes one file, with the tally marked meanwhile.
    fn change_count<T>(
        &mut self,
        by: isize,
        deleted_version: u64,
        change: impl FnOnce() -> Result<T, MemoryError>,
    ) -> Result<T, MemoryError> {
        let version_floor = self.tally.version_floor.max(deleted_version);
        let keys = self.keys()?.checked_add_signed(by);
        self.record(Tally {
            keys: None,
            version_floor,
        })?;
        self.tally = Tally {
            keys: None,
            version_floor,
        };
        let done = change()?;
        self.tally.keys = keys;
        // The change is done; if the count cannot be written, the mark stays and the next writer
        // counts.
        let _ = self.record(self.tally);
        Ok(done)
    }

    fn keys(&self) -> Result<usize, MemoryError> {
        self.tally.keys.map_or_else(|| self.memory.count_keys(), Ok)
    }

    fn set_aside(&mut self, path: &Path) -> Result<(), MemoryError> {
        self.change_count(-1, 0, || {
            atomic::set_aside(path).map_err(io_error("put aside", path))
        })?;
        Ok(())
    }

    fn read_tally(&self) -> Result<Tally, MemoryError> {
        let mut text = String::new();
        let mut file = self.lock.file().take(64);
        match file.read_to_string(&mut text) {
            Ok(_) => Ok(Tally::parse(&text)),
            // Not text, so not ours: count anew.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Tally::default()),
            Err(error) => Err(io_error("read", &self.memory.folder.join(LOCK_NAME))(error)),
        }
    }

    fn record(&self, tally: Tally) -> Result<(), MemoryError> {
        let mut file = self.lock.file();
        let text = tally.print();
        // Not flushed: after a power cut `open` counts anyway.
        file.rewind()
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.set_len(text.len() as u64))
            .map_err(io_error("write", &self.memory.folder.join(LOCK_NAME)))
    }
}

fn check_key(key: &str) -> Result<(), MemoryError> {
    let chars = key.chars().count();
    if (1..=KEY_CHARS_MAX).contains(&chars) {
        Ok(())
    } else {
        Err(MemoryError::Key { chars })
    }
}

fn damaged(key: &str, path: PathBuf, reason: String) -> MemoryError {
    MemoryError::Damaged {
        key: key.to_owned(),
        path,
        reason,
    }
}

fn io_error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> MemoryError {
    let path = path.to_owned();
    move |source| MemoryError::Io {
        operation,
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]
    use super::*;

    /// As a kill between the file and the count does it, which no test can time.
    #[test]
    fn a_change_that_does_not_return_leaves_a_mark_and_the_next_writer_counts() {
        let home = tempfile::tempdir().unwrap();
        let memory = Memory::open(home.path(), None, MemoryLimits::default()).unwrap();
        memory.save("a", RawValue::NULL, None, "test").unwrap();
        let broken_off = memory
            .lock()
            .unwrap()
            .change_count(1, 0, || -> Result<(), _> {
                fs::write(home.path().join("b.json"), "").unwrap();
                Err(MemoryError::Import("broken off".to_owned()))
            });
        assert!(broken_off.is_err());
        let locked = memory.lock().unwrap();
        assert_eq!(locked.tally.keys, None);
        assert_eq!(locked.keys().unwrap(), 2);
    }
}
