//! `Bridge`: the owner of everything that lives. It is opened and shut down here and gives access
//! to its parts; what a run does is in `run.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::activity::Activity;
use crate::catalog::{Catalog, CatalogConfig, CatalogEvent};
use crate::clients::connect::Running;
use crate::clients::guardian::{Finding, Guardian};
use crate::clients::{self, Discovery, Search};
use crate::events::{Events, Hint};
use crate::interpreters::{ConnectionId, Interpreters};
use crate::late_runs::LateRuns;
use crate::launch_env::LoginEnvironment;
use crate::live_runs::{LiveRuns, StoppedBy};
use crate::manual::{self, ManualLimits};
use crate::memory::{Memory, MemoryError, MemoryLimits};
use crate::output::{ConnectionOutputs, OutputLimits, Outputs, run_name};
use crate::packages::Packages;
use crate::paths::{Environment, NESTED, Paths, PathsError};
use crate::patience::Patience;
use crate::questions::OpenQuestions;
use crate::redact::{Redactor, entry_secrets};
use crate::sandboxes::{Guests, Sandboxes};
use crate::saved_tools::{SavedTools, SavedToolsError};
use crate::secrets::{Secret, Secrets};
use crate::settings::{Limits, Settings, SettingsError, SettingsFile, SettingsProblem};
use crate::sign_in::{SignInError, SignIns, SigningIn};
use crate::upstream::{LoginEnv, UpstreamLimits};
use crate::watch::Watcher;

/// How long after the start runs and listings wait for the first look at the config files. After that
/// nobody waits any more: a disk that hangs must not hold up what needs no server.
const DISCOVERY_WITHIN: Duration = Duration::from_secs(5);

/// How long runs that were cancelled may take to end when the bridge is shut down.
const RUNS_END_WITHIN: Duration = Duration::from_secs(4);

/// How long the record of runs may take to be written when the bridge is shut down.
const ACTIVITY_WITHIN: Duration = Duration::from_secs(2);

/// Catalog events that a slow listener may fall behind.
const EVENTS_KEPT: usize = 256;

/// All that one bridge process owns.
pub struct Bridge {
    id: String,
    paths: Paths,
    /// Grows once, when a terminal's variables are known.
    environment: RwLock<Environment>,
    events: Arc<Events>,
    live_runs: Arc<LiveRuns>,
    open_questions: Arc<OpenQuestions>,
    clients: watch::Sender<Vec<ConnectedClient>>,
    paused: AtomicBool,
    /// One look at the files at a time, so that the last look counts.
    discovering: tokio::sync::Mutex<()>,
    /// One change of the settings at a time.
    writing: tokio::sync::Mutex<()>,
    settings: RwLock<Arc<Settings>>,
    settings_problems: RwLock<Arc<[SettingsProblem]>>,
    discovery: watch::Sender<Option<Arc<Discovery>>>,
    discovery_by: tokio::time::Instant,
    discovery_took: Mutex<Option<Duration>>,
    secrets: Arc<Secrets>,
    sign_ins: Arc<SignIns>,
    redactor: RwLock<Redaction>,
    catalog: Arc<Catalog>,
    sandboxes: Arc<Sandboxes>,
    packages: Packages,
    login_env: LoginEnv,
    interpreters: Arc<Interpreters>,
    outputs: Outputs,
    activity: Activity,
    memory: Mutex<Option<Arc<Memory>>>,
    saved_tools: OnceLock<Arc<SavedTools>>,
    guardian: Arc<Mutex<Guardian>>,
    patience: Arc<Patience>,
    runs: TaskTracker,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

/// What finds secrets, and what it was made from.
#[derive(Default)]
struct Redaction {
    redactor: Arc<Redactor>,
    /// Those of the entries.
    of_entries: Vec<Secret>,
    /// As far as those that were looked up are known to it.
    generation: u64,
}

/// A client that is attached through a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectedClient {
    /// Its connection to the bridge.
    pub connection: ConnectionId,
    /// What it calls itself, once it said so.
    pub name: Option<String>,
    /// Its own version, once it said so.
    pub client_version: Option<String>,
    /// The protocol revision that it speaks, once that is settled.
    pub revision: Option<String>,
    /// The process of its sidecar.
    pub pid: u32,
    /// The version of its sidecar.
    pub version: String,
    /// The folder that it started the sidecar in.
    pub cwd: PathBuf,
    /// Milliseconds since 1970.
    pub since_at: i64,
}

