//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod clients;
pub mod interpreters;
pub mod paths;
pub mod request;
pub mod settings;
pub mod tool;
