//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod catalog;
pub mod clients;
pub mod upstream;