/// One client attached to the bridge.
pub struct Connection {
    id: ConnectionId,
    outputs: ConnectionOutputs,
    late_runs: LateRuns,
    closed: CancellationToken,
    resumed: bool,
}

impl Connection {
    /// Its identity.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// What its runs print.
    pub(crate) fn outputs(&self) -> &ConnectionOutputs {
        &self.outputs
    }

    /// Its runs that were answered before they ended.
    pub(crate) fn late_runs(&self) -> &LateRuns {
        &self.late_runs
    }

    /// Its client ran code in another bridge before, whose variables are gone.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Cancelled when the client has gone.
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.closed
    }

    /// The client has gone: its runs are cancelled.
    pub fn close(&self) {
        self.closed.cancel();
    }
}

/// What a bridge starts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves a client: a sandbox is prepared and the files are watched.
    Serve,
    /// It answers one question of a person: nothing is started that was not asked for.
    Ask,
}

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody knows where this user's files are.
    #[error(transparent)]
    Paths(#[from] PathsError),
}

impl Redaction {
    fn renew(&mut self, secrets: &Secrets) {
        let (generation, looked_up) = secrets.known();
        self.redactor = Arc::new(Redactor::new(self.of_entries.iter().chain(&looked_up)));
        self.generation = generation;
    }
}

impl Bridge {
    /// Open the bridge of the user whom `environment` describes. Returns at once: what takes time
    /// goes on in the background. Needs a tokio runtime.
    pub fn open(environment: Environment, role: Role) -> Result<Arc<Self>, OpenError> {
        Self::open_with(environment, role, None)
    }

    /// The same with guests that come from elsewhere than an engine.
    pub fn open_with(
        environment: Environment,
        role: Role,
        guests: Option<Arc<dyn Guests>>,
    ) -> Result<Arc<Self>, OpenError> {
        let paths = Paths::for_user(&environment)?;
        let (settings, settings_problems) = Settings::load(&paths, &environment);
        let limits = &settings.limits;
        let login_env = login_env(&environment);
        let secrets = Secrets::open(&paths, &environment);
        let sign_ins = SignIns::new(
            Arc::clone(&secrets),
            login_env.clone(),
            Some(paths.secrets()),
        );
        let (events, _) = broadcast::channel::<CatalogEvent>(EVENTS_KEPT);
        let catalog = Catalog::new(CatalogConfig {
            limits: upstream_limits(limits),
            cache_dir: Some(paths.catalog_cache()),
            login_env: login_env.clone(),
            sign_ins: Arc::clone(&sign_ins),
            events,
        });
        let owner = owner_id();
        let shared_events = Arc::new(Events::default());
        let live_runs = LiveRuns::new(Arc::clone(&shared_events));
        let hearing = Arc::clone(&live_runs);
        let bridge = Arc::new(Self {
            sandboxes: Arc::new(Sandboxes::new(&paths, &environment, owner.clone(), guests)),
            packages: Packages::new(&paths),
            login_env: login_env.clone(),
            outputs: Outputs::telling(
                &paths.output_spool(),
                OutputLimits {
                    edge_chars_max: limits.reply_chars_max as usize,
                    ..OutputLimits::default()
                },
                Arc::new(move |run, stream, text| hearing.printed(&run_name(run), stream, text)),
            ),
            activity: Activity::open(&paths.activity(), settings.retention()),
            id: owner,
            live_runs,
            open_questions: OpenQuestions::new(Arc::clone(&shared_events)),
            clients: watch::Sender::new(Vec::new()),
            paused: AtomicBool::new(false),
            discovering: tokio::sync::Mutex::new(()),
            writing: tokio::sync::Mutex::new(()),
            discovery: watch::Sender::new(None),
            discovery_by: tokio::time::Instant::now() + DISCOVERY_WITHIN,
            discovery_took: Mutex::default(),
            secrets,
            sign_ins,
            redactor: RwLock::default(),
            catalog,
            interpreters: Arc::new(Interpreters::new(Arc::clone(&shared_events))),
            memory: Mutex::default(),
            saved_tools: OnceLock::new(),
            guardian: Arc::default(),
            patience: Arc::new(Patience::new(paths.patience())),
            runs: TaskTracker::new(),
            tasks: Mutex::default(),
            paths,
            environment: RwLock::new(environment),
            events: shared_events,
            settings: RwLock::new(Arc::new(settings)),
            settings_problems: RwLock::new(settings_problems.into()),
        });
        bridge.start(role, login_env);
        Ok(bridge)
    }

