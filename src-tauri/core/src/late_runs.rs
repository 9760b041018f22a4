//! Runs that outlive the call that asked for them. A client gives up a call after a time that we
//! cannot set, so a run that nears it is answered with its name and goes on; `runtime.result(name)`
//! in a later call collects what came of it.
//!
//! Knows neither the protocol nor how code runs: a run is a name, the words of what it is doing, and
//! a reply that comes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::output::run_name;
use crate::questions::{Unanswered, Waiting};
use crate::reply::Reply;
use crate::run::Report;

/// Runs of one connection that can be collected; beyond it the one that began first is forgotten.
/// Their replies are bounded, so this bounds what is kept.
pub const RUNS_MAX: usize = 16;

/// How long the reply of a run that has ended waits to be collected.
pub const KEPT_FOR: Duration = Duration::from_mins(10);

/// The runs of one connection that were answered before they ended.
#[derive(Default)]
pub struct LateRuns {
    runs: Mutex<VecDeque<Arc<UnderWay>>>,
}

/// A run, from its request on.
pub struct UnderWay {
    id: u64,
    began: Instant,
    doing: watch::Sender<String>,
    questions: Arc<Waiting>,
    shown: Mutex<Option<Unanswered>>,
    ended: watch::Sender<Option<(Arc<Reply>, Instant)>>,
}

impl UnderWay {
    /// The run with this id, which begins.
    pub fn new(id: u64) -> Arc<Self> {
        Arc::new(Self {
            id,
            began: Instant::now(),
            doing: watch::Sender::default(),
            questions: Arc::default(),
            shown: Mutex::default(),
            ended: watch::Sender::default(),
        })
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// When it was asked for.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// What it is doing, in words, and each change of them.
    pub fn doing(&self) -> watch::Receiver<String> {
        self.doing.subscribe()
    }

    /// Takes the words.
    pub fn reporter(self: &Arc<Self>) -> Report {
        let run = Arc::clone(self);
        Arc::new(move |message: &str| {
            run.doing.send_if_modified(|doing| {
                let changed = doing != message;
                if changed {
                    message.clone_into(doing);
                }
                changed
            });
        })
    }

    /// What servers ask its user. They wait for a call that can show them.
    pub(crate) fn questions(&self) -> &Arc<Waiting> {
        &self.questions
    }

    /// The one that its client shows until it makes its call again.
    pub(crate) fn shown(&self) -> MutexGuard<'_, Option<Unanswered>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has ended, with this reply.
    pub fn end(&self, reply: Reply) {
        self.ended
            .send_replace(Some((Arc::new(reply), Instant::now())));
    }

    /// Its reply, if it has ended.
    pub fn reply(&self) -> Option<Arc<Reply>> {
        let ended = self.ended.borrow();
        ended.as_ref().map(|(reply, _)| Arc::clone(reply))
    }

    /// Wait for its reply.
    pub async fn ended(&self) -> Arc<Reply> {
        let mut ended = self.ended.subscribe();
        loop {
            if let Some((reply, _)) = &*ended.borrow_and_update() {
                return Arc::clone(reply);
            }
            if ended.changed().await.is_err() {
                // The sender is `self`, so this is never reached.
                std::future::pending::<()>().await;
            }
        }
    }

    fn is_stale(&self, now: Instant) -> bool {
        let ended = self.ended.borrow();
        ended
            .as_ref()
            .is_some_and(|(_, at)| now.duration_since(*at) >= KEPT_FOR)
    }
}

impl LateRuns {
    /// Keep a run that its client will ask for by name.
    pub fn keep(&self, run: &Arc<UnderWay>) {
        let mut runs = self.fresh(Instant::now());
        if runs.iter().any(|kept| kept.id == run.id) {
            return;
        }
        if runs.len() >= RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(Arc::clone(run));
    }

    /// The run that is called `name`.
    pub fn find(&self, name: &str) -> Result<Arc<UnderWay>, UnknownRun> {
        self.find_at(name, Instant::now())
    }

    fn find_at(&self, name: &str, now: Instant) -> Result<Arc<UnderWay>, UnknownRun> {
        let runs = self.fresh(now);
        let found = runs.iter().find(|run| run_name(run.id) == name);
        found.map(Arc::clone).ok_or_else(|| UnknownRun {
            run: name.chars().take(40).collect(),
        })
    }

    fn fresh(&self, now: Instant) -> MutexGuard<'_, VecDeque<Arc<UnderWay>>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|run| !run.is_stale(now));
        runs
    }
}

/// No run of that name can be collected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no run `{run}` can be collected here: the newest {RUNS_MAX} that were still running when their \
     call was answered can, for {} minutes after their end",
    KEPT_FOR.as_secs() / 60
)]
pub struct UnknownRun {
    /// As it was asked for.
    run: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]

    use std::collections::BTreeSet;

    use super::*;
    use crate::reply::{OutputMode, ReplyLimits, RunFacts, Status, build};

    fn reply(run: u64) -> Reply {
        let facts = RunFacts::new(run_name(run), Status::Success);
        build(facts, OutputMode::Text, ReplyLimits::default())
    }

    fn kept(runs: &LateRuns, ids: std::ops::RangeInclusive<u64>) -> BTreeSet<u64> {
        ids.filter(|id| runs.find(&run_name(*id)).is_ok()).collect()
    }

    #[tokio::test]
    async fn a_run_is_found_until_it_has_waited_too_long() {
        let (runs, run) = (LateRuns::default(), UnderWay::new(7));
        let find = |after| runs.find_at(&run_name(7), Instant::now() + after);
        runs.keep(&run);
        let found = find(KEPT_FOR * 3).unwrap();
        assert!(found.reply().is_none());
        run.end(reply(7));
        assert_eq!(found.ended().await.text, "(success, no output)");
        assert!(find(KEPT_FOR / 2).is_ok());
        let error = find(KEPT_FOR).err().unwrap();
        assert!(error.to_string().contains("for 10 minutes"), "{error}");
    }

    #[test]
    fn the_oldest_makes_room() {
        let runs = LateRuns::default();
        let last = RUNS_MAX as u64 + 2;
        for id in 1..=last {
            let run = UnderWay::new(id);
            runs.keep(&run);
            runs.keep(&run);
        }
        assert_eq!(kept(&runs, 1..=last), (3..=last).collect());
    }
}
