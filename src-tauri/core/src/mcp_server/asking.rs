//! Questions of servers shown by the client, as its revision has it: by a request of ours while its
//! call is open, or since 2026-07-28 as a result that asks it to make the call again with the answer.

use rmcp::model::{
    CallToolRequestParams, ClientResult, CustomRequest, ErrorData, InputRequiredResult,
    ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::questions::{ANSWER, Answer, Asked, Question};

/// The name of the one question of a result.
const KEY: &str = "question";

/// What a client brings with a call that it makes again.
pub(super) struct Answers {
    /// The run that waits.
    pub(super) run: String,
    pub(super) response: Value,
}

impl Answers {
    /// `None`: it is a first call.
    pub(super) fn read(request: &CallToolRequestParams) -> Result<Option<Self>, ErrorData> {
        let Some(run) = request.request_state.clone() else {
            return Ok(None);
        };
        let responses = serde_json::to_value(&request.input_responses).unwrap_or_default();
        let Some(response) = responses.get(KEY) else {
            return Err(ErrorData::invalid_params(
                format!("`inputResponses` has no answer to `{KEY}`"),
                None,
            ));
        };
        let response = response.clone();
        Ok(Some(Self { run, response }))
    }
}

/// Whether the client shows such questions; else in words why not.
pub(super) fn can_show(
    context: &RequestContext<RoleServer>,
    question: &Question,
) -> Result<(), String> {
    let capabilities = context.client_capabilities().unwrap_or_default();
    // By its name in the protocol: the type is on its way out of the library.
    let samples =
        || serde_json::to_value(&capabilities).is_ok_and(|all| all["sampling"].is_object());
    let has_model = matches!(question.asked, Asked::Model(_)) && samples();
    let shows = capabilities
        .elicitation
        .is_some_and(|shows| match question.asked {
            // Revisions that know but one kind name none.
            Asked::Form(_) => shows.form.is_some() || shows.url.is_none(),
            Asked::Page { .. } => shows.url.is_some(),
            Asked::Model(_) => false,
        });
    if shows || has_model {
        return Ok(());
    }
    let client = context.client_info().map_or_else(
        || "the client".to_owned(),
        |client| format!("the client {}", client.name),
    );
    Err(match question.asked {
        Asked::Form(_) => format!("{client} shows no questions of servers (elicitation)"),
        Asked::Page { .. } => {
            format!("{client} opens no web pages for servers (elicitation by url)")
        }
        Asked::Model(_) => format!("{client} lends servers no model (sampling)"),
    })
}

/// Whether the client's revision knows no requests of servers.
pub(super) fn by_result(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| !version.has_initialize())
}

/// Have the client ask while its call is open.
pub(super) async fn in_client(
    peer: Peer<RoleServer>,
    question: &Question,
) -> Result<Answer, String> {
    let request = CustomRequest::new(question.method(), Some(question.params()));
    let request = ServerRequest::CustomRequest(request);
    let failed = |error: String| format!("the client could not ask: {error}");
    let handle = peer
        .send_cancellable_request(request, PeerRequestOptions::no_options())
        .await
        .map_err(|error| failed(error.to_string()))?;
    let answered = timeout(ANSWER, handle.rx).await;
    let result: ClientResult = answered
        .map_err(|_| failed("it did not answer".to_owned()))?
        .map_err(|_| failed("it is gone".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let result = serde_json::to_value(result).map_err(|error| failed(error.to_string()))?;
    Answer::read(&question.asked, &result)
}

/// The result that asks, and names the run that goes on with the answer.
pub(super) fn as_result(question: &Question, run: &str) -> Result<InputRequiredResult, String> {
    let request = json!({ "method": question.method(), "params": with_mode(question) });
    let wanted = json!({
        "resultType": "input_required",
        "inputRequests": { KEY: request },
        "requestState": run,
    });
    serde_json::from_value(wanted)
        .map_err(|error| format!("it asks for something that the protocol does not have: {error}"))
}

fn with_mode(question: &Question) -> Value {
    let mut params = question.params();
    if let Asked::Form(_) = question.asked {
        params["mode"] = "form".into();
    }
    params
}
