//! Our MCP face: the one tool and the capability resource, for one client. Knows rmcp; everything
//! it says comes from the bridge.

mod asking;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam,
    ContentBlock, ErrorData, Implementation, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, RequestId, Resource, ResourceContents,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer, SubscriptionContext};
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::asking::Answers;
use crate::arrivals::{Arrival, InOrder};
use crate::bridge::{Bridge, Connection};
use crate::catalog::CatalogEvent;
use crate::late_runs::UnderWay;
use crate::output::run_name;
use crate::questions::{Answer, Ask, Waiting};
use crate::reply::Reply;
use crate::request::PythonRequest;
use crate::run::Audience;
use crate::{manual, request, run, tool};

/// The longest line a client may send: the code of a run, escaped, with room to spare.
pub const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Lines of JSON-RPC over two streams, as a server of ours hears and answers a client.
pub fn transport<R, W>(read: R, write: W) -> InOrder<AsyncRwTransport<RoleServer, R, W>>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let lines = AsyncRwTransport::new_server(read, write);
    InOrder::new(lines.with_max_line_length(LINE_BYTES_MAX))
}

/// At most so often; a server may send progress as fast as it can.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The server as one client sees it.
#[derive(Clone)]
pub struct McpServer {
    bridge: Arc<Bridge>,
    connection: Arc<Connection>,
    calls: Calls,
}

impl McpServer {
    /// A server for one client. The connection is closed by whoever opened it.
    pub fn new(bridge: Arc<Bridge>, connection: Arc<Connection>) -> Self {
        Self {
            bridge,
            connection,
            calls: Calls::default(),
        }
    }

    fn tool(&self) -> Tool {
        let limits = &self.bridge.settings().limits;
        let servers = self.bridge.catalog().servers();
        let definition = tool::definition(
            servers
                .iter()
                .filter(|server| server.is_callable())
                .map(|server| server.name.as_str()),
            limits.run_ms_default / 1000,
            limits.run_ms_max / 1000,
        );
        let schema = match definition.input_schema {
            Value::Object(schema) => schema,
            _ => serde_json::Map::new(),
        };
        Tool::new(tool::NAME, definition.description, schema)
    }

    async fn run_python(
        &self,
        arguments: serde_json::Map<String, Value>,
        answers: Option<Answers>,
        mut context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let arrival = context.extensions.remove::<Arrival>();
        let limits = self.bridge.settings().limits.clone();
        let request = match request::parse(
            arguments,
            limits.run_ms_default / 1000,
            limits.run_ms_max / 1000,
        ) {
            Ok(request) => request,
            Err(problem) => return result(run::refused(&self.bridge, &problem)).into(),
        };
        if let Some(answers) = answers {
            return match self.connection.late_runs().find(&answers.run) {
                Ok(run) => self.go_on(&run, answers, &context).await,
                Err(unknown) => result(run::refused(&self.bridge, &unknown.to_string())).into(),
            };
        }
        if let Some(name) = request.collects() {
            return match self.connection.late_runs().find(name) {
                // Who gives up waiting has not asked for the run to end.
                Ok(run) => tokio::select! {
                    reply = self.attend(&run, Instant::now(), &context) => reply,
                    () = context.ct.cancelled() => {
                        result(run::so_far(&self.bridge, &self.connection, &run)).into()
                    }
                },
                Err(unknown) => result(run::refused(&self.bridge, &unknown.to_string())).into(),
            };
        }
        let run = UnderWay::new(run::unguessable());
        let cancel = self.connection.cancel_token().child_token();
        let client = context.client_info().map(|info| info.name);
        let ask = asking::ask(
            &context,
            Waiting::ask(run.questions()),
            self.bridge.open_questions(),
            run_name(run.id()),
        );
        self.start(&run, client, request, ask, cancel.clone(), arrival);
        self.attend_or_cancel(&run, &cancel, &context).await
    }

    /// The client has answered what a run waits for, and asks for its result again.
    async fn go_on(
        &self,
        run: &Arc<UnderWay>,
        answers: Answers,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let shown = run.shown().take();
        if let Some(shown) = shown {
            let answer = Answer::read(&shown.question.asked, &answers.response);
            shown.answer(answer);
        } else {
            tracing::debug!("an answer came that no question waits for");
        }
        tokio::select! {
            reply = self.attend(run, Instant::now(), context) => reply,
            () = context.ct.cancelled() => {
                result(run::so_far(&self.bridge, &self.connection, run)).into()
            }
        }
    }

    async fn attend_or_cancel(
        &self,
        run: &Arc<UnderWay>,
        cancel: &CancellationToken,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let attended = self.attend(run, run.began(), context);
        tokio::pin!(attended);
        tokio::select! {
            reply = &mut attended => reply,
            () = context.ct.cancelled() => {
                cancel.cancel();
                attended.await
            }
        }
    }

