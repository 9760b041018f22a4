//! What happens inside the bridge, told to whoever looks at it: numbered changes for windows, and
//! hints between our own parts.
//!
//! Telling never waits and never fails. A listener that is too slow misses changes, which it sees by
//! their numbers, and asks for the whole state again. What the changes mean is not known here.

use std::sync::{Mutex, PoisonError};

use tokio::sync::broadcast;

use crate::api::{BridgeEvent, Change};

/// Changes that a slow window may fall behind. The burst of a run with hundreds of calls fits.
const CHANGES_KEPT: usize = 2_048;

/// Hints that a slow part may fall behind; it looks at everything then.
const HINTS_KEPT: usize = 256;

/// A part of the bridge says that something of it differs. Whoever hears it looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Settings and config files were read again.
    Discovered,
    /// A memory item was saved or forgotten.
    Memory {
        /// Its key.
        key: String,
    },
    /// A function was saved or forgotten.
    SavedTools,
    /// An interpreter started, ended, or went from work to rest or back.
    Interpreters,
    /// The sandbox is opened or was looked at.
    Sandbox,
    /// Clients have lost their entry for us, or have it back.
    Registrations,
    /// A run has ended.
    RunEnded,
}

/// The numbered changes and the hints of one bridge.
#[derive(Debug)]
pub struct Events {
    /// The number of the last change. Held while one is sent, so that they arrive in order.
    seq: Mutex<u64>,
    changes: broadcast::Sender<BridgeEvent>,
    hints: broadcast::Sender<Hint>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            seq: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_KEPT),
            hints: broadcast::Sender::new(HINTS_KEPT),
        }
    }
}

impl Events {
    /// Tell every window.
    pub(crate) fn tell(&self, change: Change) {
        let mut seq = self.seq.lock().unwrap_or_else(PoisonError::into_inner);
        *seq += 1;
        // Without a listener there is nobody to tell.
        let _ = self.changes.send(BridgeEvent { seq: *seq, change });
    }

    /// Make every window ask for the whole state: a number goes missing.
    pub(crate) fn skip(&self) {
        *self.seq.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// The number of the last change. What is read after this call contains it.
    pub fn seq(&self) -> u64 {
        *self.seq.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hear every change from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<BridgeEvent> {
        self.changes.subscribe()
    }

    /// Tell our own parts.
    pub(crate) fn hint(&self, hint: Hint) {
        let _ = self.hints.send(hint);
    }

    /// Hear every hint from now on.
    pub(crate) fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }
}
