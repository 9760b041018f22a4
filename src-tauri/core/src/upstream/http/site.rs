//! The address of a remote server, and single HTTP exchanges with it.
//!
//! What the user wrote is the only place we go to. A redirect is followed on the same host alone: on
//! another one, the credentials of the entry must not be sent, and a server on the net must not be
//! able to have us call into the user's own network. It knows HTTP; sessions and messages are
//! others' matter.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, Response, StatusCode, Url};
use tokio::time::timeout;

use super::super::wire::LINE_BYTES_MAX;
use super::super::{lock, seconds};
use super::Fault;
use crate::secrets::Secret;
use crate::sign_in::challenge::Challenge;
use crate::sign_in::{Authority, NoToken};
pub(super) use crate::web::shown;
use crate::web::{self, CONNECT, causes, root};

/// Between two pieces of a body that has begun and is not a stream of events.
const IDLE_READ: Duration = Duration::from_secs(30);

/// Redirects followed for one request.
const REDIRECTS_MAX: usize = 5;

/// Read of a body that only explains a refusal.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Time for it.
const REFUSAL: Duration = Duration::from_secs(5);

/// Quoted of a refusal.
const REFUSAL_CHARS_MAX: usize = 200;

/// Where a server is and how it is spoken to.
pub(crate) struct Site {
    client: Client,
    /// Moved by a permanent redirect.
    url: Mutex<Url>,
    /// The user's own, sent with every request.
    headers: HeaderMap,
    /// The user's sign-in; none: the entry brings an `Authorization` of its own.
    authority: Option<Authority>,
}

/// What a body says it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Events,
    Nothing,
    Other(String),
}

