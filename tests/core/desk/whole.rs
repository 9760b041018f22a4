//! The whole state, what a tray shows, and what is said about the installation.

use std::sync::Arc;

use runbridge_core::api::{ErrorCode, Place, Subject, UpdateState};
use runbridge_core::desk::{AppFacts, Desk};
use runbridge_core::status::TrayIcon;
use serde_json::json;
use tokio::time::timeout;

use crate::bench::{Before, Bench, PATIENCE, write};

#[tokio::test]
async fn a_tray_is_told_what_it_shows_and_what_a_preset_changed() {
    let mut bench = Before::default().server("fake", &json!({})).open().await;
    bench.state().await;
    let mut status = bench.desk.status();
    let ready = timeout(
        PATIENCE,
        status.wait_for(|it| !it.presets.is_empty() && !it.servers.is_empty()),
    );
    let shown = ready.await.unwrap().unwrap().clone();
    assert_eq!(shown.icon(), TrayIcon::Idle, "{:?}", shown.attention);
    assert_eq!(shown.servers[0].name, "fake");
    let names: Vec<&str> = shown.presets.iter().map(|it| it.limit).collect();
    assert_eq!(
        names,
        ["memory_bytes_max", "run_ms_default", "cpu_thousandths_max"]
    );
    assert!(shown.presets.iter().all(|it| it.values.contains(&it.value)));

    let id = bench.desk.run_code("wait".to_owned()).unwrap();
    let active = timeout(
        PATIENCE,
        status.wait_for(|it| it.icon() == TrayIcon::Active),
    );
    assert_eq!(active.await.unwrap().unwrap().runs[0].id, id);
    bench.desk.stop_run(&id).unwrap();
    bench.ended(&id).await;
    let idle = timeout(PATIENCE, status.wait_for(|it| it.runs.is_empty()));
    idle.await.unwrap().unwrap();

    let preset = shown.presets[0].values[0];
    bench
        .desk
        .set_limit("memory_bytes_max".to_owned(), preset)
        .await
        .unwrap();
    let chosen = timeout(
        PATIENCE,
        status.wait_for(|it| it.presets[0].value == preset),
    );
    chosen.await.unwrap().unwrap();
    bench.desk.set_paused(true);
    timeout(PATIENCE, status.wait_for(|it| it.paused))
        .await
        .unwrap()
        .unwrap();
    bench.close().await;
}

#[tokio::test]
async fn the_bundle_says_what_is_wrong_and_no_secret() {
    let entry = json!({
        "command": "/nonexistent/server",
        "args": ["--api-key", "arg-s3cret-arg"],
        "env": { "GITHUB_TOKEN": "env-s3cret-env" },
    });
    let settings = json!({ "own_servers": { "own": { "url": "https://example.test", "headers": { "X-Plain": "own-s3cret-own" } } } });
    let mut bench = Before::default()
        .entry("broken", entry)
        .settings(settings)
        .open()
        .await;
    let _ = bench.desk.restart_server("broken".to_owned()).await;
    bench.run("print code-s3cret-code").await;
    write(
        &bench.home.path().join("logs/runbridge.log"),
        "a line with env-s3cret-env\n",
    );
    bench.state().await;
    let files = bench.desk.read_diagnostics().await.unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "versions.txt",
            "attention.txt",
            "settings.json",
            "servers.txt",
            "sandbox.json",
            "runs.txt",
            "runbridge.log"
        ]
    );
    let all: String = files.iter().map(|file| file.text.as_str()).collect();
    assert!(!all.contains("s3cret"), "{all}");
    for said in [
        env!("CARGO_PKG_VERSION"),
        "broken: on, failed",
        "a line with ***",
        "1 runs on record",
    ] {
        assert!(all.contains(said), "{said} in {all}");
    }
    let file = bench.home.path().join("bundle.txt");
    bench.desk.save_diagnostics(&file).await.unwrap();
    let saved = std::fs::read_to_string(file).unwrap();
    assert!(
        files
            .iter()
            .all(|file| saved.contains(file.text.trim_end()))
    );
    bench.close().await;
}

#[tokio::test]
async fn places_and_licences_are_named() {
    let bench = Bench::open().await;
    let app = bench.state().await.app;
    assert_eq!(
        bench.desk.open_place(Place::Settings).display().to_string(),
        app.settings_file
    );
    assert_eq!(
        bench.desk.open_place(Place::Logs),
        bench.home.path().join("logs")
    );
    assert!(app.sidecar.ends_with("bin/runbridge"));
    let licences = bench.desk.read_licences().await.unwrap();
    assert!(
        licences
            .iter()
            .any(|it| it.name == "tokio" && it.licence == "MIT")
    );
    assert!(licences.iter().all(|it| !it.licence.is_empty()));
    bench.close().await;
}

#[tokio::test]
async fn a_build_that_cannot_look_for_newer_ones_says_so() {
    let bench = Bench::open().await;
    assert_eq!(bench.state().await.app.update, UpdateState::Unknown);
    let without = Desk::open(Arc::clone(&bench.bridge), AppFacts::default());
    let state = without.get_state().await.unwrap();
    assert_eq!(state.app.update, UpdateState::Off);
    drop(without);
    bench.close().await;
}

#[tokio::test]
async fn what_is_wrong_with_files_needs_the_user() {
    let bench = Before::default()
        .settings(json!({ "limits": { "calls_max": "many" } }))
        .open()
        .await;
    write(&bench.home.path().join(".cursor/mcp.json"), "{ broken");
    bench.bridge.reload().await;
    let attention = bench.state().await.attention;
    let about = |subject: fn(&Subject) -> bool| attention.iter().find(|it| subject(&it.subject));
    let settings = about(|it| *it == Subject::Settings).unwrap();
    assert!(settings.error.message.contains("calls_max"), "{settings:?}");
    let entry =
        about(|it| matches!(it, Subject::Entry { path } if path.ends_with("mcp.json"))).unwrap();
    assert_eq!(entry.error.code, ErrorCode::EntryUnreadable);
    let mut status = bench.desk.status();
    let alarmed = timeout(
        PATIENCE,
        status.wait_for(|it| it.icon() == TrayIcon::Attention),
    );
    alarmed.await.unwrap().unwrap();
    bench.close().await;
}
