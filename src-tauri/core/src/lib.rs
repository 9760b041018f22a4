//! The bridge: everything that lives, owned by one value, reached by library calls.

pub mod clients;
pub mod launch_env;
pub mod paths;
pub mod settings;
pub mod watch;
