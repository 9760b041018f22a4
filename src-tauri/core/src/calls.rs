//! What the host does for the code of one run: the only door out of its sandbox. Everything asked
//! for here is checked against what this run may do, whatever the guest's own code checked before.

mod install;
mod integers;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use runbridge_sandbox::{CallError, CallHandler, Mounts};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::activity::Call;
use crate::api::{ApiError, ErrorCode, LogLine};
use crate::bridge::{Bridge, Connection};
use crate::catalog::{Offer, ServerName, ServerStatus};
use crate::docs::{self, Detail};
use crate::events::Hint;
use crate::live_runs::LiveRun;
use crate::memory::{MemoryError, UpdateResult, Writer};
use crate::output::{OutputError, run_of_name};
use crate::questions::{Ask, Asked as Wanted, Thinking};
use crate::redact::Redactor;
use crate::run::{self, Audience, Report};
use crate::sandboxes::SandboxFacts;
use crate::saved_tools::{NewTool, SavedToolsError};
use crate::timestamp::now_ms;
use crate::tokens;
use crate::upstream::{Caller, LogReader, Person, Progress, UpstreamError, UpstreamState};

/// Results of a search that one call may ask for.
const SEARCH_RESULTS_MAX: usize = 100;

/// Who asks, as memory items name it.
pub(crate) struct Asker {
    /// The client.
    pub(crate) client: String,
    /// The named session, if it is not the client's own.
    pub(crate) session: Option<String>,
}

/// Serves the calls of one run.
pub(crate) struct RunCalls {
    bridge: Arc<Bridge>,
    connection: Arc<Connection>,
    run_id: String,
    live: Arc<LiveRun>,
    asker: Asker,
    /// Names of the servers this run may call; `None`: all enabled ones, also those found later.
    servers: Option<Vec<String>>,
    tool_calls: AtomicU64,
    tool_calls_max: u64,
    at_once: Semaphore,
    called: Mutex<BTreeSet<String>>,
    sandbox: Option<Arc<SandboxFacts>>,
    inside: Option<Inside>,
    /// Hears how far tool calls have got.
    report: Option<Report>,
    /// Puts questions of servers to the person behind the run.
    ask: Option<Ask>,
    /// The time that they take over them.
    thinking: Arc<Thinking>,
    notes: Mutex<BTreeSet<String>>,
    /// What the results of its calls would have cost a model.
    result_tokens: AtomicU64,
}

/// The interpreter that makes the calls.
#[derive(Clone)]
pub(crate) struct Inside {
    /// Its Python's version.
    pub(crate) python: String,
    /// How it gets packages.
    pub(crate) mounts: Mounts,
}

/// Of the words of a question of ours, as of a server's.
const QUESTION_CHARS_MAX: usize = 4_000;

/// Remarks on calls that one reply carries; more would drown what the run has to say.
const NOTES_MAX: usize = 10;

#[derive(Deserialize)]
struct ToolCall {
    server: String,
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// What resources and prompts are asked with; each request takes what it needs.
#[derive(Deserialize)]
struct Asked {
    server: String,
    #[serde(default)]
    uri: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Deserialize)]
struct ToolName {
    server: String,
    tool: String,
}

#[derive(Deserialize)]
struct Named {
    #[serde(alias = "server")]
    name: String,
}

#[derive(Deserialize)]
struct Docs {
    server: String,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    detail: Option<String>,
}

#[derive(Deserialize)]
struct Search {
    query: String,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(default)]
    detail: Option<String>,
}

