//! Questions of servers shown by the client, as its revision has it: by a request of ours while its
//! call is open, or since 2026-07-28 as a result that asks it to make the call again with the answer.
//! What a client does not show, the app's window does.

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt as _;
use rmcp::model::{
    CallToolRequestParams, ClientResult, CustomRequest, ErrorData, InputRequiredResult,
    ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::questions::{ANSWER, Answer, Ask, Asked, Behind, OpenQuestions, Question};

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

/// Puts the questions of one run to its user: in the client if that shows such, else in the app's window
/// if there is one.
pub(super) fn ask(
    context: &RequestContext<RoleServer>,
    in_client: Ask,
    window: &Arc<OpenQuestions>,
    run_id: String,
) -> Ask {
    let capabilities = context.client_capabilities().unwrap_or_default();
    // By its name in the protocol: the type is on its way out of the library.
    let has_model =
        serde_json::to_value(&capabilities).is_ok_and(|all| all["sampling"].is_object());
    let offered = capabilities.elicitation;
    let client = context.client_info().map(|info| info.name);
    let behind = Behind {
        run_id,
        client: client.clone().unwrap_or_default(),
    };
    let in_window = window.of_run(behind);
    let window = Arc::clone(window);
    Arc::new(move |question| {
        let shows = match question.asked {
            Asked::Model(_) => has_model,
            // Revisions that know but one kind name none.
            Asked::Form(_) => offered
                .as_ref()
                .is_some_and(|shows| shows.form.is_some() || shows.url.is_none()),
            Asked::Page { .. } => offered.as_ref().is_some_and(|shows| shows.url.is_some()),
        };
        if shows {
            in_client(question)
        } else if window.are_seen() && !matches!(question.asked, Asked::Model(_)) {
            in_window(question)
        } else {
            let why = nobody_shows(client.as_deref(), &question.asked);
            ready(Err(why)).boxed()
        }
    })
}

fn nobody_shows(client: Option<&str>, asked: &Asked) -> String {
    let client = client.map_or_else(
        || "the client".to_owned(),
        |name| format!("the client {name}"),
    );
    let what = match asked {
        Asked::Form(_) => "shows no questions of servers (elicitation)",
        Asked::Page { .. } => "opens no web pages for servers (elicitation by url)",
        // A window has none either.
        Asked::Model(_) => return format!("{client} lends servers no model (sampling)"),
    };
    format!("{client} {what}, and the Runbridge app, which does, is not running")
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
