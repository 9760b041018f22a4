//! The settings file as text: read, one value changed at a time, written back safely.
//!
//! Comments, order and keys that this version does not know survive a change. What the keys mean is not
//! known here.

use std::io::Write;
use std::path::{Path, PathBuf};

use jsonc_parser::cst::CstRootNode;
use sha2::{Digest, Sha256};

use super::migrate::{VERSION, input, migrate};
use crate::clients::parse::{Document, Format, Kind, Unreadable};

/// Why the file was not written.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Someone else wrote it in the meantime; read it again and repeat the change.
    #[error("{} was changed by another program since it was read; try again", .0.display())]
    Changed(PathBuf),
    /// A newer Runbridge wrote it, and an older one must not lose what it does not know.
    #[error("{} was written by a newer Runbridge (version {version}, this one knows {VERSION}); update to change settings", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u64,
    },
    /// It does not parse, so nothing in it can be changed without losing the rest.
    #[error("{} cannot be read: {message}; correct it first", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The path leads through a value that is not an object.
    #[error("`{0}` is not an object in the settings file")]
    NotAnObject(String),
    /// The disk refused.
    #[error("{} cannot be written: {error}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// The file as it was read.
#[derive(Debug)]
pub struct SettingsFile {
    path: PathBuf,
    /// `None`: there was no file.
    hash: Option<[u8; 32]>,
    /// The text, brought up to date, or why there is none.
    text: Result<String, SettingsRefusal>,
}

#[derive(Debug)]
enum SettingsRefusal {
    Newer(u64),
    Broken(String),
}

impl SettingsFile {
    /// Reads the file; the document is for reading values, and the problem says why it cannot be used fully.
    pub(super) fn read(path: &Path) -> (Self, Option<Document>, Option<Unreadable>) {
        let hash = hash(path);
        let file = |text| Self {
            path: path.to_owned(),
            hash,
            text,
        };
        match Document::read(path, Format::Json) {
            None => (file(Ok(String::new())), None, None),
            Some(Err(problem)) => (
                file(Err(SettingsRefusal::Broken(problem.message.clone()))),
                None,
                Some(problem),
            ),
            Some(Ok(document)) => match version(&document) {
                Ok(version) if version > VERSION => {
                    let problem = Unreadable {
                        position: document
                            .root
                            .get("version")
                            .and_then(|value| document.position(value.at)),
                        message: format!(
                            "a newer Runbridge wrote these settings (version {version}, this one knows {VERSION}); what it knows is used and nothing is written"
                        ),
                    };
                    (
                        file(Err(SettingsRefusal::Newer(version))),
                        Some(document),
                        Some(problem),
                    )
                }
                Ok(version) if version == VERSION => {
                    (file(Ok(document.source().to_owned())), Some(document), None)
                }
                Ok(version) => match brought_up_to_date(document.source(), version) {
                    Some(text) => {
                        let document = Document::parse(text.clone(), Format::Json).ok();
                        (file(Ok(text)), document, None)
                    }
                    None => (file(Ok(document.source().to_owned())), Some(document), None),
                },
                Err(problem) => (
                    file(Err(SettingsRefusal::Broken(problem.message.clone()))),
                    None,
                    Some(problem),
                ),
            },
        }
    }

    /// Opens the file to change it.
    pub fn open(path: &Path) -> Self {
        Self::read(path).0
    }

    /// Gives the key at `keys` a value, or removes it, and writes the file.
    ///
    /// The old text is kept beside it as `settings.json.bak`. On an error the file is as it was.
    pub fn set(
        &mut self,
        keys: &[&str],
        value: Option<&serde_json::Value>,
    ) -> Result<(), SettingsError> {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        self.set_all(&[(keys, value.cloned())])
    }

