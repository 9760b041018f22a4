//! An HTTP server of our own that speaks MCP, and misbehaves where a tool is named after it.
//!
//! It writes HTTP by hand, because the faults are below what a library would let it send.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runbridge_testkit::{Side, WireCheck};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// A host that is there only for who asks through a proxy: this peer, which then stands in for both.
pub(crate) const FAR: &str = "far.example";

/// What kind of server it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// Answers `server/discover`, and knows no `initialize`.
    pub(crate) modern: bool,
    /// Says nothing to `server/discover`.
    pub(crate) silent_on_discover: bool,
    /// Answers as a stream of events.
    pub(crate) streams: bool,
    /// Gives a session id and wants it back.
    pub(crate) sessions: bool,
    /// The older HTTP+SSE, at `/sse`.
    pub(crate) sse: bool,
    /// Lives at `/mcp/` and redirects from `/mcp`.
    pub(crate) slash: bool,
    /// Answers every request like this, whatever it is.
    pub(crate) always: Option<(u16, &'static str, &'static str)>,
    /// How long it says that its list of tools lasts.
    pub(crate) ttl_ms: Option<u64>,
    /// Sent with each answer of `always`.
    pub(crate) header: Option<(&'static str, String)>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _task: AbortOnDropHandle<()>,
}

struct State {
    script: Script,
    seen: Mutex<Vec<Seen>>,
    /// The session that counts.
    session: Mutex<Option<String>>,
    sessions_given: Mutex<u32>,
    /// What goes to whoever listens for news.
    news: broadcast::Sender<String>,
    listeners: Mutex<u32>,
    hung_up: Mutex<u32>,
    tools: Mutex<Vec<&'static str>>,
}

