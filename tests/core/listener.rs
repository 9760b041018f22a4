//! The socket of the app: who is served, who is not, and what is left behind.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::listener::Listener;
use runbridge_core::local_socket::{
    AppStream, ClaimError, ConnectError, GREETING_WITHIN, Hello, Owner, Refusal, connect,
};
use runbridge_core::paths::{Environment, Os, Paths};
use runbridge_testkit::{Side, WireCheck};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::upstream::PATIENCE;

/// An app without a window, in a home of its own.
struct App {
    home: TempDir,
    paths: Paths,
    bridge: Arc<Bridge>,
    listener: Option<Listener>,
    owner: Owner,
}

impl App {
    fn open() -> Self {
        Self::open_in(tempfile::tempdir().unwrap())
    }

    fn open_in(home: TempDir) -> Self {
        Self::open_as(Role::Ask, home)
    }

    fn open_as(role: Role, home: TempDir) -> Self {
        let environment = environment(home.path());
        let paths = Paths::for_user(&environment).unwrap();
        let owner = Owner::claim(&paths).unwrap();
        let bridge = Bridge::open(environment, role).unwrap();
        let listener = Some(Listener::open(Arc::clone(&bridge), &owner).unwrap());
        Self {
            home,
            paths,
            bridge,
            listener,
            owner,
        }
    }

    fn listener(&self) -> &Listener {
        self.listener.as_ref().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.paths.runtime.join(name)
    }

    /// A client that may come in.
    async fn client(&self) -> Client {
        let stream = connect(&self.paths, &hello()).await.unwrap();
        Client(stream, WireCheck::of(Side::Server))
    }

    /// Open the socket and say nothing yet.
    async fn stranger(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.file("app.sock")).await.unwrap())
    }

    /// A greeting as a sidecar sends it, with `change` made to it.
    fn greeting(&self, change: impl FnOnce(&mut Value)) -> String {
        let token = std::fs::read_to_string(self.file("app.token")).unwrap();
        let mut hello = json!({
            "runbridge": 1, "version": "0.0.0", "pid": 1, "cwd": "/", "token": token,
        });
        change(&mut hello);
        format!("{hello}\n")
    }

    async fn clients_become(&self, count: usize) {
        let mut clients = self.listener().clients();
        let arrived = clients.wait_for(|clients| clients.len() == count);
        timeout(PATIENCE, arrived).await.unwrap().unwrap();
    }

    async fn shut_down(mut self) -> TempDir {
        self.listener.take().unwrap().shut_down().await;
        self.bridge.shut_down().await;
        self.home
    }
}

fn environment(home: &Path) -> Environment {
    let home = home.to_str().unwrap();
    let ours = format!("{home}/r");
    Environment::new(
        Os::Linux,
        [
            ("HOME", home),
            ("RUNBRIDGE_HOME", &ours),
            ("SHELL", "/bin/sh"),
            // Nothing here runs code, and no engine of this machine shall be asked to.
            ("MCP_BRIDGE_RUNTIME", "docker"),
            ("DOCKER_HOST", "unix:///nonexistent"),
        ],
    )
}

fn hello() -> Hello {
    Hello {
        version: "1.2.3".to_owned(),
        pid: 4711,
        cwd: "/some/where".into(),
        resumed: false,
        http_port: None,
    }
}

struct Client(AppStream, WireCheck);

