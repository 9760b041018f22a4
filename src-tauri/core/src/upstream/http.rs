//! A remote server: one connection to it, whichever of the two HTTP transports it speaks.
//!
//! Requests run side by side, each in a task that its owner can cancel. What goes wrong with one of
//! them is a [`Fault`], told apart from what the server answers and kept until whoever asked takes
//! it. Results stay the text that the server wrote, as on stdio, which is why rmcp's own HTTP client
//! is not used: it parses each into a union of all results, has no deadlines, and opens with a
//! handshake of its own.
//!
//! It knows HTTP and sessions. Which era the server is of, how long a call may take and when to open
//! a connection anew is decided elsewhere.

mod events;
mod param_headers;
mod site;
mod sse;
mod streamable;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(super) use self::param_headers::ParamHeaders;
pub(super) use self::site::Site;
use super::error::UpstreamError;
use super::lock;

/// Messages read and not yet taken. The streams wait beyond it, and with them the server.
const INCOMING_MAX: usize = 64;

/// Requests under way at once on one connection; further ones wait, each until its own deadline.
const REQUESTS_MAX: usize = 256;

/// Faults that nobody has taken: those of requests that were given up in the same moment.
const FAULTS_MAX: usize = 1_024;

/// A message that is not a request is accepted within this, or given up.
const ACCEPT: Duration = Duration::from_secs(30);

/// The farewell to a session; a server that does not take it forgets the session by itself.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a request has no answer, apart from what the server says in the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 401, or 403 with a challenge.
    SignIn(String),
    /// Not connected, cut, stalled.
    Unreachable(String),
    /// A status that refuses the request, without a word of the protocol.
    Status { status: u16, detail: String },
    /// Something else than the protocol came back.
    Protocol(String),
    /// The server does not know the session any more; the request was not carried out.
    SessionLost,
}

impl Fault {
    pub(crate) fn into_error(self, server: &str) -> UpstreamError {
        let server = server.to_owned();
        match self {
            Self::SignIn(detail) => UpstreamError::SignIn { server, detail },
            Self::Unreachable(reason) => UpstreamError::Unreachable { server, reason },
            Self::Status {
                status: 500..,
                detail,
            } => UpstreamError::Unreachable {
                server,
                reason: detail,
            },
            Self::Status { detail, .. } | Self::Protocol(detail) => {
                UpstreamError::Protocol { server, detail }
            }
            Self::SessionLost => UpstreamError::SessionLost { server },
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::SignIn(detail)
            | Self::Unreachable(detail)
            | Self::Status { detail, .. }
            | Self::Protocol(detail) => detail,
            Self::SessionLost => "the server does not know the session any more",
        }
    }

    /// The address may be one of the other transport.
    pub(crate) fn hints_at_other_transport(&self) -> bool {
        match self {
            Self::Status { status, .. } => {
                (400..500).contains(status) && !matches!(status, 401 | 403 | 407 | 408 | 429)
            }
            Self::SignIn(_) | Self::Unreachable(_) | Self::Protocol(_) | Self::SessionLost => false,
        }
    }
}

/// One connection to a remote server.
pub(crate) struct Remote {
    site: Site,
    way: Way,
    incoming: mpsc::Sender<ServerJsonRpcMessage>,
    faults: Mutex<Faults>,
    session: Mutex<Option<HeaderValue>>,
    /// The revision agreed upon with `initialize`.
    revision: Mutex<Option<HeaderValue>>,
    running: Mutex<HashMap<RequestId, AbortOnDropHandle<()>>>,
    listener: Mutex<Option<AbortOnDropHandle<()>>>,
    /// The server has answered in the protocol.
    greeted: AtomicBool,
    /// It was opened with `initialize`.
    handshake: AtomicBool,
    closed: CancellationToken,
    ended: Mutex<Option<Fault>>,
    slots: Semaphore,
}

/// How messages travel.
#[derive(Debug)]
enum Way {
    /// Each request has its answer in the same exchange.
    Streamable,
    /// All answers come on one stream, opened first; requests go to the address that it named.
    Sse { endpoint: Url },
}

#[derive(Default)]
struct Faults {
    by_request: HashMap<RequestId, Fault>,
    /// What the last question came to, if that was not an answer.
    latest: Option<Fault>,
}

/// A message to be sent, with what the headers say of it.
struct Outgoing {
    body: Bytes,
    method: Option<String>,
    name: Option<String>,
    /// The revision that the message itself names.
    revision: Option<String>,
    params: Vec<(HeaderName, HeaderValue)>,
}

