//! What the build of the built-in Python wrote beside it, as far as packages go.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use crate::paths::Environment;

/// The list has some kilobytes.
const BYTES_MAX: u64 = 1 << 20;

/// See the module.
#[derive(Default, Deserialize)]
pub(super) struct Shipped {
    /// The index that this Python's own installer would ask.
    pub(super) index: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    name: String,
    version: String,
    /// It is a package for Python, and can be imported.
    #[serde(default)]
    package: bool,
}

impl Shipped {
    /// Of the first Python that is there; nothing, if none is. Blocks for a small file.
    pub(super) fn of(environment: &Environment) -> Self {
        let folders = environment.python_folders();
        let mut found = folders.iter().filter_map(|folder| {
            let path = folder.join("inventory.json");
            let about = fs::metadata(&path).ok()?;
            let text = fs::read(path).ok().filter(|_| about.len() <= BYTES_MAX)?;
            serde_json::from_slice(&text).ok()
        });
        found.next().unwrap_or_default()
    }

    /// Packages that come with it, by name and version.
    pub(super) fn packages(self) -> BTreeMap<String, String> {
        let packages = self.parts.into_iter().filter(|part| part.package);
        packages.map(|part| (part.name, part.version)).collect()
    }
}
