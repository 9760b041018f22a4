//! What a window asks of the bridge, each command through the desk that a shell wires to it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is a test's verdict"
)]

#[path = "desk/bench.rs"]
mod bench;
#[cfg(unix)]
#[path = "desk/connections.rs"]
mod connections;
#[path = "desk/limits.rs"]
mod limits;
#[path = "desk/memory.rs"]
mod memory;
#[path = "desk/packages.rs"]
mod packages;
#[path = "desk/questions.rs"]
mod questions;
#[path = "desk/runs.rs"]
mod runs;
#[path = "desk/scripted.rs"]
mod scripted;
#[path = "desk/servers.rs"]
mod servers;
#[path = "desk/table.rs"]
mod table;
#[path = "desk/whole.rs"]
mod whole;
