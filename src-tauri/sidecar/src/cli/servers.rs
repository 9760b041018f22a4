//! `runbridge servers`: what was found where, and what could not be used.

use std::process::ExitCode;

use clap::Args;
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::catalog::ServerStatus;
use runbridge_core::paths::Environment;
use runbridge_core::upstream::UpstreamState;
use serde_json::json;

use crate::style::{self, Tone, paint};

#[derive(Args)]
pub(crate) struct ServersArguments {
    /// Start every server that is on, and say whether it works
    #[arg(long)]
    start: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: ServersArguments) -> anyhow::Result<ExitCode> {
    let bridge = Bridge::open(Environment::of_process(), Role::Ask)?;
    bridge.discovered().await;
    if arguments.start {
        start_all(&bridge).await;
    }
    let servers = bridge.catalog().servers();
    let discovery = bridge.discovery();
    if arguments.json {
        let listed: Vec<_> = servers.iter().map(as_json).collect();
        let document = json!({
            "servers": listed,
            "problems": discovery.as_ref().map(|found| &found.problems),
            "skipped": discovery.as_ref().map(|found| &found.skipped),
            "discovery_ms": bridge.discovery_took().map(|took| took.as_secs_f64() * 1000.0),
        });
        style::line(&serde_json::to_string_pretty(&document)?);
    } else {
        for server in &servers {
            print(server);
        }
        if servers.is_empty() {
            let folder = bridge.paths().state.join("servers.json");
            style::line(&format!(
                "No MCP server was found. Put some into {}, in the shape\n  \
                 {{\"mcpServers\": {{\"time\": {{\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}}}}}}",
                folder.display()
            ));
        }
        if let Some(found) = &discovery {
            for skipped in &found.skipped {
                let place = skipped.source.path.display();
                style::line(&paint(
                    Tone::Dim,
                    &format!("skipped {} ({place}): {}", skipped.name, skipped.reason),
                ));
            }
            for problem in &found.problems {
                style::warning(&problem.to_string());
            }
        }
    }
    bridge.shut_down().await;
    Ok(ExitCode::SUCCESS)
}

/// Start all servers that are on, at the same time.
pub(crate) async fn start_all(bridge: &Bridge) {
    let mut starts = tokio::task::JoinSet::new();
    for server in bridge
        .catalog()
        .servers()
        .into_iter()
        .filter(ServerStatus::is_callable)
    {
        let catalog = std::sync::Arc::clone(bridge.catalog());
        starts.spawn(async move {
            // The outcome is the server's state from now on.
            let _ = catalog.tools(&server.name).await;
        });
    }
    while starts.join_next().await.is_some() {}
}

fn as_json(server: &ServerStatus) -> serde_json::Value {
    let (state, error) = state(server);
    json!({
        "name": server.name,
        "alias": server.alias,
        "description": server.description,
        "state": state,
        "error": error,
        "revision": server.revision,
        "tools": server.tools,
        "notes": server.notes,
        "sources": server.sources,
    })
}

fn print(server: &ServerStatus) {
    let (state, error) = state(server);
    let tone = match state {
        "ready" => Tone::Good,
        "failed" | "needs a value" => Tone::Bad,
        _ => Tone::Dim,
    };
    let tools = match server.tools {
        Some(1) => ", 1 tool".to_owned(),
        Some(tools) => format!(", {tools} tools"),
        None => String::new(),
    };
    style::line(&format!(
        "{}  {}{}",
        paint(Tone::Strong, &server.name),
        paint(tone, state),
        paint(Tone::Dim, &tools)
    ));
    if let Some(error) = error {
        style::line(&format!("    {}", error.replace('\n', "\n    ")));
    }
    for source in &server.sources {
        let origin = format!("    {} ({})", source.path.display(), source.client);
        style::line(&paint(Tone::Dim, &origin));
    }
    for note in &server.notes {
        style::line(&format!("    {note}"));
    }
}

/// A server's state in words, and what is wrong.
pub(crate) fn state(server: &ServerStatus) -> (&'static str, Option<String>) {
    if let Some(reason) = &server.off {
        return ("off", Some(reason.clone()));
    }
    if !server.needs.is_empty() {
        let needs = server.needs.join(", ");
        return (
            "needs a value",
            Some(format!("set {needs}, then it can be started")),
        );
    }
    match &server.state {
        UpstreamState::Stopped => ("stopped", None),
        UpstreamState::Starting => ("starting", None),
        UpstreamState::Ready => ("ready", None),
        UpstreamState::Failed { error, .. } if error.wants_sign_in() => {
            ("needs sign-in", Some(error.message()))
        }
        UpstreamState::Failed { error, .. } => ("failed", Some(error.message())),
    }
}
