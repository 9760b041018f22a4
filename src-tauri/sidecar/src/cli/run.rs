//! `runbridge run`: the same run that a client would ask for, with its output on the terminal.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::paths::Environment;
use runbridge_core::reply::Reply;
use runbridge_core::{request, run};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::style;

/// The sandbox could not be had; see the help.
const NO_SANDBOX: u8 = 3;

#[derive(Args)]
pub(crate) struct RunArguments {
    /// The Python to run
    #[arg(short, long, value_name = "CODE", conflicts_with = "file")]
    code: Option<String>,
    /// A file with the Python to run; `-` reads stdin
    file: Option<PathBuf>,
    /// Servers the code may call, by name; all of them if not given
    #[arg(short, long, value_delimiter = ',', value_name = "NAME,…")]
    servers: Option<Vec<String>>,
    /// Wall-clock limit in seconds
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print the whole reply as JSON: status, stdout, stderr, result, error …
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let code = source(&arguments)?;
    let bridge = Bridge::open(Environment::of_process(), Role::Ask)?;
    for problem in bridge.settings_problems().iter() {
        style::warning(&problem.to_string());
    }
    let limits = bridge.settings().limits.clone();
    let mut call = Map::new();
    call.insert("code".to_owned(), Value::String(code));
    if let Some(servers) = arguments.servers {
        call.insert("servers".to_owned(), json!(servers));
    }
    if let Some(timeout) = arguments.timeout {
        call.insert("timeout".to_owned(), json!(timeout));
    }
    let request = request::parse(call, limits.run_ms_default / 1000, limits.run_ms_max / 1000);
    let reply = match request {
        Ok(request) => {
            let connection = bridge.connect();
            let cancel = connection.cancel_token().child_token();
            let interrupt = cancel_on_interrupt(cancel.clone());
            let (bar, report) = progress();
            let client = Some("command line");
            let audience = run::Audience { report, ask: None };
            let reply = run::run_python(
                &bridge,
                &connection,
                client,
                request,
                cancel,
                audience,
                None,
            )
            .await;
            bar.finish_and_clear();
            interrupt.abort();
            bridge.disconnect(&connection).await;
            reply
        }
        Err(problem) => run::refused(&bridge, &problem),
    };
    bridge.shut_down().await;
    if arguments.json {
        style::line(&serde_json::to_string_pretty(&reply.structured)?);
    } else {
        print(&reply);
    }
    Ok(exit_code(&reply))
}

fn source(arguments: &RunArguments) -> anyhow::Result<String> {
    if let Some(code) = &arguments.code {
        return Ok(code.clone());
    }
    let path = match &arguments.file {
        Some(path) => path.clone(),
        None if std::io::stdin().is_terminal() => {
            anyhow::bail!("give the Python with -c, or the name of a file; `-` reads stdin")
        }
        None => PathBuf::from("-"),
    };
    if path.as_os_str() == "-" {
        let mut code = String::new();
        std::io::stdin()
            .read_to_string(&mut code)
            .context("cannot read the code from stdin")?;
        return Ok(code);
    }
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// What a run waits for, on a terminal only.
fn progress() -> (ProgressBar, Option<run::Report>) {
    if !std::io::stderr().is_terminal() {
        return (ProgressBar::hidden(), None);
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let report: run::Report = Arc::new(move |message: &str| {
        shown.enable_steady_tick(Duration::from_millis(100));
        shown.set_message(message.to_owned());
    });
    (bar, Some(report))
}

fn cancel_on_interrupt(cancel: CancellationToken) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            cancel.cancel();
        }
    })
}

/// stdout and the value to stdout; stderr, errors and remarks to stderr.
fn print(reply: &Reply) {
    let mut stdout = std::io::stdout();
    for name in ["stdout", "result"] {
        write_lines(&mut stdout, field(reply, name));
    }
    let mut stderr = std::io::stderr();
    write_lines(&mut stderr, field(reply, "stderr"));
    if let Some(error) = reply.structured.get("error") {
        let part = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or("");
        match part("traceback") {
            "" => style::error(error.as_str().unwrap_or_else(|| part("message"))),
            traceback => write_lines(&mut stderr, traceback),
        }
    }
    for kind in ["notes", "warnings"] {
        let remarks = reply.structured.get(kind).and_then(Value::as_array);
        for remark in remarks.into_iter().flatten().filter_map(Value::as_str) {
            style::warning(remark);
        }
    }
    match reply.images.len() {
        0 => {}
        1 => style::warning("an image was shown; a terminal cannot show it"),
        images => style::warning(&format!(
            "{images} images were shown; a terminal cannot show them"
        )),
    }
}

/// A reader that has gone away (`| head`) ends the output quietly.
fn write_lines(stream: &mut impl std::io::Write, text: &str) {
    if text.is_empty() {
        return;
    }
    let _ = stream.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = stream.write_all(b"\n");
    }
}

fn field<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply
        .structured
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or("")
}

fn exit_code(reply: &Reply) -> ExitCode {
    let error_type = reply
        .structured
        .get("error")
        .and_then(|error| error.get("type").and_then(Value::as_str))
        .unwrap_or("");
    let code = match field(reply, "status") {
        "success" => 0,
        "validation_error" => 2,
        "timeout" => 124,
        "cancelled" => 130,
        "out_of_memory" => 137,
        _ if matches!(error_type, "sandbox_unavailable" | "image_missing") => NO_SANDBOX,
        _ => reply
            .structured
            .get("exitCode")
            .and_then(Value::as_i64)
            .and_then(|code| u8::try_from(code).ok())
            .filter(|code| *code != 0)
            .unwrap_or(1),
    };
    ExitCode::from(code)
}
