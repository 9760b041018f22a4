//! Servers that others wrote, over HTTP. They are those that `cargo xtask setup` installs; without
//! them the tests count as skipped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use runbridge_core::catalog::Offer;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use super::{bench, remote, without_token};
use crate::sign_in::sign_in;
use crate::upstream::{Bench, PATIENCE, call_as, person, text};

const SDK_EXAMPLES: &str = "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server";
const EVERYTHING: &str = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";

fn npm(test: &str) -> Option<PathBuf> {
    let Some(dir) = std::env::var_os("RUNBRIDGE_TEST_COMPONENTS") else {
        runbridge_testkit::skip(test, "the real servers are not installed");
        return None;
    };
    Some(Path::new(&dir).join("npm"))
}

struct Running {
    address: SocketAddr,
    _child: Child,
}

/// Start a server of Node's on a free port, and wait until it listens.
async fn start(npm: &Path, script: &str, args: &[&str]) -> Running {
    let address = free().await;
    start_with(npm, script, args, address, &[("PORT", address.port())]).await
}

async fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// The same with ports by these variables, the one to wait for among them.
async fn start_with(
    npm: &Path,
    script: &str,
    args: &[&str],
    address: SocketAddr,
    ports: &[(&str, u16)],
) -> Running {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let child = Command::new("node")
        .arg("--require")
        .arg(fixtures.join("node/port_from_env.cjs"))
        .arg(npm.join(script))
        .args(args)
        .env_remove("PORT")
        .envs(ports.iter().map(|(name, port)| (name, port.to_string())))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut listens = false;
    for _ in 0..2_000 {
        if TcpStream::connect(address).await.is_ok() {
            listens = true;
            break;
        }
        // Nothing tells that another program has begun to listen.
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(listens, "{script} listens");
    Running {
        address,
        _child: child,
    }
}

impl Running {
    async fn bench(&self, path: &str) -> Bench {
        let url = format!("http://{}{path}", self.address);
        bench(without_token(remote(&url))).await
    }
}

async fn sums(bench: &Bench) {
    let sum = bench.text("get-sum", json!({"a": 20, "b": 22})).await;
    assert!(sum.contains("42"), "{sum}");
    let status = bench.status();
    assert_eq!(status.revision.as_deref(), Some("2025-11-25"));
    assert!(status.tools.unwrap() >= 10);
}

#[tokio::test]
async fn server_everything_over_streamable_http() {
    let Some(npm) = npm("server_everything_over_streamable_http") else {
        return;
    };
    let server = start(&npm, EVERYTHING, &["streamableHttp"]).await;
    let bench = server.bench("/mcp").await;
    sums(&bench).await;
    bench.catalog.restart("fake").await.unwrap();
    sums(&bench).await;
    let resources = bench
        .catalog
        .offers("fake", Offer::Resources)
        .await
        .unwrap();
    assert!(!resources.is_empty());
    let prompts = bench.catalog.offers("fake", Offer::Prompts).await.unwrap();
    assert!(!prompts.is_empty());
    bench.catalog.shut_down().await;
}

#[tokio::test]
async fn a_task_of_server_everything_asks_and_comes_to_its_end() {
    let Some(npm) = npm("a_task_of_server_everything_asks_and_comes_to_its_end") else {
        return;
    };
    let server = start(&npm, EVERYTHING, &["streamableHttp"]).await;
    let bench = server.bench("/mcp").await;
    let (ada, asked) = person("one", Duration::ZERO);
    let topic = json!({ "topic": "tea", "ambiguous": true });
    let called = call_as(&bench, ada, "simulate-research-query", topic, PATIENCE).await;
    let report = text(&called.unwrap());
    assert!(report.contains("Research Report: tea"), "{report}");
    assert_eq!(asked.lock().unwrap().len(), 1);
    bench.catalog.shut_down().await;
}

#[tokio::test]
async fn server_everything_over_the_older_sse() {
    let Some(npm) = npm("server_everything_over_the_older_sse") else {
        return;
    };
    let server = start(&npm, EVERYTHING, &["sse"]).await;
    let bench = server.bench("/sse").await;
    sums(&bench).await;
    bench.catalog.shut_down().await;
}

#[tokio::test]
async fn the_typescript_sdk_s_examples() {
    let Some(npm) = npm("the_typescript_sdk_s_examples") else {
        return;
    };
    let examples = [
        ("jsonResponseStreamableHttp.js", "/mcp", "greet"),
        (
            "simpleStatelessStreamableHttp.js",
            "/mcp",
            "start-notification-stream",
        ),
        ("simpleStreamableHttp.js", "/mcp", "greet"),
        ("ssePollingExample.js", "/mcp", "long-task"),
        ("simpleSseServer.js", "/mcp", "start-notification-stream"),
        (
            "sseAndStreamableHttpCompatibleServer.js",
            "/mcp",
            "start-notification-stream",
        ),
        (
            "sseAndStreamableHttpCompatibleServer.js",
            "/sse",
            "start-notification-stream",
        ),
    ];
    let mut told = Vec::new();
    for (script, path, tool) in examples {
        let server = start(&npm, &format!("{SDK_EXAMPLES}/{script}"), &[]).await;
        let bench = server.bench(path).await;
        let arguments = match tool {
            "greet" => json!({"name": "you"}),
            "long-task" => json!({}),
            _ => json!({"interval": 10, "count": 3}),
        };
        let answer = bench.text(tool, arguments).await;
        told.push(format!(
            "{script} {path}: {}",
            answer.lines().next().unwrap()
        ));
        bench.catalog.shut_down().await;
    }
    insta::assert_snapshot!(told.join("\n"), @r"
    jsonResponseStreamableHttp.js /mcp: Hello, you!
    simpleStatelessStreamableHttp.js /mcp: Started sending periodic notifications every 10ms
    simpleStreamableHttp.js /mcp: Hello, you!
    ssePollingExample.js /mcp: Long task completed successfully!
    simpleSseServer.js /mcp: Completed sending 3 notifications every 10ms
    sseAndStreamableHttpCompatibleServer.js /mcp: Started sending periodic notifications every 10ms
    sseAndStreamableHttpCompatibleServer.js /sse: Started sending periodic notifications every 10ms
    ");
}

/// Its server approves of everybody who opens the page.
#[tokio::test]
async fn the_typescript_sdk_s_sign_in_example() {
    let Some(npm) = npm("the_typescript_sdk_s_sign_in_example") else {
        return;
    };
    let script = format!("{SDK_EXAMPLES}/simpleStreamableHttp.js");
    for mode in [&["--oauth"][..], &["--oauth", "--oauth-strict"]] {
        let (server, provider) = (free().await, free().await);
        let ports = [
            ("MCP_PORT", server.port()),
            ("MCP_AUTH_PORT", provider.port()),
        ];
        let _running = start_with(&npm, &script, mode, server, &ports).await;
        let url = format!("http://localhost:{}/mcp", server.port());
        let bench = bench(without_token(remote(&url))).await;
        let error = bench.error("greet", json!({"name": "you"})).await;
        assert_eq!(error.code(), "server_auth_required", "{error}");
        sign_in(&bench).await.unwrap();
        let answer = bench.text("greet", json!({"name": "you"})).await;
        assert_eq!(answer, "Hello, you!", "{mode:?}");
        bench.catalog.shut_down().await;
    }
}
