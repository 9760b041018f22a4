//! An engine that goes away. The test stands between the bridge and the engine, so that it can cut
//! the line without ending an engine that other tests use.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runbridge_testkit::{Engine, TempHome, wait_for};
use serde_json::json;

use crate::{on, on_every_engine};

on_every_engine!(an_engine_that_stops_in_a_run_is_named_and_comes_back);

fn an_engine_that_stops_in_a_run_is_named_and_comes_back(engine: Engine) {
    // Beside the home: a socket inside would be found as left behind.
    let outside = TempHome::new();
    let line = Line::to(&engine.socket, outside.join("engine.sock"));
    let cut = Engine {
        name: engine.name.clone(),
        socket: outside.join("engine.sock"),
    };
    let home = TempHome::new();
    let started = home.join("starts");
    let entry = home.stub(&["--starts", &started.to_string_lossy()]);
    let mut bridge = on(cut).server("stub", entry).start(home);
    bridge.prints("x = 1");
    bridge.leftovers().note_owner();
    let run = bridge
        .client()
        .send_run(json!({ "code": "await mcp_stub.never()", "timeout": 60 }));
    assert!(wait_for(Duration::from_secs(20), || started.exists().then_some(())).is_some());
    line.cut();
    let reply = run.reply().unwrap();
    assert_eq!(
        (reply.status(), reply.is_error()),
        ("error", true),
        "{}",
        reply.result
    );
    assert!(reply.took < Duration::from_secs(40), "{:?}", reply.took);
    let down = bridge.run("print(1)");
    assert_eq!(down.status(), "error", "{}", down.result);
    let kind = if engine.name.starts_with("podman") {
        "podman"
    } else {
        "docker"
    };
    assert!(
        down.text().to_lowercase().contains(kind),
        "the engine must be named: {}",
        down.text()
    );

    line.mend();
    let up = wait_for(Duration::from_secs(20), || {
        (bridge.run("print(1)").status() == "success").then_some(())
    });
    assert!(up.is_some(), "the bridge did not come back with its engine");
    bridge.assert_goes_on();
    bridge.close();
    line.cut();
}

/// A socket that leads to another, until it is cut.
struct Line {
    to: PathBuf,
    at: PathBuf,
    open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<UnixStream>>>,
}

impl Line {
    fn to(engine: &Path, at: PathBuf) -> Self {
        let line = Self {
            to: engine.to_owned(),
            at,
            open: Arc::default(),
            streams: Arc::default(),
        };
        line.mend();
        line
    }

    fn mend(&self) {
        let listener = UnixListener::bind(&self.at).unwrap();
        self.open.store(true, Ordering::SeqCst);
        let (to, open, streams) = (
            self.to.clone(),
            Arc::clone(&self.open),
            Arc::clone(&self.streams),
        );
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if !open.load(Ordering::SeqCst) {
                    break;
                }
                let (Ok(client), Ok(engine)) = (client, UnixStream::connect(&to)) else {
                    break;
                };
                streams
                    .lock()
                    .unwrap()
                    .extend([client.try_clone().unwrap(), engine.try_clone().unwrap()]);
                let (client_back, engine_back) =
                    (client.try_clone().unwrap(), engine.try_clone().unwrap());
                std::thread::spawn(move || join(client, engine));
                std::thread::spawn(move || join(engine_back, client_back));
            }
        });
    }

    fn cut(&self) {
        self.open.store(false, Ordering::SeqCst);
        // The listening thread notices at its next client, which is this one.
        let _ = UnixStream::connect(&self.at);
        let _ = std::fs::remove_file(&self.at);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn join(mut from: UnixStream, mut to: UnixStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
