//! Questions that a server has for the person behind a run, on their way to whoever can show them.
//!
//! A question is checked here, once, before anybody sees it. Who shows it, in which revision of the
//! protocol, and what the answer means are others' matter.

mod form;
mod open;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::Url;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

pub(crate) use open::{Behind, Looker, NotTaken, OpenQuestions};

/// How long a person may think.
pub(crate) const ANSWER: Duration = Duration::from_mins(5);

/// How long a run may wait for a person in all; what is beyond counts as its own time.
const THINKING_MAX: Duration = Duration::from_mins(10);

/// Questions of one run that wait to be shown.
const WAITING_MAX: usize = 16;

/// Of the words of a question.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// A form: names of its fields, and text of its description.
const FIELDS_MAX: usize = 100;
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// What a model is given, as JSON, and the parts of it that clients are passed. Context of other
/// servers and tools to call are not among them.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
const REQUEST_PARTS: [&str; 7] = [
    "messages",
    "modelPreferences",
    "systemPrompt",
    "temperature",
    "maxTokens",
    "stopSequences",
    "metadata",
];

/// Of an address.
const URL_CHARS_MAX: usize = 4_000;

/// What a server wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Which server.
    pub server: String,
    /// Its words.
    pub message: String,
    /// How to answer.
    pub asked: Asked,
}

/// How a question is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// By filling in a form, which this JSON Schema describes.
    Form(Map<String, Value>),
    /// On a web page.
    Page {
        /// Its address.
        url: String,
        /// The server's own name for the question.
        id: Option<Value>,
    },
    /// By the client's model, which this request is for (sampling).
    Model(Map<String, Value>),
}

/// What the person said.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Yes, with the values of the form.
    Accepted(Map<String, Value>),
    /// What the model said.
    Said(Map<String, Value>),
    /// No.
    Declined,
    /// Neither.
    Cancelled,
}

/// Puts a question to the person; the error says in words why nobody could be asked.
pub type Ask = Arc<dyn Fn(Question) -> BoxFuture<'static, Result<Answer, String>> + Send + Sync>;

impl Question {
    /// Read the parameters of `elicitation/create`.
    pub(crate) fn read(server: &str, params: &Value) -> Result<Self, String> {
        let message = params.get("message").and_then(Value::as_str);
        let message = message.unwrap_or_default().trim();
        if message.is_empty() {
            return Err("it asks nothing".to_owned());
        }
        let asked = match params.get("mode").and_then(Value::as_str) {
            None | Some("form") => Asked::Form(form(params.get("requestedSchema"))?),
            Some("url") => page(params)?,
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                return Err(format!("it asks in a way that is unknown here (`{other}`)"));
            }
        };
        Ok(Self {
            server: server.to_owned(),
            message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
            asked,
        })
    }

    /// Read the parameters of `sampling/createMessage`.
    pub(crate) fn of_model(server: &str, params: &Value) -> Result<Self, String> {
        let is = |name: &str, check: fn(&Value) -> bool| params.get(name).is_some_and(check);
        let has_messages = is("messages", |list| {
            list.as_array().is_some_and(|list| !list.is_empty())
        });
        if !has_messages || !is("maxTokens", Value::is_u64) {
            return Err("its request for a model has no messages or no `maxTokens`".to_owned());
        }
        if is("tools", |tools| {
            tools.as_array().is_some_and(|list| !list.is_empty())
        }) {
            return Err("it wants the model to call tools, which is not passed on".to_owned());
        }
        let parts = REQUEST_PARTS.into_iter();
        let request: Map<String, Value> = parts
            .filter_map(|part| Some((part.to_owned(), params.get(part)?.clone())))
            .collect();
        let bytes = Value::Object(request.clone()).to_string().len();
        if bytes > REQUEST_BYTES_MAX {
            return Err(format!(
                "its request for a model has {bytes} bytes, and at most {REQUEST_BYTES_MAX} are passed on"
            ));
        }
        Ok(Self {
            server: server.to_owned(),
            message: "wants a model's words".to_owned(),
            asked: Asked::Model(request),
        })
    }

    /// By which request a client is asked.
    pub(crate) fn method(&self) -> &'static str {
        match self.asked {
            Asked::Form(_) | Asked::Page { .. } => "elicitation/create",
            Asked::Model(_) => "sampling/createMessage",
        }
    }

    /// The parameters of that request; for a person, who learns whose question it is.
    pub(crate) fn params(&self) -> Value {
        let message = format!("{} asks: {}", self.server, self.message);
        match &self.asked {
            Asked::Model(request) => Value::Object(request.clone()),
            // Without the mode, which older revisions do not know.
            Asked::Form(schema) => json!({ "message": message, "requestedSchema": schema }),
            Asked::Page { url, id } => {
                let mut params = json!({ "mode": "url", "message": message, "url": url });
                if let Some(id) = id {
                    params["elicitationId"] = id.clone();
                }
                params
            }
        }
    }
}

