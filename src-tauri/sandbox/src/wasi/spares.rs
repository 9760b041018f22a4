//! Guests that wait to be wanted, so that a session does not pay for the start of a process.
//!
//! They are those of one shape: when limits change, those of before end. Knows guests only as things
//! that end when they are dropped.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Guest, SandboxLimits};

/// What makes two guests differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) limits: SandboxLimits,
    pub(super) grace_ms: u64,
}

#[derive(Default)]
pub(super) struct Spares(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None`: none are kept.
    shape: Option<Shape>,
    wanted: usize,
    /// The oldest first.
    waiting: VecDeque<Guest>,
}

impl Spares {
    /// Keep so many of this shape from now on. Returns how many have to be started for it.
    pub(super) fn want(&self, shape: &Shape, count: usize) -> usize {
        let mut state = self.state();
        if state.shape.as_ref() != Some(shape) {
            state.waiting.clear();
            state.shape = Some(shape.clone());
        }
        state.wanted = count;
        state.waiting.truncate(count);
        count - state.waiting.len()
    }

    /// How many of this shape are missing.
    pub(super) fn missing(&self, shape: &Shape) -> usize {
        let state = self.state();
        if state.shape.as_ref() == Some(shape) {
            state.wanted.saturating_sub(state.waiting.len())
        } else {
            0
        }
    }

    /// One that was started to wait; it ends at once if it is no longer wanted.
    pub(super) fn put(&self, shape: &Shape, guest: Guest) {
        let mut state = self.state();
        if state.shape.as_ref() == Some(shape) && state.waiting.len() < state.wanted {
            state.waiting.push_back(guest);
        }
    }

    /// One of this shape that lives.
    pub(super) fn take(&self, shape: &Shape) -> Option<Guest> {
        let mut state = self.state();
        if state.shape.as_ref() != Some(shape) {
            return None;
        }
        // One that died while it waited has closed its output, whatever it said before.
        while let Some(guest) = state.waiting.pop_front() {
            if !guest.output.is_closed() {
                return Some(guest);
            }
        }
        None
    }

    /// Keep none any more; those that waited are for the caller to end.
    pub(super) fn close(&self) -> VecDeque<Guest> {
        let mut state = self.state();
        state.shape = None;
        state.wanted = 0;
        std::mem::take(&mut state.waiting)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Spares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.state().waiting.len();
        f.debug_struct("Spares")
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