impl Site {
    /// `login` is the user's environment, which may name a proxy and further authorities.
    pub(crate) fn new(
        url: &str,
        headers: &BTreeMap<String, String>,
        login: &BTreeMap<String, String>,
        authority: impl FnOnce(&Url) -> Authority,
    ) -> Result<Self, Fault> {
        let url = Url::parse(url.trim())
            .map_err(|error| Fault::Protocol(format!("its address is not a URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(Fault::Protocol(format!(
                "its address begins with `{}:`; http and https are what remote servers speak",
                url.scheme()
            )));
        }
        let mut sent = HeaderMap::new();
        for (name, value) in headers {
            let parsed = HeaderName::from_bytes(name.trim().as_bytes()).ok();
            let value = HeaderValue::from_str(value.trim()).ok();
            let (Some(parsed), Some(mut value)) = (parsed, value) else {
                return Err(Fault::Protocol(format!(
                    "its header `{name}` has a name or a value that HTTP does not allow"
                )));
            };
            value.set_sensitive(true);
            sent.insert(parsed, value);
        }
        Ok(Self {
            client: client(&url, login).map_err(Fault::Protocol)?,
            authority: (!sent.contains_key(AUTHORIZATION)).then(|| authority(&url)),
            url: Mutex::new(url),
            headers: sent,
        })
    }

    /// The address without what may be secret in it.
    pub(super) fn shown(&self) -> String {
        shown(&lock(&self.url))
    }

    pub(super) fn url(&self) -> Url {
        lock(&self.url).clone()
    }

    /// Ask, as nobody, what sign-in is needed.
    pub(crate) async fn ask_who(&self, sse: bool, question: Bytes) -> Result<Challenge, Fault> {
        let mut headers = HeaderMap::new();
        let accept = if sse {
            "text/event-stream"
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            "application/json, text/event-stream"
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let method = if sse { Method::GET } else { Method::POST };
        let body = if sse { Bytes::new() } else { question };
        let response = self.send_with(None, method, self.url(), headers, body);
        let response = response.await?;
        let mut challenge = challenge(&response).unwrap_or_default();
        challenge.none_needed = response.status().is_success();
        Ok(challenge)
    }

    pub(super) async fn get(&self, headers: HeaderMap) -> Result<Response, Fault> {
        self.send(Method::GET, self.url(), headers, Bytes::new())
            .await
    }

    pub(super) async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Response, Fault> {
        self.post_to(self.url(), headers, body).await
    }

    /// Post to another address of the same origin.
    pub(super) async fn post_to(
        &self,
        url: Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Fault> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        self.send(Method::POST, url, headers, body).await
    }

    pub(super) async fn delete(&self, headers: HeaderMap) -> Result<Response, Fault> {
        self.send(Method::DELETE, self.url(), headers, Bytes::new())
            .await
    }

    /// A request that was refused for its token was not carried out, so it is made again with another
    /// one, once.
    async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Fault> {
        let Some(authority) = &self.authority else {
            return self.send_with(None, method, url, headers, body).await;
        };
        let no_token = |error| match error {
            NoToken::Ended(detail) => Fault::SignIn(format!(
                "your sign-in has ended ({detail}); {}",
                authority.how()
            )),
            NoToken::Unreachable(reason) => {
                Fault::Unreachable(format!("your sign-in could not be renewed: {reason}"))
            }
        };
        let token = authority.token().await.map_err(no_token)?;
        let first = self
            .send_with(
                token.as_ref(),
                method.clone(),
                url.clone(),
                headers.clone(),
                body.clone(),
            )
            .await?;
        if first.status() != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        match authority.after_refusal(token.as_ref()).await {
            Ok(Some(other)) => {
                self.send_with(Some(&other), method, url, headers, body)
                    .await
            }
            Ok(None) => Ok(first),
            Err(error) => Err(no_token(error)),
        }
    }

    async fn send_with(
        &self,
        token: Option<&Secret>,
        method: Method,
        mut url: Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Fault> {
        let bearer = token.and_then(|token| {
            let value = format!("Bearer {}", token.expose());
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let asked = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self
                .client
                .request(method.clone(), url.clone())
                // In this order: what the protocol needs replaces what the entry says.
                .headers(self.headers.clone())
                .headers(headers.clone())
                .body(body.clone());
            if let Some(bearer) = &bearer {
                request = request.header(AUTHORIZATION, bearer.clone());
            }
            let response = request
                .send()
                .await
                .map_err(|error| unreachable(&url, error))?;
            let permanent = match response.status() {
                StatusCode::MOVED_PERMANENTLY | StatusCode::PERMANENT_REDIRECT => true,
                StatusCode::FOUND | StatusCode::TEMPORARY_REDIRECT => false,
                _ => return Ok(response),
            };
            url = redirected(&url, &response)?;
            if permanent {
                let mut known = lock(&self.url);
                if *known == asked {
                    *known = url.clone();
                }
            }
        }
        Err(Fault::Protocol(format!(
            "{} redirects more than {REDIRECTS_MAX} times",
            shown(&asked)
        )))
    }

    /// What a refusing answer means. The body has been read when it is JSON of the protocol.
    pub(super) async fn refusal(&self, response: Response) -> (Fault, Option<Vec<u8>>) {
        let status = response.status();
        let challenged = response.headers().contains_key(WWW_AUTHENTICATE);
        let challenge = challenge(&response).unwrap_or_default();
        let at = shown(response.url());
        let json = kind(&response) == Kind::Json;
        let page = matches!(kind(&response), Kind::Other(kind) if kind == "text/html");
        let body = timeout(REFUSAL, read(response, REFUSAL_BYTES_MAX)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN && challenged {
            let detail = match &self.authority {
                None => format!(
                    "{at} answered {status}: it does not accept the `Authorization` header of its configuration, which may have expired"
                ),
                Some(authority) if challenge.wants_more_rights() => {
                    let rights = challenge.scope.as_deref().unwrap_or_default();
                    authority.want(rights).await;
                    let rights: String = rights.chars().take(REFUSAL_CHARS_MAX).collect();
                    format!(
                        "{at} wants more rights than your sign-in has ({rights}); {}",
                        authority.how()
                    )
                }
                Some(authority) if authority.is_signed_in() => format!(
                    "{at} answered {status}: it does not accept your sign-in any more; {}",
                    authority.how()
                ),
                Some(authority) => format!(
                    "{at} answered {status}; {}; if it gave you a token, put that into its `headers`, as `Authorization`",
                    authority.how()
                ),
            };
            return (Fault::SignIn(detail), None);
        }
        let text = String::from_utf8_lossy(&body);
        let text: String = text.trim().chars().take(REFUSAL_CHARS_MAX).collect();
        let detail = if text.is_empty() || page {
            format!("{at} answered {status}")
        } else {
            format!("{at} answered {status}: {text}")
        };
        let fault = Fault::Status {
            status: status.as_u16(),
            detail,
        };
        (fault, json.then_some(body))
    }
}

/// What the answer says of the sign-in that is needed.
pub(super) fn challenge(response: &Response) -> Option<Challenge> {
    let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
    Challenge::read(headers.filter_map(|value| value.to_str().ok()))
}

fn client(url: &Url, login: &BTreeMap<String, String>) -> Result<Client, String> {
    web::builder(url, login)?
        .build()
        .map_err(|error| format!("no HTTP client for it: {}", root(&error)))
}

/// The target of a redirect, if we may follow it.
fn redirected(from: &Url, response: &Response) -> Result<Url, Fault> {
    let target = response.headers().get(LOCATION);
    let target = target
        .and_then(|target| target.to_str().ok())
        .and_then(|target| from.join(target).ok())
        .ok_or_else(|| Fault::Protocol(format!("{} redirects to nowhere", shown(from))))?;
    if is_same_place(from, &target) {
        Ok(target)
    } else {
        Err(Fault::Protocol(format!(
            "{} redirects to {}; redirects to another host are not followed: if you trust it, put that address into the configuration",
            shown(from),
            shown(&target)
        )))
    }
}

/// Same origin, or the step from http to https on the same host.
pub(super) fn is_same_place(from: &Url, to: &Url) -> bool {
    let secured = from.scheme() == "http"
        && to.scheme() == "https"
        && from.port().is_none()
        && to.port().is_none();
    from.host() == to.host()
        && (from.origin() == to.origin() || secured)
        && to.username().is_empty()
        && to.password().is_none()
}

pub(super) fn kind(response: &Response) -> Kind {
    let name = response.headers().get(CONTENT_TYPE);
    let name = name.and_then(|value| value.to_str().ok()).unwrap_or("");
    let name = name.split(';').next().unwrap_or("").trim();
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "text/event-stream" => Kind::Events,
        "application/json" => Kind::Json,
        "" => Kind::Nothing,
        other if other.ends_with("+json") => Kind::Json,
        _ => Kind::Other(name.chars().take(100).collect()),
    }
}

/// A whole body, at most `bytes_max`.
pub(super) async fn read(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    loop {
        match timeout(IDLE_READ, response.chunk()).await {
            Err(_) => {
                return Err(Fault::Unreachable(format!(
                    "its answer stopped half-way: nothing came for {}",
                    seconds(IDLE_READ)
                )));
            }
            Ok(Err(error)) => return Err(cut(&error)),
            Ok(Ok(None)) => return Ok(body),
            Ok(Ok(Some(piece))) if body.len() + piece.len() <= bytes_max => {
                body.extend_from_slice(&piece);
            }
            Ok(Ok(Some(_))) => return Err(too_long()),
        }
    }
}

pub(super) fn too_long() -> Fault {
    Fault::Protocol(format!(
        "its answer is longer than the limit of {LINE_BYTES_MAX} bytes (64 MiB)"
    ))
}

pub(super) fn cut(error: &reqwest::Error) -> Fault {
    Fault::Unreachable(format!(
        "the connection was cut before the answer was complete ({})",
        root(error)
    ))
}

fn unreachable(url: &Url, error: reqwest::Error) -> Fault {
    let error = error.without_url();
    let at = shown(url);
    let cause = root(&error);
    let refused = causes(&error).any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
    });
    Fault::Unreachable(if refused {
        format!("{at} refused the connection (connection refused); is the server running?")
    } else if error.is_timeout() {
        format!(
            "{at} did not take the connection within {}",
            seconds(CONNECT)
        )
    } else if error.is_connect() {
        format!("no connection to {at}: {cause}")
    } else {
        format!("{at} closed the connection without an answer ({cause})")
    })
}
