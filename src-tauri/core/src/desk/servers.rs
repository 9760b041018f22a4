//! Servers and their tools: how they stand, and the user's switches.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{Answer, Desk, Inner, errors, lock};
use crate::api::{
    ApiError, ErrorCode, Server, ServerDetail, ServerState, Source, Tool, ToolDetail, Transport,
    Variable,
};
use crate::catalog::{ServerStatus, ToolRef};
use crate::clients::entry::{Entry, EntryTransport};
use crate::redact::{self, Redactor};
use crate::secrets::Secrets;
use crate::settings::{ServerSettings, Settings};
use crate::timestamp::now_ms;
use crate::upstream::UpstreamState;

/// The client under which our own servers are listed.
pub(super) const OWN: &str = "runbridge";

impl Desk {
    /// Let runs call a server, or not. It counts for the next call of a run that is under way.
    pub async fn set_server_enabled(&self, server: String, enabled: bool) -> Answer<()> {
        let entry = self.0.entry(&server)?;
        let mut keys = self.0.decision_keys(&entry);
        keys.push("enabled".to_owned());
        self.0
            .write_settings(vec![(keys, Some(enabled.into()))])
            .await
    }

    /// Let runs call a tool, or not. As [`Desk::set_server_enabled`].
    pub async fn set_tool_enabled(
        &self,
        server: String,
        tool: String,
        enabled: bool,
    ) -> Answer<()> {
        let entry = self.0.entry(&server)?;
        let known = self.0.tool(&server, &tool)?;
        let name = known.tool().name.clone();
        let settings = self.0.bridge.settings();
        let decided = settings.decided(&entry);
        if enabled && denied_by_source(&entry, &decided, &name) {
            let message = format!(
                "the file that names server `{server}` denies tool `{name}`, so it cannot be turned on here"
            );
            return Err(ApiError::new(ErrorCode::ToolDenied, message)
                .hint("Change it in the client that the server comes from"));
        }
        self.0.write_tools(&entry, &decided, &[name], enabled).await
    }

    /// The same for all tools of a server that its source does not deny.
    pub async fn set_all_tools_enabled(&self, server: String, enabled: bool) -> Answer<()> {
        let entry = self.0.entry(&server)?;
        let tools = self.0.bridge.catalog().all_tools(&server);
        let tools = tools.map_err(|error| self.0.upstream(&error))?;
        let settings = self.0.bridge.settings();
        let decided = settings.decided(&entry);
        let names: Vec<String> = tools
            .iter()
            .map(|(tool, _)| tool.tool().name.clone())
            .filter(|name| !denied_by_source(&entry, &decided, name))
            .collect();
        self.0.write_tools(&entry, &decided, &names, enabled).await
    }

    /// Stop a server and start it now; what went wrong before is forgotten.
    pub async fn restart_server(&self, server: String) -> Answer<()> {
        let restarted = self.0.bridge.catalog().restart(&server).await;
        restarted.map_err(|error| self.0.upstream(&error))
    }

    /// Begin to sign in to a server; gives the address that the shell opens in the user's browser. The
    /// rest goes on by itself, and the server is started when it is done.
    pub async fn sign_in_server(&self, server: String) -> Answer<String> {
        let begun = self.0.bridge.sign_in(&server).map_err(ApiError::from)?;
        let url = begun.url().await.map_err(ApiError::from)?;
        let inner = std::sync::Arc::clone(&self.0);
        // It has a deadline of its own, after which nobody is waited for.
        let waiting = tokio::spawn(async move {
            match begun.finished().await {
                Ok(()) => {
                    let restarted = inner.bridge.catalog().restart(&server).await;
                    if let Err(error) = restarted {
                        tracing::info!("{error}");
                    }
                }
                Err(error) => tracing::warn!("nobody signed in to `{server}`: {error}"),
            }
        });
        *lock(&self.0.signing_in) = Some(tokio_util::task::AbortOnDropHandle::new(waiting));
        Ok(url)
    }

    /// A server with its tools and variables.
    pub fn read_server(&self, server: &str) -> Answer<ServerDetail> {
        let inner = &self.0;
        let entry = inner.entry(server)?;
        inner.look_at_servers(true);
        let catalog = inner.bridge.catalog();
        let failed = |error| inner.upstream(&error);
        let status = catalog.servers().into_iter().find(|it| it.name == server);
        let shown = lock(&inner.told).servers.get(server).cloned();
        let (Some(status), Some(shown)) = (status, shown) else {
            return Err(not_found(server));
        };
        let settings = inner.bridge.settings();
        let decided = settings.decided(&entry);
        let tools = catalog.all_tools(server).map_err(failed)?;
        let redactor = inner.bridge.redactor();
        Ok(ServerDetail {
            tools: tools
                .iter()
                .map(|(tool, allowed)| self::tool(&entry, &decided, tool, *allowed))
                .collect(),
            variables: variables(&entry, &redactor),
            cwd: status.cwd.map(|cwd| cwd.display().to_string()),
            instructions: status.instructions.map(|text| inner.redacted(&text)),
            server: shown,
        })
    }

