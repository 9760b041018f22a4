//! Where Python runs: in a container, or in the built-in sandbox. Each is opened in the background
//! before the first run needs it, opened anew after a failure or when the settings that shape it
//! have changed; which of them a session gets is decided here. Knows engines by their choice only.

mod place;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use runbridge_sandbox::container::{
    self, ContainerConfig, ContainerSandbox, EngineChoice, EnginePlace, EngineSearch, Progress,
};
use runbridge_sandbox::wasi::{Wasi, WasiFacts, WorkerCommand};
use runbridge_sandbox::{Guest, Interpreter, LimitFact, OutputSink, SandboxError, SandboxLimits};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use self::place::{Opening, Place};
use crate::api::SandboxKind;
use crate::packages::{Packages, Target};
use crate::paths::{Environment, Os, Paths};
use crate::settings::{Backend, Engine, PackagesPolicy, Settings};

pub use runbridge_sandbox::container::ContainerFacts;
pub use runbridge_sandbox::wasi::worker_main;

/// The argument that makes the sidecar a worker of the built-in sandbox; what follows it is for
/// [`worker_main`].
pub const WORKER: &str = "__worker";

/// A guest that says nothing for so long after it was started will not.
const GREETING_WITHIN: Duration = Duration::from_secs(20);

/// How long a shutdown waits for a container sandbox that is being opened.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// How long a worker lets an interrupted run stop by itself, before it ends the run and goes on
/// from where the last one left its guest: shorter than the grace after which a run's driver ends
/// the worker.
const WORKER_GRACE_MS: u64 = 1_000;

/// What makes two container sandboxes differ.
#[derive(Clone, Debug, PartialEq)]
struct Shape {
    engine: Engine,
    image: String,
    user: String,
    limits: SandboxLimits,
    spares: usize,
    /// Guests see what is installed.
    packages: bool,
    /// Nothing slow is done for it. One that was opened without this serves all the same.
    only_ready: bool,
}

/// Workers of the built-in sandbox that wait for a session.
struct SpareWorkers {
    limits: SandboxLimits,
    count: usize,
}

impl SpareWorkers {
    fn of(settings: &Settings) -> Self {
        Self {
            limits: settings.limits.sandbox(),
            count: settings.sandbox.spares as usize,
        }
    }
}

/// Another maker of guests, in place of an engine. Tests have one that executes scripts.
pub trait Guests: Send + Sync + 'static {
    /// Start one.
    fn start(&self) -> BoxFuture<'static, Result<Guest, SandboxError>>;

    /// What is true of all of them.
    fn facts(&self) -> SandboxFacts;
}

impl Shape {
    /// Whether what was opened, or is being opened, for this serves who wants the other.
    fn serves(&self, wanted: &Self, open: bool) -> bool {
        let same = Self {
            only_ready: wanted.only_ready,
            ..self.clone()
        };
        same == *wanted && (open || wanted.only_ready || !self.only_ready)
    }
}

/// How far the sandbox is that a new session would get.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It is being opened, or nobody has needed it yet.
    Opening,
    /// Runs can start.
    Open {
        /// In which kind.
        kind: SandboxKind,
        /// Its user on this machine is not root.
        rootless: bool,
    },
    /// Runs cannot start.
    Failed(Arc<SandboxError>),
}

/// The sandboxes of this process, and how far they are.
pub struct Sandboxes {
    owner: String,
    /// Containers of one shape after another: each owns its own under a name of its own, since the old
    /// ones live on until their last interpreter has ended.
    opened: AtomicU64,
    given: Option<Arc<dyn Guests>>,
    lock_folder: PathBuf,
    search: EngineSearch,
    sidecar: Option<PathBuf>,
    python_folders: Vec<PathBuf>,
    python_cache: PathBuf,
    packages: Packages,
    /// Whether new guests see what is installed.
    packages_on: Arc<AtomicBool>,
    containers: Place<Shape, ContainerSandbox>,
    builtin: Place<(), Wasi>,
    /// It was there and could not be used: an automatic choice does not count on it again.
    builtin_broken: AtomicBool,
    /// Counts openings that were prepared and are done.
    settled: watch::Sender<u64>,
    pulled: watch::Sender<Option<(u64, u64)>>,
}

/// A sandbox that is open.
#[derive(Clone)]
pub enum Sandbox {
    /// A container engine.
    Container(Arc<ContainerSandbox>),
    /// The built-in Python.
    Wasi(Arc<Wasi>),
}

