//! Where a guest's frames come in and go out, and where an interrupt reaches it.
//!
//! Three threads of the worker meet here: the guest's, which asks and waits; the reader, which
//! brings what the host sent; the watch, which stops a guest that an interrupt did not. Knows
//! frames and time, and nothing of WebAssembly.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::frame::{self, Frame, Kind};

/// Bytes of frames that wait for the guest. Above it the host's pipe is not read.
const INBOX_BYTES_MAX: usize = 2 * frame::PAYLOAD_BYTES_MAX;

/// What the guest must see to before it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Nothing,
    /// Raise `KeyboardInterrupt`.
    Interrupt,
    /// End: the interrupt did not help.
    Stop,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    Frame(Header),
    Timeout,
    Pending,
}

/// What `receive` tells of the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) id: u64,
    pub(super) length: usize,
}

/// Where bytes for the host go; whole frames, in order.
pub(super) trait Output: Send + Sync {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;
}

pub(super) struct Door {
    state: Mutex<State>,
    changed: Condvar,
    output: Box<dyn Output>,
    grace: Duration,
    /// Makes a busy guest look at [`Door::pending`].
    nudge: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    inbox: VecDeque<Frame>,
    inbox_bytes: usize,
    /// The run that the guest has taken and not ended.
    active: Option<u64>,
    /// The last run that was active; what is printed in between belongs to it.
    last: u64,
    greeted: bool,
    in_turn: bool,
    interrupt: bool,
    stop_at: Option<Instant>,
    stop: bool,
    /// The host's id of a call under way -> the guest's. A restored guest counts its calls from an
    /// earlier number, and must not get the answer to a call that it has not made.
    calls: HashMap<u64, u64>,
    calls_made: u64,
}

