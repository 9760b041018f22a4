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

use runbridge_core::catalog::{Catalog, CatalogConfig, Offer};
use runbridge_core::clients::entry::{Entry, EntryTransport};
use runbridge_core::secrets::Secrets;
use runbridge_core::sign_in::SignIns;
use runbridge_core::upstream::UpstreamLimits;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

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
    let tools = match catalog.tools(SERVER).await {
        Ok(tools) => tools,
        Err(error) => {
            note("tools/list", &error);
            return failed;
        }
    };
    let wanted = match context["toolCalls"].as_array() {
        Some(calls) => calls.clone(),
        None => tools
            .iter()
            .map(|tool| {
                let tool = tool.tool();
                json!({ "name": tool.name, "arguments": sample(&tool.input_schema) })
            })
            .collect(),
    };
    for call in wanted {
        let name = call["name"].as_str().unwrap_or_default();
        let mut arguments = call["arguments"].as_object().cloned().unwrap_or_default();
        // Code leaves out what it does not give.
        arguments.retain(|_, value| !value.is_null());
        match catalog.call(SERVER, name, arguments, None).await {
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
        sources: Vec::new(),
    }
}