fn form(schema: Option<&Value>) -> Result<Map<String, Value>, String> {
    let Some(Value::Object(schema)) = schema else {
        return Err("its form has no description".to_owned());
    };
    let fields = schema.get("properties").and_then(Value::as_object);
    let Some(fields) = fields.filter(|_| schema.get("type") == Some(&"object".into())) else {
        return Err("its form has no fields".to_owned());
    };
    let bytes = Value::Object(schema.clone()).to_string().len();
    if fields.len() > FIELDS_MAX || bytes > SCHEMA_BYTES_MAX {
        return Err(format!(
            "its form has {} fields in {bytes} bytes, and at most {FIELDS_MAX} in {SCHEMA_BYTES_MAX} are shown",
            fields.len()
        ));
    }
    Ok(schema.clone())
}

fn page(params: &Value) -> Result<Asked, String> {
    let url = params
        .get("url")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let fits = url.chars().count() <= URL_CHARS_MAX
        && Url::parse(url).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.host_str().is_some()
                && url.username().is_empty()
                && url.password().is_none()
        });
    if !fits {
        return Err("it sends you to something that is no web address".to_owned());
    }
    Ok(Asked::Page {
        url: url.to_owned(),
        id: params
            .get("elicitationId")
            .filter(|id| id.is_string())
            .cloned(),
    })
}

impl Answer {
    /// Read what a client answers.
    pub(crate) fn read(asked: &Asked, result: &Value) -> Result<Self, String> {
        if let Asked::Model(_) = asked {
            let said = result.as_object().filter(|said| {
                let parts = ["role", "content", "model"];
                parts.iter().all(|part| said.contains_key(*part))
            });
            let said = said.ok_or("the client gave an answer that is no model's")?;
            return Ok(Self::Said(said.clone()));
        }
        match result.get("action").and_then(Value::as_str) {
            Some("accept") => {
                let content = result.get("content").and_then(Value::as_object);
                Ok(Self::Accepted(content.cloned().unwrap_or_default()))
            }
            Some("decline") => Ok(Self::Declined),
            Some("cancel") => Ok(Self::Cancelled),
            _ => Err("the client gave an answer that means nothing".to_owned()),
        }
    }

    /// The result for the server.
    pub(crate) fn result(&self, asked: &Asked) -> Value {
        match (self, asked) {
            (Self::Accepted(content), Asked::Form(_)) => {
                json!({ "action": "accept", "content": content })
            }
            (Self::Accepted(_), Asked::Page { .. } | Asked::Model(_)) => {
                json!({ "action": "accept" })
            }
            (Self::Said(said), _) => Value::Object(said.clone()),
            (Self::Declined, _) => json!({ "action": "decline" }),
            (Self::Cancelled, _) => json!({ "action": "cancel" }),
        }
    }
}

/// The time that a run has waited for a person who thinks about its questions, or for packages that
/// they allowed.
#[derive(Default)]
pub(crate) struct Thinking(Mutex<Thought>);

#[derive(Default)]
struct Thought {
    questions: u32,
    since: Option<Instant>,
    before: Duration,
}

/// One question is before the person until this is dropped.
struct Asking(Arc<Thinking>);

impl Thinking {
    /// Puts questions by `ask`, and counts how long their answers take.
    pub(crate) fn over(self: &Arc<Self>, ask: Ask) -> Ask {
        let thinking = Arc::clone(self);
        Arc::new(move |question| {
            let (thinking, answer) = (Arc::clone(&thinking), ask(question));
            async move {
                let _asking = Asking::begin(thinking);
                answer.await
            }
            .boxed()
        })
    }

