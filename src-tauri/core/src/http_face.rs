//! The bridge over streamable HTTP, for clients that want an address: on loopback alone, and only for
//! who shows the token of a private file.
//!
//! Who has a session has a connection of its own, as over stdio. The newest revision has no sessions;
//! there all requests of one client's name share a connection, so that variables stay. Hosts and
//! origins, revisions and streams are rmcp's part; who may come in, and how many, is decided here.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, ErrorData, Extensions,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::atomic;
use crate::bridge::{Bridge, Connection};
use crate::mcp_server::{LINE_BYTES_MAX, McpServer};
use crate::secrets::Secret;
use crate::token;

/// The port where nobody asks for another.
pub const PORT: u16 = 7823;

/// The path of the one address.
const PATH: &str = "/mcp";

/// The header by which a session is known.
const SESSION: &str = "mcp-session-id";

/// TCP connections at once; a client holds a few.
const STREAMS_MAX: usize = 128;

/// Sessions at once; whoever comes then is told to come again.
const SESSIONS_MAX: usize = 32;

/// A session that says nothing for so long has been forgotten by its client, who opens a new one.
const SESSION_IDLE_MAX: Duration = Duration::from_hours(1);

/// Clients without sessions that are remembered; beyond it the one unheard of for longest goes.
const NAMES_MAX: usize = 16;

/// The name of a client that gives none.
const NAMELESS: &str = "unknown client";

/// How long the head of a request may take to arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// How long sessions may take to end when the face is shut down.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A token file is a line.
const TOKEN_BYTES_MAX: u64 = 1024;

