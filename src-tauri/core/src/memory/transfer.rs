//! All of a memory as one JSON document, out and in.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::document::Document;
use super::{Damaged, Memory, MemoryError, Record};
use crate::timestamp;

const FORMAT: &str = "runbridge-memory";
const FORMAT_VERSION: u32 = 1;

/// What becomes of keys that the imported document does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportMode {
    /// They stay, and so do the values of keys that it has and that were there before.
    Keep,
    /// They stay.
    Merge,
    /// They are deleted.
    Replace,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Keys that were new.
    pub added: usize,
    /// Keys that were there before.
    pub replaced: usize,
    /// Keys that were there before and stayed as they were; only [`ImportMode::Keep`] keeps any.
    pub kept: usize,
    /// Keys that the document does not have; only [`ImportMode::Replace`] removes any.
    pub removed: usize,
}

#[derive(Deserialize)]
struct Export<'a> {
    format: Cow<'a, str>,
    format_version: u32,
    #[serde(borrow)]
    items: Vec<Item<'a>>,
}

#[derive(Deserialize, Serialize)]
struct Item<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    created_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    updated_at: Option<Cow<'a, str>>,
}

pub(super) fn export(memory: &Memory, out: &mut dyn Write) -> Result<Vec<Damaged>, MemoryError> {
    let listing = memory.list()?;
    let mut damaged = listing.damaged;
    let failed = |source: io::Error| MemoryError::Io {
        operation: "export",
        path: memory.folder.clone(),
        source,
    };
    write!(out, "{{\n\"format\": \"{FORMAT}\",\n\"format_version\": {FORMAT_VERSION},\n\"exported_at\": \"{}\",\n\"items\": [", timestamp::now())
        .map_err(failed)?;
    let mut first = true;
    for info in listing.items {
        let record = match memory.load(&info.key) {
            Ok(Some(record)) => record,
            // Deleted since it was listed.
            Ok(None) => continue,
            Err(MemoryError::Damaged { path, reason, .. }) => {
                damaged.push(Damaged { path, reason });
                continue;
            }
            Err(error) => return Err(error),
        };
        out.write_all(if first { b"\n" } else { b",\n" })
            .map_err(failed)?;
        first = false;
        serde_json::to_writer(&mut *out, &item_of(&record))
            .map_err(|error| failed(error.into()))?;
    }
    out.write_all(b"\n]\n}\n").map_err(failed)?;
    Ok(damaged)
}

pub(super) fn import(
    memory: &Memory,
    text: &str,
    mode: ImportMode,
    writer: &str,
) -> Result<ImportReport, MemoryError> {
    let export: Export<'_> =
        serde_json::from_str(text).map_err(|error| MemoryError::Import(error.to_string()))?;
    if export.format != FORMAT || export.format_version != FORMAT_VERSION {
        return Err(MemoryError::Import(format!(
            "it says format {:?} version {}, expected {FORMAT:?} version {FORMAT_VERSION}",
            export.format, export.format_version
        )));
    }
    let mut keys = BTreeSet::new();
    for item in &export.items {
        memory.check(&item.key, item.value, item.metadata)?;
        if !keys.insert(&*item.key) {
            return Err(MemoryError::Import(format!(
                "the key {:?} is there twice",
                item.key
            )));
        }
    }
    let present: BTreeSet<String> = memory
        .list()?
        .items
        .into_iter()
        .map(|info| info.key)
        .collect();
    let kept = match mode {
        ImportMode::Keep | ImportMode::Merge => present
            .iter()
            .filter(|key| !keys.contains(key.as_str()))
            .count(),
        ImportMode::Replace => 0,
    };
    if kept + keys.len() > memory.limits.keys_max {
        return Err(MemoryError::Import(format!(
            "{} keys would be kept, the limit is {}",
            kept + keys.len(),
            memory.limits.keys_max
        )));
    }
    let mut report = ImportReport::default();
    if mode == ImportMode::Replace {
        for key in present.iter().filter(|key| !keys.contains(key.as_str())) {
            report.removed += usize::from(memory.delete(key)?);
        }
    }
    for item in &export.items {
        if mode == ImportMode::Keep && present.contains(&*item.key) {
            report.kept += 1;
        } else if put(memory, item, writer)? {
            report.added += 1;
        } else {
            report.replaced += 1;
        }
    }
    Ok(report)
}

/// Write one item over whatever its key holds; tells whether the key is new.
fn put(memory: &Memory, item: &Item<'_>, writer: &str) -> Result<bool, MemoryError> {
    let mut locked = memory.lock()?;
    let old = match memory.load(&item.key) {
        Err(MemoryError::Damaged { path, .. }) => {
            locked.set_aside(&path)?;
            None
        }
        other => other?,
    };
    let now = timestamp::now();
    let time = |given: &Option<Cow<'_, str>>| {
        given
            .as_ref()
            .and_then(|text| timestamp::adopt(&text.as_ref().into()))
            .unwrap_or_else(|| now.clone())
    };
    let document = Document {
        key: item.key.clone(),
        value: item.value,
        metadata: item.metadata,
        created_at: time(&item.created_at).into(),
        updated_at: time(&item.updated_at).into(),
        version: old
            .as_ref()
            .map_or(locked.tally.version_floor, |old| old.info.version)
            + 1,
        writer: Some(writer.into()),
        session: None,
    };
    memory.put(&mut locked, &document, old.is_none())?;
    Ok(old.is_none())
}

fn item_of(record: &Record) -> Item<'_> {
    Item {
        key: Cow::Borrowed(&record.info.key),
        value: &record.value,
        metadata: record.info.metadata.as_deref(),
        created_at: Some(Cow::Borrowed(&record.info.created_at)),
        updated_at: Some(Cow::Borrowed(&record.info.updated_at)),
    }
}
