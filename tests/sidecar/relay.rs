//! Sidecars that relay to an app: one bridge for all clients, and what they see of it when it goes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use runbridge_testkit::{
    Components, Engine, Era, Leftovers, McpClient, Pending, RequestError, TempHome, image, wait_for,
};
use serde_json::{Map, Value, json};

use crate::http_face::Face;
use crate::{SIDECAR, engine, on_every_engine};

/// Longer than a lost app is looked for.
const PATIENCE: Duration = Duration::from_secs(30);

const LATEST: Era = Era::Initialize("2025-11-25");

on_every_engine!(
    an_app_that_is_killed_in_a_call_costs_one_answer,
    two_clients_share_a_server_and_no_variables,
);

/// A home in which an app may run, with the scripted server.
struct Desk {
    app: Option<App>,
    home: TempHome,
    variables: Vec<(String, String)>,
    leftovers: Leftovers,
}

impl Desk {
    /// With no app yet.
    fn new(engine: Engine) -> Self {
        let home = TempHome::new();
        let starts = home.join("starts");
        let entry = home.stub(&["--starts", &starts.to_string_lossy()]);
        home.write_servers(&Map::from_iter([("stub".to_owned(), entry)]));
        let mut variables = engine.variables();
        let ours = home.join(".runbridge").to_string_lossy().into_owned();
        variables.push(("RUNBRIDGE_HOME".to_owned(), ours));
        variables.push(("MCP_BRIDGE_IMAGE".to_owned(), image()));
        Self {
            app: None,
            leftovers: Leftovers::of(home.path(), Some(engine)),
            home,
            variables,
        }
    }

    fn with_app(engine: Engine) -> Self {
        let mut desk = Self::new(engine);
        desk.start_app();
        desk
    }

    fn start_app(&mut self) {
        self.app = Some(App::start(&self.home, &self.variables));
    }

    fn app(&self) -> &App {
        self.app.as_ref().unwrap()
    }

    /// SIGKILL: a crash.
    fn kill_app(&mut self) {
        self.leftovers.note_owner();
        self.app.take().unwrap().kill();
    }

    fn client(&self, era: Era) -> McpClient {
        let started = McpClient::start(
            SIDECAR.as_ref(),
            &[],
            self.home.path(),
            &self.variables,
            era,
        );
        let (client, _) =
            started.unwrap_or_else(|error| panic!("no greeting: {error}\n{}", self.log()));
        client
    }

    /// A run that ends only with its bridge, once it has reached its server.
    fn endless_run(&self, client: &McpClient) -> Pending {
        let run = client.send_run(json!({ "code": "await mcp_stub.never()", "timeout": 100 }));
        let begun = wait_for(PATIENCE, || (self.server_starts() > 0).then_some(()));
        assert!(begun.is_some(), "the run did not begin\n{}", self.log());
        run
    }

    fn server_starts(&self) -> usize {
        let starts = std::fs::read_to_string(self.home.join("starts")).unwrap_or_default();
        starts.lines().count()
    }

    /// What the sidecars wrote to stderr.
    fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("stderr.log")).unwrap_or_default()
    }

    /// End the app in order; nothing may be left.
    fn close(mut self) {
        self.leftovers.note_owner();
        if let Some(app) = self.app.take() {
            app.close();
        }
        self.leftovers.assert_none();
    }
}

/// The example that plays the app.
struct App {
    child: Child,
    says: Receiver<String>,
}

impl App {
    fn start(home: &TempHome, variables: &[(String, String)]) -> Self {
        let mut child = Command::new(program())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("TMPDIR", home.temp_dir())
            .env("SHELL", "/bin/sh")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (say, says) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| say.send(line))
        });
        let app = Self { child, says };
        app.says("ready");
        app
    }

    /// Wait until it says this.
    fn says(&self, wanted: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let said = self.says.recv_timeout(left);
            if said.unwrap_or_else(|_| panic!("the app did not say `{wanted}`")) == wanted {
                return;
            }
        }
    }

    fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).unwrap().count()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn close(mut self) {
        drop(self.child.stdin.take());
        let ended = wait_for(PATIENCE, || self.child.try_wait().unwrap());
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Built beside the test binary.
fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples").join("sidecar_fake_app")
}

#[track_caller]
fn assert_restarted(answer: Result<Value, RequestError>) {
    let Err(RequestError::Rpc {
        code,
        message,
        data,
    }) = answer
    else {
        panic!("an error was expected: {answer:?}");
    };
    assert_eq!(code, -32000, "{message}");
    assert_eq!(
        data,
        json!({ "code": "bridge_restarted", "retryable": true })
    );
    assert!(
        message.contains("Variables of earlier runs are gone"),
        "{message}"
    );
}

#[track_caller]
fn prints(client: &McpClient, code: &str) -> String {
    let reply = client.run(code);
    assert_eq!(reply.status(), "success", "{}", reply.result);
    reply.stdout().to_owned()
}

#[track_caller]
fn closes(client: McpClient) {
    assert_eq!(client.impure(), [] as [String; 0]);
    let closed = client.close();
    assert!(!closed.killed && closed.status.success(), "{closed:?}");
}

