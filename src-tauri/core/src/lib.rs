//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod atomic;
pub mod clients;
pub mod interpreters;
pub mod paths;
pub mod request;
pub mod settings;
pub mod tool;
pub mod memory;
pub mod output;
pub mod redact;
pub mod reply;
pub mod saved_tools;
pub mod secrets;
mod timestamp;
pub mod toon;
pub mod catalog;
pub mod clients;
pub mod upstream;
