//! The client that the protocol's conformance suite drives: our connection to a server, made to do
//! what a scenario wants. It is given the server's address, and the scenario in the environment.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a program of the tests; what goes wrong is for the suite's log"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::FutureExt as _;
use runbridge_core::catalog::{Catalog, CatalogConfig, Offer};
use runbridge_core::clients::entry::{Entry, EntryTransport, Lent};
use runbridge_core::questions::{Answer, Asked, Question};
use runbridge_core::secrets::{Secret, Secrets};
use runbridge_core::sign_in::{ClientSettings, SignIns};
use runbridge_core::upstream::{Caller, Person, UpstreamError, UpstreamLimits};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

/// Sign-ins that a person has patience for.
const SIGN_INS_MAX: usize = 3;

/// The document that describes a client, as the suite knows it.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// The only server there is.
const SERVER: &str = "peer";

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::args().next_back().expect("an address");
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let (events, _) = broadcast::channel(16);
    let catalog = Catalog::new(CatalogConfig {
        limits: UpstreamLimits::default(),
        cache_dir: None,
        login_env: BTreeMap::new().into(),
        sign_ins: SignIns::new(Secrets::in_memory(), BTreeMap::new().into(), None),
        events,
    });
    catalog.set_entries(vec![entry(url)]).await;
    let failed = drive(&catalog, &context).await;
    catalog.shut_down().await;
    for problem in &failed {
        eprintln!("{problem}");
    }
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Make the calls that the scenario names, or one of every tool; look at all else that is offered.
async fn drive(catalog: &Catalog, context: &Value) -> Vec<String> {
    let mut failed = Vec::new();
    let mut note = |what: &str, error: &dyn std::fmt::Display| {
        failed.push(format!("{what}: {error}"));
    };
    let mut tools = catalog.tools(SERVER).await;
    // Again for each further right that is wanted, as often as a person would.
    for _ in 0..SIGN_INS_MAX {
        if !tools.as_ref().is_err_and(UpstreamError::wants_sign_in) {
            break;
        }
        if let Err(problem) = sign_in(catalog, context).await {
            note("sign-in", &problem);
            return failed;
        }
        tools = catalog.tools(SERVER).await;
    }
    let tools = match tools {
        Ok(tools) => tools,
        Err(error) => {
            note("tools/list", &error);
            return failed;
        }
    };
    let schemas: BTreeMap<&str, &Value> = tools
        .iter()
        .map(|tool| (tool.tool().name.as_str(), &tool.tool().input_schema))
        .collect();
    let wanted = match context["toolCalls"].as_array() {
        Some(calls) => calls.clone(),
        None => schemas
            .iter()
            .map(|(name, schema)| {
                let mut arguments = sample(schema);
                // This tool wants to hear how the other one's schema arrived.
                if *name == "json_schema_echo" {
                    let other = schemas.iter().find(|(other, _)| *other != name);
                    arguments["schema"] = other.map(|(_, schema)| (*schema).clone()).into();
                }
                json!({ "name": name, "arguments": arguments })
            })
            .collect(),
    };
    for call in wanted {
        let name = call["name"].as_str().unwrap_or_default();
        let mut arguments = call["arguments"].as_object().cloned().unwrap_or_default();
        // Code leaves out what it does not give.
        arguments.retain(|_, value| !value.is_null());
        let call = |arguments| catalog.call_for(SERVER, name, arguments, None, caller());
        let mut called = call(arguments.clone()).await;
        // More rights are wanted: a person would give them once.
        if called.as_ref().is_err_and(UpstreamError::wants_sign_in)
            && sign_in(catalog, context).await.is_ok()
        {
            called = call(arguments).await;
        }
        match called {
            Ok(result) => {
                if let Some(failure) = result.failure() {
                    note(name, &failure);
                }
            }
            Err(error) => note(name, &error),
        }
    }
    for offer in [Offer::Resources, Offer::Prompts] {
        // Most scenarios offer neither, which is no failure.
        let Ok(found) = catalog.offers(SERVER, offer).await else {
            continue;
        };
        for one in found {
            let one: Value = serde_json::from_str(one.get()).unwrap_or_default();
            let text = |name: &str| one[name].as_str().unwrap_or_default();
            let looked = if offer == Offer::Prompts {
                catalog.prompt(SERVER, text("name"), Map::new()).await
            } else {
                catalog.read_resource(SERVER, text("uri")).await
            };
            if let Err(error) = looked {
                note("what is offered", &error);
            }
        }
    }
    failed
}

/// Somebody who says yes to every question of a server, and changes nothing in its form.
fn caller() -> Caller {
    let ask = |question: Question| {
        let Asked::Form(schema) = question.asked else {
            return std::future::ready(Ok(Answer::Declined)).boxed();
        };
        let fields = schema["properties"].as_object().cloned();
        let filled = fields.unwrap_or_default().into_iter();
        let filled = filled.filter_map(|(name, field)| Some((name, field.get("default")?.clone())));
        std::future::ready(Ok(Answer::Accepted(filled.collect()))).boxed()
    };
    Caller {
        person: Some(Person {
            run: "conformance".to_owned(),
            ask: Arc::new(ask),
        }),
        ..Caller::default()
    }
}

/// What a person does: open the page, and be sent on. The suite's servers approve of everybody.
async fn sign_in(catalog: &Catalog, context: &Value) -> Result<(), String> {
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    let settings = ClientSettings {
        client_id: text("client_id"),
        client_secret: text("client_secret").map(Secret::new),
        client_metadata_url: Some(DOCUMENT.to_owned()),
        ..ClientSettings::default()
    };
    let signing_in = catalog
        .sign_in(SERVER, settings)
        .map_err(|error| error.to_string())?;
    let url = signing_in.url().await.map_err(|error| error.to_string())?;
    reqwest::get(url).await.map_err(|error| error.to_string())?;
    let finished = signing_in.finished().await;
    finished.map_err(|error| error.to_string())
}

/// Arguments that a schema accepts, as far as its kinds say.
fn sample(schema: &Value) -> Value {
    let properties = schema["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let chosen = properties
        .into_iter()
        .filter(|(name, _)| required.contains(&json!(name)));
    chosen
        .map(|(name, property)| {
            let value = match property["type"].as_str() {
                Some("number" | "integer") => json!(5),
                Some("boolean") => json!(true),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => json!("x"),
            };
            (name, value)
        })
        .collect()
}

fn entry(url: String) -> Entry {
    Entry {
        name: SERVER.to_owned(),
        transport: EntryTransport::Http {
            url,
            headers: BTreeMap::new(),
            sse: false,
        },
        description: None,
        off: None,
        needs: Vec::new(),
        tools_allowed: None,
        tools_denied: Vec::new(),
        start_ms_max: None,
        call_ms_max: None,
        lent: Lent::default(),
        sources: Vec::new(),
    }
}
