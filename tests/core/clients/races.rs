//! The client writes its file at the same moments as we do.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use runbridge_core::clients::connect::{Action, ConnectError};
use runbridge_core::paths::Os;
use serde_json::{Value, json};

use crate::home::Home;

const PATH: &str = ".cursor/mcp.json";
const TRIES: u64 = 1_000;

/// Rewrites the file from what it holds until told to stop; gives the last number it wrote. A client that
/// writes in place is one whose file is short of content for a moment.
fn client(path: &Path, stop: &AtomicBool, in_place: bool) -> u64 {
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        let text = std::fs::read_to_string(path).unwrap();
        let Ok(mut root) = serde_json::from_str::<Value>(&text) else {
            panic!("a torn file: {text:?}");
        };
        assert_eq!(
            root["count"],
            json!(written),
            "an update of the client was lost"
        );
        written += 1;
        root["count"] = json!(written);
        let text = serde_json::to_string_pretty(&root).unwrap();
        if in_place {
            std::fs::write(path, text).unwrap();
        } else {
            let temporary = path.with_extension("tmp");
            std::fs::write(&temporary, text).unwrap();
            std::fs::rename(&temporary, path).unwrap();
        }
        std::thread::yield_now();
    }
    written
}

fn race(in_place: bool, tries: u64) {
    let home = Home::new(Os::Linux);
    let path = home.write(
        PATH,
        "{\"count\": 0, \"mcpServers\": {\"a\": {\"command\": \"x\"}}}",
    );
    let stop = AtomicBool::new(false);
    let (written, done) = std::thread::scope(|scope| {
        let client = scope.spawn(|| client(&path, &stop, in_place));
        let mut done = 0;
        for round in 0..tries {
            let action = if round % 2 == 0 {
                Action::Connect
            } else {
                Action::Disconnect
            };
            match home.act("cursor", action) {
                Ok(_) => done += 1,
                // The client was faster every time; nothing was changed.
                Err(ConnectError::Changed { .. } | ConnectError::Unreadable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            if client.is_finished() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        (client.join().unwrap(), done)
    });
    assert!(
        done > 0 && written > 0,
        "{done} changes beside {written} of the client"
    );
    home.connect("cursor");
    let root: Value = serde_json::from_str(&home.read(PATH)).unwrap();
    assert_eq!(root["count"], json!(written));
    assert_eq!(root["mcpServers"].as_object().unwrap().len(), 2, "{root}");
    home.disconnect("cursor");
    let root: Value = serde_json::from_str(&home.read(PATH)).unwrap();
    assert_eq!(root["mcpServers"], json!({"a": {"command": "x"}}));
}

#[test]
fn no_update_of_a_client_that_replaces_its_file_is_lost() {
    race(false, TRIES);
}
