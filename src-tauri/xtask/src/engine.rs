//! Which container engines the commands work on, and that the image is in each of them.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use runbridge_testkit::Engine;

use crate::shell::say;
use crate::{engines, image};

/// The image that the demo and the tests run in.
pub(crate) const IMAGE: &str = "localhost/runbridge-python:bookworm";

/// The kinds of engine that every test must pass on.
const KINDS: &[&str] = &["podman", "docker", "podman-rootless"];

/// Engines that are ready, and those that this value started and will end.
pub(crate) struct Engines {
    ready: Vec<Engine>,
    missing: Vec<(String, String)>,
    /// Ended on drop.
    _started: Vec<engines::Engine>,
}

impl Engines {
    /// The one to use where one is enough.
    pub(crate) fn first(&self) -> anyhow::Result<&Engine> {
        self.ready
            .first()
            .context("no container engine is available")
    }

    /// All that are ready.
    pub(crate) fn all(&self) -> &[Engine] {
        &self.ready
    }

    /// Kinds that could not be had, with the reason.
    pub(crate) fn missing(&self) -> &[(String, String)] {
        &self.missing
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

/// Every kind of engine, each started for the tests alone.
pub(crate) fn for_tests(dir: &Path) -> anyhow::Result<Engines> {
    let started = engines::start_all(dir)?;
    let ready: Vec<Engine> = started.iter().map(known).collect();
    for engine in &ready {
        image::ensure(engine).with_context(|| format!("{}: no image {IMAGE}", engine.name))?;
    }
    let missing = KINDS
        .iter()
        .filter(|kind| !ready.iter().any(|engine| engine.name == **kind))
        .map(|kind| ((*kind).to_owned(), "the engine did not start".to_owned()))
        .collect();
    Ok(Engines {
        ready,
        missing,
        _started: started,
    })
}

/// An engine that runs already, as a user's would, or else our own.
pub(crate) fn for_demo(dir: &Path) -> anyhow::Result<Engines> {
    if let Some(engine) = running() {
        say(format_args!(
            "using {} at {}",
            engine.name,
            engine.socket.display()
        ));
        image::ensure(&engine).with_context(|| format!("{}: no image {IMAGE}", engine.name))?;
        return Ok(Engines {
            ready: vec![engine],
            missing: Vec::new(),
            _started: Vec::new(),
        });
    }
    say("no engine runs; starting one for the demo");
    for_tests(dir)
}

fn known(started: &engines::Engine) -> Engine {
    Engine {
        name: started.name.clone(),
        socket: started.socket.clone(),
    }
}

/// The first socket that answers of those where an engine usually listens.
fn running() -> Option<Engine> {
    let variable = |name: &str| {
        let value = std::env::var(name).ok()?;
        value.strip_prefix("unix://").map(PathBuf::from)
    };
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(|dir| PathBuf::from(dir).join("podman/podman.sock"));
    let places = [
        ("podman", variable("CONTAINER_HOST")),
        ("podman", runtime),
        ("podman", Some("/run/podman/podman.sock".into())),
        ("docker", variable("DOCKER_HOST")),
        ("docker", Some("/var/run/docker.sock".into())),
    ];
    places.into_iter().find_map(|(name, socket)| {
        let socket = socket?;
        UnixStream::connect(&socket).ok()?;
        Some(Engine {
            name: name.to_owned(),
            socket,
        })
    })
}
