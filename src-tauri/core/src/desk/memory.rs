//! What models asked us to remember, and the tools they saved.

use std::collections::HashMap;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::forgotten::Undo;
use super::{Answer, Desk, Inner, OWN_CLIENT, blocking, errors, lock, save_file};
use crate::api::{
    ApiError, Change, ErrorCode, Forgotten, ImportMode, ImportReport, MemoryInfo, MemoryItem,
    MemoryOrder, MemoryPage, MemoryTotals, SavedTool,
};
use crate::memory::{self, Damaged, Info, Memory, MemoryError, UpdateResult};
use crate::saved_tools;
use crate::timestamp;

/// Items that one page may have.
const PAGE_MAX: u32 = 500;

/// Characters of a value that a list shows.
const PREVIEW_CHARS: usize = 160;

/// The longest export that is read back: the bound of all values is far below it in practice.
const IMPORT_BYTES_MAX: u64 = 512 << 20;

impl Desk {
    /// Some memory items whose key or value contains a text.
    pub async fn read_memory(
        &self,
        text: String,
        order: MemoryOrder,
        offset: u64,
        limit: u32,
    ) -> Answer<MemoryPage> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let used = inner.bridge.activity().memory_uses();
            let wanted = text.to_lowercase();
            let mut items = Vec::new();
            let damaged = inner.memory()?.visit(&mut |info: Info, value: &RawValue| {
                let found = wanted.is_empty()
                    || info.key.to_lowercase().contains(&wanted)
                    || value.get().to_lowercase().contains(&wanted);
                if found {
                    items.push(info_of(&info, value.get(), &used));
                }
            })?;
            let damaged = damaged.iter().map(damaged_info);
            items.extend(damaged.filter(|info| info.key.to_lowercase().contains(&wanted)));
            sort(&mut items, order);
            let total = items.len() as u64;
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let page = items.into_iter().skip(start);
            let redactor = inner.bridge.redactor();
            let items = page.take(limit.min(PAGE_MAX) as usize).map(|mut info| {
                info.preview = redactor.text(&info.preview).into_owned();
                info
            });
            Ok(MemoryPage {
                items: items.collect(),
                total,
            })
        })
        .await
    }

    /// A memory item with its value.
    pub async fn read_memory_item(&self, key: String) -> Answer<MemoryItem> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let record = inner.memory()?.load(&key)?.ok_or_else(|| not_found(&key))?;
            let used = inner.bridge.activity().memory_uses();
            Ok(MemoryItem {
                info: info_of(&record.info, record.value.get(), &used),
                value: inner.redacted(record.value.get()),
                metadata: record
                    .info
                    .metadata
                    .map(|metadata| inner.redacted(metadata.get())),
            })
        })
        .await
    }

    /// Give an item a value, if its version is still the expected one; `None` expects no such item.
    pub async fn save_memory_item(
        &self,
        key: String,
        value: String,
        expected_version: Option<u64>,
    ) -> Answer<MemoryInfo> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let value = RawValue::from_string(value).map_err(|error| {
                ApiError::new(
                    ErrorCode::MemoryInvalid,
                    format!("the value is no JSON: {error}"),
                )
            })?;
            let memory = inner.memory()?;
            // The window was shown stars in its place, and would save those.
            if let Ok(Some(there)) = memory.load(&key)
                && inner.redacted(there.value.get()) != there.value.get()
            {
                let message =
                    format!("`{key}` holds a secret value of a server, which is not shown");
                return Err(ApiError::new(ErrorCode::MemoryInvalid, message)
                    .hint("Forget it, or have the model change it"));
            }
            match memory.update(&key, &value, expected_version, OWN_CLIENT)? {
                UpdateResult::Saved(_) => {
                    let saved = inner.memory_changed(&key);
                    saved.ok_or_else(|| not_found(&key))
                }
                UpdateResult::Conflict(there) => {
                    let there = match there {
                        Some(version) => format!("it is at version {version} now"),
                        None => "it was forgotten meanwhile".to_owned(),
                    };
                    let message = format!("`{key}` was changed by someone else: {there}");
                    Err(ApiError::new(ErrorCode::MemoryConflict, message)
                        .hint("Look at the new value, then change it again"))
                }
            }
        })
        .await
    }

    /// Forget an item; [`Desk::undo_forget`] brings it back.
    pub async fn forget_memory_item(&self, key: String) -> Answer<Forgotten> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let memory = inner.memory()?;
            let undo = match memory.load(&key) {
                Ok(Some(record)) => Undo::Item(Box::new(record)),
                Ok(None) => return Err(not_found(&key)),
                // Its file is put aside and not removed.
                Err(MemoryError::Damaged { .. }) => Undo::Damaged(key.clone()),
                Err(error) => return Err(error.into()),
            };
            if !memory.delete(&key)? {
                return Err(not_found(&key));
            }
            inner.memory_changed(&key);
            Ok(lock(&inner.forgotten).keep(undo))
        })
        .await
    }

    /// Every saved tool.
    pub async fn read_saved_tools(&self) -> Answer<Vec<SavedTool>> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let list = inner.bridge.saved_tools()?.load_all()?;
            let broken = list.broken.iter().map(|broken| SavedTool {
                name: stem(&broken.path),
                summary: String::new(),
                source: String::new(),
                updated_at: 0,
                client: None,
                damaged: Some(ApiError::new(
                    ErrorCode::MemoryInvalid,
                    format!(
                        "{} cannot be read: {}",
                        broken.path.display(),
                        broken.reason
                    ),
                )),
            });
            let tools = list.tools.iter().map(|tool| SavedTool {
                name: tool.name.clone(),
                summary: tool
                    .description
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                source: inner.redacted(&tool.source),
                updated_at: timestamp::ms_of(&tool.updated_at),
                client: tool.client.clone(),
                damaged: None,
            });
            Ok(tools.chain(broken).collect())
        })
        .await
    }

    /// Forget a saved tool; [`Desk::undo_forget`] brings it back.
    pub async fn forget_saved_tool(&self, name: String) -> Answer<Forgotten> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let tools = inner.bridge.saved_tools()?;
            let missing = || {
                ApiError::new(
                    ErrorCode::MemoryNotFound,
                    format!("no tool is saved as `{name}`"),
                )
            };
            let kept = tools
                .load_all()?
                .tools
                .into_iter()
                .find(|tool| tool.name == name);
            let kept = kept.ok_or_else(missing)?;
            if !tools.delete(&name)? {
                return Err(missing());
            }
            inner.look_at_memory();
            Ok(lock(&inner.forgotten).keep(Undo::Tool(Box::new(kept))))
        })
        .await
    }

    /// Bring back what was forgotten.
    pub async fn undo_forget(&self, undo_id: String) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let undo = lock(&inner.forgotten).take(&undo_id).ok_or_else(|| {
                let message = "it was forgotten too long ago to be brought back";
                ApiError::new(ErrorCode::MemoryNotFound, message)
            })?;
            match &undo {
                Undo::Item(record) => {
                    let restored = inner
                        .memory()
                        .and_then(|memory| Ok(memory.restore(record)?));
                    if let Err(error) = restored {
                        // It can be tried again, once there is room for example.
                        lock(&inner.forgotten).put_back(undo_id, undo);
                        return Err(error);
                    }
                    inner.memory_changed(&record.info.key);
                }
                Undo::Tool(tool) => {
                    inner.bridge.saved_tools()?.restore(tool)?;
                    inner.look_at_memory();
                }
                Undo::Damaged(key) => {
                    let folder = inner.bridge.paths().memory();
                    let message = format!(
                        "`{key}` was damaged; its file is kept in {} under another name",
                        folder.display()
                    );
                    return Err(ApiError::new(ErrorCode::MemoryInvalid, message));
                }
            }
            Ok(())
        })
        .await
    }

    /// Save all memory items to a file; gives its path.
    pub async fn export_memory(&self, path: &Path) -> Answer<String> {
        let inner = Arc::clone(&self.0);
        let path = path.to_owned();
        blocking(move || {
            let memory = inner.memory()?;
            save_file(&path, |file| {
                let mut out = BufWriter::new(file);
                memory.export(&mut out)?;
                out.flush()
                    .map_err(|error| errors::not_written(&path, &error))
            })
        })
        .await
    }

    /// Take memory items from a file that [`Desk::export_memory`] wrote.
    pub async fn import_memory(&self, path: &Path, mode: ImportMode) -> Answer<ImportReport> {
        let inner = Arc::clone(&self.0);
        let path = path.to_owned();
        blocking(move || {
            let mut text = String::new();
            let opened = std::fs::File::open(&path);
            let read =
                opened.and_then(|file| file.take(IMPORT_BYTES_MAX).read_to_string(&mut text));
            read.map_err(|error| errors::not_read(&path, &error))?;
            let mode = match mode {
                ImportMode::Keep => memory::ImportMode::Keep,
                ImportMode::Replace => memory::ImportMode::Merge,
            };
            let report = inner.memory()?.import(&text, mode, OWN_CLIENT)?;
            inner.look_at_memory();
            // The lists that windows show are read again with the whole state.
            inner.bridge.events().skip();
            inner.tell_memory_totals();
            Ok(ImportReport {
                added: report.added as u64,
                replaced: report.replaced as u64,
                kept: report.kept as u64,
            })
        })
        .await
    }
}

