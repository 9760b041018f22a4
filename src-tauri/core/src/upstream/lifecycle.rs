//! The greeting: which revision of the protocol a server speaks.
//!
//! Two eras exist. Since 2026-07-28 there is no handshake; `server/discover` asks what a server can
//! do, and each request says who we are. Before, `initialize` opened the connection. Servers of the
//! old era answer the question of the new one with an error, with silence, or by exiting, so:
//!
//! 1. ask `server/discover`, unless this server is remembered to be of the old era;
//! 2. on any error, or after [`SILENCE`], send `initialize` on the same pipe, and take whichever
//!    answer comes. A server that is merely slow to start is thus never started twice;
//! 3. a server that exits on the question is started anew by the caller, and greeted with
//!    `initialize` at once.
//!
//! It works on any transport and never waits for ever: the caller's deadline covers all of it.

use std::borrow::Cow;
use std::time::Duration;

use reqwest::Url;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult,
    CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation, InitializedNotification,
    InitializedNotificationMethod, ProtocolVersion, RequestId, RequestMetaObject,
    ServerCapabilities, ServerJsonRpcMessage, ServerPeerInfo, ServerRequest,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::wire::raw_result;
use crate::clients::entry::Lent;

/// How long a server may keep silent to `server/discover` before `initialize` is sent too.
const SILENCE: Duration = Duration::from_secs(3);

/// Ids of the greeting's requests. The service that takes over counts from 0, and an answer that
/// comes late must not look like an answer to one of its requests. They fit 32 bits with a sign,
/// which some servers keep ids in.
const ID_BASE: i64 = 2_000_000_000;

/// Requests of one greeting: at most two of each kind are ever sent.
const REQUESTS_MAX: i64 = 8;

/// The two kinds of greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    Initialize,
    Discover,
}

/// What a server said of itself.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) era: Era,
    /// The revision that it named.
    pub(crate) revision: String,
    /// The revision that we act upon, which differs when it named one that nobody knows.
    pub(crate) peer: ServerPeerInfo,
    pub(crate) title: Option<String>,
    pub(crate) instructions: Option<String>,
    pub(crate) tools_list_changed: bool,
    /// It logs over the protocol.
    pub(crate) logging: bool,
    /// Calls may ask it for a task.
    pub(crate) tasks: bool,
    /// Its tasks can be cancelled.
    pub(crate) task_cancel: bool,
    pub(crate) note: Option<String>,
}

/// Why there is no greeting.
#[derive(Debug)]
pub(crate) enum GreetError {
    /// The connection closed.
    Closed {
        /// The server never answered `server/discover`, which may be what it died of.
        discover_unanswered: bool,
    },
    /// The server refused; in words.
    Refused(String),
}

/// Who we are, to servers.
pub(crate) fn client_info() -> Implementation {
    Implementation::new("runbridge", env!("CARGO_PKG_VERSION"))
}

/// What servers may ask of us: questions to the user, as a form or on a web page, and what the user
/// lends them.
pub(crate) fn capabilities(lent: &Lent, era: Era) -> ClientCapabilities {
    // By their names in the protocol: the library is about to drop the types of roots and sampling.
    let mut all = json!({ "elicitation": { "form": {}, "url": {} } });
    if era == Era::Discover {
        all["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
    }
    if !lent.roots.is_empty() {
        all["roots"] = json!({});
    }
    if lent.sampling {
        all["sampling"] = json!({});
    }
    serde_json::from_value(all).unwrap_or_default()
}

/// Answer what a server asks of us that no person is needed for. A server that asks for what it is not
/// lent is told at once, since an open question would block its call. A question to the user outside a
/// call belongs to nobody.
pub(crate) fn answer(lent: &Lent, method: &str) -> Result<Value, ErrorData> {
    match method {
        "ping" => Ok(json!({})),
        "roots/list" => Ok(json!({ "roots": roots(lent) })),
        "sampling/createMessage" => Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "Runbridge passes no request on to a model, since its user has not allowed that for this \
             server (`sampling` in its settings)",
            None,
        )),
        "elicitation/create" => Ok(json!({ "action": "decline" })),
        _ => Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            format!("Runbridge does not offer `{method}` to servers"),
            None,
        )),
    }
}

