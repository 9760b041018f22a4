//! Where Python runs: the user's choice, what came of it, live interpreters.

use std::sync::Arc;

use runbridge_sandbox::SandboxError;
use serde_json::Value;

use super::{Answer, Desk, Inner, engines, errors, lock};
use crate::api::{
    self, ApiError, Backend, EngineChoice, ErrorCode, ImageState, InstalledPackage, Interpreter,
    PackagesPolicy, SandboxKind, SandboxState, SandboxStatus, WasiState,
};
use crate::interpreters::LiveInterpreter;
use crate::packages;
use crate::request::SESSION_DEFAULT;
use crate::sandboxes::{SandboxFacts, Standing};
use crate::settings::{self, Settings};

impl Desk {
    /// Choose the backend.
    pub async fn set_backend(&self, backend: Backend) -> Answer<()> {
        let backend = match backend {
            Backend::Auto => settings::Backend::Auto,
            Backend::Container => settings::Backend::Container,
            Backend::Wasi => settings::Backend::Wasi,
        };
        self.0.choose("backend", backend.as_str().into()).await
    }

    /// Choose the engine.
    pub async fn set_engine(&self, engine: EngineChoice) -> Answer<()> {
        let engine = match engine {
            EngineChoice::Auto => settings::Engine::Auto,
            EngineChoice::Podman => settings::Engine::Podman,
            EngineChoice::Docker => settings::Engine::Docker,
        };
        self.0.choose("engine", engine.as_str().into()).await
    }

    /// Choose the image.
    pub async fn set_image(&self, image: String) -> Answer<()> {
        let image = image.trim();
        if image.is_empty() || image.contains(char::is_whitespace) {
            let message = format!("`{image}` is not the name of an image");
            return Err(ApiError::new(ErrorCode::SettingsInvalid, message)
                .hint("Give a name such as python:3.14-slim"));
        }
        self.0.choose("image", image.into()).await
    }

    /// Choose whether code may have packages installed.
    pub async fn set_packages_policy(&self, policy: PackagesPolicy) -> Answer<()> {
        let policy = match policy {
            PackagesPolicy::Off => settings::PackagesPolicy::Off,
            PackagesPolicy::Ask => settings::PackagesPolicy::Ask,
            PackagesPolicy::Allow => settings::PackagesPolicy::Allow,
        };
        let keys = vec!["packages".to_owned(), "policy".to_owned()];
        let value = Some(policy.as_str().into());
        self.0.write_settings(vec![(keys, value)]).await?;
        // Sandboxes that are started from now on see packages, or none.
        let bridge = &self.0.bridge;
        bridge.sandboxes().prepare(&bridge.settings());
        self.0.look_at_sandbox();
        Ok(())
    }

    /// Take an installed package away. One that is gone already is as good.
    pub async fn remove_package(&self, name: String) -> Answer<()> {
        packages::remove(&self.0.bridge, &name)
            .await
            .map_err(|error| errors::internal(error.to_string()))?;
        self.0.look_at_sandbox();
        Ok(())
    }

    /// Pull the image; how far it got comes as changes of the sandbox.
    pub fn pull_image(&self) {
        let bridge = &self.0.bridge;
        bridge.sandboxes().pull(&bridge.settings());
        self.0.look_at_sandbox();
    }

    /// Look for engines again.
    pub async fn check_sandbox(&self) -> Answer<()> {
        let bridge = &self.0.bridge;
        bridge.sandboxes().again(&bridge.settings());
        self.0.look_at_sandbox();
        self.0.look_for_engines().await;
        Ok(())
    }

    /// End an interpreter and its variables, and the run that it executes.
    pub async fn stop_interpreter(&self, id: String) -> Answer<()> {
        let bridge = &self.0.bridge;
        let gone = || {
            let message = "this interpreter has ended already";
            ApiError::new(ErrorCode::RunNotFound, message)
        };
        let number: u64 = id.parse().map_err(|_| gone())?;
        let live = bridge.interpreters().list();
        let live = live
            .into_iter()
            .find(|live| live.id == number)
            .ok_or_else(gone)?;
        bridge
            .live_runs()
            .stop_session(live.connection, &live.session);
        let stopped = bridge
            .interpreters()
            .stop(number, "the user ended it in Runbridge");
        if stopped.await { Ok(()) } else { Err(gone()) }
    }
}

impl Inner {
    async fn choose(&self, key: &str, value: Value) -> Answer<()> {
        let keys = vec!["sandbox".to_owned(), key.to_owned()];
        self.write_settings(vec![(keys, Some(value))]).await?;
        // The next run needs it; how it goes shall be seen before.
        self.bridge.sandboxes().prepare(&self.bridge.settings());
        self.look_at_sandbox();
        Ok(())
    }

    /// Look for engines, without starting any, and tell what was found.
    pub(super) async fn look_for_engines(&self) {
        let places = self.bridge.sandboxes().look_for_engines().await;
        *lock(&self.engines) = engines::of_places(&places);
        self.look_at_sandbox();
    }

