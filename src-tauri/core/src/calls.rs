//! What the host does for the code of one run: the only door out of its sandbox. Everything asked
//! for here is checked against what this run may do, whatever the guest's own code checked before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::future::BoxFuture;
use runbridge_sandbox::{CallError, CallHandler};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::activity::Call;
use crate::bridge::{Bridge, Connection};
use crate::catalog::{Offer, ServerName, ServerStatus};
use crate::docs::{self, Detail};
use crate::memory::{MemoryError, UpdateResult};
use crate::output::{OutputError, run_of_name};
use crate::run::Report;
use crate::sandboxes::SandboxFacts;
use crate::saved_tools::{NewTool, SavedToolsError};
use crate::timestamp::now_ms;
use crate::upstream::{Progress, UpstreamError, UpstreamState};

/// Results of a search that one call may ask for.
const SEARCH_RESULTS_MAX: usize = 100;

/// Serves the calls of one run.
pub(crate) struct RunCalls {
    bridge: Arc<Bridge>,
    connection: Arc<Connection>,
    run_id: String,
    /// Who asks, as memory items and the activity record name it.
    writer: String,
    /// Names of the servers this run may call; `None`: all enabled ones, also those found later.
    servers: Option<Vec<String>>,
    tool_calls: AtomicU64,
    tool_calls_max: u64,
    at_once: Semaphore,
    called: Mutex<BTreeSet<String>>,
    sandbox: Option<Arc<SandboxFacts>>,
    /// Hears how far tool calls have got.
    report: Option<Report>,
    notes: Mutex<BTreeSet<String>>,
}

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
}

impl RunCalls {
    pub(crate) fn new(
        bridge: Arc<Bridge>,
        connection: Arc<Connection>,
        run_id: String,
        writer: String,
        servers: Option<Vec<String>>,
        sandbox: Option<Arc<SandboxFacts>>,
        report: Option<Report>,
    ) -> Self {
        let settings = bridge.settings();
        Self {
            bridge,
            connection,
            run_id,
            writer,
            servers,
            tool_calls: AtomicU64::new(0),
            tool_calls_max: settings.limits.calls_max,
            at_once: Semaphore::new(settings.limits.calls_at_once_max as usize),
            called: Mutex::default(),
            sandbox,
            report,
            notes: Mutex::default(),
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
            "tool.call" => self.call_tool(read(params)?).await,
            "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "prompts/list"
            | "prompts/get" => self.ask_server(method, read(params)?).await,
            "tool.resolve" => self.resolve_tool(read(params)?).await,
            "servers" => raw(&self.servers()),
            "server" => self.server(&read(params)?),
            "tools" => self.tools(read(params)?).await,
            "docs" => self.docs(read(params)?).await,
            "search" => self.search(read(params)?).await,
            "memory.save" | "memory.load" | "memory.update" | "memory.delete" | "memory.list"
            | "memory.info" | "saved_tools.save" | "saved_tools.list" | "saved_tools.delete"
            | "output" => self.on_disk(method, params).await,
            "capabilities" => raw(&self.bridge.manual()),
            "sandbox" => raw(&self.sandbox),
            _ => Err(CallError::new(
                "value",
                format!("the host knows no `{method}`"),
            )),
        }
    }

    /// The server, if this run may still call it.
    fn begin_call(&self, server: &str) -> Result<ServerName, CallError> {
        let server = self.allowed(server)?;
        if self.tool_calls.fetch_add(1, Ordering::Relaxed) >= self.tool_calls_max {
            let max = self.tool_calls_max;
            let mut error = CallError::new(
                "mcp",
                format!("this run has made its {max} tool calls, the most that one run may make"),
            );
            error.code = Some(Box::new("calls_exhausted".into()));
            return Err(error);
        }
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
        let mut record = Call {
            server: server.name.clone(),
            tool: method.to_owned(),
            arguments: redactor.text(&told.to_string()).into_owned(),
            started_at: now_ms(),
            ..Call::default()
        };
        let began = Instant::now();
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
        record.duration_ms = began.elapsed().as_millis() as u64;
        match &answer {
            Ok(answer) => record.result_bytes = answer.get().len() as u64,
            Err(error) => record.error_code = Some(error_code(error)),
        }
        self.bridge.activity().call_ended(&self.run_id, record);
        let answer = answer.map_err(|error| self.failed(&error, &server.name, None))?;
        raw(&redactor.json_text(&answer))
    }

