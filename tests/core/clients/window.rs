//! Clients as the window sees them, at a live bridge.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runbridge_core::api::{
    BridgeEvent, Change, Client, ClientAction, ClientPlan, ClientState, ErrorCode, Subject,
};
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::desk::{AppFacts, Desk};
use runbridge_core::paths::Os;
use tokio::sync::broadcast::Receiver;

use crate::home::{Home, PROGRAM};

/// What takes milliseconds, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(40);

const FILE: &str = ".cursor/mcp.json";

fn fake_upstream() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().unwrap().parent().unwrap();
    folder.join(format!(
        "examples/core_fake_upstream{}",
        std::env::consts::EXE_SUFFIX
    ))
}

struct Window {
    bridge: Arc<Bridge>,
    desk: Desk,
    changes: Receiver<BridgeEvent>,
}

impl Window {
    fn open(home: &Home) -> Self {
        let bridge = Bridge::open(home.environment.clone(), Role::Serve).unwrap();
        let app = AppFacts {
            sidecar: PROGRAM.into(),
            ..AppFacts::default()
        };
        let desk = Desk::open(Arc::clone(&bridge), app);
        let changes = desk.subscribe();
        Self {
            bridge,
            desk,
            changes,
        }
    }

    async fn client(&self, id: &str) -> Client {
        let clients = self.desk.read_clients().await.unwrap();
        clients.into_iter().find(|client| client.id == id).unwrap()
    }

    async fn plan(&self, id: &str, action: ClientAction) -> ClientPlan {
        let plan = self.desk.plan_client(id.to_owned(), action, None, false);
        plan.await.unwrap()
    }

    /// Looks at a change and makes it.
    async fn change(&self, id: &str, action: ClientAction, keep: bool) -> Client {
        let seen = self.plan(id, action).await.seen;
        let change = self
            .desk
            .change_client(id.to_owned(), action, None, false, keep, seen);
        change.await.unwrap()
    }

    /// The first change from now on that `wanted` takes something from.
    async fn hears<T>(&mut self, what: &str, wanted: impl Fn(Change) -> Option<T>) -> T {
        let hearing = async {
            loop {
                if let Some(found) = wanted(self.changes.recv().await.unwrap().change) {
                    return found;
                }
            }
        };
        let heard = tokio::time::timeout(PATIENCE, hearing).await;
        heard.unwrap_or_else(|_| panic!("{what} was never told"))
    }

    async fn close(self) {
        self.desk.shut_down().await;
        drop(self.desk);
        self.bridge.shut_down().await;
    }
}

fn state_of(change: Change, id: &str) -> Option<ClientState> {
    let Change::Clients { clients } = change else {
        return None;
    };
    clients
        .into_iter()
        .find(|client| client.id == id)
        .map(|client| client.state)
}

