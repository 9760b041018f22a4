//! Clients: whether their files name us, and the changes that a user wants made in them.
//!
//! A change is made only if it is the one that was looked at. Files are read and written by
//! [`crate::clients::connect`] alone, off the threads that serve others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Answer, Desk, Inner, blocking, lock};
use crate::api::{
    ApiError, Change, Client, ClientAction, ClientPlan, ClientServer, ClientState, ErrorCode,
};
use crate::clients::Search;
use crate::clients::connect::{
    Action, ConnectError, Connector, Running, Standing, State, stable_program,
};

impl Desk {
    /// Every client on this machine. From now on windows are told what differs.
    pub async fn read_clients(&self) -> Answer<Vec<Client>> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            let clients = inner.clients()?;
            lock(&inner.told).clients = Some(clients.clone());
            Ok(clients)
        })
        .await
    }

    /// What an action would change.
    pub async fn plan_client(
        &self,
        client: String,
        action: ClientAction,
        file: Option<String>,
        drop_mark: bool,
    ) -> Answer<ClientPlan> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            inner.with_connector(drop_mark, |connector| {
                let file = file.as_deref().map(Path::new);
                let plan = connector.plan(&client, action.into(), file, false)?;
                let [before, after] = plan.costs();
                Ok(ClientPlan {
                    client,
                    file: plan.file.display().to_string(),
                    creates: plan.creates(),
                    changes: plan.is_change(),
                    diff: without_heading(&inner.redacted(&plan.diff())),
                    notes: plan.notes.iter().map(|it| inner.redacted(it)).collect(),
                    tokens_before: before.tokens,
                    tokens_after: after.tokens,
                    tokens_unknown: before.unknown.max(after.unknown) as u32,
                    seen: plan.name(),
                })
            })
        })
        .await
    }

    /// Make the change that was looked at, or none.
    pub async fn change_client(
        &self,
        client: String,
        action: ClientAction,
        file: Option<String>,
        drop_mark: bool,
        keep: bool,
        seen: String,
    ) -> Answer<Client> {
        let inner = Arc::clone(&self.0);
        let changed = blocking(move || {
            inner.with_connector(drop_mark, |connector| {
                let file = file.as_deref().map(Path::new);
                let plan = connector.plan(&client, action.into(), file, keep)?;
                if plan.name() != seen {
                    return Err(overtaken(&plan.file));
                }
                connector.apply(&plan)?;
                if matches!(action, ClientAction::Connect | ClientAction::Move) {
                    connector.keep(&client, keep)?;
                }
                let standings = connector.standings();
                let standing = standings.into_iter().find(|it| it.id == client);
                standing.map(|it| inner.client(it)).ok_or_else(|| {
                    ApiError::new(ErrorCode::ClientNotFound, format!("`{client}` is gone"))
                })
            })
        })
        .await?;
        // What the file said of servers may have changed with it.
        self.0.bridge.reload().await;
        self.0.bridge.guard().await;
        Ok(changed)
    }

    /// Put our entry back whenever it is lost, or no longer.
    pub async fn keep_client(&self, client: String, keep: bool) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            inner.with_connector(false, |connector| Ok(connector.keep(&client, keep)?))?;
            inner.look_at_clients();
            Ok(())
        })
        .await
    }

    /// Let the servers of a client keep their names before those of other clients, or no longer.
    pub async fn prefer_client(&self, client: String, preferred: bool) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        let known = blocking(move || inner.clients()).await?;
        if !known.iter().any(|it| it.id == client) {
            let message = format!("no client on this machine is called `{client}`");
            return Err(ApiError::new(ErrorCode::ClientNotFound, message));
        }
        let mut order = self.0.bridge.settings().client_order.clone();
        order.retain(|id| *id != client);
        if preferred {
            order.insert(0, client);
        }
        let order = (!order.is_empty()).then(|| order.into());
        let changes = vec![(vec!["client_order".to_owned()], order)];
        self.0.write_settings(changes).await
    }

    /// A client's file, for the shell to show in the system's file manager.
    pub async fn client_file(&self, client: String, file: Option<String>) -> Answer<PathBuf> {
        let inner = Arc::clone(&self.0);
        blocking(move || {
            inner.with_connector(false, |connector| {
                Ok(connector.file(&client, file.as_deref().map(Path::new))?)
            })
        })
        .await
    }
}

impl Inner {
    /// Tell windows if clients differ from what they were told; nothing if nobody asked. Blocks.
    pub(super) fn look_at_clients(&self) {
        if lock(&self.told).clients.is_none() {
            return;
        }
        let Ok(clients) = self.clients() else {
            return;
        };
        let mut told = lock(&self.told);
        if told.clients.as_ref() != Some(&clients) {
            told.clients = Some(clients.clone());
            self.bridge.events().tell(Change::Clients { clients });
        }
    }

    fn clients(&self) -> Answer<Vec<Client>> {
        self.with_connector(false, |connector| {
            let standings = connector.standings().into_iter();
            Ok(standings.map(|it| self.client(it)).collect())
        })
    }

