//! Streamable HTTP: each request is a POST whose answer comes in the same exchange, as one JSON
//! document or as a stream of events that ends with it.
//!
//! A stream that breaks before its answer is taken up again where it stopped, if the server numbered
//! its events; otherwise the request has failed, since nobody knows how far it got.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};
use rmcp::model::{RequestId, ServerJsonRpcMessage};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::super::wire::{LINE_BYTES_MAX, Line, Parsed, parse, raw_result};
use super::super::{lock, log};
use super::events::{Event, EventParser};
use super::site::{self, Kind, kind};
use super::{Fault, Outgoing, REVISION, Remote, SESSION_ID};

/// Before a broken stream is taken up again, when the server does not say; and the bounds on what
/// it says.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_mins(1);

/// Attempts in a row to take up a stream that brought nothing.
const RESUMES_MAX: u32 = 5;

/// A stream that lasted this long is no failure when it ends.
const LASTED: Duration = Duration::from_secs(10);

/// After the answer, how long the end of the exchange is waited for, so that the TCP connection can
/// be used again.
const LINGER: Duration = Duration::from_secs(1);

/// A session id is echoed in every request.
const SESSION_BYTES_MAX: usize = 1_024;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// One request until its answer has been delivered.
pub(super) async fn exchange(
    remote: &Remote,
    id: &RequestId,
    outgoing: &Outgoing,
) -> Result<(), Fault> {
    let response = remote
        .site
        .post(headers(remote, outgoing), outgoing.body.clone());
    let response = response.await?;
    let mut answer = Answer {
        remote,
        id,
        initialize: outgoing.is("initialize"),
        session: session_of(&response),
        found: false,
    };
    let status = response.status();
    if !status.is_success() {
        return answer.refused(response).await;
    }
    match kind(&response) {
        Kind::Json => {
            let body = site::read(response, LINE_BYTES_MAX).await?;
            answer.take(&body).await;
            if answer.found {
                Ok(())
            } else {
                Err(Fault::Protocol(
                    "it answered with JSON that is no answer to the request".to_owned(),
                ))
            }
        }
        Kind::Events => answer.follow(response).await,
        Kind::Nothing => Err(Fault::Protocol(format!(
            "it answered {status} with nothing, where an answer belongs"
        ))),
        Kind::Other(kind) => Err(wrong_kind(remote, &kind)),
    }
}

/// A message that has no answer.
pub(super) async fn tell(remote: &Remote, outgoing: &Outgoing) -> Result<(), Fault> {
    let response = remote
        .site
        .post(headers(remote, outgoing), outgoing.body.clone());
    let response = response.await?;
    if response.status().is_success() {
        return Ok(());
    }
    let had_session = lock(&remote.session).is_some();
    let status = response.status();
    let (fault, body) = remote.site.refusal(response).await;
    Err(if is_session_lost(status, had_session, body.as_deref()) {
        Fault::SessionLost
    } else {
        fault
    })
}

/// What a server says without being asked, in the era of handshakes. It ends when the server does
/// not offer that, or with the connection.
pub(super) async fn listen(remote: Arc<Remote>) {
    let mut last_id: Option<String> = None;
    let mut wait = RETRY;
    loop {
        let begun = Instant::now();
        let mut named = None;
        match open_stream(&remote, last_id.as_deref()).await {
            Ok(mut response) => {
                let mut parser = EventParser::new(LINE_BYTES_MAX);
                let mut events = Vec::new();
                while let Ok(Some(piece)) = response.chunk().await {
                    if parser.feed(&piece, &mut events).is_err() {
                        break;
                    }
                    for event in events.drain(..) {
                        for message in messages(&event) {
                            remote.deliver(message).await;
                        }
                    }
                }
                last_id = parser.last_id().map(str::to_owned).or(last_id);
                named = parser.retry_ms();
            }
            Err(Fault::Unreachable(reason)) => {
                tracing::debug!(reason, "a server's stream of news is gone");
            }
            Err(Fault::SessionLost) => {
                remote.end(Fault::SessionLost);
                return;
            }
            // Not offered, most often with 405.
            Err(Fault::Status { .. } | Fault::Protocol(_) | Fault::SignIn(_)) => return,
        }
        wait = if begun.elapsed() >= LASTED {
            RETRY
        } else {
            (wait * 2).min(RETRY_MAX)
        };
        sleep(named.map_or(wait, |named| pause(Some(named)).max(wait))).await;
    }
}