    /// Begin the run. It ends by itself, when it is cancelled, or with the connection.
    fn start(
        &self,
        run: &Arc<UnderWay>,
        client: Option<String>,
        request: PythonRequest,
        ask: Ask,
        cancel: CancellationToken,
        arrival: Option<Arrival>,
    ) {
        let (bridge, connection) = (Arc::clone(&self.bridge), Arc::clone(&self.connection));
        let run = Arc::clone(run);
        self.bridge.runs().spawn(async move {
            let audience = Audience {
                report: Some(run.reporter()),
                ask: Some(ask),
            };
            let client = client.as_deref();
            let reply = run::run_as(
                run.id(),
                &bridge,
                &connection,
                client,
                request,
                cancel,
                audience,
                arrival,
            );
            run.end(reply.await);
        });
    }

    /// Wait for a run, with progress, for as long as the client waits for a call that was made at
    /// `asked_at`; then answer with what there is, and keep the run to be collected.
    async fn attend(
        &self,
        run: &Arc<UnderWay>,
        asked_at: Instant,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| ProgressSender::start(token, context.peer.clone(), run.doing()));
        let client = context.client_info().map(|info| info.name);
        let patience = client.and_then(|client| self.bridge.patience().of(&client));
        let answer_at = patience.map(|patience| asked_at + patience);
        loop {
            let question = tokio::select! {
                reply = run.ended() => return result(Reply::clone(&reply)).into(),
                () = until(answer_at) => {
                    drop(progress);
                    self.connection.late_runs().keep(run);
                    return result(run::so_far(&self.bridge, &self.connection, run)).into();
                }
                question = run.questions().next() => question,
            };
            if asking::by_result(context) {
                // Without requests from the server, the answer comes with the call made again.
                match asking::as_result(&question.question, &run_name(run.id())) {
                    Ok(wanted) => {
                        *run.shown() = Some(question);
                        self.connection.late_runs().keep(run);
                        return wanted.into();
                    }
                    Err(why) => {
                        question.answer(Err(why));
                        continue;
                    }
                }
            }
            let peer = context.peer.clone();
            let open = asking::in_client(peer, &question.question);
            // The run may end while the person thinks, and the client may stop to wait.
            tokio::select! {
                answer = open => question.answer(answer),
                reply = run.ended() => return result(Reply::clone(&reply)).into(),
                () = until(answer_at) => {
                    run.questions().put_back(question);
                }
            }
        }
    }
}

