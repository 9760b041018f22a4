//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod api;
pub mod clients;
