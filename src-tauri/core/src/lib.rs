//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod clients;
pub mod paths;
pub mod settings;