#[derive(Deserialize)]
struct MemorySave {
    key: String,
    value: Box<RawValue>,
    #[serde(default)]
    metadata: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct MemoryUpdate {
    key: String,
    value: Box<RawValue>,
    version: Option<u64>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

#[derive(Serialize)]
struct ToolResult<'a> {
    result: &'a RawValue,
    unwrap: bool,
}

#[derive(Deserialize)]
struct RunName {
    run_id: String,
}

#[derive(Deserialize)]
struct OutputRange {
    run_id: String,
    #[serde(default)]
    start: u64,
    end: Option<u64>,
}

impl CallHandler for RunCalls {
    fn call(
        self: Arc<Self>,
        method: String,
        params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, CallError>> {
        Box::pin(async move { self.answer(&method, &params).await })
    }

    fn stood_still(&self) -> Duration {
        self.thinking.so_far()
    }
}

impl RunCalls {
    #[allow(
        clippy::too_many_arguments,
        reason = "each says something else of the run"
    )]
    pub(crate) fn new(
        bridge: Arc<Bridge>,
        connection: Arc<Connection>,
        run_id: String,
        live: Arc<LiveRun>,
        asker: Asker,
        servers: Option<Vec<String>>,
        sandbox: Option<Arc<SandboxFacts>>,
        inside: Option<Inside>,
        audience: Audience,
    ) -> Self {
        let settings = bridge.settings();
        let thinking = Arc::<Thinking>::default();
        Self {
            bridge,
            connection,
            run_id,
            live,
            asker,
            servers,
            tool_calls: AtomicU64::new(0),
            tool_calls_max: settings.limits.calls_max,
            at_once: Semaphore::new(settings.limits.calls_at_once_max as usize),
            called: Mutex::default(),
            sandbox,
            inside,
            report: audience.report,
            ask: audience.ask.map(|ask| thinking.over(ask)),
            thinking,
            notes: Mutex::default(),
            result_tokens: AtomicU64::new(0),
        }
    }

    /// Tool calls made so far.
    pub(crate) fn tool_calls(&self) -> u64 {
        self.tool_calls
            .load(Ordering::Relaxed)
            .min(self.tool_calls_max)
    }

