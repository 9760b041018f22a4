//! The sandbox that runs use: opened in the background before the first run needs it, opened anew
//! after a failure or when the settings that shape it have changed. Knows engines by their choice
//! only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use runbridge_sandbox::container::{
    self, ContainerConfig, ContainerSandbox, EngineChoice, EnginePlace, EngineSearch, Progress,
    SandboxFacts,
};
use runbridge_sandbox::{Guest, Interpreter, OutputSink, SandboxError, SandboxLimits};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::SandboxKind;
use crate::paths::{Environment, Os, Paths};
use crate::settings::{Engine, Settings};

/// A guest that says nothing for so long after its container has started will not.
const GREETING_WITHIN: Duration = Duration::from_secs(20);

/// A failure is given to every run that comes so soon after it, so that a burst of runs does not
/// search for an engine once each.
const FAILURE_KEPT: Duration = Duration::from_secs(2);

/// How long a shutdown waits for a sandbox that is being opened.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

type Opening = Shared<BoxFuture<'static, Result<Arc<ContainerSandbox>, Arc<SandboxError>>>>;

/// What makes two sandboxes differ.
#[derive(Clone, Debug, PartialEq)]
struct Shape {
    engine: Engine,
    image: String,
    user: String,
    limits: SandboxLimits,
    spares: usize,
}

/// Another maker of guests, in place of an engine. Tests have one that executes scripts.
pub trait Guests: Send + Sync + 'static {
    /// Start one.
    fn start(&self) -> BoxFuture<'static, Result<Guest, SandboxError>>;
}

/// How far the sandbox is.
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

/// The one sandbox of this process, and how far it is.
pub struct Sandboxes {
    owner: String,
    /// Sandboxes opened so far. One that is replaced lives on until its last interpreter has ended,
    /// so each owns its containers under a name of its own.
    opened: AtomicU64,
    given: Option<Arc<dyn Guests>>,
    lock_folder: std::path::PathBuf,
    search: EngineSearch,
    current: Mutex<Option<Current>>,
    /// What the opening is doing, in words; `None` when nothing is under way.
    progress: watch::Sender<Option<String>>,
}