/// What is true of the sandbox of one session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SandboxFacts {
    /// A container.
    Container(ContainerFacts),
    /// The built-in Python.
    Wasi(WasiFacts),
}

impl SandboxFacts {
    /// Which kind.
    pub fn kind(&self) -> SandboxKind {
        match self {
            Self::Container(_) => SandboxKind::Container,
            Self::Wasi(_) => SandboxKind::Wasi,
        }
    }

    /// In a few words, such as `podman (rootless)`.
    pub fn name(&self) -> String {
        match self {
            Self::Container(facts) if facts.rootless => format!("{} (rootless)", facts.engine),
            Self::Container(facts) => facts.engine.to_string(),
            Self::Wasi(_) => "built-in".to_owned(),
        }
    }

    /// Each limit by its name, and what became of it.
    pub fn limits(&self) -> &BTreeMap<&'static str, LimitFact> {
        match self {
            Self::Container(facts) => &facts.limits,
            Self::Wasi(facts) => &facts.limits,
        }
    }

    /// A sentence for each thing that is weaker than asked for.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Container(facts) => &facts.warnings,
            Self::Wasi(facts) => &facts.warnings,
        }
    }
}

impl Sandbox {
    /// What is true of guests that are started in it now.
    pub fn facts(&self, limits: &SandboxLimits) -> SandboxFacts {
        match self {
            Self::Container(sandbox) => SandboxFacts::Container(sandbox.facts().clone()),
            Self::Wasi(sandbox) => SandboxFacts::Wasi(sandbox.facts(limits)),
        }
    }
}

/// A new interpreter, with what is true of the sandbox that it is in.
pub struct Started {
    /// It takes runs.
    pub interpreter: Interpreter,
    /// Its session keeps to this kind.
    pub facts: Arc<SandboxFacts>,
}

impl Sandboxes {
    /// Nothing is opened yet. `owner` names this process to the engine. Guests that are `given` are
    /// taken and no engine is looked for.
    pub fn new(
        paths: &Paths,
        environment: &Environment,
        owner: String,
        given: Option<Arc<dyn Guests>>,
    ) -> Self {
        Self {
            owner,
            opened: AtomicU64::new(0),
            given,
            lock_folder: paths.runtime.join("owners"),
            search: engine_search(environment, paths),
            sidecar: environment.sidecar().map(Path::to_owned),
            python_folders: environment.python_folders(),
            python_cache: paths.python_cache(),
            packages: Packages::new(paths),
            packages_on: Arc::new(AtomicBool::new(false)),
            containers: Place::default(),
            builtin: Place::default(),
            builtin_broken: AtomicBool::new(false),
            settled: watch::Sender::new(0),
            pulled: watch::Sender::new(None),
        }
    }

    /// What the opening of a kind of sandbox is doing, for whoever waits for it.
    pub fn progress(&self, kind: SandboxKind) -> watch::Receiver<Option<String>> {
        match kind {
            SandboxKind::Container => self.containers.progress(),
            SandboxKind::Wasi => self.builtin.progress(),
        }
    }

    /// Begin to open what these settings will need, without waiting.
    pub fn prepare(self: &Arc<Self>, settings: &Settings) {
        if self.given.is_some() {
            return;
        }
        self.heed_packages(settings);
        match settings.sandbox.backend {
            Backend::Container => self.wait_for(self.container_opening(settings, false)),
            Backend::Wasi => {
                let (this, spares) = (self.clone(), SpareWorkers::of(settings));
                tokio::spawn(async move { this.open_with(spares).await });
            }
            Backend::Auto => {
                let only_ready = self.counts_on_builtin();
                let container = self.container_opening(settings, only_ready);
                let (this, spares) = (self.clone(), SpareWorkers::of(settings));
                tokio::spawn(async move {
                    // Where a container is ready, compiling the built-in Python would be for nothing.
                    if container.await.is_err() && this.counts_on_builtin() {
                        return this.open_with(spares).await;
                    }
                    this.settled.send_modify(|times| *times += 1);
                });
            }
        }
    }

    fn heed_packages(&self, settings: &Settings) {
        let on = settings.packages.policy != PackagesPolicy::Off;
        self.packages_on.store(on, Ordering::Relaxed);
    }