    /// Names of the servers called so far.
    pub(crate) fn servers_called(&self) -> Vec<String> {
        self.called
            .lock()
            .map(|called| called.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Tokens of all results so far.
    pub(crate) fn result_tokens(&self) -> u64 {
        self.result_tokens.load(Ordering::Relaxed)
    }

    /// Remarks for the reply.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes
            .lock()
            .map(|notes| notes.iter().cloned().collect())
            .unwrap_or_default()
    }

    async fn answer(
        self: &Arc<Self>,
        method: &str,
        params: &RawValue,
    ) -> Result<Box<RawValue>, CallError> {
        match method {
            "tool.call" => self.call_tool(read_exactly(params)?).await,
            "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "prompts/list"
            | "prompts/get" => self.ask_server(method, read_exactly(params)?).await,
            "tool.resolve" => self.resolve_tool(read(params)?).await,
            "servers" => raw(&self.servers()),
            "server" => self.server(&read(params)?),
            "tools" => self.tools(read(params)?).await,
            "docs" => self.docs(read(params)?).await,
            "search" => self.search(read(params)?).await,
            "memory.save" | "memory.load" | "memory.update" | "memory.delete" | "memory.list"
            | "memory.info" | "saved_tools.save" | "saved_tools.list" | "saved_tools.delete"
            | "output" => self.on_disk(method, params).await,
            "packages.install" => self.install(read(params)?).await,
            "capabilities" => raw(&self.bridge.manual()),
            "sandbox" => raw(&self.sandbox),
            "result" => self.result(&read(params)?),
            _ => Err(CallError::new(
                "value",
                format!("the host knows no `{method}`"),
            )),
        }
    }

    /// One more call, if this run may still make one.
    fn count_call(&self) -> Result<(), CallError> {
        if self.tool_calls.fetch_add(1, Ordering::Relaxed) < self.tool_calls_max {
            return Ok(());
        }
        let max = self.tool_calls_max;
        let mut error = CallError::new(
            "mcp",
            format!("this run has made its {max} tool calls, the most that one run may make"),
        );
        error.code = Some(Box::new("calls_exhausted".into()));
        Err(error)
    }

    /// The server, if this run may still call it.
    fn begin_call(&self, server: &str) -> Result<ServerName, CallError> {
        let server = self.allowed(server)?;
        self.count_call()?;
        if let Ok(mut called) = self.called.lock() {
            called.insert(server.name.clone());
        }
        Ok(server)
    }

    /// Resources and prompts of a server: what is asked with the protocol's own name for it.
    async fn ask_server(&self, method: &str, asked: Asked) -> Result<Box<RawValue>, CallError> {
        let server = self.begin_call(&asked.server)?;
        // Closed never: the semaphore lives as long as this handler.
        let _turn = self.at_once.acquire().await;
        let redactor = self.bridge.redactor();
        let told = json!({ "uri": asked.uri, "name": asked.name, "arguments": asked.arguments });
        let open = self.open_call(&server.name, method, &redactor.text(&told.to_string()));
        let catalog = self.bridge.catalog();
        let offer = match method {
            "resources/list" => Some(Offer::Resources),
            "resources/templates/list" => Some(Offer::ResourceTemplates),
            "prompts/list" => Some(Offer::Prompts),
            _ => None,
        };
        let answer = match (offer, method) {
            (Some(offer), _) => {
                let items = catalog.offers(&server.name, offer).await;
                items.map(|items| to_raw_value(&items).unwrap_or_default())
            }
            (None, "resources/read") => catalog.read_resource(&server.name, &asked.uri).await,
            (None, _) => {
                catalog
                    .prompt(&server.name, &asked.name, asked.arguments)
                    .await
            }
        };
        match &answer {
            Ok(answer) => open.answered(method, answer.get(), None),
            Err(error) => open.failed(error, &redactor),
        }
        let answer = answer.map_err(|error| self.failed(&error, &server.name, None))?;
        raw(&redactor.json_text(&answer))
    }

    async fn call_tool(&self, call: ToolCall) -> Result<Box<RawValue>, CallError> {
        let server = self.begin_call(&call.server)?;
        // Closed never: the semaphore lives as long as this handler.
        let _turn = self.at_once.acquire().await;
        let redactor = self.bridge.redactor();
        let arguments = Value::Object(call.arguments);
        let told = redactor.text(&arguments.to_string()).into_owned();
        let Value::Object(arguments) = arguments else {
            return Err(value_error("arguments must be a mapping".to_owned()));
        };
        let progress = self.report.clone().map(|report| -> Progress {
            let called = format!("{}.{}", server.name, call.tool);
            let redactor = Arc::clone(&redactor);
            Arc::new(move |words: &str| report(&format!("{called}: {}", redactor.text(words))))
        });
        let person = self.ask.clone().map(|ask| Person {
            run: self.run_id.clone(),
            ask: redacted(ask, Arc::clone(&redactor)),
        });
        let (live, clean) = (Arc::clone(&self.live), Arc::clone(&redactor));
        let log = Some(LogReader {
            run: self.run_id.clone(),
            hear: Arc::new(move |line| live.logged(redacted_line(line.clone(), &clean))),
        });
        let caller = Caller {
            progress,
            person,
            log,
        };
        let open = self.open_call(&server.name, &call.tool, &told);
        let called = self
            .bridge
            .catalog()
            .call_for(&server.name, &call.tool, arguments, None, caller)
            .await;
        match &called {
            Ok(answer) => {
                let failure = answer.failure().map(|failure| {
                    let message = redactor.text(&failure.message()).into_owned();
                    first_line(&message)
                });
                open.answered(&answer.tool, answer.result.get(), failure);
            }
            Err(error) => open.failed(error, &redactor),
        }
        let answer = called.map_err(|error| self.failed(&error, &server.name, Some(&call.tool)))?;
        let result = redactor.json_text(&answer.result);
        raw(&ToolResult {
            result: &result,
            unwrap: answer.unwrap,
        })
    }

    /// A call begins, for the record and for whoever looks on.
    fn open_call(&self, server: &str, tool: &str, arguments: &str) -> OpenCall<'_> {
        OpenCall {
            calls: self,
            number: self.live.call_began(server, tool, arguments),
            began: Instant::now(),
            record: Some(Call {
                server: server.to_owned(),
                tool: tool.to_owned(),
                arguments: arguments.to_owned(),
                started_at: now_ms(),
                ..Call::default()
            }),
        }
    }

