//! The bridge over HTTP, as `runbridge serve --http` gives it: the real binary, and HTTP by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use runbridge_testkit::{Leftovers, Side, TempHome, WireCheck, image, wait_for};
use serde_json::{Value, json};

use crate::{SIDECAR, engine};

/// No exchange of these tests takes nearly so long.
const PATIENCE: Duration = Duration::from_mins(1);

/// `runbridge serve --http`, running.
pub(crate) struct Face {
    child: Child,
    port: u16,
    token: String,
    /// What is its alone. Last: the folder goes when the process has gone.
    own: Option<(Leftovers, TempHome)>,
}

/// What came back.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Face {
    pub(crate) fn start() -> Self {
        let (home, engine) = (TempHome::new(), engine());
        let leftovers = Leftovers::of(home.path(), Some(engine.clone()));
        let mut variables = engine.variables();
        let ours = home.join(".runbridge").to_string_lossy().into_owned();
        variables.push(("RUNBRIDGE_HOME".to_owned(), ours));
        variables.push(("MCP_BRIDGE_IMAGE".to_owned(), image()));
        let mut face = Self::in_home(&home, &variables);
        face.own = Some((leftovers, home));
        face
    }

    /// In a home that others use too.
    pub(crate) fn in_home(home: &TempHome, variables: &[(String, String)]) -> Self {
        let mut child = Command::new(SIDECAR)
            .args(["serve", "--http", "--port", "0"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .env("TMPDIR", home.temp_dir())
            .env("SHELL", "/bin/sh")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = said.find_map(|line| {
            let line = line.unwrap();
            line.contains("serving MCP at").then_some(line)
        });
        // What it says from now on must not fill the pipe.
        std::thread::spawn(move || said.for_each(drop));
        let line = line.expect("it says where it is");
        let port = line
            .rsplit_once("127.0.0.1:")
            .and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
        let token = std::fs::read_to_string(home.join(".runbridge/data/http-token")).unwrap();
        assert!(!line.contains(&token), "stderr is no place for it");
        Self {
            child,
            port: port.unwrap_or_else(|| panic!("no port in {line}")),
            token,
            own: None,
        }
    }

    /// Whether anybody listens at its port.
    pub(crate) fn listens(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }

    /// Its address, which asks for the token.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    fn exchange(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let mut fixed = vec![
            ("Host", "localhost"),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        fixed.retain(|(name, _)| headers.iter().all(|(other, _)| other != name));
        for (name, value) in fixed.iter().chain(headers) {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.extend(["Content-Length: ", &body.len().to_string(), "\r\n\r\n"]);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // An answer that refuses may come before all was read, and the rest is then reset.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    fn client<'a>(&'a self, revision: &'static str, name: &'static str) -> HttpClient<'a> {
        HttpClient {
            face: self,
            revision,
            name,
            session: None,
            check: WireCheck::of(Side::Server),
            last_id: 0,
        }
    }

    pub(crate) fn greeted<'a>(&'a self, revision: &'static str) -> HttpClient<'a> {
        let mut client = self.client(revision, "http-test");
        let greeting = client.ask(
            "initialize",
            json!({
                "protocolVersion": revision, "capabilities": {},
                "clientInfo": { "name": "http-test", "version": "1" },
            }),
        );
        assert_eq!(greeting["result"]["protocolVersion"], revision);
        client.tell("notifications/initialized", json!({}));
        client
    }

    /// End it as a service manager does. Nothing may be left, and stdout must be silent.
    pub(crate) fn end(mut self) {
        if let Some((leftovers, _)) = &mut self.own {
            leftovers.note_owner();
        }
        let pid = self.child.id().to_string();
        Command::new("kill").arg(pid).status().unwrap();
        let status = wait_for(Duration::from_secs(20), || self.child.try_wait().unwrap());
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        let mut said = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
        if let Some((leftovers, _)) = &self.own {
            leftovers.assert_none();
        }
    }
}

impl Drop for Face {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The messages of a body, which may be in chunks, and one message or a stream of them.
    fn messages(&self) -> Vec<Value> {
        let mut body = self.body.clone();
        if self.header("transfer-encoding") == Some("chunked") {
            let (mut rest, mut whole) = (body.as_str(), String::new());
            while let Some((length, after)) = rest.split_once("\r\n") {
                let length = usize::from_str_radix(length, 16).unwrap();
                whole += &after[..length];
                rest = after[length..].trim_start_matches("\r\n");
            }
            body = whole;
        }
        if body.starts_with('{') {
            return vec![serde_json::from_str(&body).unwrap()];
        }
        body.lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .filter(|data| !data.trim().is_empty())
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// A client of one revision.
pub(crate) struct HttpClient<'a> {
    face: &'a Face,
    revision: &'static str,
    name: &'static str,
    session: Option<String>,
    check: WireCheck,
    last_id: u64,
}

impl HttpClient<'_> {
    fn post(&mut self, message: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.face.token);
        let mut headers = vec![("Authorization", bearer.as_str())];
        let method = message["method"].as_str().unwrap();
        if method != "initialize" {
            headers.push(("MCP-Protocol-Version", self.revision));
        }
        if self.revision == "2026-07-28" {
            headers.push(("Mcp-Method", method));
            if method == "tools/call" {
                headers.push(("Mcp-Name", "run_python"));
            }
        }
        let session = self.session.clone();
        if let Some(session) = &session {
            headers.push(("Mcp-Session-Id", session));
        }
        self.check.hear(message);
        let answer = self
            .face
            .exchange("POST", "/mcp", &headers, &message.to_string());
        if let Some(session) = answer.header("mcp-session-id") {
            self.session = Some(session.to_owned());
        }
        answer
    }

    /// All that is said until the answer.
    fn hear(&mut self, method: &str, mut params: Value) -> Vec<Value> {
        self.last_id += 1;
        if self.revision == "2026-07-28" {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = self.revision.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            params["_meta"]["io.modelcontextprotocol/clientInfo"] =
                json!({ "name": self.name, "version": "1" });
        }
        let id = self.last_id;
        let answer =
            self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        assert_eq!(answer.status, 200, "{}\n{}", answer.head, answer.body);
        let messages = answer.messages();
        for message in &messages {
            self.check
                .say(message)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        assert_eq!(messages.last().unwrap()["id"], id);
        messages
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.hear(method, params).pop().unwrap()
    }

    fn tell(&mut self, method: &str, params: Value) {
        let answer = self.post(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        assert_eq!(answer.status, 202, "{}", answer.body);
    }

    pub(crate) fn prints(&mut self, code: &str) -> String {
        let arguments = json!({ "name": "run_python", "arguments": { "code": code } });
        let reply = self.ask("tools/call", arguments);
        let fields = &reply["result"]["structuredContent"];
        assert_eq!(fields["status"], "success", "{reply}");
        fields["stdout"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn only_who_shows_the_token_is_served_and_no_page_of_the_web() {
    let face = Face::start();
    let bearer = format!("Bearer {}", face.token);
    let with_token = format!("/{}/mcp", face.token);
    let list =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }}})
        .to_string();
    let modern = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "server/discover"),
    ];
    let status = |path: &str, more: &[(&str, &str)]| {
        let headers = [&modern[..], more].concat();
        face.exchange("POST", path, &headers, &list).status
    };
    assert_eq!(status("/mcp", &[("Authorization", &bearer)]), 200);
    assert_eq!(status(&with_token, &[]), 200);
    assert_eq!(
        status(&with_token, &[("Origin", "http://localhost:5173")]),
        200
    );
    for wrong in [
        "",
        "Bearer",
        "Bearer x",
        "Basic x",
        &bearer[..bearer.len() - 1],
    ] {
        assert_eq!(status("/mcp", &[("Authorization", wrong)]), 401, "{wrong}");
    }
    assert_eq!(status("/wrong/mcp", &[]), 401);
    assert_eq!(
        status(&with_token[..65], &[("Authorization", &bearer)]),
        404
    );
    for (name, value) in [
        ("Host", "evil.example"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
    ] {
        assert_eq!(
            status(&with_token, &[(name, value)]),
            403,
            "{name}: {value}"
        );
    }
    let refused = face.exchange("POST", "/mcp", &modern, &list);
    assert_eq!(refused.header("www-authenticate"), Some("bearer"));
    // The file is private, and the token stays the same.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let (_, home) = face.own.as_ref().unwrap();
        let file = home.join(".runbridge/data/http-token");
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    face.end();
}

