//! An MCP client over a child's stdio, in lines of JSON-RPC. It has no opinion on results; it does
//! insist that every line of stdout is JSON-RPC.

use std::collections::HashMap;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::{Reply, RequestError, Side, WireCheck, wait_for};

/// How long a request may take unless the caller says otherwise.
const REQUEST_DEADLINE: Duration = Duration::from_mins(1);

/// How the client greets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize` with this revision.
    Initialize(&'static str),
    /// No greeting; every request carries its revision.
    Stateless(&'static str),
}

/// How the server ended.
#[derive(Debug)]
pub struct Closed {
    /// Its exit status.
    pub status: ExitStatus,
    /// How long it took after stdin was closed.
    pub took: Duration,
    /// True if closing stdin was not enough and it had to be killed.
    pub killed: bool,
}

/// A request in flight.
pub struct Pending {
    /// The JSON-RPC id.
    pub id: u64,
    answer: Receiver<(Value, Instant)>,
    sent: Instant,
}

impl Pending {
    /// Wait for the answer.
    pub fn wait(self, deadline: Duration) -> Result<Value, RequestError> {
        self.wait_timed(deadline).map(|(value, _)| value)
    }

    /// Wait for the reply of a `run_python`.
    pub fn reply(self) -> Result<Reply, RequestError> {
        let (result, took) = self.wait_timed(Duration::from_secs(150))?;
        Ok(Reply { result, took })
    }

    /// Whether an answer comes within `time`.
    pub fn answered_within(&self, time: Duration) -> bool {
        self.answer.recv_timeout(time).is_ok()
    }

    fn wait_timed(self, deadline: Duration) -> Result<(Value, Duration), RequestError> {
        let (mut message, at) = match self.answer.recv_timeout(deadline) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Err(RequestError::TimedOut(deadline)),
            Err(RecvTimeoutError::Disconnected) => return Err(RequestError::Closed),
        };
        if let Some(error) = message.get("error") {
            return Err(RequestError::Rpc {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                data: error["data"].clone(),
            });
        }
        Ok((message["result"].take(), at - self.sent))
    }
}

/// What the reading thread and the client share.
struct Shared {
    waiting: Mutex<HashMap<u64, Sender<(Value, Instant)>>>,
    notifications: Mutex<Vec<Value>>,
    impure: Mutex<Vec<String>>,
    check: Mutex<WireCheck>,
    /// What the server said that the protocol's schema does not allow.
    invalid: Mutex<Vec<String>>,
    /// Results for what the server asks, by method.
    answers: Mutex<HashMap<String, Value>>,
    /// What the server asked, in order.
    asked: Mutex<Vec<Value>>,
    bytes: AtomicUsize,
    /// stdout has ended: nobody will answer any more.
    closed: AtomicBool,
}

/// A started server and the connection to it. Dropping it kills the process.
pub struct McpClient {
    child: Child,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    shared: Arc<Shared>,
    next_id: AtomicU64,
    era: Era,
    capabilities: Value,
    stderr: PathBuf,
}