impl Outgoing {
    fn read(message: &ClientJsonRpcMessage) -> io::Result<Self> {
        #[derive(Deserialize, Default)]
        struct Head<'a> {
            #[serde(borrow, default)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            params: Option<Params<'a>>,
        }
        #[derive(Deserialize, Default)]
        struct Params<'a> {
            #[serde(borrow, default)]
            name: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            uri: Option<Cow<'a, str>>,
            #[serde(borrow, default, rename = "taskId")]
            task: Option<Cow<'a, str>>,
            #[serde(borrow, default, rename = "_meta")]
            meta: Option<Meta<'a>>,
        }
        #[derive(Deserialize)]
        struct Meta<'a> {
            #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
            revision: Option<Cow<'a, str>>,
        }

        let body = serde_json::to_vec(message).map_err(io::Error::other)?;
        let head: Head<'_> = serde_json::from_slice(&body).unwrap_or_default();
        let params = head.params.unwrap_or_default();
        let name = match head.method.as_deref() {
            Some("tools/call" | "prompts/get") => params.name,
            Some("resources/read") => params.uri,
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => params.task,
            _ => None,
        };
        let (method, name) = (head.method.map(Cow::into_owned), name.map(Cow::into_owned));
        let revision = params.meta.and_then(|meta| meta.revision);
        let revision = revision.map(Cow::into_owned);
        let params = match message {
            ClientJsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::CustomRequest(request) => {
                    let headers = request.extensions.get::<ParamHeaders>();
                    headers.map(|headers| headers.0.clone())
                }
                _ => None,
            },
            _ => None,
        };
        Ok(Self {
            body: body.into(),
            method,
            name,
            revision,
            params: params.unwrap_or_default(),
        })
    }

    fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

impl Remote {
    /// A connection that nothing has been sent on yet.
    pub(super) fn streamable(site: Site) -> (Arc<Self>, HttpTransport) {
        Self::new(site, Way::Streamable)
    }

    /// A connection over the older HTTP+SSE: its stream is open and has named the address for
    /// requests.
    pub(super) async fn sse(site: Site) -> Result<(Arc<Self>, HttpTransport), Fault> {
        let opened = sse::open(&site).await?;
        let endpoint = opened.endpoint.clone();
        let (remote, transport) = Self::new(site, Way::Sse { endpoint });
        let reader = tokio::spawn(sse::read(Arc::clone(&remote), opened));
        *lock(&remote.listener) = Some(AbortOnDropHandle::new(reader));
        Ok((remote, transport))
    }

    fn new(site: Site, way: Way) -> (Arc<Self>, HttpTransport) {
        let (incoming, messages) = mpsc::channel(INCOMING_MAX);
        let remote = Arc::new(Self {
            site,
            way,
            incoming,
            faults: Mutex::default(),
            session: Mutex::default(),
            revision: Mutex::default(),
            running: Mutex::default(),
            listener: Mutex::default(),
            greeted: AtomicBool::new(false),
            handshake: AtomicBool::new(false),
            closed: CancellationToken::new(),
            ended: Mutex::default(),
            slots: Semaphore::new(REQUESTS_MAX),
        });
        let transport = HttpTransport {
            remote: Arc::clone(&remote),
            messages,
        };
        (remote, transport)
    }

    /// Why the request with this id has no answer.
    pub(super) fn take_fault(&self, id: &RequestId) -> Option<Fault> {
        lock(&self.faults).by_request.remove(id)
    }

    /// Why the connection has ended, or what the last question of a greeting came to.
    pub(super) fn fault(&self) -> Option<Fault> {
        let ended = lock(&self.ended).clone();
        ended.or_else(|| lock(&self.faults).latest.clone())
    }

    /// Say farewell, so that the server can forget the session, and end everything under way.
    pub(super) async fn stop(&self) {
        let session = lock(&self.session).take();
        self.close();
        if let Some(session) = session {
            let mut headers = self.session_headers();
            headers.insert(SESSION_ID, session);
            let farewell = self.site.delete(headers);
            if let Ok(Err(fault)) = timeout(FAREWELL, farewell).await {
                tracing::debug!(?fault, "a server does not take the end of its session");
            }
        }
    }

    fn close(&self) {
        self.closed.cancel();
        // Taken out of the locks first: what is dropped may want them.
        let running = std::mem::take(&mut *lock(&self.running));
        let listener = lock(&self.listener).take();
        drop((running, listener));
    }

    /// The connection is of no use any more; the first reason counts.
    fn end(&self, fault: Fault) {
        lock(&self.ended).get_or_insert(fault);
        self.closed.cancel();
    }

    async fn deliver(&self, message: ServerJsonRpcMessage) {
        let answers = match &message {
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => true,
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => false,
        };
        if answers {
            self.greeted.store(true, Ordering::SeqCst);
            lock(&self.faults).latest = None;
        }
        // Closed: nobody reads any more, and this task is about to be aborted.
        let _ = self.incoming.send(message).await;
    }