    async fn resolve_tool(&self, asked: ToolName) -> Result<Box<RawValue>, CallError> {
        let server = self.allowed(&asked.server)?;
        let tool = self.bridge.catalog().tool(&server.name, &asked.tool).await;
        let tool = tool.map_err(|error| self.failed(&error, &server.name, Some(&asked.tool)))?;
        raw(&json!({
            "server": server.name,
            "server_alias": server.alias,
            "tool": tool.tool().name,
            "tool_alias": tool.alias(),
        }))
    }

    fn servers(&self) -> Vec<Value> {
        let listed = self.bridge.catalog().servers();
        listed
            .into_iter()
            .filter(|server| server.off.is_none())
            .map(|server| {
                json!({
                    "name": server.name,
                    "alias": server.alias,
                    "description": server.description,
                    "state": state(&server),
                    "tools": server.tools,
                    "callable": self.may_call(&server.name) && server.needs.is_empty(),
                })
            })
            .collect()
    }

    fn server(&self, asked: &Named) -> Result<Box<RawValue>, CallError> {
        let catalog = self.bridge.catalog();
        let found = self.known(&asked.name)?;
        let status = catalog
            .servers()
            .into_iter()
            .find(|server| server.name == found.name);
        let tools = catalog.tools_known(&found.name).ok().flatten();
        let tools: Option<Vec<_>> =
            tools.map(|tools| tools.iter().map(|tool| tool.tool().name.clone()).collect());
        raw(&json!({
            "name": found.name,
            "alias": found.alias,
            "description": status.as_ref().and_then(|status| status.description.clone()),
            "cwd": status.as_ref().and_then(|status| status.cwd.clone()),
            "state": status.as_ref().map(state),
            "tools": tools,
        }))
    }

    async fn tools(&self, asked: Named) -> Result<Box<RawValue>, CallError> {
        self.docs(Docs {
            server: asked.name,
            tool: None,
            detail: Some("full".to_owned()),
        })
        .await
    }

    async fn docs(&self, asked: Docs) -> Result<Box<RawValue>, CallError> {
        let detail = Detail::read(asked.detail.as_deref()).map_err(value_error)?;
        let server = self.known(&asked.server)?;
        let catalog = self.bridge.catalog();
        let tools = match &asked.tool {
            Some(tool) => catalog
                .tool(&server.name, tool)
                .await
                .map(|tool| vec![tool]),
            None => catalog.tools(&server.name).await,
        };
        let tools =
            tools.map_err(|error| self.failed(&error, &server.name, asked.tool.as_deref()))?;
        let docs: Vec<Value> = tools
            .iter()
            .map(|tool| docs::tool(&server, tool, detail))
            .collect();
        raw(&docs)
    }

    async fn search(&self, asked: Search) -> Result<Box<RawValue>, CallError> {
        let detail = Detail::read(asked.detail.as_deref()).map_err(value_error)?;
        let limit = match asked.limit {
            None => 5,
            Some(limit @ 1..) => usize::try_from(limit).unwrap_or(usize::MAX),
            Some(_) => return Err(value_error("limit must be at least 1".to_owned())),
        };
        let limit = limit.min(SEARCH_RESULTS_MAX);
        let only = self.servers.as_deref();
        let found = self
            .bridge
            .catalog()
            .search(&asked.query, limit, only)
            .await;
        for (server, reason) in found.failures {
            self.note(format!("the search left out server `{server}`: {reason}"));
        }
        let docs: Vec<Value> = found
            .hits
            .iter()
            .map(|hit| docs::tool(&hit.server, &hit.tool, detail))
            .collect();
        raw(&docs)
    }

    /// Calls that read or write files, off the threads that serve other calls.
    async fn on_disk(
        self: &Arc<Self>,
        method: &str,
        params: &RawValue,
    ) -> Result<Box<RawValue>, CallError> {
        let (this, method, params) = (Arc::clone(self), method.to_owned(), params.to_owned());
        tokio::task::spawn_blocking(move || this.stored(&method, &params))
            .await
            .map_err(|error| CallError::new("runtime", format!("the host broke off: {error}")))?
    }

