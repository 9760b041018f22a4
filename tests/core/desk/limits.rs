//! Limits and settings, which are written to the settings file and in force at once.

use runbridge_core::api::{Appearance, Change, ErrorCode, Limit, LimitGroup, SetBy, SettingsPatch};
use serde_json::json;

use crate::bench::{Before, Bench, write};

fn named(limits: &[Limit], name: &str) -> Limit {
    limits
        .iter()
        .find(|limit| limit.name == name)
        .unwrap()
        .clone()
}

#[tokio::test]
async fn a_limit_is_set_is_told_and_is_put_back() {
    let mut bench = Before::default()
        .settings(json!({ "note": "mine", "limits": { "calls_max": 7 } }))
        .variable("MCP_BRIDGE_PIDS", "99")
        .open()
        .await;
    let limits = bench.state().await.limits;
    let memory = named(&limits, "memory_bytes_max");
    assert_eq!(
        (memory.set_by, memory.group),
        (SetBy::Default, LimitGroup::Sandbox)
    );
    assert_eq!(memory.value, 512 << 20);
    assert_eq!(named(&limits, "calls_max").set_by, SetBy::Settings);
    assert_eq!(named(&limits, "processes_max").set_by, SetBy::Variable);

    bench.listen_anew();
    let set = bench
        .desk
        .set_limit("memory_bytes_max".to_owned(), 64 << 20);
    let set = set.await.unwrap();
    assert_eq!((set.value, set.set_by), (64 << 20, SetBy::Settings));
    let told = bench
        .hear(|change| match change {
            Change::Limits { limits } => Some(named(limits, "memory_bytes_max")),
            _ => None,
        })
        .await;
    assert_eq!(told, set);
    assert_eq!(bench.bridge.settings().limits.memory_bytes_max, 64 << 20);
    // What else is in the file stays.
    assert_eq!(bench.settings()["note"], "mine");

    let back = bench
        .desk
        .reset_limit("memory_bytes_max".to_owned())
        .await
        .unwrap();
    assert_eq!((back.value, back.set_by), (512 << 20, SetBy::Default));
    assert_eq!(bench.settings()["limits"], json!({ "calls_max": 7 }));
    bench.close().await;
}

#[tokio::test]
async fn what_cannot_be_a_limit_is_refused_with_its_range() {
    let bench = Before::default()
        .variable("MCP_BRIDGE_PIDS", "99")
        .open()
        .await;
    for (name, value, said) in [
        ("memory_bytes_max", 5, "32 MiB"),
        ("frame_bytes_max", 64 << 20, "cannot be changed"),
        ("processes_max", 64, "MCP_BRIDGE_PIDS"),
        ("colour", 1, "no limit `colour`"),
    ] {
        let error = bench
            .desk
            .set_limit(name.to_owned(), value)
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::SettingsInvalid);
        assert!(error.message.contains(said), "{}", error.message);
    }
    assert!(!bench.settings_file().exists());
    bench.close().await;
}

#[tokio::test]
async fn the_clock_of_a_run_and_its_ceiling_drag_each_other_along() {
    let bench = Bench::open().await;
    let limits = || bench.bridge.settings().limits.clone();
    bench
        .desk
        .set_limit("run_ms_default".to_owned(), 300_000)
        .await
        .unwrap();
    assert_eq!(
        (limits().run_ms_default, limits().run_ms_max),
        (300_000, 300_000)
    );
    bench
        .desk
        .set_limit("run_ms_max".to_owned(), 60_000)
        .await
        .unwrap();
    assert_eq!(
        (limits().run_ms_default, limits().run_ms_max),
        (60_000, 60_000)
    );
    assert!(bench.bridge.settings_problems().is_empty());
    bench.close().await;
}

#[tokio::test]
async fn settings_are_changed_and_told() {
    let mut bench = Bench::open().await;
    let before = bench.state().await.settings;
    assert!(!before.launch_at_login && before.notifications && before.check_for_updates);
    assert_eq!((before.keep_runs_days, before.keep_runs_max), (30, 10_000));
    bench.listen_anew();
    let patch = SettingsPatch {
        launch_at_login: Some(true),
        appearance: Some(Appearance::Dark),
        keep_runs_days: Some(7),
        ..SettingsPatch::default()
    };
    bench.desk.change_settings(patch).await.unwrap();
    let told = bench
        .hear(|change| match change {
            Change::Settings { settings } => Some(settings.clone()),
            _ => None,
        })
        .await;
    assert!(told.launch_at_login && told.notifications);
    assert_eq!(
        (told.appearance, told.keep_runs_days),
        (Appearance::Dark, 7)
    );
    assert_eq!(bench.bridge.settings().retention().days_max, 7);

    let patch = SettingsPatch {
        keep_runs_max: Some(0),
        ..SettingsPatch::default()
    };
    let error = bench.desk.change_settings(patch).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::SettingsInvalid);
    bench.close().await;
}

#[tokio::test]
async fn a_settings_file_that_cannot_be_written_is_an_error_that_names_it() {
    let bench = Bench::open().await;
    // A folder in its place: also root cannot write to that.
    std::fs::create_dir_all(bench.settings_file()).unwrap();
    let set = bench.desk.set_limit("calls_max".to_owned(), 5).await;
    let error = set.unwrap_err();
    assert_eq!(error.code, ErrorCode::SettingsInvalid);
    assert!(error.message.contains("settings.json"), "{}", error.message);
    assert!(error.hint.is_some());
    assert_eq!(bench.bridge.settings().limits.calls_max, 1_000);
    bench.close().await;
}

#[tokio::test]
async fn a_newer_settings_file_is_not_touched() {
    let newer = json!({ "version": 99 });
    let bench = Before::default().settings(newer.clone()).open().await;
    let set = bench.desk.set_limit("calls_max".to_owned(), 5).await;
    assert_eq!(set.unwrap_err().code, ErrorCode::SettingsNewer);
    assert_eq!(bench.settings(), newer);
    let attention = bench.state().await.attention;
    assert!(
        attention
            .iter()
            .any(|it| it.error.code == ErrorCode::SettingsInvalid)
    );
    bench.close().await;
}

#[tokio::test]
async fn a_change_on_disk_is_told() {
    let mut bench = Bench::open().await;
    bench.state().await;
    bench.listen_anew();
    write(
        &bench.settings_file(),
        &json!({ "limits": { "calls_max": 3 } }).to_string(),
    );
    let told = bench
        .hear(|change| match change {
            Change::Limits { limits } => Some(named(limits, "calls_max").value),
            _ => None,
        })
        .await;
    assert_eq!(told, 3);
    bench.close().await;
}
