//! Questions that a window shows, because the client whose run they belong to shows none.
//!
//! It knows what waits and who may answer it once; what a window looks like, and what is done with
//! an answer, are others' matter. While nobody looks on, nothing is taken in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::Url;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{ANSWER, Answer, Ask, Asked, Question, form, nobody_answered};
use crate::api::{self, Change, QuestionWay};
use crate::events::Events;
use crate::timestamp::now_ms;

/// Questions that are shown at a time, of all runs.
const OPEN_MAX: usize = 16;

/// The run that a question belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// Its identifier.
    pub(crate) run_id: String,
    /// Whose it is.
    pub(crate) client: String,
}

/// All that are open, the oldest first.
#[derive(Debug)]
pub(crate) struct OpenQuestions {
    events: Arc<Events>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Who can show them.
    lookers: usize,
    last_id: u64,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    shown: api::Question,
    /// The address as the server wrote it, which a browser must be given whole.
    page: Option<String>,
    answer: oneshot::Sender<Answer>,
}

/// Someone who can show questions. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Looker(Arc<OpenQuestions>);

/// Takes a question away when nobody waits for its answer any more.
struct Closing {
    questions: Arc<OpenQuestions>,
    id: String,
}

/// Why an answer was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The question is closed.
    Gone,
    /// It does not fit the form, for this reason.
    Unfit(String),
}