    fn start(self: &Arc<Self>, role: Role, login_env: LoginEnv) {
        let settings = self.settings();
        if role == Role::Serve {
            self.sandboxes.prepare(&settings);
        }
        let idle = settings.limits.idle_ms_max;
        let asked = Arc::downgrade(self);
        let idle = move || {
            let bridge = asked.upgrade();
            let idle = bridge.map_or(idle, |bridge| bridge.settings().limits.idle_ms_max);
            Duration::from_millis(idle)
        };
        let interpreters = Arc::clone(&self.interpreters);
        let live_runs = Arc::clone(&self.live_runs);
        let watching = Arc::downgrade(self);
        let tasks = [
            AbortOnDropHandle::new(tokio::spawn(async move { interpreters.expire(idle).await })),
            AbortOnDropHandle::new(tokio::spawn(async move { live_runs.tell_output().await })),
            AbortOnDropHandle::new(tokio::spawn(async move {
                let Some(bridge) = watching.upgrade() else {
                    return;
                };
                bridge.discover().await;
                // A terminal may know variables that a program started from a dock does not.
                let login_env = login_env.get().await;
                let filled = bridge.environment().filled_from(&login_env);
                *bridge
                    .environment
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = filled;
                let watched = bridge.discover().await;
                if role == Role::Serve {
                    bridge.guard().await;
                    drop(bridge);
                    Self::watch(watching, watched).await;
                }
            })),
        ];
        lock(&self.tasks).extend(tasks);
    }

