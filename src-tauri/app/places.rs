//! Names of this app that depend on whose it is.

use runbridge_core::paths::Paths;
use sha2::{Digest as _, Sha256};

/// The name on D-Bus of the app that serves these places.
pub(crate) fn bus_name(paths: &Paths) -> String {
    let digest = Sha256::digest(paths.runtime.as_os_str().as_encoded_bytes());
    let mut name = "dev.runbridge.desktop.h".to_owned();
    for byte in &digest[..8] {
        use std::fmt::Write as _;
        let _ = write!(name, "{byte:02x}");
    }
    name
}
