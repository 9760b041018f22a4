//! One running server that has been greeted: calls and lists over it, until it ends.

mod tasks;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use rmcp::ClientHandler;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientConfig, ClientNotification,
    ClientRequest, CustomRequest, CustomResult, ErrorCode, ErrorData, JsonObject,
    ProgressNotificationParam, ProgressToken, RequestId, RequestMetaObject,
};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RoleClient, RunningService,
    ServiceError, serve_directly,
};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::tasks::Task;
use super::asking::{self, Clock, People, Person};
use super::error::{UpstreamError, seconds};
use super::http::ParamHeaders;
use super::lifecycle::{Era, Greeting, answer, capabilities, client_info};
use super::link::Link;
use super::log::{self, Log, LogReader, Reading, ServerLog};
use super::stdio::ProcessHandle;
use super::tools::{TOOLS_MAX, ToolList};
use super::wire::raw_result;
use super::{EXIT_STATUS, lock};
use crate::clients::entry::Lent;

/// Pages of one `tools/list`.
const PAGES_MAX: usize = 1_000;

/// Text of one `tools/list`, all pages together.
const LIST_BYTES_MAX: usize = super::wire::LINE_BYTES_MAX;

/// Between two subscriptions to changes, and the most that repeated failures make of it.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);
const LISTEN_AGAIN_MAX: Duration = Duration::from_mins(1);

/// Of the words that a server sends with its progress.
const PROGRESS_CHARS_MAX: usize = 200;

/// How long a list lasts, whatever the server says: not listed for each call, nor kept for ever.
const LASTS_MIN: Duration = Duration::from_secs(1);
const LASTS_MAX: Duration = Duration::from_hours(24);

/// After a list that could not be renewed.
const LIST_AGAIN: Duration = Duration::from_mins(1);

/// One listing that nobody waits for with a deadline of his own.
const LIST: Duration = Duration::from_secs(30);

/// A live connection. Dropping it stops the server in the background.
pub(crate) struct Connection {
    server: String,
    lent: Arc<Lent>,
    service: RunningService<RoleClient, Face>,
    link: Link,
    greeting: Greeting,
    listeners: Listeners,
    people: People,
    log: Arc<Log>,
    started_at: SystemTime,
    tools: Mutex<Listed>,
    /// Held while a list is under way, so that there is one at a time.
    listing: tokio::sync::Mutex<()>,
    tools_changed: Arc<Notify>,
    on_tools: Box<dyn Fn(Arc<ToolList>) + Send + Sync>,
    /// We ended it, or are about to.
    stopping: AtomicBool,
    closed: CancellationToken,
    /// Lists again on `list_changed`, and keeps the subscription to it open.
    _tasks: Vec<AbortOnDropHandle<()>>,
}

struct Listed {
    tools: Result<Arc<ToolList>, UpstreamError>,
    /// When this list was asked for.
    began: Option<Instant>,
    /// From when on it may no longer be true, as the server says.
    stale_at: Option<Instant>,
}

/// Hears in words how far a call has got.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// Who is behind a call.
#[derive(Clone, Default)]
pub struct Caller {
    /// Hears how far it has got.
    pub progress: Option<Progress>,
    /// Can be asked.
    pub person: Option<Person>,
    /// Hears what the server logs.
    pub log: Option<LogReader>,
}

/// What goes along with a request.
#[derive(Default)]
struct Along<'a> {
    progress: Option<Progress>,
    reading: Option<&'a Reading<'a>>,
}

/// Times that a server may ask before it answers one call.
const ROUNDS_MAX: usize = 10;

/// Questions of one round.
const QUESTIONS_MAX: usize = 16;

/// Told to a server whose question was put to nobody; one of the codes that are free to use.
const NOBODY_ASKED: ErrorCode = ErrorCode(-32_000);

/// Who wants to hear of which request: those of the calls under way, and no others.
type Listeners = Arc<Mutex<HashMap<ProgressToken, Progress>>>;