impl Client {
    async fn send(&mut self, message: Value) {
        self.1.hear(&message);
        let line = format!("{message}\n");
        self.0.write.write_all(line.as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        let read = self.0.read.read_line(&mut line);
        timeout(PATIENCE, read).await.unwrap().unwrap();
        let message = serde_json::from_str(&line);
        let message = message.unwrap_or_else(|error| panic!("{error} in {line:?}"));
        self.1
            .say(&message)
            .unwrap_or_else(|wrong| panic!("{wrong}"));
        message
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.send(message).await;
        loop {
            let heard = self.hear().await;
            if heard.get("id").is_some() {
                return heard;
            }
        }
    }

    /// Wait for the news that the tool is described in other words.
    async fn hears_of_a_change(&mut self) -> Value {
        loop {
            let heard = self.hear().await;
            if heard["method"] == "notifications/tools/list_changed" {
                return heard;
            }
        }
    }

    async fn greet(&mut self) {
        let answer = self
            .ask(
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "clientInfo": {"name": "tester", "version": "1"},
                }}),
            )
            .await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "runbridge");
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
    }

    /// The app serves this client.
    async fn works(&mut self) {
        let answer = self
            .ask(json!({"jsonrpc": "2.0", "id": "t", "method": "tools/list"}))
            .await;
        assert_eq!(
            answer["result"]["tools"][0]["name"], "run_python",
            "{answer}"
        );
    }
}

/// All that the app says to `stream` until it closes it, and after what time.
async fn until_closed(stream: &mut BufReader<UnixStream>) -> (String, Duration) {
    let begun = Instant::now();
    let mut said = Vec::new();
    // A reset after what was said is an end too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut said))
        .await
        .expect("the app keeps a stranger");
    (String::from_utf8(said).unwrap(), begun.elapsed())
}

#[tokio::test]
async fn a_client_is_served_and_known_until_it_leaves() {
    let app = App::open();
    let mut client = app.client().await;
    assert_eq!(client.0.version, env!("CARGO_PKG_VERSION"));
    client.greet().await;
    client.works().await;
    let named = |clients: &Vec<_>| {
        let [
            runbridge_core::bridge::ConnectedClient {
                name: Some(name),
                pid: 4711,
                ..
            },
        ] = &clients[..]
        else {
            return false;
        };
        name == "tester"
    };
    let mut clients = app.listener().clients();
    let known = timeout(PATIENCE, clients.wait_for(named)).await.unwrap();
    let known = known.unwrap()[0].clone();
    assert_eq!(
        (known.version.as_str(), known.cwd.as_path()),
        ("1.2.3", Path::new("/some/where"))
    );
    drop(client);
    app.clients_become(0).await;
    app.shut_down().await;
}

#[tokio::test]
async fn a_client_of_the_revision_without_greeting_is_served() {
    let app = App::open();
    let mut client = app.client().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1"},
    });
    let answer = client
        .ask(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}))
        .await;
    assert_eq!(
        answer["result"]["tools"][0]["name"], "run_python",
        "{answer}"
    );
    app.shut_down().await;
}

#[tokio::test]
async fn a_new_server_is_told_to_clients_of_either_era() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("MCPs")).unwrap();
    let app = App::open_as(Role::Serve, home);
    let mut greeting = app.client().await;
    greeting.greet().await;
    greeting.works().await;
    let mut listening = app.client().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": meta}});
    listening.ask(list.clone()).await;
    listening
        .send(
            json!({"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen",
            "params": {"_meta": meta, "notifications": {"toolsListChanged": true}}}),
        )
        .await;
    let acknowledged = listening.hear().await;
    assert_eq!(
        acknowledged["method"], "notifications/subscriptions/acknowledged",
        "{acknowledged}"
    );
    let servers = json!({"mcpServers": {"late": {"command": "/bin/false"}}});
    std::fs::write(
        app.home.path().join("MCPs/servers.json"),
        servers.to_string(),
    )
    .unwrap();
    greeting.hears_of_a_change().await;
    let news = listening.hears_of_a_change().await;
    assert_eq!(
        news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub",
        "{news}"
    );
    let tools = listening.ask(list).await;
    let description = tools["result"]["tools"][0]["description"].as_str().unwrap();
    assert!(description.contains("late"), "{description}");
    app.shut_down().await;
}

