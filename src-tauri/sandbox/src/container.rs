//! Backend 1: a container of Docker or Podman.
//!
//! Knows engines, images and limits, and nothing of what a guest says: it hands out byte streams.
//! A started container is always somebody's: a spare's, a [`Guest`]'s, or a task's that ends it.

mod engine;
mod image;
mod live;
mod owner;
mod reap;
mod spec;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::engine::search::{EngineSearch, Os};
pub use self::engine::{EngineChoice, EngineKind};
use self::live::Shared;
use self::owner::Owners;
use crate::{Enforcement, Guest, LimitFact, Mounting, SandboxError, SandboxLimits, guest};

/// What a sandbox needs to be told.
#[derive(Clone, Debug)]
pub struct ContainerConfig {
    /// Which engine.
    pub engine: EngineChoice,
    /// The image's reference. `python3` must be in its `PATH`.
    pub image: String,
    /// `uid:gid` inside the container.
    pub user: String,
    /// What the engine must enforce.
    pub limits: SandboxLimits,
    /// Unique to this process: up to 64 letters, digits and dashes. It becomes part of the
    /// containers' names and labels.
    pub owner: String,
    /// Folder in which each live owner holds a lock file, so that others can tell the dead.
    pub owner_lock_dir: PathBuf,
    /// A folder of this machine that guests see as `/packages`, to read and not to write. What comes
    /// into it later is seen at once.
    pub packages: Option<PathBuf>,
    /// Facts of the environment.
    pub search: EngineSearch,
    /// How many started containers wait for a guest to be wanted.
    pub spares: usize,
    /// Take only what is there: no machine is started and no image pulled, which takes minutes and
    /// memory that nobody may have asked for.
    pub only_ready: bool,
}

/// What takes so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// An engine that was not running is started.
    StartingEngine {
        /// Which.
        engine: String,
    },
    /// The image is pulled.
    PullingImage {
        /// Which.
        image: String,
        /// Bytes that have arrived.
        bytes_done: u64,
        /// Bytes in all layers known so far; grows while the engine learns of more.
        bytes_total: u64,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartingEngine { engine } => write!(f, "starting {engine}"),
            Self::PullingImage {
                image,
                bytes_done,
                bytes_total,
            } => match bytes_total {
                // The registry has not said yet what there is.
                0 => write!(f, "pulling {image}"),
                _ => write!(
                    f,
                    "pulling {image}: {} of {} MB",
                    bytes_done / 1_000_000,
                    bytes_total.div_ceil(1_000_000)
                ),
            },
        }
    }
}

/// What is true of an open sandbox, measured rather than asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContainerFacts {
    /// `container`
    pub backend: &'static str,
    /// The engine's kind.
    pub engine: EngineKind,
    /// The engine's version.
    pub version: String,
    /// Where it listens.
    pub socket: String,
    /// Whether it runs without root's rights.
    pub rootless: bool,
    /// 1 or 2, where the engine tells.
    pub cgroup_version: Option<u8>,
    /// The image's reference.
    pub image: String,
    /// The image's id.
    pub image_id: String,
    /// The image's size; of no use to code that runs in it.
    #[serde(skip)]
    pub image_bytes: u64,
    /// Each limit by its name in [`SandboxLimits`].
    pub limits: BTreeMap<&'static str, LimitFact>,
    /// A sentence for each thing that is weaker than asked for.
    pub warnings: Vec<String>,
}

/// An engine, an image and limits that were found to work together, ready to start guests.
///
/// Dropping it ends its containers in the background; [`ContainerSandbox::shut_down`] waits for it.
pub struct ContainerSandbox {
    shared: Arc<Shared>,
    owners: Owners,
    facts: ContainerFacts,
    spares: Arc<Spares>,
}