    fn with_connector<T>(
        &self,
        drop_mark: bool,
        act: impl FnOnce(&Connector<'_>) -> Answer<T>,
    ) -> Answer<T> {
        let (environment, settings) = (self.bridge.environment(), self.bridge.settings());
        let mut search = Search::new(self.bridge.paths(), &environment, &settings);
        let mut program = self.app.sidecar.clone();
        if program.as_os_str().is_empty() {
            let this = std::env::current_exe().and_then(dunce::canonicalize);
            program = this.map_err(|error| super::errors::internal(error.to_string()))?;
        } else {
            search.own_programs.push(program.clone());
        }
        let program = stable_program(&search, &program)?;
        let connector = Connector::new(&search, &program, Running::now());
        act(&if drop_mark {
            connector.dropping_mark()
        } else {
            connector
        })
    }

    fn client(&self, standing: Standing) -> Client {
        let order = &self.bridge.settings().client_order;
        let servers = standing.servers.into_iter().map(|server| ClientServer {
            name: server.name,
            off: server.off.map(|reason| self.redacted(&reason)),
            moved: server.moved,
            tools: server.tools.map(|tools| tools as u32),
            tokens: server.tokens,
        });
        Client {
            id: standing.id.to_owned(),
            name: standing.name.to_owned(),
            announces: standing.announces,
            file: standing.file.map(|file| file.display().to_string()),
            state: self.client_state(standing.state),
            running: standing.running,
            restart: Some(standing.restart.to_owned()).filter(|restart| !restart.is_empty()),
            keep: standing.keep,
            preferred: order.iter().any(|id| id == standing.id),
            servers: servers.collect(),
        }
    }

    fn client_state(&self, state: State) -> ClientState {
        match state {
            State::NotConnected => ClientState::NotConnected,
            State::Connected { name } => ClientState::Connected { name },
            State::Extension { manifest } => ClientState::Extension {
                manifest: manifest.display().to_string(),
            },
            State::Lost => ClientState::Lost,
            State::Changed => ClientState::Changed,
            State::Shadowed { by } => ClientState::Shadowed {
                by: by.display().to_string(),
            },
            State::NameTaken => ClientState::NameTaken,
            State::Forbidden { reason } => ClientState::Forbidden { reason },
            State::Several { files } => ClientState::Several {
                files: files.iter().map(|it| it.display().to_string()).collect(),
            },
            State::Unreadable {
                position,
                message,
                mark_only,
            } => ClientState::Unreadable {
                line: position.map(|at| at.line),
                column: position.map(|at| at.column),
                message: self.redacted(&message),
                mark_only,
            },
        }
    }
}

impl From<ClientAction> for Action {
    fn from(action: ClientAction) -> Self {
        match action {
            ClientAction::Connect => Self::Connect,
            ClientAction::Disconnect => Self::Disconnect,
            ClientAction::Move => Self::Move,
            ClientAction::Restore => Self::Restore,
        }
    }
}

impl From<ConnectError> for ApiError {
    fn from(error: ConnectError) -> Self {
        let (code, hint) = match &error {
            ConnectError::UnknownClient { .. } => (ErrorCode::ClientNotFound, None),
            ConnectError::NotInstalled { .. } => (
                ErrorCode::ClientNotFound,
                Some("Start it once, then look again"),
            ),
            ConnectError::SeveralFiles { .. } => (
                ErrorCode::ClientRefused,
                Some("Choose the file that it reads"),
            ),
            ConnectError::Unreadable { .. } => (
                ErrorCode::ClientFileUnreadable,
                Some("Show the file and correct it"),
            ),
            ConnectError::ByteOrderMark { .. } => (
                ErrorCode::ClientFileUnreadable,
                Some("Connect it again from its own page, which takes the mark out"),
            ),
            ConnectError::NameTaken { .. } => (
                ErrorCode::ClientRefused,
                Some("Show the file, and rename or remove that entry"),
            ),
            ConnectError::NotItsFile { .. }
            | ConnectError::Forbidden { .. }
            | ConnectError::NothingMoved { .. }
            | ConnectError::Fleeting { .. } => (ErrorCode::ClientRefused, None),
            ConnectError::Changed { file } => return overtaken(file),
            ConnectError::Disk { .. } => (ErrorCode::ClientFileUnreadable, None),
        };
        let answer = Self::new(code, error.to_string());
        match hint {
            Some(hint) => answer.hint(hint),
            None => answer,
        }
    }
}

fn overtaken(file: &Path) -> ApiError {
    let message = format!("{} changed since this was shown", file.display());
    ApiError::new(ErrorCode::ClientConfigConflict, message).hint("Look at the change again")
}

/// A diff without the lines that name its file.
fn without_heading(diff: &str) -> String {
    let lines = diff.lines().skip_while(|line| !line.starts_with("@@"));
    lines.flat_map(|line| [line, "\n"]).collect()
}