fn roots(lent: &Lent) -> Vec<Value> {
    let roots = lent.roots.iter().filter_map(|folder| {
        let uri = Url::from_file_path(folder).ok()?;
        let name = folder.file_name().unwrap_or(folder.as_os_str());
        Some(json!({ "uri": uri.as_str(), "name": name.to_string_lossy() }))
    });
    roots.collect()
}

/// A greeting that is only to show how the server answers.
pub(crate) fn question() -> bytes::Bytes {
    let text = json!({
        "jsonrpc": "2.0",
        "id": ID_BASE,
        "method": "initialize",
        "params": {
            "protocolVersion": our_version(Era::Initialize).as_str(),
            "capabilities": {},
            "clientInfo": client_info(),
        },
    });
    text.to_string().into()
}

/// Greet the server at the other end. Dropping the future leaves the transport in an unknown state.
pub(crate) async fn greet<T: Transport<RoleClient>>(
    transport: &mut T,
    remembered: Option<Era>,
    lent: &Lent,
) -> Result<Greeting, GreetError> {
    let mut exchange = Exchange {
        transport,
        lent,
        sent: Vec::new(),
        answered: false,
    };
    let first = remembered.unwrap_or(Era::Discover);
    exchange.ask(first, our_version(first)).await?;
    loop {
        // The old era has no deadline of its own: an answer to `initialize` may take as long as the
        // start may.
        let silence = exchange
            .only_discover_was_asked()
            .then(|| Instant::now() + SILENCE);
        let Some((era, answer)) = exchange.next_answer(silence).await? else {
            exchange
                .ask(Era::Initialize, our_version(Era::Initialize))
                .await?;
            continue;
        };
        match (era, answer) {
            (Era::Discover, Ok(result)) => {
                if let Some(greeting) = discovered(&result)? {
                    return Ok(greeting);
                }
                exchange.ask_once(Era::Initialize).await?;
            }
            (Era::Initialize, Ok(result)) => {
                let greeting = initialized(&result);
                exchange.send(initialized_notification()).await?;
                return Ok(greeting);
            }
            (Era::Discover, Err(error)) => {
                // It may have refused the version at the moment, but not for good.
                let ours = ProtocolVersion::LATEST.as_str();
                if supported_versions(error.data.as_ref()).contains(&ours)
                    && exchange.times_asked(Era::Discover) < 2
                {
                    exchange
                        .ask(Era::Discover, our_version(Era::Discover))
                        .await?;
                    continue;
                }
                if exchange.asked(Era::Initialize) && first == Era::Initialize {
                    return Err(GreetError::Refused(refusal("server/discover", &error)));
                }
                exchange.ask_once(Era::Initialize).await?;
            }
            (Era::Initialize, Err(error)) => {
                // A server may know only versions older than ours and not say so as it should.
                if let Some(version) = version_offered(&error) {
                    if exchange.times_asked(Era::Initialize) < 2 {
                        exchange.ask(Era::Initialize, version).await?;
                        continue;
                    }
                } else if !exchange.asked(Era::Discover) {
                    // Remembered to be of the old era, but updated since.
                    exchange
                        .ask(Era::Discover, our_version(Era::Discover))
                        .await?;
                    continue;
                }
                return Err(GreetError::Refused(refusal("initialize", &error)));
            }
        }
    }
}

fn our_version(era: Era) -> ProtocolVersion {
    match era {
        Era::Initialize => ProtocolVersion::LATEST_WITH_INITIALIZE,
        Era::Discover => ProtocolVersion::LATEST,
    }
}

fn refusal(method: &str, error: &ErrorData) -> String {
    let supported = supported_versions(error.data.as_ref());
    if supported.is_empty() {
        format!(
            "it refused `{method}`: {} (code {})",
            error.message, error.code.0
        )
    } else {
        format!(
            "it speaks {}, and Runbridge speaks {} to {}",
            supported.join(", "),
            ProtocolVersion::V_2024_11_05,
            ProtocolVersion::LATEST,
        )
    }
}

fn supported_versions(data: Option<&Value>) -> Vec<&str> {
    data.and_then(|data| data.get("supported"))
        .and_then(Value::as_array)
        .map(|versions| versions.iter().filter_map(Value::as_str).take(10).collect())
        .unwrap_or_default()
}