    /// A tool with its schema.
    pub fn read_tool(&self, server: &str, tool: &str) -> Answer<ToolDetail> {
        let tool = self.0.tool(server, tool)?;
        let pretty = |schema: &Value| serde_json::to_string_pretty(schema).unwrap_or_default();
        let listed = tool.tool();
        Ok(ToolDetail {
            name: listed.name.clone(),
            description: self
                .0
                .redacted(listed.description.as_deref().unwrap_or_default()),
            signature: tool.signature(),
            input_schema: self.0.redacted(&pretty(&listed.input_schema)),
            output_schema: listed
                .output_schema
                .as_ref()
                .map(|schema| self.0.redacted(&pretty(schema))),
        })
    }
}

impl Inner {
    pub(super) fn upstream(&self, error: &crate::upstream::UpstreamError) -> ApiError {
        errors::of_upstream(error, &self.bridge.redactor())
    }

    pub(super) fn entry(&self, server: &str) -> Answer<Entry> {
        let entry = self.bridge.catalog().entry(server);
        entry.map_err(|error| self.upstream(&error))
    }

    fn tool(&self, server: &str, tool: &str) -> Answer<ToolRef> {
        let tools = self.bridge.catalog().all_tools(server);
        let mut tools = tools.map_err(|error| self.upstream(&error))?.into_iter();
        let found = tools.find(|(known, _)| known.tool().name == tool);
        found.map(|(found, _)| found).ok_or_else(|| {
            let message = format!("server `{server}` has no tool `{tool}`");
            ApiError::new(ErrorCode::ToolNotFound, message)
        })
    }

    /// Where in the settings file the decisions on a server stand or shall stand.
    fn decision_keys(&self, entry: &Entry) -> Vec<String> {
        let settings = self.bridge.settings();
        let keys: Vec<String> = entry
            .sources
            .iter()
            .map(|source| format!("{}/{}", source.client, source.name))
            .chain([entry.name.clone()])
            .collect();
        let present = keys.iter().find(|key| settings.servers.contains_key(*key));
        let key = present.or(keys.first()).cloned().unwrap_or_default();
        vec!["servers".to_owned(), key]
    }

    async fn write_tools(
        &self,
        entry: &Entry,
        decided: &ServerSettings,
        names: &[String],
        enabled: bool,
    ) -> Answer<()> {
        let mut denied = decided.tools_denied.clone();
        denied.retain(|name| !names.contains(name));
        if !enabled {
            denied.extend_from_slice(names);
        }
        denied.sort();
        denied.dedup();
        let key = |name: &str| {
            let mut keys = self.decision_keys(entry);
            keys.extend(["tools".to_owned(), name.to_owned()]);
            keys
        };
        let mut changes = vec![(key("deny"), Some(json!(denied)))];
        if let Some(allowed) = &decided.tools_allowed
            && enabled
            && !allowed.iter().any(|name| name == "*")
        {
            let mut allowed = allowed.clone();
            let missing = names.iter().filter(|name| !decided_allows(decided, name));
            allowed.extend(missing.cloned());
            changes.push((key("allow"), Some(json!(allowed))));
        }
        self.write_settings(changes).await
    }

    /// Every server as a window shows it, but for what takes time to measure.
    pub(super) fn servers(&self) -> Vec<Server> {
        let settings = self.bridge.settings();
        let redactor = self.bridge.redactor();
        let catalog = self.bridge.catalog();
        let shown = catalog.servers().into_iter().filter_map(|status| {
            // It may have gone meanwhile.
            let entry = catalog.entry(&status.name).ok()?;
            let tools = catalog.all_tools(&status.name).ok()?;
            Some(server(status, &entry, &tools, &settings, &redactor))
        });
        shown.collect()
    }
}

pub(super) fn not_found(server: &str) -> ApiError {
    let message = format!("no server is named `{server}`");
    ApiError::new(ErrorCode::ServerNotFound, message)
}

fn server(
    status: ServerStatus,
    entry: &Entry,
    tools: &[(ToolRef, bool)],
    settings: &Settings,
    redactor: &Redactor,
) -> Server {
    let decided = settings.decided(entry);
    let enabled = status.off.is_none();
    let redacted = |text: &str| redactor.text(text).into_owned();
    Server {
        alias: status.alias,
        description: status.description.as_deref().map(redacted),
        transport: match &entry.transport {
            EntryTransport::Stdio { .. } => Transport::Stdio,
            EntryTransport::Http { sse: true, .. } => Transport::Sse,
            EntryTransport::Http { sse: false, .. } => Transport::Http,
        },
        target: target(&entry.transport, redactor),
        sources: status.sources.iter().map(source).collect(),
        own: status.sources.first().is_some_and(|it| it.client == OWN),
        enabled,
        off_reason: status.off.filter(|_| decided.enabled != Some(false)),
        state: state(&status.state, &status.needs, enabled, redactor),
        revision: status.revision,
        started_at: status.started_at.and_then(milliseconds),
        start_ms: None,
        pid: status.pid,
        memory_bytes: None,
        tools_count: tools.len() as u32,
        tools_enabled: tools.iter().filter(|(_, allowed)| *allowed).count() as u32,
        tokens: tools.iter().map(|(tool, _)| tool.tokens()).sum(),
        calls_today: 0,
        notes: status.notes.iter().map(|note| redacted(note)).collect(),
        name: status.name,
    }
}

