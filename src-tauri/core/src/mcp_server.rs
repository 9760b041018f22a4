//! Our MCP face: the one tool and the capability resource, for one client. Knows rmcp; everything
//! it says comes from the bridge.

use std::sync::Arc;

use base64::Engine as _;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::Value;

use crate::bridge::{Bridge, Connection};
use crate::reply::Reply;
use crate::{manual, request, run, tool};

/// The server as one client sees it.
#[derive(Clone)]
pub struct McpServer {
    bridge: Arc<Bridge>,
    connection: Arc<Connection>,
}

impl McpServer {
    /// A server for one client. The connection is closed by whoever opened it.
    pub fn new(bridge: Arc<Bridge>, connection: Arc<Connection>) -> Self {
        Self { bridge, connection }
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
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let client = context.client_info().map(|info| info.name);
        let limits = self.bridge.settings().limits.clone();
        let request = match request::parse(
            arguments,
            limits.run_ms_default / 1000,
            limits.run_ms_max / 1000,
        ) {
            Ok(request) => request,
            Err(problem) => return result(run::refused(&self.bridge, &problem)),
        };
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| ProgressSender::start(token, context.peer.clone()));
        let report = progress.as_ref().map(ProgressSender::reporter);
        let cancel = self.connection.cancel_token().child_token();
        let running = self.bridge.runs().track_future(run::run_python(
            &self.bridge,
            &self.connection,
            client.as_deref(),
            request,
            cancel.clone(),
            report,
        ));
        tokio::pin!(running);
        let reply = tokio::select! {
            reply = &mut running => reply,
            () = context.ct.cancelled() => {
                cancel.cancel();
                running.await
            }
        };
        result(reply)
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("runbridge", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
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
        Ok(self
            .run_python(request.arguments.unwrap_or_default(), context)
            .await
            .into())
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
                None,
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

/// Sends what a run is waiting for as progress notifications of its request.
struct ProgressSender {
    messages: tokio::sync::watch::Sender<String>,
    task: tokio::task::JoinHandle<()>,
}

impl ProgressSender {
    fn start(token: ProgressToken, peer: Peer<RoleServer>) -> Self {
        let (messages, mut latest) = tokio::sync::watch::channel(String::new());
        let task = tokio::spawn(async move {
            let mut count = 0.0;
            while latest.changed().await.is_ok() {
                count += 1.0;
                let message = latest.borrow_and_update().clone();
                let param =
                    ProgressNotificationParam::new(token.clone(), count).with_message(message);
                if peer.notify_progress(param).await.is_err() {
                    return;
                }
            }
        });
        Self { messages, task }
    }

    fn reporter(&self) -> run::Report {
        let messages = self.messages.clone();
        Arc::new(move |message: &str| {
            messages.send_if_modified(|latest| {
                let changed = latest != message;
                if changed {
                    message.clone_into(latest);
                }
                changed
            });
        })
    }
}

impl Drop for ProgressSender {
    fn drop(&mut self) {
        // No progress may follow the reply.
        self.task.abort();
    }
}