#[test]
fn each_session_has_its_own_variables_in_every_revision_that_has_sessions() {
    let face = Face::start();
    let mut first = face.greeted("2025-11-25");
    first.prints("x = 'first'");
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let mut client = face.greeted(revision);
        let tools = client.ask("tools/list", json!({}));
        assert_eq!(tools["result"]["tools"][0]["name"], "run_python");
        assert_eq!(client.prints("print('x' in globals())\nx = 1"), "False\n");
    }
    assert_eq!(first.prints("print(x)"), "first\n");
    // An ended session is not there any more.
    let bearer = format!("Bearer {}", face.token);
    let session = first.session.clone().unwrap();
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    assert_eq!(face.exchange("DELETE", "/mcp", &headers, "").status, 200);
    let call = json!({ "jsonrpc": "2.0", "id": 90, "method": "tools/list" }).to_string();
    assert_eq!(face.exchange("POST", "/mcp", &headers, &call).status, 404);
    face.end();
}

#[test]
fn a_client_without_sessions_keeps_its_variables_by_its_name() {
    let face = Face::start();
    let mut client = face.client("2026-07-28", "one");
    let discovered = client.ask("server/discover", json!({}));
    let versions = discovered["result"]["supportedVersions"].as_array();
    assert!(versions.is_some_and(|versions| versions.contains(&json!("2026-07-28"))));
    client.prints("x = 5");
    assert_eq!(client.prints("print(x)"), "5\n");
    let mut other = face.client("2026-07-28", "other");
    assert_eq!(other.prints("print('x' in globals())"), "False\n");
    face.end();
}