/// How it is reached, as a person would write it.
fn target(transport: &EntryTransport, redactor: &Redactor) -> String {
    let text = match transport {
        EntryTransport::Stdio { command, args, .. } => {
            let quoted = |word: &String| {
                if word.contains(char::is_whitespace) || word.is_empty() {
                    format!("\"{word}\"")
                } else {
                    word.clone()
                }
            };
            let words: Vec<String> = std::iter::once(command).chain(args).map(quoted).collect();
            words.join(" ")
        }
        EntryTransport::Http { url, .. } => url.clone(),
    };
    redactor.text(&text).into_owned()
}

pub(super) fn source(source: &crate::clients::entry::Source) -> Source {
    Source {
        client: source.client.clone(),
        path: source.path.display().to_string(),
        name: source.name.clone(),
    }
}

fn state(
    state: &UpstreamState,
    needs: &[String],
    enabled: bool,
    redactor: &Redactor,
) -> ServerState {
    if enabled && !needs.is_empty() {
        return ServerState::NeedsValue {
            names: needs.to_vec(),
        };
    }
    match state {
        UpstreamState::Stopped => ServerState::Stopped,
        UpstreamState::Starting => ServerState::Starting,
        UpstreamState::Ready => ServerState::Ready,
        UpstreamState::Failed { .. } if !enabled => ServerState::Stopped,
        UpstreamState::Failed { error, .. } if error.wants_sign_in() => ServerState::NeedsSignIn,
        UpstreamState::Failed { error, retry_in } => ServerState::Failed {
            error: errors::of_upstream(error, redactor),
            retry_at: (!retry_in.is_zero()).then(|| now_ms() + retry_in.as_millis() as i64),
        },
    }
}

fn milliseconds(at: SystemTime) -> Option<i64> {
    let since: Duration = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

fn tool(entry: &Entry, decided: &ServerSettings, tool: &ToolRef, allowed: bool) -> Tool {
    let listed = tool.tool();
    let described = listed.description.as_deref().unwrap_or_default();
    let hints = listed.annotations.as_ref();
    Tool {
        summary: described
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .unwrap_or_default()
            .to_owned(),
        enabled: allowed,
        denied_by_source: denied_by_source(entry, decided, &listed.name),
        tokens: tool.tokens(),
        read_only: hints.and_then(|hints| hints.get("readOnlyHint")) == Some(&Value::Bool(true)),
        name: listed.name.clone(),
    }
}

fn decided_allows(decided: &ServerSettings, tool: &str) -> bool {
    let listed = |names: &Vec<String>| names.iter().any(|name| name == tool || name == "*");
    decided.tools_allowed.as_ref().is_none_or(listed)
}

/// Whether the file that names the server keeps a tool away, whatever the user decided with us.
fn denied_by_source(entry: &Entry, decided: &ServerSettings, tool: &str) -> bool {
    let named = |names: &[String]| names.iter().any(|name| name == tool);
    let denied = named(&entry.tools_denied) && !named(&decided.tools_denied);
    // The user's list stands in place of the file's.
    let not_allowed = decided.tools_allowed.is_none()
        && entry
            .tools_allowed
            .as_ref()
            .is_some_and(|allowed| !allowed.iter().any(|name| name == tool || name == "*"));
    denied || not_allowed
}

/// The environment of a process, or the headers of a remote server.
fn variables(entry: &Entry, redactor: &Redactor) -> Vec<Variable> {
    let missing = |name: &str| entry.needs.iter().any(|needed| needed == name);
    let variable = |name: &str, value: Option<&str>| {
        let missing = missing(name);
        let secret = redact::names_a_secret(name)
            || value.is_some_and(|value| Secrets::reference(value).is_some())
            || value.is_some_and(|value| {
                redact::is_secret_value(value) || redactor.text(value) != value
            });
        Variable {
            name: name.to_owned(),
            value: value.filter(|_| !secret && !missing).map(str::to_owned),
            secret,
            missing,
        }
    };
    let mut variables: Vec<Variable> = match &entry.transport {
        EntryTransport::Stdio { env, .. } => env
            .iter()
            .map(|(name, value)| variable(name, value.as_deref()))
            .collect(),
        EntryTransport::Http { headers, .. } => headers
            .iter()
            .map(|(name, value)| variable(name, Some(value)))
            .collect(),
    };
    // Inputs and variables that stand inside arguments have no line of their own above.
    for name in &entry.needs {
        if !variables.iter().any(|known| known.name == *name) {
            variables.push(Variable {
                name: name.clone(),
                value: None,
                secret: redact::names_a_secret(name),
                missing: true,
            });
        }
    }
    variables
}
