//! Start, spare, end, death: after each, nothing is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runbridge_sandbox::container::{ContainerSandbox, EngineChoice, EngineSearch, Os};
use runbridge_sandbox::{GuestExit, SandboxError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::engines::{Bench, Engine, engines, eventually, on_every_engine, unique};
use crate::python::Python;

/// Listens on the last but one argument and passes everything on to the last.
pub(crate) const RELAY: &str = r#"
import socket, sys, threading
def copy(a, b):
    try:
        while data := a.recv(65536): b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError: pass
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[-2].removeprefix("unix://")); server.listen()
while True:
    near, _ = server.accept()
    far = socket.socket(socket.AF_UNIX); far.connect(sys.argv[-1])
    for pair in ((near, far), (far, near)): threading.Thread(target=copy, args=pair, daemon=True).start()
"#;

/// A guest that lost its host before it was connected to it takes ten seconds to notice.
const GONE_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_guest_tells_how_it_ended_and_leaves_nothing() {
    on_every_engine(async |engine| {
        let bench = Bench::new(&engine);
        let sandbox = bench.open().await;
        for (code, status) in [
            ("import os; os._exit(7)", 7),
            ("import ctypes; ctypes.string_at(0)", 139),
        ] {
            let mut python = Python::new(sandbox.start().await.unwrap()).await;
            let ran = python.run(code).await;
            assert!(ran.done.is_none(), "{ran:?}");
            let exit = python.end(true).await;
            assert_eq!(
                (exit.code, exit.out_of_memory),
                (Some(status), false),
                "{code}: {exit:?}"
            );
            assert_eq!(bench.containers().await, [""; 0], "after {code}");
        }
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        python.send("while True: pass").await;
        let exit = python.end(true).await;
        assert_eq!(
            exit,
            GuestExit {
                code: Some(137),
                out_of_memory: false,
                stderr_tail: String::new()
            },
            "killed by us"
        );
        assert_eq!(bench.containers().await, [""; 0], "after a kill");
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_dropped_guest_and_a_cancelled_start_leave_nothing() {
    on_every_engine(async |engine| {
        let bench = Bench::new(&engine);
        let sandbox = bench.open().await;
        drop(sandbox.start().await.unwrap());
        for pause_ms in [0, 5, 30, 100] {
            let _ = tokio::time::timeout(Duration::from_millis(pause_ms), sandbox.start()).await;
        }
        eventually("no container", GONE_WITHIN, async || {
            bench.containers().await.is_empty()
        })
        .await;
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_guest_outlives_the_sandbox_that_started_it() {
    on_every_engine(async |engine| {
        let bench = Bench::new(&engine);
        let sandbox = bench.open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        // As when a limit is changed while a session lives: its next runs go on as they are.
        drop(sandbox);
        let ran = python
            .run("for line in range(200): print(line, flush=True)")
            .await;
        assert!(ran.done.is_some(), "{ran:?}");
        let expected: Vec<_> = (0..200).map(|line| format!("{line}\n")).collect();
        assert_eq!(ran.stdout, expected.concat());
        python.end(true).await;
        eventually("no container", GONE_WITHIN, async || {
            bench.containers().await.is_empty()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_guest_that_floods_is_held_back_and_loses_nothing() {
    const FLOOD: &str = "
import sys
for line in range(8000):
    print(line, 'x' * 1000)
sys.stdout.flush()
";
    on_every_engine(async |engine| {
        let sandbox = Bench::new(&engine).open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        python.send(FLOOD).await;
        // Unread, the pieces in flight reach their bound and stay there.
        let bound = python.guest.output.max_capacity();
        eventually("the channel is full", GONE_WITHIN, async || {
            python.guest.output.len() == bound
        })
        .await;
        let ran = python.collect().await;
        assert!(ran.done.is_some());
        let line = "x".repeat(1000);
        let expected: Vec<_> = (0..8000)
            .map(|number| format!("{number} {line}\n"))
            .collect();
        let expected = expected.concat();
        assert!(
            ran.stdout == expected,
            "{} bytes instead of {}",
            ran.stdout.len(),
            expected.len()
        );
        python.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_spare_is_there_at_once_and_is_replaced() {
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        bench.config.spares = 1;
        let sandbox = bench.open().await;
        // The first start takes the spare that `open` began, and waits for it.
        let mut first = Python::new(sandbox.start().await.unwrap()).await;
        eventually("a second container", GONE_WITHIN, async || {
            bench.containers().await.len() == 2
        })
        .await;
        eventually("it has started", GONE_WITHIN, async || {
            bench.running().await == 2
        })
        .await;
        let began = Instant::now();
        let second = sandbox.start().await.unwrap();
        let took = began.elapsed();
        let mut second = Python::new(second).await;
        assert!(
            took < Duration::from_millis(50),
            "taking a spare took {took:?}"
        );
        assert_eq!(first.run("x = 1; print(x)").await.stdout, "1\n");
        assert_eq!(
            second.run("print('x' in globals())").await.stdout,
            "False\n"
        );
        // Both guests are still in use.
        sandbox.shut_down().await;
        assert_eq!(bench.containers().await, [""; 0]);
        assert!(
            matches!(sandbox.start().await, Err(SandboxError::Engine { .. })),
            "started behind the end"
        );
    })
    .await;
}

#[tokio::test]
async fn a_spare_that_died_is_not_handed_out() {
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        bench.config.spares = 1;
        let sandbox = bench.open().await;
        eventually("it has started", GONE_WITHIN, async || {
            bench.running().await == 1
        })
        .await;
        let spare = bench.containers().await.remove(0);
        engine.client().kill_container(&spare, None).await.unwrap();
        eventually("it is gone", GONE_WITHIN, async || {
            !bench.containers().await.contains(&spare)
        })
        .await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        assert_eq!(python.run("print(2)").await.stdout, "2\n");
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_is_killed_leaves_nothing() {
    on_every_engine(async |engine| {
        let bench = Bench::new(&engine);
        let owner = unique("killed");
        let mut child = bench.spawn_owner(&owner, 1);
        let label = format!("runbridge.owner={owner}");
        // Between create and start there is nothing that could end it: that is the reaper's case.
        eventually("guest and spare run", GONE_WITHIN, async || {
            let list = engine.list(&label).await;
            list.len() == 2 && list.iter().all(|(_, state)| state == "running")
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        // Nobody reaps here: the containers notice that their stdin ended and remove themselves.
        eventually("no container", GONE_WITHIN, async || {
            engine.containers(&label).await.is_empty()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn reaping_takes_the_dead_and_nothing_else() {
    on_every_engine(async |engine| {
        let bench = Bench::new(&engine);
        // As a bridge leaves them that was killed before it started what it had created.
        let sandbox = bench.open().await;
        let folder_id =
            std::fs::read_to_string(bench.config.owner_lock_dir.join("folder-id")).unwrap();
        let living = bench.config.owner.clone();
        let dead = unique("dead");
        let names = [
            bench
                .create_bare(&[
                    ("runbridge", "1"),
                    ("runbridge.owner", &dead),
                    ("runbridge.owners", &folder_id),
                ])
                .await,
            bench
                .create_bare(&[
                    ("runbridge", "1"),
                    ("runbridge.owner", &living),
                    ("runbridge.owners", &folder_id),
                ])
                .await,
            bench
                .create_bare(&[
                    ("runbridge", "1"),
                    ("runbridge.owner", &dead),
                    ("runbridge.owners", "elsewhere"),
                ])
                .await,
            bench.create_bare(&[("unrelated", "1")]).await,
        ];
        let mut second = Bench::new(&engine);
        second.config.owner_lock_dir = bench.config.owner_lock_dir.clone();
        second.open().await.shut_down().await;
        let mut left = Vec::new();
        for name in &names {
            left.push(bench.exists(name).await);
        }
        for name in &names[1..] {
            bench.remove(name).await;
        }
        assert_eq!(left, [false, true, true, true]);
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_missing_image_is_named_with_the_reason() {
    on_every_engine(async |engine| {
        // The second cannot be pulled: `.invalid` resolves nowhere.
        for (image, part) in [
            ("localhost/none:x", "a local image is not pulled"),
            ("none.invalid/none:x", "none.invalid"),
        ] {
            let mut bench = Bench::new(&engine);
            bench.config.image = image.into();
            let Err(error) = ContainerSandbox::open(bench.config.clone(), Arc::new(|_| {})).await
            else {
                panic!("opened with {image}");
            };
            let SandboxError::ImageMissing {
                image: named,
                reason,
            } = &error
            else {
                panic!("{error}")
            };
            assert_eq!(named, image);
            assert!(reason.contains(part), "{reason}");
        }
    })
    .await;
}

/// A socket in front of the engine's, so that the engine can be stopped without stopping it for
/// the other tests.
struct Front {
    path: std::path::PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Front {
    fn of(engine: &Engine, path: std::path::PathBuf) -> Self {
        Self::keeping_back(engine, path, None)
    }

    /// Requests whose first line has `kept` in it do not reach the engine.
    fn keeping_back(engine: &Engine, path: std::path::PathBuf, kept: Option<&'static str>) -> Self {
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let behind = engine.url.strip_prefix("unix://").unwrap().to_owned();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = tokio::net::UnixStream::connect(&behind).await.unwrap();
                connections.spawn(async move {
                    let (mut from_near, mut to_near) = near.split();
                    let (mut from_far, mut to_far) = far.split();
                    let ask = pass_on(&mut from_near, &mut to_far, kept);
                    let answer = async {
                        tokio::io::copy(&mut from_far, &mut to_near).await?;
                        to_near.shutdown().await
                    };
                    let _ = tokio::join!(ask, answer);
                });
            }
        });
        Self { path, task }
    }
}

/// Copy what comes until a request is kept back, and then nothing more.
async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    kept: Option<&str>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        let piece = &buffer[..count];
        let line = piece.split(|byte| *byte == b'\r').next().unwrap_or(piece);
        if kept.is_some_and(|kept| String::from_utf8_lossy(line).contains(kept)) {
            return std::future::pending().await;
        }
        match count {
            0 => return to.shutdown().await,
            _ => to.write_all(piece).await?,
        }
    }
}

#[tokio::test]
async fn a_container_whose_owner_was_killed_before_its_start_is_reaped() {
    on_every_engine(async |engine| {
        let bench = Bench::new(&engine);
        let path = bench.dir().join("front.sock");
        let front = Front::keeping_back(&engine, path, Some("/start "));
        let url = format!("unix://{}", front.path.display());
        let owner = unique("killed");
        let label = format!("runbridge.owner={owner}");
        let mut child = bench.spawn_owner_at(&url, &owner, 0);
        // Its spare, which would be started next.
        eventually("a container is made", GONE_WITHIN, async || {
            engine.containers(&label).await.len() == 1
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        front.task.abort();
        let left = engine.list(&label).await;
        assert!(
            matches!(&left[..], [(_, state)] if state == "created"),
            "{left:?}"
        );
        bench.open().await.shut_down().await;
        assert_eq!(engine.containers(&label).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_stops_in_mid_run_ends_the_guest_and_is_named() {
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        let front = Front::of(&engine, bench.dir().join("front.sock"));
        bench.config.engine = EngineChoice::Forced(format!("unix://{}", front.path.display()));
        let sandbox = bench.open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        python.send("import time; time.sleep(600)").await;
        front.task.abort();
        let ran = python.collect().await;
        assert!(ran.done.is_none(), "the output did not close");
        let exit = python.end(true).await;
        assert_eq!(exit, GuestExit::default());
        let Err(error) = sandbox.start().await else {
            panic!("started without an engine")
        };
        let SandboxError::Engine {
            engine: named,
            reason,
            ..
        } = &error
        else {
            panic!("{error}")
        };
        assert!(
            named.contains("front.sock") && !reason.is_empty(),
            "{error}"
        );
        let began = Instant::now();
        sandbox.shut_down().await;
        assert!(began.elapsed() < Duration::from_secs(12));
        // The guest noticed that nobody is there any more.
        eventually("no container", GONE_WITHIN, async || {
            bench.containers().await.is_empty()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn podman_is_served_where_only_its_program_is_there() {
    let Some(podman) = engines().into_iter().find(|engine| engine.name == "podman") else {
        panic!("no rootful Podman among the engines");
    };
    // The program of the same name starts the service with the store of the engine under test.
    let mut bench = Bench::new(&podman);
    let bin = bench.dir().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let program = bin.join("podman");
    let socket = podman.url.strip_prefix("unix://").unwrap();
    let calls = bench.dir().join("calls");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >>{}\nexec python3 -c '{RELAY}' \"$@\" {socket}\n",
        calls.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();

    bench.config.engine = EngineChoice::Forced("podman".into());
    bench.config.search = EngineSearch {
        os: Os::Linux,
        path: Some(bin.into_os_string()),
        xdg_runtime_dir: Some(bench.dir()),
        ..EngineSearch::bare()
    };
    let sandbox = bench.open().await;
    let mut python = Python::new(sandbox.start().await.unwrap()).await;
    assert_eq!(python.run("print(3)").await.stdout, "3\n");
    let served = std::fs::read_to_string(&calls).unwrap();
    assert!(
        served.starts_with("system service --time=0 unix://"),
        "{served}"
    );
    let socket = served.trim().rsplit_once("unix://").unwrap().1.to_owned();
    assert_eq!(sandbox.facts().socket, format!("unix://{socket}"));
    python.end(true).await;
    sandbox.shut_down().await;
    drop(sandbox);
    eventually(
        "the service and its folder are gone",
        GONE_WITHIN,
        async || {
            !std::path::Path::new(&socket).parent().unwrap().exists()
                && tokio::net::UnixStream::connect(&socket).await.is_err()
        },
    )
    .await;
}

#[tokio::test]
async fn an_absent_engine_that_is_forced_is_named() {
    on_every_engine(async |engine| {
        for (forced, part) in [
            ("unix:///nowhere/engine.sock", "absent"),
            ("tcp://10.0.0.5:2375", "remote"),
            ("lxc", "not an engine"),
        ] {
            let mut bench = Bench::new(&engine);
            bench.config.engine = EngineChoice::Forced(forced.into());
            let Err(error) = ContainerSandbox::open(bench.config.clone(), Arc::new(|_| {})).await
            else {
                panic!("opened {forced}");
            };
            let SandboxError::EngineAbsent { engine, reason } = &error else {
                panic!("{error}")
            };
            assert_eq!(engine, forced);
            assert!(reason.contains(part), "{reason}");
        }
    })
    .await;
}
