//! The diagnostics bundle: a few files of plain text about this installation, redacted, shown before
//! they are saved. No code, no output, no arguments and no remembered value is among them.

use std::fmt::Write as _;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Desk, Inner, blocking, errors, lock, save_file};
use crate::activity::Filter;
use crate::api::{DiagnosticsFile, ServerState};
use crate::redact;

/// The end of the log that goes in.
const LOG_BYTES_MAX: u64 = 256 * 1024;

/// Runs that are listed.
const RUNS_MAX: usize = 100;

impl Desk {
    /// What a diagnostics bundle would hold.
    pub async fn read_diagnostics(&self) -> Answer<Vec<DiagnosticsFile>> {
        let inner = Arc::clone(&self.0);
        blocking(move || Ok(inner.diagnostics())).await
    }

    /// Save that bundle as one text file; gives its path.
    pub async fn save_diagnostics(&self, path: &Path) -> Answer<String> {
        let inner = Arc::clone(&self.0);
        let path = path.to_owned();
        blocking(move || {
            let files = inner.diagnostics();
            save_file(&path, |out| {
                let mut text = String::new();
                for file in files {
                    // Writing into a string cannot fail.
                    let _ = write!(
                        text,
                        "==== {} ====\n{}\n\n",
                        file.name,
                        file.text.trim_end()
                    );
                }
                out.write_all(text.as_bytes())
                    .map_err(|error| errors::not_written(&path, &error))
            })
        })
        .await
    }
}

impl Inner {
    fn diagnostics(&self) -> Vec<DiagnosticsFile> {
        let file = |name: &str, text: String| DiagnosticsFile {
            name: name.to_owned(),
            text: self.redacted(&text),
        };
        vec![
            file("versions.txt", self.versions()),
            file("attention.txt", self.attention_text()),
            file("settings.json", self.settings_text()),
            file("servers.txt", self.servers_text()),
            file("sandbox.json", self.sandbox_text()),
            file("runs.txt", self.runs_text()),
            file("runbridge.log", self.log_text()),
        ]
    }

    fn versions(&self) -> String {
        let app = self.app_info();
        let system = crate::paths::Os::CURRENT;
        let clients = self.bridge.clients().borrow().clone();
        let mut text = format!(
            "runbridge {}\nsystem {system:?} {}\nsecrets {:?}\nsettings {}\nstate {}\nlogs {}\n",
            app.version,
            std::env::consts::ARCH,
            app.secret_store.kind,
            app.settings_file,
            app.state_folder,
            app.logs_folder,
        );
        for client in clients {
            let name = client.name.unwrap_or_default();
            let version = client.client_version.unwrap_or_default();
            let revision = client.revision.unwrap_or_default();
            let _ = writeln!(
                text,
                "client {name} {version}, protocol {revision}, sidecar {}",
                client.version
            );
        }
        text
    }

    fn attention_text(&self) -> String {
        let attention = self.attention();
        if attention.is_empty() {
            return "nothing needs the user\n".to_owned();
        }
        let lines = attention
            .iter()
            .map(|it| format!("{:?}: {}\n", it.level, it.error.message));
        lines.collect()
    }

    /// The settings file without the values of variables and headers.
    fn settings_text(&self) -> String {
        let Ok(text) = std::fs::read_to_string(self.bridge.paths().settings()) else {
            return "there is no settings file\n".to_owned();
        };
        let Ok(mut settings) = serde_json::from_str::<Value>(&text) else {
            return "the settings file is no JSON, so it is not shown\n".to_owned();
        };
        hide_values(&mut settings);
        serde_json::to_string_pretty(&settings).unwrap_or_default()
    }

    fn servers_text(&self) -> String {
        let told = lock(&self.told);
        let mut text = String::new();
        for server in told.servers.values() {
            let state = match &server.state {
                ServerState::Failed { error, .. } => format!("failed: {}", error.message),
                ServerState::NeedsValue { names } => format!("needs {}", names.join(", ")),
                other => format!("{other:?}").to_lowercase(),
            };
            let on = if server.enabled { "on" } else { "off" };
            let sources: Vec<&str> = server.sources.iter().map(|it| it.client.as_str()).collect();
            let _ = writeln!(
                text,
                "{}: {on}, {state}; {:?} {}; {} of {} tools; from {}",
                server.name,
                server.transport,
                server.target,
                server.tools_enabled,
                server.tools_count,
                sources.join(", "),
            );
        }
        for problem in &told.problems {
            let _ = writeln!(text, "{}: {}", problem.path, problem.message);
        }
        text
    }

    fn sandbox_text(&self) -> String {
        serde_json::to_string_pretty(&self.sandbox_status()).unwrap_or_default()
    }

    fn runs_text(&self) -> String {
        let page = self
            .bridge
            .activity()
            .page(&Filter::default(), None, RUNS_MAX);
        let Ok(page) = page else {
            return "the record cannot be read\n".to_owned();
        };
        let mut text = format!("{} runs on record, the newest:\n", page.total);
        for run in page.runs {
            let took = run.ended_at.map_or(0, |ended| ended - run.started_at);
            let _ = writeln!(
                text,
                "{} {} {} {took} ms, {} calls, {} failed, {}",
                run.started_at,
                run.client,
                run.status,
                run.calls,
                run.calls_failed,
                run.kind.unwrap_or_default(),
            );
        }
        text
    }

    /// The end of the newest log.
    fn log_text(&self) -> String {
        let files = std::fs::read_dir(self.logs())
            .into_iter()
            .flatten()
            .flatten();
        let newest = files
            .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
            .max();
        let Some((_, path)) = newest else {
            return "there is no log\n".to_owned();
        };
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = std::fs::File::open(&path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX)))?;
            let mut bytes = Vec::new();
            file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("{} cannot be read: {error}\n", path.display()),
        }
    }
}

/// Values of variables and headers out of our settings, whatever they look like.
fn hide_values(settings: &mut Value) {
    let hide = |values: &mut Value| {
        for value in values
            .as_object_mut()
            .into_iter()
            .flat_map(|it| it.values_mut())
        {
            *value = json!(redact::STARS);
        }
    };
    if let Some(answers) = settings.get_mut("answers") {
        hide(answers);
    }
    let own = settings
        .get_mut("own_servers")
        .and_then(Value::as_object_mut);
    for entry in own.into_iter().flat_map(|own| own.values_mut()) {
        for key in ["env", "headers"] {
            if let Some(values) = entry.get_mut(key) {
                hide(values);
            }
        }
    }
}
