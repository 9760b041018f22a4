//! Follows the bridge: looks at a part when it hints that it differs, and tells windows what does.
//!
//! Each look compares with what was told last, so that a hint too many costs nothing and one too few
//! is made good by the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::broadcast::error::RecvError;

use super::{Inner, blocking, limits, lock, servers};
use crate::api::{Change, Connection, EntryProblem, SandboxKind, ServerState, SkippedEntry};
use crate::catalog::CatalogEvent;
use crate::events::Hint;
use crate::processes;
use crate::status;

/// A moment of the next try that was computed anew differs by less than this from what was told.
const SAME_RETRY_MS: i64 = 1_500;

/// Runs until it is dropped.
pub(super) async fn follow(inner: Arc<Inner>) {
    let mut hints = inner.bridge.events().hints();
    let mut catalog = inner.bridge.catalog().subscribe();
    let mut clients = inner.bridge.clients();
    let sandboxes = inner.bridge.sandboxes();
    let mut container = sandboxes.progress(SandboxKind::Container);
    let mut builtin = sandboxes.progress(SandboxKind::Wasi);
    let mut settled = sandboxes.settled();
    let mut told = inner.bridge.events().subscribe();
    let everything = Arc::clone(&inner);
    let _ = blocking(move || {
        everything.look_at_everything();
        Ok(())
    })
    .await;
    inner.show_status();
    loop {
        tokio::select! {
            hint = hints.recv() => match hint {
                Ok(hint) => {
                    // Many runs that end together are one look.
                    let mut all = vec![hint];
                    while let Ok(more) = hints.try_recv() {
                        if !all.contains(&more) {
                            all.push(more);
                        }
                    }
                    for hint in all {
                        inner.look(hint).await;
                    }
                }
                Err(RecvError::Lagged(_)) => {
                    let all = Arc::clone(&inner);
                    let _ = blocking(move || { all.look_at_everything(); Ok(()) }).await;
                }
                Err(RecvError::Closed) => return,
            },
            event = catalog.recv() => match event {
                Ok(CatalogEvent::Servers) => inner.look_at_files(),
                Ok(CatalogEvent::State { server }) => inner.server_changed(&server),
                Ok(CatalogEvent::Tools { .. }) | Err(RecvError::Lagged(_)) => inner.look_at_servers(false),
                Err(RecvError::Closed) => return,
            },
            Ok(()) = clients.changed() => {
                clients.mark_unchanged();
                inner.look_at_connections();
                let seen = Arc::clone(&inner);
                let _ = blocking(move || { seen.look_at_seen(); Ok(()) }).await;
            }
            Ok(()) = container.changed() => {
                container.mark_unchanged();
                inner.look_at_sandbox();
            }
            Ok(()) = settled.changed() => {
                settled.mark_unchanged();
                inner.look_at_sandbox();
            }
            Ok(()) = builtin.changed() => {
                builtin.mark_unchanged();
                inner.look_at_sandbox();
            }
            // Everything that a tray shows was told as a change before.
            event = told.recv() => if !matches!(event, Err(RecvError::Closed)) {
                while told.try_recv().is_ok() {}
                inner.show_status();
            },
        }
    }
}

impl Inner {
    async fn look(self: &Arc<Self>, hint: Hint) {
        match hint {
            Hint::Discovered => {
                self.look_at_files();
                self.look_at_clients_apart().await;
            }
            Hint::Interpreters => {
                self.look_at_interpreters();
                // The first of them opened it.
                self.look_at_sandbox();
            }
            Hint::Sandbox => self.look_at_sandbox(),
            Hint::Registrations => {
                self.look_at_attention();
                self.look_at_clients_apart().await;
            }
            Hint::Memory { .. } | Hint::SavedTools | Hint::RunEnded => {
                let inner = Arc::clone(self);
                let _ = blocking(move || {
                    match hint {
                        Hint::Memory { key } => drop(inner.memory_changed(&key)),
                        Hint::SavedTools => inner.look_at_memory(),
                        _ => {
                            inner.look_at_savings();
                            inner.look_at_seen();
                            inner.look_at_servers(false);
                            inner.look_at_attention();
                        }
                    }
                    Ok(())
                })
                .await;
            }
        }
    }

