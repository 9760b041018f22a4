//! Podman on a system where containers run in a virtual machine. No such machine can be had here, nor
//! would one fit into a test: a program stands in for `podman`, and a relay to the Podman under test
//! for the machine's socket.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use runbridge_sandbox::SandboxError;
use runbridge_sandbox::container::{
    ContainerSandbox, EngineChoice, EngineSearch, Os, Progress, look_for_engines,
};

use crate::engines::{Bench, Engine, engines};
use crate::lifecycle::RELAY;
use crate::python::Python;

/// A home on macOS, with machines in it, and a `podman` that starts them.
struct Mac {
    bench: Bench,
    relays: PathBuf,
}

impl Mac {
    /// `script`: what `podman` does; it has `$1 $2 $3` of a call, and `$socket` of the machine.
    fn with(machines: &[&str], script: &str) -> Self {
        let mut bench = Bench::new(&podman());
        let dir = bench.dir();
        // As Podman keeps them: one file for each machine, in a folder for each kind.
        let kept = dir.join("home/.config/containers/podman/machine/applehv");
        std::fs::create_dir_all(&kept).unwrap();
        for name in machines {
            let machine = serde_json::json!({ "Name": name, "HostUser": { "Rootful": false } });
            std::fs::write(kept.join(format!("{name}.json")), machine.to_string()).unwrap();
            std::fs::write(kept.join(format!("{name}.lock")), "").unwrap();
        }
        for folder in ["bin", "tmp/podman", "nothing"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let (calls, relays) = (dir.join("calls"), dir.join("relays"));
        std::fs::write(&relays, "").unwrap();
        let program = dir.join("bin/podman");
        let text = format!(
            "#!/bin/sh\necho \"$@\" >>{calls}\nsocket={tmp}/podman/$3-api.sock\n\
             relay() {{\n  python3 -c '{RELAY}' $socket {engine} </dev/null &\n  \
             echo $! >>{relays}\n  until [ -S $socket ]; do sleep 0.02; done\n}}\n{script}\n",
            calls = calls.display(),
            tmp = dir.join("tmp").display(),
            engine = bench.engine.url.strip_prefix("unix://").unwrap(),
            relays = relays.display(),
        );
        std::fs::write(&program, text).unwrap();
        let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, runs).unwrap();
        bench.config.engine = EngineChoice::Forced("podman".into());
        bench.config.search = EngineSearch {
            os: Os::Macos,
            home: Some(dir.join("home")),
            temp_dir: Some(dir.join("tmp")),
            path: Some(dir.join("bin").into_os_string()),
            ..EngineSearch::bare()
        };
        Self { bench, relays }
    }

    /// What `podman` was asked to do.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.bench.dir().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// Why there is no sandbox.
    async fn refused(&self) -> String {
        let opened = ContainerSandbox::open(self.bench.config.clone(), Arc::new(|_| {})).await;
        let Err(error) = opened else {
            panic!("opened without a machine")
        };
        let SandboxError::EngineAbsent { engine, reason } = &error else {
            panic!("{error}")
        };
        assert_eq!(engine, "podman");
        reason.clone()
    }
}

impl Drop for Mac {
    fn drop(&mut self) {
        for pid in std::fs::read_to_string(&self.relays).unwrap().lines() {
            let _ = std::process::Command::new("kill").arg(pid).status();
        }
    }
}

fn podman() -> Engine {
    let podman = engines().into_iter().find(|engine| engine.name == "podman");
    podman.expect("no rootful Podman among the engines")
}

#[tokio::test]
async fn a_machine_that_is_stopped_is_started_as_it_is_and_used() {
    for (machines, started) in [
        (&["podman-machine-default"][..], "podman-machine-default"),
        (&["a", "podman-machine-default"], "podman-machine-default"),
        (&["work"], "work"),
    ] {
        let mac = Mac::with(machines, "relay");
        let steps: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let heard = Arc::clone(&steps);
        let sandbox = ContainerSandbox::open(
            mac.bench.config.clone(),
            Arc::new(move |step| heard.lock().unwrap().push(step)),
        )
        .await
        .unwrap();
        let socket = mac
            .bench
            .dir()
            .join(format!("tmp/podman/{started}-api.sock"));
        assert_eq!(
            sandbox.facts().socket,
            format!("unix://{}", socket.display())
        );
        let engine = "podman machine".to_owned();
        assert_eq!(
            *steps.lock().unwrap(),
            [Progress::StartingEngine { engine }]
        );
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        assert_eq!(python.run("print(3)").await.stdout, "3\n");
        python.end(true).await;
        sandbox.shut_down().await;
        // Nothing else was asked: no machine was made, none was changed to run as root.
        assert_eq!(mac.calls(), [format!("machine start {started}")]);
    }
}

#[tokio::test]
async fn a_machine_that_does_not_start_says_why() {
    let said = "Error: vm already running or starting";
    let ended = "`podman machine start` ended with exit status";
    for (script, expected) in [
        (
            format!("echo Starting; echo '{said}' >&2; exit 125"),
            format!("{ended}: 125: {said}"),
        ),
        // What it started lives on.
        (
            format!("echo '{said}' >&2; relay; exit 1"),
            format!("{ended}: 1: {said}"),
        ),
        ("exit 3".to_owned(), format!("{ended}: 3")),
        (
            "exit 0".to_owned(),
            "it was started, and no engine answers".to_owned(),
        ),
    ] {
        let mac = Mac::with(&["podman-machine-default"], &script);
        let reason = mac.refused().await;
        let expected = format!("Podman machine `podman-machine-default`: {expected}");
        assert!(reason.ends_with(&expected), "{script}: {reason}");
        assert_eq!(mac.calls(), ["machine start podman-machine-default"]);
    }
}

#[tokio::test]
async fn a_machine_is_never_made_and_not_started_for_who_does_not_wait() {
    let none = Mac::with(&[], "relay");
    none.refused().await;
    assert_eq!(none.calls(), [""; 0]);

    let mut automatic = Mac::with(&["podman-machine-default"], "relay");
    automatic.bench.config.only_ready = true;
    automatic.refused().await;
    let places = look_for_engines(&automatic.bench.config.search).await;
    assert!(places.iter().any(|place| place.source == "Podman machine"));
    assert_eq!(automatic.calls(), [""; 0]);

    let mut without = Mac::with(&["podman-machine-default"], "relay");
    without.bench.config.search.path = Some(without.bench.dir().join("nothing").into_os_string());
    let reason = without.refused().await;
    assert!(
        reason.contains("no `podman` program to start it"),
        "{reason}"
    );
}