/// Our side of the protocol: what servers may ask of us.
struct Face {
    server: String,
    era: Era,
    lent: Arc<Lent>,
    tools_changed: Arc<Notify>,
    listeners: Listeners,
    people: People,
}

/// What stands before the server would misroute calls of a tool whose schema asks for headers that
/// cannot be; the protocol has clients leave such a tool out.
fn leave_out_misannotated(list: &mut ToolList) {
    let tools = std::mem::take(&mut list.tools);
    for tool in tools {
        match ParamHeaders::problem(&tool.input_schema) {
            None => list.tools.push(tool),
            Some(problem) => list.note(format!(
                "tool `{}` asks for a header that cannot be and was left out: {problem}",
                tool.name
            )),
        }
    }
}

impl ClientHandler for Face {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.client_info = client_info();
        info.capabilities = capabilities(&self.lent, self.era);
        info
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.unwrap_or_default();
        if let Some(question) = asking::question(&self.lent, &self.server, &request.method, &params)
        {
            let answer = match question {
                Ok(question) => self.people.ask(question).await,
                Err(why) => Err(why),
            };
            return answer.map(CustomResult).map_err(|why| {
                let message = format!("Runbridge could not ask its user: {why}");
                ErrorData::new(NOBODY_ASKED, message, None)
            });
        }
        answer(&self.lent, &request.method).map(CustomResult)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let listener = lock(&self.listeners).get(&params.progress_token).cloned();
        if let Some(listener) = listener {
            listener(&how_far(&params));
        }
    }
}

/// `3 of 10: indexing`, as far as the server says it.
fn how_far(params: &ProgressNotificationParam) -> String {
    let message = params.message.as_deref().unwrap_or_default().trim();
    let message: String = message.chars().take(PROGRESS_CHARS_MAX).collect();
    let count = match params.total {
        Some(total) => format!("{} of {total}", params.progress),
        None => params.progress.to_string(),
    };
    if message.is_empty() {
        count
    } else if params.total.is_some() {
        format!("{count}: {message}")
    } else {
        message
    }
}

/// Forgets a listener when its call has ended.
struct Listening<'a> {
    listeners: &'a Listeners,
    token: ProgressToken,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        lock(self.listeners).remove(&self.token);
    }
}

impl Connection {
    pub(super) fn new(
        server: String,
        transport: impl Transport<RoleClient> + 'static,
        link: Link,
        greeting: Greeting,
        lent: &Lent,
        log: Arc<ServerLog>,
        on_tools: impl Fn(Arc<ToolList>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let tools_changed = Arc::new(Notify::new());
        let listeners = Listeners::default();
        let people = People::default();
        let lent = Arc::new(lent.clone());
        let face = Face {
            server: server.clone(),
            era: greeting.era,
            lent: Arc::clone(&lent),
            tools_changed: Arc::clone(&tools_changed),
            listeners: Arc::clone(&listeners),
            people: people.clone(),
        };
        let closed = CancellationToken::new();
        let log = Log::new(server.clone(), log);
        let transport = Watched {
            transport,
            closed: closed.clone(),
            log: Arc::clone(&log),
        };
        let service = serve_directly(face, transport, Some(greeting.peer.clone()));
        let not_yet = UpstreamError::Protocol {
            server: server.clone(),
            detail: "its tools have not been listed".to_owned(),
        };
        Arc::new_cyclic(|connection: &Weak<Self>| {
            let changed = Arc::clone(&tools_changed);
            let mut tasks = vec![spawn(follow(Weak::clone(connection), changed))];
            let has_initialize = greeting.peer.protocol_version.has_initialize();
            if greeting.tools_list_changed && !has_initialize {
                let again = link.process().is_none();
                tasks.push(spawn(subscribe(service.peer().clone(), again)));
            }
            if greeting.logging && has_initialize {
                tasks.push(spawn(ask_for_log(service.peer().clone())));
            }
            Self {
                server,
                lent,
                service,
                link,
                greeting,
                listeners,
                people,
                log,
                started_at: SystemTime::now(),
                tools: Mutex::new(Listed {
                    tools: Err(not_yet),
                    began: None,
                    stale_at: None,
                }),
                listing: tokio::sync::Mutex::new(()),
                tools_changed,
                on_tools: Box::new(on_tools),
                stopping: AtomicBool::new(false),
                closed,
                _tasks: tasks,
            }
        })
    }

    pub(super) fn process(&self) -> Option<ProcessHandle> {
        self.link.process()
    }

    pub(super) fn started_at(&self) -> SystemTime {
        self.started_at
    }

    pub(super) fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled() || self.stopping.load(Ordering::SeqCst) || self.link.has_ended()
    }

