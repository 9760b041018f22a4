//! Live interpreters by connection and session name: reuse, order, idle expiry, a bound on their
//! number. Knows nothing of what they execute.
//!
//! Runs of one session queue for its lock, which is fair, so they go in the order they came; runs
//! of different sessions do not meet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runbridge_sandbox::{Gauge, Interpreter, Usage};
use tokio::sync::{Notify, OwnedMutexGuard};

use crate::api::SandboxKind;
use crate::events::{Events, Hint};
use crate::sandboxes::{SandboxFacts, Started};
use crate::timestamp::now_ms;

/// Runs that may wait for one session; more are refused as busy.
const WAITING_RUNS_MAX: usize = 64;

/// Sessions remembered, live or not, so that one whose variables are gone can say why.
const SESSIONS_MAX: usize = 1024;

/// One client attached to us; unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// A new one.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    connection: ConnectionId,
    session: String,
}

/// All sessions with their interpreters.
#[derive(Default)]
pub struct Interpreters {
    sessions: Mutex<HashMap<Key, Arc<Session>>>,
    /// A run has ended: there may be a new earliest expiry.
    changed: Notify,
    events: Arc<Events>,
    /// What the last guest said of its Python.
    python: Mutex<Option<String>>,
}

/// A live interpreter, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveInterpreter {
    /// Unique in this process.
    pub id: u64,
    /// Whose it is.
    pub connection: ConnectionId,
    /// The name of its session.
    pub session: String,
    /// What its client calls itself.
    pub client: String,
    /// Where it runs.
    pub kind: SandboxKind,
    /// Milliseconds since 1970.
    pub started_at: i64,
    /// Since when it does nothing; `None`: it runs something.
    pub idle_since_at: Option<i64>,
    /// Runs that it has begun.
    pub runs: u32,
    /// The memory limit that it was started with.
    pub memory_bytes_max: u64,
}

struct Session {
    slot: Arc<tokio::sync::Mutex<Slot>>,
    waiting: AtomicUsize,
    used_at: Mutex<Instant>,
    /// The interpreter in `slot`, readable while a run has that; `None`: there is none.
    live: Mutex<Option<LiveInterpreter>>,
    gauge: Mutex<Option<Gauge>>,
    /// Processor time when it was last measured.
    measured: Mutex<Option<(u64, Instant)>>,
}

/// What one interpreter uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Memory.
    pub memory_bytes: u64,
    /// Thousandths of one processor since the measure before.
    pub cpu_thousandths: Option<u32>,
}

/// What a session holds between runs. A run owns it while it lasts.
#[derive(Default)]
pub struct Slot {
    /// The interpreter, once one was needed.
    pub interpreter: Option<Interpreter>,
    /// The sandbox of the last interpreter; its kind is that of every later one.
    pub sandbox: Option<Arc<SandboxFacts>>,
    /// Runs that this session has seen; names their sources.
    pub runs: u64,
    /// Why the variables of earlier runs are gone; told once.
    pub lost: Option<String>,
}

/// Too many runs wait for one session.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy;

/// A session taken for one run; gives it back when dropped.
pub struct Lease {
    slot: OwnedMutexGuard<Slot>,
    session: Arc<Session>,
    owner: Arc<Interpreters>,
}

impl std::ops::Deref for Lease {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl std::ops::DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Slot {
        &mut self.slot
    }
}

impl Lease {
    /// Put in an interpreter that was started for the run.
    pub(crate) fn began(&mut self, started: Started, live: LiveInterpreter) {
        *lock(&self.session.gauge) = started.interpreter.gauge();
        *lock(&self.session.measured) = None;
        *lock(&self.owner.python) = Some(started.interpreter.hello().python.clone());
        self.slot.interpreter = Some(started.interpreter);
        self.slot.sandbox = Some(started.facts);
        *lock(&self.session.live) = Some(live);
        self.owner.events.hint(Hint::Interpreters);
    }

    /// The memory limit that its interpreter was started with.
    pub(crate) fn memory_bytes_max(&self) -> Option<u64> {
        let live = lock(&self.session.live);
        live.as_ref().map(|live| live.memory_bytes_max)
    }

