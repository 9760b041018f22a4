//! What the client and a bridge have said to one another, as far as it must outlive the bridge:
//! the greeting, and the requests that await an answer. Pure; reads and writes nothing.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Value, json};

/// Requests that may await an answer at once, in each direction. A client that has more is refused
/// the next, or a flood of them would be remembered without end.
const OPEN_MAX: usize = 1024;

/// JSON-RPC error code of what a client may try again; `data.code` says which.
const RETRYABLE: i64 = -32000;

/// A new bridge may describe its tool in other words.
const LIST_CHANGED: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";

/// The parts of a message that say what it is. Whatever does not fit is passed on and left to the
/// bridge to refuse.
#[derive(Deserialize, Default)]
struct Head {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
}

impl Head {
    fn of(line: &[u8]) -> Self {
        // An array would be taken for the fields in their order.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Self::default();
        }
        let mut head: Self = serde_json::from_slice(line).unwrap_or_default();
        head.id = head.id.filter(|id| id.is_string() || id.is_number());
        head
    }
}

/// What to do with a line of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromClient {
    /// Pass it on.
    Pass,
    /// Nobody asked for it, or no longer.
    Drop,
    /// Do not pass it on; this is the answer.
    Refuse(Vec<u8>),
}

/// The client's `initialize`.
#[derive(Clone, Debug)]
pub(super) struct Greeting {
    pub(super) line: Vec<u8>,
    pub(super) id: Value,
    /// The client has its answer.
    pub(super) answered: bool,
}

#[derive(Debug, Default)]
pub(super) struct Talk {
    /// Only clients of revisions that have one.
    greeting: Option<Greeting>,
    initialized: Option<Vec<u8>>,
    /// The bridge said that it tells of changed tools.
    tells_of_changes: bool,
    /// Requests of the client.
    open: HashSet<Value>,
    /// Requests of the present bridge.
    asked: HashSet<Value>,
    has_run_code: bool,
}

impl Talk {
    /// Take note of a line of the client.
    pub(super) fn hear_client(&mut self, line: &[u8]) -> FromClient {
        let head = Head::of(line);
        match (head.method.as_deref(), head.id) {
            (Some("initialize"), Some(id)) if self.greeting.is_none() => {
                self.greeting = Some(Greeting {
                    line: line.to_owned(),
                    id,
                    answered: false,
                });
            }
            (Some(method), Some(id)) => {
                if self.open.len() >= OPEN_MAX {
                    return FromClient::Refuse(refusal(&id));
                }
                self.has_run_code |= method == "tools/call";
                self.open.insert(id);
            }
            (Some("notifications/initialized"), None) => self.initialized = Some(line.to_owned()),
            (Some("notifications/cancelled"), None) => {
                // It may never be answered, and need not.
                if let Some(id) = cancelled_id(line) {
                    self.open.remove(&id);
                }
            }
            // To an older bridge's question, or to none.
            (None, Some(id)) if !self.asked.remove(&id) => return FromClient::Drop,
            (Some(_), None) | (None, _) => {}
        }
        FromClient::Pass
    }

    /// Take note of a line of the bridge.
    pub(super) fn hear_bridge(&mut self, line: &[u8]) {
        let head = Head::of(line);
        let Some(id) = head.id else { return };
        if head.method.is_some() {
            if self.asked.len() < OPEN_MAX {
                self.asked.insert(id);
            }
            return;
        }
        match &mut self.greeting {
            Some(greeting) if !greeting.answered && greeting.id == id => {
                greeting.answered = true;
                self.tells_of_changes = serde_json::from_slice::<Value>(line).is_ok_and(|answer| {
                    answer.pointer("/result/capabilities/tools/listChanged") == Some(&json!(true))
                });
            }
            _ => {
                self.open.remove(&id);
            }
        }
    }

    /// The bridge has gone: answers to all that it did not answer, but for the greeting, which the
    /// next bridge will.
    pub(super) fn lost(&mut self) -> Vec<Vec<u8>> {
        self.asked.clear();
        let open = std::mem::take(&mut self.open);
        open.into_iter()
            .map(|id| {
                error(
                    &id,
                    "bridge_restarted",
                    "Runbridge ended while this request was under way; how far it came is not \
                     known. Variables of earlier runs are gone; servers and memory are kept. Ask \
                     again: it is being restarted",
                )
            })
            .collect()
    }

    pub(super) fn greeting(&self) -> Option<Greeting> {
        self.greeting.clone()
    }

    /// The client's word that it is ready, if it gave it.
    pub(super) fn initialized(&self) -> Option<Vec<u8>> {
        self.initialized.clone()
    }

    /// Whether the client had code run, so that there may be variables to lose.
    pub(super) fn has_run_code(&self) -> bool {
        self.has_run_code
    }

    /// What to tell the client of a new bridge, if it was told that it may hear such things.
    pub(super) fn news_of_restart(&self) -> Option<&'static [u8]> {
        (self.tells_of_changes && self.initialized.is_some()).then_some(LIST_CHANGED)
    }
}

/// Whether a line is the answer to the request `id`.
pub(super) fn answers(line: &[u8], id: &Value) -> bool {
    let head = Head::of(line);
    head.method.is_none() && head.id.as_ref() == Some(id)
}

fn cancelled_id(line: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct Cancelled {
        params: Params,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        request_id: Value,
    }
    let cancelled: Cancelled = serde_json::from_slice(line).ok()?;
    Some(cancelled.params.request_id)
}