impl ContainerSandbox {
    /// Find the engine, remove what our dead left, have the image, see what the engine enforces.
    /// Returns when the first spare is being started.
    ///
    /// # Errors
    /// [`SandboxError::NoEngine`], [`SandboxError::EngineAbsent`], [`SandboxError::ImageMissing`],
    /// [`SandboxError::Engine`]. Dropping the future leaves nothing behind but, at worst, a
    /// container that was never started, which the next start reaps.
    pub async fn open(
        config: ContainerConfig,
        progress: Arc<dyn Fn(Progress) + Send + Sync>,
    ) -> Result<Self, SandboxError> {
        let engine = engine::find(
            &config.engine,
            &config.search,
            config.only_ready,
            &*progress,
        )
        .await?;
        let (owners, lock) = live_owner(&config)
            .map_err(|error| engine.error("record who owns its containers", error.to_string()))?;
        if let Err(error) = reap::reap_dead(&engine, &owners).await {
            // They cost memory, not correctness.
            tracing::warn!(%error, "could not look for containers left by earlier bridges");
        }
        let image = image::ensure(&engine, &config.image, config.only_ready, &*progress).await?;

        let mut spec = spec::Spec {
            image: &config.image,
            user: &config.user,
            limits: &config.limits,
            boot: guest::BOOT,
            volumes: &image.volumes,
            packages: config.packages.as_deref(),
            hard: spec::HardLimits::of_this_process(),
            labels: reap::labels(&owners, &config.owner),
        };
        // The first container shows what the engine makes of the limits.
        let first = loop {
            match First::create(&engine, &config.owner, &spec).await {
                Ok(first) if spec.packages.is_none() || spec::sees_packages(&first.created) => {
                    break first;
                }
                // It could be written to.
                Ok(first) => reap::remove(&engine, &first.id).await,
                // An engine on another machine may not have the folder.
                Err(SandboxError::Engine { .. }) if spec.packages.is_some() => {}
                Err(error) => return Err(error),
            }
            // Everything else works without it.
            spec.packages = None;
        };
        let mounting = match (&config.packages, spec.packages) {
            (None, _) => Mounting::Without,
            (Some(_), None) => Mounting::Never,
            (Some(_), Some(_)) => Mounting::Folder,
        };
        let enforced = spec::read_back(&config.limits, engine.limits, &first.created);
        let First {
            id: first,
            body,
            remarks,
            ..
        } = *first;

        let closing = CancellationToken::new();
        let memory = enforced.limits.get("memory_bytes_max");
        let shared = Arc::new(Shared {
            memory_kills: memory.is_some_and(|fact| fact.how == Enforcement::Cgroup),
            boot: guest::boot_message(&enforced.rlimits),
            mounting,
            engine,
            owner: config.owner,
            body,
            tasks: TaskTracker::new(),
            starts: TaskTracker::new(),
            runtime: tokio::runtime::Handle::current(),
            closing: closing.clone(),
            shut_down: CancellationToken::new(),
            _lock: lock,
        });
        let spares = Arc::new(Spares {
            wanted: config.spares,
            closing,
            waiting: Mutex::new(VecDeque::new()),
        });
        if config.spares > 0 {
            spares.push(shared.spawn_start(live::boot(shared.clone(), first)));
            for _ in 1..config.spares {
                spares.push(shared.spawn_start(live::start(shared.clone())));
            }
        } else {
            reap::remove(&shared.engine, &first).await;
        }

        let engine = &shared.engine;
        let name = describe(engine.kind, engine.rootless, engine.cgroup_version);
        let mut warnings = engine.warnings.clone();
        warnings.extend(enforced.warnings(&name));
        warnings.extend(remarks);
        let facts = ContainerFacts {
            backend: "container",
            engine: engine.kind,
            version: engine.version.clone(),
            socket: engine.address.to_string(),
            rootless: engine.rootless,
            cgroup_version: engine.cgroup_version,
            image: config.image,
            image_id: image.id,
            image_bytes: image.bytes,
            limits: enforced.limits,
            warnings,
        };
        Ok(Self {
            shared,
            owners,
            facts,
            spares,
        })
    }

    /// What was found out when it was opened.
    pub fn facts(&self) -> &ContainerFacts {
        &self.facts
    }

    /// A guest of its own container: a spare if one is ready or on its way, else a new one.
    /// Cancelling the future ends the container.
    ///
    /// # Errors
    /// [`SandboxError::Engine`] when the engine refuses, hangs or is gone, and after
    /// [`ContainerSandbox::shut_down`].
    pub async fn start(&self) -> Result<Guest, SandboxError> {
        if self.spares.closing.is_cancelled() {
            return Err(self
                .shared
                .engine
                .error("start a container", "the sandbox is shut down"));
        }
        while let Some(spare) = self.spares.pop() {
            self.refill();
            // One that died while it waited has closed its output, whatever it said before.
            if let Some(Ok(guest)) = spare.wait().await
                && !guest.output.is_closed()
            {
                return Ok(guest);
            }
        }
        let started = Starting(self.shared.spawn_start(live::start(self.shared.clone())));
        match started.wait().await {
            Some(result) => result,
            None => Err(self
                .shared
                .engine
                .error("start a container", "the sandbox is shut down")),
        }
    }

    /// End every container that was started here and remove it, also those whose guests are still
    /// in use. Takes at most [`SHUT_DOWN_WITHIN`].
    pub async fn shut_down(&self) {
        self.spares.close();
        self.shared.shut_down.cancel();
        self.shared.tasks.close();
        self.shared.starts.close();
        let engine = &self.shared.engine;
        let all = async {
            // Podman leaves processes behind when a container is removed while it is being started.
            self.shared.starts.wait().await;
            if let Err(error) = reap::remove_all_of(engine, &self.owners, &self.shared.owner).await
            {
                tracing::warn!(%error, "could not remove our containers");
            }
            // Their streams have ended, so what served them ends too.
            self.shared.tasks.wait().await;
            if let Err(error) = reap::reap_dead(engine, &self.owners).await {
                tracing::debug!(%error, "could not reap");
            }
        };
        if tokio::time::timeout(SHUT_DOWN_WITHIN, all).await.is_err() {
            tracing::warn!(
                "the container engine did not remove our containers in time; the next start will"
            );
        }
    }

