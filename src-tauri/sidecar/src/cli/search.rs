//! `runbridge search`: the search that the model's Python has.

use std::process::ExitCode;

use clap::Args;
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::paths::Environment;
use serde_json::json;

use crate::style::{self, Tone, paint};

#[derive(Args)]
pub(crate) struct SearchArguments {
    /// What the tool should do
    query: String,
    /// How many tools to list
    #[arg(short, long, default_value_t = 10, value_name = "COUNT")]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: SearchArguments) -> anyhow::Result<ExitCode> {
    let bridge = Bridge::open(Environment::of_process(), Role::Ask)?;
    bridge.discovered().await;
    let found = bridge
        .catalog()
        .search(&arguments.query, arguments.limit, None)
        .await;
    if arguments.json {
        let hits: Vec<_> = found
            .hits
            .iter()
            .map(|hit| {
                json!({
                    "server": hit.server.name,
                    "tool": hit.tool.tool().name,
                    "signature": hit.tool.signature(),
                    "description": hit.tool.tool().description,
                })
            })
            .collect();
        style::line(&serde_json::to_string_pretty(&hits)?);
    } else {
        for hit in &found.hits {
            let name = format!("mcp_{}.", hit.server.alias);
            style::line(&format!(
                "{}{}",
                paint(Tone::Dim, &name),
                hit.tool.signature()
            ));
            let about = hit.tool.tool().description.as_deref().unwrap_or_default();
            if let Some(line) = about.lines().map(str::trim).find(|line| !line.is_empty()) {
                style::line(&format!("    {line}"));
            }
        }
    }
    for (server, reason) in &found.failures {
        style::warning(&format!("`{server}` was not searched: {reason}"));
    }
    if found.hits.is_empty() && !arguments.json {
        style::line("No tool fits. `runbridge servers` lists what was searched.");
    }
    bridge.shut_down().await;
    Ok(if found.hits.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
