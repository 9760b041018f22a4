//! The core through its public calls, with real processes on the other side.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is a test's verdict"
)]

mod catalog;
mod http;
#[cfg(unix)]
mod listener;
mod sign_in;
mod upstream;