    /// Resolves when the connection has ended, without keeping it alive.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        self.closed.clone().cancelled_owned()
    }

    /// What is odd about the server.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.greeting.note.clone());
        notes.extend(self.link.note());
        match &lock(&self.tools).tools {
            Ok(tools) => notes.extend(tools.notes.iter().cloned()),
            Err(error) => notes.push(error.to_string()),
        }
        notes
    }

    pub(super) fn tools(&self) -> Result<Arc<ToolList>, UpstreamError> {
        lock(&self.tools).tools.clone()
    }

    /// List the tools. A server that answers with an error stays usable, and the error is what
    /// [`Self::tools`] gives unless there was a list before; an error here means that the server is
    /// lost.
    pub(super) async fn list(&self) -> Result<(), UpstreamError> {
        self.list_since(Instant::now()).await
    }

    /// List the tools as they are now; callers at the same time share one list.
    pub(super) async fn list_again(&self) -> Result<Arc<ToolList>, UpstreamError> {
        let before = self.tools().ok();
        let Ok(listed) = timeout(LIST, self.list()).await else {
            return Err(UpstreamError::Protocol {
                server: self.server.clone(),
                detail: format!("tools/list was not answered within {} s", LIST.as_secs()),
            });
        };
        listed?;
        let tools = self.tools()?;
        if !before.is_some_and(|before| Arc::ptr_eq(&before, &tools)) {
            (self.on_tools)(Arc::clone(&tools));
        }
        Ok(tools)
    }

    /// A list that began after `asked` is as good as another one.
    async fn list_since(&self, asked: Instant) -> Result<(), UpstreamError> {
        let _one_at_a_time = self.listing.lock().await;
        if lock(&self.tools).began.is_some_and(|began| began >= asked) {
            return Ok(());
        }
        let began = Instant::now();
        let answer = match self.all_pages().await {
            Err(
                error @ (UpstreamError::Died { .. }
                | UpstreamError::Stopped { .. }
                | UpstreamError::SignIn { .. }
                | UpstreamError::Unreachable { .. }
                | UpstreamError::SessionLost { .. }),
            ) => return Err(error),
            answer => answer,
        };
        let mut listed = lock(&self.tools);
        listed.began = Some(began);
        let lasts = match &answer {
            Ok((_, lasts)) => *lasts,
            Err(_) => Some(LIST_AGAIN),
        };
        listed.stale_at = lasts.map(|lasts| began + lasts);
        let answer = answer.map(|(tools, _)| tools);
        match (answer, &listed.tools) {
            // The same value stays, and with it all that was derived from it.
            (Ok(tools), Ok(before)) if tools == **before => {}
            (Ok(tools), _) => listed.tools = Ok(Arc::new(tools)),
            (Err(error), Ok(_)) => {
                tracing::warn!(server = %self.server, %error, "the list of tools is not renewed");
            }
            (Err(error), Err(_)) => listed.tools = Err(error),
        }
        Ok(())
    }

    /// Has the list renewed in the background if the server's word for it has run out.
    fn renew_if_stale(&self) {
        let mut listed = lock(&self.tools);
        if listed.stale_at.is_some_and(|at| at <= Instant::now()) {
            // Once; the next list says how long it lasts.
            listed.stale_at = None;
            self.tools_changed.notify_one();
        }
    }

    /// All tools, and how long the list lasts.
    async fn all_pages(&self) -> Result<(ToolList, Option<Duration>), UpstreamError> {
        #[derive(Deserialize)]
        struct Page<'a> {
            /// Each by itself, so that one that is no JSON value for us costs only itself.
            #[serde(borrow)]
            tools: Option<Vec<&'a RawValue>>,
            #[serde(rename = "nextCursor", default)]
            next_cursor: Option<Value>,
            #[serde(rename = "ttlMs", default)]
            ttl_ms: Option<Value>,
        }

        let mut objects = Vec::new();
        let mut note = None;
        let mut cursor: Option<Value> = None;
        let mut lasts: Option<Duration> = None;
        let mut bytes = 0;
        for page_number in 1.. {
            let params = match &cursor {
                None => json!({}),
                Some(cursor) => json!({ "cursor": cursor }),
            };
            let text = match self.request("tools/list", params).await {
                Ok(text) => text,
                // A server without tools need not know the method.
                Err(UpstreamError::Rpc {
                    rpc_code: -32601, ..
                }) if page_number == 1 => {
                    note = Some("offers no tools".to_owned());
                    break;
                }
                Err(UpstreamError::Rpc { message, .. }) => {
                    let detail = format!("tools/list failed on page {page_number}: {message}");
                    if page_number == 1 {
                        return Err(UpstreamError::Protocol {
                            server: self.server.clone(),
                            detail,
                        });
                    }
                    note = Some(format!("{detail}; the pages before it count"));
                    break;
                }
                Err(error) => return Err(error),
            };
            bytes += text.get().len();
            let page: Page<'_> =
                serde_json::from_str(text.get()).map_err(|error| UpstreamError::Protocol {
                    server: self.server.clone(),
                    detail: format!("its answer to tools/list is not a list: {error}"),
                })?;
            if let Some(ms) = page.ttl_ms.and_then(|ms| ms.as_u64()) {
                let said = Duration::from_millis(ms).clamp(LASTS_MIN, LASTS_MAX);
                lasts = Some(lasts.map_or(said, |lasts| lasts.min(said)));
            }
            let tools = page.tools.unwrap_or_default();
            objects.extend(
                tools
                    .iter()
                    .map(|tool| serde_json::from_str(tool.get()).unwrap_or_default()),
            );
            let next = page
                .next_cursor
                .filter(|cursor| !cursor.is_null() && cursor.as_str() != Some(""));
            if objects.len() > TOOLS_MAX {
                objects.truncate(TOOLS_MAX);
                note = Some(format!(
                    "lists more than {TOOLS_MAX} tools; the rest is left out"
                ));
                break;
            }
            let Some(next) = next else { break };
            if cursor.as_ref() == Some(&next) {
                note = Some(format!(
                    "repeats the cursor of page {page_number}; later pages are left out"
                ));
                break;
            }
            if page_number >= PAGES_MAX || bytes > LIST_BYTES_MAX {
                note = Some(format!(
                    "lists its tools on more than {page_number} pages; the rest is left out"
                ));
                break;
            }
            cursor = Some(next);
        }
        let mut list = ToolList::read(objects);
        if self.wants_param_headers() {
            leave_out_misannotated(&mut list);
        }
        if let Some(note) = note {
            list.note(note);
        }
        Ok((list, lasts))
    }

    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Duration,
        caller: Caller,
    ) -> Result<Box<RawValue>, UpstreamError> {
        self.renew_if_stale();
        let headers = self.param_headers(tool, &arguments);
        let mut params = Map::with_capacity(2);
        params.insert("name".to_owned(), tool.into());
        params.insert("arguments".to_owned(), Value::Object(arguments));
        let as_task = self.must_ask_for_task(tool);
        if as_task {
            // It need not keep the task for longer than we wait.
            let task = json!({ "ttl": limit.as_millis() as u64 });
            params.insert("task".to_owned(), task);
        }
        let clock = Clock::new(limit);
        let _present = caller
            .person
            .clone()
            .map(|person| self.people.enter(person, Arc::clone(&clock)));
        let reading = caller.log.clone().map(|reader| self.log.enter(reader));
        let answered = async {
            for _ in 0..ROUNDS_MAX {
                let asked = Value::Object(params.clone());
                let mut request = CustomRequest::new("tools/call", Some(asked));
                if !headers.is_empty() {
                    request.extensions.insert(headers.clone());
                }
                let along = Along {
                    progress: caller.progress.clone(),
                    reading: reading.as_ref(),
                };
                let result = self.send(request, along).await?;
                if let Some(task) = Task::begun(&result, as_task, self.may_make_tasks()) {
                    return self.follow(task, &caller, reading.as_ref(), &clock).await;
                }
                let Some(wanted) = Wanted::read(&result) else {
                    return Ok(result);
                };
                let answers = self
                    .answers(&wanted, caller.person.as_ref(), &clock)
                    .await?;
                params.remove("requestState");
                if let Some(state) = wanted.state {
                    params.insert("requestState".to_owned(), state);
                }
                params.insert("inputResponses".to_owned(), Value::Object(answers));
            }
            Err(self.wants_too_much(&format!("it asks again after {ROUNDS_MAX} answers")))
        };
        tokio::select! {
            result = answered => result,
            () = clock.ran_out() => Err(UpstreamError::ToolTimeout {
                server: self.server.clone(),
                tool: tool.to_owned(),
                after: limit,
            }),
        }
    }

    /// The answers to one round of questions, since 2026-07-28 part of a call.
    async fn answers(
        &self,
        wanted: &Wanted,
        person: Option<&Person>,
        clock: &Arc<Clock>,
    ) -> Result<Map<String, Value>, UpstreamError> {
        if wanted.requests.len() > QUESTIONS_MAX {
            let many = format!("it asks {} questions at once", wanted.requests.len());
            return Err(self.wants_too_much(&many));
        }
        let mut answers = Map::new();
        for (key, request) in &wanted.requests {
            let method = request.get("method").and_then(Value::as_str);
            let method = method.unwrap_or_default();
            let params = request.get("params").unwrap_or(&Value::Null);
            let question = asking::question(&self.lent, &self.server, method, params);
            let answer = match question {
                Some(Ok(question)) => {
                    let _stopped = clock.stop();
                    match person {
                        Some(person) => asking::ask(person, question).await,
                        None => Err("nobody who could be asked is behind this call".to_owned()),
                    }
                }
                Some(Err(why)) => Err(why),
                None => answer(&self.lent, method).map_err(|error| error.message.into_owned()),
            };
            let answer = answer.map_err(|why| self.wants_too_much(&why))?;
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    fn wants_too_much(&self, why: &str) -> UpstreamError {
        UpstreamError::Protocol {
            server: self.server.clone(),
            detail: format!(
                "it wants an answer from its user before it goes on, and there is none: {why}"
            ),
        }
    }

    /// One request within `limit`, whatever it asks for.
    pub(super) async fn ask(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Box<RawValue>, UpstreamError> {
        timeout(limit, self.request(method, params))
            .await
            .unwrap_or_else(|_| {
                Err(UpstreamError::Protocol {
                    server: self.server.clone(),
                    detail: format!("{method} was not answered within {}", seconds(limit)),
                })
            })
    }

    /// Whether schemas may ask for headers: those of servers of the newer era on HTTP may.
    fn wants_param_headers(&self) -> bool {
        self.link.process().is_none() && !self.greeting.peer.protocol_version.has_initialize()
    }

    /// Headers that the tool's schema asks for.
    fn param_headers(&self, tool: &str, arguments: &Map<String, Value>) -> ParamHeaders {
        if !self.wants_param_headers() {
            return ParamHeaders::default();
        }
        let tools = self.tools().ok();
        let found = tools
            .as_ref()
            .and_then(|list| list.tools.iter().find(|one| one.name == tool));
        found.map_or_else(ParamHeaders::default, |found| {
            ParamHeaders::of(&found.input_schema, arguments)
        })
    }

    async fn request(&self, method: &str, params: Value) -> Result<Box<RawValue>, UpstreamError> {
        self.send(CustomRequest::new(method, Some(params)), Along::default())
            .await
    }

    /// One request. Dropping the future cancels it at the server.
    async fn send(
        &self,
        request: CustomRequest,
        along: Along<'_>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let method = request.method.clone();
        if self.is_closed() {
            return Err(self.death().await);
        }
        let request = ClientRequest::CustomRequest(request);
        let peer = self.service.peer();
        let mut options = PeerRequestOptions::no_options();
        if along.reading.is_some() && self.greeting.logging {
            options.meta = log_level(self.greeting.peer.protocol_version.has_initialize());
        }
        let sent = peer.send_cancellable_request(request, options).await;
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(self.service_error(error).await),
        };
        let mut cancel = CancelOnDrop {
            peer,
            id: Some(handle.id.clone()),
        };
        let id = handle.id.clone();
        if let Some(reading) = along.reading {
            reading.asks(id.clone());
        }
        let _listening = along.progress.map(|progress| {
            let token = handle.progress_token.clone();
            lock(&self.listeners).insert(token.clone(), progress);
            Listening {
                listeners: &self.listeners,
                token,
            }
        });
        let answered = tokio::select! {
            biased;
            answered = &mut handle.rx => answered,
            () = self.closed.cancelled() => match timeout(EXIT_STATUS, &mut handle.rx).await {
                Ok(answered) => answered,
                Err(_) => Ok(Err(ServiceError::TransportClosed)),
            },
        };
        cancel.id = None;
        if let Some(fault) = self.link.take_fault(&id) {
            return Err(fault.into_error(&self.server));
        }
        match answered {
            Ok(Ok(result)) => raw_result(result).map_err(|error| UpstreamError::Protocol {
                server: self.server.clone(),
                detail: format!("its answer to {method} cannot be read: {error}"),
            }),
            Ok(Err(error)) => Err(self.service_error(error).await),
            Err(_) => Err(self.death().await),
        }
    }

    async fn service_error(&self, error: ServiceError) -> UpstreamError {
        match error {
            ServiceError::McpError(error) => UpstreamError::Rpc {
                server: self.server.clone(),
                rpc_code: error.code.0.into(),
                message: error.message.into_owned(),
                data: error.data.map(Box::new),
            },
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => self.death().await,
            other => UpstreamError::Protocol {
                server: self.server.clone(),
                detail: other.to_string(),
            },
        }
    }

    /// Why there is no connection any more.
    pub(super) async fn death(&self) -> UpstreamError {
        if self.stopping.load(Ordering::SeqCst) {
            return UpstreamError::Stopped {
                server: self.server.clone(),
            };
        }
        self.link.death(&self.server).await
    }

    /// The same end, told of a server that was not ready.
    pub(super) async fn as_start_error(&self, error: UpstreamError) -> UpstreamError {
        let UpstreamError::Died { .. } = error else {
            return error;
        };
        let UpstreamError::Died {
            server,
            exit,
            stderr_last,
        } = self.death().await
        else {
            return error;
        };
        UpstreamError::Start {
            server,
            reason: format!("it {exit} before it had listed its tools"),
            stderr_last,
            hint: None,
        }
    }

    /// Stop the server and wait until it and all that it started are gone.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.service.cancellation_token().cancel();
        self.link.stop().await;
    }
}

