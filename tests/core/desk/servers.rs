//! Servers and their tools: seen, switched, restarted, added.

use std::time::{Duration, Instant};

use runbridge_core::api::{
    Change, ErrorCode, NewServer, NewTransport, NewVariable, SecretStoreKind, Server, ServerState,
    Transport,
};
use serde_json::json;

use crate::bench::{Before, Bench, write};

fn server(name: &str) -> impl Fn(&Change) -> Option<Server> + '_ {
    move |change| match change {
        Change::Server { server } if server.name == name => Some((**server).clone()),
        _ => None,
    }
}

fn new(name: &str, transport: NewTransport) -> NewServer {
    NewServer {
        name: name.to_owned(),
        transport,
        variables: Vec::new(),
    }
}

#[tokio::test]
async fn a_server_is_shown_with_its_process_and_tools() {
    let script = json!({ "stderr": ["booted"] });
    let mut bench = Before::default().server("fake", &script).open().await;
    let before = bench.server("fake").await;
    assert_eq!((before.enabled, before.own), (true, false));
    assert_eq!(
        (before.state, before.tools_count),
        (ServerState::Stopped, 0)
    );
    assert_eq!(before.sources[0].client, "drop-folder");
    bench.listen_anew();
    bench.desk.restart_server("fake".to_owned()).await.unwrap();
    let mut states = Vec::new();
    bench
        .hear(|change| {
            let server = server("fake")(change)?;
            states.push(server.state.clone());
            (server.state == ServerState::Ready && server.tools_count > 0).then_some(())
        })
        .await;
    assert_eq!(states[0], ServerState::Starting);
    let detail = bench.desk.read_server("fake").unwrap();
    let shown = &detail.server;
    assert_eq!(
        (shown.state.clone(), shown.tools_count, shown.tools_enabled),
        (ServerState::Ready, 16, 16)
    );
    assert!(shown.pid.is_some() && shown.started_at.is_some() && shown.start_ms.is_some());
    assert_eq!(shown.revision.as_deref(), Some("2025-11-25"));
    assert!(cfg!(not(target_os = "linux")) || shown.memory_bytes.is_some_and(|it| it > 100_000));
    assert_eq!(
        shown.tokens,
        detail.tools.iter().map(|tool| tool.tokens).sum::<u64>()
    );
    assert!(shown.tokens > 16 * 10);
    assert_eq!(detail.tools[0].name, "echo");
    assert_eq!(detail.tools[0].summary, "Gives the text back");
    let output = bench.desk.read_server_output("fake").unwrap();
    assert_eq!(output.stderr.trim(), "booted");
    let tool = bench.desk.read_tool("fake", "echo").unwrap();
    assert!(tool.signature.starts_with("echo(") && tool.input_schema.contains("\"text\""));
    assert_eq!(
        bench.desk.read_tool("fake", "nope").unwrap_err().code,
        ErrorCode::ToolNotFound
    );
    assert_eq!(
        bench.desk.read_server("nope").unwrap_err().code,
        ErrorCode::ServerNotFound
    );
    assert_eq!(
        bench.desk.read_server_output("nope").unwrap_err().code,
        ErrorCode::ServerNotFound
    );
    let pid = bench.server("fake").await.pid;
    bench.desk.restart_server("fake".to_owned()).await.unwrap();
    assert_ne!(bench.server("fake").await.pid, pid);
    bench.close().await;
}