fn an_app_that_is_killed_in_a_call_costs_one_answer(engine: Engine) {
    let mut desk = Desk::with_app(engine);
    let client = desk.client(LATEST);
    let idle = desk.client(LATEST);
    prints(&client, "x = 1");
    let run = desk.endless_run(&client);
    desk.kill_app();
    assert_restarted(run.wait(PATIENCE));
    desk.start_app();
    desk.app().says("clients 2");
    let news = client.notification(PATIENCE, |one| {
        one["method"] == "notifications/tools/list_changed"
    });
    assert!(news.is_some(), "the client was not told to look again");
    let reply = client.run("print('x' in globals())");
    assert_eq!(reply.stdout(), "False\n", "{}", reply.result);
    assert!(
        reply
            .text()
            .contains("variables of earlier runs are gone: Runbridge was restarted"),
        "{}",
        reply.text()
    );
    prints(&client, "y = 2");
    assert_eq!(prints(&client, "print(y)"), "2\n");
    // A client that had run nothing has lost nothing.
    let reply = idle.run("print('first')");
    assert!(!reply.text().contains("gone"), "{}", reply.text());
    closes(client);
    closes(idle);
    desk.app().says("clients 0");
    desk.close();
}

fn two_clients_share_a_server_and_no_variables(engine: Engine) {
    let desk = Desk::with_app(engine);
    let (first, second) = (
        desk.client(LATEST),
        desk.client(Era::Stateless("2026-07-28")),
    );
    let whoami = "print((await mcp_stub.whoami())['pid'])";
    assert_eq!(prints(&first, whoami), prints(&second, whoami));
    assert_eq!(desk.server_starts(), 1);
    prints(&first, "who = 'first'");
    assert_eq!(prints(&second, "print('who' in globals())"), "False\n");
    prints(&second, "who = 'second'");
    assert_eq!(prints(&first, "print(who)"), "first\n");
    // One that leaves takes nothing of the other's with it.
    closes(second);
    desk.app().says("clients 1");
    assert_eq!(prints(&first, "print(who)"), "first\n");
    assert_eq!(desk.server_starts(), 1);
    closes(first);
    desk.close();
}

#[test]
fn an_app_that_stays_away_is_done_without() {
    let mut desk = Desk::with_app(engine());
    let client = desk.client(LATEST);
    prints(&client, "x = 1");
    let run = desk.endless_run(&client);
    desk.kill_app();
    assert_restarted(run.wait(Duration::from_secs(2)));
    let reply = client.run("print('x' in globals())");
    assert_eq!(reply.stdout(), "False\n", "{}", reply.result);
    assert!(
        reply.text().contains("Runbridge was restarted"),
        "{}",
        reply.text()
    );
    prints(&client, "x = 2");
    assert_eq!(
        prints(&client, "print(x, await mcp_stub.add(a=1, b=2))"),
        "2 3\n"
    );
    desk.leftovers.note_owner();
    // It stays with its own bridge, and so with its variables, when an app comes later.
    desk.start_app();
    assert_eq!(prints(&client, "print(x)"), "2\n");
    closes(client);
    desk.close();
}

#[test]
fn an_app_that_quits_in_a_call_says_the_same_as_one_that_is_killed() {
    let mut desk = Desk::with_app(engine());
    let client = desk.client(LATEST);
    let run = desk.endless_run(&client);
    desk.leftovers.note_owner();
    desk.app.take().unwrap().close();
    assert_restarted(run.wait(PATIENCE));
    desk.start_app();
    assert_eq!(prints(&client, "print('again')"), "again\n");
    closes(client);
    desk.close();
}

#[test]
fn every_era_survives_a_restart_of_the_app() {
    let mut desk = Desk::with_app(engine());
    let eras = [
        Era::Initialize("2024-11-05"),
        LATEST,
        Era::Stateless("2026-07-28"),
    ];
    let clients = eras.map(|era| desk.client(era));
    desk.app().says("clients 3");
    desk.kill_app();
    // Asked while there is no app: held until there is.
    let asked: Vec<_> = clients
        .iter()
        .map(|client| client.send_request("tools/list", json!({})))
        .collect();
    desk.start_app();
    for request in asked {
        let tools = request.wait(PATIENCE);
        match tools {
            Ok(tools) => assert_eq!(tools["tools"][0]["name"], "run_python"),
            // It went into the socket before the sidecar saw its end.
            error => assert_restarted(error),
        }
    }
    for client in clients {
        assert_eq!(prints(&client, "print(1)"), "1\n");
        closes(client);
    }
    desk.close();
}

