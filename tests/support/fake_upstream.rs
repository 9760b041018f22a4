//! A scripted MCP server over stdio: as slow, huge, silent, wrong or mortal as a test asks.
//!
//! The script is the first argument, a JSON object; see [`Script`]. What was received, and each
//! start, is appended to the trace file as one JSON object per line; of what was sent, only that on
//! which the form of what is received depends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::zombie_processes,
    reason = "a scripted server of the tests; a panic is its way to say that the script is wrong"
)]

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// All fields are optional; the default is a well-behaved server of the revision 2025-11-25 with
/// the tools of [`built_in`].
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Script {
    /// Where to write what happens.
    trace: Option<PathBuf>,
    /// More tools, as they are to be listed. Called, each gives its arguments back.
    tools: Vec<Value>,
    /// That many more tools: `t0`, `t1`, …
    tool_count: usize,
    /// Tools on one page.
    page_size: Option<usize>,
    /// `nextCursor` is always this.
    cursor_loop: bool,
    /// Silence before anything is read.
    start_ms: u64,
    /// Lines for stdout before anything else.
    noise: Vec<String>,
    /// Lines for stderr before anything else.
    stderr: Vec<String>,
    /// Exit before anything is read.
    exit: Option<i32>,
    /// `modern`, `error` (the default), `exit`, `silent`.
    discover: Option<String>,
    /// `answer` (the default), `error`, `silent`, `exit`.
    initialize: Option<String>,
    /// The version that `initialize` is answered with, 2025-11-25 by default; empty: none.
    protocol_version: Option<String>,
    /// `answer` (the default), `error`, `silent`, `unknown`, `exit`.
    list: Option<String>,
    /// Say that `list_changed` may come.
    list_changed: bool,
    /// Leave `list_changed` out although tools change.
    forget_list_changed: bool,
    /// Say that it logs over the protocol, and have a tool for it.
    logging: bool,
    /// Have a tool that is called as a task, in the way of the server's era.
    tasks: bool,
    /// Stay alive after the end of input.
    ignore_eof: bool,
    /// Written that long after the end of input.
    bye: Option<(PathBuf, u64)>,
    /// Start a child that outlives us.
    grandchild: bool,
}

struct Server {
    script: Script,
    out: Mutex<std::io::Stdout>,
    added: Mutex<Vec<Value>>,
    /// Our requests to the client that await an answer.
    asked: Mutex<HashMap<i64, mpsc::Sender<Value>>>,
    next_id: AtomicI64,
    /// The request that `subscriptions/listen` keeps open.
    listener: Mutex<Option<Value>>,
    tasks: Mutex<HashMap<String, Task>>,
}

/// A task on its way.
struct Task {
    /// Questions of how it stands, until it is done.
    looks: u64,
    /// It wants to know a name first.
    asks: bool,
    heard: Value,
}

fn main() {
    let script = std::env::args().nth(1).unwrap_or_else(|| "{}".to_owned());
    let script: Script = serde_json::from_str(&script).expect("the script is JSON");
    let server = Arc::new(Server {
        script,
        out: Mutex::new(std::io::stdout()),
        added: Mutex::default(),
        asked: Mutex::default(),
        next_id: AtomicI64::new(1),
        listener: Mutex::default(),
        tasks: Mutex::default(),
    });
    server.run();
}

