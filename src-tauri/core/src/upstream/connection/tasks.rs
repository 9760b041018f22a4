//! Calls that a server answers with the name of a task: it is asked how the task stands until that has
//! come to its end, and told when nobody waits any more.
//!
//! Two forms exist. In 2025-11-25 the caller asks for a task, which we do where a tool demands it, and
//! fetches the result. Since 2026-07-28 it is an extension: a server decides by itself, and the result
//! comes with the state.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientRequest, CustomRequest};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};

use super::{Along, Caller, Clock, Connection, PROGRESS_CHARS_MAX, ROUNDS_MAX, Reading, Wanted};
use crate::upstream::error::UpstreamError;

/// Between two looks at a task, when the server does not say; and the bounds on what it says.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A server that does not confirm the end of a task within this is not asked again.
const CANCEL: Duration = Duration::from_secs(10);

/// Longer names are no names.
const ID_BYTES_MAX: usize = 1_024;

/// How a task stands.
#[derive(Debug)]
pub(super) struct Task {
    id: String,
    status: String,
    message: Option<String>,
    pause: Duration,
    /// Since 2026-07-28, once it is completed.
    result: Option<Box<RawValue>>,
    /// The same, once it has failed.
    error: Option<Value>,
    /// The same, while it waits for answers.
    requests: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    task_id: String,
    status: String,
    #[serde(default)]
    status_message: Option<String>,
    /// In 2025-11-25.
    #[serde(default)]
    poll_interval: Option<f64>,
    #[serde(default)]
    poll_interval_ms: Option<f64>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    input_requests: Map<String, Value>,
}

impl Task {
    /// What a call was answered with, if it is no result: `asked` says that a task was asked for,
    /// `may` that a server may make one by itself.
    pub(super) fn begun(result: &RawValue, asked: bool, may: bool) -> Option<Self> {
        #[derive(Deserialize)]
        struct Created<'a> {
            #[serde(borrow)]
            task: &'a RawValue,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            result_type: String,
        }

        if asked {
            let created: Created<'_> = serde_json::from_str(result.get()).ok()?;
            return Self::read(created.task);
        }
        // Answers may be long, and hardly any is a task.
        if !may || memchr::memmem::find(result.get().as_bytes(), b"\"task\"").is_none() {
            return None;
        }
        let kind: Kind = serde_json::from_str(result.get()).ok()?;
        (kind.result_type == "task").then(|| Self::read(result))?
    }

    fn read(text: &RawValue) -> Option<Self> {
        let wire: Wire<'_> = serde_json::from_str(text.get()).ok()?;
        let named = !wire.task_id.is_empty() && wire.task_id.len() <= ID_BYTES_MAX;
        let pause = wire.poll_interval_ms.or(wire.poll_interval);
        let pause = pause.filter(|ms| ms.is_finite() && *ms >= 0.0);
        named.then(|| Self {
            id: wire.task_id,
            status: wire.status,
            message: wire
                .status_message
                .map(|words| words.chars().take(PROGRESS_CHARS_MAX).collect()),
            pause: pause.map_or(PAUSE, |ms| {
                Duration::from_millis(ms as u64).clamp(PAUSE_MIN, PAUSE_MAX)
            }),
            result: wire.result.map(ToOwned::to_owned),
            error: wire.error,
            requests: wire.input_requests,
        })
    }
}

impl Connection {
    /// Whether a call of this tool must ask for a task.
    pub(super) fn must_ask_for_task(&self, tool: &str) -> bool {
        self.greeting.tasks
            && self.tools().is_ok_and(|list| {
                let found = list.tools.iter().find(|one| one.name == tool);
                found.is_some_and(|found| found.needs_task)
            })
    }

    /// Whether a server may make tasks by itself.
    pub(super) fn may_make_tasks(&self) -> bool {
        !self.greeting.peer.protocol_version.has_initialize()
    }

