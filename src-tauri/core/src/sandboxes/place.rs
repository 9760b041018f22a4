//! One sandbox that is opened when it is needed, shared by all who wait for it, and opened anew when
//! its shape changes or it has failed. Knows nothing of what is opened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, Shared};
use runbridge_sandbox::SandboxError;
use tokio::sync::watch;
use tokio::time::Instant;

/// A failure is given to every run that comes so soon after it, so that a burst of runs does not
/// search for an engine once each.
const FAILURE_KEPT: Duration = Duration::from_secs(2);

pub(super) type Opening<T> = Shared<BoxFuture<'static, Result<Arc<T>, Arc<SandboxError>>>>;

pub(super) struct Place<S, T> {
    current: Mutex<Option<Current<S, T>>>,
    /// What the opening is doing, in words; `None` when it does nothing that takes long.
    progress: watch::Sender<Option<String>>,
}

struct Current<S, T> {
    shape: S,
    opening: Opening<T>,
    failed_at: Option<Instant>,
}

impl<S, T> Default for Place<S, T> {
    fn default() -> Self {
        Self {
            current: Mutex::new(None),
            progress: watch::Sender::new(None),
        }
    }
}

impl<S, T> Place<S, T> {
    /// The opening that is under way or done if it serves, else one begun with `open`.
    pub(super) fn opening(
        &self,
        serves: impl Fn(&S, bool) -> bool,
        open: impl FnOnce() -> (S, Opening<T>),
    ) -> Opening<T> {
        let mut current = self.current();
        if let Some(current) = current.as_ref()
            && serves(
                &current.shape,
                matches!(current.opening.peek(), Some(Ok(_))),
            )
            && current
                .failed_at
                .is_none_or(|at| at.elapsed() < FAILURE_KEPT)
        {
            return current.opening.clone();
        }
        let (shape, opening) = open();
        *current = Some(Current {
            shape,
            opening: opening.clone(),
            failed_at: None,
        });
        opening
    }

    /// What came of an opening. From the first who hears of a failure on, it is kept for a while.
    pub(super) async fn opened(&self, opening: Opening<T>) -> Result<Arc<T>, Arc<SandboxError>> {
        let opened = opening.clone().await;
        if opened.is_err()
            && let Some(current) = self.current().as_mut()
            && current.opening.ptr_eq(&opening)
        {
            current.failed_at.get_or_insert_with(Instant::now);
        }
        opened
    }

    /// What came of the opening so far.
    pub(super) fn peek(&self) -> Option<Result<Arc<T>, Arc<SandboxError>>> {
        self.current().as_ref()?.opening.peek().cloned()
    }

    /// Whether it was ever to be opened.
    pub(super) fn is_wanted(&self) -> bool {
        self.current().is_some()
    }

    /// What is open now.
    pub(super) fn open(&self) -> Option<Arc<T>> {
        self.peek()?.ok()
    }

    /// If it failed, open it anew when it is next needed, however soon.
    pub(super) fn forget_failure(&self) {
        let mut current = self.current();
        if current
            .as_ref()
            .is_some_and(|current| matches!(current.opening.peek(), Some(Err(_))))
        {
            *current = None;
        }
    }

    /// Open it anew when it is next needed, if this is what is open.
    pub(super) fn forget(&self, gone: &Arc<T>) {
        let mut current = self.current();
        let is_current = current.as_ref().is_some_and(
            |current| matches!(current.opening.peek(), Some(Ok(open)) if Arc::ptr_eq(open, gone)),
        );
        if is_current {
            *current = None;
        }
    }

    /// Forget what is open or being opened, and give it.
    pub(super) fn clear(&self) -> Option<Opening<T>> {
        self.current().take().map(|current| current.opening)
    }

    pub(super) fn progress(&self) -> watch::Receiver<Option<String>> {
        self.progress.subscribe()
    }

    pub(super) fn is_doing(&self, step: String) {
        // A slow line would fill the log with the same words.
        if self.progress.borrow().as_ref() != Some(&step) {
            tracing::info!("{step}");
        }
        self.progress.send_replace(Some(step));
    }

    pub(super) fn is_done(&self) {
        self.progress.send_replace(None);
    }

    /// Wait, and tell `report` what is being done meanwhile.
    pub(super) async fn told<R>(
        &self,
        wait: impl Future<Output = R>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> R {
        let mut progress = self.progress.subscribe();
        progress.mark_changed();
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return done,
                Ok(()) = progress.changed() => {
                    let step = progress.borrow_and_update().clone();
                    if let Some(step) = step {
                        report(&step);
                    }
                }
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Current<S, T>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