    /// Start a replacement, but not at once: whoever took the spare has work to do that the user
    /// waits for.
    fn refill(&self) {
        const PAUSE: Duration = Duration::from_millis(250);
        let (shared, spares) = (self.shared.clone(), self.spares.clone());
        self.shared.tasks.spawn(async move {
            let closing = spares.closing.clone();
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => spares.push(shared.spawn_start(live::start(shared.clone()))),
            }
        });
    }
}

impl Drop for ContainerSandbox {
    fn drop(&mut self) {
        self.spares.close();
    }
}

/// A place where an engine was looked for.
#[derive(Clone, Debug, Serialize)]
pub struct EnginePlace {
    /// The address of a socket.
    pub address: String,
    /// Why it was looked at: a variable's name or a product's.
    pub source: &'static str,
    /// What was found there.
    pub found: EngineFound,
}

/// What was found in an [`EnginePlace`].
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "found")]
pub enum EngineFound {
    /// An engine answers.
    Engine {
        /// Its kind.
        kind: EngineKind,
        /// Its version.
        version: String,
        /// Whether it runs without root's rights.
        rootless: bool,
    },
    /// None does.
    Nothing {
        /// Why, in a few words.
        reason: String,
    },
}

/// Look at every place where an engine may be, for a report or to choose from. Starts none.
pub async fn look_for_engines(search: &EngineSearch) -> Vec<EnginePlace> {
    engine::survey(search).await
}

/// How long [`ContainerSandbox::shut_down`] may take.
pub const SHUT_DOWN_WITHIN: Duration = Duration::from_secs(10);

const INSPECT_WITHIN: Duration = Duration::from_secs(10);

/// The first container of a sandbox, created and not started.
struct First {
    id: String,
    body: ContainerCreateBody,
    /// What the engine says of it.
    created: ContainerInspectResponse,
    remarks: Vec<String>,
}

impl First {
    async fn create(
        engine: &engine::Engine,
        owner: &str,
        spec: &spec::Spec<'_>,
    ) -> Result<Box<Self>, SandboxError> {
        let body = spec::body(spec);
        let (id, remarks) = live::create(engine, owner, &body).await?;
        let inspect = engine.docker.inspect_container(&id, None);
        let inspected = engine
            .ask("inspect a container", INSPECT_WITHIN, inspect)
            .await;
        match inspected {
            Ok(created) => Ok(Box::new(Self {
                id,
                body,
                created,
                remarks,
            })),
            Err(error) => {
                reap::remove(engine, &id).await;
                Err(error)
            }
        }
    }
}

fn live_owner(config: &ContainerConfig) -> std::io::Result<(Owners, owner::OwnerLock)> {
    let owners = Owners::open(&config.owner_lock_dir)?;
    let lock = owners.hold(&config.owner)?;
    Ok((owners, lock))
}

/// `rootless podman on cgroup v1`
fn describe(kind: EngineKind, rootless: bool, cgroup_version: Option<u8>) -> String {
    let rootless = if rootless { "rootless " } else { "" };
    let cgroup = cgroup_version
        .map(|version| format!(" on cgroup v{version}"))
        .unwrap_or_default();
    format!("{rootless}{kind}{cgroup}")
}

/// Hexadecimal, two digits a byte.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// A container being started by a task, which goes on when nobody waits: what it gives then ends.
struct Starting(JoinHandle<Result<Guest, SandboxError>>);

impl Starting {
    /// `None` when the task was ended, which happens only with the runtime.
    async fn wait(self) -> Option<Result<Guest, SandboxError>> {
        match self.0.await {
            Ok(result) => Some(result),
            Err(error) => {
                tracing::error!(%error, "starting a container broke off");
                None
            }
        }
    }
}

/// Containers that wait to be wanted, the oldest first.
struct Spares {
    wanted: usize,
    closing: CancellationToken,
    waiting: Mutex<VecDeque<Starting>>,
}

impl Spares {
    fn push(&self, starting: JoinHandle<Result<Guest, SandboxError>>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at under the lock, so that nothing is added behind `close`.
        if waiting.len() < self.wanted && !self.closing.is_cancelled() {
            waiting.push_back(Starting(starting));
        }
    }

    fn pop(&self) -> Option<Starting> {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.closing.cancel();
        waiting.clear();
    }
}
