//! What needs the user: gathered from the parts, the worst first.

use super::{Inner, lock};
use crate::api::{
    ApiError, Attention, ErrorCode, Level, SandboxState, SecretStore, ServerState, Subject,
    UpdateState,
};

impl Inner {
    pub(super) fn attention(&self) -> Vec<Attention> {
        let mut all = Vec::new();
        let mut add = |id: String, level: Level, error: ApiError, subject: Subject| {
            all.push(Attention {
                id,
                level,
                error,
                subject,
            });
        };
        {
            let told = lock(&self.told);
            if let Some(SandboxState::Unavailable { error }) =
                told.sandbox.as_ref().map(|sandbox| &sandbox.state)
            {
                add(
                    "sandbox".to_owned(),
                    Level::Error,
                    error.clone(),
                    Subject::Sandbox,
                );
            }
            for server in told.servers.values().filter(|server| server.enabled) {
                let name = server.name.clone();
                let error = match &server.state {
                    ServerState::Failed { error, .. } => error.clone(),
                    ServerState::NeedsValue { names } => {
                        let message =
                            format!("server `{name}` needs a value for {}", names.join(", "));
                        ApiError::new(ErrorCode::SecretMissing, message)
                    }
                    ServerState::NeedsSignIn => ApiError::new(
                        ErrorCode::ServerAuthRequired,
                        format!("server `{name}` needs you to sign in"),
                    ),
                    ServerState::Stopped | ServerState::Starting | ServerState::Ready => continue,
                };
                add(
                    format!("server {name}"),
                    Level::Warning,
                    error,
                    Subject::Server { name },
                );
            }
            for problem in &told.problems {
                let path = problem.path.clone();
                let place = match (problem.line, problem.column) {
                    (Some(line), Some(column)) => format!("{path}:{line}:{column}"),
                    _ => path.clone(),
                };
                let entry = problem.entry.as_ref().map(|entry| format!("`{entry}`: "));
                let message = format!("{place}: {}{}", entry.unwrap_or_default(), problem.message);
                let error = ApiError::new(ErrorCode::EntryUnreadable, message.clone());
                add(
                    format!("entry {message}"),
                    Level::Warning,
                    error,
                    Subject::Entry { path },
                );
            }
        }
        for problem in self.bridge.settings_problems().iter() {
            let message = self.redacted(&problem.to_string());
            let error = ApiError::new(ErrorCode::SettingsInvalid, message.clone())
                .hint("Correct it; the default is in force");
            add(
                format!("settings {message}"),
                Level::Warning,
                error,
                Subject::Settings,
            );
        }
        for finding in self.bridge.findings() {
            let client = finding.id.to_owned();
            let error = ApiError::new(ErrorCode::ClientConfigConflict, finding.to_string());
            let id = format!("client {client} {}", finding.file.display());
            add(id, Level::Warning, error, Subject::Client { client });
        }
        if let Some(problem) = self.bridge.activity().problem() {
            let error = ApiError::new(ErrorCode::Internal, problem)
                .hint("Free some space, or look at the log");
            add(
                "activity".to_owned(),
                Level::Warning,
                error,
                Subject::Settings,
            );
        }
        if let SecretStore {
            error: Some(error), ..
        } = self.secret_store()
        {
            add(
                "secrets".to_owned(),
                Level::Warning,
                error,
                Subject::Secrets,
            );
        }
        if let UpdateState::Failed { error } = &*lock(&self.update) {
            add(
                "update".to_owned(),
                Level::Warning,
                error.clone(),
                Subject::Update,
            );
        }
        // Stable: what is equally bad stays in the order of the parts.
        all.sort_by_key(|it| match it.level {
            Level::Error => 0,
            Level::Warning => 1,
        });
        all
    }
}
