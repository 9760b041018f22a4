//! Tells when files or folders have changed: once per change, when it is over, and only if it is one.
//!
//! Watched are the folders around the files, because programs replace a file rather than write it, and a
//! folder that is not there yet is waited for in the nearest one that is. An event is only a hint to look;
//! what counts is whether the content differs. What the files mean is not known here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use notify::event::{EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

/// A change is over when nothing has happened for so long.
const QUIET: Duration = Duration::from_millis(150);

/// It is looked at after so long even if things go on happening, so that a change is known within a second.
const QUIET_AT_MOST: Duration = Duration::from_millis(600);

/// How often to look where the system does not tell.
const POLL: Duration = Duration::from_millis(700);

/// How often to look where it does: network and foreign file systems tell only some changes.
const SAFETY_NET: Duration = Duration::from_secs(10);

/// A file written so recently may be written again without its time changing.
const TIME_GRAIN: Duration = Duration::from_secs(2);

/// A longer file or folder is compared by its size and time alone.
const HASHED_BYTES_MAX: u64 = 16 << 20;

/// More names than that are not listed.
const NAMES_MAX: usize = 10_000;

/// Watches paths, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    orders: Arc<Mutex<Orders>>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Orders {
    paths: Option<Vec<PathBuf>>,
    stop: bool,
    /// Folders of which an event said that they went away; their watches went with them.
    lost: HashSet<PathBuf>,
}

impl Watcher {
    /// Watches `paths`, which need not exist. Messages do not pile up: one stands for all changes before it.
    ///
    /// The first message comes at once, and again after each [`Watcher::update`] that adds a path that
    /// exists: what changed between the caller's reading and our watching would be lost otherwise.
    pub fn start(paths: Vec<PathBuf>) -> (Self, mpsc::Receiver<()>) {
        Self::spawn(paths, true)
    }

    /// The same without help from the system, for file systems that tell nothing.
    pub fn polling(paths: Vec<PathBuf>) -> (Self, mpsc::Receiver<()>) {
        Self::spawn(paths, false)
    }

