//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod activity;
pub mod api;
pub mod arrivals;
pub mod atomic;
pub mod bridge;
mod calls;
pub mod catalog;
pub mod clients;
pub mod desk;
mod docs;
pub mod events;
pub mod http_face;
pub mod interpreters;
pub mod late_runs;
pub mod launch_env;
#[cfg(unix)]
pub mod listener;
pub mod live_runs;
#[cfg(unix)]
pub mod local_socket;
pub mod manual;
pub mod mcp_server;
pub mod memory;
pub mod output;
pub mod paths;
mod patience;
mod processes;
pub mod questions;
pub mod redact;
pub mod reply;
pub mod request;
pub mod run;
pub mod sandboxes;
pub mod saved_tools;
pub mod secrets;
pub mod settings;
pub mod sign_in;
pub mod status;
pub mod store;
mod timestamp;
mod token;
pub mod tokens;
pub mod tool;
pub mod toon;
pub mod upstream;
pub mod watch;
mod web;