#[test]
fn an_app_of_another_version_is_left_alone_and_named() {
    let desk = Desk::new(engine());
    let folder = desk.home.join(".runbridge/run");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("app.token"), "token").unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.join("app.sock")).unwrap();
    let app = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = String::new();
        let mut read = BufReader::new(stream.try_clone().unwrap());
        read.read_line(&mut hello).unwrap();
        writeln!(
            stream,
            r#"{{"runbridge":2,"version":"9.8.7","refused":"format"}}"#
        )
        .unwrap();
        serde_json::from_str::<Value>(&hello).unwrap()
    });
    let client = desk.client(LATEST);
    let hello = app.join().unwrap();
    assert_eq!(hello["token"], "token");
    assert_eq!(hello["pid"], client.pid());
    let folder_of_client = desk.home.path().canonicalize().unwrap();
    assert_eq!(hello["cwd"], folder_of_client.to_str().unwrap());
    assert_eq!(prints(&client, "print(1)"), "1\n");
    closes(client);
    let told = desk
        .log()
        .lines()
        .filter(|line| line.contains("9.8.7"))
        .count();
    assert_eq!(told, 1, "{}", desk.log());
    std::fs::remove_file(folder.join("app.sock")).unwrap();
    desk.close();
}

#[test]
fn a_bridge_that_a_bridge_started_is_not_lent_the_apps() {
    let mut desk = Desk::with_app(engine());
    desk.variables
        .push(("RUNBRIDGE_NESTED".to_owned(), "1".to_owned()));
    let client = desk.client(LATEST);
    assert_eq!(
        prints(&client, "print(runtime.discovered_servers())"),
        "()\n"
    );
    closes(client);
    desk.close();
}

#[test]
fn two_real_clients_share_one_process_of_each_server() {
    let components = Components::from_env().expect("run `cargo xtask test`");
    let mut desk = Desk::new(engine());
    desk.home.write("files/hello.txt", "hello from a file\n");
    let servers = components.entries(&["filesystem", "time"], &desk.home);
    desk.home.write_servers(&servers);
    desk.start_app();
    let components = PathBuf::from(std::env::var_os("RUNBRIDGE_TEST_COMPONENTS").unwrap());
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
    let start = |interpreter: &Path, script: &str| {
        Command::new(interpreter)
            .arg(scripts.join(script))
            .env("SIDECAR", SIDECAR)
            .env("COMPONENTS", &components)
            .env("HOME", desk.home.path())
            .env("TMPDIR", desk.home.temp_dir())
            .envs(desk.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    };
    let python = components.join("py/clients/bin/python");
    let both = [
        start(&python, "python_sdk_session.py"),
        start(Path::new("node"), "typescript_sdk.mjs"),
    ];
    for mut client in both {
        let ended = wait_for(2 * PATIENCE, || client.try_wait().unwrap());
        if ended.is_none() {
            client.kill().unwrap();
        }
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    }
    desk.app().says("clients 0");
    let processes = desk.leftovers.processes();
    for server in ["mcp-server-filesystem", "mcp-server-time"] {
        let of_server = processes
            .iter()
            .filter(|line| line.contains(server))
            .count();
        assert_eq!(of_server, 1, "{server}: {processes:#?}");
    }
    desk.close();
}

#[test]
fn fifty_clients_come_run_and_leave_nothing() {
    let mut desk = Desk::with_app(engine());
    let before = {
        let client = desk.client(LATEST);
        prints(&client, "print(await mcp_stub.echo(text='warm'))");
        closes(client);
        desk.app().says("clients 0");
        desk.app().open_files()
    };
    let clients: Vec<_> = (0..50).map(|_| desk.client(LATEST)).collect();
    desk.app().says("clients 50");
    let mut clients = clients.into_iter().enumerate();
    loop {
        // Some at a time, since no more interpreters than the limit may be at work.
        let some: Vec<_> = clients.by_ref().take(5).collect();
        if some.is_empty() {
            break;
        }
        std::thread::scope(|scope| {
            for (number, client) in some {
                scope.spawn(move || {
                    let code = format!("print(await mcp_stub.echo(text='{number}'))");
                    assert_eq!(prints(&client, &code), format!("{number}\n"));
                    closes(client);
                });
            }
        });
    }
    desk.app().says("clients 0");
    assert_eq!(desk.server_starts(), 1);
    desk.leftovers.note_owner();
    let settled = wait_for(PATIENCE, || {
        // The spare waits for the next client.
        let few = desk.leftovers.running_containers() <= 1;
        (few && desk.app().open_files() <= before + 4).then_some(())
    });
    assert!(
        settled.is_some(),
        "{} containers; {} open files, {before} before",
        desk.leftovers.running_containers(),
        desk.app().open_files()
    );
    desk.close();
}

#[test]
fn http_is_served_by_the_app_and_alone_once_it_stays_away() {
    let mut desk = Desk::with_app(engine());
    let code = "print((await mcp_stub.whoami())['pid'])";
    let client = desk.client(LATEST);
    let pid = client.run(code).stdout().to_owned();
    let face = Face::in_home(&desk.home, &desk.variables);
    assert_eq!(
        face.greeted("2025-11-25").prints(code),
        pid,
        "one server for all"
    );
    client.close();
    desk.leftovers.note_owner();
    desk.app.take().unwrap().close();
    let alone = wait_for(PATIENCE, || face.listens().then_some(()));
    assert!(alone.is_some(), "nobody serves\n{}", desk.log());
    let mut http = face.greeted("2025-06-18");
    assert_ne!(http.prints(code), pid, "a bridge of its own");
    desk.leftovers.note_owner();
    face.end();
    desk.close();
}