/// The stream of one session from after the event `last_id`.
async fn open_stream(remote: &Remote, last_id: Option<&str>) -> Result<Response, Fault> {
    let mut headers = remote.session_headers();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(id) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(LAST_EVENT_ID, id);
    }
    let response = remote.site.get(headers).await?;
    let status = response.status();
    if !status.is_success() {
        let had_session = lock(&remote.session).is_some();
        let (fault, body) = remote.site.refusal(response).await;
        return Err(if is_session_lost(status, had_session, body.as_deref()) {
            Fault::SessionLost
        } else {
            fault
        });
    }
    match kind(&response) {
        Kind::Events => Ok(response),
        Kind::Json | Kind::Nothing => Err(wrong_kind(remote, "no stream of events")),
        Kind::Other(kind) => Err(wrong_kind(remote, &kind)),
    }
}

/// The answer to one request, on its way.
struct Answer<'a> {
    remote: &'a Remote,
    id: &'a RequestId,
    initialize: bool,
    session: Option<HeaderValue>,
    found: bool,
}

impl Answer<'_> {
    /// Deliver what `text` holds.
    async fn take(&mut self, text: &[u8]) {
        let Parsed::Messages(messages) = parse(&Line::Whole(text)) else {
            return;
        };
        for message in messages {
            self.take_one(message).await;
        }
    }

    async fn take_one(&mut self, mut message: ServerJsonRpcMessage) {
        match &mut message {
            ServerJsonRpcMessage::Response(response) if is_same(&response.id, self.id) => {
                self.found = true;
                if self.initialize {
                    *lock(&self.remote.session) = self.session.take();
                    let revision = revision_of(&message);
                    *lock(&self.remote.revision) = revision;
                }
            }
            // An error without an id is meant for the only question there is.
            ServerJsonRpcMessage::Error(error)
                if error.id.as_ref().is_none_or(|id| is_same(id, self.id)) =>
            {
                self.found = true;
                error.id = Some(self.id.clone());
            }
            other => log::came_beside(other, self.id),
        }
        self.remote.deliver(message).await;
    }

    /// Read events until the answer has come, over as many streams as that takes.
    async fn follow(&mut self, mut response: Response) -> Result<(), Fault> {
        let mut last_id: Option<String> = None;
        let mut fruitless = 0;
        loop {
            let mut parser = EventParser::new(LINE_BYTES_MAX);
            let mut events = Vec::new();
            let mut brought = false;
            let ended = loop {
                let piece = match response.chunk().await {
                    Ok(Some(piece)) => piece,
                    Ok(None) => {
                        break Fault::Unreachable(
                            "the connection was cut before the answer was complete (the stream ended)"
                                .to_owned(),
                        );
                    }
                    Err(error) => break site::cut(&error),
                };
                if parser.feed(&piece, &mut events).is_err() {
                    return Err(site::too_long());
                }
                for event in events.drain(..) {
                    brought = true;
                    for message in messages(&event) {
                        self.take_one(message).await;
                    }
                }
                if self.found {
                    let _ = timeout(LINGER, rest(response)).await;
                    return Ok(());
                }
            };
            last_id = parser.last_id().map(str::to_owned).or(last_id);
            let Some(id) = &last_id else {
                return Err(ended);
            };
            fruitless = if brought { 0 } else { fruitless + 1 };
            let mut wait = pause(parser.retry_ms());
            response = loop {
                if fruitless >= RESUMES_MAX {
                    return Err(ended);
                }
                sleep(wait).await;
                match open_stream(self.remote, Some(id)).await {
                    Ok(response) => break response,
                    Err(Fault::Unreachable(_)) => {
                        fruitless += 1;
                        wait = (wait * 2).clamp(RETRY_MIN, RETRY_MAX);
                    }
                    // The request itself was taken, so this is not one to repeat.
                    Err(_) => return Err(ended),
                }
            };
        }
    }

    /// A refusing status, with or without a word of the protocol.
    async fn refused(&mut self, response: Response) -> Result<(), Fault> {
        let status = response.status();
        let had_session = !self.initialize && lock(&self.remote.session).is_some();
        let (fault, body) = self.remote.site.refusal(response).await;
        if is_session_lost(status, had_session, body.as_deref()) {
            return Err(Fault::SessionLost);
        }
        if let Some(body) = body
            && let Parsed::Messages(messages) = parse(&Line::Whole(&body))
            && let Some(mut message) = messages.into_iter().find(is_error)
        {
            if let ServerJsonRpcMessage::Error(error) = &mut message {
                error.id = Some(self.id.clone());
            }
            self.take_one(message).await;
            return Ok(());
        }
        Err(fault)
    }
}