/// The server that wrote something.
fn writer(change: &Change) -> Option<String> {
    match change {
        Change::ServerOutput { server } => Some(server.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn what_a_server_writes_and_logs_is_told_while_a_window_shows_it() {
    let script = json!({ "logging": true });
    let mut bench = Before::default()
        .server("fake", &script)
        .server("other", &script)
        .open()
        .await;
    let log = |server: &str, text: &str| {
        format!("call {server} log {{\"level\":\"info\",\"data\":\"{text}\"}}")
    };
    bench.listen_anew();
    bench.run(&log("fake", "before")).await;
    let untold = bench.hear_within(Duration::from_millis(300), writer).await;
    assert_eq!(untold, None, "nobody looks");

    // A window asks first and reads then; what came in between, and what comes later, it hears of.
    bench.desk.watch_server_output("fake", true);
    assert_eq!(bench.hear(writer).await, "fake");
    for (script, shown) in [
        (log("fake", "after"), "after"),
        (
            "call fake flood {\"bytes\":100}".to_owned(),
            "the last line",
        ),
    ] {
        bench.desk.run_code(script).unwrap();
        loop {
            assert_eq!(bench.hear(writer).await, "fake");
            let output = bench.desk.read_server_output("fake").unwrap();
            let logged = output.log.iter().map(|line| &line.text[..]);
            if logged.chain(output.stderr.lines()).any(|it| it == shown) {
                break;
            }
        }
    }

    // The window turns to another server; what ends the first look comes late.
    bench.desk.watch_server_output("other", true);
    bench.desk.watch_server_output("fake", false);
    bench.run(&log("fake", "unseen")).await;
    bench.listen_anew();
    bench.run(&log("other", "seen")).await;
    assert_eq!(bench.hear(writer).await, "other");
    bench.desk.look_away();
    bench.listen_anew();
    bench.run(&log("other", "unseen")).await;
    let untold = bench.hear_within(Duration::from_millis(300), writer).await;
    assert_eq!(untold, None, "the window is gone");
    bench.close().await;
}

#[tokio::test]
async fn a_flood_of_lines_is_told_a_few_times_a_second() {
    let script = json!({ "logging": true });
    let mut bench = Before::default().server("fake", &script).open().await;
    bench.desk.watch_server_output("fake", true);
    bench.run("call fake echo {}").await;
    bench.listen_anew();
    let began = Instant::now();
    let flood = "call fake log {\"level\":\"info\",\"data\":\"x\",\"times\":5000}";
    let id = bench.desk.run_code(flood.to_owned()).unwrap();
    let mut told = 0;
    bench
        .hear(|change| {
            told += usize::from(writer(change).is_some());
            match change {
                Change::Run { run } if run.id == id && run.status.is_over() => Some(()),
                _ => None,
            }
        })
        .await;
    let most = began.elapsed().as_millis() / 60 + 2;
    assert!(told > 0 && told as u128 <= most, "{told}, at most {most}");
    bench.close().await;
}

#[tokio::test]
async fn a_server_whose_entry_changes_is_still_watched() {
    let script = json!({ "logging": true });
    let mut bench = Before::default().server("fake", &script).open().await;
    bench.desk.watch_server_output("fake", true);
    bench.run("call fake echo {}").await;
    let file = bench.home.path().join("MCPs/servers.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let args = json!([json!({ "logging": true, "stderr": ["another"] }).to_string()]);
    let mut entries: serde_json::Value = serde_json::from_str(&text).unwrap();
    entries["mcpServers"]["fake"]["args"] = args;
    write(&file, &entries.to_string());
    bench
        .hear(|change| (server("fake")(change)?.state == ServerState::Stopped).then_some(()))
        .await;
    bench.desk.run_code("call fake echo {}".to_owned()).unwrap();
    loop {
        assert_eq!(bench.hear(writer).await, "fake");
        let output = bench.desk.read_server_output("fake").unwrap();
        if output.stderr.trim() == "another" {
            break;
        }
    }
    bench.close().await;
}

#[tokio::test]
async fn a_switch_counts_for_the_next_call_of_a_run_that_is_under_way() {
    let mut bench = Before::default().server("fake", &json!({})).open().await;
    bench.run("call fake pid {}").await;
    let id = bench
        .desk
        .run_code("call fake sleep {\"ms\":600}\ncall fake pid {}".to_owned())
        .unwrap();
    bench
        .hear(|change| match change {
            Change::Call { run_id, .. } if *run_id == id => Some(()),
            _ => None,
        })
        .await;
    bench
        .desk
        .set_tool_enabled("fake".to_owned(), "pid".to_owned(), false)
        .await
        .unwrap();
    let detail = bench.ended(&id).await;
    let lines: Vec<&str> = detail.stdout.lines().collect();
    assert!(lines[0].contains("slept"), "{lines:?}");
    assert!(lines[1].contains("tool_denied"), "{lines:?}");
    assert_eq!(detail.run.calls_failed, 1);

    bench
        .desk
        .set_server_enabled("fake".to_owned(), false)
        .await
        .unwrap();
    let off = bench.server("fake").await;
    assert!(!off.enabled && off.off_reason.is_none());
    assert_eq!((off.tools_count, off.tools_enabled), (16, 15));
    let refused = bench.run("call fake echo {\"text\":\"x\"}").await;
    assert!(
        refused.stdout.contains("server_disabled"),
        "{}",
        refused.stdout
    );
    bench
        .desk
        .set_server_enabled("fake".to_owned(), true)
        .await
        .unwrap();
    bench
        .desk
        .set_all_tools_enabled("fake".to_owned(), false)
        .await
        .unwrap();
    assert_eq!(bench.server("fake").await.tools_enabled, 0);
    bench
        .desk
        .set_all_tools_enabled("fake".to_owned(), true)
        .await
        .unwrap();
    assert_eq!(bench.server("fake").await.tools_enabled, 16);
    let works = bench.run("call fake pid {}").await;
    assert_eq!(works.run.calls_failed, 0);
    assert_eq!(
        bench.settings()["servers"],
        json!({ "drop-folder/fake": { "tools": { "deny": [] }, "enabled": true } })
    );
    bench.close().await;
}

#[tokio::test]
async fn a_server_that_does_not_start_needs_the_user() {
    let script = json!({ "exit": 3, "stderr": ["no licence"] });
    let mut bench = Before::default().server("fake", &script).open().await;
    let error = bench
        .desk
        .restart_server("fake".to_owned())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::ServerUnreachable);
    let failed = bench
        .hear(|change| match server("fake")(change)?.state {
            ServerState::Failed { error, .. } => Some(error),
            _ => None,
        })
        .await;
    assert!(failed.message.contains("no licence"), "{}", failed.message);
    let attention = bench.state().await.attention;
    assert!(
        attention
            .iter()
            .any(|it| it.id == "server fake" && it.error == failed)
    );
    let mut status = bench.desk.status();
    let troubled = status.wait_for(|status| status.servers.iter().any(|it| it.in_trouble));
    tokio::time::timeout(crate::bench::PATIENCE, troubled)
        .await
        .unwrap()
        .unwrap();
    bench.close().await;
}

#[tokio::test]
async fn a_piece_of_any_clients_file_is_read_as_it_is_written() {
    let bench = Bench::open().await;
    let json = r#"{ "mcpServers": { "github": { "command": "npx", "args": ["-y", "x"], "env": { "GITHUB_TOKEN": "ghp_123456", "MODE": "${MODE}" } } } }"#;
    let toml = "[mcp_servers.remote]\nurl = \"https://example.test/mcp\"\n[mcp_servers.remote.http_headers]\nAuthorization = \"Bearer abcdef\"\n";
    let member = r#""fs": { "command": "fs-server", "cwd": "/tmp" },"#;
    let parsed = bench.desk.parse_servers(json).unwrap();
    assert!(parsed.problems.is_empty());
    let [github] = &parsed.servers[..] else {
        panic!()
    };
    assert_eq!(github.name, "github");
    let variable = |name: &str, value: &str, secret| NewVariable {
        name: name.to_owned(),
        value: value.to_owned(),
        secret,
    };
    assert_eq!(
        github.variables,
        [
            variable("GITHUB_TOKEN", "ghp_123456", true),
            variable("MODE", "${MODE}", false)
        ]
    );
    let parsed = bench.desk.parse_servers(toml).unwrap();
    assert!(
        matches!(&parsed.servers[0].transport, NewTransport::Http { url, sse: false } if url == "https://example.test/mcp"),
        "{parsed:?}"
    );
    assert!(parsed.servers[0].variables[0].secret);
    let parsed = bench.desk.parse_servers(member).unwrap();
    assert_eq!(parsed.servers[0].name, "fs");
    let parsed = bench
        .desk
        .parse_servers("{ \"mcpServers\": {\n \"x\": nope } }")
        .unwrap();
    assert_eq!(
        (parsed.servers.len(), parsed.problems[0].line),
        (0, Some(2))
    );
    assert!(!bench.settings_file().exists());
    bench.close().await;
}

#[tokio::test]
async fn a_server_is_added_used_and_removed() {
    let mut bench = Bench::open().await;
    bench.state().await;
    bench.listen_anew();
    let stdio = NewTransport::Stdio {
        command: "some-server".to_owned(),
        args: vec!["--fast".to_owned()],
        cwd: None,
    };
    bench
        .desk
        .add_server(new("mine", stdio.clone()))
        .await
        .unwrap();
    let added = bench.hear(server("mine")).await;
    assert!(added.own && added.enabled);
    assert_eq!(
        (added.transport, added.target.as_str()),
        (Transport::Stdio, "some-server --fast")
    );
    assert_eq!(
        bench.settings()["own_servers"],
        json!({ "mine": { "command": "some-server", "args": ["--fast"] } })
    );
    let again = bench.desk.add_server(new("mine", stdio)).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::ServerExists);
    let http = NewTransport::Http {
        url: "ftp://x".to_owned(),
        sse: false,
    };
    let bad = bench.desk.add_server(new("bad", http)).await.unwrap_err();
    assert_eq!(bad.code, ErrorCode::InvalidArguments);
    bench
        .desk
        .set_server_enabled("mine".to_owned(), false)
        .await
        .unwrap();
    bench.desk.remove_server("mine".to_owned()).await.unwrap();
    bench
        .hear(|change| {
            matches!(change, Change::ServerRemoved { name } if name == "mine").then_some(())
        })
        .await;
    assert_eq!(bench.settings()["own_servers"], json!({}));
    assert_eq!(bench.settings()["servers"], json!({}));
    let missing = bench
        .desk
        .remove_server("mine".to_owned())
        .await
        .unwrap_err();
    assert_eq!(missing.code, ErrorCode::ServerNotFound);
    bench.close().await;
}

#[tokio::test]
async fn what_changes_in_a_file_on_disk_is_told() {
    let mut bench = Before::default().server("one", &json!({})).open().await;
    bench.state().await;
    bench.listen_anew();
    let file = bench.home.path().join("MCPs/servers.json");
    write(
        &file,
        r#"{ "mcpServers": { "two": { "command": "two" }, "odd": { "command": 5 } } }"#,
    );
    let mut seen = (false, false, false);
    bench
        .hear(|change| {
            match change {
                Change::ServerRemoved { name } if name == "one" => seen.0 = true,
                Change::Server { server } if server.name == "two" => seen.1 = true,
                Change::Entries { problems, .. } => {
                    seen.2 = problems
                        .iter()
                        .any(|it| it.entry.as_deref() == Some("odd") && it.line == Some(1));
                }
                _ => {}
            }
            (seen == (true, true, true)).then_some(())
        })
        .await;
    bench.close().await;
}

#[tokio::test]
async fn a_secret_value_goes_to_the_store_and_never_comes_back() {
    let mut bench = Bench::open().await;
    let mut server = new(
        "mine",
        NewTransport::Stdio {
            command: crate::bench::fake_upstream(),
            args: vec!["{}".to_owned()],
            cwd: None,
        },
    );
    server.variables = vec![
        NewVariable {
            name: "API_TOKEN".to_owned(),
            value: "s3cret-value-1".to_owned(),
            secret: true,
        },
        NewVariable {
            name: "MODE".to_owned(),
            value: "fast".to_owned(),
            secret: false,
        },
    ];
    bench.desk.add_server(server).await.unwrap();
    let env = bench.settings()["own_servers"]["mine"]["env"].clone();
    assert_eq!(
        env,
        json!({ "API_TOKEN": "keyring:mine/API_TOKEN", "MODE": "fast" })
    );
    let shown = bench.run("call mine environment {}").await.stdout;
    assert!(
        shown.contains("***") && !shown.contains("s3cret"),
        "{shown}"
    );
    let detail = bench.desk.read_server("mine").unwrap();
    let token = &detail.variables[0];
    assert_eq!(
        (token.secret, token.missing, &token.value),
        (true, false, &None)
    );
    assert_eq!(detail.variables[1].value.as_deref(), Some("fast"));
    bench
        .desk
        .set_server_secret(
            "mine".to_owned(),
            "API_TOKEN".to_owned(),
            "s3cret-value-2".to_owned(),
        )
        .await
        .unwrap();
    let other = bench
        .desk
        .set_server_secret("mine".to_owned(), "NOPE".to_owned(), "x".to_owned());
    assert_eq!(other.await.unwrap_err().code, ErrorCode::InvalidArguments);
    let kept = bench
        .bridge
        .secrets()
        .get("mine/API_TOKEN")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(kept.expose(), "s3cret-value-2");
    // No keyring opens here, which the window is told with the reason.
    let store = bench.state().await.app.secret_store;
    assert_eq!(store.kind, SecretStoreKind::EncryptedFile);
    assert!(store.error.is_some());
    bench.desk.remove_server("mine".to_owned()).await.unwrap();
    assert!(
        bench
            .bridge
            .secrets()
            .get("mine/API_TOKEN")
            .await
            .unwrap()
            .is_none()
    );
    let everything = std::fs::read_to_string(bench.settings_file()).unwrap();
    assert!(!everything.contains("s3cret"));
    bench.close().await;
}

#[tokio::test]
async fn a_server_that_lacks_a_value_starts_when_the_user_gave_it() {
    let script = json!({}).to_string();
    let entry = json!({
        "command": crate::bench::fake_upstream(),
        "args": [script, "--token=${DESK_TEST_TOKEN}"],
        "env": { "KEY": "${DESK_TEST_KEY}" },
    });
    let mut bench = Before::default().entry("fake", entry).open().await;
    let before = bench.server("fake").await;
    let names = vec!["DESK_TEST_TOKEN".to_owned(), "DESK_TEST_KEY".to_owned()];
    assert_eq!(before.state, ServerState::NeedsValue { names });
    let missing = bench.desk.read_server("fake").unwrap().variables;
    assert!(
        missing
            .iter()
            .all(|variable| variable.missing || variable.name == "KEY")
    );
    for (name, value) in [
        ("DESK_TEST_TOKEN", "t0ken-t0ken"),
        ("DESK_TEST_KEY", "k3y-k3y-k3y"),
    ] {
        let set =
            bench
                .desk
                .set_server_secret("fake".to_owned(), name.to_owned(), value.to_owned());
        set.await.unwrap();
    }
    assert_eq!(bench.server("fake").await.state, ServerState::Stopped);
    assert_eq!(
        bench.settings()["answers"],
        json!({ "DESK_TEST_TOKEN": "keyring:DESK_TEST_TOKEN", "DESK_TEST_KEY": "keyring:DESK_TEST_KEY" })
    );
    let run = bench.run("call fake environment {}").await;
    assert_eq!(run.run.calls_failed, 0, "{}", run.stdout);
    assert!(
        run.stdout.contains("--token=***") && !run.stdout.contains("k3y"),
        "{}",
        run.stdout
    );
    let target = bench.server("fake").await.target;
    assert!(target.ends_with("--token=***"), "{target}");
    bench.close().await;
}