/// Why there is no face.
#[derive(Debug, thiserror::Error)]
pub enum HttpFaceError {
    /// Another program has the port, or the system forbids it.
    #[error("cannot listen on port {port}: {source}; `--port` chooses another, 0 any that is free")]
    Port {
        /// The one that was asked for.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// The token can be neither read nor made.
    #[error("cannot keep a token in `{file}`: {source}")]
    Token {
        /// Its file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Where a face is, and what clients show there.
#[derive(Clone, Debug)]
pub struct Place {
    port: u16,
    token: Secret,
    token_file: PathBuf,
}

impl Place {
    /// A face of another process, which keeps its token in this file.
    pub fn of(port: u16, token_file: PathBuf) -> io::Result<Self> {
        let token = token_of(&token_file)?;
        let token = token.ok_or_else(|| {
            let what = format!("`{}` holds no token", token_file.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(Self {
            port,
            token,
            token_file,
        })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address, which asks for the token in a header.
    pub fn url(&self) -> String {
        format!("http://{}:{}{PATH}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// What a client shows, as `Authorization: Bearer …` or in its address.
    pub fn token(&self) -> &Secret {
        &self.token
    }

    /// Where the token is kept.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// The address with the token in it, for clients that cannot send a header.
    pub fn url_with_token(&self) -> Secret {
        Secret::new(format!(
            "http://{}:{}/{}{PATH}",
            Ipv4Addr::LOCALHOST,
            self.port,
            self.token.expose()
        ))
    }
}

/// A bridge that is served over HTTP, until it is shut down or dropped.
pub struct HttpFace {
    place: Place,
    served: Arc<Served>,
}

/// What all requests share.
struct Served {
    bridge: Arc<Bridge>,
    /// What is the same for every client is asked here.
    general: McpServer,
    connection: Arc<Connection>,
    /// Clients without sessions, the one heard of last at the end.
    nameless_sessions: Mutex<Vec<(String, Arc<Connection>, McpServer)>>,
    ends: CancellationToken,
    tasks: TaskTracker,
}

impl HttpFace {
    /// Serve `bridge` at this port of loopback; 0: any.
    pub async fn open(bridge: Arc<Bridge>, port: u16) -> Result<Self, HttpFaceError> {
        let file = bridge.paths().http_token();
        let token = kept_token(&file).map_err(|source| HttpFaceError::Token {
            file: file.display().to_string(),
            source,
        })?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let port_error = |source| HttpFaceError::Port { port, source };
        let listener = listener.map_err(port_error)?;
        let port = listener.local_addr().map_err(port_error)?.port();
        let connection = bridge.connect();
        let served = Arc::new(Served {
            general: McpServer::new(Arc::clone(&bridge), Arc::clone(&connection)),
            bridge,
            connection,
            nameless_sessions: Mutex::default(),
            ends: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        let door = Door::new(&served, &token);
        served.tasks.spawn(door.accept(listener));
        let place = Place {
            port,
            token,
            token_file: file,
        };
        Ok(Self { place, served })
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// End all sessions and their runs.
    pub async fn shut_down(self) {
        let served = &self.served;
        served.ends.cancel();
        served.connection.close();
        let shared = std::mem::take(&mut *served.shared());
        for (_, connection, _) in shared {
            served.disconnect(connection);
        }
        served.disconnect(Arc::clone(&served.connection));
        served.tasks.close();
        if tokio::time::timeout(END_WITHIN, served.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("HTTP sessions did not end in time");
        }
    }
}

impl Drop for HttpFace {
    fn drop(&mut self) {
        self.served.ends.cancel();
    }
}

/// The token of `file`, if that holds one.
fn token_of(file: &Path) -> io::Result<Option<Secret>> {
    if std::fs::metadata(file)?.len() > TOKEN_BYTES_MAX {
        return Ok(None);
    }
    let text = std::fs::read_to_string(file)?;
    let text = text.trim();
    let is_one = text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Ok(is_one.then(|| Secret::new(text.to_owned())))
}

/// The token of `file`, or a new one in it.
fn kept_token(file: &Path) -> io::Result<Secret> {
    if let Ok(Some(token)) = token_of(file) {
        return Ok(token);
    }
    let token = token::fresh()?;
    if let Some(folder) = file.parent() {
        atomic::create_folder(folder)?;
    }
    atomic::write(file, token.expose().as_bytes())?;
    Ok(token)
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Lets in who may come.
struct Door {
    token: Secret,
    mcp: StreamableHttpService<Session, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    served: Arc<Served>,
}

impl Door {
    fn new(served: &Arc<Served>, token: &Secret) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE_MAX);
        let sessions = Arc::new(sessions);
        let config = StreamableHttpServerConfig::default()
            .with_cancellation_token(served.ends.clone())
            .with_max_request_body_bytes(LINE_BYTES_MAX)
            .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"]);
        let behind = Arc::clone(served);
        let make = move || Ok(Session::new(&behind));
        Self {
            token: token.clone(),
            mcp: StreamableHttpService::new(make, Arc::clone(&sessions), config),
            sessions,
            served: Arc::clone(served),
        }
    }

    async fn accept(self, listener: TcpListener) {
        let room = Arc::new(Semaphore::new(STREAMS_MAX));
        let (ends, tasks) = (self.served.ends.clone(), self.served.tasks.clone());
        let door = Arc::new(self);
        loop {
            // Whoever comes when there is no room waits in the system's queue.
            let accepted = async {
                let permit = Arc::clone(&room).acquire_owned().await.ok()?;
                Some((listener.accept().await, permit))
            };
            let accepted = tokio::select! {
                accepted = accepted => accepted,
                () = ends.cancelled() => None,
            };
            match accepted {
                Some((Ok((stream, _)), permit)) => {
                    tasks.spawn(Arc::clone(&door).serve(stream, permit));
                }
                Some((Err(error), _)) => {
                    // Out of descriptors, most likely; some become free.
                    tracing::warn!("an HTTP connection was not accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                None => return,
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, _room: OwnedSemaphorePermit) {
        let ends = self.served.ends.clone();
        let service = service_fn(move |request| {
            let door = Arc::clone(&self);
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        // Small answers go at once.
        let _ = stream.set_nodelay(true);
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            served = connection => if let Err(error) = served {
                tracing::debug!("an HTTP connection broke off: {error}");
            },
            () = ends.cancelled() => {}
        }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Answer {
        match self.enter(request.uri(), request.headers().get(AUTHORIZATION)) {
            Entry::May => {}
            Entry::ShowToken => {
                let mut refusal = refuse(
                    StatusCode::UNAUTHORIZED,
                    "Runbridge asks for its token: `Authorization: Bearer …`, or the address that \
                     `runbridge serve --http` prints",
                );
                let scheme = HeaderValue::from_static("Bearer");
                refusal.headers_mut().insert(WWW_AUTHENTICATE, scheme);
                return refusal;
            }
            Entry::NotHere => {
                return refuse(StatusCode::NOT_FOUND, "Runbridge serves MCP at /mcp");
            }
        }
        // What follows need not know how the token was shown.
        *request.uri_mut() = Uri::from_static(PATH);
        request.headers_mut().remove(AUTHORIZATION);
        let opens_session = request.method() == hyper::Method::POST
            && !request.headers().contains_key(SESSION)
            && self.sessions.sessions.read().await.len() >= SESSIONS_MAX;
        if opens_session && !names_newest(&request) {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("Runbridge has {SESSIONS_MAX} sessions open; end one of them"),
            );
        }
        let ends_session = request.method() == hyper::Method::DELETE;
        let mut answer = self.mcp.handle(request).await;
        // It is done by now, and clients wonder at "accepted".
        if ends_session && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::OK;
        }
        answer
    }

    fn enter(&self, address: &Uri, authorization: Option<&HeaderValue>) -> Entry {
        let token = self.token.expose().as_bytes();
        let path = address.path().trim_end_matches('/');
        let (guess, path) = match path.strip_suffix(PATH) {
            Some("") => (None, PATH),
            Some(before) => (before.strip_prefix('/'), PATH),
            None => (None, path),
        };
        if path != PATH {
            return Entry::NotHere;
        }
        let shown = authorization.and_then(|value| {
            let (scheme, shown) = value.to_str().ok()?.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then_some(shown.trim())
        });
        match guess.or(shown) {
            Some(guess) if token::same(guess.as_bytes(), token) => Entry::May,
            _ => Entry::ShowToken,
        }
    }
}

/// Whether a request may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    May,
    ShowToken,
    NotHere,
}

/// The revision without sessions must be named by each of its requests.
fn names_newest(request: &Request<Incoming>) -> bool {
    let revision = request.headers().get("mcp-protocol-version");
    revision
        .and_then(|revision| revision.to_str().ok())
        .is_some_and(|revision| revision >= "2026-07-28")
}

fn refuse(status: StatusCode, words: &str) -> Answer {
    let body = Full::new(Bytes::from(words.to_owned())).boxed();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    // The rest of what was sent is not read.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

impl Served {
    fn shared(&self) -> std::sync::MutexGuard<'_, Vec<(String, Arc<Connection>, McpServer)>> {
        self.nameless_sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The server for a client that has no session, by the name it gives.
    fn for_name(&self, name: &str) -> McpServer {
        let mut shared = self.shared();
        if let Some(at) = shared.iter().position(|(known, ..)| known == name) {
            let known = shared.remove(at);
            let server = known.2.clone();
            shared.push(known);
            return server;
        }
        if shared.len() >= NAMES_MAX {
            let (_, oldest, _) = shared.remove(0);
            self.disconnect(oldest);
        }
        let connection = self.bridge.connect();
        let server = McpServer::new(Arc::clone(&self.bridge), Arc::clone(&connection));
        shared.push((name.to_owned(), connection, server.clone()));
        server
    }

    fn disconnect(&self, connection: Arc<Connection>) {
        let bridge = Arc::clone(&self.bridge);
        self.tasks
            .spawn(async move { bridge.disconnect(&connection).await });
    }
}

/// One session, or one request where there are none. The connection is made when it is needed.
struct Session {
    served: Arc<Served>,
    own: OnceLock<(Arc<Connection>, McpServer)>,
}

impl Session {
    fn new(served: &Arc<Served>) -> Self {
        Self {
            served: Arc::clone(served),
            own: OnceLock::new(),
        }
    }

    /// The server of this session.
    fn own(&self) -> &McpServer {
        let made = self.own.get_or_init(|| {
            let connection = self.served.bridge.connect();
            let bridge = Arc::clone(&self.served.bridge);
            let server = McpServer::new(bridge, Arc::clone(&connection));
            (connection, server)
        });
        &made.1
    }

    fn of(&self, context: &RequestContext<RoleServer>) -> McpServer {
        if has_session(&context.extensions) {
            return self.own().clone();
        }
        let client = context.client_info().map(|info| info.name);
        self.served.for_name(client.as_deref().unwrap_or(NAMELESS))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some((connection, _)) = self.own.take() {
            connection.close();
            self.served.disconnect(connection);
        }
    }
}

fn has_session(extensions: &Extensions) -> bool {
    let parts = extensions.get::<hyper::http::request::Parts>();
    parts.is_some_and(|parts| parts.headers.contains_key(SESSION))
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        self.served.general.get_info()
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.own().on_initialized(context).await;
    }

    async fn on_cancelled(
        &self,
        cancelled: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        self.own().on_cancelled(cancelled, context).await;
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.served.general.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.served.general.listen(context).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.served.general.list_tools(request, context).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.of(&context).call_tool(request, context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.served.general.list_resources(request, context).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.served.general.read_resource(request, context).await
    }
}