/// Wait for a moment; without one, for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("runbridge", env!("CARGO_PKG_VERSION")))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut description = Description::of(self.clone());
        // It ends with the connection.
        tokio::spawn(async move {
            while description.changes().await {
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        if context.accepted().tools_list_changed != Some(true) {
            context.cancelled().await;
            return Ok(());
        }
        let mut description = Description::of(self.clone());
        loop {
            tokio::select! {
                changed = description.changes() => {
                    if !changed || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
            }
        }
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // The description names the servers, and a client may never ask again.
        self.bridge.discovered().await;
        Ok(ListToolsResult::with_all_items(vec![self.tool()]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != tool::NAME {
            return Err(ErrorData::invalid_params(
                format!(
                    "unknown tool `{}`; the one tool here is `{}`",
                    request.name,
                    tool::NAME
                ),
                None,
            ));
        }
        let answers = Answers::read(&request)?;
        let call = Call::begin(&self.calls, &context);
        let reply = self.run_python(request.arguments.unwrap_or_default(), answers, context);
        let reply = reply.await;
        drop(call);
        Ok(reply)
    }

    async fn on_cancelled(
        &self,
        cancelled: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        let Some(id) = cancelled.request_id else {
            return;
        };
        let Some(call) = self.calls.find(&id) else {
            return;
        };
        let client = call.client.or_else(|| {
            let client = context.peer.peer_info();
            client.map(|info| info.client_info.name.clone())
        });
        let patience = Arc::clone(self.bridge.patience());
        let after = call.ended.unwrap_or_else(Instant::now) - call.began;
        let reason = cancelled.reason.as_deref();
        // It counts for the very next call, whenever the file is written.
        if client.is_some_and(|client| patience.cancelled(&client, after, reason)) {
            tokio::task::spawn_blocking(move || patience.keep());
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let manual = Resource::new(manual::URI, "capabilities")
            .with_description("How to write Python for run_python: names, search, calls, limits")
            .with_mime_type(manual::MIME_TYPE);
        Ok(ListResourcesResult::with_all_items(vec![manual]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != manual::URI {
            return Err(ErrorData::resource_not_found(
                format!(
                    "no resource `{}`; the one here is `{}`",
                    request.uri,
                    manual::URI
                ),
                Some(json!({ "uri": request.uri })),
            ));
        }
        let contents = ResourceContents::TextResourceContents {
            uri: request.uri,
            mime_type: Some(manual::MIME_TYPE.to_owned()),
            text: self.bridge.manual(),
            meta: None,
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

fn result(reply: Reply) -> CallToolResult {
    let mut content = Vec::with_capacity(1 + reply.images.len());
    content.push(ContentBlock::text(reply.text));
    for image in reply.images {
        let data = base64::engine::general_purpose::STANDARD.encode(&image.data);
        content.push(ContentBlock::image(data, image.mime_type));
    }
    let mut result = if reply.is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.structured_content = Some(Value::Object(reply.structured));
    result
}

/// How the tool is described, which names the servers.
struct Description {
    server: McpServer,
    events: broadcast::Receiver<CatalogEvent>,
    told: Option<Cow<'static, str>>,
}

impl Description {
    fn of(server: McpServer) -> Self {
        Self {
            events: server.bridge.catalog().subscribe(),
            told: None,
            server,
        }
    }

    /// Wait until it is another one; false once the client has gone.
    async fn changes(&mut self) -> bool {
        if self.told.is_none() {
            // Before that a client gets no list either.
            self.server.bridge.discovered().await;
            self.told = self.server.tool().description;
        }
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                () = self.server.connection.cancel_token().cancelled() => return false,
            };
            if let Err(RecvError::Closed) = event {
                return false;
            }
            let now = self.server.tool().description;
            if now != self.told {
                self.told = now;
                return true;
            }
        }
    }
}

/// How long a call that has ended is still known: it may end before the news that it was cancelled is
/// heard here.
const ENDED_KEPT: Duration = Duration::from_secs(10);

/// Calls that have ended and are still known.
const ENDED_MAX: usize = 64;

/// The calls that have not been answered, or only just: what a client teaches by cancelling one.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<KnownCalls>>);

#[derive(Default)]
struct KnownCalls {
    calls: HashMap<RequestId, OpenCall>,
    /// When which of them ended, the oldest first.
    ended: VecDeque<(Instant, RequestId)>,
}

#[derive(Clone)]
struct OpenCall {
    began: Instant,
    client: Option<String>,
    ended: Option<Instant>,
}

impl Calls {
    fn find(&self, id: &RequestId) -> Option<OpenCall> {
        self.lock().calls.get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, KnownCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownCalls {
    fn end(&mut self, id: &RequestId, now: Instant) {
        if let Some(call) = self.calls.get_mut(id) {
            call.ended = Some(now);
            self.ended.push_back((now, id.clone()));
        }
        while let Some((at, _)) = self.ended.front() {
            if now - *at < ENDED_KEPT && self.ended.len() <= ENDED_MAX {
                return;
            }
            let Some((at, id)) = self.ended.pop_front() else {
                return;
            };
            // The same id may name a later call by now.
            if self
                .calls
                .get(&id)
                .is_some_and(|call| call.ended == Some(at))
            {
                self.calls.remove(&id);
            }
        }
    }
}

/// Keeps a call among [`Calls`].
struct Call {
    calls: Calls,
    id: RequestId,
}

impl Call {
    fn begin(calls: &Calls, context: &RequestContext<RoleServer>) -> Self {
        let open = OpenCall {
            began: Instant::now(),
            client: context.client_info().map(|info| info.name),
            ended: None,
        };
        calls.lock().calls.insert(context.id.clone(), open);
        Self {
            calls: calls.clone(),
            id: context.id.clone(),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.lock().end(&self.id, Instant::now());
    }
}

/// Sends what a run is doing as progress notifications of a request.
struct ProgressSender(tokio::task::JoinHandle<()>);

impl ProgressSender {
    fn start(
        token: ProgressToken,
        peer: Peer<RoleServer>,
        mut doing: watch::Receiver<String>,
    ) -> Self {
        Self(tokio::spawn(async move {
            let mut count = 0.0;
            while doing.changed().await.is_ok() {
                count += 1.0;
                let message = doing.borrow_and_update().clone();
                let param =
                    ProgressNotificationParam::new(token.clone(), count).with_message(message);
                if peer.notify_progress(param).await.is_err() {
                    return;
                }
                // What comes meanwhile is told by the latest of it.
                tokio::time::sleep(PROGRESS_EVERY).await;
            }
        }))
    }
}

impl Drop for ProgressSender {
    fn drop(&mut self) {
        // No progress may follow the reply.
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(calls: u32, now: Instant) -> KnownCalls {
        let mut known = KnownCalls::default();
        for number in 0..calls {
            let open = OpenCall {
                began: now,
                client: None,
                ended: None,
            };
            let id = RequestId::Number(number.into());
            known.calls.insert(id.clone(), open);
            known.end(&id, now);
        }
        known
    }

    #[test]
    fn a_call_that_ended_is_known_for_a_while_and_not_with_all_before_it() {
        let now = Instant::now();
        let mut known = known(1_000, now);
        assert_eq!(
            (known.calls.len(), known.ended.len()),
            (ENDED_MAX, ENDED_MAX)
        );
        assert!(known.calls.contains_key(&RequestId::Number(999)));
        known.end(&RequestId::Number(5_000), now + ENDED_KEPT);
        assert_eq!((known.calls.len(), known.ended.len()), (0, 0));
    }

    #[test]
    fn a_call_under_way_stays_known_though_an_ended_one_had_its_id() {
        let now = Instant::now();
        let mut known = known(1, now);
        let again = OpenCall {
            began: now,
            client: None,
            ended: None,
        };
        known.calls.insert(RequestId::Number(0), again);
        known.end(&RequestId::Number(5_000), now + ENDED_KEPT);
        assert!(known.calls.contains_key(&RequestId::Number(0)));
    }
}
