//! `runbridge clients`: which clients are on this machine, and whether they are connected.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use runbridge_core::clients::Search;
use runbridge_core::clients::connect::{
    Connector, OwnServer, Running, Standing, State, stable_program,
};
use runbridge_core::paths::{Environment, Paths};
use runbridge_core::settings::Settings;

use crate::style::{self, Tone, paint};

#[derive(Args)]
pub(crate) struct ClientsArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ClientsArguments) -> anyhow::Result<ExitCode> {
    let standings = with_connector(None, false, |connector| Ok(connector.standings()))?;
    if arguments.json {
        style::line(&serde_json::to_string_pretty(&standings)?);
        return Ok(ExitCode::SUCCESS);
    }
    for standing in &standings {
        print(standing);
    }
    if standings.is_empty() {
        style::line("No MCP client was found. Install one and start it once.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Lends a connector for this user and this program.
pub(crate) fn with_connector<T>(
    program: Option<&Path>,
    drop_mark: bool,
    act: impl FnOnce(&Connector<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let environment = Environment::of_process();
    let paths = Paths::for_user(&environment)?;
    let (settings, _) = Settings::load(&paths, &environment);
    let search = Search::new(&paths, &environment, &settings);
    let program = match program {
        Some(program) => program,
        None => own_program(&environment)?,
    };
    let connector = Connector::new(&search, program, Running::now());
    act(&if drop_mark {
        connector.dropping_mark()
    } else {
        connector
    })
}

/// The path of this program for clients to start.
pub(crate) fn this_program() -> anyhow::Result<PathBuf> {
    let environment = Environment::of_process();
    let paths = Paths::for_user(&environment)?;
    let settings = Settings::default();
    let search = Search::new(&paths, &environment, &settings);
    Ok(stable_program(&search, own_program(&environment)?)?)
}

fn own_program(environment: &Environment) -> anyhow::Result<&Path> {
    environment
        .sidecar()
        .context("the path of this program is unknown")
}

fn print(standing: &Standing) {
    let (tone, state, more) = state(&standing.state);
    let running = match standing.running {
        Some(true) => ", running",
        Some(false) | None => "",
    };
    style::line(&format!(
        "{}  {}{}",
        paint(Tone::Strong, standing.id),
        paint(tone, state),
        paint(Tone::Dim, running)
    ));
    if let Some(more) = more {
        style::line(&format!("    {more}"));
    }
    if let Some(file) = &standing.file {
        style::line(&paint(Tone::Dim, &format!("    {}", file.display())));
    }
    for server in &standing.servers {
        style::line(&paint(Tone::Dim, &format!("    {}", own(server))));
    }
}

/// One of a client's own servers, and what it costs.
fn own(server: &OwnServer) -> String {
    let place = match (server.moved, &server.off) {
        (true, _) => "behind the bridge",
        (false, Some(_)) => "off",
        (false, None) => "its own",
    };
    let cost = match (server.tools, server.tokens) {
        (Some(1), Some(tokens)) => format!("1 tool, about {tokens} tokens"),
        (Some(tools), Some(tokens)) => format!("{tools} tools, about {tokens} tokens"),
        _ => "tools unknown until it has been started".to_owned(),
    };
    format!("{}: {place}, {cost}", server.name)
}

fn state(state: &State) -> (Tone, &'static str, Option<String>) {
    match state {
        State::NotConnected => (Tone::Dim, "not connected", None),
        State::Connected { name } if name == runbridge_core::clients::connect::NAME => {
            (Tone::Good, "connected", None)
        }
        State::Connected { name } => (Tone::Good, "connected", Some(format!("as `{name}`"))),
        State::Extension { manifest } => (
            Tone::Good,
            "connected",
            Some(format!("as its extension {}", manifest.display())),
        ),
        State::Lost => (
            Tone::Bad,
            "lost",
            Some("its file had our entry and has it no longer; connect it again".to_owned()),
        ),
        State::Changed => (
            Tone::Bad,
            "changed",
            Some("our entry was changed; connect it again".to_owned()),
        ),
        State::Shadowed { by } => (
            Tone::Bad,
            "lost",
            Some(format!("it reads {} now; connect it again", by.display())),
        ),
        State::NameTaken => (
            Tone::Warn,
            "not connected",
            Some("an entry `runbridge` starts something else".to_owned()),
        ),
        State::Forbidden { reason } => (Tone::Warn, "cannot be connected", Some(reason.clone())),
        State::Several { files } => {
            let files: Vec<String> = files
                .iter()
                .map(|file| format!("--file {}", file.display()))
                .collect();
            (
                Tone::Warn,
                "not connected",
                Some(format!(
                    "it has several files; name the one it reads:\n      {}",
                    files.join("\n      ")
                )),
            )
        }
        State::Unreadable {
            position, message, ..
        } => {
            let at = position.map_or_else(String::new, |at| {
                format!("line {}, column {}: ", at.line, at.column)
            });
            (Tone::Bad, "cannot be read", Some(format!("{at}{message}")))
        }
    }
}