    /// Look at the settings and at all config files, and hand the servers found to the catalog.
    /// Returns what to watch.
    async fn discover(self: &Arc<Self>) -> Vec<PathBuf> {
        let _one_at_a_time = self.discovering.lock().await;
        let environment = self.environment();
        let paths = self.paths.clone();
        let secrets = Arc::clone(&self.secrets);
        let runtime = tokio::runtime::Handle::current();
        let look = move || {
            let (settings, problems) = Settings::load(&paths, &environment);
            let answers = runtime.block_on(answers(&settings, &secrets));
            let began = std::time::Instant::now();
            let mut search = Search::new(&paths, &environment, &settings);
            search.answers = answers;
            let discovery = clients::discover(&search);
            drop(search);
            (settings, problems, discovery, began.elapsed())
        };
        let (settings, problems, mut discovery, took) =
            match tokio::task::spawn_blocking(look).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::error!(%error, "the search for servers broke off");
                    return Vec::new();
                }
            };
        self.activity.set_retention(settings.retention());
        self.catalog.set_limits(upstream_limits(&settings.limits));
        self.outputs
            .keep_edges(settings.limits.reply_chars_max as usize);
        *lock(&self.discovery_took) = Some(took);
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.interpreters.look_again();
        *self
            .settings_problems
            .write()
            .unwrap_or_else(PoisonError::into_inner) = problems.into();
        if self.is_nested() {
            tracing::warn!("another Runbridge started this one as a server: no servers here");
            discovery.entries.clear();
        }
        discovery.watched.push(self.paths.settings());
        let discovery = Arc::new(discovery);
        for problem in &discovery.problems {
            tracing::warn!("{problem}");
        }
        let entries = discovery.entries.clone();
        self.redact(entries.iter().flat_map(entry_secrets).collect());
        let watched = discovery.watched.clone();
        // The new servers count at once; processes that must stop may take seconds to go.
        let set = self.catalog.set_entries(entries);
        tokio::pin!(set);
        let at_once = futures_util::poll!(&mut set);
        self.discovery.send_replace(Some(discovery));
        self.events.hint(Hint::Discovered);
        if at_once.is_pending() {
            set.await;
        }
        watched
    }

    /// Whether another bridge took this one for a server. Its servers would be ours once more, and
    /// one of them would start the next bridge.
    fn is_nested(&self) -> bool {
        self.environment().filled(NESTED).is_some() && !self.settings().allow_self_server
    }

    /// Look whether clients have lost us, and put back what the user wants kept.
    pub(crate) async fn guard(&self) {
        if self.is_nested() {
            return;
        }
        let environment = self.environment();
        let (paths, settings) = (self.paths.clone(), self.settings());
        let guardian = Arc::clone(&self.guardian);
        let look = move || {
            let search = Search::new(&paths, &environment, &settings);
            lock(&guardian).look(&search, Running::now().as_ref())
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(findings) => {
                for finding in &findings {
                    tracing::warn!("{finding}");
                }
                self.events.hint(Hint::Registrations);
            }
            Err(error) => tracing::error!(%error, "the look at the clients broke off"),
        }
    }

    /// Clients that have lost their entry for us, as far as that was noticed.
    pub fn findings(&self) -> Vec<Finding> {
        lock(&self.guardian).open()
    }

    /// Follow changes of the config files for as long as the bridge lives.
    async fn watch(bridge: std::sync::Weak<Self>, watched: Vec<PathBuf>) {
        let (watcher, mut changed) = Watcher::start(watched);
        while changed.recv().await.is_some() {
            let Some(bridge) = bridge.upgrade() else {
                return;
            };
            watcher.update(bridge.discover().await);
            bridge.guard().await;
        }
    }

    /// Look at the settings and the config files now. What they say is in force when this returns.
    pub async fn reload(self: &Arc<Self>) {
        self.discover().await;
    }

    /// Give keys of the settings file these values, all of them or none, and put them in force.
    pub(crate) async fn change_settings(
        self: &Arc<Self>,
        changes: Vec<(Vec<String>, Option<Value>)>,
    ) -> Result<(), SettingsError> {
        let path = self.paths.settings();
        let _one_at_a_time = self.writing.lock().await;
        let written = path.clone();
        let write = move || SettingsFile::open(&written).set_all(&changes);
        tokio::task::spawn_blocking(write)
            .await
            .unwrap_or_else(|error| {
                Err(SettingsError::Disk {
                    path,
                    error: std::io::Error::other(error),
                })
            })?;
        self.reload().await;
        Ok(())
    }

    /// Let no run begin and end those under way, or let them begin again.
    pub fn set_paused(&self, paused: bool) {
        // In this order: a run that begins now sees it or is stopped.
        self.paused.store(paused, Ordering::SeqCst);
        if paused {
            self.live_runs.stop_all(StoppedBy::Pause);
        }
    }

    /// Whether no run may begin.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Attach a client.
    pub fn connect(&self) -> Arc<Connection> {
        self.attach(false)
    }

    /// Attach a client that ran code in a bridge which is gone. Each of its sessions is told once
    /// that earlier variables are gone too.
    pub fn connect_resumed(&self) -> Arc<Connection> {
        self.attach(true)
    }

    fn attach(&self, resumed: bool) -> Arc<Connection> {
        Arc::new(Connection {
            id: ConnectionId::next(),
            outputs: self.outputs.connection(),
            late_runs: LateRuns::default(),
            closed: CancellationToken::new(),
            resumed,
        })
    }

    /// Detach a client: its runs are cancelled and its interpreters end.
    pub async fn disconnect(&self, connection: &Connection) {
        connection.close();
        self.interpreters.close(connection.id()).await;
    }

    /// End everything that was started: runs, interpreters, sandboxes, servers. Bounded in time;
    /// nothing is left behind. Connections must have been closed.
    pub async fn shut_down(&self) {
        self.runs.close();
        if tokio::time::timeout(RUNS_END_WITHIN, self.runs.wait())
            .await
            .is_err()
        {
            tracing::warn!("runs were still under way when the bridge was shut down");
        }
        lock(&self.tasks).clear();
        let sandboxes = async {
            self.interpreters.close_all().await;
            self.sandboxes.shut_down().await;
        };
        tokio::join!(
            sandboxes,
            self.sign_ins.shut_down(),
            self.catalog.shut_down()
        );
        self.activity.flush(ACTIVITY_WITHIN);
    }

    /// Wait until the config files have been looked at once.
    pub async fn discovered(&self) {
        let mut discovery = self.discovery.subscribe();
        let first = discovery.wait_for(Option::is_some);
        if tokio::time::timeout_at(self.discovery_by, first)
            .await
            .is_err()
        {
            tracing::warn!("the config files of clients take long to read; going on without them");
        }
    }

    /// How long the last look at the config files took.
    pub fn discovery_took(&self) -> Option<Duration> {
        *lock(&self.discovery_took)
    }

    /// What the last look at the config files found.
    pub fn discovery(&self) -> Option<Arc<Discovery>> {
        self.discovery.borrow().clone()
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Settings that could not be used.
    pub fn settings_problems(&self) -> Arc<[SettingsProblem]> {
        Arc::clone(
            &self
                .settings_problems
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Names this process among all bridges.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The environment that it reads settings from.
    pub fn environment(&self) -> Environment {
        let environment = self.environment.read();
        environment.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What happens here, for whoever looks on.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Runs that have not ended.
    pub fn live_runs(&self) -> &Arc<LiveRuns> {
        &self.live_runs
    }

    /// Questions of servers that wait in a window.
    pub(crate) fn open_questions(&self) -> &Arc<OpenQuestions> {
        &self.open_questions
    }

    /// Clients that are attached through sidecars, and each change of them.
    pub fn clients(&self) -> watch::Receiver<Vec<ConnectedClient>> {
        self.clients.subscribe()
    }

    /// What a client calls itself, from whoever did not greet us with it.
    pub(crate) fn name_client(&self, connection: ConnectionId, name: &str) {
        self.clients.send_if_modified(|clients| {
            let mut unnamed = clients
                .iter_mut()
                .filter(|client| client.connection == connection && client.name.is_none());
            let Some(client) = unnamed.next() else {
                return false;
            };
            client.name = Some(name.to_owned());
            true
        });
    }

    /// Change who is attached.
    pub(crate) fn change_clients(&self, change: impl FnOnce(&mut Vec<ConnectedClient>)) {
        self.clients.send_modify(change);
    }

    /// Where this bridge keeps its files.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The servers with their tools.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The sandbox.
    pub fn sandboxes(&self) -> &Arc<Sandboxes> {
        &self.sandboxes
    }

    /// Packages that code had installed.
    pub(crate) fn packages(&self) -> &Packages {
        &self.packages
    }

    /// The user's login environment, once it is known.
    pub(crate) fn login_env(&self) -> &LoginEnv {
        &self.login_env
    }

    /// The record of runs.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Interpreters that live.
    pub fn interpreters(&self) -> &Arc<Interpreters> {
        &self.interpreters
    }

    /// The secrets of the user that are kept here.
    pub fn secrets(&self) -> &Arc<Secrets> {
        &self.secrets
    }

    /// Begin to sign in to a server, as the client that the settings name for it, if they name one.
    pub fn sign_in(&self, server: &str) -> Result<Arc<SigningIn>, SignInError> {
        let discovery = self.discovery();
        let name = self.catalog.find(server);
        let entry = discovery.iter().flat_map(|found| &found.entries);
        let mut entry =
            entry.filter(|entry| name.as_ref().is_ok_and(|name| name.name == entry.name));
        let decided = entry.next().map(|entry| self.settings().decided(entry));
        let client = decided.map(|decided| decided.sign_in).unwrap_or_default();
        self.catalog.sign_in(server, client)
    }

    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        {
            let made = self.redactor.read().unwrap_or_else(PoisonError::into_inner);
            if made.generation == self.secrets.generation() {
                return Arc::clone(&made.redactor);
            }
        }
        let mut made = self
            .redactor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        made.renew(&self.secrets);
        Arc::clone(&made.redactor)
    }

    /// Take these secrets out from now on, beside those that are looked up.
    fn redact(&self, of_entries: Vec<Secret>) {
        let mut made = self
            .redactor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        made.of_entries = of_entries;
        made.renew(&self.secrets);
    }

    /// How long clients wait.
    pub(crate) fn patience(&self) -> &Arc<Patience> {
        &self.patience
    }

    /// Counts a run, so that a shutdown waits for it.
    pub(crate) fn runs(&self) -> &TaskTracker {
        &self.runs
    }

    /// What the model remembers. Opened when first needed, anew when its limits differ; a failure is
    /// tried again. Blocks.
    pub fn memory(&self) -> Result<Arc<Memory>, MemoryError> {
        let settings = self.settings();
        let limits = MemoryLimits {
            value_bytes_max: settings.limits.memory_value_bytes_max as usize,
            keys_max: settings.limits.memory_keys_max as usize,
        };
        let mut open = lock(&self.memory);
        if let Some(memory) = open.as_ref().filter(|memory| memory.limits() == limits) {
            return Ok(Arc::clone(memory));
        }
        let legacy = self.paths.legacy_memory();
        let memory = Memory::open(&self.paths.memory(), Some(&legacy), limits)?;
        Ok(Arc::clone(open.insert(Arc::new(memory))))
    }

    /// The functions that the model kept; as [`Bridge::memory`].
    pub fn saved_tools(&self) -> Result<Arc<SavedTools>, SavedToolsError> {
        if let Some(tools) = self.saved_tools.get() {
            return Ok(Arc::clone(tools));
        }
        let tools = SavedTools::open(&self.paths.saved_tools())?;
        Ok(Arc::clone(self.saved_tools.get_or_init(|| Arc::new(tools))))
    }

    /// Saved functions as a new interpreter takes them.
    pub(crate) fn saved_tools_for_guest(&self) -> Value {
        // Without the folder there is nothing saved; making it is for whoever saves.
        if !self.paths.saved_tools().is_dir() {
            return json!([]);
        }
        match self.saved_tools().and_then(|tools| tools.load_all()) {
            Ok(list) => list
                .tools
                .into_iter()
                .map(|tool| json!({"name": tool.name, "source": tool.source}))
                .collect(),
            Err(error) => {
                tracing::warn!("saved tools cannot be read: {error}");
                json!([])
            }
        }
    }

    /// The manual, with the limits in force.
    pub fn manual(&self) -> String {
        let settings = self.settings();
        let limits = &settings.limits;
        manual::text(&ManualLimits {
            run_seconds: limits.run_ms_default / 1000,
            run_seconds_max: limits.run_ms_max / 1000,
            memory_bytes_max: limits.memory_bytes_max,
            tmp_bytes_max: limits.tmp_bytes_max,
            workspace_bytes_max: limits.workspace_bytes_max,
            calls_max: limits.calls_max,
            calls_at_once_max: limits.calls_at_once_max,
            call_seconds_max: limits.call_ms_max / 1000,
            reply_chars_max: limits.reply_chars_max as usize,
            value_bytes_max: limits.memory_value_bytes_max as usize,
            keys_max: limits.memory_keys_max as usize,
        })
    }
}

/// What the user told us, with the secrets among it looked up. One that cannot be had is missing, and
/// what needs it says so.
async fn answers(settings: &Settings, secrets: &Secrets) -> BTreeMap<String, String> {
    let mut answers = BTreeMap::new();
    for (name, answer) in &settings.answers {
        let Some(secret) = Secrets::reference(answer) else {
            answers.insert(name.clone(), answer.clone());
            continue;
        };
        match secrets.get(secret).await {
            Ok(Some(secret)) => {
                answers.insert(name.clone(), secret.expose().to_owned());
            }
            Ok(None) => tracing::warn!("there is no secret `{secret}`"),
            Err(error) => tracing::warn!("{error}"),
        }
    }
    answers
}

/// What of the limits concerns servers.
fn upstream_limits(limits: &Limits) -> UpstreamLimits {
    UpstreamLimits {
        start_ms_max: limits.server_start_ms_max,
        start_download_ms_max: limits.server_start_ms_max.saturating_mul(2),
        call_ms_max: limits.call_ms_max,
        idle_ms_max: limits.server_idle_ms_max,
    }
}

/// The login environment, asked for once and in the background.
fn login_env(environment: &Environment) -> LoginEnv {
    let asked = LoginEnvironment::new(environment.clone());
    LoginEnv::of(async move { asked.variables().await })
}

/// Names this process to the container engine: unique, and readable in a list of containers.
fn owner_id() -> String {
    let mut random = [0_u8; 6];
    // The process id alone still tells owners on one machine apart.
    let _ = getrandom::fill(&mut random);
    let random = random
        .iter()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{}-{random:012x}", std::process::id())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
