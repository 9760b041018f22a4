//! Functions that the model keeps for later sessions: one JSON document per name, so that source
//! and description can never belong to different versions.
//!
//! Knows nothing of Python: whether a source compiles is the guest's to say, before it is saved and
//! again when it is loaded.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::atomic::{self, Lock, LockError};
use crate::memory::file_name;
use crate::timestamp;

/// Longest name, in characters.
pub const NAME_CHARS_MAX: usize = 100;

/// Largest source. All of them travel to the guest with each new interpreter.
pub const SOURCE_BYTES_MAX: usize = 256 * 1024;

/// Longest description.
pub const DESCRIPTION_BYTES_MAX: usize = 4 * 1024;

/// Most saved tools; with their sources they bound what a new interpreter is sent.
pub const TOOLS_MAX: usize = 200;

const LOCK_WAIT: Duration = Duration::from_secs(5);
const ENDING: &str = "json";

/// A saved function.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SavedTool {
    /// The function's name.
    pub name: String,
    /// What it does: the first paragraph of its docstring.
    pub description: String,
    /// Its Python source.
    pub source: String,
    /// The client that saved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// When a tool of this name was first saved: ISO 8601, UTC, milliseconds.
    pub created_at: String,
    /// When it was last replaced.
    pub updated_at: String,
}

/// What the guest hands over to be kept.
#[derive(Clone, Debug, Deserialize)]
pub struct NewTool {
    /// The function's name.
    pub name: String,
    /// Its Python source.
    pub source: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
}

/// A file among the saved tools that is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokenTool {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// All saved tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedToolList {
    /// Readable ones, sorted by name.
    pub tools: Vec<SavedTool>,
    /// The others, to be reported and not swallowed.
    pub broken: Vec<BrokenTool>,
}

/// Why a tool could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum SavedToolsError {
    /// The name is no name of a function.
    #[error(
        "{name:?} is not a name that a saved tool can have: 1 to {NAME_CHARS_MAX} letters, digits and `_`, no digit first"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// The source or the description is too long.
    #[error("the {what} of {name:?} is {bytes} bytes, at most {bytes_max} are kept")]
    TooLarge {
        /// The tool.
        name: String,
        /// `source` or `description`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// There is no room for another.
    #[error(
        "{TOOLS_MAX} tools are saved, which is the limit, so {name:?} was not; delete_saved_tool() one that is no longer needed"
    )]
    TooMany {
        /// The tool that was not saved.
        name: String,
    },
    /// Another process holds the folder.
    #[error("the saved tools are busy: {0}; try again")]
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

/// A folder of saved tools.
#[derive(Debug)]
pub struct SavedTools {
    folder: PathBuf,
}

impl SavedTools {
    /// Open the saved tools in `folder`, which is created if absent.
    pub fn open(folder: &Path) -> Result<Self, SavedToolsError> {
        atomic::create_folder(folder).map_err(io_error("create", folder))?;
        let saved = Self {
            folder: folder.to_owned(),
        };
        let _lock = saved.lock()?;
        atomic::remove_leftovers(folder, SystemTime::now()).map_err(io_error("tidy", folder))?;
        Ok(saved)
    }

    /// Keep a tool in place of one of the same name.
    pub fn save(&self, new: NewTool) -> Result<SavedTool, SavedToolsError> {
        self.save_by(new, None)
    }

