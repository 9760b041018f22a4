//! The container backend against real engines.
//!
//! `RUNBRIDGE_TEST_ENGINES` lists them (`podman=unix:///a.sock,docker=unix:///b.sock`) and
//! `RUNBRIDGE_TEST_IMAGE` names an image that all of them have. Every case runs on every engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot prepare has failed, and says where"
)]

mod corpus;
mod engines;
mod hardening;
mod hostile;
mod lifecycle;
mod limits;
mod machine;
mod pulling;
mod python;