fn refusal(id: &Value) -> Vec<u8> {
    let message = format!(
        "{OPEN_MAX} requests of this client are under way; wait for answers, then ask again"
    );
    error(id, "bridge_busy", &message)
}

fn error(id: &Value, code: &str, message: &str) -> Vec<u8> {
    let error = json!({
        "code": RETRYABLE,
        "message": message,
        "data": { "code": code, "retryable": true },
    });
    format!(
        "{}\n",
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    fn hear(talk: &mut Talk, message: Value) -> FromClient {
        talk.hear_client(&line(message))
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "`json!` reads best as an argument"
    )]
    fn line(message: Value) -> Vec<u8> {
        format!("{message}\n").into_bytes()
    }

    fn lost_ids(talk: &mut Talk) -> Vec<Value> {
        let mut ids: Vec<Value> = talk
            .lost()
            .iter()
            .map(|line| serde_json::from_slice::<Value>(line).unwrap()["id"].take())
            .collect();
        ids.sort_by_key(ToString::to_string);
        ids
    }

    #[test]
    fn what_awaits_an_answer_is_answered_once() {
        let mut talk = Talk::default();
        for id in [json!(1), json!("a\u{e9}"), json!(2), json!(3)] {
            hear(&mut talk, json!({"id": id, "method": "tools/call"}));
        }
        talk.hear_bridge(&line(json!({"id": 2, "result": {}})));
        // Another spelling of the same text.
        talk.hear_bridge(b"{\"id\":\"a\\u00e9\",\"error\":{}}\n");
        hear(
            &mut talk,
            json!({"method": "notifications/cancelled", "params": {"requestId": 3}}),
        );
        assert_eq!(lost_ids(&mut talk), [json!(1)]);
        assert_eq!(lost_ids(&mut talk), [] as [Value; 0]);
        assert!(talk.has_run_code());
    }

    #[test]
    fn the_error_says_what_it_is_and_that_asking_again_helps() {
        let mut talk = Talk::default();
        hear(&mut talk, json!({"id": "x", "method": "tools/list"}));
        let answer: Value = serde_json::from_slice(&talk.lost()[0]).unwrap();
        assert_eq!(answer["jsonrpc"], "2.0");
        assert_eq!(answer["error"]["code"], RETRYABLE);
        assert_eq!(
            answer["error"]["data"],
            json!({"code": "bridge_restarted", "retryable": true})
        );
        assert!(!talk.has_run_code());
    }

    #[test]
    fn an_unanswered_greeting_is_left_to_the_next_bridge() {
        let mut talk = Talk::default();
        hear(&mut talk, json!({"id": 0, "method": "initialize"}));
        assert!(talk.lost().is_empty());
        assert!(!talk.greeting().unwrap().answered);
        let answer = json!({"id": 0, "result": {"capabilities": {"tools": {"listChanged": true}}}});
        talk.hear_bridge(&line(answer));
        assert!(talk.greeting().unwrap().answered);
        assert_eq!(talk.news_of_restart(), None, "the client is not ready yet");
        hear(&mut talk, json!({"method": "notifications/initialized"}));
        assert_eq!(talk.news_of_restart(), Some(LIST_CHANGED));
        let news: Value = serde_json::from_slice(LIST_CHANGED).unwrap();
        assert_eq!(news["method"], "notifications/tools/list_changed");
    }

    #[test]
    fn answers_to_a_bridge_that_is_gone_are_dropped() {
        let mut talk = Talk::default();
        talk.hear_bridge(&line(json!({"id": 7, "method": "ping"})));
        let answer = json!({"id": 7, "result": {}});
        assert_eq!(hear(&mut talk, answer.clone()), FromClient::Pass);
        assert_eq!(hear(&mut talk, answer.clone()), FromClient::Drop);
        talk.hear_bridge(&line(json!({"id": 7, "method": "ping"})));
        talk.lost();
        assert_eq!(hear(&mut talk, answer), FromClient::Drop);
    }

    #[test]
    fn a_flood_of_requests_is_refused_by_name_and_not_remembered() {
        let mut talk = Talk::default();
        for id in 0..OPEN_MAX {
            let verdict = hear(&mut talk, json!({"id": id, "method": "ping"}));
            assert_eq!(verdict, FromClient::Pass);
        }
        let verdict = hear(&mut talk, json!({"id": "more", "method": "ping"}));
        let FromClient::Refuse(refusal) = verdict else {
            panic!("{verdict:?}");
        };
        let refusal: Value = serde_json::from_slice(&refusal).unwrap();
        assert_eq!(
            (&refusal["id"], &refusal["error"]["data"]["code"]),
            (&json!("more"), &json!("bridge_busy"))
        );
        assert_eq!(talk.lost().len(), OPEN_MAX);
    }

    #[test]
    fn what_is_no_message_is_passed_on_and_forgotten() {
        let mut talk = Talk::default();
        for odd in [
            &b"\n"[..],
            b"not json\n",
            b"[{\"id\":1,\"method\":\"ping\"}]\n",
            b"{\"id\":null,\"method\":\"x\"}\n",
            b"\xff\xfe\n",
        ] {
            assert_eq!(talk.hear_client(odd), FromClient::Pass);
            talk.hear_bridge(odd);
        }
        assert!(talk.lost().is_empty());
    }
}
