//! What the acceptance tests and the developer commands share: a home folder of one's own, an MCP
//! client over stdio, and the proof that nothing was left behind. It knows the product only from
//! outside: a binary, its variables, its files and the containers it labels.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "test support: a set-up that fails ends the test, and `json!` reads best as an argument"
)]

mod components;
mod engine;
mod fixture;
mod home;
mod index;
mod leftovers;
mod mcp;
mod registry;
mod reply;
mod wire;

pub use components::Components;
pub use engine::{Container, Engine, image};
pub use fixture::{Bridge, BridgeOptions};
pub use home::TempHome;
pub use index::{Index, Manner, Wheel};
pub use leftovers::Leftovers;
pub use mcp::{Closed, Era, McpClient, Pending};
pub use registry::{Gives, Registry, RegistryImage};
pub use reply::{Reply, RequestError};
pub use wire::{Side, WireCheck};

use std::io::Write as _;
use std::time::{Duration, Instant};

/// The file that collects what was skipped, for `cargo xtask test` to tell at the end.
pub const SKIPS_FILE: &str = "RUNBRIDGE_TEST_SKIPS";

/// Say that a test could not run. It counts as skipped in `cargo xtask test`, which sets the file.
pub fn skip(test: &str, reason: &str) {
    if let Some(path) = std::env::var_os(SKIPS_FILE) {
        let line = format!("{test}: {reason}\n");
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Ask `probe` until it gives something or `deadline` has passed. For facts that no event tells:
/// processes of others, files, containers.
pub fn wait_for<T>(deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn stub(home: &TempHome, arguments: &[&str]) -> McpClient {
        let entry = home.stub(arguments);
        let args: Vec<&str> = entry["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap())
            .collect();
        let command = Path::new(entry["command"].as_str().unwrap());
        McpClient::start(
            command,
            &args,
            home.path(),
            &[],
            Era::Initialize("2025-11-25"),
        )
        .unwrap()
        .0
    }

    fn call(client: &McpClient, name: &str, arguments: serde_json::Value) -> Pending {
        client.send_request(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )
    }

    #[test]
    fn answers_find_their_questions_in_any_order() {
        let home = TempHome::new();
        let client = stub(&home, &[]);
        let slow = call(&client, "sleep_ms", json!({ "ms": 100 }));
        let quick = call(&client, "echo", json!({ "text": "quick" }));
        let deadline = Duration::from_secs(10);
        assert_eq!(quick.wait(deadline).unwrap()["content"][0]["text"], "quick");
        assert_eq!(slow.wait(deadline).unwrap()["content"][0]["text"], "slept");
        let error = call(&client, "rpc_error", json!({}))
            .wait(deadline)
            .unwrap_err();
        assert!(
            matches!(error, RequestError::Rpc { code: -32001, .. }),
            "{error}"
        );
        for _ in 0..2 {
            let crash = call(&client, "crash", json!({}));
            assert_eq!(crash.wait(deadline), Err(RequestError::Closed));
        }
    }

    #[test]
    fn lines_that_are_not_json_rpc_are_told() {
        let home = TempHome::new();
        let client = stub(&home, &["--noise", "200"]);
        assert_eq!(client.impure().len(), 2, "{:?}", client.impure());
        assert!(stub(&home, &[]).impure().is_empty());
    }

    #[test]
    fn what_is_left_is_found() {
        let home = TempHome::new();
        let leftovers = Leftovers::of(home.path(), None);
        leftovers.assert_none();
        let client = stub(&home, &["--child"]);
        assert_eq!(
            leftovers.processes().len(),
            2,
            "{:?}",
            leftovers.processes()
        );
        std::fs::write(home.temp_dir().join("file"), "x").unwrap();
        let socket = std::os::unix::net::UnixListener::bind(home.join("s")).unwrap();
        let left = leftovers.now();
        for kind in ["process", "temporary file", "open socket", "socket file"] {
            assert!(
                left.iter().any(|line| line.starts_with(kind)),
                "{kind}: {left:?}"
            );
        }
        drop(socket);
        client.kill();
        // The child outlives its parent and must be found alone.
        let alone = leftovers.processes();
        assert_eq!(alone.len(), 1, "{alone:?}");
        let pid = alone[0].split([' ', ':']).nth(1).unwrap();
        std::process::Command::new("kill")
            .args(["-9", pid])
            .status()
            .unwrap();
        assert!(
            wait_for(Duration::from_secs(5), || leftovers
                .processes()
                .is_empty()
                .then_some(()))
            .is_some()
        );
    }
}