/// The newest version with a handshake that a refusal offers and that we know.
fn version_offered(error: &ErrorData) -> Option<ProtocolVersion> {
    let supported = supported_versions(error.data.as_ref());
    ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .rev()
        .filter(|version| version.has_initialize())
        .find(|version| supported.contains(&version.as_str()))
        .cloned()
}

/// `Ok(None)`: the answer means nothing, as of a server that answers everything alike.
fn discovered(result: &Value) -> Result<Option<Greeting>, GreetError> {
    let Some(versions) = result.get("supportedVersions").and_then(Value::as_array) else {
        return Ok(None);
    };
    let versions: Vec<&str> = versions.iter().filter_map(Value::as_str).collect();
    if versions.contains(&ProtocolVersion::LATEST.as_str()) {
        return Ok(Some(greeting(
            Era::Discover,
            ProtocolVersion::LATEST,
            result,
            None,
        )));
    }
    let ours = ProtocolVersion::KNOWN_VERSIONS;
    if ours
        .iter()
        .any(|version| versions.contains(&version.as_str()))
    {
        return Ok(None);
    }
    Err(GreetError::Refused(format!(
        "it speaks {}, and Runbridge speaks {} to {}",
        versions.join(", "),
        ProtocolVersion::V_2024_11_05,
        ProtocolVersion::LATEST,
    )))
}

fn initialized(result: &Value) -> Greeting {
    let named = result.get("protocolVersion").and_then(Value::as_str);
    let known = named.and_then(|named| {
        ProtocolVersion::KNOWN_VERSIONS
            .iter()
            .find(|version| version.as_str() == named)
            .cloned()
    });
    let acted = our_version(Era::Initialize);
    let note = match (named, &known) {
        (_, Some(_)) => None,
        (Some(named), None) => Some(format!(
            "names protocol version {named}, which Runbridge does not know; it is spoken to as {acted}"
        )),
        (None, None) => Some(format!(
            "names no protocol version; it is spoken to as {acted}"
        )),
    };
    let mut greeting = greeting(Era::Initialize, known.unwrap_or(acted), result, note);
    if let Some(named) = named {
        greeting.revision = named.chars().take(40).collect();
    }
    greeting
}

fn greeting(era: Era, version: ProtocolVersion, result: &Value, note: Option<String>) -> Greeting {
    let offers = |path: &str| result.pointer(path).is_some_and(Value::is_object);
    let text = |path: &str| {
        result
            .pointer(path)
            .and_then(Value::as_str)
            .filter(|text| !text.trim().is_empty())
            .map(str::to_owned)
    };
    Greeting {
        era,
        revision: version.to_string(),
        peer: ServerPeerInfo::new(version, ServerCapabilities::default()),
        title: text("/serverInfo/title").or_else(|| text("/serverInfo/name")),
        instructions: text("/instructions"),
        tools_list_changed: result.pointer("/capabilities/tools/listChanged")
            == Some(&Value::Bool(true)),
        logging: offers("/capabilities/logging"),
        tasks: offers("/capabilities/tasks/requests/tools/call"),
        // The extension has it always.
        task_cancel: era == Era::Discover || offers("/capabilities/tasks/cancel"),
        note,
    }
}

fn initialized_notification() -> ClientJsonRpcMessage {
    ClientJsonRpcMessage::notification(ClientNotification::InitializedNotification(
        InitializedNotification {
            method: InitializedNotificationMethod,
            extensions: rmcp::model::Extensions::default(),
        },
    ))
}

/// The requests sent so far and the transport they went over.
struct Exchange<'a, T> {
    transport: &'a mut T,
    lent: &'a Lent,
    /// What was asked with the id `ID_BASE` + index.
    sent: Vec<Era>,
    /// Anything at all was answered.
    answered: bool,
}

