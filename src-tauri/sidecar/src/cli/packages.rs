//! `runbridge packages`: what is installed for the code of runs, for people to see and change.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::packages;
use runbridge_core::paths::Environment;
use runbridge_core::settings::PackagesPolicy;
use serde_json::json;

use crate::style::{self, Tone, paint};

#[derive(Args)]
pub(crate) struct PackagesArguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// List what is installed
    List,
    /// Install pure Python packages for all sessions
    Add {
        /// Names, such as tabulate or tabulate>=0.9
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Take a package away
    Remove {
        /// Its name
        name: String,
    },
}

pub(crate) async fn run(arguments: PackagesArguments) -> anyhow::Result<ExitCode> {
    let bridge = Bridge::open(Environment::of_process(), Role::Ask)?;
    let json = arguments.json;
    let done = match arguments.action.unwrap_or(Action::List) {
        Action::List => list(&bridge, json).await,
        Action::Add { names } => add(&bridge, &names, json).await,
        Action::Remove { name } => remove(&bridge, &name, json).await,
    };
    bridge.shut_down().await;
    done
}

async fn list(bridge: &Bridge, json: bool) -> anyhow::Result<ExitCode> {
    let installed = packages::installed(bridge).await;
    let policy = bridge.settings().packages.policy;
    let index = packages::index_host(bridge).await;
    if json {
        let document = json!({
            "policy": policy.as_str(),
            "index": index.as_ref().ok(),
            "packages": installed,
        });
        style::line(&serde_json::to_string_pretty(&document)?);
        return Ok(ExitCode::SUCCESS);
    }
    for package in &installed {
        let about = format!(
            "{}, {} kB, from {}",
            package.version,
            package.bytes.div_ceil(1000),
            package.index
        );
        style::line(&format!("{}  {}", package.name, paint(Tone::Dim, &about)));
    }
    if installed.is_empty() {
        style::line("no packages are installed; `runbridge packages add NAME` installs one");
    }
    if let Err(error) = index {
        style::warning(&error.to_string());
    }
    warn_if_off(policy);
    Ok(ExitCode::SUCCESS)
}

async fn add(bridge: &Bridge, names: &[String], json: bool) -> anyhow::Result<ExitCode> {
    // The variables of a login shell may name the index, and settings are read again with them.
    bridge.discovered().await;
    let there = packages::add(bridge, names, &style::note).await?;
    if json {
        let there = there.iter();
        let there: Vec<_> = there
            .map(|(name, version)| json!({ "name": name, "version": version }))
            .collect();
        style::line(&serde_json::to_string_pretty(&there)?);
        return Ok(ExitCode::SUCCESS);
    }
    for (name, version) in there {
        style::line(&format!(
            "{} {version} is there",
            paint(Tone::Strong, &name)
        ));
    }
    warn_if_off(bridge.settings().packages.policy);
    Ok(ExitCode::SUCCESS)
}

async fn remove(bridge: &Bridge, name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let removed = packages::remove(bridge, name).await?;
    if json {
        style::line(&json!({ "removed": removed }).to_string());
    } else if removed {
        style::line(&format!("{} is removed", paint(Tone::Strong, name)));
    } else {
        style::error(&format!(
            "{name} is not installed; `runbridge packages` lists what is"
        ));
    }
    Ok(if removed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn warn_if_off(policy: PackagesPolicy) {
    if policy == PackagesPolicy::Off {
        style::warning(
            "packages are off (packages.policy in settings.json), so no session sees them",
        );
    }
}
