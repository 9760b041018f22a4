//! Which call a question of a server belongs to, and the time that a person takes over it.
//!
//! On most transports a question does not say which call it is about. One that comes while a single
//! run uses the server is that run's; while several do, nobody is asked.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::lock;
use crate::clients::entry::Lent;
use crate::questions::{Ask, Question};

/// While a question is open, how often it is looked whether it still is.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The person behind a call.
#[derive(Clone)]
pub struct Person {
    /// Names the run.
    pub run: String,
    /// Puts questions to them.
    pub ask: Ask,
}

/// The people behind the calls under way on one connection.
#[derive(Clone, Default)]
pub(super) struct People(Arc<Inner>);

#[derive(Default)]
struct Inner {
    by_call: Mutex<HashMap<u64, Behind>>,
    /// A call has ended.
    left: Notify,
}

/// Who is behind one call, and its time.
type Behind = (Person, Arc<Clock>);

/// Forgets the person when the call has ended.
pub(super) struct Present<'a> {
    people: &'a People,
    key: u64,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        lock(&self.people.0.by_call).remove(&self.key);
        self.people.0.left.notify_waiters();
    }
}

impl People {
    pub(super) fn enter(&self, person: Person, clock: Arc<Clock>) -> Present<'_> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.0.by_call).insert(key, (person, clock));
        Present { people: self, key }
    }

    /// Ask whoever it must be. Gives the result for the server, or in words why nobody was asked.
    pub(super) async fn ask(&self, question: Question) -> Result<Value, String> {
        let (person, clocks) = {
            let people = lock(&self.0.by_call);
            let runs: BTreeSet<&str> = people
                .values()
                .map(|(person, _)| person.run.as_str())
                .collect();
            if runs.len() > 1 {
                return Err(format!(
                    "{} runs use the server at this time, and it does not say whom it asks",
                    runs.len()
                ));
            }
            let person = people.values().next().map(|(person, _)| person.clone());
            let clocks: Vec<_> = people
                .values()
                .map(|(_, clock)| Arc::clone(clock))
                .collect();
            (person, clocks)
        };
        let Some(person) = person else {
            return Err("nobody who could be asked uses the server now".to_owned());
        };
        // Its other calls may wait for the same answer.
        let _stopped: Vec<_> = clocks.iter().map(Clock::stop).collect();
        tokio::select! {
            answer = ask(&person, question) => answer,
            () = self.has_left(&person.run) => {
                Err("the call that it belongs to has ended".to_owned())
            }
        }
    }

    /// Wait until the run has no call here any more: nobody needs the answer then.
    async fn has_left(&self, run: &str) {
        loop {
            let left = self.0.left.notified();
            tokio::pin!(left);
            // From here on none is missed.
            left.as_mut().enable();
            let is_here = lock(&self.0.by_call)
                .values()
                .any(|(person, _)| person.run == run);
            if !is_here {
                return;
            }
            left.await;
        }
    }
}

/// What of a server's requests is a question to a person or their client; the inner error says in words
/// why it is put to nobody.
pub(super) fn question(
    lent: &Lent,
    server: &str,
    method: &str,
    params: &Value,
) -> Option<Result<Question, String>> {
    match method {
        "elicitation/create" => Some(Question::read(server, params)),
        "sampling/createMessage" if lent.sampling => Some(Question::of_model(server, params)),
        _ => None,
    }
}

/// Put one question to one person.
pub(super) async fn ask(person: &Person, question: Question) -> Result<Value, String> {
    let asked = question.asked.clone();
    let answer = (person.ask)(question).await?;
    Ok(answer.result(&asked))
}

/// The time that a call may take, which stands still while a person thinks.
pub(super) struct Clock(Mutex<Ticking>);

struct Ticking {
    deadline: Instant,
    stopped: u32,
    since: Instant,
}

/// Goes on when it is dropped.
pub(super) struct Stopped<'a>(&'a Clock);

impl Clock {
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self(Mutex::new(Ticking {
            deadline: now + limit,
            stopped: 0,
            since: now,
        })))
    }

    pub(super) fn stop(self: &Arc<Self>) -> Stopped<'_> {
        let mut ticking = lock(&self.0);
        if ticking.stopped == 0 {
            ticking.since = Instant::now();
        }
        ticking.stopped += 1;
        Stopped(self)
    }

    /// Resolves when the time is over.
    pub(super) async fn ran_out(&self) {
        loop {
            let next = {
                let ticking = lock(&self.0);
                let now = Instant::now();
                if ticking.stopped > 0 {
                    now + LOOK_AGAIN
                } else if ticking.deadline <= now {
                    return;
                } else {
                    ticking.deadline
                }
            };
            sleep_until(next).await;
        }
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let mut ticking = lock(&self.0.0);
        ticking.stopped -= 1;
        if ticking.stopped == 0 {
            let thought = ticking.since.elapsed();
            ticking.deadline += thought;
        }
    }
}
