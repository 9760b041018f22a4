//! The bridge while the app runs: owned, open, lent to clients. What the app has in hand is here, and
//! it is ended here in order.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::desk::{AppFacts, Desk};
use runbridge_core::paths::{Environment, Paths};
use runbridge_core::{listener::Listener, local_socket::Owner};

use crate::sidecar_copy;

/// See the module.
pub(crate) struct Served {
    desk: Desk,
    bridge: Arc<Bridge>,
    listener: Mutex<Option<Listener>>,
    /// The right to be the app; given back last.
    _owner: Owner,
}

impl Served {
    /// Become the app of this user and lend a bridge to all clients. Needs a tokio runtime.
    pub(crate) fn open(
        environment: Environment,
        paths: &Paths,
        app: &Path,
        updates: bool,
    ) -> anyhow::Result<Self> {
        let owner = Owner::claim(paths)?;
        let sidecar = sidecar(app, paths);
        // The one that was installed with us: it works for the built-in sandbox, too.
        let environment = environment.with_sidecar(sidecar_copy::beside(app));
        give_python(&environment, paths);
        let bridge = Bridge::open(environment, Role::Serve)?;
        let listener =
            Listener::open(Arc::clone(&bridge), &owner).context("clients cannot be let in")?;
        let desk = Desk::open(
            Arc::clone(&bridge),
            AppFacts {
                sidecar,
                logs: Some(paths.logs.clone()),
                updates,
            },
        );
        Ok(Self {
            desk,
            bridge,
            listener: Mutex::new(Some(listener)),
            _owner: owner,
        })
    }

    /// What the window and the tray ask.
    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Let all clients go, then end everything that was started. Bounded in time; waits for it.
    pub(crate) fn shut_down(&self) {
        tauri::async_runtime::block_on(async {
            let listener = self
                .listener
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(listener) = listener {
                listener.shut_down().await;
            }
            self.desk.shut_down().await;
            self.bridge.shut_down().await;
        });
        tracing::info!("Runbridge has ended");
    }
}

/// Let the copy of the sidecar find the Python that was installed with us. Nobody waits for it.
fn give_python(environment: &Environment, paths: &Paths) {
    let holds_it = |folder: &std::path::PathBuf| folder.join("inventory.json").is_file();
    let Some(python) = environment.python_folders().into_iter().find(holds_it) else {
        return;
    };
    let place = sidecar_copy::python_place(paths);
    let copied = sidecar_copy::must_copy(environment);
    std::thread::spawn(move || {
        if let Err(error) = sidecar_copy::refresh_python(&python, &place, copied) {
            tracing::warn!("sidecars that run alone have no built-in Python: {error:#}");
        }
    });
}

/// The path of the sidecar that clients are given. Without a copy, the one beside us must do.
fn sidecar(app: &Path, paths: &Paths) -> std::path::PathBuf {
    let (original, copy) = (sidecar_copy::beside(app), sidecar_copy::place(paths));
    match sidecar_copy::refresh(&original, &copy) {
        Ok(()) => copy,
        Err(error) => {
            tracing::warn!("clients are given {}: {error:#}", original.display());
            original
        }
    }
}
