//! `runbridge secret`: values that servers need and that no file should show. An entry names one as
//! `keyring:NAME`. A value goes in here and never comes out.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use runbridge_core::paths::{Environment, Paths};
use runbridge_core::secrets::{Place, Secret, Secrets};
use serde_json::json;

use crate::style::{self, Tone, paint};

/// Of what is read from stdin; the value itself has a lower limit.
const INPUT_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Args)]
pub(crate) struct SecretArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Keep a value; it is asked for, or read from stdin
    Set {
        /// The name by which entries mean it: `keyring:NAME`
        name: String,
    },
    /// List the names
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget a value
    Forget {
        /// Its name
        name: String,
    },
}

pub(crate) async fn run(arguments: SecretArguments) -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process();
    let secrets = Secrets::open(&Paths::for_user(&environment)?, &environment);
    match arguments.action {
        Action::Set { name } => set(&secrets, &name).await,
        Action::List { json } => list(&secrets, json).await,
        Action::Forget { name } => forget(&secrets, &name).await,
    }
}

async fn set(secrets: &Arc<Secrets>, name: &str) -> anyhow::Result<ExitCode> {
    let value = if std::io::stdin().is_terminal() {
        rpassword::prompt_password(format!("Value of {name} (it is not shown): "))
            .context("the value could not be read")?
    } else {
        let mut text = String::new();
        std::io::stdin()
            .take(INPUT_BYTES_MAX)
            .read_to_string(&mut text)
            .context("the value on stdin is no text")?;
        text.trim_end_matches(['\r', '\n']).to_owned()
    };
    anyhow::ensure!(!value.is_empty(), "the value is empty; nothing was kept");
    secrets.set(name, Secret::new(value)).await?;
    style::line(&format!(
        "{} is kept {}; entries mean it as {}",
        paint(Tone::Strong, name),
        match secrets.place().await {
            Place::Keyring => "with the system's keyring".to_owned(),
            Place::File { reason } =>
                format!("in an encrypted file, since no keyring opens: {reason}"),
            Place::Memory => "in memory".to_owned(),
        },
        paint(Tone::Strong, &format!("keyring:{name}")),
    ));
    Ok(ExitCode::SUCCESS)
}

async fn list(secrets: &Arc<Secrets>, json: bool) -> anyhow::Result<ExitCode> {
    let names = secrets.names().await?;
    let place = secrets.place().await;
    if json {
        let (kind, reason) = match place {
            Place::Keyring => ("keyring", None),
            Place::File { reason } => ("encrypted_file", Some(reason)),
            Place::Memory => ("memory", None),
        };
        let document = json!({ "place": kind, "reason": reason, "names": names });
        style::line(&serde_json::to_string_pretty(&document)?);
        return Ok(ExitCode::SUCCESS);
    }
    for name in &names {
        style::line(name);
    }
    if names.is_empty() {
        style::line("no secrets are kept; `runbridge secret set NAME` keeps one");
    }
    if let Place::File { reason } = place {
        style::warning(&format!(
            "the system's keyring does not open, so secrets that it guards are not listed: {reason}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn forget(secrets: &Arc<Secrets>, name: &str) -> anyhow::Result<ExitCode> {
    let known = secrets.names().await?.iter().any(|known| known == name);
    secrets.forget(name).await?;
    style::line(&if known {
        format!("{} is forgotten", paint(Tone::Strong, name))
    } else {
        format!("there was no secret {}", paint(Tone::Strong, name))
    });
    Ok(ExitCode::SUCCESS)
}