struct Current {
    shape: Shape,
    opening: Opening,
    failed_at: Option<Instant>,
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
            current: Mutex::new(None),
            progress: watch::Sender::new(None),
        }
    }

    /// What the opening is doing, for whoever waits for it.
    pub fn progress(&self) -> watch::Receiver<Option<String>> {
        self.progress.subscribe()
    }

    /// Begin to open the sandbox for these settings, without waiting.
    pub fn prepare(self: &Arc<Self>, settings: &Settings) {
        if self.given.is_none() {
            let opening = self.opening(settings);
            tokio::spawn(opening);
        }
    }

    /// The sandbox for these settings, once it is open.
    pub async fn get(
        self: &Arc<Self>,
        settings: &Settings,
    ) -> Result<Arc<ContainerSandbox>, Arc<SandboxError>> {
        let opening = self.opening(settings);
        let opened = opening.clone().await;
        if opened.is_err()
            && let Some(current) = lock(&self.current).as_mut()
            && current.opening.ptr_eq(&opening)
        {
            current.failed_at.get_or_insert_with(Instant::now);
        }
        opened
    }

    /// What is known of the sandbox in use, if one is open.
    pub fn facts(&self) -> Option<SandboxFacts> {
        match lock(&self.current).as_ref()?.opening.peek()? {
            Ok(sandbox) => Some(sandbox.facts().clone()),
            Err(_) => None,
        }
    }

    /// How far it is, for a person who looks.
    pub fn standing(&self) -> Standing {
        if self.given.is_some() {
            return Standing::Open {
                kind: SandboxKind::Container,
                rootless: true,
            };
        }
        let current = lock(&self.current);
        let opened = current.as_ref().and_then(|current| current.opening.peek());
        match opened {
            None => Standing::Opening,
            Some(Ok(sandbox)) => Standing::Open {
                kind: SandboxKind::Container,
                rootless: sandbox.facts().rootless,
            },
            Some(Err(error)) => Standing::Failed(Arc::clone(error)),
        }
    }

    /// Begin to open it anew if it is not open, whatever happened a moment ago.
    pub fn again(self: &Arc<Self>, settings: &Settings) {
        {
            let mut current = lock(&self.current);
            let failed = current
                .as_ref()
                .is_some_and(|current| matches!(current.opening.peek(), Some(Err(_))));
            if failed {
                *current = None;
            }
        }
        self.prepare(settings);
    }

    /// Every place where an engine may be, with what is there. Starts none.
    pub async fn look_for_engines(&self) -> Vec<EnginePlace> {
        container::look_for_engines(&self.search).await
    }

    /// The kind of the sandbox in use, if one is open.
    pub fn kind(&self) -> Option<SandboxKind> {
        (self.given.is_some() || self.facts().is_some()).then_some(SandboxKind::Container)
    }

    /// Start an interpreter whose output goes to `sink`.
    pub async fn start(
        self: &Arc<Self>,
        settings: &Settings,
        sink: Box<dyn OutputSink>,
    ) -> Result<Interpreter, Arc<SandboxError>> {
        if let Some(given) = &self.given {
            let guest = given.start().await.map_err(Arc::new)?;
            let attached = Interpreter::attach(guest, sink, GREETING_WITHIN).await;
            return attached.map_err(Arc::new);
        }
        let sandbox = self.get(settings).await?;
        let started = async {
            let guest = sandbox.start().await?;
            Interpreter::attach(guest, sink, GREETING_WITHIN).await
        };
        started.await.map_err(|error| {
            // The engine may have gone: the next run looks for one again.
            if matches!(error, SandboxError::Engine { .. }) {
                self.forget(&sandbox);
            }
            Arc::new(error)
        })
    }

    /// End every sandbox, also one that is still being opened, unless that waits for something
    /// slow: then nothing has been started yet.
    pub async fn shut_down(&self) {
        let Some(current) = lock(&self.current).take() else {
            return;
        };
        let mut slow = self.progress.subscribe();
        let opened = tokio::select! {
            opened = tokio::time::timeout(OPEN_WITHIN, current.opening) => opened.ok(),
            _ = slow.wait_for(Option::is_some) => None,
        };
        if let Some(Ok(sandbox)) = opened {
            sandbox.shut_down().await;
        }
    }

    fn opening(self: &Arc<Self>, settings: &Settings) -> Opening {
        let shape = Shape {
            engine: settings.sandbox.engine,
            image: settings.sandbox.image.clone(),
            user: settings.sandbox.container_user.clone(),
            limits: settings.limits.sandbox(),
            spares: settings.sandbox.spares as usize,
        };
        let mut current = lock(&self.current);
        if let Some(current) = current.as_ref()
            && current.shape == shape
            && current
                .failed_at
                .is_none_or(|at| at.elapsed() < FAILURE_KEPT)
        {
            return current.opening.clone();
        }
        let opening = self.clone().open(shape.clone()).boxed().shared();
        *current = Some(Current {
            shape,
            opening: opening.clone(),
            failed_at: None,
        });
        opening
    }

    async fn open(
        self: Arc<Self>,
        shape: Shape,
    ) -> Result<Arc<ContainerSandbox>, Arc<SandboxError>> {
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
            search: self.search.clone(),
            spares: shape.spares,
        };
        let progress = self.progress.clone();
        let report = Arc::new(move |step: Progress| {
            let step = step.to_string();
            tracing::info!("{step}");
            progress.send_replace(Some(step));
        });
        let opened = ContainerSandbox::open(config, report).await;
        self.progress.send_replace(None);
        match opened {
            Ok(sandbox) => {
                let facts = sandbox.facts();
                tracing::info!(
                    engine = ?facts.engine, version = facts.version, rootless = facts.rootless,
                    socket = facts.socket, image = facts.image, "the sandbox is ready",
                );
                for warning in &facts.warnings {
                    tracing::warn!("{warning}");
                }
                Ok(Arc::new(sandbox))
            }
            Err(error) => {
                tracing::warn!("{error}");
                Err(Arc::new(error))
            }
        }
    }

    fn forget(&self, sandbox: &Arc<ContainerSandbox>) {
        let mut current = lock(&self.current);
        let is_current = current.as_ref().is_some_and(|current| {
            matches!(current.opening.peek(), Some(Ok(open)) if Arc::ptr_eq(open, sandbox))
        });
        if is_current {
            *current = None;
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