impl Peer {
    pub(crate) async fn new(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(State {
            script,
            seen: Mutex::default(),
            session: Mutex::default(),
            sessions_given: Mutex::default(),
            news: broadcast::channel(64).0,
            listeners: Mutex::default(),
            hung_up: Mutex::default(),
            tools: Mutex::new(vec![
                "echo", "sleep", "big", "forget", "expire", "cut", "stall", "reset", "page", "500",
                "empty", "endless", "huge", "resume", "regional", "steps",
            ]),
        });
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let connection = tokio::spawn(serve(stream, Arc::clone(&shared)));
                connections.push(AbortOnDropHandle::new(connection));
            }
        });
        Self {
            address,
            state,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(crate) fn url(&self) -> String {
        let path = if self.state.script.sse { "sse" } else { "mcp" };
        format!("http://{}/{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// The protocol's methods that came, in order.
    pub(crate) fn methods(&self) -> Vec<String> {
        let seen = self.seen();
        seen.iter().map(|seen| seen.rpc().to_owned()).collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|one| *one == method).count()
    }

    pub(crate) fn listeners(&self) -> u32 {
        *self.state.listeners.lock().unwrap()
    }

    /// Endless answers that were given up.
    pub(crate) fn hung_up(&self) -> u32 {
        *self.state.hung_up.lock().unwrap()
    }

    /// One more tool, and no word of it.
    pub(crate) fn add_quietly(&self, name: &'static str) {
        self.state.tools.lock().unwrap().push(name);
    }

    /// One more tool, and the news of it.
    pub(crate) fn add_tool(&self, name: &'static str) {
        self.add_quietly(name);
        let news = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let _ = self.state.news.send(news.to_string());
    }
}

impl Drop for Peer {
    /// All that came must have been what the protocol allows.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut check = WireCheck::of(Side::Client);
        for seen in self.seen().iter().filter(|seen| !seen.body.is_null()) {
            if let Err(wrong) = check.say(&seen.body) {
                panic!("the peer was told what the protocol does not allow: {wrong}");
            }
            if seen.rpc() == "initialize" && !self.state.script.modern {
                // What this peer answers.
                check.hear(&json!({"jsonrpc": "2.0", "id": seen.body["id"],
                    "result": {"protocolVersion": "2025-06-18"}}));
            }
        }
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(seen) = read(&mut stream).await {
        state.seen.lock().unwrap().push(seen.clone());
        if !answer(stream.get_mut(), &state, &seen).await {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length");
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Seen {
        method,
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// One answer; whether the TCP connection can serve another request.
async fn answer(out: &mut TcpStream, state: &State, seen: &Seen) -> bool {
    let script = &state.script;
    if let Some((status, kind, body)) = script.always {
        let extra = script.header.as_ref();
        let extra = extra.map_or_else(String::new, |(name, value)| format!("{name}: {value}\r\n"));
        return whole(out, status, kind, &extra, body).await;
    }
    let host = format!("http://{FAR}");
    let path = seen.path.strip_prefix(&host).unwrap_or(&seen.path);
    if script.slash && path == "/mcp" {
        return whole(out, 307, "", "Location: /mcp/\r\n", "").await;
    }
    let path = if script.slash {
        path.trim_end_matches('/')
    } else {
        path
    };
    match (seen.method.as_str(), path) {
        ("GET", "/sse") if script.sse => {
            let first = "event: endpoint\ndata: /messages?s=1\n\n";
            listen(out, state, first).await;
            false
        }
        ("POST", "/messages?s=1") if script.sse => {
            if let Some(reply) = reply(state, seen).await {
                let _ = state.news.send(reply.to_string());
            }
            whole(out, 202, "", "", "").await
        }
        ("GET", "/mcp") if !script.sse && !script.modern => {
            if let Some(id) = seen.header("last-event-id") {
                let id = id.split('/').next().unwrap();
                let result = json!({"jsonrpc": "2.0", "id": id.parse::<i64>().unwrap(),
                    "result": {"content": [{"type": "text", "text": "taken up again"}]}});
                open_stream(out, "").await;
                send(out, &format!("data: {result}\n\n")).await;
                return false;
            }
            if script.sessions && seen.header("mcp-session-id").is_none() {
                return whole(out, 400, "text/plain", "", "no session").await;
            }
            listen(out, state, ": hello\n\n").await;
            false
        }
        ("DELETE", "/mcp") => {
            *state.session.lock().unwrap() = None;
            whole(out, 200, "", "", "").await
        }
        ("POST", "/mcp") if !script.sse => post(out, state, seen).await,
        ("GET", "/mcp") => whole(out, 405, "", "", "").await,
        _ => whole(out, 404, "text/html", "", "<html>Cannot POST</html>").await,
    }
}

async fn post(out: &mut TcpStream, state: &State, seen: &Seen) -> bool {
    let id = &seen.body["id"];
    let session = state.session.lock().unwrap().clone();
    let refused = |code: i32, message: &str| {
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}})
            .to_string()
    };
    match seen.rpc() {
        "server/discover" if state.script.silent_on_discover => {
            sleep(Duration::from_mins(1)).await;
            return false;
        }
        "server/discover" if !state.script.modern => {
            let body = refused(-32600, "Bad Request: no session");
            return whole(out, 400, "application/json", "", &body).await;
        }
        "initialize" if state.script.modern => {
            let body = refused(-32601, "no such method");
            return whole(out, 404, "application/json", "", &body).await;
        }
        "initialize" => {}
        _ if state.script.sessions && seen.header("mcp-session-id") != session.as_deref() => {
            let body = refused(-32001, "Session not found");
            return whole(out, 404, "application/json", "", &body).await;
        }
        _ => {}
    }
    if id.is_null() {
        return whole(out, 202, "", "", "").await;
    }
    let mut extra = String::new();
    if seen.rpc() == "initialize" && state.script.sessions {
        let mut given = state.sessions_given.lock().unwrap();
        *given += 1;
        let session = format!("session-{given}");
        extra = format!("Mcp-Session-Id: {session}\r\n");
        *state.session.lock().unwrap() = Some(session);
    }
    match seen.body["params"]["name"].as_str().unwrap_or_default() {
        "expire" => {
            let extra = "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n";
            return whole(
                out,
                401,
                "application/json",
                extra,
                r#"{"error":"invalid_token"}"#,
            )
            .await;
        }
        "cut" => {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n";
            send(out, &format!("{head}{{\"jsonrpc\":\"2.0\",")).await;
            return false;
        }
        "stall" => {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n";
            send(out, &format!("{head}{{\"jsonrpc\":\"2.0\",")).await;
            sleep(Duration::from_mins(1)).await;
            return false;
        }
        "reset" => {
            out.set_zero_linger().unwrap();
            return false;
        }
        "page" => return whole(out, 200, "text/html; charset=utf-8", "", "<html></html>").await,
        "500" => return whole(out, 500, "text/plain", "", "the database is down").await,
        "empty" => return whole(out, 202, "", "", "").await,
        "endless" => {
            open_stream(out, "").await;
            // Comments for as long as anybody reads.
            while send(out, ": still here\n\n").await {
                sleep(Duration::from_millis(5)).await;
            }
            *state.hung_up.lock().unwrap() += 1;
            return false;
        }
        "huge" => {
            open_stream(out, "").await;
            let piece = "x".repeat(1024 * 1024);
            send(out, "data: ").await;
            for _ in 0..80 {
                if !send(out, &piece).await {
                    return false;
                }
            }
            return false;
        }
        "steps" => {
            let token = &seen.body["params"]["_meta"]["progressToken"];
            open_stream(out, "").await;
            for (step, message) in [(1, "reading"), (2, "")] {
                let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "total": 2,
                        "message": message}});
                // Not in the same piece as the answer, nor before the caller looks.
                sleep(Duration::from_millis(50)).await;
                send(out, &format!("data: {progress}\n\n")).await;
            }
            sleep(Duration::from_millis(50)).await;
            let result = json!({"jsonrpc": "2.0", "id": id,
                "result": {"resultType": "complete", "content": []}});
            send(out, &format!("data: {result}\n\n")).await;
            return false;
        }
        "resume" => {
            open_stream(out, "").await;
            send(out, &format!("id: {id}/1\nretry: 20\ndata:\n\n")).await;
            return false;
        }
        _ => {}
    }
    let Some(reply) = reply(state, seen).await else {
        // The only question that stays open.
        listen(out, state, ": hello\n\n").await;
        return false;
    };
    if state.script.streams {
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
        open_stream(out, &extra).await;
        send(
            out,
            &format!("data: {progress}\n\nevent: message\ndata: {reply}\n\n"),
        )
        .await;
        false
    } else {
        whole(out, 200, "application/json", &extra, &reply.to_string()).await
    }
}