#[tokio::test]
async fn who_greets_wrongly_is_told_why_and_disturbs_nobody() {
    let app = App::open();
    let mut good = app.client().await;
    good.greet().await;
    let wrong_token = app.greeting(|hello| hello["token"] = json!("0".repeat(64)));
    let no_token = app.greeting(|hello| drop(hello.as_object_mut().unwrap().remove("token")));
    let other_form = app.greeting(|hello| hello["runbridge"] = json!(2));
    let giant = format!("{{\"runbridge\":1,\"version\":\"{}\n", "x".repeat(1 << 20));
    let cases = [
        (wrong_token, "token"),
        (no_token, "unreadable"),
        (other_form, "format"),
        (giant, "unreadable"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "unreadable"),
        ("\u{0}\u{1}\u{2}\n".to_owned(), "unreadable"),
        ("{}\n".to_owned(), "unreadable"),
        ("\n".to_owned(), "unreadable"),
    ];
    for (greeting, reason) in cases {
        let shown: String = greeting.chars().take(60).collect();
        let mut stream = app.stranger().await;
        // The app may close before it has read a giant.
        let _ = stream.get_mut().write_all(greeting.as_bytes()).await;
        let (said, took) = until_closed(&mut stream).await;
        assert!(took < GREETING_WITHIN, "{shown}: {took:?}");
        // A giant that is still being sent resets the connection, and the reason with it.
        if !(said.is_empty() && shown.len() < greeting.len()) {
            let answer: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(answer["refused"], reason, "{shown}");
        }
        good.works().await;
    }
    app.clients_become(1).await;
    app.shut_down().await;
}

#[tokio::test]
async fn who_never_greets_is_let_go_within_the_deadline() {
    let app = App::open();
    let mut silent = app.stranger().await;
    let mut halfway = app.stranger().await;
    halfway
        .get_mut()
        .write_all(b"{\"runbridge\":1")
        .await
        .unwrap();
    let mut good = app.client().await;
    good.greet().await;
    for stream in [&mut silent, &mut halfway] {
        let (said, took) = until_closed(stream).await;
        assert!(said.is_empty(), "{said}");
        assert!(took < GREETING_WITHIN + Duration::from_secs(3), "{took:?}");
    }
    good.works().await;
    app.shut_down().await;
}

#[tokio::test]
async fn a_giant_line_of_a_client_costs_only_itself() {
    let app = App::open();
    let mut client = app.client().await;
    client.greet().await;
    let mut other = app.client().await;
    other.greet().await;
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..65 {
        client.0.write.write_all(&megabyte).await.unwrap();
    }
    other.works().await;
    client.0.write.write_all(b"\n").await.unwrap();
    client.works().await;
    app.shut_down().await;
}

#[tokio::test]
async fn more_clients_than_the_bound_are_refused_as_busy() {
    let app = App::open();
    let mut clients = Vec::new();
    for _ in 0..128 {
        clients.push(app.client().await);
    }
    let error = connect(&app.paths, &hello()).await.unwrap_err();
    assert!(
        matches!(
            &error,
            ConnectError::Refused {
                why: Refusal::Busy,
                ..
            }
        ),
        "{error}"
    );
    drop(clients.pop());
    app.clients_become(127).await;
    // The place is given back a moment after the client is forgotten.
    let begun = Instant::now();
    while let Err(error) = connect(&app.paths, &hello()).await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
    }
    app.shut_down().await;
}

#[tokio::test]
async fn the_socket_is_the_users_alone_and_goes_with_the_app() {
    let app = App::open();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&app.paths.runtime), 0o700);
    assert_eq!(mode(&app.file("app.sock")), 0o600);
    assert_eq!(mode(&app.file("app.token")), 0o600);
    let (socket, token) = (app.file("app.sock"), app.file("app.token"));
    let paths = app.paths.clone();
    let mut client = app.client().await;
    client.greet().await;
    let _home = app.shut_down().await;
    let mut rest = Vec::new();
    timeout(PATIENCE, client.0.read.read_to_end(&mut rest))
        .await
        .expect("a client is held after the end")
        .unwrap();
    assert!(!socket.exists() && !token.exists());
    let error = connect(&paths, &hello()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Absent), "{error}");
}