impl<T: Transport<RoleClient>> Exchange<'_, T> {
    fn asked(&self, era: Era) -> bool {
        self.sent.contains(&era)
    }

    fn times_asked(&self, era: Era) -> usize {
        self.sent.iter().filter(|sent| **sent == era).count()
    }

    fn only_discover_was_asked(&self) -> bool {
        !self.asked(Era::Initialize)
    }

    async fn ask_once(&mut self, era: Era) -> Result<(), GreetError> {
        if self.asked(era) {
            Ok(())
        } else {
            self.ask(era, our_version(era)).await
        }
    }

    async fn ask(&mut self, era: Era, version: ProtocolVersion) -> Result<(), GreetError> {
        let mut request = match era {
            Era::Initialize => CustomRequest::new(
                "initialize",
                Some(json!({
                    "protocolVersion": version.as_str(),
                    "capabilities": capabilities(self.lent, era),
                    "clientInfo": client_info(),
                })),
            ),
            Era::Discover => CustomRequest::new("server/discover", None),
        };
        if era == Era::Discover {
            request
                .extensions
                .insert(RequestMetaObject::with_client_context(
                    version,
                    client_info(),
                    capabilities(self.lent, era),
                ));
        }
        let id = ID_BASE + self.sent.len() as i64;
        self.sent.push(era);
        debug_assert!(
            (self.sent.len() as i64) <= REQUESTS_MAX,
            "a greeting asks each thing twice at most"
        );
        self.send(ClientJsonRpcMessage::request(
            ClientRequest::CustomRequest(request),
            RequestId::Number(id),
        ))
        .await
    }

    fn closed(&self) -> GreetError {
        GreetError::Closed {
            discover_unanswered: self.asked(Era::Discover) && !self.answered,
        }
    }

    async fn send(&mut self, message: ClientJsonRpcMessage) -> Result<(), GreetError> {
        self.transport
            .send(message)
            .await
            .map_err(|_| self.closed())
    }

    /// The next answer to something that was asked; `None` after the silence.
    async fn next_answer(
        &mut self,
        silence: Option<Instant>,
    ) -> Result<Option<(Era, Result<Value, ErrorData>)>, GreetError> {
        loop {
            let message = tokio::select! {
                message = self.transport.receive() => message,
                () = sleep_until(silence.unwrap_or_else(Instant::now)), if silence.is_some() => return Ok(None),
            };
            let Some(message) = message else {
                return Err(self.closed());
            };
            let (id, answer) = match message {
                ServerJsonRpcMessage::Response(response) => {
                    let text = raw_result(response.result).ok();
                    let value = text.and_then(|text| serde_json::from_str(text.get()).ok());
                    (Some(response.id), Ok(value.unwrap_or(Value::Null)))
                }
                ServerJsonRpcMessage::Error(error) => (error.id, Err(error.error)),
                ServerJsonRpcMessage::Request(request) => {
                    let method = method_of(&request.request);
                    self.send(match answer(self.lent, &method) {
                        Ok(value) => ClientJsonRpcMessage::response(
                            ClientResult::CustomResult(CustomResult(value)),
                            request.id,
                        ),
                        Err(error) => ClientJsonRpcMessage::error(error, Some(request.id)),
                    })
                    .await?;
                    continue;
                }
                ServerJsonRpcMessage::Notification(_) => continue,
            };
            // An error without an id is the answer of a server that could not read the question.
            let index = match id {
                Some(RequestId::Number(id)) => usize::try_from(id - ID_BASE).ok(),
                Some(RequestId::String(id)) => id
                    .parse::<i64>()
                    .ok()
                    .and_then(|id| usize::try_from(id - ID_BASE).ok()),
                None => self.sent.len().checked_sub(1),
            };
            if let Some(era) = index.and_then(|index| self.sent.get(index)) {
                self.answered = true;
                return Ok(Some((*era, answer)));
            }
        }
    }
}

fn method_of(request: &ServerRequest) -> Cow<'_, str> {
    match request {
        ServerRequest::CustomRequest(request) => Cow::Borrowed(&request.method),
        ServerRequest::PingRequest(_) => Cow::Borrowed("ping"),
        ServerRequest::ListRootsRequest(_) => Cow::Borrowed("roots/list"),
        ServerRequest::CreateMessageRequest(_) => Cow::Borrowed("sampling/createMessage"),
        ServerRequest::ElicitRequest(_) => Cow::Borrowed("elicitation/create"),
        // The type is open; what it may gain is refused like every unknown method.
        _ => Cow::Borrowed("unknown"),
    }
}
