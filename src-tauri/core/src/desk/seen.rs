//! What has ever happened here, for the list of first steps: two facts in a file of their own, which
//! clearing the record of runs does not touch.

use std::path::PathBuf;

use super::{Inner, lock};
use crate::api::{Change, Seen};
use crate::atomic;

impl Inner {
    fn seen_file(&self) -> PathBuf {
        self.bridge.paths().data.join("seen.json")
    }

    /// As it stands on disk. Blocks.
    pub(super) fn seen_now(&self) -> Seen {
        let kept = std::fs::read(self.seen_file()).ok();
        let kept = kept.and_then(|bytes| serde_json::from_slice::<Seen>(&bytes).ok());
        let mut seen = kept.unwrap_or_default();
        // A record that is older than the file.
        if !seen.run {
            seen.run = self.bridge.activity().any_success().unwrap_or(false);
        }
        seen
    }

    /// Something may have happened for the first time. Blocks.
    pub(super) fn look_at_seen(&self) {
        let before = lock(&self.told).seen;
        let mut seen = before;
        if !seen.client && !self.bridge.clients().borrow().is_empty() {
            seen.client = true;
        }
        if !seen.run {
            seen.run = self.bridge.activity().any_success().unwrap_or(false);
        }
        if seen == before {
            return;
        }
        lock(&self.told).seen = seen;
        let folder = self.bridge.paths().data.clone();
        let written = atomic::create_folder(&folder).and_then(|()| {
            let bytes = serde_json::to_vec(&seen).map_err(std::io::Error::other)?;
            atomic::write(&self.seen_file(), &bytes)
        });
        if let Err(error) = written {
            // It is seen again the next time.
            tracing::warn!("first steps cannot be noted: {error}");
        }
        self.bridge.events().tell(Change::Seen { seen });
    }
}