    pub(super) fn sandbox_status(&self) -> SandboxStatus {
        let settings = self.bridge.settings();
        let sandboxes = self.bridge.sandboxes();
        let standing = sandboxes.standing(&settings);
        let facts = sandboxes.facts(&settings);
        let mut found = lock(&self.engines).clone();
        if let Some(SandboxFacts::Container(facts)) = &facts {
            engines::mark_used(&mut found, facts);
        }
        let (backend, engine) = choices(&settings);
        SandboxStatus {
            backend,
            engine,
            image: settings.sandbox.image.clone(),
            state: match &standing {
                Standing::Opening => SandboxState::Preparing,
                Standing::Open { kind, rootless } => SandboxState::Ready {
                    kind: *kind,
                    rootless: *rootless,
                },
                Standing::Failed(error) => SandboxState::Unavailable {
                    error: errors::of_sandbox(error),
                },
            },
            image_state: image_state(&standing, sandboxes.pulled(), facts.as_ref()),
            wasi: wasi_state(sandboxes.builtin_standing()),
            python: self.bridge.interpreters().python(),
            warnings: facts
                .iter()
                .flat_map(SandboxFacts::warnings)
                .map(|warning| ApiError::new(ErrorCode::LimitNotEnforced, warning.clone()))
                .collect(),
            engines: found,
            packages: self.packages(&settings),
        }
    }

    fn packages(&self, settings: &Settings) -> api::Packages {
        let packages = self.bridge.packages();
        let setting = settings.packages.index.as_deref();
        let index = packages.index_host(setting, &self.bridge.environment());
        let installed = packages.installed().into_iter();
        api::Packages {
            policy: match settings.packages.policy {
                settings::PackagesPolicy::Off => PackagesPolicy::Off,
                settings::PackagesPolicy::Ask => PackagesPolicy::Ask,
                settings::PackagesPolicy::Allow => PackagesPolicy::Allow,
            },
            index: index.ok(),
            installed: installed
                .map(|package| InstalledPackage {
                    name: package.name,
                    version: package.version,
                    size_bytes: package.bytes,
                    index: package.index,
                    needed: !package.wanted,
                })
                .collect(),
        }
    }

    pub(super) fn interpreters(&self) -> Vec<Interpreter> {
        let own = self.own.id();
        let live = self.bridge.interpreters().list().into_iter();
        live.map(|live| interpreter(live, own)).collect()
    }
}

fn interpreter(live: LiveInterpreter, own: crate::interpreters::ConnectionId) -> Interpreter {
    Interpreter {
        id: live.id.to_string(),
        client: live.client,
        connection_id: (live.connection != own).then(|| live.connection.to_string()),
        session: Some(live.session).filter(|session| session != SESSION_DEFAULT),
        kind: live.kind,
        started_at: live.started_at,
        idle_since_at: live.idle_since_at,
        runs: live.runs,
        memory_bytes_max: live.memory_bytes_max,
    }
}

fn choices(settings: &Settings) -> (Backend, EngineChoice) {
    let backend = match settings.sandbox.backend {
        settings::Backend::Auto => Backend::Auto,
        settings::Backend::Container => Backend::Container,
        settings::Backend::Wasi => Backend::Wasi,
    };
    let engine = match settings.sandbox.engine {
        settings::Engine::Auto => EngineChoice::Auto,
        settings::Engine::Podman => EngineChoice::Podman,
        settings::Engine::Docker => EngineChoice::Docker,
    };
    (backend, engine)
}

fn image_state(
    standing: &Standing,
    pulled: Option<(u64, u64)>,
    facts: Option<&SandboxFacts>,
) -> ImageState {
    if let Some((done_bytes, total)) = pulled {
        return ImageState::Pulling {
            done_bytes,
            total_bytes: (total > 0).then_some(total),
        };
    }
    match standing {
        Standing::Failed(error)
            if matches!(
                **error,
                runbridge_sandbox::SandboxError::ImageMissing { .. }
            ) =>
        {
            ImageState::Failed {
                error: errors::of_sandbox(error),
            }
        }
        Standing::Open {
            kind: SandboxKind::Container,
            ..
        } => match facts {
            Some(SandboxFacts::Container(facts)) => ImageState::Present {
                digest: facts.image_id.clone(),
                size_bytes: facts.image_bytes,
            },
            Some(SandboxFacts::Wasi(_)) | None => ImageState::Unknown,
        },
        Standing::Opening | Standing::Failed(_) | Standing::Open { .. } => ImageState::Unknown,
    }
}

fn wasi_state(standing: Option<Result<String, Arc<SandboxError>>>) -> WasiState {
    match standing {
        None => WasiState::Preparing,
        Some(Ok(python)) => WasiState::Ready { python },
        Some(Err(error)) => WasiState::Unavailable {
            error: errors::of_sandbox(&error),
        },
    }
}