impl Door {
    pub(super) fn new(
        output: Box<dyn Output>,
        grace: Duration,
        nudge: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            output,
            grace,
            nudge,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has ended the worker.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The reader's side.

    /// Take in a frame of the host.
    pub(super) fn deliver(&self, frame: Frame) -> io::Result<()> {
        let mut state = self.state();
        match frame.kind {
            Kind::Interrupt => return self.interrupt(state, frame.id),
            Kind::Reply => {
                let Some(id) = state.calls.remove(&frame.id) else {
                    // Of a call that was made before a restore, or is no longer waited for.
                    return Ok(());
                };
                state.push(Frame { id, ..frame });
            }
            _ => state.push(frame),
        }
        self.changed.notify_all();
        while state.inbox_bytes > INBOX_BYTES_MAX {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn interrupt(&self, mut state: MutexGuard<'_, State>, run: u64) -> io::Result<()> {
        if state.active != Some(run) {
            let waiting = state
                .inbox
                .iter()
                .position(|frame| frame.kind == Kind::Run && frame.id == run);
            let Some(frame) = waiting.and_then(|place| state.inbox.remove(place)) else {
                // It has ended.
                return Ok(());
            };
            state.inbox_bytes -= frame.payload.len();
            let done = serde_json::json!({
                "error": {"type": "KeyboardInterrupt", "message": "", "traceback": ""},
                "notes": ["The run was stopped before it began: what earlier runs left running kept \
                           Python busy."],
            });
            self.write(Kind::Done, run, done.to_string().as_bytes())?;
            if !state.in_turn {
                return Ok(());
            }
        }
        state.interrupt = true;
        state.stop_at = Some(Instant::now() + self.grace);
        self.changed.notify_all();
        drop(state);
        (self.nudge)();
        Ok(())
    }

    // The watch's side.

    /// Stop each guest whose grace is over. Never returns.
    pub(super) fn watch(&self) -> ! {
        let mut state = self.state();
        loop {
            let left = state
                .stop_at
                .map(|at| at.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => {
                    state.stop_at = None;
                    state.stop = true;
                    self.changed.notify_all();
                    drop(state);
                    (self.nudge)();
                    state = self.state();
                }
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    // The guest's side.

    /// Wait until there is a reason for a turn.
    pub(super) fn wait_for_turn(&self, until: Option<Instant>) {
        let mut state = self.state();
        while state.inbox.is_empty() {
            let Some(left) = left(until) else { break };
            state = self.wait(state, left);
        }
        state.in_turn = true;
    }

    /// A turn is over: what was meant for it must not hit the next one.
    pub(super) fn end_turn(&self) {
        let mut state = self.state();
        state.in_turn = false;
        state.interrupt = false;
        state.stop = false;
        state.stop_at = None;
    }

    /// Clears an interrupt; a stop stays.
    pub(super) fn pending(&self) -> Pending {
        let mut state = self.state();
        if state.stop {
            Pending::Stop
        } else if std::mem::take(&mut state.interrupt) {
            Pending::Interrupt
        } else {
            Pending::Nothing
        }
    }

    /// Wait for the next frame, which stays where it is.
    pub(super) fn receive(&self, until: Option<Instant>) -> Woken {
        let mut state = self.state();
        loop {
            if state.stop || state.interrupt {
                return Woken::Pending;
            }
            if let Some(frame) = state.inbox.front() {
                return Woken::Frame(Header {
                    kind: frame.kind,
                    id: frame.id,
                    length: frame.payload.len(),
                });
            }
            let Some(left) = left(until) else {
                return Woken::Timeout;
            };
            state = self.wait(state, left);
        }
    }

    /// Take the frame that [`Door::receive`] told of.
    pub(super) fn take(&self) -> Option<Frame> {
        let mut state = self.state();
        let frame = state.inbox.pop_front()?;
        state.inbox_bytes -= frame.payload.len();
        if frame.kind == Kind::Run {
            state.active = Some(frame.id);
            state.last = frame.id;
        }
        self.changed.notify_all();
        Some(frame)
    }

    /// Wait for a time, frames or not.
    pub(super) fn sleep(&self, until: Instant) {
        let mut state = self.state();
        while !state.stop && !state.interrupt {
            let Some(left) = left(Some(until)) else { break };
            state = self.wait(state, left);
        }
    }

    /// Send a frame of the guest's.
    pub(super) fn send(&self, kind: Kind, id: u64, payload: &[u8]) -> io::Result<()> {
        let mut id = id;
        let mut state = self.state();
        match kind {
            // A restored guest greets again.
            Kind::Hello if std::mem::replace(&mut state.greeted, true) => return Ok(()),
            Kind::Call => {
                state.calls_made += 1;
                let number = state.calls_made;
                state.calls.insert(number, id);
                id = number;
            }
            Kind::CancelCall => {
                let made = state.calls.iter().find(|(_, guests)| **guests == id);
                let Some(number) = made.map(|(number, _)| *number) else {
                    return Ok(());
                };
                state.calls.remove(&number);
                id = number;
            }
            Kind::Done if state.active == Some(id) => state.end_run(),
            _ => {}
        }
        drop(state);
        self.write(kind, id, payload)
    }

    /// Send what the guest wrote to its descriptor 1 or 2.
    pub(super) fn print(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let run = self.state().last;
        for piece in bytes.chunks(frame::PAYLOAD_BYTES_MAX) {
            self.write(kind, run, piece)?;
        }
        Ok(())
    }

    /// Forget what a lost guest had under way; gives the run that it was in.
    pub(super) fn abandon(&self) -> io::Result<Option<u64>> {
        let mut state = self.state();
        let run = state.active;
        state.end_run();
        let calls = std::mem::take(&mut state.calls);
        let replies = |frame: &Frame| frame.kind == Kind::Reply;
        state.inbox_bytes -= state
            .inbox
            .iter()
            .filter(|frame| replies(frame))
            .map(|frame| frame.payload.len())
            .sum::<usize>();
        state.inbox.retain(|frame| !replies(frame));
        drop(state);
        for number in calls.into_keys() {
            self.write(Kind::CancelCall, number, b"")?;
        }
        Ok(run)
    }

    /// The run that the guest has not ended.
    pub(super) fn active(&self) -> Option<u64> {
        self.state().active
    }

    pub(super) fn write(&self, kind: Kind, id: u64, payload: &[u8]) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        frame::encode(kind, id, payload, &mut bytes);
        self.output.write_all(&bytes)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, left: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl State {
    fn push(&mut self, frame: Frame) {
        self.inbox_bytes += frame.payload.len();
        self.inbox.push_back(frame);
    }

    fn end_run(&mut self) {
        self.active = None;
        self.interrupt = false;
        self.stop_at = None;
    }
}

/// Time until then; nothing when it has come. No time at all means a day, and another.
fn left(until: Option<Instant>) -> Option<Duration> {
    let Some(until) = until else {
        return Some(Duration::from_secs(86_400));
    };
    let left = until.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}