impl McpClient {
    /// Start `program` in `home` with exactly `variables` and the `PATH` of this process, and greet
    /// it. Its stderr goes to `stderr.log` of the home.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        home: &Path,
        variables: &[(String, String)],
        era: Era,
    ) -> Result<(Self, Value), RequestError> {
        let mut client = Self::spawn(program, arguments, home, variables);
        let greeting = client.greet(era)?;
        Ok((client, greeting))
    }

    /// Start without a greeting.
    pub fn spawn(
        program: &Path,
        arguments: &[&str],
        home: &Path,
        variables: &[(String, String)],
    ) -> Self {
        let stderr = home.join("stderr.log");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&stderr)
            .unwrap();
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("TMPDIR", home.join("tmp"))
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            notifications: Mutex::default(),
            impure: Mutex::default(),
            check: Mutex::new(WireCheck::of(Side::Server)),
            invalid: Mutex::default(),
            answers: Mutex::default(),
            asked: Mutex::default(),
            bytes: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let stdin = Arc::new(Mutex::new(child.stdin.take()));
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn({
            let (shared, stdin) = (Arc::clone(&shared), Arc::clone(&stdin));
            move || read(BufReader::with_capacity(1 << 16, stdout), &shared, &stdin)
        });
        Self {
            child,
            stdin,
            shared,
            next_id: AtomicU64::new(1),
            era: Era::Initialize("2025-11-25"),
            capabilities: json!({}),
            stderr,
        }
    }

    /// Offer this to the server when greeting it.
    pub fn offer(&mut self, capabilities: Value) {
        self.capabilities = capabilities;
    }

    /// Answer requests of the server with this method from now on.
    pub fn answer(&self, method: &str, result: Value) {
        let mut answers = self.shared.answers.lock().unwrap();
        answers.insert(method.to_owned(), result);
    }

    /// What the server asked, in order.
    pub fn asked(&self) -> Vec<Value> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Greet as `era` wants: the result of `initialize` or of `server/discover`.
    pub fn greet(&mut self, era: Era) -> Result<Value, RequestError> {
        self.era = era;
        match era {
            Era::Initialize(revision) => {
                let greeting = self.request(
                    "initialize",
                    json!({
                        "protocolVersion": revision,
                        "capabilities": self.capabilities,
                        "clientInfo": { "name": "runbridge-testkit", "version": "1" },
                    }),
                )?;
                self.notify("notifications/initialized", json!({}));
                Ok(greeting)
            }
            Era::Stateless(_) => self.request("server/discover", json!({})),
        }
    }

    /// Send a request and wait for its answer.
    pub fn request(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        self.send_request(method, params).wait(REQUEST_DEADLINE)
    }

    /// Send a request; its answer is waited for later.
    pub fn send_request(&self, method: &str, mut params: Value) -> Pending {
        if let Era::Stateless(revision) = self.era {
            let meta = params
                .as_object_mut()
                .unwrap()
                .entry("_meta")
                .or_insert_with(|| json!({}));
            let meta = meta.as_object_mut().unwrap();
            meta.insert(
                "io.modelcontextprotocol/protocolVersion".to_owned(),
                json!(revision),
            );
            meta.insert(
                "io.modelcontextprotocol/clientCapabilities".to_owned(),
                self.capabilities.clone(),
            );
            meta.insert(
                "io.modelcontextprotocol/clientInfo".to_owned(),
                json!({ "name": "runbridge-testkit", "version": "1" }),
            );
        }
        let pending = self.expect(self.next_id.fetch_add(1, Ordering::Relaxed));
        let id = pending.id;
        self.write_line(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
        pending
    }

    /// Wait for the answer to a request that is about to be written by hand.
    pub fn expect(&self, id: u64) -> Pending {
        let (sender, answer) = channel();
        let mut waiting = self.shared.waiting.lock().unwrap();
        if !self.shared.closed.load(Ordering::SeqCst) {
            waiting.insert(id, sender);
        }
        drop(waiting);
        Pending {
            id,
            answer,
            sent: Instant::now(),
        }
    }

    /// Send a notification.
    pub fn notify(&self, method: &str, params: Value) {
        self.write_line(
            &json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string(),
        );
    }

    /// Send a line as it is, well-formed or not.
    pub fn write_line(&self, line: &str) {
        if let Ok(message) = serde_json::from_str(line) {
            self.shared.check.lock().unwrap().hear(&message);
        }
        write_line(&self.stdin, line);
    }

    /// Run Python and wait for the reply.
    pub fn run(&self, code: &str) -> Reply {
        self.run_with(json!({ "code": code }))
    }

    /// Run Python with these arguments and wait for the reply.
    pub fn run_with(&self, arguments: Value) -> Reply {
        let pending = self.send_run(arguments);
        pending
            .reply()
            .unwrap_or_else(|error| panic!("run_python: {error}\nstderr:\n{}", self.stderr()))
    }

    /// Start a run; its reply is waited for later.
    pub fn send_run(&self, arguments: Value) -> Pending {
        self.send_request(
            "tools/call",
            json!({ "name": "run_python", "arguments": arguments }),
        )
    }

    /// Cancel a request in flight.
    pub fn cancel(&self, id: u64) {
        self.notify(
            "notifications/cancelled",
            json!({ "requestId": id, "reason": "test" }),
        );
    }

    /// Wait for a notification that `wanted` accepts.
    pub fn notification(
        &self,
        deadline: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Option<Value> {
        wait_for(deadline, || {
            self.shared
                .notifications
                .lock()
                .unwrap()
                .iter()
                .find(|one| wanted(one))
                .cloned()
        })
    }

    /// Every notification with this method so far, in order.
    pub fn notifications(&self, method: &str) -> Vec<Value> {
        let all = self.shared.notifications.lock().unwrap();
        let wanted = all.iter().filter(|one| one["method"] == method);
        wanted.cloned().collect()
    }

    /// Lines of stdout that were not JSON-RPC.
    pub fn impure(&self) -> Vec<String> {
        self.shared.impure.lock().unwrap().clone()
    }

    /// Bytes read from stdout so far.
    pub fn bytes_read(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of what the server wrote to stderr.
    pub fn stderr(&self) -> String {
        let bytes = std::fs::read(&self.stderr).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(4096)..]).into_owned()
    }

    /// Close stdin and wait for the end; kill after fifteen seconds.
    pub fn close(mut self) -> Closed {
        self.stdin.lock().unwrap().take();
        let start = Instant::now();
        let ended = wait_for(Duration::from_secs(15), || self.child.try_wait().unwrap());
        let killed = ended.is_none();
        let status = ended.unwrap_or_else(|| {
            self.child.kill().unwrap();
            self.child.wait().unwrap()
        });
        Closed {
            status,
            took: start.elapsed(),
            killed,
        }
    }

    /// End the process by SIGKILL, as a crash of the machine's user would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Memory of the process in KiB by the name of the line in `/proc/<pid>/status`: `VmRSS` now,
    /// `VmHWM` at its peak.
    pub fn memory_kib(&self, field: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|rest| rest.trim().split(' ').next()?.parse().ok())
            .unwrap_or_default()
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let invalid = std::mem::take(&mut *self.shared.invalid.lock().unwrap());
        if !std::thread::panicking() {
            assert!(
                invalid.is_empty(),
                "the server said what the protocol does not allow:\n{}",
                invalid.join("\n")
            );
        }
    }
}