    /// The result of a task. Dropping the future tells the server to stop working on it.
    pub(super) async fn follow(
        &self,
        mut task: Task,
        caller: &Caller,
        reading: Option<&Reading<'_>>,
        clock: &Arc<Clock>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let id = task.id.clone();
        let mut unfinished = CancelTask {
            peer: self.service.peer(),
            id: self.greeting.task_cancel.then(|| id.clone()),
        };
        let ask = async |method: &str, mut params: Value| {
            params["taskId"] = id.clone().into();
            let along = Along {
                progress: caller.progress.clone(),
                reading,
            };
            let request = CustomRequest::new(method, Some(params));
            self.send(request, along).await.map_err(not_again)
        };
        let mut told = None;
        let mut answered = HashSet::new();
        let done = loop {
            if let (Some(progress), Some(words)) = (&caller.progress, &task.message)
                && told.as_ref() != Some(words)
            {
                progress(words);
                told = Some(words.clone());
            }
            match (task.status.as_str(), self.may_make_tasks()) {
                ("working", _) => {}
                // It goes on with the request for its result, beside which it asks.
                ("completed" | "failed" | "input_required", false) => {
                    break ask("tasks/result", json!({})).await;
                }
                ("completed", true) => {
                    break task
                        .result
                        .ok_or_else(|| self.odd("has completed without a result"));
                }
                ("failed", true) => break Err(self.failed(task.error)),
                ("input_required", true) => {
                    let requests = std::mem::take(&mut task.requests);
                    let new = requests
                        .into_iter()
                        .filter(|(key, _)| !answered.contains(key));
                    let wanted = Wanted {
                        requests: new.collect(),
                        state: None,
                    };
                    answered.extend(wanted.requests.keys().cloned());
                    if answered.len() > ROUNDS_MAX * super::QUESTIONS_MAX {
                        break Err(self.wants_too_much("its task asks again and again"));
                    }
                    if !wanted.requests.is_empty() {
                        let answers = self.answers(&wanted, caller.person.as_ref(), clock).await?;
                        ask("tasks/update", json!({ "inputResponses": answers })).await?;
                    }
                }
                ("cancelled", _) => {
                    let why = task.message.as_deref().unwrap_or("it does not say why");
                    break Err(self.odd(&format!("was cancelled by the server: {why}")));
                }
                (other, _) => {
                    let other: String = other.chars().take(40).collect();
                    break Err(self.odd(&format!("stands at `{other}`, which is unknown here")));
                }
            }
            sleep(task.pause).await;
            let state = ask("tasks/get", json!({})).await?;
            task = Task::read(&state).ok_or_else(|| self.odd("cannot be read any more"))?;
        };
        unfinished.id = None;
        done
    }

    fn odd(&self, what: &str) -> UpstreamError {
        UpstreamError::Protocol {
            server: self.server.clone(),
            detail: format!("the task of the call {what}"),
        }
    }

    fn failed(&self, error: Option<Value>) -> UpstreamError {
        let error = error.unwrap_or_default();
        let message = error["message"].as_str();
        UpstreamError::Rpc {
            server: self.server.clone(),
            rpc_code: error["code"].as_i64().unwrap_or(-32_603),
            message: message.unwrap_or("the task failed").to_owned(),
            data: error.get("data").cloned().map(Box::new),
        }
    }
}

/// A request that was refused for its lost session is made again elsewhere; a call whose task was begun
/// must not be.
fn not_again(error: UpstreamError) -> UpstreamError {
    match error {
        UpstreamError::SessionLost { server } => UpstreamError::Unreachable {
            server,
            reason: "it ended the session while the task of the call was under way".to_owned(),
        },
        other => other,
    }
}

/// Tells the server to stop working on a task that nobody waits for any more.
struct CancelTask<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<String>,
}

impl Drop for CancelTask<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let peer = self.peer.clone();
        let request = CustomRequest::new("tasks/cancel", Some(json!({ "taskId": id })));
        let request = ClientRequest::CustomRequest(request);
        runtime.spawn(async move {
            let cancelled = async {
                let options = PeerRequestOptions::no_options();
                let sent = peer.send_cancellable_request(request, options).await;
                sent.ok()?.rx.await.ok()
            };
            if timeout(CANCEL, cancelled).await.is_err() {
                tracing::debug!("a server did not confirm that it ended a task");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    #[test]
    fn only_what_says_so_is_a_task() {
        let flat = json!({ "resultType": "task", "taskId": "7", "status": "working" });
        assert!(Task::begun(&raw(&flat), false, true).is_some());
        assert!(Task::begun(&raw(&flat), false, false).is_none());
        let text = json!({ "content": [{ "type": "text", "text": "\"task\"" }] });
        assert!(Task::begun(&raw(&text), false, true).is_none());
        let created = json!({ "task": { "taskId": "7", "status": "working" } });
        assert!(Task::begun(&raw(&created), true, false).is_some());
        assert!(Task::begun(&raw(&text), true, false).is_none());
        let nameless = json!({ "task": { "taskId": "", "status": "working" } });
        assert!(Task::begun(&raw(&nameless), true, false).is_none());
    }

    #[test]
    fn a_server_is_not_asked_as_often_as_it_likes() {
        let paused = |named: Value| {
            let state = json!({ "taskId": "7", "status": "working", "pollIntervalMs": named });
            Task::read(&raw(&state)).map(|task| task.pause)
        };
        assert_eq!(paused(json!(0)), Some(PAUSE_MIN));
        assert_eq!(paused(json!(1e300)), Some(PAUSE_MAX));
        assert_eq!(paused(json!(null)), Some(PAUSE));
    }
}