#[test]
fn progress_comes_before_the_answer_on_its_stream() {
    let face = Face::start();
    let mut client = face.greeted("2025-11-25");
    let heard = client.hear(
        "tools/call",
        json!({
            "name": "run_python", "arguments": { "code": "import time\ntime.sleep(11)", "timeout": 60 },
            "_meta": { "progressToken": "p" },
        }),
    );
    let progress: Vec<_> = heard
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .collect();
    assert!(!progress.is_empty(), "{heard:?}");
    assert!(
        progress
            .iter()
            .all(|message| message["params"]["progressToken"] == "p")
    );
    face.end();
}

#[test]
fn sessions_are_bounded_and_an_ended_one_makes_room() {
    let face = Face::start();
    let mut open: Vec<_> = (0..32).map(|_| face.greeted("2025-11-25")).collect();
    let bearer = format!("Bearer {}", face.token);
    let greeting = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "one-more", "version": "1" },
    }})
    .to_string();
    let headers = [("Authorization", bearer.as_str())];
    let refused = face.exchange("POST", "/mcp", &headers, &greeting);
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("32 sessions"), "{}", refused.body);
    // Those that are there go on.
    open[0].ask("tools/list", json!({}));
    let session = open.pop().unwrap().session.unwrap();
    let ending = [headers[0], ("Mcp-Session-Id", session.as_str())];
    assert_eq!(face.exchange("DELETE", "/mcp", &ending, "").status, 200);
    let again = wait_for(Duration::from_secs(10), || {
        let answer = face.exchange("POST", "/mcp", &headers, &greeting);
        (answer.status == 200).then_some(())
    });
    assert!(again.is_some(), "no room although a session has ended");
    drop(open);
    face.end();
}

#[test]
fn a_port_that_is_taken_is_named_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = TempHome::new();
    let output = Command::new(SIDECAR)
        .args(["serve", "--http", "--port", &port])
        .env_clear()
        .env("HOME", home.path())
        .env("RUNBRIDGE_HOME", home.join(".runbridge"))
        .env("MCP_BRIDGE_LOG_LEVEL", "error")
        .env("MCP_BRIDGE_RUNTIME", "docker")
        .env("DOCKER_HOST", "unix:///nonexistent")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&format!("cannot listen on port {port}")) && said.contains("`--port`"),
        "{said}"
    );
}
