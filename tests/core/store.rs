//! What lives on disk, through the library's public door.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure here is the test's failure"
)]

mod store_activity;
mod store_memory;
mod store_memory_processes;
mod store_output;
mod store_saved_tools;