/// What a server wants to know before it answers.
struct Wanted {
    requests: Map<String, Value>,
    state: Option<Value>,
}

impl Wanted {
    /// `None`: it is an answer.
    fn read(result: &RawValue) -> Option<Self> {
        // Answers may be long, and hardly any asks back.
        memchr::memmem::find(result.get().as_bytes(), b"\"input_required\"")?;
        let Ok(Value::Object(mut result)) = serde_json::from_str(result.get()) else {
            return None;
        };
        if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
            return None;
        }
        let requests = match result.remove("inputRequests") {
            Some(Value::Object(requests)) => requests,
            _ => Map::new(),
        };
        Some(Self {
            requests,
            state: result.remove("requestState").filter(Value::is_string),
        })
    }
}

/// Marks the connection as closed when the transport says that it is, before rmcp's service has
/// wound up; and takes out what is logged, so that it is heard in order and before the answer.
struct Watched<T> {
    transport: T,
    closed: CancellationToken,
    log: Arc<Log>,
}

impl<T: rmcp::transport::Transport<RoleClient>> rmcp::transport::Transport<RoleClient>
    for Watched<T>
{
    type Error = T::Error;

    fn send(
        &mut self,
        message: rmcp::model::ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<rmcp::model::ServerJsonRpcMessage> {
        loop {
            let message = self.transport.receive().await;
            match &message {
                None => self.closed.cancel(),
                Some(said) if self.log.take(said) => continue,
                Some(_) => {}
            }
            return message;
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.closed.cancel();
        self.transport.close().await
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Tells the server to stop working on a request that nobody waits for any more.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let peer = self.peer.clone();
        let reason = "nobody waits for the answer any more".to_owned();
        let params = CancelledNotificationParam::new(Some(id), Some(reason));
        let notification = CancelledNotification::new(params);
        // Bounded by the connection: it ends when the message is written or the connection closes.
        runtime.spawn(async move {
            let _ = peer
                .send_notification(ClientNotification::CancelledNotification(notification))
                .await;
        });
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Since 2026-07-28 a request says whether it wants to hear what is logged of it.
fn log_level(has_initialize: bool) -> Option<RequestMetaObject> {
    let level = (
        "io.modelcontextprotocol/logLevel".to_owned(),
        log::ASKED_FOR.into(),
    );
    (!has_initialize).then(|| RequestMetaObject::from(JsonObject::from_iter([level])))
}

/// Before, a server was told once. One that does not know how logs as it pleases.
async fn ask_for_log(peer: Peer<RoleClient>) {
    let level = json!({ "level": log::ASKED_FOR });
    let request = CustomRequest::new("logging/setLevel", Some(level));
    let request = ClientRequest::CustomRequest(request);
    let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
    let answered = match sent.await {
        Ok(handle) => handle.rx.await,
        Err(error) => Ok(Err(error)),
    };
    if let Ok(Err(error)) = answered {
        tracing::debug!(%error, "a server was not told what to log");
    }
}

/// Lists the tools again each time the server says that they changed.
async fn follow(connection: Weak<Connection>, tools_changed: Arc<Notify>) {
    loop {
        tools_changed.notified().await;
        let Some(connection) = connection.upgrade() else {
            return;
        };
        // A change that comes while this list is under way asks for the next one.
        if let Err(error) = connection.list_again().await {
            tracing::debug!(%error, "changed tools cannot be listed");
        }
    }
}

/// Since 2026-07-28 a server tells of changes only on a request that stays open for it. Over HTTP
/// that request may break, and is made again; on a pipe it ends with the server.
async fn subscribe(peer: Peer<RoleClient>, again: bool) {
    let mut wait = LISTEN_AGAIN;
    loop {
        let params = json!({ "notifications": { "toolsListChanged": true } });
        let request = CustomRequest::new("subscriptions/listen", Some(params));
        let request = ClientRequest::CustomRequest(request);
        let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let begun = Instant::now();
        let ended = match sent.await {
            Ok(handle) => handle.rx.await,
            Err(error) => Ok(Err(error)),
        };
        if let Ok(Err(error)) = &ended {
            tracing::debug!(%error, "there is no subscription to changes of tools");
        }
        let refused = matches!(&ended, Ok(Err(ServiceError::McpError(error)))
            if error.code == ErrorCode::METHOD_NOT_FOUND);
        if !again || refused || peer.is_transport_closed() {
            return;
        }
        wait = if begun.elapsed() > LISTEN_AGAIN_MAX {
            LISTEN_AGAIN
        } else {
            (wait * 2).min(LISTEN_AGAIN_MAX)
        };
        sleep(wait).await;
    }
}