    /// The same, for a client.
    pub fn save_by(
        &self,
        new: NewTool,
        client: Option<&str>,
    ) -> Result<SavedTool, SavedToolsError> {
        check(&new)?;
        let path = self.path_of(&new.name);
        let _lock = self.lock()?;
        let now = timestamp::now();
        let created_at = match read(&path) {
            Ok(Ok(old)) => old.created_at,
            // Broken: its text may be all that is left of somebody's work.
            Ok(Err(_)) => {
                atomic::set_aside(&path).map_err(io_error("put aside", &path))?;
                now.clone()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.paths()?.len() >= TOOLS_MAX {
                    return Err(SavedToolsError::TooMany { name: new.name });
                }
                now.clone()
            }
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        let tool = SavedTool {
            name: new.name,
            description: new.description,
            source: new.source,
            client: client.map(str::to_owned),
            created_at,
            updated_at: now,
        };
        self.write(&tool)?;
        Ok(tool)
    }

    /// Bring back a tool that was deleted, unless one of its name was saved since.
    pub fn restore(&self, tool: &SavedTool) -> Result<(), SavedToolsError> {
        let _lock = self.lock()?;
        if self.path_of(&tool.name).exists() {
            return Ok(());
        }
        self.write(tool)
    }

    fn write(&self, tool: &SavedTool) -> Result<(), SavedToolsError> {
        let path = self.path_of(&tool.name);
        let text = serde_json::to_vec_pretty(tool)
            .map_err(|error| io_error("write", &path)(error.into()))?;
        atomic::write(&path, &text).map_err(io_error("write", &path))
    }

    /// Every saved tool with its source.
    pub fn load_all(&self) -> Result<SavedToolList, SavedToolsError> {
        let mut list = SavedToolList::default();
        for path in self.paths()? {
            match read(&path) {
                Ok(Ok(tool)) if self.path_of(&tool.name) == path => list.tools.push(tool),
                Ok(Ok(tool)) => {
                    let reason = format!(
                        "it holds the tool {:?}, which belongs to another file",
                        tool.name
                    );
                    list.broken.push(BrokenTool { path, reason });
                }
                Ok(Err(reason)) => list.broken.push(BrokenTool { path, reason }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => list.broken.push(BrokenTool {
                    path,
                    reason: error.to_string(),
                }),
            }
        }
        list.tools.sort_by(|a, b| a.name.cmp(&b.name));
        list.broken.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(list)
    }

    /// Delete the tool `name`; tells whether there was one.
    pub fn delete(&self, name: &str) -> Result<bool, SavedToolsError> {
        check_name(name)?;
        let path = self.path_of(name);
        let _lock = self.lock()?;
        atomic::remove(&path).map_err(io_error("remove", &path))
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.folder
            .join(format!("{}.{ENDING}", file_name::encode(name)))
    }

    fn paths(&self) -> Result<Vec<PathBuf>, SavedToolsError> {
        let failed = io_error("list", &self.folder);
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(&failed)? {
            let path = entry.map_err(&failed)?.path();
            if path.extension().is_some_and(|ending| ending == ENDING) {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    fn lock(&self) -> Result<Lock, SavedToolsError> {
        Lock::take(&self.folder.join(".lock"), LOCK_WAIT).map_err(|error| match error {
            LockError::Busy { .. } => SavedToolsError::Busy(error),
            LockError::Io { path, source } => SavedToolsError::Io {
                operation: "lock",
                path,
                source,
            },
        })
    }
}

/// The tool in one file; the inner error says why there is none.
fn read(path: &Path) -> io::Result<Result<SavedTool, String>> {
    // JSON needs at most six bytes for one.
    let bytes_max = 6 * (SOURCE_BYTES_MAX + DESCRIPTION_BYTES_MAX) as u64 + 4096;
    let mut text = Vec::new();
    fs::File::open(path)?
        .take(bytes_max + 1)
        .read_to_end(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Ok(Err(format!("it is larger than {bytes_max} bytes")));
    }
    Ok(serde_json::from_slice(&text).map_err(|error| format!("it is not a saved tool: {error}")))
}

fn check(new: &NewTool) -> Result<(), SavedToolsError> {
    check_name(&new.name)?;
    let sizes = [
        ("source", new.source.len(), SOURCE_BYTES_MAX),
        ("description", new.description.len(), DESCRIPTION_BYTES_MAX),
    ];
    for (what, bytes, bytes_max) in sizes {
        if bytes > bytes_max {
            return Err(SavedToolsError::TooLarge {
                name: new.name.clone(),
                what,
                bytes,
                bytes_max,
            });
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), SavedToolsError> {
    let mut chars = name.chars();
    let first = chars
        .next()
        .is_some_and(|first| first == '_' || first.is_alphabetic());
    let rest = chars.all(|next| next == '_' || next.is_alphanumeric());
    if first && rest && name.chars().count() <= NAME_CHARS_MAX {
        Ok(())
    } else {
        Err(SavedToolsError::Name {
            name: name.chars().take(2 * NAME_CHARS_MAX).collect(),
        })
    }
}

fn io_error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> SavedToolsError {
    let path = path.to_owned();
    move |source| SavedToolsError::Io {
        operation,
        path: path.clone(),
        source,
    }
}
