//! Servers that the user adds here: read from a piece of any client's file, written to our settings.

use super::{Answer, Desk, Inner, servers};
use crate::api::{
    ApiError, EntryProblem, ErrorCode, NewServer, NewTransport, NewVariable, ParsedServers,
};
use crate::clients::entry::{Entry, EntryTransport};
use crate::clients::{self, Search};
use crate::redact;

/// A longer piece is no configuration.
const PASTED_BYTES_MAX: usize = 1 << 20;

/// Longer names are no names.
const NAME_CHARS_MAX: usize = 100;

impl Desk {
    /// Read a piece of any client's JSON, TOML or YAML without changing anything.
    pub fn parse_servers(&self, text: &str) -> Answer<ParsedServers> {
        if text.len() > PASTED_BYTES_MAX {
            let message = format!("the text is longer than {} KiB", PASTED_BYTES_MAX >> 10);
            return Err(ApiError::new(ErrorCode::EntryUnreadable, message));
        }
        let bridge = &self.0.bridge;
        let (environment, settings) = (bridge.environment(), bridge.settings());
        let search = Search::new(bridge.paths(), &environment, &settings);
        let (entries, problems) = clients::read_pasted(&search, text);
        Ok(ParsedServers {
            servers: entries.into_iter().map(new_server).collect(),
            problems: problems
                .into_iter()
                .map(|problem| EntryProblem {
                    client: servers::OWN.to_owned(),
                    path: String::new(),
                    line: problem.position.map(|at| at.line),
                    column: problem.position.map(|at| at.column),
                    entry: problem.entry,
                    message: problem.message,
                })
                .collect(),
        })
    }

    /// Add a server to our own settings.
    pub async fn add_server(&self, server: NewServer) -> Answer<()> {
        let name = server.name.trim().to_owned();
        let refused = |message: String| ApiError::new(ErrorCode::InvalidArguments, message);
        if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
            return Err(refused(format!(
                "a name has 1 to {NAME_CHARS_MAX} characters"
            )));
        }
        if self.0.entry(&name).is_ok() {
            let message = format!("a server is named `{name}` already");
            return Err(
                ApiError::new(ErrorCode::ServerExists, message).hint("Give it another name")
            );
        }
        let entry = self
            .0
            .entry_of(&name, server.transport, server.variables)
            .await?;
        let keys = vec!["own_servers".to_owned(), name];
        self.0.write_settings(vec![(keys, Some(entry))]).await
    }

    /// Remove a server that was added here, with its secrets.
    pub async fn remove_server(&self, server: String) -> Answer<()> {
        let settings = self.0.bridge.settings();
        let Some(entry) = settings.own_servers.get(&server).cloned() else {
            let message =
                format!("server `{server}` was not added here, so it cannot be removed here");
            return Err(ApiError::new(ErrorCode::ServerNotFound, message)
                .hint("Turn it off, or remove it in the client that it comes from"));
        };
        let decided = format!("{}/{server}", servers::OWN);
        let changes = vec![
            (vec!["own_servers".to_owned(), server.clone()], None),
            (vec!["servers".to_owned(), decided], None),
        ];
        self.0.write_settings(changes).await?;
        self.0.forget_secrets(&entry).await;
        Ok(())
    }
}

fn new_server(entry: Entry) -> NewServer {
    let variable = |(name, value): (String, String)| NewVariable {
        secret: redact::names_a_secret(&name) || redact::is_secret_value(&value),
        name,
        value,
    };
    let (transport, variables) = match entry.transport {
        EntryTransport::Stdio {
            command,
            args,
            env,
            cwd,
        } => {
            let cwd = cwd.map(|cwd| cwd.display().to_string());
            let set = env
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)));
            (
                NewTransport::Stdio { command, args, cwd },
                set.map(variable).collect(),
            )
        }
        EntryTransport::Http { url, headers, sse } => (
            NewTransport::Http { url, sse },
            headers.into_iter().map(variable).collect(),
        ),
    };
    NewServer {
        name: entry.name,
        transport,
        variables,
    }
}

impl Inner {
    /// The entry as our settings keep it, in the shape that clients know.
    async fn entry_of(
        &self,
        server: &str,
        transport: NewTransport,
        variables: Vec<NewVariable>,
    ) -> Answer<serde_json::Value> {
        let refused = |message: &str| ApiError::new(ErrorCode::InvalidArguments, message);
        let (mut entry, key) = match transport {
            NewTransport::Stdio { command, args, cwd } => {
                if command.trim().is_empty() {
                    return Err(refused("a command is missing"));
                }
                let mut entry = serde_json::json!({ "command": command.trim(), "args": args });
                if let Some(cwd) = cwd.filter(|cwd| !cwd.trim().is_empty()) {
                    entry["cwd"] = cwd.trim().into();
                }
                (entry, "env")
            }
            NewTransport::Http { url, sse } => {
                let url = url.trim();
                if !(url.starts_with("https://") || url.starts_with("http://")) {
                    return Err(refused("an address begins with https:// or http://"));
                }
                let kind = if sse { "sse" } else { "http" };
                (serde_json::json!({ "type": kind, "url": url }), "headers")
            }
        };
        let mut set = serde_json::Map::new();
        for variable in variables {
            let name = variable.name.trim().to_owned();
            if name.is_empty() || name.contains('=') || name.contains('\0') {
                return Err(refused("a variable has a name without `=`"));
            }
            let value = if variable.secret && !variable.value.is_empty() {
                self.keep_secret(&format!("{server}/{name}"), variable.value)
                    .await?
            } else {
                variable.value
            };
            set.insert(name, value.into());
        }
        if !set.is_empty() {
            entry[key] = set.into();
        }
        Ok(entry)
    }
}