impl Inner {
    fn memory(&self) -> Answer<Arc<Memory>> {
        Ok(self.bridge.memory()?)
    }

    /// An item was saved or forgotten: tell it. Blocks.
    pub(super) fn memory_changed(&self, key: &str) -> Option<MemoryInfo> {
        self.measure_memory();
        let loaded = self.memory().and_then(|memory| Ok(memory.load(key)?));
        let Ok(record) = loaded else {
            // Damaged in this moment; the list says so when it is read.
            return None;
        };
        let used = self.bridge.activity().memory_uses();
        let info = record.map(|record| {
            let mut info = info_of(&record.info, record.value.get(), &used);
            info.preview = self.redacted(&info.preview);
            info
        });
        {
            let mut sizes = lock(&self.sizes);
            let sizes = sizes.get_or_insert_default();
            match &info {
                Some(info) => sizes.insert(key.to_owned(), info.size_bytes),
                None => sizes.remove(key),
            };
        }
        let totals = self.totals();
        lock(&self.told).memory = totals;
        self.bridge.events().tell(match &info {
            Some(info) => Change::MemorySaved {
                info: info.clone(),
                totals,
            },
            None => Change::MemoryForgotten {
                key: key.to_owned(),
                totals,
            },
        });
        info
    }

    /// Read everything that is remembered anew, and tell the totals if they differ. Blocks.
    pub(super) fn look_at_memory(&self) {
        *lock(&self.sizes) = None;
        self.measure_memory();
        self.tell_memory_totals();
    }