#[tokio::test]
async fn another_user_is_not_served_even_with_the_token() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let app = App::open();
    // The folders alone would keep it out; this shows that they are not alone.
    for path in [
        app.home.path(),
        &app.home.path().join("r"),
        &app.paths.runtime,
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(app.file("app.sock"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let script = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.connect(sys.argv[1])\n\
        s.sendall(sys.argv[2].encode())\n\
        print(len(s.recv(1000)))";
    let output = tokio::process::Command::new("python3")
        .args(["-c", script])
        .arg(app.file("app.sock"))
        .arg(app.greeting(|_| {}))
        .uid(65534)
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, output).await.unwrap().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let closed = output.stdout == b"0\n" || errors.contains("ConnectionResetError");
    assert!(closed || errors.contains("BrokenPipeError"), "{errors}");
    assert!(app.listener().clients().borrow().is_empty());
    app.client().await.greet().await;
    app.shut_down().await;
}

#[tokio::test]
async fn there_is_one_owner_and_a_second_learns_who_holds_the_lock() {
    let app = App::open();
    let error = Owner::claim(&app.paths).unwrap_err();
    assert!(
        matches!(&error, ClaimError::Taken { lock } if *lock == app.file("app.lock")),
        "{error}"
    );
    app.client().await.greet().await;
    let (paths, owner) = (app.paths.clone(), app.owner.clone());
    let _home = app.shut_down().await;
    Owner::claim(&paths).expect_err("the owner is still there");
    drop(owner);
    Owner::claim(&paths).unwrap();
}

#[tokio::test]
async fn what_a_killed_app_left_is_taken_over() {
    const HOME: &str = "RUNBRIDGE_TEST_HOME_OF_APP";
    // The app must be another process than the one that looks on; it is this test once more.
    if let Ok(home) = std::env::var(HOME) {
        let paths = Paths::for_user(&environment(Path::new(&home))).unwrap();
        let owner = Owner::claim(&paths).unwrap();
        let bridge = Bridge::open(environment(Path::new(&home)), Role::Ask).unwrap();
        let _listener = Listener::open(bridge, &owner).unwrap();
        return std::future::pending().await;
    }
    let home = tempfile::tempdir().unwrap();
    let paths = Paths::for_user(&environment(home.path())).unwrap();
    let name = "listener::what_a_killed_app_left_is_taken_over";
    let mut first = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(HOME, home.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while connect(&paths, &hello()).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the first app does not listen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Owner::claim(&paths).expect_err("the first app holds the lock");
    first.kill().await.unwrap();
    let socket = paths.runtime.join("app.sock");
    let kind = std::fs::symlink_metadata(&socket).unwrap().file_type();
    assert!(kind.is_socket(), "a kill leaves the socket");
    let error = connect(&paths, &hello()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Absent), "{error}");
    let app = App::open_in(home);
    app.client().await.greet().await;
    app.shut_down().await;
}

#[tokio::test]
async fn a_file_in_the_place_of_the_socket_is_kept_and_named() {
    let home = tempfile::tempdir().unwrap();
    let environment = environment(home.path());
    let paths = Paths::for_user(&environment).unwrap();
    let owner = Owner::claim(&paths).unwrap();
    let path = paths.runtime.join("app.sock");
    std::fs::write(&path, "precious").unwrap();
    let bridge = Bridge::open(environment, Role::Ask).unwrap();
    let error = Listener::open(bridge, &owner).err().unwrap();
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
}

#[tokio::test]
async fn a_home_with_a_long_path_is_served() {
    let home = tempfile::Builder::new()
        .prefix(&"long".repeat(40))
        .tempdir()
        .unwrap();
    let app = App::open_in(home);
    let mut client = app.client().await;
    client.greet().await;
    client.works().await;
    app.shut_down().await;
}