impl Server {
    fn run(self: &Arc<Self>) {
        self.trace(&json!({ "event": "start", "pid": std::process::id() }));
        for line in &self.script.stderr {
            eprintln!("{line}");
        }
        for line in &self.script.noise {
            self.line(line);
        }
        if self.script.grandchild {
            let child = std::process::Command::new("sleep")
                .arg("1000")
                .spawn()
                .unwrap();
            self.trace(&json!({ "event": "grandchild", "pid": child.id() }));
        }
        if let Some(code) = self.script.exit {
            std::process::exit(code);
        }
        thread::sleep(Duration::from_millis(self.script.start_ms));
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let message: Value = serde_json::from_str(&line).expect("a client sends JSON");
            if message["method"] == "subscriptions/listen" {
                // Before it is traced, and not in its own thread: a test that sees it in the trace
                // changes the tools at once, and is to be told.
                *self.listener.lock().unwrap() = Some(message["id"].clone());
            }
            self.trace(&json!({ "event": "message", "message": message }));
            if message.get("method").is_none() {
                let waiting = message["id"]
                    .as_i64()
                    .and_then(|id| self.asked.lock().unwrap().remove(&id));
                if let Some(waiting) = waiting {
                    let _ = waiting.send(message);
                }
                continue;
            }
            if message.get("id").is_some() {
                let server = Arc::clone(self);
                thread::spawn(move || server.answer(&message));
            }
        }
        self.trace(&json!({ "event": "eof" }));
        if let Some((path, after_ms)) = &self.script.bye {
            thread::sleep(Duration::from_millis(*after_ms));
            std::fs::write(path, "bye").unwrap();
        }
        if self.script.ignore_eof {
            loop {
                thread::park();
            }
        }
        // Threads that still answer end with the process.
    }

    fn answer(&self, request: &Value) {
        let id = &request["id"];
        let params = &request["params"];
        let unknown = || json!({ "code": -32601, "message": "Method not found" });
        let behaviour = |field: &Option<String>, default: &str| {
            field.clone().unwrap_or_else(|| default.to_owned())
        };
        match request["method"].as_str().unwrap() {
            "server/discover" => match behaviour(&self.script.discover, "error").as_str() {
                "modern" => self.result(id, &json!({
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": self.capabilities(),
                    "serverInfo": { "name": "fake", "version": "1" },
                    "instructions": "Be brief.",
                    "ttlMs": 0,
                    "cacheScope": "private",
                })),
                "exit" => std::process::exit(1),
                "silent" => {}
                _ => self.error(id, &unknown()),
            },
            "initialize" => match behaviour(&self.script.initialize, "answer").as_str() {
                "error" => self.error(id, &json!({
                    "code": -32602,
                    "message": "Unsupported protocol version",
                    "data": { "supported": ["1999-01-01"], "requested": params["protocolVersion"] },
                })),
                "exit" => std::process::exit(1),
                "silent" => {}
                _ => {
                    let mut result = json!({
                        "capabilities": self.capabilities(),
                        "serverInfo": { "name": "fake", "version": "1" },
                    });
                    let version = behaviour(&self.script.protocol_version, "2025-11-25");
                    if !version.is_empty() {
                        result["protocolVersion"] = version.into();
                    }
                    self.trace(&json!({ "event": "said", "said": {
                        "id": id, "result": { "protocolVersion": result["protocolVersion"] },
                    } }));
                    self.result(id, &result);
                }
            },
            "tools/list" => match behaviour(&self.script.list, "answer").as_str() {
                "error" => self.error(id, &json!({ "code": -32000, "message": "no network" })),
                "unknown" => self.error(id, &unknown()),
                "silent" => {}
                "exit" => std::process::exit(3),
                _ => self.list(id, params),
            },
            // Stays open.
            "subscriptions/listen" => {}
            "logging/setLevel" if self.script.logging => self.result(id, &json!({})),
            "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => {
                self.task(id, request["method"].as_str().unwrap(), params);
            }
            "tools/call" if params["name"] == "research" => self.begin_task(id, params),
            "tools/call" => self.call(id, params["name"].as_str().unwrap(), &params["arguments"], params),
            _ => self.error(id, &unknown()),
        }
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "tools": { "listChanged": self.script.list_changed } });
        if self.script.logging {
            capabilities["logging"] = json!({});
        }
        if self.script.tasks && self.modern() {
            capabilities["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
        } else if self.script.tasks {
            capabilities["tasks"] =
                json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        }
        capabilities
    }

    fn list(&self, id: &Value, params: &Value) {
        let mut tools = built_in();
        if self.script.logging {
            tools.push(json!({ "name": "log", "inputSchema": { "type": "object" } }));
        }
        if self.script.tasks {
            tools.push(json!({
                "name": "research", "inputSchema": { "type": "object" },
                "execution": { "taskSupport": "required" },
            }));
        }
        tools.extend(self.script.tools.iter().cloned());
        tools.extend((0..self.script.tool_count).map(|number| {
            json!({ "name": format!("t{number}"), "description": format!("Tool number {number}"), "inputSchema": { "type": "object" } })
        }));
        tools.extend(self.added.lock().unwrap().iter().cloned());
        if self.script.cursor_loop {
            return self.result(id, &json!({ "tools": tools, "nextCursor": "again" }));
        }
        let start: usize = params["cursor"]
            .as_str()
            .map_or(0, |cursor| cursor.parse().unwrap());
        let size = self.script.page_size.unwrap_or(tools.len());
        let end = (start + size).min(tools.len());
        let mut page = json!({ "tools": tools[start..end] });
        if end < tools.len() {
            page["nextCursor"] = end.to_string().into();
        }
        self.result(id, &page);
    }

    fn call(&self, id: &Value, tool: &str, arguments: &Value, params: &Value) {
        let number = |name: &str| arguments[name].as_u64().unwrap_or_default();
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        let result = match tool {
            "echo" => text(arguments["text"].as_str().unwrap_or_default()),
            "pid" => text(&std::process::id().to_string()),
            "sleep" => {
                thread::sleep(Duration::from_millis(number("ms")));
                text("slept")
            }
            "crash" => {
                eprintln!("out of cheese");
                std::process::exit(arguments["code"].as_i64().unwrap_or(7) as i32);
            }
            "close_stdout" => {
                // Only the last words: the descriptor itself cannot be closed without unsafe code.
                self.line("{\"jsonrpc\":\"2.0\",\"id\":");
                std::process::abort();
            }
            "environment" => {
                let all: HashMap<String, String> = std::env::vars().collect();
                json!({ "content": [], "structuredContent": {
                    "env": all,
                    "cwd": std::env::current_dir().unwrap(),
                    "argv": std::env::args().skip(2).collect::<Vec<_>>(),
                } })
            }
            "noise" => {
                self.line("just a log line");
                self.line("{\"level\":\"info\",\"msg\":\"structured\"}");
                self.line("");
                text("fine")
            }
            "flood" => {
                let line = "e".repeat(99);
                for _ in 0..number("bytes") / 100 {
                    eprintln!("{line}");
                }
                eprintln!("the last line");
                text("done")
            }
            // In the newest revision, only for a request that wants to hear of it.
            "log"
                if self.modern()
                    && params["_meta"]["io.modelcontextprotocol/logLevel"].is_null() =>
            {
                text("nobody listens")
            }
            "log" => {
                for _ in 0..number("times").max(1) {
                    self.send(&json!({
                        "jsonrpc": "2.0", "method": "notifications/message", "params": {
                            "level": arguments["level"], "logger": "fake", "data": arguments["data"],
                        },
                    }));
                }
                text("logged")
            }
            "big" => text(&"x".repeat(number("bytes") as usize)),
            "fail" => {
                json!({ "content": [{ "type": "text", "text": "date must be in the future" }], "isError": true })
            }
            "fail_silently" => json!({ "content": [], "isError": true }),
            "refuse" => return self.error(
                id,
                &json!({ "code": -32602, "message": "bad params: limit", "data": { "limit": 5 } }),
            ),
            "null" => Value::Null,
            "wants_input" if params["inputResponses"]["name"].is_object() => json!({
                "content": [],
                "structuredContent": { "heard": params["inputResponses"], "state": params["requestState"] },
            }),
            "wants_input" => json!({
                "resultType": "input_required",
                "requestState": "s",
                "inputRequests": {
                    "where": { "method": "roots/list" },
                    "name": { "method": "elicitation/create", "params": {
                        "mode": "form",
                        "message": "Name?",
                        "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
                    } },
                },
            }),
            "ask" => {
                let answer = self.ask_client(&arguments["method"], &arguments["params"]);
                json!({ "content": [], "structuredContent": answer })
            }
            "add_tool" => {
                self.added.lock().unwrap().push(
                    json!({ "name": arguments["name"], "inputSchema": { "type": "object" } }),
                );
                if !self.script.forget_list_changed {
                    let mut notification =
                        json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                    let listener = self.listener.lock().unwrap().clone();
                    if let Some(listener) = listener {
                        notification["params"] = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listener } });
                    }
                    if self.script.discover.as_deref() != Some("modern")
                        || notification.get("params").is_some()
                    {
                        self.send(&notification);
                    }
                }
                text("added")
            }
            // Tools of the script give back what they got, and so do those that were never listed.
            _ => json!({ "content": [], "structuredContent": arguments }),
        };
        self.result(id, &result);
    }

    fn ask_client(&self, method: &Value, params: &Value) -> Value {
        let ask_id = self.next_id.fetch_add(1, Ordering::SeqCst);
        let (sender, receiver) = mpsc::channel();
        self.asked.lock().unwrap().insert(ask_id, sender);
        let question =
            json!({ "jsonrpc": "2.0", "id": ask_id, "method": method, "params": params });
        self.trace(&json!({ "event": "said", "said": question }));
        self.send(&question);
        receiver
            .recv_timeout(Duration::from_secs(30))
            .unwrap_or_else(|_| json!("none"))
    }

    fn modern(&self) -> bool {
        self.script.discover.as_deref() == Some("modern")
    }

    /// In the old era only a call that asks for a task gets one.
    fn begin_task(&self, id: &Value, params: &Value) {
        if !self.modern() && !params["task"].is_object() {
            let error = json!({ "code": -32601, "message": "this tool is called as a task" });
            return self.error(id, &error);
        }
        let name = format!("task-{}", self.next_id.fetch_add(1, Ordering::SeqCst));
        let task = Task {
            looks: params["arguments"]["looks"].as_u64().unwrap_or(2),
            asks: params["arguments"]["asks"] == true,
            heard: Value::Null,
        };
        self.tasks.lock().unwrap().insert(name.clone(), task);
        let mut state = self.state_of_task(&name, "working");
        if self.modern() {
            state["resultType"] = "task".into();
            self.result(id, &state);
        } else {
            self.result(id, &json!({ "task": state }));
        }
    }

    fn state_of_task(&self, name: &str, status: &str) -> Value {
        let (ttl, pause) = if self.modern() {
            ("ttlMs", "pollIntervalMs")
        } else {
            ("ttl", "pollInterval")
        };
        json!({
            "taskId": name, "status": status, "statusMessage": format!("it is {status}"),
            "createdAt": "2026-11-30T00:00:00Z", "lastUpdatedAt": "2026-11-30T00:00:00Z",
            ttl: null, pause: 50,
        })
    }

    fn task(&self, id: &Value, method: &str, params: &Value) {
        let name = params["taskId"].as_str().unwrap();
        let question = json!({
            "message": "Name?",
            "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
        });
        let mut tasks = self.tasks.lock().unwrap();
        let Some(task) = tasks.get_mut(name) else {
            let error = json!({ "code": -32602, "message": "no such task" });
            return self.error(id, &error);
        };
        let outcome =
            |heard: &Value| json!({ "content": [], "structuredContent": { "heard": heard } });
        match method {
            "tasks/get" if task.looks > 0 => {
                task.looks -= 1;
                self.result(id, &self.state_of_task(name, "working"));
            }
            "tasks/get" if task.asks => {
                let mut state = self.state_of_task(name, "input_required");
                if self.modern() {
                    state["inputRequests"] =
                        json!({ "name": { "method": "elicitation/create", "params": question } });
                }
                self.result(id, &state);
            }
            "tasks/get" => {
                let mut state = self.state_of_task(name, "completed");
                if self.modern() {
                    state["result"] = outcome(&task.heard);
                }
                self.result(id, &state);
            }
            "tasks/result" => {
                let asks = task.asks;
                drop(tasks);
                let heard = if asks {
                    self.ask_client(&json!("elicitation/create"), &question)
                } else {
                    Value::Null
                };
                self.result(id, &outcome(&heard["result"]));
            }
            "tasks/update" => {
                task.asks = false;
                task.heard = params["inputResponses"]["name"].clone();
                self.result(id, &json!({ "resultType": "complete" }));
            }
            _ => {
                tasks.remove(name);
                self.result(id, &self.state_of_task(name, "cancelled"));
            }
        }
    }

    fn result(&self, id: &Value, result: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    fn error(&self, id: &Value, error: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
    }

    fn send(&self, message: &Value) {
        self.line(&message.to_string());
    }

    fn line(&self, line: &str) {
        let mut out = self.out.lock().unwrap();
        // A client that has gone is no reason to panic; the end of input comes next.
        let _ = out
            .write_all(line.as_bytes())
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush());
    }

    fn trace(&self, event: &Value) {
        if let Some(path) = &self.script.trace {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .unwrap();
            file.write_all(format!("{event}\n").as_bytes()).unwrap();
        }
    }
}

