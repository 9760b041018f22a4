//! Records of the earlier bridge, taken over once each. Their files are never changed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::document::Document;
use super::{Damaged, Memory, MemoryError, io_error};
use crate::atomic::{self, Lock};
use crate::timestamp;

/// Names of the earlier bridge's files that were taken over, as a JSON list. A key that was deleted
/// since must not come back with the next start.
const SEEN_NAME: &str = ".taken-over";

/// Held while taking over, beside the short locks of the single writes.
const LOCK_NAME: &str = ".taken-over.lock";

/// More files than this are not ours to look at in one start.
const FILES_MAX: usize = 20_000;

#[derive(Deserialize)]
struct LegacyRecord<'a> {
    key: String,
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(default)]
    created_at: Value,
    #[serde(default)]
    updated_at: Value,
}

/// Take over every record in `legacy` that was not taken over before and whose key is not in use;
/// returns the files that could not be. Those are tried again at the next start.
pub(super) fn take_over(memory: &Memory, legacy: &Path) -> Result<Vec<Damaged>, MemoryError> {
    let names = match json_names(legacy) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Ok(vec![Damaged {
                path: legacy.to_owned(),
                reason: error.to_string(),
            }]);
        }
    };
    // Another bridge that starts at this moment does the same work.
    let Ok(_lock) = Lock::take(&memory.folder.join(LOCK_NAME), Duration::ZERO) else {
        return Ok(Vec::new());
    };
    let seen_path = memory.folder.join(SEEN_NAME);
    let mut seen: BTreeSet<String> = fs::read(&seen_path)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let mut damaged = Vec::new();
    let mut news = false;
    for name in names {
        if seen.contains(&name) {
            continue;
        }
        let path = legacy.join(&name);
        match take_over_one(memory, &path) {
            Ok(()) => {
                seen.insert(name);
                news = true;
            }
            Err(reason) => damaged.push(Damaged { path, reason }),
        }
    }
    if news {
        let text = serde_json::to_vec_pretty(&seen)
            .map_err(|error| io_error("write", &seen_path)(error.into()))?;
        atomic::write(&seen_path, &text).map_err(io_error("write", &seen_path))?;
    }
    Ok(damaged)
}

fn take_over_one(memory: &Memory, path: &Path) -> Result<(), String> {
    let bytes_max = 2 * (memory.limits.value_bytes_max + super::METADATA_BYTES_MAX) as u64;
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(bytes_max + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > bytes_max {
        return Err(format!("it is larger than {bytes_max} bytes"));
    }
    let record: LegacyRecord<'_> = serde_json::from_str(&text)
        .map_err(|error| format!("it is not a record of the earlier bridge: {error}"))?;
    let metadata = record.metadata;
    memory
        .check(&record.key, record.value, metadata)
        .map_err(|error| error.to_string())?;
    let mut locked = memory.lock().map_err(|error| error.to_string())?;
    // A key that is in use here, readable or not, is the newer one.
    if !matches!(memory.load(&record.key), Ok(None)) {
        return Ok(());
    }
    let updated_at = timestamp::adopt(&record.updated_at).unwrap_or_else(timestamp::now);
    let document = Document {
        created_at: timestamp::adopt(&record.created_at)
            .unwrap_or_else(|| updated_at.clone())
            .into(),
        updated_at: updated_at.into(),
        version: locked.tally.version_floor + 1,
        key: record.key.into(),
        value: record.value,
        metadata,
        writer: None,
        session: None,
    };
    memory
        .put(&mut locked, &document, true)
        .map_err(|error| error.to_string())
}

fn json_names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)?.take(FILES_MAX) {
        if let Ok(name) = entry?.file_name().into_string()
            && !name.starts_with('.')
            && Path::new(&name)
                .extension()
                .is_some_and(|ending| ending == "json")
        {
            names.insert(name);
        }
    }
    Ok(names)
}