    async fn call_tool(&self, call: ToolCall) -> Result<Box<RawValue>, CallError> {
        let server = self.begin_call(&call.server)?;
        // Closed never: the semaphore lives as long as this handler.
        let _turn = self.at_once.acquire().await;
        let redactor = self.bridge.redactor();
        let arguments = Value::Object(call.arguments);
        let mut record = Call {
            server: server.name.clone(),
            tool: call.tool.clone(),
            arguments: redactor.text(&arguments.to_string()).into_owned(),
            started_at: now_ms(),
            ..Call::default()
        };
        let Value::Object(arguments) = arguments else {
            return Err(value_error("arguments must be a mapping".to_owned()));
        };
        let progress = self.report.clone().map(|report| -> Progress {
            let called = format!("{}.{}", server.name, call.tool);
            let redactor = Arc::clone(&redactor);
            Arc::new(move |words: &str| report(&format!("{called}: {}", redactor.text(words))))
        });
        let began = Instant::now();
        let called = self
            .bridge
            .catalog()
            .call_with_progress(&server.name, &call.tool, arguments, None, progress)
            .await;
        record.duration_ms = began.elapsed().as_millis() as u64;
        match &called {
            Ok(answer) => {
                record.tool.clone_from(&answer.tool);
                record.result_bytes = answer.result.get().len() as u64;
                record.error_code = answer.is_error.then(|| "tool_failed".to_owned());
            }
            Err(error) => {
                record.error_code = Some(error_code(error));
            }
        }
        self.bridge.activity().call_ended(&self.run_id, record);
        let answer = called.map_err(|error| self.failed(&error, &server.name, Some(&call.tool)))?;
        let result = redactor.json_text(&answer.result);
        raw(&ToolResult {
            result: &result,
            unwrap: answer.unwrap,
        })
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
                raw(&tools.save(new).map_err(|error| saved_tools_error(&error))?)
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
                raw(&tools
                    .delete(&asked.name)
                    .map_err(|error| saved_tools_error(&error))?)
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
                let saved = memory.save(&asked.key, &asked.value, metadata, &self.writer);
                raw(&saved.map_err(|error| memory_error(&error))?)
            }
            "memory.load" => {
                let asked: Key = read(params)?;
                match memory
                    .load(&asked.key)
                    .map_err(|error| memory_error(&error))?
                {
                    Some(record) => raw(&json!({
                        "found": true,
                        "value": record.value,
                        "version": record.info.version,
                    })),
                    None => raw(&json!({"found": false, "value": null, "version": null})),
                }
            }
            "memory.update" => {
                let asked: MemoryUpdate = read(params)?;
                let updated = memory.update(&asked.key, &asked.value, asked.version, &self.writer);
                match updated.map_err(|error| memory_error(&error))? {
                    UpdateResult::Saved(info) => raw(&json!({"updated": true, "info": info})),
                    UpdateResult::Conflict(version) => {
                        raw(&json!({"updated": false, "version": version}))
                    }
                }
            }
            "memory.delete" => {
                let asked: Key = read(params)?;
                raw(&memory
                    .delete(&asked.key)
                    .map_err(|error| memory_error(&error))?)
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

fn raw(value: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    to_raw_value(value)
        .map_err(|error| CallError::new("runtime", format!("the answer is no JSON: {error}")))
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