    /// Its run begins.
    pub(crate) fn busy(&self) {
        if let Some(live) = lock(&self.session.live).as_mut() {
            live.idle_since_at = None;
            live.runs += 1;
        }
        self.owner.events.hint(Hint::Interpreters);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self
            .slot
            .interpreter
            .as_ref()
            .is_some_and(|interpreter| !interpreter.is_alive())
        {
            self.slot.interpreter = None;
        }
        let mut live = lock(&self.session.live);
        if self.slot.interpreter.is_none() {
            *live = None;
        } else if let Some(live) = live.as_mut() {
            live.idle_since_at = Some(now_ms());
        }
        drop(live);
        *lock(&self.session.used_at) = Instant::now();
        self.owner.changed.notify_one();
        self.owner.events.hint(Hint::Interpreters);
    }
}

impl Interpreters {
    /// None yet.
    pub fn new(events: Arc<Events>) -> Self {
        Self {
            events,
            ..Self::default()
        }
    }

    /// Python's version inside, once a guest said so.
    pub fn python(&self) -> Option<String> {
        lock(&self.python).clone()
    }

    /// Those that live now, the oldest first.
    pub fn list(&self) -> Vec<LiveInterpreter> {
        let sessions = lock(&self.sessions);
        let mut live: Vec<LiveInterpreter> = sessions
            .values()
            .filter_map(|session| lock(&session.live).clone())
            .collect();
        live.sort_by_key(|live| live.id);
        live
    }

    /// What each of them uses, by its id. Takes as long as the slowest backend's answer.
    pub async fn measure(&self) -> Vec<(u64, Measured)> {
        let sessions: Vec<(u64, Arc<Session>, Gauge)> = lock(&self.sessions)
            .values()
            .filter_map(|session| {
                let id = lock(&session.live).as_ref()?.id;
                let gauge = lock(&session.gauge).clone()?;
                Some((id, Arc::clone(session), gauge))
            })
            .collect();
        let measures = sessions.into_iter().map(|(id, session, gauge)| async move {
            let used = gauge().await?;
            Some((id, session.measured(used)))
        });
        let measured = futures_util::future::join_all(measures).await;
        measured.into_iter().flatten().collect()
    }

    /// End one, once a run that has it has ended; false: there is none.
    pub async fn stop(&self, id: u64, why: &str) -> bool {
        let session = {
            let sessions = lock(&self.sessions);
            let is_it = |session: &&Arc<Session>| {
                lock(&session.live)
                    .as_ref()
                    .is_some_and(|live| live.id == id)
            };
            sessions.values().find(is_it).cloned()
        };
        let Some(session) = session else {
            return false;
        };
        let slot = session.slot.clone().lock_owned().await;
        let ended = session.end_in(slot, why).await;
        self.events.hint(Hint::Interpreters);
        ended
    }

    /// Wait for the turn of a run in this session.
    pub async fn take(
        self: &Arc<Self>,
        connection: ConnectionId,
        session: &str,
    ) -> Result<Lease, Busy> {
        let session = self.session(Key {
            connection,
            session: session.to_owned(),
        })?;
        if session.waiting.fetch_add(1, Ordering::AcqRel) >= WAITING_RUNS_MAX {
            session.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(Busy);
        }
        let waiting = Waiting(&session.waiting);
        let slot = session.slot.clone().lock_owned().await;
        drop(waiting);
        Ok(Lease {
            slot,
            session,
            owner: self.clone(),
        })
    }

    /// The limit of idle time may differ: look again.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    fn session(&self, key: Key) -> Result<Arc<Session>, Busy> {
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(&key) {
            return Ok(session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            let forgettable = sessions
                .iter()
                .filter(|(_, session)| Arc::strong_count(session) == 1 && !session.is_live())
                .min_by_key(|(_, session)| *lock(&session.used_at))
                .map(|(key, _)| key.clone());
            sessions.remove(&forgettable.ok_or(Busy)?);
        }
        let session = Arc::new(Session {
            slot: Arc::default(),
            waiting: AtomicUsize::new(0),
            used_at: Mutex::new(Instant::now()),
            live: Mutex::default(),
            gauge: Mutex::default(),
            measured: Mutex::default(),
        });
        sessions.insert(key, session.clone());
        Ok(session)
    }

    /// How many sessions have an interpreter.
    pub fn live_count(&self) -> usize {
        lock(&self.sessions)
            .values()
            .filter(|session| session.is_live())
            .count()
    }