    fn tell_memory_totals(&self) {
        let totals = self.totals();
        lock(&self.told).memory = totals;
        self.bridge.events().tell(Change::SavedTools { totals });
    }

    /// Know the sizes of all items, unless they are known.
    fn measure_memory(&self) {
        if lock(&self.sizes).is_some() || !self.bridge.paths().memory().is_dir() {
            return;
        }
        let Ok(listing) = self.memory().and_then(|memory| Ok(memory.list()?)) else {
            return;
        };
        let sizes = listing
            .items
            .into_iter()
            .map(|info| (info.key, info.value_bytes as u64))
            .collect();
        *lock(&self.sizes) = Some(sizes);
    }

    /// How much is remembered. Blocks.
    pub(super) fn totals(&self) -> MemoryTotals {
        let sizes = lock(&self.sizes);
        let sizes = sizes.as_ref();
        MemoryTotals {
            items: sizes.map_or(0, HashMap::len) as u64,
            size_bytes: sizes.map_or(0, |sizes| sizes.values().sum()),
            saved_tools: self.saved_tools_count(),
        }
    }

    /// The same, read anew. Blocks.
    pub(super) fn totals_now(&self) -> MemoryTotals {
        *lock(&self.sizes) = None;
        self.measure_memory();
        self.totals()
    }

    fn saved_tools_count(&self) -> u64 {
        let folder = self.bridge.paths().saved_tools();
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let is_tool = |path: &Path| path.extension().is_some_and(|ending| ending == "json");
        files
            .take(saved_tools::TOOLS_MAX * 2)
            .filter(|file| is_tool(&file.path()))
            .count() as u64
    }
}

fn not_found(key: &str) -> ApiError {
    let message = format!("nothing is remembered under `{key}`");
    ApiError::new(ErrorCode::MemoryNotFound, message)
}

fn info_of(info: &Info, value: &str, used: &HashMap<String, i64>) -> MemoryInfo {
    MemoryInfo {
        key: info.key.clone(),
        size_bytes: info.value_bytes as u64,
        preview: value.chars().take(PREVIEW_CHARS).collect(),
        created_at: timestamp::ms_of(&info.created_at),
        updated_at: timestamp::ms_of(&info.updated_at),
        used_at: used.get(&info.key).copied(),
        version: info.version,
        client: info.writer.clone(),
        session: info.session.clone(),
        damaged: None,
    }
}

fn damaged_info(damaged: &Damaged) -> MemoryInfo {
    let metadata = std::fs::metadata(&damaged.path).ok();
    let modified = metadata.as_ref().and_then(|it| it.modified().ok());
    let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let modified = modified.map_or(0, |since| since.as_millis() as i64);
    MemoryInfo {
        key: memory::file_name::decode(&stem(&damaged.path)).unwrap_or_else(|| stem(&damaged.path)),
        size_bytes: metadata.map_or(0, |it| it.len()),
        preview: String::new(),
        created_at: modified,
        updated_at: modified,
        used_at: None,
        version: 0,
        client: None,
        session: None,
        damaged: Some(ApiError::new(
            ErrorCode::MemoryInvalid,
            format!("{} is damaged: {}", damaged.path.display(), damaged.reason),
        )),
    }
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn sort(items: &mut [MemoryInfo], order: MemoryOrder) {
    match order {
        MemoryOrder::Key => items.sort_by(|a, b| a.key.cmp(&b.key)),
        MemoryOrder::Size => {
            items.sort_by(|a, b| (b.size_bytes, &a.key).cmp(&(a.size_bytes, &b.key)));
        }
        MemoryOrder::Updated => {
            items.sort_by(|a, b| (b.updated_at, &a.key).cmp(&(a.updated_at, &b.key)));
        }
        MemoryOrder::Used => items.sort_by(|a, b| (b.used_at, &a.key).cmp(&(a.used_at, &b.key))),
    }
}