    fn stored(&self, method: &str, params: &RawValue) -> Result<Box<RawValue>, CallError> {
        match method {
            "output" => self.output(&read(params)?),
            "saved_tools.save" => {
                let new: NewTool = read(params)?;
                let tools = self
                    .bridge
                    .saved_tools()
                    .map_err(|error| saved_tools_error(&error))?;
                let saved = tools
                    .save_by(new, Some(&self.asker.client))
                    .map_err(|error| saved_tools_error(&error))?;
                self.bridge.events().hint(Hint::SavedTools);
                raw(&saved)
            }
            "saved_tools.list" => {
                let tools = self
                    .bridge
                    .saved_tools()
                    .map_err(|error| saved_tools_error(&error))?;
                let list = tools
                    .load_all()
                    .map_err(|error| saved_tools_error(&error))?;
                for broken in &list.broken {
                    let path = broken.path.display();
                    self.note(format!(
                        "saved tool {path} cannot be read: {}",
                        broken.reason
                    ));
                }
                raw(&list.tools)
            }
            "saved_tools.delete" => {
                let asked: Named = read(params)?;
                let tools = self
                    .bridge
                    .saved_tools()
                    .map_err(|error| saved_tools_error(&error))?;
                let deleted = tools
                    .delete(&asked.name)
                    .map_err(|error| saved_tools_error(&error))?;
                self.bridge.events().hint(Hint::SavedTools);
                raw(&deleted)
            }
            _ => self.remembered(method, params),
        }
    }

    fn remembered(&self, method: &str, params: &RawValue) -> Result<Box<RawValue>, CallError> {
        let memory = self.bridge.memory().map_err(|error| memory_error(&error))?;
        match method {
            "memory.save" => {
                let asked: MemorySave = read(params)?;
                let metadata = asked.metadata.as_deref();
                let saved = memory.save(&asked.key, &asked.value, metadata, self.writer());
                let saved = saved.map_err(|error| memory_error(&error))?;
                self.memory_changed(asked.key);
                raw(&saved)
            }
            "memory.load" => {
                let asked: Key = read(params)?;
                match memory
                    .load(&asked.key)
                    .map_err(|error| memory_error(&error))?
                {
                    Some(record) => {
                        self.bridge.activity().memory_used(&asked.key, now_ms());
                        raw(&json!({
                        "found": true,
                        "value": record.value,
                        "version": record.info.version,
                        }))
                    }
                    None => raw(&json!({"found": false, "value": null, "version": null})),
                }
            }
            "memory.update" => {
                let asked: MemoryUpdate = read(params)?;
                let updated = memory.update(&asked.key, &asked.value, asked.version, self.writer());
                match updated.map_err(|error| memory_error(&error))? {
                    UpdateResult::Saved(info) => {
                        self.memory_changed(asked.key);
                        raw(&json!({"updated": true, "info": info}))
                    }
                    UpdateResult::Conflict(version) => {
                        raw(&json!({"updated": false, "version": version}))
                    }
                }
            }
            "memory.delete" => {
                let asked: Key = read(params)?;
                let deleted = memory
                    .delete(&asked.key)
                    .map_err(|error| memory_error(&error))?;
                if deleted {
                    self.memory_changed(asked.key);
                }
                raw(&deleted)
            }
            "memory.info" => {
                let asked: Key = read(params)?;
                raw(&memory
                    .info(&asked.key)
                    .map_err(|error| memory_error(&error))?)
            }
            _ => {
                let listing = memory.list().map_err(|error| memory_error(&error))?;
                for damaged in &listing.damaged {
                    let path = damaged.path.display();
                    self.note(format!("memory file {path} is damaged: {}", damaged.reason));
                }
                raw(&listing.items)
            }
        }
    }