    /// Make room for one more interpreter: end those not in use, longest unused first, until fewer
    /// than `count_max` are left. Returns whether that was reached.
    pub async fn make_room(&self, count_max: usize) -> bool {
        while self.live_count() >= count_max {
            let candidates = self.idle_since(Duration::ZERO);
            let mut ended = false;
            for session in candidates {
                if session
                    .end("the session was the longest unused when another needed room")
                    .await
                {
                    self.events.hint(Hint::Interpreters);
                    ended = true;
                    break;
                }
            }
            if !ended {
                return false;
            }
        }
        true
    }

    /// End all interpreters of a connection that has gone, and forget its sessions. Its runs must
    /// have been cancelled.
    pub async fn close(&self, connection: ConnectionId) {
        let gone: Vec<Arc<Session>> = {
            let mut sessions = lock(&self.sessions);
            let keys: Vec<Key> = sessions
                .keys()
                .filter(|key| key.connection == connection)
                .cloned()
                .collect();
            keys.into_iter()
                .filter_map(|key| sessions.remove(&key))
                .collect()
        };
        let mut ends = tokio::task::JoinSet::new();
        for session in gone {
            ends.spawn(async move {
                let interpreter = session.slot.lock().await.interpreter.take();
                if let Some(interpreter) = interpreter {
                    interpreter.end().await;
                }
            });
        }
        while ends.join_next().await.is_some() {}
        self.events.hint(Hint::Interpreters);
    }

    /// End every interpreter.
    pub async fn close_all(&self) {
        let connections: std::collections::BTreeSet<ConnectionId> = lock(&self.sessions)
            .keys()
            .map(|key| key.connection)
            .collect();
        for connection in connections {
            self.close(connection).await;
        }
    }

    /// End interpreters that were not used for what `idle` says at that time. Runs until it is
    /// dropped.
    pub async fn expire(&self, idle: impl Fn() -> Duration) {
        loop {
            let idle = idle();
            let why = format!("the session was not used for {} s", idle.as_secs());
            for session in self.idle_since(idle) {
                if session.end(&why).await {
                    self.events.hint(Hint::Interpreters);
                }
            }
            let next = lock(&self.sessions)
                .values()
                .filter(|session| session.is_live())
                .map(|session| *lock(&session.used_at) + idle)
                .min();
            match next {
                Some(next) => {
                    // A run that outlasts the idle time has not updated its session yet.
                    let next = next.max(Instant::now() + Duration::from_millis(100));
                    tokio::select! {
                        () = tokio::time::sleep_until(next.into()) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Live sessions unused for so long, longest first.
    fn idle_since(&self, idle: Duration) -> Vec<Arc<Session>> {
        let mut found: Vec<(Instant, Arc<Session>)> = lock(&self.sessions)
            .values()
            .filter(|session| session.is_live())
            .map(|session| (*lock(&session.used_at), session.clone()))
            .filter(|(used_at, _)| used_at.elapsed() >= idle)
            .collect();
        found.sort_by_key(|(used_at, _)| *used_at);
        found.into_iter().map(|(_, session)| session).collect()
    }
}

impl Session {
    /// A measure, compared with the one before.
    fn measured(&self, used: Usage) -> Measured {
        let now = Instant::now();
        let mut before = lock(&self.measured);
        let share = used
            .cpu_ns
            .zip(*before)
            .map(|(cpu_ns, (cpu_ns_before, at))| {
                let passed_us = now.duration_since(at).as_micros().max(1) as u64;
                let thousandths = cpu_ns.saturating_sub(cpu_ns_before) / passed_us;
                u32::try_from(thousandths).unwrap_or(u32::MAX)
            });
        *before = used.cpu_ns.map(|cpu_ns| (cpu_ns, now));
        Measured {
            memory_bytes: used.memory_bytes,
            cpu_thousandths: share,
        }
    }

    fn is_live(&self) -> bool {
        lock(&self.live).is_some()
    }

    /// End the interpreter, unless a run has the session.
    async fn end(&self, why: &str) -> bool {
        let Ok(slot) = self.slot.clone().try_lock_owned() else {
            return false;
        };
        self.end_in(slot, why).await
    }

    async fn end_in(&self, mut slot: OwnedMutexGuard<Slot>, why: &str) -> bool {
        let Some(interpreter) = slot.interpreter.take() else {
            return false;
        };
        slot.lost = Some(why.to_owned());
        *lock(&self.live) = None;
        interpreter.end().await;
        true
    }
}

/// Counts a run out of the queue, also when its future is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A panic while one of these locks was held left no half-made change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
