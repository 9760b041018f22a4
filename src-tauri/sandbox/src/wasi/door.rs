//! Where a guest's frames come in and go out, and where an interrupt reaches it.
//!
//! Three threads of the worker meet here: the guest's, which asks and waits; the reader, which
//! brings what the host sent; the watch, which stops a guest that an interrupt did not. Knows
//! frames and time, and nothing of WebAssembly.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::frame::{self, Frame, Kind};
use crate::mounts;

/// Bytes of frames that wait for the guest. Above it the host's pipe is not read.
const INBOX_BYTES_MAX: usize = 2 * frame::PAYLOAD_BYTES_MAX;

/// How often an interrupt is marked again that met the guest's own code.
const AGAIN: Duration = Duration::from_millis(4);

/// Printed text waits this long for more, so that a loop of prints does not cost a write each.
const LINGER: Duration = Duration::from_millis(15);

/// Above it the guest waits until the host has read.
const OUTBOX_BYTES_MAX: usize = 1 << 20;

/// Printed text that is sent at once.
const PRINTED_BYTES_MAX: usize = 64 << 10;

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
    // One for each of those who wait, for a wake-up that is not needed costs a call more than its work:
    // the guest, for frames and interrupts;
    for_guest: Condvar,
    // the watch, for another time to look at;
    for_watch: Condvar,
    // whoever has more than fits, for room.
    room: Condvar,
    /// How many there are in `State::mounts`, so that a guest that has them all takes no lock.
    mounts: AtomicUsize,
    output: Box<dyn Output>,
    grace: Duration,
    /// Makes a busy guest look at [`Door::pending`].
    nudge: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    inbox: VecDeque<Frame>,
    inbox_bytes: usize,
    /// Files that the host sent, in order. They stay: a guest that is restored needs them again.
    mounts: Vec<(String, Bytes)>,
    /// The run that the guest has taken and not ended.
    active: Option<u64>,
    /// The last run that was active; what is printed in between belongs to it.
    last: u64,
    greeted: bool,
    in_turn: bool,
    ended_run: bool,
    /// To be marked, and not yet seen by the guest's thread.
    interrupt: bool,
    /// When to mark it again.
    again_at: Option<Instant>,
    stop_at: Option<Instant>,
    stop: bool,
    /// The host's id of a call under way -> the guest's. A restored guest counts its calls from an
    /// earlier number, and must not get the answer to a call that it has not made.
    calls: HashMap<u64, u64>,
    calls_made: u64,
    printed: Printed,
    /// Frames on their way out, in order.
    outbox: BytesMut,
    /// A thread is sending what is in the outbox, and will send what comes into it.
    sending: bool,
}

/// Text of one stream and run that was not sent yet.
#[derive(Default)]
struct Printed {
    of: Option<(Kind, u64)>,
    bytes: Vec<u8>,
    send_at: Option<Instant>,
}