impl OpenQuestions {
    /// None yet.
    pub(crate) fn new(events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            events,
            inner: Mutex::default(),
        })
    }

    /// From now on questions can be shown.
    pub(crate) fn look(self: &Arc<Self>) -> Looker {
        self.lock().lookers += 1;
        Looker(Arc::clone(self))
    }

    /// Whether anybody can show them.
    pub(crate) fn are_seen(&self) -> bool {
        self.lock().lookers > 0
    }

    /// Those that wait.
    pub(crate) fn list(&self) -> Vec<api::Question> {
        let inner = self.lock();
        inner.open.iter().map(|one| one.shown.clone()).collect()
    }

    /// Shows the questions of a run here.
    pub(crate) fn of_run(self: &Arc<Self>, behind: Behind) -> Ask {
        let questions = Arc::clone(self);
        Arc::new(move |question| questions.ask(&behind, question))
    }

    /// Show a question and wait for its answer. Dropping the future closes it.
    pub(crate) fn ask(
        self: &Arc<Self>,
        behind: &Behind,
        question: Question,
    ) -> BoxFuture<'static, Result<Answer, String>> {
        let opened = self.open(behind, question, ANSWER);
        async move {
            let (_closing, answered) = opened?;
            wait(answered, ANSWER).await
        }
        .boxed()
    }

    fn open(
        self: &Arc<Self>,
        behind: &Behind,
        question: Question,
        within: Duration,
    ) -> Result<(Closing, oneshot::Receiver<Answer>), String> {
        let (way, page) = match question.asked {
            Asked::Form(schema) => {
                let fields = form::fields(&schema)?;
                (QuestionWay::Form { fields }, None)
            }
            Asked::Page { url, .. } => {
                let parsed = Url::parse(&url).ok();
                let host = parsed.as_ref().and_then(Url::host_str).unwrap_or_default();
                let host = host.to_owned();
                let shown = url.clone();
                (QuestionWay::Page { url: shown, host }, Some(url))
            }
            Asked::Model(_) => return Err("a window has no model to lend".to_owned()),
        };
        let mut inner = self.lock();
        if inner.open.len() >= OPEN_MAX {
            return Err(format!("{OPEN_MAX} questions are waiting already"));
        }
        inner.last_id += 1;
        let now = now_ms();
        let shown = api::Question {
            id: inner.last_id.to_string(),
            run_id: behind.run_id.clone(),
            client: behind.client.clone(),
            server: question.server,
            message: question.message,
            way,
            asked_at: now,
            expires_at: now.saturating_add(within.as_millis() as i64),
        };
        let (answer, answered) = oneshot::channel();
        inner.open.push(Open {
            shown: shown.clone(),
            page,
            answer,
        });
        let id = shown.id.clone();
        // Told under the lock, so that no question is closed before it is told.
        let question = Box::new(shown);
        self.events.tell(Change::Question { question });
        drop(inner);
        let questions = Arc::clone(self);
        Ok((Closing { questions, id }, answered))
    }

    /// The page that an open question leads to.
    pub(crate) fn page(&self, id: &str) -> Option<String> {
        let inner = self.lock();
        inner
            .open
            .iter()
            .find(|one| one.shown.id == id)?
            .page
            .clone()
    }

    /// Take the values of a form, or the consent to a page; a form that they do not fit stays open.
    pub(crate) fn accept(&self, id: &str, values: Map<String, Value>) -> Result<(), NotTaken> {
        let answer = {
            let inner = self.lock();
            let open = inner.open.iter().find(|one| one.shown.id == id);
            match &open.ok_or(NotTaken::Gone)?.shown.way {
                QuestionWay::Form { fields } => {
                    form::check(fields, values).map_err(NotTaken::Unfit)?
                }
                QuestionWay::Page { .. } => Map::new(),
            }
        };
        self.answer(id, Answer::Accepted(answer))
    }

    /// Answer one.
    pub(crate) fn answer(&self, id: &str, answer: Answer) -> Result<(), NotTaken> {
        let open = self.take(id).ok_or(NotTaken::Gone)?;
        // Whoever asked may be gone in this moment.
        open.answer.send(answer).map_err(|_| NotTaken::Gone)
    }

    fn take(&self, id: &str) -> Option<Open> {
        let mut inner = self.lock();
        let at = inner.open.iter().position(|one| one.shown.id == id)?;
        let taken = inner.open.remove(at);
        let id = id.to_owned();
        self.events.tell(Change::QuestionClosed { id });
        Some(taken)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn wait(answered: oneshot::Receiver<Answer>, within: Duration) -> Result<Answer, String> {
    match timeout(within, answered).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err("the window that showed the question is gone".to_owned()),
        Err(_) => Err(nobody_answered(within)),
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        let unseen = {
            let mut inner = self.0.lock();
            inner.lookers = inner.lookers.saturating_sub(1);
            if inner.lookers > 0 {
                return;
            }
            std::mem::take(&mut inner.open)
        };
        // Dropping them tells whoever asked.
        for one in unseen {
            let id = one.shown.id;
            self.0.events.tell(Change::QuestionClosed { id });
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.questions.take(&self.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use serde_json::json;

    use super::*;

    fn question() -> Question {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let params = json!({ "message": "Name?", "requestedSchema": schema });
        Question::read("s", &params).unwrap()
    }

    fn behind() -> Behind {
        Behind {
            run_id: "run-1".to_owned(),
            client: "tester".to_owned(),
        }
    }

    #[tokio::test]
    async fn nobody_answers_and_the_question_is_closed() {
        let events = Arc::new(Events::default());
        let mut changes = events.subscribe();
        let questions = OpenQuestions::new(Arc::clone(&events));
        let within = Duration::from_millis(20);
        let (closing, answered) = questions.open(&behind(), question(), within).unwrap();
        let why = wait(answered, within).await.unwrap_err();
        assert!(why.contains("nobody answered within"), "{why}");
        drop(closing);
        assert_eq!(questions.list(), []);
        let told = [changes.recv().await.unwrap(), changes.recv().await.unwrap()];
        assert!(matches!(&told[0].change, Change::Question { question } if question.id == "1"));
        assert!(matches!(&told[1].change, Change::QuestionClosed { id } if id == "1"));
        assert_eq!(questions.answer("1", Answer::Declined), Err(NotTaken::Gone));
    }

    #[tokio::test]
    async fn at_most_so_many_are_open_and_the_last_looker_takes_them_along() {
        let questions = OpenQuestions::new(Arc::default());
        assert!(!questions.are_seen());
        let (one, other) = (questions.look(), questions.look());
        let mut asked: Vec<_> = (0..OPEN_MAX)
            .map(|_| questions.ask(&behind(), question()))
            .collect();
        let why = questions.ask(&behind(), question()).await.unwrap_err();
        assert!(why.contains("16 questions"), "{why}");
        drop(one);
        assert!(questions.are_seen());
        assert!(futures_util::poll!(&mut asked[0]).is_pending());
        drop(other);
        assert!(!questions.are_seen());
        let why = asked.pop().unwrap().await.unwrap_err();
        assert!(why.contains("is gone"), "{why}");
    }
}
