//! The embedded backend, from outside: real CPython in a real worker process, driven as the product
//! drives it.
//!
//! Needs what `cargo xtask guest` builds, in `guest/python` of the target folder.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot prepare has failed"
)]

mod cache;
mod escape;
mod limits;
mod modules;
mod mounts;
mod runs;
mod session;
#[cfg(target_os = "linux")]
mod sessions;
mod spares;
