//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod activity;
pub mod atomic;
pub mod catalog;
pub mod clients;
pub mod interpreters;
pub mod manual;
pub mod memory;
pub mod output;
pub mod launch_env;
pub mod paths;
pub mod redact;
pub mod reply;
pub mod request;
pub mod saved_tools;
pub mod secrets;
pub mod settings;
pub mod store;
mod timestamp;
pub mod tool;
pub mod toon;
pub mod upstream;
pub mod watch;
