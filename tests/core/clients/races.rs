//! The client writes its file at the same moments as we do.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use runbridge_core::clients::connect::{Action, ConnectError};
use runbridge_core::paths::Os;
use serde_json::{Value, json};

use crate::home::Home;

const PATH: &str = ".cursor/mcp.json";
const TRIES: u64 = 1_000;

/// How long an update of the client may be out of sight.
const SEEN_WITHIN: Duration = Duration::from_secs(2);

/// Writes the number that it has in mind, with the rest as the file has it, until told to stop; gives the
/// last number. Now and then it waits until it sees what it wrote.
fn client(path: &Path, stop: &AtomicBool) -> u64 {
    let read = || -> Value {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("a torn file: {text:?}"))
    };
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut root = read();
        count += 1;
        root["count"] = json!(count);
        let temporary = path.with_extension("tmp");
        std::fs::write(&temporary, serde_json::to_string_pretty(&root).unwrap()).unwrap();
        std::fs::rename(&temporary, path).unwrap();
        // Its own pace, now faster than we are and now slower.
        std::thread::sleep(Duration::from_millis(count % 8));
        if count % 10 == 0 {
            let deadline = Instant::now() + SEEN_WITHIN;
            while read()["count"] != json!(count) {
                assert!(
                    Instant::now() < deadline,
                    "update {count} of the client was lost"
                );
                std::thread::yield_now();
            }
        }
    }
    count
}

#[test]
fn no_update_of_a_client_that_replaces_its_file_is_lost() {
    let home = Home::new(Os::Linux);
    let path = home.write(
        PATH,
        "{\"count\": 0, \"mcpServers\": {\"a\": {\"command\": \"x\"}}}",
    );
    let stop = AtomicBool::new(false);
    let (written, done, beaten) = std::thread::scope(|scope| {
        let client = scope.spawn(|| client(&path, &stop));
        let (mut done, mut beaten) = (0, 0);
        for round in 0..TRIES {
            let action = if round % 2 == 0 {
                Action::Connect
            } else {
                Action::Disconnect
            };
            let tried = home.with(|connector| {
                let plan = connector.plan("cursor", action, None, false)?;
                connector.apply(&plan).map(|()| plan.is_change())
            });
            match tried {
                Ok(changed) => done += u64::from(changed),
                // The client was faster; nothing was changed.
                Err(ConnectError::Changed { .. }) => beaten += 1,
                Err(error) => panic!("{error}"),
            }
            if client.is_finished() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        (client.join().unwrap(), done, beaten)
    });
    assert!(
        done > 0 && beaten > 0,
        "no race: {done} changes, {beaten} beaten"
    );
    home.connect("cursor");
    let root: Value = serde_json::from_str(&home.read(PATH)).unwrap();
    assert_eq!(root["count"], json!(written));
    assert_eq!(root["mcpServers"].as_object().unwrap().len(), 2, "{root}");
    home.disconnect("cursor");
    let root: Value = serde_json::from_str(&home.read(PATH)).unwrap();
    assert_eq!(root["mcpServers"], json!({"a": {"command": "x"}}));
}
