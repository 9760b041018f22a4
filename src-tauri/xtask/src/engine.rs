//! Which container engines the commands work on, and that the image is in each of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use runbridge_testkit::Engine;

use crate::shell::say;
use crate::{engines, http, image};

/// The kinds of engine that every test must pass on.
const KINDS: &[&str] = &["podman", "docker", "podman-rootless", "docker-rootless"];

/// The image that the demo and the tests run in.
pub(crate) fn image() -> &'static str {
    image::Kind::Python.reference()
}

/// Engines that are ready, and those that this value started and will end.
pub(crate) struct Engines {
    ready: Vec<Engine>,
    /// Ended on drop.
    _started: Vec<engines::Engine>,
}

impl Engines {
    /// No engine at all.
    pub(crate) fn none() -> Self {
        Self {
            ready: Vec::new(),
            _started: Vec::new(),
        }
    }

    /// The one to use where one is enough; the built-in sandbox where there is none.
    pub(crate) fn first_or_builtin(&self) -> Engine {
        self.ready.first().cloned().unwrap_or_else(Engine::builtin)
    }

    /// All that are ready.
    pub(crate) fn all(&self) -> &[Engine] {
        &self.ready
    }

    /// Kinds that tests must pass on and that are not there.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let there = |kind: &&str| self.ready.iter().any(|engine| engine.name == **kind);
        KINDS.iter().copied().filter(|kind| !there(kind)).collect()
    }

    /// As tests are told: `name=unix:///path`, separated by commas.
    pub(crate) fn list(&self) -> String {
        let items: Vec<String> = self
            .ready
            .iter()
            .map(|engine| format!("{}={}", engine.name, engine.url()))
            .collect();
        items.join(",")
    }
}

/// Every kind of engine, each started for the tests alone; or else those that
/// `RUNBRIDGE_TEST_ENGINES` names, for whoever is not root. It may name none.
pub(crate) fn for_tests(dir: &Path) -> anyhow::Result<Engines> {
    if std::env::var_os("RUNBRIDGE_TEST_ENGINES").is_some() {
        return with_image(Engine::all(), Vec::new());
    }
    let started = engines::start_all(dir)?;
    let ready = started
        .iter()
        .map(|engine| Engine {
            name: engine.name.clone(),
            socket: engine.socket.clone(),
        })
        .collect();
    with_image(ready, started)
}

/// An engine that runs already, as a user's would, or else our own, or else none.
pub(crate) fn for_demo(dir: &Path) -> anyhow::Result<Engines> {
    let Some(socket) = image::running_engines()
        .ok()
        .and_then(|sockets| sockets.into_iter().next())
    else {
        say("no engine runs; starting some for the demo");
        return Ok(for_tests(dir).unwrap_or_else(|error| {
            say(format_args!("{error:#}"));
            Engines::none()
        }));
    };
    let name = kind(&socket)?;
    say(format_args!("using {name} at {}", socket.display()));
    with_image(
        vec![Engine {
            name: name.to_owned(),
            socket,
        }],
        Vec::new(),
    )
}

fn with_image(ready: Vec<Engine>, started: Vec<engines::Engine>) -> anyhow::Result<Engines> {
    for engine in &ready {
        image::ensure(&engine.socket, image::Kind::Python)
            .with_context(|| format!("{} has no image {}", engine.name, image()))?;
    }
    Ok(Engines {
        ready,
        _started: started,
    })
}

/// Both answer to the same requests; only one of them calls itself Podman.
fn kind(socket: &Path) -> anyhow::Result<&'static str> {
    let (status, text) = http::request(
        socket,
        "GET",
        "/v1.41/version",
        None,
        Duration::from_secs(10),
    )?;
    ensure!(
        status == 200,
        "{} says of itself only {status}: {text}",
        socket.display()
    );
    Ok(if text.contains("Podman") {
        "podman"
    } else {
        "docker"
    })
}