    async fn look_at_clients_apart(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        let _ = blocking(move || {
            inner.look_at_clients();
            Ok(())
        })
        .await;
    }

    /// Compare every part with what was told. Blocks.
    pub(super) fn look_at_everything(&self) {
        let seen = self.seen_now();
        {
            let mut told = lock(&self.told);
            told.seen.client |= seen.client;
            told.seen.run |= seen.run;
        }
        self.look_at_seen();
        self.look_at_savings();
        self.look_at_files();
        self.look_at_servers(true);
        self.look_at_connections();
        self.look_at_interpreters();
        self.look_at_sandbox();
        self.look_at_clients();
        let totals = self.totals_now();
        let mut told = lock(&self.told);
        if told.memory != totals {
            told.memory = totals;
            self.bridge.events().tell(Change::SavedTools { totals });
        }
    }

    /// Settings and files were read again.
    pub(super) fn look_at_files(&self) {
        let events = self.bridge.events();
        let settings = self.bridge.settings();
        let (limits, shown) = (limits::all(&settings), Self::app_settings(&settings));
        let (problems, skipped) = self.entries();
        {
            let mut told = lock(&self.told);
            if told.limits != limits {
                told.limits.clone_from(&limits);
                events.tell(Change::Limits { limits });
            }
            if told.settings.as_ref() != Some(&shown) {
                told.settings = Some(shown.clone());
                events.tell(Change::Settings { settings: shown });
            }
            if told.problems != problems || told.skipped != skipped {
                told.problems.clone_from(&problems);
                told.skipped.clone_from(&skipped);
                events.tell(Change::Entries { problems, skipped });
            }
        }
        self.look_at_servers(false);
        self.look_at_sandbox();
        self.look_at_attention();
    }

    fn entries(&self) -> (Vec<EntryProblem>, Vec<SkippedEntry>) {
        let Some(discovery) = self.bridge.discovery() else {
            return Default::default();
        };
        let problems = discovery.problems.iter().map(|problem| EntryProblem {
            client: problem.client.clone(),
            path: problem.path.display().to_string(),
            line: problem.position.map(|at| at.line),
            column: problem.position.map(|at| at.column),
            entry: problem.entry.clone(),
            message: self.redacted(&problem.message),
        });
        let skipped = discovery.skipped.iter().map(|skipped| SkippedEntry {
            source: servers::source(&skipped.source),
            reason: skipped.reason.clone(),
        });
        (problems.collect(), skipped.collect())
    }

    fn server_changed(&self, name: &str) {
        self.look_at_servers_measuring(|server| server == name);
        self.look_at_attention();
    }

    /// Compare all servers with what was told; `measured`: the memory of their processes too.
    pub(super) fn look_at_servers(&self, measured: bool) {
        self.look_at_servers_measuring(|_| measured);
    }

    fn look_at_servers_measuring(&self, measured: impl Fn(&str) -> bool) {
        let mut now = self.servers();
        let calls = lock(&self.calls_today).clone();
        let measured = |name: &str, pid: Option<u32>| {
            pid.filter(|_| measured(name))
                .and_then(processes::group_memory_bytes)
        };
        let mut told = lock(&self.told);
        for server in &mut now {
            server.calls_today = calls.get(&server.name).copied().unwrap_or_default();
            let before = told.servers.get(&server.name).cloned();
            let same_process = before.as_ref().filter(|before| before.pid == server.pid);
            server.memory_bytes = measured(&server.name, server.pid)
                .or_else(|| same_process.and_then(|before| before.memory_bytes));
            server.start_ms = before.as_ref().and_then(|before| before.start_ms);
            match &server.state {
                ServerState::Starting => {
                    let began = told.starting.entry(server.name.clone());
                    began.or_insert_with(Instant::now);
                }
                ServerState::Ready => {
                    if let Some(began) = told.starting.remove(&server.name) {
                        server.start_ms = Some(began.elapsed().as_millis() as u64);
                    }
                }
                _ => {
                    told.starting.remove(&server.name);
                }
            }
            if let (
                ServerState::Failed {
                    retry_at: Some(new),
                    ..
                },
                Some(ServerState::Failed {
                    retry_at: Some(old),
                    ..
                }),
            ) = (&mut server.state, before.map(|before| before.state))
                && (*new - old).abs() < SAME_RETRY_MS
            {
                *new = old;
            }
        }
        let now: BTreeMap<String, _> = now
            .into_iter()
            .map(|server| (server.name.clone(), server))
            .collect();
        let events = self.bridge.events();
        for (name, server) in &now {
            if told.servers.get(name) != Some(server) {
                let server = Box::new(server.clone());
                events.tell(Change::Server { server });
            }
        }
        for name in told.servers.keys().filter(|name| !now.contains_key(*name)) {
            let name = name.clone();
            events.tell(Change::ServerRemoved { name });
        }
        told.servers = now;
    }