fn headers(remote: &Remote, outgoing: &Outgoing) -> HeaderMap {
    // A session is opened by `initialize` and by nothing else.
    if outgoing.is("initialize") {
        return HeaderMap::new();
    }
    let Some(revision) = &outgoing.revision else {
        return remote.session_headers();
    };
    let mut headers = HeaderMap::new();
    let mut insert = |name: HeaderName, value: Option<&str>| {
        if let Some(value) = value.and_then(header_value) {
            headers.insert(name, value);
        }
    };
    insert(REVISION, Some(revision));
    insert(METHOD, outgoing.method.as_deref());
    insert(NAME, outgoing.name.as_deref());
    headers.extend(outgoing.params.iter().cloned());
    headers
}

/// A text as the value of a header: as it is, or in base64 where HTTP would not carry it as it is.
pub(super) fn header_value(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim_matches(' ') == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if plain {
        HeaderValue::from_str(text).ok()
    } else {
        HeaderValue::from_str(&format!("=?base64?{}?=", BASE64_STANDARD.encode(text))).ok()
    }
}

fn session_of(response: &Response) -> Option<HeaderValue> {
    let session = response.headers().get(SESSION_ID)?;
    (!session.is_empty() && session.len() <= SESSION_BYTES_MAX).then(|| session.clone())
}

/// 404 says so; some servers say it with 400 and words.
fn is_session_lost(status: StatusCode, had_session: bool, body: Option<&[u8]>) -> bool {
    had_session
        && match status {
            StatusCode::NOT_FOUND => true,
            StatusCode::BAD_REQUEST => body.is_some_and(|body| {
                String::from_utf8_lossy(body)
                    .to_ascii_lowercase()
                    .contains("session")
            }),
            _ => false,
        }
}

fn messages(event: &Event) -> Vec<ServerJsonRpcMessage> {
    if !matches!(event.name.as_str(), "" | "message") {
        return Vec::new();
    }
    match parse(&Line::Whole(event.data.as_bytes())) {
        Parsed::Messages(messages) => messages,
        Parsed::Blank | Parsed::Noise => Vec::new(),
    }
}

fn is_error(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Error(_))
}

/// Some servers write numbers back as texts.
fn is_same(theirs: &RequestId, ours: &RequestId) -> bool {
    theirs == ours || theirs.to_string() == ours.to_string()
}

fn revision_of(message: &ServerJsonRpcMessage) -> Option<HeaderValue> {
    let ServerJsonRpcMessage::Response(response) = message else {
        return None;
    };
    let text = raw_result(response.result.clone()).ok()?;
    let result: Value = serde_json::from_str(text.get()).ok()?;
    let revision = result.get("protocolVersion")?.as_str()?;
    HeaderValue::from_str(revision).ok()
}

/// How long to wait before a stream is taken up again.
fn pause(named_ms: Option<u64>) -> Duration {
    named_ms.map_or(RETRY, |ms| {
        Duration::from_millis(ms).clamp(RETRY_MIN, RETRY_MAX)
    })
}

async fn rest(mut response: Response) {
    while let Ok(Some(_)) = response.chunk().await {}
}

fn wrong_kind(remote: &Remote, kind: &str) -> Fault {
    let at = remote.site.shown();
    Fault::Protocol(if kind == "text/html" {
        format!(
            "{at} answered with a web page (text/html) instead of MCP; check the address, and whether a sign-in page or a proxy stands before it"
        )
    } else {
        format!("{at} answered with {kind} instead of MCP")
    })
}