    /// A request has no answer.
    async fn fail(&self, id: RequestId, outgoing: &Outgoing, fault: Fault) {
        tracing::debug!(?fault, site = %self.site.shown(), "a request to a server failed");
        let is_final = match &fault {
            Fault::SignIn(_) | Fault::Unreachable(_) => true,
            // An old server may well answer the question of the new era with nonsense.
            Fault::Protocol(_) => !outgoing.is("server/discover"),
            Fault::Status { .. } | Fault::SessionLost => false,
        };
        if is_final && !self.greeted.load(Ordering::SeqCst) {
            self.end(fault);
            return;
        }
        let ends = (fault == Fault::SessionLost).then(|| fault.clone());
        let message = ServerJsonRpcMessage::error(
            ErrorData::new(ErrorCode::INTERNAL_ERROR, fault.message().to_owned(), None),
            Some(id.clone()),
        );
        {
            let mut faults = lock(&self.faults);
            faults.latest = Some(fault.clone());
            if faults.by_request.len() >= FAULTS_MAX {
                faults.by_request.clear();
            }
            faults.by_request.insert(id, fault);
        }
        let _ = self.incoming.send(message).await;
        if let Some(fault) = ends {
            self.end(fault);
        }
    }

    /// Headers of every message of a session.
    fn session_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(session) = lock(&self.session).clone() {
            headers.insert(SESSION_ID, session);
        }
        if let Some(revision) = lock(&self.revision).clone() {
            headers.insert(REVISION, revision);
        }
        headers
    }

    fn begin(self: &Arc<Self>, id: RequestId, outgoing: Outgoing) {
        let remote = Arc::clone(self);
        let key = id.clone();
        // Held until the task is in the map, so that the task's end finds itself there.
        let mut running = lock(&self.running);
        if self.closed.is_cancelled() {
            return;
        }
        let task = tokio::spawn(async move {
            let done = async {
                let _slot = remote.slots.acquire().await;
                match &remote.way {
                    Way::Streamable => streamable::exchange(&remote, &id, &outgoing).await,
                    Way::Sse { endpoint } => sse::post(&remote, endpoint, &outgoing).await,
                }
            };
            let done = done.await;
            if let Err(fault) = done {
                remote.fail(id.clone(), &outgoing, fault).await;
            }
            let ended = lock(&remote.running).remove(&id);
            // It is this very task, which has nothing left to wait for.
            drop(ended);
        });
        running.insert(key, AbortOnDropHandle::new(task));
    }

    /// Send what has no answer; a server that does not take it shows in the next request.
    async fn tell(self: Arc<Self>, outgoing: Outgoing) {
        let opened = outgoing.is("notifications/initialized");
        if opened {
            self.handshake.store(true, Ordering::SeqCst);
        }
        let accepted = timeout(ACCEPT, async {
            match &self.way {
                Way::Streamable => streamable::tell(&self, &outgoing).await,
                Way::Sse { endpoint } => sse::post(&self, endpoint, &outgoing).await,
            }
        });
        match accepted.await {
            Ok(Ok(())) => {
                let mut listener = lock(&self.listener);
                if opened && matches!(self.way, Way::Streamable) && !self.closed.is_cancelled() {
                    let listening = tokio::spawn(streamable::listen(Arc::clone(&self)));
                    *listener = Some(AbortOnDropHandle::new(listening));
                }
            }
            Ok(Err(Fault::SessionLost)) => self.end(Fault::SessionLost),
            Ok(Err(fault)) => {
                tracing::debug!(?fault, method = ?outgoing.method, "a server did not take a message");
            }
            Err(_) => {
                tracing::debug!(method = ?outgoing.method, "a server did not take a message in time");
            }
        }
    }
}

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The messages of one connection. Dropping it ends all that is under way.
pub(crate) struct HttpTransport {
    remote: Arc<Remote>,
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.remote.close();
    }
}

impl Transport<RoleClient> for HttpTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let mut told = None;
        let mut sent = Ok(());
        match Outgoing::read(&message) {
            Err(error) => sent = Err(error),
            Ok(outgoing) => match message {
                ClientJsonRpcMessage::Request(request) => self.remote.begin(request.id, outgoing),
                ClientJsonRpcMessage::Notification(notification) => {
                    let mut wanted = true;
                    if let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                    {
                        let id = cancelled.params.request_id.as_ref();
                        let given_up = id.and_then(|id| lock(&self.remote.running).remove(id));
                        drop(given_up);
                        // Without a handshake the end of the exchange is the cancellation.
                        wanted = self.remote.handshake.load(Ordering::SeqCst);
                    }
                    told = wanted.then_some(outgoing);
                }
                ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {
                    told = Some(outgoing);
                }
            },
        }
        let remote = Arc::clone(&self.remote);
        async move {
            if let Some(outgoing) = told {
                let closed = remote.closed.clone();
                tokio::select! {
                    () = remote.tell(outgoing) => {}
                    () = closed.cancelled() => {}
                }
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        tokio::select! {
            biased;
            message = self.messages.recv() => message,
            () = self.remote.closed.cancelled() => None,
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.remote.close();
        Ok(())
    }
}
