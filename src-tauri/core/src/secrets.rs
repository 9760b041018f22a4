//! The type of every secret value, so that none is printed, logged or serialised by accident.
//!
//! Knows nothing of where secrets come from.

use std::fmt;

/// A value that must not be shown. It prints as `***`, cannot be serialised, and its bytes are
/// overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keep `value` secret from here on.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value. Every use of this is a place where a secret leaves our care.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        // Otherwise the optimiser sees that nobody reads the zeros.
        std::hint::black_box(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_inside_any_debug_output_is_stars() {
        let shown = format!("{:?}", Some(vec![Secret::new("hunter2-hunter2")]));
        assert_eq!(shown, "Some([***])");
    }
}