impl Door {
    pub(super) fn new(
        output: Box<dyn Output>,
        grace: Duration,
        nudge: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            state: Mutex::default(),
            for_guest: Condvar::new(),
            for_watch: Condvar::new(),
            room: Condvar::new(),
            mounts: AtomicUsize::new(0),
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
            Kind::Mount => {
                let (name, content) = mounts::read(&frame.payload).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, "the host sent half a file")
                })?;
                let name = name.to_owned();
                state.mounts.push((name, content));
                self.mounts.store(state.mounts.len(), Ordering::Release);
                // Whoever needs it is told by another frame.
                return Ok(());
            }
            _ => state.push(frame),
        }
        self.for_guest.notify_one();
        while state.inbox_bytes > INBOX_BYTES_MAX {
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn interrupt<'a>(&'a self, mut state: MutexGuard<'a, State>, run: u64) -> io::Result<()> {
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
            state.put(Kind::Done, run, done.to_string().as_bytes());
            if !state.in_turn {
                return self.flush(state);
            }
        }
        let now = Instant::now();
        state.interrupt = true;
        state.again_at = Some(now + AGAIN);
        state.stop_at = Some(now + self.grace);
        self.for_guest.notify_one();
        self.for_watch.notify_one();
        (self.nudge)();
        self.flush(state)
    }

    // The watch's side.

    /// Do what is due: mark an interrupt again, stop a guest whose grace is over, send what was
    /// printed. Never returns.
    pub(super) fn watch(&self) {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
            let again = due(&mut state.again_at);
            let stop = due(&mut state.stop_at);
            if due(&mut state.printed.send_at) {
                state.seal();
                // A host that is gone is noticed by the reader.
                let _ = self.flush(state);
                state = self.state();
            }
            if again {
                state.interrupt = true;
                state.again_at = Some(now + AGAIN);
            }
            if stop {
                state.stop = true;
            }
            if again || stop {
                self.for_guest.notify_one();
                (self.nudge)();
            }
            let next = [state.again_at, state.stop_at, state.printed.send_at];
            state = match next.into_iter().flatten().min() {
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    wait(&self.for_watch, state, left)
                }
                None => self
                    .for_watch
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    // The guest's side.

    /// Wait until there is a reason for a turn.
    pub(super) fn wait_for_turn(&self, until: Option<Instant>) {
        let mut state = self.state();
        while state.inbox.is_empty() {
            let Some(left) = left(until) else { break };
            state = wait(&self.for_guest, state, left);
        }
        state.in_turn = true;
    }

    /// A turn is over: what was meant for it must not hit the next one. Tells whether a run ended
    /// in it.
    pub(super) fn end_turn(&self) -> bool {
        let mut state = self.state();
        state.in_turn = false;
        state.stop = false;
        state.forget_interrupt();
        std::mem::take(&mut state.ended_run)
    }

    /// The interrupt has arrived; a stop still follows if it does not help.
    pub(super) fn heeded(&self) {
        let mut state = self.state();
        state.interrupt = false;
        state.again_at = None;
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
            state = wait(&self.for_guest, state, left);
        }
    }

    /// The files that came after the first `count`.
    pub(super) fn mounts_after(&self, count: usize) -> Vec<(String, Bytes)> {
        if self.mounts.load(Ordering::Acquire) <= count {
            return Vec::new();
        }
        self.state().mounts[count..].to_vec()
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
        self.room.notify_all();
        Some(frame)
    }

    /// Wait for a time, frames or not.
    pub(super) fn sleep(&self, until: Instant) {
        let mut state = self.state();
        while !state.stop && !state.interrupt {
            let Some(left) = left(Some(until)) else { break };
            state = wait(&self.for_guest, state, left);
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
            Kind::Stdout | Kind::Stderr => return self.gather(state, kind, id, payload),
            Kind::Done if state.active == Some(id) => state.end_run(),
            _ => {}
        }
        state.put(kind, id, payload);
        self.flush(state)
    }

    /// Send what the guest wrote to its descriptor 1 or 2.
    pub(super) fn print(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let state = self.state();
        let run = state.last;
        self.gather(state, kind, run, bytes)
    }

    fn gather<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        kind: Kind,
        run: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let room = PRINTED_BYTES_MAX.saturating_sub(state.printed.bytes.len());
        if state.printed.of != Some((kind, run)) || bytes.len() > room {
            state.seal();
            state.printed.of = Some((kind, run));
        }
        if bytes.len() > PRINTED_BYTES_MAX {
            state.put(kind, run, bytes);
        } else {
            if state.printed.bytes.is_empty() {
                state.printed.send_at = Some(Instant::now() + LINGER);
                self.for_watch.notify_one();
            }
            state.printed.bytes.extend_from_slice(bytes);
        }
        if state.outbox.is_empty() {
            return Ok(());
        }
        self.flush(state)
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
        for number in calls.into_keys() {
            state.put(Kind::CancelCall, number, b"");
        }
        self.flush(state)?;
        Ok(run)
    }

    /// The run that the guest has not ended.
    pub(super) fn active(&self) -> Option<u64> {
        self.state().active
    }

    /// Tell the host how a run ended that the guest cannot tell of.
    pub(super) fn end_run(&self, run: u64, payload: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.put(Kind::Done, run, payload);
        self.flush(state)
    }

    /// Send what is in the outbox. The lock is not held meanwhile: a host that is slow to read must
    /// not keep its own frames from being taken in.
    fn flush<'a>(&'a self, mut state: MutexGuard<'a, State>) -> io::Result<()> {
        if state.sending {
            while state.sending && state.outbox.len() > OUTBOX_BYTES_MAX {
                state = wait(&self.room, state, Duration::from_secs(1));
            }
            return Ok(());
        }
        state.sending = true;
        while !state.outbox.is_empty() {
            let bytes = state.outbox.split();
            drop(state);
            let sent = self.output.write_all(&bytes);
            drop(bytes);
            state = self.state();
            if let Err(error) = sent {
                state.sending = false;
                return Err(error);
            }
        }
        state.sending = false;
        self.room.notify_all();
        Ok(())
    }
}

fn wait<'a>(on: &Condvar, state: MutexGuard<'a, State>, left: Duration) -> MutexGuard<'a, State> {
    let waited = on.wait_timeout(state, left);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

impl State {
    fn push(&mut self, frame: Frame) {
        self.inbox_bytes += frame.payload.len();
        self.inbox.push_back(frame);
    }

    /// Put a frame behind all that was printed.
    fn put(&mut self, kind: Kind, id: u64, payload: &[u8]) {
        self.seal();
        frame::encode(kind, id, payload, &mut self.outbox);
    }

    /// What was printed so far becomes a frame.
    fn seal(&mut self) {
        let printed = &mut self.printed;
        printed.send_at = None;
        if let Some((kind, run)) = printed.of.filter(|_| !printed.bytes.is_empty()) {
            frame::encode(kind, run, &printed.bytes, &mut self.outbox);
            printed.bytes.clear();
        }
    }

    fn end_run(&mut self) {
        self.active = None;
        self.ended_run = true;
        self.forget_interrupt();
    }

    fn forget_interrupt(&mut self) {
        self.interrupt = false;
        self.again_at = None;
        self.stop_at = None;
    }
}

/// Time until then; nothing when it has come. No time at all means a day, and another.
fn left(until: Option<Instant>) -> Option<Duration> {
    let Some(until) = until else {
        return Some(Duration::from_hours(24));
    };
    let left = until.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}
