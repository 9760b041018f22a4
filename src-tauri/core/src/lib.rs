//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod activity;
pub mod atomic;
pub mod clients;
pub mod manual;
pub mod memory;
pub mod output;
pub mod redact;
pub mod reply;
pub mod saved_tools;
pub mod secrets;
pub mod store;
mod timestamp;
pub mod toon;