    /// Open the built-in sandbox, have workers wait in it, and tell that it is done.
    async fn open_with(self: Arc<Self>, spares: SpareWorkers) {
        // Whoever needs it hears of a failure.
        if let Ok(wasi) = self.builtin().await
            && let Err(error) = wasi.keep_spares(&spares.limits, WORKER_GRACE_MS, spares.count)
        {
            tracing::debug!(%error, "no spare worker");
        }
        self.settled.send_modify(|times| *times += 1);
    }

    /// Open it whether or not somebody waits, and tell that it is done.
    fn wait_for<T: Send + Sync + 'static>(self: &Arc<Self>, opening: Opening<T>) {
        let this = self.clone();
        tokio::spawn(async move {
            // Whoever needs it hears of a failure.
            let _ = opening.await;
            this.settled.send_modify(|times| *times += 1);
        });
    }

    /// Differs whenever an opening that was prepared has come to its end.
    pub fn settled(&self) -> watch::Receiver<u64> {
        self.settled.subscribe()
    }

    /// How much of an image has been pulled and how much there is, while one is.
    pub fn pulled(&self) -> Option<(u64, u64)> {
        *self.pulled.borrow()
    }

    /// The container sandbox for these settings, once it is open, be that slow.
    pub async fn container(
        self: &Arc<Self>,
        settings: &Settings,
    ) -> Result<Arc<ContainerSandbox>, Arc<SandboxError>> {
        let opening = self.container_opening(settings, false);
        self.containers.opened(opening).await
    }

    /// As [`Sandboxes::container`], if it is there without anything slow.
    pub async fn ready_container(
        self: &Arc<Self>,
        settings: &Settings,
    ) -> Result<Arc<ContainerSandbox>, Arc<SandboxError>> {
        let opening = self.container_opening(settings, true);
        self.containers.opened(opening).await
    }

    /// The built-in sandbox, once it is ready.
    pub async fn builtin(self: &Arc<Self>) -> Result<Arc<Wasi>, Arc<SandboxError>> {
        let opening = self.builtin_opening();
        self.builtin.opened(opening).await
    }

    /// The sandbox for a new interpreter, of the kind that its session has if it has one. `report`
    /// hears what has to be waited for.
    pub async fn choose(
        self: &Arc<Self>,
        settings: &Settings,
        session: Option<SandboxKind>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Sandbox, Arc<SandboxError>> {
        match (settings.sandbox.backend, session) {
            (Backend::Container, _) | (Backend::Auto, Some(SandboxKind::Container)) => {
                let opened = self.containers.told(self.container(settings), report);
                opened.await.map(Sandbox::Container)
            }
            (Backend::Wasi, _) | (Backend::Auto, Some(SandboxKind::Wasi)) => {
                let opened = self.builtin.told(self.builtin(), report);
                opened.await.map(Sandbox::Wasi)
            }
            (Backend::Auto, None) => self.readiest(settings, report).await,
        }
    }

    /// How far the sandbox is that these settings ask for, for a person who looks.
    pub fn standing(&self, settings: &Settings) -> Standing {
        if let Some(given) = &self.given {
            return Standing::Open {
                kind: given.facts().kind(),
                rootless: true,
            };
        }
        let container = || match self.containers.peek() {
            None => Standing::Opening,
            Some(Ok(sandbox)) => Standing::Open {
                kind: SandboxKind::Container,
                rootless: sandbox.facts().rootless,
            },
            Some(Err(error)) => Standing::Failed(error),
        };
        let builtin = || match self.builtin.peek() {
            None => Standing::Opening,
            Some(Ok(_)) => Standing::Open {
                kind: SandboxKind::Wasi,
                rootless: true,
            },
            Some(Err(error)) => Standing::Failed(error),
        };
        match settings.sandbox.backend {
            Backend::Container => container(),
            Backend::Wasi => builtin(),
            Backend::Auto => match (container(), builtin()) {
                (open @ Standing::Open { .. }, _) | (_, open @ Standing::Open { .. }) => open,
                (Standing::Failed(_), Standing::Opening) if self.counts_on_builtin() => {
                    Standing::Opening
                }
                (container, _) => container,
            },
        }
    }

    /// How far the built-in Python is, with its version; `None`: it is being prepared.
    pub fn builtin_standing(&self) -> Option<Result<String, Arc<SandboxError>>> {
        match self.builtin.peek() {
            Some(Ok(wasi)) => Some(Ok(wasi.python().to_owned())),
            Some(Err(error)) => Some(Err(error)),
            None if self.builtin.is_wanted() => None,
            // Nobody has needed it yet.
            None => Some(
                self.find_python()
                    .and_then(|folder| Wasi::python_in(folder))
                    .map_err(Arc::new),
            ),
        }
    }

    /// Begin to open anew what is not open, whatever happened a moment ago.
    pub fn again(self: &Arc<Self>, settings: &Settings) {
        self.containers.forget_failure();
        self.builtin.forget_failure();
        self.builtin_broken.store(false, Ordering::Relaxed);
        self.prepare(settings);
    }

    /// Begin to do all that a container takes, be it slow: somebody asked for it.
    pub fn pull(self: &Arc<Self>, settings: &Settings) {
        self.containers.forget_failure();
        self.wait_for(self.container_opening(settings, false));
    }

    /// Every place where an engine may be, with what is there. Starts none.
    pub async fn look_for_engines(&self) -> Vec<EnginePlace> {
        container::look_for_engines(&self.search).await
    }

    /// What a session would get that begins now, as far as that is open.
    pub fn facts(&self, settings: &Settings) -> Option<SandboxFacts> {
        if let Some(given) = &self.given {
            return Some(given.facts());
        }
        let container = || self.containers.open().map(Sandbox::Container);
        let builtin = || self.builtin.open().map(Sandbox::Wasi);
        let sandbox = match settings.sandbox.backend {
            Backend::Container => container(),
            Backend::Wasi => builtin(),
            Backend::Auto => container().or_else(builtin),
        }?;
        Some(sandbox.facts(&settings.limits.sandbox()))
    }

    /// Start an interpreter whose output goes to `sink`; as [`Sandboxes::choose`].
    pub async fn start(
        self: &Arc<Self>,
        settings: &Settings,
        session: Option<SandboxKind>,
        sink: Box<dyn OutputSink>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Started, Arc<SandboxError>> {
        if let Some(given) = &self.given {
            let guest = given.start().await.map_err(Arc::new)?;
            let interpreter = Interpreter::attach(guest, sink, GREETING_WITHIN).await;
            return Ok(Started {
                interpreter: interpreter.map_err(Arc::new)?,
                facts: Arc::new(given.facts()),
            });
        }
        self.heed_packages(settings);
        let sandbox = self.choose(settings, session, report).await?;
        let limits = settings.limits.sandbox();
        let started = async {
            let guest = match &sandbox {
                Sandbox::Container(container) => container.start().await?,
                Sandbox::Wasi(wasi) => wasi.start(&limits, WORKER_GRACE_MS)?,
            };
            Interpreter::attach(guest, sink, GREETING_WITHIN).await
        };
        match started.await {
            Ok(interpreter) => Ok(Started {
                interpreter,
                facts: Arc::new(sandbox.facts(&limits)),
            }),
            Err(error) => Err(Arc::new(self.not_started(&sandbox, error))),
        }
    }

    /// End every container, also of a sandbox that is still being opened, unless that waits for
    /// something slow: then nothing has been started yet. Workers end with their interpreters, and
    /// those that wait for one here.
    pub async fn shut_down(&self) {
        if let Some(Some(Ok(wasi))) = self.builtin.clear().map(|opening| opening.peek().cloned()) {
            wasi.end_spares().await;
        }
        let mut slow = self.containers.progress();
        let Some(opening) = self.containers.clear() else {
            return;
        };
        let opened = tokio::select! {
            opened = tokio::time::timeout(OPEN_WITHIN, opening) => opened.ok(),
            _ = slow.wait_for(Option::is_some) => None,
        };
        if let Some(Ok(sandbox)) = opened {
            sandbox.shut_down().await;
        }
    }

    /// For a session that takes what is ready: a container if its engine and image are, else the
    /// built-in sandbox at once. If that must be compiled first, whichever is ready first.
    async fn readiest(
        self: &Arc<Self>,
        settings: &Settings,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Sandbox, Arc<SandboxError>> {
        if self.counts_on_builtin() {
            let container = self.container_opening(settings, true);
            // Nobody may wait for it, and yet a later session shall find it open.
            tokio::spawn(container.clone());
            let container = self.containers.opened(container);
            let builtin = self.builtin.told(self.builtin(), report);
            tokio::pin!(container, builtin);
            let failed = match container.as_mut().now_or_never() {
                Some(Ok(open)) => return Ok(Sandbox::Container(open)),
                Some(Err(_)) => true,
                None => false,
            };
            tokio::select! {
                biased;
                Ok(open) = builtin => return Ok(Sandbox::Wasi(open)),
                Ok(open) = container, if !failed => return Ok(Sandbox::Container(open)),
                else => {}
            }
        }
        // There is nothing to fall back on: what a container takes to be ready is done and waited for.
        let opened = self.containers.told(self.container(settings), report).await;
        let error = match opened {
            Ok(open) => return Ok(Sandbox::Container(open)),
            Err(error) => error,
        };
        match (&*error, self.builtin().await) {
            (SandboxError::NoEngine { tried }, Err(builtin)) => {
                let mut tried = tried.clone();
                tried.push(builtin.to_string());
                Err(Arc::new(SandboxError::NoEngine { tried }))
            }
            _ => Err(error),
        }
    }

    /// Whether a session that takes what is ready can have the built-in sandbox, as far as is known.
    fn counts_on_builtin(&self) -> bool {
        self.python_folder().is_some() && !self.builtin_broken.load(Ordering::Relaxed)
    }

    fn not_started(&self, sandbox: &Sandbox, error: SandboxError) -> SandboxError {
        match sandbox {
            Sandbox::Container(container) => {
                // The engine may have gone: the next run looks for one again.
                if matches!(error, SandboxError::Engine { .. }) {
                    self.containers.forget(container);
                }
                error
            }
            Sandbox::Wasi(wasi) => {
                self.builtin.forget(wasi);
                match error {
                    SandboxError::GuestStart { reason } => SandboxError::WorkerStart { reason },
                    error => error,
                }
            }
        }
    }

    fn container_opening(
        self: &Arc<Self>,
        settings: &Settings,
        only_ready: bool,
    ) -> Opening<ContainerSandbox> {
        let shape = Shape {
            engine: settings.sandbox.engine,
            image: settings.sandbox.image.clone(),
            user: settings.sandbox.container_user.clone(),
            limits: settings.limits.sandbox(),
            spares: settings.sandbox.spares as usize,
            packages: self.may_see_packages(settings),
            only_ready,
        };
        let serves = |opened: &Shape, open| opened.serves(&shape, open);
        self.containers.opening(serves, || {
            let opening = self.clone().open_container(shape.clone());
            (shape.clone(), opening.boxed().shared())
        })
    }

    /// Whether the user has said yes to packages. Until then a container sees nothing of this machine,
    /// not even that there is a folder.
    fn may_see_packages(&self, settings: &Settings) -> bool {
        match settings.packages.policy {
            PackagesPolicy::Off => false,
            PackagesPolicy::Ask => !self.packages.are_none(),
            PackagesPolicy::Allow => true,
        }
    }

    fn builtin_opening(self: &Arc<Self>) -> Opening<Wasi> {
        self.builtin.opening(
            |(), _| true,
            || ((), self.clone().open_builtin().boxed().shared()),
        )
    }

    async fn open_container(
        self: Arc<Self>,
        shape: Shape,
    ) -> Result<Arc<ContainerSandbox>, Arc<SandboxError>> {
        let packages = self.packages.clone();
        let folder = tokio::task::spawn_blocking(move || packages.folder());
        let folder = folder.await.map_err(std::io::Error::other).flatten();
        if let Err(error) = &folder {
            tracing::warn!("the folder of packages cannot be made: {error}");
        }
        let config = ContainerConfig {
            engine: match shape.engine {
                Engine::Auto => EngineChoice::Auto,
                forced @ (Engine::Podman | Engine::Docker) => {
                    EngineChoice::Forced(forced.as_str().to_owned())
                }
            },
            image: shape.image,
            user: shape.user,
            limits: shape.limits,
            owner: match self.opened.fetch_add(1, Ordering::Relaxed) {
                0 => self.owner.clone(),
                before => format!("{}-{before}", self.owner),
            },
            owner_lock_dir: self.lock_folder.clone(),
            packages: folder.ok().filter(|_| shape.packages),
            search: self.search.clone(),
            spares: shape.spares,
            only_ready: shape.only_ready,
        };
        let this = self.clone();
        let report = Arc::new(move |step: Progress| {
            this.pulled.send_replace(match &step {
                Progress::PullingImage {
                    bytes_done,
                    bytes_total,
                    ..
                } => Some((*bytes_done, *bytes_total)),
                Progress::StartingEngine { .. } => None,
            });
            this.containers.is_doing(step.to_string());
        });
        let opened = ContainerSandbox::open(config, report).await;
        self.pulled.send_replace(None);
        self.containers.is_done();
        match opened {
            Ok(sandbox) => {
                let facts = sandbox.facts();
                tracing::info!(
                    engine = ?facts.engine, version = facts.version, rootless = facts.rootless,
                    socket = facts.socket, image = facts.image, "the container sandbox is ready",
                );
                for warning in &facts.warnings {
                    tracing::warn!("{warning}");
                }
                Ok(Arc::new(sandbox))
            }
            Err(error) if shape.only_ready => {
                tracing::info!("no container for now: {error}");
                Err(Arc::new(error))
            }
            Err(error) => {
                tracing::warn!("{error}");
                Err(Arc::new(error))
            }
        }
    }

    async fn open_builtin(self: Arc<Self>) -> Result<Arc<Wasi>, Arc<SandboxError>> {
        let opened = self.prepare_builtin().await;
        self.builtin.is_done();
        self.builtin_broken
            .store(opened.is_err(), Ordering::Relaxed);
        match opened {
            Ok(wasi) => {
                tracing::info!("the built-in sandbox is ready");
                let (packages, on) = (self.packages.clone(), Arc::clone(&self.packages_on));
                let target = Target::new(SandboxKind::Wasi, wasi.python());
                Ok(Arc::new(wasi.with_packages(move || {
                    let target = target.as_ref().filter(|_| on.load(Ordering::Relaxed));
                    target.map_or_else(Vec::new, |target| packages.paths_for(target))
                })))
            }
            Err(error) => {
                tracing::warn!("{error}");
                Err(Arc::new(error))
            }
        }
    }

    async fn prepare_builtin(&self) -> Result<Wasi, SandboxError> {
        const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
        let program = self
            .sidecar
            .clone()
            .ok_or_else(|| SandboxError::ModuleMissing {
                reason: "nobody knows where Runbridge's own program is".to_owned(),
            })?;
        let folder = self.find_python()?;
        let worker = WorkerCommand {
            program,
            arguments: vec![WORKER.into()],
        };
        if let Some(ready) = Wasi::open(folder, &self.python_cache, worker.clone())? {
            return Ok(ready);
        }
        let began = Instant::now();
        let mut signs = tokio::time::interval(SIGN_OF_LIFE);
        let prepared = Wasi::prepare(folder, &self.python_cache, worker);
        tokio::pin!(prepared);
        loop {
            tokio::select! {
                prepared = &mut prepared => return prepared,
                _ = signs.tick() => self.builtin.is_doing(format!(
                    "preparing the built-in Python for this machine, once: {} s",
                    began.elapsed().as_secs()
                )),
            }
        }
    }

    /// Where the built-in Python is. Looked for each time: it may be installed meanwhile.
    fn python_folder(&self) -> Option<&PathBuf> {
        let holds_it = |folder: &&PathBuf| folder.join("inventory.json").is_file();
        self.python_folders.iter().find(holds_it)
    }

    fn find_python(&self) -> Result<&PathBuf, SandboxError> {
        self.python_folder().ok_or_else(|| {
            let places: Vec<_> = self
                .python_folders
                .iter()
                .map(|folder| folder.display().to_string())
                .collect();
            SandboxError::ModuleMissing {
                reason: format!("it is not in {}", places.join(" or ")),
            }
        })
    }
}

fn engine_search(environment: &Environment, paths: &Paths) -> EngineSearch {
    use runbridge_sandbox::container::Os as EngineOs;
    let mut search = EngineSearch::bare();
    search.os = match environment.os() {
        Os::Linux => EngineOs::Linux,
        Os::Macos => EngineOs::Macos,
        Os::Windows => EngineOs::Windows,
    };
    #[cfg(unix)]
    {
        search.uid = Some(rustix::process::geteuid().as_raw());
    }
    search.home = Some(paths.home.clone());
    search.temp_dir = environment.folder("TMPDIR");
    search.xdg_runtime_dir = environment.folder("XDG_RUNTIME_DIR");
    search.path = environment.get("PATH").map(Into::into);
    search.container_host = environment.filled("CONTAINER_HOST").map(str::to_owned);
    search.docker_host = environment.filled("DOCKER_HOST").map(str::to_owned);
    search.docker_context = environment.filled("DOCKER_CONTEXT").map(str::to_owned);
    search.docker_config_dir = environment.folder("DOCKER_CONFIG");
    search
}
