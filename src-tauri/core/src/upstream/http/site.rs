//! The address of a remote server, and single HTTP exchanges with it.
//!
//! What the user wrote is the only place we go to. A redirect is followed on the same host alone: on
//! another one, the credentials of the entry must not be sent, and a server on the net must not be
//! able to have us call into the user's own network. It knows HTTP; sessions and messages are
//! others' matter.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, NoProxy, Proxy, Response, StatusCode, Url};
use tokio::time::timeout;

use super::super::wire::LINE_BYTES_MAX;
use super::super::{lock, seconds};
use super::Fault;

/// TCP and TLS together.
const CONNECT: Duration = Duration::from_secs(10);

/// Between two pieces of a body that has begun and is not a stream of events.
const IDLE_READ: Duration = Duration::from_secs(30);

/// Idle connections are closed before the common server does it (Node's default is 5 s): a request
/// written into a connection that is being closed is lost, and must not be repeated.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// A peer that is gone without a word shows within a few of these.
const KEEPALIVE: Duration = Duration::from_secs(30);

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
            client: client(&url, login)?,
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

    async fn send(
        &self,
        method: Method,
        mut url: Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Fault> {
        let asked = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let request = self
                .client
                .request(method.clone(), url.clone())
                // In this order: what the protocol needs replaces what the entry says.
                .headers(self.headers.clone())
                .headers(headers.clone())
                .body(body.clone());
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
        let at = shown(response.url());
        let json = kind(&response) == Kind::Json;
        let page = matches!(kind(&response), Kind::Other(kind) if kind == "text/html");
        let body = timeout(REFUSAL, read(response, REFUSAL_BYTES_MAX)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN && challenged {
            let detail = if self.headers.contains_key(AUTHORIZATION) {
                format!(
                    "{at} answered {status}: it does not accept the `Authorization` header of its configuration, which may have expired"
                )
            } else {
                format!(
                    "{at} answered {status}; put the token that it gives you into its `headers`, as `Authorization`"
                )
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

fn client(url: &Url, login: &BTreeMap<String, String>) -> Result<Client, Fault> {
    // The first provider of the process stays; another one would do as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("runbridge/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .tcp_keepalive(KEEPALIVE)
        .tcp_nodelay(true)
        .pool_idle_timeout(IDLE_CONNECTION);
    if is_own_machine(url) {
        // No proxy can reach it.
        builder = builder.no_proxy();
    } else {
        for proxy in proxies(login)? {
            builder = builder.proxy(proxy);
        }
    }
    if let Some(file) = variable(login, "SSL_CERT_FILE")
        && let Ok(pem) = std::fs::read(file)
        && let Ok(certificates) = reqwest::Certificate::from_pem_bundle(&pem)
    {
        builder = builder.tls_certs_merge(certificates);
    }
    builder
        .build()
        .map_err(|error| Fault::Protocol(format!("no HTTP client for it: {}", root(&error))))
}

/// The proxies of the user's environment; with none there, those of the system's settings are used.
fn proxies(login: &BTreeMap<String, String>) -> Result<Vec<Proxy>, Fault> {
    let except = variable(login, "NO_PROXY").and_then(NoProxy::from_string);
    let mut proxies = Vec::new();
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
        if let Some(url) = variable(login, name) {
            let proxy = match name {
                "HTTPS_PROXY" => Proxy::https(url),
                "HTTP_PROXY" => Proxy::http(url),
                _ => Proxy::all(url),
            };
            let proxy = proxy.map_err(|error| {
                Fault::Protocol(format!(
                    "the proxy that {name} names cannot be used: {}",
                    root(&error)
                ))
            })?;
            proxies.push(proxy.no_proxy(except.clone()));
        }
    }
    Ok(proxies)
}

fn variable<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(&name.to_lowercase())
        .or_else(|| env.get(name))
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

fn is_own_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
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

/// Tokens travel in queries and before the host; neither belongs on a screen.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
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

type Cause<'a> = &'a (dyn std::error::Error + 'static);

fn causes(error: &reqwest::Error) -> impl Iterator<Item = Cause<'_>> {
    fn next<'a>(cause: &Cause<'a>) -> Option<Cause<'a>> {
        (**cause).source()
    }
    std::iter::successors(error.source(), next)
}

/// The innermost cause: the outer ones only say that there was an error.
fn root(error: &reqwest::Error) -> String {
    causes(error)
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