/// A server that is gone is noticed by its silence, so a broken pipe is no error here.
fn write_line(stdin: &Mutex<Option<ChildStdin>>, line: &str) {
    if let Some(stdin) = stdin.lock().unwrap().as_mut() {
        let _ = stdin.write_all(format!("{line}\n").as_bytes());
        let _ = stdin.flush();
    }
}

/// Read stdout to its end, handing each message to whoever waits for it.
fn read(mut stdout: impl std::io::BufRead, shared: &Shared, stdin: &Mutex<Option<ChildStdin>>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match stdout.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(count) => shared.bytes.fetch_add(count, Ordering::Relaxed),
        };
        let at = Instant::now();
        match message(&line) {
            Some(message) => {
                let message = Value::Object(message);
                if let Err(wrong) = shared.check.lock().unwrap().say(&message) {
                    shared.invalid.lock().unwrap().push(wrong);
                }
                take(message, at, shared, stdin);
            }
            None => shared
                .impure
                .lock()
                .unwrap()
                .push(String::from_utf8_lossy(&line).chars().take(300).collect()),
        }
    }
    let mut waiting = shared.waiting.lock().unwrap();
    shared.closed.store(true, Ordering::SeqCst);
    waiting.clear();
}

/// The line as a JSON-RPC message, if it is one and ends as a line should.
fn message(line: &[u8]) -> Option<Map<String, Value>> {
    let Ok(Value::Object(message)) = serde_json::from_slice(line.strip_suffix(b"\n")?) else {
        return None;
    };
    // An error about a message that could not be read may lack the id of what it answers.
    let is_answer = if message.contains_key("result") {
        message.contains_key("id") && !message.contains_key("error")
    } else {
        message.contains_key("error")
    };
    let is_question = message.get("method").is_some_and(Value::is_string);
    (message.get("jsonrpc") == Some(&json!("2.0")) && (is_answer || is_question)).then_some(message)
}

fn take(message: Value, at: Instant, shared: &Shared, stdin: &Mutex<Option<ChildStdin>>) {
    let unreadable = message.get("id").is_none_or(Value::is_null);
    let method = message.get("method").cloned();
    match (method, message.get("id").cloned()) {
        (None, id) if !unreadable => {
            let waiting = id.and_then(|id| shared.waiting.lock().unwrap().remove(&id.as_u64()?));
            match waiting {
                Some(waiting) => drop(waiting.send((message, at))),
                // An answer that nobody asked for, or a second one.
                None => shared.impure.lock().unwrap().push(message.to_string()),
            }
        }
        (Some(method), Some(id)) => {
            shared.asked.lock().unwrap().push(message.clone());
            let known = method.as_str().and_then(|method| {
                let answers = shared.answers.lock().unwrap();
                answers.get(method).cloned()
            });
            let answer = if method == "ping" {
                json!({ "jsonrpc": "2.0", "id": id, "result": {} })
            } else if let Some(result) = known {
                json!({ "jsonrpc": "2.0", "id": id, "result": result })
            } else {
                let error = json!({ "code": -32601, "message": "not offered" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            };
            write_line(stdin, &answer.to_string());
        }
        // A notification; and what could not be read has no id to answer to.
        (Some(_), None) | (None, _) => shared.notifications.lock().unwrap().push(message),
    }
}