    /// So far, that of open questions included.
    pub(crate) fn so_far(&self) -> Duration {
        let thought = self.lock();
        let now = thought
            .since
            .map_or(Duration::ZERO, |since| since.elapsed());
        (thought.before + now).min(THINKING_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Thought> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Thinking {
    /// Let the run's time stand still for something else that it waits for, until what this gives is
    /// dropped.
    pub(crate) fn pause(self: &Arc<Self>) -> impl Drop + use<> {
        Asking::begin(Arc::clone(self))
    }
}

impl Asking {
    fn begin(thinking: Arc<Thinking>) -> Self {
        {
            let mut thought = thinking.lock();
            thought.questions += 1;
            thought.since.get_or_insert_with(Instant::now);
        }
        Self(thinking)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut thought = self.0.lock();
        thought.questions -= 1;
        if thought.questions == 0
            && let Some(since) = thought.since.take()
        {
            thought.before += since.elapsed();
        }
    }
}

fn nobody_answered(within: Duration) -> String {
    format!("nobody answered within {} minutes", within.as_secs() / 60)
}

/// The questions of one run that nobody has shown yet.
#[derive(Default)]
pub(crate) struct Waiting {
    queue: Mutex<VecDeque<Unanswered>>,
    came: Notify,
}

/// One of them. Dropping it tells the server that nobody could be asked.
pub(crate) struct Unanswered {
    pub(crate) question: Question,
    answer: oneshot::Sender<Result<Answer, String>>,
}

impl Unanswered {
    pub(crate) fn answer(self, answer: Result<Answer, String>) {
        // The call may have ended meanwhile.
        let _ = self.answer.send(answer);
    }
}

impl Waiting {
    /// Puts questions here.
    pub(crate) fn ask(waiting: &Arc<Self>) -> Ask {
        let waiting = Arc::clone(waiting);
        Arc::new(move |question| {
            let waiting = Arc::clone(&waiting);
            async move {
                let (answer, answered) = oneshot::channel();
                {
                    let mut queue = waiting.queue();
                    queue.retain(|one| !one.answer.is_closed());
                    if queue.len() >= WAITING_MAX {
                        return Err(format!("{WAITING_MAX} questions are waiting already"));
                    }
                    queue.push_back(Unanswered { question, answer });
                }
                waiting.came.notify_one();
                match timeout(ANSWER, answered).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) => Err("nobody is there to be asked any more".to_owned()),
                    Err(_) => Err(nobody_answered(ANSWER)),
                }
            }
            .boxed()
        })
    }

    /// Wait for the next one.
    pub(crate) async fn next(&self) -> Unanswered {
        loop {
            let next = {
                let mut queue = self.queue();
                queue.retain(|one| !one.answer.is_closed());
                queue.pop_front()
            };
            if let Some(next) = next {
                return next;
            }
            self.came.notified().await;
        }
    }

    /// Let it wait on, before all others.
    pub(crate) fn put_back(&self, unanswered: Unanswered) {
        self.queue().push_front(unanswered);
        self.came.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Unanswered>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    #[test]
    fn what_is_no_question_is_not_shown() {
        let many: Map<_, _> = (0..200)
            .map(|number| (format!("f{number}"), json!({ "type": "string" })))
            .collect();
        for (params, why) in [
            (json!({}), "asks nothing"),
            (json!({ "message": "Name?" }), "no description"),
            (
                json!({ "message": "Name?", "requestedSchema": { "type": "string" } }),
                "no fields",
            ),
            (
                json!({ "message": "Name?", "requestedSchema": { "type": "object", "properties": many } }),
                "200 fields",
            ),
            (json!({ "message": "Go", "mode": "voice" }), "`voice`"),
            (
                json!({ "message": "Go", "mode": "url", "url": "file:///etc/passwd" }),
                "no web address",
            ),
            (
                json!({ "message": "Go", "mode": "url", "url": "https://user:pw@bank.example/" }),
                "no web address",
            ),
        ] {
            let error = Question::read("s", &params).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[tokio::test]
    async fn a_question_whose_call_has_ended_is_not_shown() {
        let waiting = Arc::<Waiting>::default();
        let ask = Waiting::ask(&waiting);
        let question = |message: &str| {
            let schema = json!({ "type": "object", "properties": {} });
            let params = json!({ "message": message, "requestedSchema": schema });
            Question::read("s", &params).unwrap()
        };
        let mut gone = ask(question("old"));
        assert!(futures_util::poll!(&mut gone).is_pending());
        drop(gone);
        let mut here = ask(question("new"));
        assert!(futures_util::poll!(&mut here).is_pending());
        let next = waiting.next().await;
        assert_eq!(next.question.message, "new");
        next.answer(Ok(Answer::Declined));
        assert_eq!(here.await, Ok(Answer::Declined));
    }
}