fn complaints(change: Change) -> Option<Vec<String>> {
    let Change::Attention { attention } = change else {
        return None;
    };
    let clients = attention.into_iter().filter_map(|it| match it.subject {
        Subject::Client { client } => Some(client),
        _ => None,
    });
    Some(clients.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_told_and_put_right_on_consent_or_always() {
    let home = Home::new(Os::Linux);
    home.write(FILE, "{}");
    let mut window = Window::open(&home);
    let before = window.client("cursor").await;
    assert_eq!(before.state, ClientState::NotConnected);
    assert!(before.announces.contains(&"cursor".to_owned()));
    let connected = window.change("cursor", ClientAction::Connect, false).await;
    assert!(matches!(connected.state, ClientState::Connected { .. }));
    assert!(home.read(FILE).contains(PROGRAM));

    // Told, in the list and among what needs the user.
    home.write(FILE, "{\"mcpServers\": {}}");
    window
        .hears("the loss", |change| {
            (state_of(change, "cursor")? == ClientState::Lost).then_some(())
        })
        .await;
    let window_says = window.desk.read_clients().await.unwrap();
    assert_eq!(window_says[0].state, ClientState::Lost);
    let deadline = Instant::now() + PATIENCE;
    while window.bridge.findings().is_empty() {
        assert!(Instant::now() < deadline, "nothing needs the user");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Put right on consent, and nothing is left to complain about.
    window.changes = window.desk.subscribe();
    window.change("cursor", ClientAction::Connect, true).await;
    assert!(window.bridge.findings().is_empty());
    window
        .hears("that all is well", |change| {
            complaints(change)?.is_empty().then_some(())
        })
        .await;
    assert!(window.client("cursor").await.keep);

    // From now on it is put back by itself.
    home.write(FILE, "{\"mcpServers\": {}, \"other\": 1}");
    while !home.read(FILE).contains(PROGRAM) {
        assert!(Instant::now() < deadline, "it was not put back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(home.read(FILE).contains("\"other\": 1"));
    window
        .desk
        .keep_client("cursor".to_owned(), false)
        .await
        .unwrap();
    assert!(!window.client("cursor").await.keep);
    window
        .change("cursor", ClientAction::Disconnect, false)
        .await;
    assert_eq!(home.read(FILE), "{\"mcpServers\": {}, \"other\": 1}");
    window.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_change_that_was_looked_at_is_made() {
    let home = Home::new(Os::Linux);
    home.write(FILE, "{}");
    let window = Window::open(&home);
    let plan = window.plan("cursor", ClientAction::Connect).await;
    assert!(plan.changes && !plan.creates);
    assert!(plan.diff.starts_with("@@"), "{}", plan.diff);
    let text = "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}";
    home.write(FILE, text);
    let late = window.desk.change_client(
        "cursor".to_owned(),
        ClientAction::Connect,
        None,
        false,
        false,
        plan.seen,
    );
    let error = late.await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ClientConfigConflict);
    assert_eq!(home.read(FILE), text);

    let refused = |client: &str, file: Option<&str>| {
        let (client, file) = (client.to_owned(), file.map(str::to_owned));
        window
            .desk
            .plan_client(client, ClientAction::Connect, file, false)
    };
    for (client, file, code) in [
        ("nobody", None, ErrorCode::ClientNotFound),
        ("zed", None, ErrorCode::ClientNotFound),
        ("cursor", Some("/etc/passwd"), ErrorCode::ClientRefused),
    ] {
        assert_eq!(refused(client, file).await.unwrap_err().code, code);
    }
    home.write(FILE, "{\n  \"mcpServers\"\n}");
    let broken = refused("cursor", None).await.unwrap_err();
    assert_eq!(broken.code, ErrorCode::ClientFileUnreadable);
    let ClientState::Unreadable { line, .. } = window.client("cursor").await.state else {
        panic!("it can be read");
    };
    assert_eq!(line, Some(3));
    let file = window.desk.client_file("cursor".to_owned(), None).await;
    assert_eq!(file.unwrap(), home.path().join(FILE));
    let elsewhere = Some("/etc/passwd".to_owned());
    let file = window.desk.client_file("cursor".to_owned(), elsewhere);
    assert_eq!(file.await.unwrap_err().code, ErrorCode::ClientRefused);
    window.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn moving_says_what_it_saves_once_the_tools_are_known() {
    let home = Home::new(Os::Linux);
    let entry = serde_json::json!({"mcpServers": {
        "fake": {"command": fake_upstream(), "args": ["{}"]},
        "never": {"command": "/nowhere/to/be/found"},
        "off": {"command": "x", "disabled": true},
    }});
    home.write(FILE, &entry.to_string());
    let window = Window::open(&home);
    let servers = |client: &Client| -> Vec<(String, bool, Option<u64>)> {
        let servers = client.servers.iter();
        servers
            .map(|it| (it.name.clone(), it.moved, it.tokens))
            .collect()
    };
    assert_eq!(
        servers(&window.client("cursor").await),
        [
            ("fake".to_owned(), false, None),
            ("never".to_owned(), false, None),
            ("off".to_owned(), false, None)
        ]
    );
    window.bridge.discovered().await;
    let tools = window.bridge.catalog().tools("fake").await.unwrap();
    let cost: u64 = tools
        .iter()
        .map(runbridge_core::catalog::ToolRef::tokens)
        .sum();
    // What was learned is written in the background.
    let deadline = Instant::now() + PATIENCE;
    while window.client("cursor").await.servers[0].tokens != Some(cost) {
        assert!(Instant::now() < deadline, "the cost stays unknown");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let plan = window.plan("cursor", ClientAction::Move).await;
    assert_eq!(
        (plan.tokens_before, plan.tokens_after, plan.tokens_unknown),
        (cost, 200, 1)
    );
    let moved = window.change("cursor", ClientAction::Move, false).await;
    assert_eq!(
        servers(&moved),
        [
            ("off".to_owned(), false, None),
            ("fake".to_owned(), true, Some(cost)),
            ("never".to_owned(), true, None)
        ]
    );
    let plan = window.plan("cursor", ClientAction::Restore).await;
    assert_eq!((plan.tokens_before, plan.tokens_after), (200, cost + 200));
    window
        .change("cursor", ClientAction::Disconnect, false)
        .await;
    assert_eq!(home.read(FILE), entry.to_string());
    window.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_be_preferred_where_names_meet() {
    let home = Home::new(Os::Linux);
    let entry =
        |program: &str| format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"{program}\"}}}}}}");
    home.write(FILE, &entry("cursor"));
    home.write(".kiro/settings/mcp.json", &entry("kiro"));
    let window = Window::open(&home);
    window.bridge.discovered().await;
    let first = || {
        window.bridge.catalog().servers()[0].sources[0]
            .client
            .clone()
    };
    assert_eq!(first(), "cursor");
    for (preferred, wins) in [(true, "kiro"), (false, "cursor")] {
        let prefer = window.desk.prefer_client("kiro".to_owned(), preferred);
        prefer.await.unwrap();
        assert_eq!(window.client("kiro").await.preferred, preferred);
        assert_eq!(first(), wins);
    }
    let nobody = window.desk.prefer_client("nobody".to_owned(), true).await;
    assert_eq!(nobody.unwrap_err().code, ErrorCode::ClientNotFound);
    window.close().await;
}