    fn look_at_connections(&self) {
        let clients = self.bridge.clients().borrow().clone();
        let now: BTreeMap<String, Connection> = clients
            .into_iter()
            .map(|client| {
                let id = client.connection.to_string();
                let connection = Connection {
                    id: id.clone(),
                    client: client.name.unwrap_or_default(),
                    version: client.client_version,
                    revision: client.revision,
                    pid: client.pid,
                    cwd: Some(client.cwd.display().to_string()),
                    since_at: client.since_at,
                };
                (id, connection)
            })
            .collect();
        let mut told = lock(&self.told);
        let events = self.bridge.events();
        for (id, connection) in &now {
            if told.connections.get(id) != Some(connection) {
                let connection = connection.clone();
                events.tell(Change::Connection { connection });
            }
        }
        for id in told.connections.keys().filter(|id| !now.contains_key(*id)) {
            events.tell(Change::ConnectionClosed { id: id.clone() });
        }
        told.connections = now;
    }

    fn look_at_interpreters(&self) {
        let now: BTreeMap<String, _> = self
            .interpreters()
            .into_iter()
            .map(|interpreter| (interpreter.id.clone(), interpreter))
            .collect();
        let mut told = lock(&self.told);
        let events = self.bridge.events();
        for (id, interpreter) in &now {
            if told.interpreters.get(id) != Some(interpreter) {
                let interpreter = interpreter.clone();
                events.tell(Change::Interpreter { interpreter });
            }
        }
        for id in told.interpreters.keys().filter(|id| !now.contains_key(*id)) {
            events.tell(Change::InterpreterStopped { id: id.clone() });
        }
        told.interpreters = now;
    }

    pub(super) fn look_at_sandbox(&self) {
        let now = self.sandbox_status();
        {
            let mut told = lock(&self.told);
            if told.sandbox.as_ref() == Some(&now) {
                return;
            }
            told.sandbox = Some(now.clone());
            let sandbox = Box::new(now);
            self.bridge.events().tell(Change::Sandbox { sandbox });
        }
        self.look_at_attention();
    }

    pub(super) fn look_at_attention(&self) {
        let attention = self.attention();
        let mut told = lock(&self.told);
        if told.attention != attention {
            told.attention.clone_from(&attention);
            self.bridge.events().tell(Change::Attention { attention });
        }
    }

    fn show_status(&self) {
        let runs = self.bridge.live_runs().list();
        let questions = self.bridge.open_questions().list();
        let settings = self.bridge.settings();
        let status = {
            let told = lock(&self.told);
            status::BridgeStatus {
                paused: self.bridge.is_paused(),
                connections: told.connections.values().cloned().collect(),
                runs,
                askers: questions.into_iter().map(|one| one.server).collect(),
                servers: told.servers.values().map(status::TrayServer::of).collect(),
                attention: told.attention.clone(),
                launch_at_login: settings.launch_at_login,
                presets: status::presets(&settings),
            }
        };
        self.status.send_if_modified(|shown| {
            let differs = *shown != status;
            *shown = status;
            differs
        });
    }
}