    fn spawn(paths: Vec<PathBuf>, ask_system: bool) -> (Self, mpsc::Receiver<()>) {
        let (changed, receiver) = mpsc::channel(1);
        // One waiting wake-up stands for all.
        let (wake, woken) = sync_channel(1);
        let orders = Arc::new(Mutex::new(Orders {
            paths: Some(paths),
            ..Orders::default()
        }));
        let system = ask_system.then(|| system_watcher(&orders, &wake)).flatten();
        let watching = Watching {
            system,
            watched: BTreeSet::new(),
            seen: BTreeMap::new(),
            orders: Arc::clone(&orders),
            woken,
            changed,
        };
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watching.run());
        let thread = thread
            .inspect_err(|error| tracing::warn!("changes on disk go unnoticed: {error}"))
            .ok();
        let _ = wake.try_send(());
        (
            Self {
                orders,
                wake,
                thread,
            },
            receiver,
        )
    }

    /// Watches `paths` in place of those before.
    pub fn update(&self, paths: Vec<PathBuf>) {
        self.order(|orders| orders.paths = Some(paths));
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = self.wake.try_send(());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.order(|orders| orders.stop = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn system_watcher(
    orders: &Arc<Mutex<Orders>>,
    wake: &SyncSender<()>,
) -> Option<RecommendedWatcher> {
    let (orders, wake) = (Arc::clone(orders), wake.clone());
    let told = move |event: notify::Result<notify::Event>| {
        if let Ok(event) = event {
            match event.kind {
                EventKind::Access(_) => return,
                EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
                    let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
                    if orders.lost.len() < NAMES_MAX {
                        orders.lost.extend(event.paths);
                    }
                }
                EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other => {
                }
            }
        }
        let _ = wake.try_send(());
    };
    notify::recommended_watcher(told)
        .inspect_err(|error| {
            tracing::warn!(
                "the system does not tell of changes on disk, so they are looked for: {error}"
            );
        })
        .ok()
}

/// What the thread owns.
struct Watching {
    system: Option<RecommendedWatcher>,
    /// Folders that the system watches.
    watched: BTreeSet<PathBuf>,
    seen: BTreeMap<PathBuf, Seen>,
    orders: Arc<Mutex<Orders>>,
    woken: Receiver<()>,
    changed: mpsc::Sender<()>,
}

impl Watching {
    fn run(mut self) {
        let mut wait = Duration::ZERO;
        loop {
            match self.woken.recv_timeout(wait) {
                Ok(()) => self.until_quiet(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let (paths, lost) = {
                let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
                if orders.stop || self.changed.is_closed() {
                    return;
                }
                (orders.paths.take(), std::mem::take(&mut orders.lost))
            };
            let mut differs = paths.is_some_and(|paths| self.set_paths(paths));
            let complete = self.watch_folders(&lost);
            differs |= self.look();
            if differs {
                // A full channel holds a message that says the same.
                let _ = self.changed.try_send(());
            }
            wait = if complete { SAFETY_NET } else { POLL };
        }
    }

    /// Waits for the end of a series of events, but not for a new order: that is answered at once.
    fn until_quiet(&self) {
        let deadline = Instant::now() + QUIET_AT_MOST;
        loop {
            {
                let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
                if orders.stop || orders.paths.is_some() {
                    return;
                }
            }
            let left = deadline
                .saturating_duration_since(Instant::now())
                .min(QUIET);
            if left.is_zero() || self.woken.recv_timeout(left).is_err() {
                return;
            }
        }
    }

    /// Whether one of the new paths exists, and so may have changed before it was watched.
    fn set_paths(&mut self, paths: Vec<PathBuf>) -> bool {
        let mut before = std::mem::take(&mut self.seen);
        let mut added = false;
        for path in paths {
            let seen = before.remove(&path).unwrap_or_else(|| {
                added |= path.exists();
                Seen::default()
            });
            self.seen.insert(path, seen);
        }
        added
    }

    /// Has the system watch every folder in which something can happen to our paths, and says whether it does.
    fn watch_folders(&mut self, lost: &HashSet<PathBuf>) -> bool {
        // A folder may appear while the watches are set, and then nothing would tell of what appears in it.
        const ROUNDS_MAX: usize = 8;
        let Some(system) = &mut self.system else {
            return false;
        };
        for folder in self.watched.iter().filter(|folder| lost.contains(*folder)) {
            let _ = system.unwatch(folder);
        }
        self.watched.retain(|folder| !lost.contains(folder));
        let mut complete = true;
        for _ in 0..ROUNDS_MAX {
            let wanted: BTreeSet<PathBuf> = self
                .seen
                .keys()
                .flat_map(|path| folders_around(path))
                .collect();
            for gone in self.watched.difference(&wanted) {
                let _ = system.unwatch(gone);
            }
            self.watched.retain(|folder| wanted.contains(folder));
            let new: Vec<PathBuf> = wanted.difference(&self.watched).cloned().collect();
            if new.is_empty() {
                return complete;
            }
            complete = true;
            for folder in new {
                match system.watch(&folder, RecursiveMode::NonRecursive) {
                    Ok(()) => {
                        self.watched.insert(folder);
                    }
                    Err(error) => {
                        tracing::debug!(
                            "{} is looked at every {} ms: {error}",
                            folder.display(),
                            POLL.as_millis()
                        );
                        complete = false;
                    }
                }
            }
            if !complete {
                return false;
            }
        }
        false
    }

    /// Compares everything with what it was.
    fn look(&mut self) -> bool {
        let mut differs = false;
        for (path, seen) in &mut self.seen {
            differs |= seen.look(path);
        }
        differs
    }
}

/// The folder of a path and the folders of the links on the way to it, or the nearest that exist; of a
/// folder, itself as well.
fn folders_around(path: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut add = |path: &Path| {
        folders.extend(
            path.ancestors()
                .find(|folder| folder.is_dir())
                .map(Path::to_owned),
        );
    };
    if path.is_dir() {
        add(path);
    }
    for ancestor in path.ancestors() {
        let Some(parent) = ancestor.parent() else {
            break;
        };
        if ancestor == path {
            add(parent);
        }
        if let Ok(target) = std::fs::read_link(ancestor) {
            add(parent);
            let target = std::fs::canonicalize(ancestor).unwrap_or_else(|_| parent.join(target));
            if let Some(folder) = target.parent() {
                add(folder);
            }
        }
    }
    folders
}

/// What a path was when it was last looked at.
#[derive(Debug, Default)]
struct Seen {
    /// Size and time of a file; looked at first, since reading costs more.
    stamp: Option<(u64, SystemTime)>,
    content: Option<[u8; 32]>,
    looked: bool,
}

impl Seen {
    /// Looks again, and says whether it differs. The first look never does.
    fn look(&mut self, path: &Path) -> bool {
        let metadata = std::fs::metadata(path).ok();
        let stamp = metadata
            .as_ref()
            .and_then(|metadata| Some((metadata.len(), metadata.modified().ok()?)));
        let recent = |(_, modified): (u64, SystemTime)| {
            modified.elapsed().map_or(true, |age| age < TIME_GRAIN)
        };
        if self.looked && stamp == self.stamp && !stamp.is_some_and(recent) {
            return false;
        }
        let content = match &metadata {
            None => None,
            Some(metadata) if metadata.is_dir() => Some(names(path)),
            Some(metadata) if metadata.is_file() && metadata.len() <= HASHED_BYTES_MAX => {
                std::fs::read(path)
                    .ok()
                    .map(|bytes| Sha256::digest(bytes).into())
            }
            Some(_) => Some(Sha256::digest(format!("{stamp:?}")).into()),
        };
        let differs = self.looked && content != self.content;
        *self = Self {
            stamp,
            content,
            looked: true,
        };
        differs
    }
}

/// The names in a folder, as a hash.
fn names(folder: &Path) -> [u8; 32] {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(NAMES_MAX);
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    let mut hash = Sha256::new();
    for name in names {
        hash.update(name.as_encoded_bytes());
        hash.update([0]);
    }
    hash.finalize().into()
}
