//! What a window asks of the bridge: one method per command of [`api`](crate::api), with that module's
//! types, and the changes it must hear of.
//!
//! The desk looks at the bridge's parts and says what differs from what it said before; it holds no
//! state of the product. It knows neither Tauri nor files that a user chooses: where a command needs a
//! dialog, the desk takes the path that came of it. Commands of which the core knows nothing, such as
//! installing an update, are the shell's own.

mod attention;
mod clients;
mod diagnostics;
mod engines;
mod errors;
mod follow;
mod forgotten;
mod limits;
mod measure;
mod memory;
mod new_servers;
mod output;
mod questions;
mod runs;
mod sandbox;
mod secrets;
mod seen;
mod servers;
mod settings;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::api::{
    ApiError, Attention, BridgeEvent, ContainerEngine, EntryProblem, Interpreter, Limit,
    MemoryTotals, SandboxStatus, Savings, SecretStore, Seen, Server, SkippedEntry, UpdateState,
};
use crate::bridge::{Bridge, Connection};
use crate::questions::Looker;
use crate::status::BridgeStatus;
use forgotten::Forgotten;

/// How the window's own runs are named among those of clients.
pub const OWN_CLIENT: &str = "runbridge";

/// What every command gives.
pub type Answer<T> = Result<T, ApiError>;

/// What the shell knows of the program.
#[derive(Clone, Debug, Default)]
pub struct AppFacts {
    /// Where the copy of the sidecar lies that clients start.
    pub sidecar: PathBuf,
    /// Where logs are written.
    pub logs: Option<PathBuf>,
    /// Whether this build can look for newer versions of itself.
    pub updates: bool,
}

/// See the module. Cheap to clone; the last one to be dropped ends what follows the bridge.
#[derive(Clone)]
pub struct Desk(
    Arc<Inner>,
    #[allow(dead_code, reason = "ends with the desk")] Arc<Following>,
);

/// Tasks that end with the desk.
type Following = [AbortOnDropHandle<()>; 2];

struct Inner {
    bridge: Arc<Bridge>,
    app: AppFacts,
    update: Mutex<UpdateState>,
    /// Whose the runs of the window are.
    own: Arc<Connection>,
    told: Mutex<Told>,
    /// Engines found when they were last looked for.
    engines: Mutex<Vec<ContainerEngine>>,
    /// Calls of each server since midnight.
    calls_today: Mutex<HashMap<String, u32>>,
    /// Sizes of memory items by key, once they were listed.
    sizes: Mutex<Option<HashMap<String, u64>>>,
    /// Where secrets are kept, once that was asked.
    secret_store: Mutex<Option<SecretStore>>,
    forgotten: Mutex<Forgotten>,
    measuring: Mutex<Option<AbortOnDropHandle<()>>>,
    /// The server whose words are told, if there is one.
    reading_out: Mutex<Option<output::Watched>>,
    /// The one sign-in that goes on in a browser.
    signing_in: Mutex<Option<AbortOnDropHandle<()>>>,
    status: watch::Sender<BridgeStatus>,
    #[allow(
        dead_code,
        reason = "while the desk is there, its windows show questions"
    )]
    looker: Looker,
}

/// What windows have been told, to tell only what differs.
#[derive(Default)]
struct Told {
    servers: BTreeMap<String, Server>,
    starting: HashMap<String, std::time::Instant>,
    /// Once a window asked for them.
    clients: Option<Vec<crate::api::Client>>,
    problems: Vec<EntryProblem>,
    skipped: Vec<SkippedEntry>,
    interpreters: BTreeMap<String, Interpreter>,
    connections: BTreeMap<String, crate::api::Connection>,
    sandbox: Option<SandboxStatus>,
    limits: Vec<Limit>,
    settings: Option<crate::api::AppSettings>,
    attention: Vec<Attention>,
    savings: Savings,
    memory: MemoryTotals,
    seen: Seen,
}

impl Desk {
    /// A desk at this bridge. Needs a tokio runtime.
    pub fn open(bridge: Arc<Bridge>, app: AppFacts) -> Self {
        let inner = Arc::new(Inner {
            own: bridge.connect(),
            update: Mutex::new(if app.updates {
                UpdateState::Unknown
            } else {
                UpdateState::Off
            }),
            told: Mutex::default(),
            engines: Mutex::default(),
            calls_today: Mutex::default(),
            sizes: Mutex::default(),
            secret_store: Mutex::default(),
            forgotten: Mutex::default(),
            measuring: Mutex::default(),
            reading_out: Mutex::default(),
            signing_in: Mutex::default(),
            status: watch::Sender::new(BridgeStatus::default()),
            looker: bridge.open_questions().look(),
            bridge,
            app,
        });
        let looking = Arc::clone(&inner);
        let tasks = [
            tokio::spawn(follow::follow(Arc::clone(&inner))),
            tokio::spawn(async move {
                looking.look_for_engines().await;
                looking.bridge.discovered().await;
                if looking.uses_secrets() {
                    looking.look_at_secret_store().await;
                }
            }),
        ];
        Self(inner, Arc::new(tasks.map(AbortOnDropHandle::new)))
    }

    /// Every change from now on, in order. Whoever is too slow misses some and sees it by their numbers.
    pub fn subscribe(&self) -> broadcast::Receiver<BridgeEvent> {
        self.0.bridge.events().subscribe()
    }

    /// What a tray shows, now and at each change.
    pub fn status(&self) -> watch::Receiver<BridgeStatus> {
        self.0.status.subscribe()
    }

    /// No window shows anything any more: what was measured or told for it alone ends.
    pub fn look_away(&self) {
        lock(&self.0.measuring).take();
        lock(&self.0.reading_out).take();
    }

    /// End the window's own interpreter. The bridge is shut down by its owner.
    pub async fn shut_down(&self) {
        self.look_away();
        lock(&self.0.signing_in).take();
        self.0.bridge.disconnect(&self.0.own).await;
    }
}

impl Inner {
    /// Text without secrets.
    fn redacted(&self, text: &str) -> String {
        self.bridge.redactor().text(text).into_owned()
    }
}

/// Work with files, off the threads that serve others.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(errors::internal(format!("the work broke off: {error}"))))
}

/// Write a file that the user chose, whole or not at all; gives its path.
fn save_file(path: &Path, write: impl FnOnce(&mut File) -> Answer<()>) -> Answer<String> {
    let not_written = |error: &dyn std::fmt::Display| errors::not_written(path, error);
    let folder = path.parent().filter(|folder| folder.is_dir());
    let folder = folder.ok_or_else(|| not_written(&"its folder is not there"))?;
    let mut temporary = tempfile::Builder::new()
        .prefix(".runbridge-")
        .tempfile_in(folder)
        .map_err(|error| not_written(&error))?;
    write(temporary.as_file_mut())?;
    temporary
        .persist(path)
        .map_err(|error| not_written(&error.error))?;
    Ok(path.display().to_string())
}

/// A panic while one of these locks was held left no half-made change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