    fn writer(&self) -> Writer<'_> {
        Writer {
            client: &self.asker.client,
            session: self.asker.session.as_deref(),
        }
    }

    fn memory_changed(&self, key: String) {
        self.bridge.events().hint(Hint::Memory { key });
    }

    fn output(&self, asked: &OutputRange) -> Result<Box<RawValue>, CallError> {
        let run = run_of_name(&asked.run_id)
            .ok_or_else(|| value_error(format!("`{}` is not the id of a run", asked.run_id)))?;
        let end = asked.end.unwrap_or(u64::MAX);
        let read = self.connection.outputs().read(run, asked.start, end);
        let read = read.map_err(|error| match error {
            OutputError::Unknown { .. } => CallError::new("key", error.to_string()),
            OutputError::TooMuch { .. } => CallError::new("value", error.to_string()),
            OutputError::NotKept { .. } | OutputError::Io(_) => {
                CallError::new("runtime", error.to_string())
            }
        })?;
        raw(&read.text)
    }

    /// The fields of the reply of a run that was answered before it ended, as they are by now.
    fn result(&self, asked: &RunName) -> Result<Box<RawValue>, CallError> {
        let run = self
            .connection
            .late_runs()
            .find(&asked.run_id)
            .map_err(|unknown| CallError::new("key", unknown.to_string()))?;
        match run.reply() {
            Some(reply) => raw(&reply.structured),
            None => raw(&run::so_far(&self.bridge, &self.connection, &run).structured),
        }
    }

    /// A server of the catalog, whether or not this run may call it.
    fn known(&self, name: &str) -> Result<ServerName, CallError> {
        self.bridge
            .catalog()
            .find(name)
            .map_err(|error| self.failed(&error, name, None))
    }

    /// A server that this run may call.
    fn allowed(&self, name: &str) -> Result<ServerName, CallError> {
        let server = self.known(name)?;
        if self.may_call(&server.name) {
            return Ok(server);
        }
        let mut error = CallError::new(
            "mcp",
            format!(
                "this run may not call server `{}`: its `servers` argument names only {}",
                server.name,
                self.servers.as_deref().unwrap_or_default().join(", "),
            ),
        );
        error.server = Some(server.name);
        error.code = Some(Box::new("server_denied".into()));
        Err(error)
    }

    fn may_call(&self, server: &String) -> bool {
        self.servers
            .as_ref()
            .is_none_or(|servers| servers.contains(server))
    }

    fn failed(&self, error: &UpstreamError, server: &str, tool: Option<&str>) -> CallError {
        let redactor = self.bridge.redactor();
        let message = redactor.text(&error.message()).into_owned();
        if matches!(error, UpstreamError::Arguments { .. }) {
            return CallError::new("type", message);
        }
        let mut data = error.data().cloned();
        if let Some(data) = &mut data {
            redactor.json(data);
        }
        CallError {
            kind: "mcp",
            message,
            server: Some(server.to_owned()),
            tool: tool.map(str::to_owned),
            code: Some(Box::new(error.code())),
            data: data.map(Box::new),
        }
    }

    fn note(&self, note: String) {
        if let Ok(mut notes) = self.notes.lock()
            && notes.len() < NOTES_MAX
        {
            notes.insert(note);
        }
    }
}

/// A call under way. Dropped before its end, it was cancelled.
struct OpenCall<'a> {
    calls: &'a RunCalls,
    number: u64,
    began: Instant,
    record: Option<Call>,
}

impl OpenCall<'_> {
    /// The server answered; `failure` is what a tool said that failed.
    fn answered(mut self, tool: &str, result: &str, failure: Option<String>) {
        let tokens = tokens::estimate(result);
        self.calls
            .result_tokens
            .fetch_add(tokens, Ordering::Relaxed);
        if let Some(record) = &mut self.record {
            tool.clone_into(&mut record.tool);
        }
        let failure = failure.map(|message| ("tool_failed".to_owned(), message));
        self.end(Some(result.len() as u64), failure);
    }

    /// Not a server's.
    fn refused(mut self, code: &str, message: &str) {
        self.end(None, Some((code.to_owned(), first_line(message))));
    }

    fn failed(mut self, error: &UpstreamError, redactor: &Redactor) {
        let message = redactor.text(&error.message()).into_owned();
        self.end(None, Some((error_code(error), first_line(&message))));
    }

    fn end(&mut self, result_bytes: Option<u64>, failure: Option<(String, String)>) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        record.number = self.number;
        record.duration_ms = self.began.elapsed().as_millis() as u64;
        record.result_bytes = result_bytes.unwrap_or_default();
        let error = failure.map(|(code, message)| {
            record.error_code = Some(code.clone());
            record.error = Some(message.clone());
            ApiError::new(ErrorCode::of_call(&code), message)
        });
        let live = &self.calls.live;
        live.call_ended(self.number, record.duration_ms, result_bytes, error);
        let activity = self.calls.bridge.activity();
        activity.call_ended(&self.calls.run_id, record);
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let why = "the run ended or no longer waited for it".to_owned();
        self.end(None, Some(("run_cancelled".to_owned(), why)));
    }
}