/// What an honest server would say.
async fn reply(state: &State, seen: &Seen) -> Option<Value> {
    let (id, params) = (seen.body.get("id")?, &seen.body["params"]);
    let modern = state.script.modern;
    let result = match seen.rpc() {
        "server/discover" if modern => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
            "cacheScope": "private", "capabilities": {"tools": {"listChanged": true}},
        }),
        "initialize" if !modern => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "peer", "version": "1"},
        }),
        "resources/list" => match params["cursor"].as_str() {
            None => json!({"resources": [{"uri": "a:1"}], "nextCursor": "2"}),
            Some(_) => json!({"resources": [{"uri": "a:2"}]}),
        },
        "resources/read" => json!({"contents": [{"uri": params["uri"], "text": "words"}]}),
        "prompts/get" => json!({"messages": [], "description": params["arguments"]["a"]}),
        "subscriptions/listen" if modern => return None,
        "tools/list" => {
            let tools = state.tools.lock().unwrap();
            let tools = tools.iter().map(|name| {
                let mut properties = json!({});
                if *name == "regional" {
                    properties = json!({
                        "region": {"type": "string", "x-mcp-header": "Region"},
                        "count": {"type": "integer", "x-mcp-header": "Count"},
                    });
                }
                if *name == "crooked" {
                    properties = json!({ "a": {"type": "string", "x-mcp-header": "two words"} });
                }
                json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
            });
            let mut list = json!({"resultType": "complete", "tools": tools.collect::<Vec<_>>()});
            if let Some(ttl_ms) = state.script.ttl_ms {
                list["ttlMs"] = ttl_ms.into();
            }
            list
        }
        "tools/call" => {
            let text = match params["name"].as_str().unwrap() {
                "sleep" => {
                    sleep(Duration::from_millis(
                        params["arguments"]["ms"].as_u64().unwrap(),
                    ))
                    .await;
                    "slept".to_owned()
                }
                "big" => "x".repeat(params["arguments"]["bytes"].as_u64().unwrap() as usize),
                "forget" => {
                    *state.session.lock().unwrap() = Some("another".to_owned());
                    "forgotten".to_owned()
                }
                _ => params["arguments"]["text"]
                    .as_str()
                    .unwrap_or("fine")
                    .to_owned(),
            };
            json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
        }
        other => {
            let message = format!("no method {other}");
            let error = json!({"code": -32601, "message": message});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// A stream of news, until either side goes.
async fn listen(out: &mut TcpStream, state: &State, first: &str) {
    let mut news = state.news.subscribe();
    open_stream(out, "").await;
    send(out, first).await;
    *state.listeners.lock().unwrap() += 1;
    let mut gone = [0];
    loop {
        tokio::select! {
            message = news.recv() => {
                let Ok(message) = message else { break };
                if !send(out, &format!("data: {message}\n\n")).await {
                    break;
                }
            }
            _ = out.read(&mut gone) => break,
        }
    }
    *state.listeners.lock().unwrap() -= 1;
}

async fn open_stream(out: &mut TcpStream, extra: &str) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n";
    send(out, &format!("{head}{extra}\r\n")).await;
}

async fn whole(out: &mut TcpStream, status: u16, kind: &str, extra: &str, body: &str) -> bool {
    let kind = match kind {
        "" => String::new(),
        kind => format!("Content-Type: {kind}\r\n"),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{kind}{extra}Content-Length: {length}\r\n\r\n");
    send(out, &format!("{head}{body}")).await
}

async fn send(out: &mut TcpStream, text: &str) -> bool {
    out.write_all(text.as_bytes()).await.is_ok()
}

/// A client that only repeats one request over one TCP connection: what no client is faster than.
pub(crate) struct Bare {
    stream: BufReader<TcpStream>,
    request: String,
}

impl Bare {
    pub(crate) async fn new(peer: &Peer, like: &Seen) -> Self {
        let stream = TcpStream::connect(peer.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let body = like.body.to_string();
        let mut request = format!("{} {} HTTP/1.1\r\n", like.method, like.path);
        for (name, value) in &like.headers {
            if name != "content-length" {
                let _ = write!(request, "{name}: {value}\r\n");
            }
        }
        let _ = write!(request, "content-length: {}\r\n\r\n{body}", body.len());
        Self {
            stream: BufReader::new(stream),
            request,
        }
    }

    pub(crate) async fn exchange(&mut self) {
        send(self.stream.get_mut(), &self.request).await;
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
    }
}
