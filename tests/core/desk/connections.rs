//! Clients that come in through the socket, as a window sees them.

use runbridge_core::api::{Change, RunStatus};
use runbridge_core::listener::Listener;
use runbridge_core::local_socket::{AppStream, Hello, Owner, connect};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::bench::{Bench, PATIENCE};

async fn send(client: &mut AppStream, message: Value) {
    let line = format!("{message}\n");
    client.write.write_all(line.as_bytes()).await.unwrap();
}

async fn answer(client: &mut AppStream, id: u64) -> Value {
    loop {
        let mut line = String::new();
        let read = client.read.read_line(&mut line);
        assert_ne!(
            timeout(PATIENCE, read).await.unwrap().unwrap(),
            0,
            "the app hung up"
        );
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == id {
            return message;
        }
    }
}

#[tokio::test]
async fn a_client_is_seen_with_its_runs_until_it_leaves() {
    let mut bench = Bench::open().await;
    assert!(!bench.state().await.seen.client);
    let owner = Owner::claim(bench.bridge.paths()).unwrap();
    let listener = Listener::open(bench.bridge.clone(), &owner).unwrap();
    let hello = Hello {
        version: "1.2.3".to_owned(),
        pid: 4711,
        cwd: "/some/where".into(),
        resumed: false,
        http_port: None,
    };
    let mut client = connect(bench.bridge.paths(), &hello).await.unwrap();
    send(&mut client, json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tester", "version": "7"},
    }}))
    .await;
    answer(&mut client, 1).await;
    send(
        &mut client,
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    )
    .await;
    let known = bench
        .hear(|change| match change {
            Change::Connection { connection } if connection.client == "tester" => {
                Some(connection.clone())
            }
            _ => None,
        })
        .await;
    assert_eq!(
        (known.version.as_deref(), known.revision.as_deref()),
        (Some("7"), Some("2025-11-25"))
    );
    assert_eq!(
        (known.pid, known.cwd.as_deref()),
        (4711, Some("/some/where"))
    );

    send(
        &mut client,
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "run_python", "arguments": {"code": "print hi\nwait", "session": "research"},
        }}),
    )
    .await;
    let run = bench
        .hear(|change| match change {
            Change::Run { run } if run.status == RunStatus::Running => Some((**run).clone()),
            _ => None,
        })
        .await;
    assert_eq!(
        (run.client.as_str(), run.session.as_deref()),
        ("tester", Some("research"))
    );
    assert_eq!(run.connection_id, Some(known.id.clone()));
    bench.desk.stop_run(&run.id).unwrap();
    let reply = answer(&mut client, 2).await;
    assert_eq!(reply["result"]["structuredContent"]["status"], "cancelled");
    let state = bench.state().await;
    assert!(state.seen.client);
    assert_eq!(state.interpreters[0].session.as_deref(), Some("research"));
    drop(client);
    bench
        .hear(|change| match change {
            Change::ConnectionClosed { id } if *id == known.id => Some(()),
            _ => None,
        })
        .await;
    listener.shut_down().await;
    let home = bench.close().await;
    drop(owner);

    // What has ever happened is known to the next one.
    let bench = Bench::open_in(home, Vec::new()).await;
    let state = bench.state().await;
    assert!(state.seen.client && state.connections.is_empty());
    bench.close().await;
}