    /// The same for several keys, all of them or none.
    pub fn set_all(
        &mut self,
        changes: &[(Vec<String>, Option<serde_json::Value>)],
    ) -> Result<(), SettingsError> {
        let path = self.path.clone();
        let text = match &self.text {
            Ok(text) => text,
            Err(SettingsRefusal::Newer(version)) => {
                return Err(SettingsError::Newer {
                    path,
                    version: *version,
                });
            }
            Err(SettingsRefusal::Broken(message)) => {
                return Err(SettingsError::Broken {
                    path,
                    message: message.clone(),
                });
            }
        };
        let mut text = text.clone();
        for (keys, value) in changes {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            text = changed(&text, &keys, value.as_ref()).map_err(|refused| match refused {
                Ok(key) => SettingsError::NotAnObject(key),
                Err(message) => SettingsError::Broken {
                    path: path.clone(),
                    message,
                },
            })?;
        }
        if hash(&path) != self.hash {
            return Err(SettingsError::Changed(path));
        }
        replace(&path, text.as_bytes()).map_err(|error| SettingsError::Disk {
            path: path.clone(),
            error,
        })?;
        self.hash = Some(Sha256::digest(text.as_bytes()).into());
        self.text = Ok(text);
        Ok(())
    }
}

/// The version that a document says it has; none is 0.
fn version(document: &Document) -> Result<u64, Unreadable> {
    let Some(value) = document.root.get("version") else {
        return Ok(0);
    };
    match &value.kind {
        Kind::Number(number) => number.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| Unreadable {
        position: document.position(value.at),
        message: "`version` must be a whole number".to_owned(),
    })
}

fn hash(path: &Path) -> Option<[u8; 32]> {
    std::fs::read(path)
        .ok()
        .map(|bytes| Sha256::digest(bytes).into())
}

fn brought_up_to_date(text: &str, version: u64) -> Option<String> {
    let root = CstRootNode::parse(text, &jsonc_parser::ParseOptions::default()).ok()?;
    migrate(&root.object_value()?, version);
    Some(root.to_string())
}

/// `Err(Ok(key))` when `key` is in the way, `Err(Err(..))` when the text does not parse.
fn changed(
    text: &str,
    keys: &[&str],
    value: Option<&serde_json::Value>,
) -> Result<String, Result<String, String>> {
    let root = CstRootNode::parse(text, &jsonc_parser::ParseOptions::default())
        .map_err(|error| Err(error.to_string()))?;
    let mut object = root
        .object_value_or_create()
        .ok_or_else(|| Err("it does not hold an object".to_owned()))?;
    if object.get("version").is_none() {
        object.insert(0, "version", VERSION.into());
    }
    let Some((last, parents)) = keys.split_last() else {
        return Ok(root.to_string());
    };
    for parent in parents {
        if value.is_none() && object.get(parent).is_none() {
            return Ok(root.to_string());
        }
        object = object
            .object_value_or_create(parent)
            .ok_or_else(|| Ok((*parent).to_owned()))?;
    }
    match (object.get(last), value) {
        (Some(member), Some(value)) => member.set_value(input(value)),
        (None, Some(value)) => {
            object.append(last, input(value));
        }
        (Some(member), None) => member.remove(),
        (None, None) => {}
    }
    let mut text = root.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Puts `bytes` in the place of the file: at every moment there is the whole old or the whole new one.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // A link stays a link: dotfile keepers link this file into their repository.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target
        .parent()
        .ok_or_else(|| std::io::Error::other("it has no folder"))?;
    std::fs::create_dir_all(folder)?;
    if target.exists() {
        std::fs::copy(&target, path.with_extension("json.bak"))?;
    }
    let mut temporary = tempfile::Builder::new()
        .prefix(".settings-")
        .suffix(".tmp")
        .tempfile_in(folder)?;
    temporary.write_all(bytes)?;
    if let Ok(metadata) = std::fs::metadata(&target) {
        temporary
            .as_file()
            .set_permissions(metadata.permissions())?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(&target)?;
    #[cfg(unix)]
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}
