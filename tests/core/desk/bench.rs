//! A real bridge in a home of its own, with a sandbox that executes scripts and a desk in front of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runbridge_core::api::{BridgeEvent, Change, RunDetail, Server, State};
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::desk::{AppFacts, Desk};
use runbridge_core::paths::{Environment, Os};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio::time::timeout;

use crate::scripted::Scripted;

/// No wait of a test is longer, and none is expected to come near it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Bench {
    pub(crate) home: TempDir,
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) desk: Desk,
    pub(crate) events: broadcast::Receiver<BridgeEvent>,
}

/// What is there before the bridge is opened.
#[derive(Default)]
pub(crate) struct Before {
    servers: Map<String, Value>,
    settings: Option<Value>,
    variables: Vec<(String, String)>,
}

impl Before {
    /// A server that keeps to `script`; see the fake upstream.
    pub(crate) fn server(mut self, name: &str, script: &Value) -> Self {
        let entry = json!({ "command": fake_upstream(), "args": [script.to_string()] });
        self.servers.insert(name.to_owned(), entry);
        self
    }

    pub(crate) fn entry(mut self, name: &str, entry: Value) -> Self {
        self.servers.insert(name.to_owned(), entry);
        self
    }

    pub(crate) fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) async fn open(self) -> Bench {
        let home = tempfile::tempdir().unwrap();
        if !self.servers.is_empty() {
            let servers = json!({ "mcpServers": self.servers });
            write(&home.path().join("MCPs/servers.json"), &servers.to_string());
        }
        if let Some(settings) = self.settings {
            write(&settings_file(home.path()), &settings.to_string());
        }
        Bench::open_in(home, self.variables).await
    }
}

impl Bench {
    pub(crate) async fn open() -> Self {
        Before::default().open().await
    }

    pub(crate) async fn open_in(home: TempDir, variables: Vec<(String, String)>) -> Self {
        let path = home.path().to_str().unwrap().to_owned();
        let mut all = vec![
            ("HOME".to_owned(), path.clone()),
            ("RUNBRIDGE_HOME".to_owned(), format!("{path}/r")),
            ("SHELL".to_owned(), "/bin/sh".to_owned()),
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            // No engine and no keyring of this machine shall be asked.
            ("DOCKER_HOST".to_owned(), "unix:///nonexistent".to_owned()),
            (
                "DBUS_SESSION_BUS_ADDRESS".to_owned(),
                "unix:path=/nonexistent".to_owned(),
            ),
        ];
        all.extend(variables);
        let environment = Environment::new(Os::CURRENT, all);
        let guests = Arc::new(Scripted::default());
        let bridge = Bridge::open_with(environment, Role::Serve, Some(guests)).unwrap();
        bridge.discovered().await;
        let events = bridge.events().subscribe();
        let facts = AppFacts {
            sidecar: home.path().join("bin/runbridge"),
            logs: Some(home.path().join("logs")),
            updates: true,
        };
        let desk = Desk::open(Arc::clone(&bridge), facts);
        Self {
            home,
            bridge,
            desk,
            events,
        }
    }

    pub(crate) fn settings_file(&self) -> PathBuf {
        settings_file(self.home.path())
    }

    pub(crate) fn settings(&self) -> Value {
        let text = std::fs::read_to_string(self.settings_file()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) async fn state(&self) -> State {
        timeout(PATIENCE, self.desk.get_state())
            .await
            .unwrap()
            .unwrap()
    }

    pub(crate) async fn server(&self, name: &str) -> Server {
        let servers = self.state().await.servers;
        servers
            .into_iter()
            .find(|server| server.name == name)
            .unwrap()
    }

    /// The next change that `wanted` makes something of; others are passed over.
    pub(crate) async fn hear<T>(&mut self, wanted: impl FnMut(&Change) -> Option<T>) -> T {
        self.hear_within(PATIENCE, wanted)
            .await
            .expect("no such change came")
    }

    pub(crate) async fn hear_within<T>(
        &mut self,
        within: Duration,
        mut wanted: impl FnMut(&Change) -> Option<T>,
    ) -> Option<T> {
        let found = async {
            loop {
                if let Some(found) = wanted(&self.events.recv().await.unwrap().change) {
                    return found;
                }
            }
        };
        timeout(within, found).await.ok()
    }

    /// Forget what was told so far.
    pub(crate) fn listen_anew(&mut self) {
        self.events = self.bridge.events().subscribe();
    }

    /// Run a script in the window's own interpreter to its end.
    pub(crate) async fn run(&mut self, script: &str) -> RunDetail {
        let id = self.desk.run_code(script.to_owned()).unwrap();
        self.ended(&id).await
    }

    pub(crate) async fn ended(&mut self, id: &str) -> RunDetail {
        self.hear(|change| match change {
            Change::Run { run } if run.id == id && run.status.is_over() => Some(()),
            _ => None,
        })
        .await;
        self.desk.read_run(id.to_owned()).await.unwrap()
    }

    pub(crate) async fn running(&mut self, id: &str) {
        use runbridge_core::api::RunStatus;
        self.hear(|change| match change {
            Change::Run { run } if run.id == id && run.status == RunStatus::Running => Some(()),
            _ => None,
        })
        .await;
    }

    /// End everything; the home remains.
    pub(crate) async fn close(self) -> TempDir {
        self.desk.shut_down().await;
        self.bridge.shut_down().await;
        self.home
    }
}

fn settings_file(home: &Path) -> PathBuf {
    home.join("r/config/settings.json")
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub(crate) fn fake_upstream() -> String {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let name = format!("core_fake_upstream{}", std::env::consts::EXE_SUFFIX);
    path.join("examples")
        .join(name)
        .to_str()
        .unwrap()
        .to_owned()
}