/// Enough of an error for a list.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

/// A server's state in one word.
pub(crate) fn state(server: &ServerStatus) -> &'static str {
    if server.off.is_some() {
        return "off";
    }
    if !server.needs.is_empty() {
        return "needs_value";
    }
    match &server.state {
        UpstreamState::Failed { error, .. } if error.wants_sign_in() => "needs_sign_in",
        UpstreamState::Stopped => "stopped",
        UpstreamState::Starting => "starting",
        UpstreamState::Ready => "ready",
        UpstreamState::Failed { .. } => "failed",
    }
}

fn error_code(error: &UpstreamError) -> String {
    match error.code() {
        Value::String(code) => code,
        code => code.to_string(),
    }
}

fn read<T: DeserializeOwned>(params: &RawValue) -> Result<T, CallError> {
    serde_json::from_str(params.get())
        .map_err(|error| value_error(format!("malformed arguments: {error}")))
}

/// As [`read`], for what goes on to somebody else, who must get the numbers that were meant.
fn read_exactly<T: DeserializeOwned>(params: &RawValue) -> Result<T, CallError> {
    match integers::too_large(params.get()) {
        None => read(params),
        Some(number) => Err(value_error(format!(
            "the arguments hold the integer {}, which does not fit into 64 bits and would be rounded; pass it as text or as a float",
            shorten(number)
        ))),
    }
}

/// An integer may have thousands of digits.
fn shorten(number: &str) -> String {
    const DIGITS_SHOWN: usize = 40;
    match number.get(..DIGITS_SHOWN) {
        Some(start) if number.len() > DIGITS_SHOWN => {
            format!("{start}… ({} characters)", number.len())
        }
        _ => number.to_owned(),
    }
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    to_raw_value(value)
        .map_err(|error| CallError::new("runtime", format!("the answer is no JSON: {error}")))
}

/// What a server logs is kept, for a screen.
pub(crate) fn redacted_line(mut line: LogLine, redactor: &Redactor) -> LogLine {
    if let Cow::Owned(clean) = redactor.text(&line.text) {
        line.text = clean;
    }
    if let Some(logger) = &mut line.logger
        && let Cow::Owned(clean) = redactor.text(logger)
    {
        *logger = clean;
    }
    line
}

/// What a server asks leaves for a screen.
fn redacted(ask: Ask, redactor: Arc<Redactor>) -> Ask {
    Arc::new(move |mut question| {
        question.message = redactor.text(&question.message).into_owned();
        if let Wanted::Form(object) | Wanted::Model(object) = &mut question.asked {
            let mut value = Value::Object(std::mem::take(object));
            redactor.json(&mut value);
            if let Value::Object(clean) = value {
                *object = clean;
            }
        }
        ask(question)
    })
}

fn value_error(message: String) -> CallError {
    CallError::new("value", message)
}

fn memory_error(error: &MemoryError) -> CallError {
    let kind = match error {
        MemoryError::Key { .. }
        | MemoryError::ValueTooLarge { .. }
        | MemoryError::MetadataTooLarge { .. } => "value",
        _ => "runtime",
    };
    CallError::new(kind, error.to_string())
}

fn saved_tools_error(error: &SavedToolsError) -> CallError {
    let kind = match error {
        SavedToolsError::Name { .. } | SavedToolsError::TooLarge { .. } => "value",
        _ => "runtime",
    };
    CallError::new(kind, error.to_string())
}