fn built_in() -> Vec<Value> {
    let tool = |name: &str, description: &str, properties: Value| json!({ "name": name, "description": description, "inputSchema": { "type": "object", "properties": properties } });
    vec![
        tool(
            "echo",
            "Gives the text back",
            json!({ "text": { "type": "string" } }),
        ),
        tool("pid", "The process", json!({})),
        tool(
            "sleep",
            "Takes its time",
            json!({ "ms": { "type": "integer" } }),
        ),
        tool(
            "crash",
            "Ends the process",
            json!({ "code": { "type": "integer" } }),
        ),
        tool("close_stdout", "Ends in the middle of a line", json!({})),
        tool(
            "environment",
            "What the process was started with",
            json!({}),
        ),
        tool("noise", "Writes to stdout what is not JSON-RPC", json!({})),
        tool(
            "flood",
            "Writes to stderr",
            json!({ "bytes": { "type": "integer" } }),
        ),
        tool(
            "big",
            "A large result",
            json!({ "bytes": { "type": "integer" } }),
        ),
        tool("fail", "Fails and says why", json!({})),
        tool("fail_silently", "Fails and does not say why", json!({})),
        tool("refuse", "Answers with an error", json!({})),
        tool("null", "Answers with null", json!({})),
        tool("wants_input", "Asks the user", json!({})),
        tool(
            "ask",
            "Asks the client",
            json!({ "method": { "type": "string" }, "params": {} }),
        ),
        tool(
            "add_tool",
            "Adds a tool",
            json!({ "name": { "type": "string" } }),
        ),
    ]
}
