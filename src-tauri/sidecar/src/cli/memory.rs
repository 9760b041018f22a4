//! `runbridge memory`: what the model remembers, for people to see and change.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use runbridge_core::memory::{ImportMode, Memory, MemoryLimits};
use runbridge_core::paths::{Environment, Paths};
use runbridge_core::settings::Settings;
use serde_json::value::RawValue;

use crate::style::{self, Tone, paint};

/// Who wrote, in the record of an item.
const WRITER: &str = "command line";

#[derive(Args)]
pub(crate) struct MemoryArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List all keys with size, time and writer
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the value of a key as JSON
    Get {
        /// The key
        key: String,
    },
    /// Remember a value
    Set {
        /// The key
        key: String,
        /// The value as JSON; read from stdin if it is `-`
        value: String,
    },
    /// Forget a key
    Delete {
        /// The key
        key: String,
    },
    /// Write everything that is remembered as one JSON document
    Export {
        /// Where to; stdout if not given
        file: Option<PathBuf>,
    },
    /// Read a document that `export` wrote
    Import {
        /// The document; `-` reads stdin
        file: PathBuf,
        /// Forget what is not in the document
        #[arg(long)]
        replace: bool,
    },
}

pub(crate) fn run(arguments: MemoryArguments) -> anyhow::Result<ExitCode> {
    let memory = open()?;
    match arguments.action {
        Action::List { json } => list(&memory, json),
        Action::Get { key } => get(&memory, &key),
        Action::Set { key, value } => set(&memory, &key, value),
        Action::Delete { key } => delete(&memory, &key),
        Action::Export { file } => export(&memory, file.as_deref()),
        Action::Import { file, replace } => import(&memory, &file, replace),
    }
}

fn open() -> anyhow::Result<Memory> {
    let environment = Environment::of_process();
    let paths = Paths::for_user(&environment)?;
    let (settings, _) = Settings::load(&paths, &environment);
    let limits = MemoryLimits {
        value_bytes_max: settings.limits.memory_value_bytes_max as usize,
        keys_max: settings.limits.memory_keys_max as usize,
    };
    Ok(Memory::open(
        &paths.memory(),
        Some(&paths.legacy_memory()),
        limits,
    )?)
}

fn list(memory: &Memory, json: bool) -> anyhow::Result<ExitCode> {
    let listing = memory.list()?;
    if json {
        style::line(&serde_json::to_string_pretty(&listing)?);
        return Ok(ExitCode::SUCCESS);
    }
    for item in &listing.items {
        let writer = item.writer.as_deref().unwrap_or("unknown");
        let session = item.session.as_ref();
        let session = session.map(|name| format!(" in session {}", printable(name)));
        let about = format!(
            "{} bytes, {}, by {writer}{}",
            item.value_bytes,
            item.updated_at,
            session.unwrap_or_default()
        );
        style::line(&format!(
            "{}  {}",
            printable(&item.key),
            paint(Tone::Dim, &about)
        ));
    }
    for damaged in &listing.damaged {
        style::warning(&format!(
            "{} is damaged: {}",
            damaged.path.display(),
            damaged.reason
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// A key that would disturb a terminal is shown with escapes.
fn printable(key: &str) -> String {
    if key.chars().any(char::is_control) {
        format!("{key:?}")
    } else {
        key.to_owned()
    }
}

fn get(memory: &Memory, key: &str) -> anyhow::Result<ExitCode> {
    let Some(record) = memory.load(key)? else {
        style::error(&format!(
            "nothing is remembered under {key:?}; `memory list` shows the keys"
        ));
        return Ok(ExitCode::FAILURE);
    };
    style::line(record.value.get());
    Ok(ExitCode::SUCCESS)
}

fn set(memory: &Memory, key: &str, value: String) -> anyhow::Result<ExitCode> {
    let text = if value == "-" { read_stdin()? } else { value };
    let value = RawValue::from_string(text).context(
        "the value is not JSON; a text needs double quotes inside the shell's: '\"text\"'",
    )?;
    // What somebody noted beside the value stays there.
    let kept = memory.info(key)?.and_then(|info| info.metadata);
    memory.save(key, &value, kept.as_deref(), WRITER)?;
    Ok(ExitCode::SUCCESS)
}

fn delete(memory: &Memory, key: &str) -> anyhow::Result<ExitCode> {
    if memory.delete(key)? {
        return Ok(ExitCode::SUCCESS);
    }
    style::error(&format!("nothing is remembered under {key:?}"));
    Ok(ExitCode::FAILURE)
}

fn export(memory: &Memory, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let damaged = if let Some(path) = file {
        let mut out = std::fs::File::create(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let damaged = memory.export(&mut out)?;
        out.sync_all()
            .with_context(|| format!("cannot write {}", path.display()))?;
        damaged
    } else {
        let mut stdout = std::io::stdout().lock();
        let damaged = memory.export(&mut stdout)?;
        if stdout.is_terminal() {
            writeln!(stdout)?;
        }
        damaged
    };
    for damaged in &damaged {
        style::warning(&format!(
            "left out, {} is damaged: {}",
            damaged.path.display(),
            damaged.reason
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn import(memory: &Memory, file: &Path, replace: bool) -> anyhow::Result<ExitCode> {
    let text = if file.as_os_str() == "-" {
        read_stdin()?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let mode = if replace {
        ImportMode::Replace
    } else {
        ImportMode::Merge
    };
    let report = memory.import(&text, mode, WRITER)?;
    style::line(&serde_json::to_string(&report)?);
    Ok(ExitCode::SUCCESS)
}

fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read stdin")?;
    Ok(text)
}
