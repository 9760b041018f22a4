//! What the acceptance tests and the developer commands share: a home folder of one's own, an MCP
//! client over stdio, and the proof that nothing was left behind. It knows the product only from
//! outside: a binary, its variables, its files and the containers it labels.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support: a set-up that fails ends the test with its reason"
)]

mod components;
mod engine;
mod fixture;
mod home;
mod leftovers;
mod mcp;

pub use components::Components;
pub use engine::{Container, Engine, image};
pub use fixture::{Bridge, BridgeOptions};
pub use home::TempHome;
pub use leftovers::Leftovers;
pub use mcp::{Closed, Era, McpClient, Pending, Reply, RequestError};

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
