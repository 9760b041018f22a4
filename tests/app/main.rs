//! The desktop app as its user meets it: a tray on a real session bus, a window in a real webview,
//! clients through the real sidecar.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test ends where its set-up fails"
)]
#![cfg(target_os = "linux")]

mod app;
mod clients;
mod commands;
mod driver;
mod screen;
mod tray;
mod window;
