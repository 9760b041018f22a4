//! The record of runs: written, read by page, bounded, and never in the way.

use std::path::Path;
use std::time::{Duration, Instant};

use runbridge_core::activity::{Activity, After, Call, Retention, RunEnded, RunStarted};
use runbridge_core::output::Captured;
use tempfile::TempDir;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn open(path: &Path) -> Activity {
    Activity::open(path, Retention::default())
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn started(run_id: &str, started_at: i64) -> RunStarted {
    RunStarted {
        run_id: run_id.to_owned(),
        client: "claude".to_owned(),
        code: "print(1)".to_owned(),
        sandbox: "podman".to_owned(),
        started_at,
        ..RunStarted::default()
    }
}

fn ended(status: &str) -> RunEnded {
    RunEnded {
        status: status.to_owned(),
        ended_at: now_ms(),
        ..RunEnded::default()
    }
}

fn ids(activity: &Activity, after: Option<&After>, rows: usize) -> Vec<String> {
    activity
        .recent_runs(after, rows)
        .unwrap()
        .into_iter()
        .map(|row| row.run_id)
        .collect()
}

#[test]
fn a_run_with_its_calls_is_there_for_the_next_process() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("activity.db");
    let activity = open(&path);
    let begin = now_ms();
    activity.run_started(RunStarted {
        session: Some("s".to_owned()),
        ..started("a", begin)
    });
    let running = activity.run("a").unwrap().unwrap();
    assert_eq!(
        (running.row.status.as_str(), running.row.ended_at),
        ("running", None)
    );
    let call = Call {
        number: 1,
        server: "git".to_owned(),
        tool: "log".to_owned(),
        arguments: "{\"n\":1}".to_owned(),
        started_at: begin,
        duration_ms: 12,
        result_bytes: 345,
        error_code: Some("tool_failed".to_owned()),
        error: Some("no such branch".to_owned()),
    };
    activity.call_ended("a", call.clone());
    activity.call_ended(
        "a",
        Call {
            tool: "show".to_owned(),
            error_code: None,
            error: None,
            ..call.clone()
        },
    );
    activity.run_ended(
        "a",
        RunEnded {
            status: "error".to_owned(),
            stdout: Captured {
                head: "out".to_owned(),
                tail: "end".to_owned(),
                omitted: 3,
            },
            stderr: Captured::from("warned"),
            result: Some("42".to_owned()),
            error: Some("ValueError: x".to_owned()),
            error_text: Some("Traceback: x".to_owned()),
            servers: vec!["git".to_owned()],
            calls: 2,
            calls_failed: 1,
            memory_bytes_peak: Some(7),
            ended_at: begin + 5,
            ..RunEnded::default()
        },
    );
    drop(activity);

    let detail = open(&path).run("a").unwrap().unwrap();
    assert_eq!(
        (
            detail.row.client.as_str(),
            detail.row.session.as_deref(),
            detail.row.calls
        ),
        ("claude", Some("s"), 2)
    );
    assert_eq!(
        (detail.row.status.as_str(), detail.row.error.as_deref()),
        ("error", Some("ValueError: x"))
    );
    assert_eq!(
        (detail.row.started_at, detail.row.ended_at),
        (begin, Some(begin + 5))
    );
    assert_eq!(
        (
            detail.code.as_str(),
            detail.stdout.head.as_str(),
            detail.stdout.tail.as_str(),
            detail.stdout.omitted,
            detail.stderr.head.as_str(),
        ),
        ("print(1)", "out", "end", 3, "warned")
    );
    assert_eq!(
        (
            detail.result.as_deref(),
            detail.error_text.as_deref(),
            detail.row.calls_failed,
            detail.row.memory_bytes_peak
        ),
        (Some("42"), Some("Traceback: x"), 1, Some(7))
    );
    assert_eq!(detail.row.servers, ["git"]);
    assert_eq!(detail.call_list[0], call);
    assert_eq!(detail.call_list[1].tool, "show");
    assert_eq!(open(&path).run("absent").unwrap(), None);
}

#[test]
fn runs_come_by_page_newest_first_from_two_processes() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("activity.db");
    let (one, two) = (open(&path), open(&path));
    let begin = now_ms();
    for number in 0..10 {
        let activity = if number % 2 == 0 { &one } else { &two };
        // Pairs begin in the same millisecond.
        activity.run_started(started(&number.to_string(), begin + number / 2));
        activity.run_ended(&number.to_string(), ended("success"));
    }
    assert!(one.flush(Duration::from_secs(10)) && two.flush(Duration::from_secs(10)));
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = one.recent_runs(after.as_ref(), 3).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(After {
            started_at: last.started_at,
            run_id: last.run_id.clone(),
        });
        seen.extend(page.into_iter().map(|row| row.run_id));
    }
    assert_eq!(seen, ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]);
}

#[test]
fn texts_are_bounded() {
    let home = TempDir::new().unwrap();
    let activity = open(&home.path().join("activity.db"));
    activity.run_started(RunStarted {
        code: "★".repeat(1_000_000),
        ..started("a", now_ms())
    });
    activity.call_ended(
        "a",
        Call {
            arguments: "x".repeat(100_000),
            ..Call::default()
        },
    );
    activity.run_ended(
        "a",
        RunEnded {
            stdout: Captured {
                head: "h".repeat(1_000_000),
                tail: "y".repeat(1_000_000),
                omitted: 1,
            },
            ..ended("success")
        },
    );
    let detail = activity.run("a").unwrap().unwrap();
    assert!(detail.code.len() <= 256 * 1024 && detail.code.contains("3000000 bytes in all"));
    assert!(detail.call_list[0].arguments.len() <= 16 * 1024);
    assert_eq!(detail.stdout.tail.len(), 32 * 1024);
    assert_eq!(detail.stdout.omitted, 2_000_001 - 64 * 1024);
}

#[test]
fn retention_removes_old_and_many_and_large_runs_with_their_calls() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("activity.db");
    let now = now_ms();
    {
        let activity = open(&path);
        for number in 0..1_200 {
            let run_id = format!("{number:04}");
            activity.run_started(started(
                &run_id,
                if number < 600 {
                    now - 31 * DAY_MS
                } else {
                    now + number
                },
            ));
            activity.call_ended(&run_id, Call::default());
            activity.run_ended(&run_id, ended("success"));
        }
        assert!(activity.flush(Duration::from_secs(10)));
    }
    let count = |what: &str| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .query_row(&format!("SELECT count(*) FROM {what}"), [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
    };
    // Retention works after a write, in the writer's own time.
    let after_one_more = |retention: Retention, done: &dyn Fn() -> bool| {
        let activity = Activity::open(&path, retention);
        activity.run_started(started("newest", now + 5_000));
        assert!(activity.flush(Duration::from_secs(10)));
        let until = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(
                Instant::now() < until,
                "{} runs, {} calls",
                count("runs"),
                count("calls")
            );
            std::thread::yield_now();
        }
        assert_eq!(ids(&activity, None, 1), ["newest"]);
    };
    after_one_more(Retention::default(), &|| {
        count("runs") == 601 && count("calls") == 600
    });
    after_one_more(
        Retention {
            runs_max: 100,
            ..Retention::default()
        },
        &|| count("runs") == 100 && count("calls") == 99,
    );
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute(
            "UPDATE runs SET code = ?1 WHERE run_id <> 'newest'",
            ["x".repeat(100_000)],
        )
        .unwrap();
    after_one_more(
        Retention {
            bytes_max: 6_000_000,
            ..Retention::default()
        },
        &|| count("runs") == 50,
    );
}

#[test]
fn a_run_of_a_bridge_that_died_does_not_run_for_ever() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("activity.db");
    {
        let activity = open(&path);
        activity.run_started(started("old", now_ms() - 2 * DAY_MS));
        activity.run_started(started("new", now_ms()));
    }
    let activity = open(&path);
    activity.run_started(started("third", now_ms()));
    let status = |run_id: &str| activity.run(run_id).unwrap().unwrap().row.status;
    assert_eq!(
        (status("old"), status("new")),
        ("interrupted".to_owned(), "running".to_owned())
    );
}

#[test]
fn without_a_usable_file_runs_are_kept_in_memory_and_written_when_it_is_back() {
    let home = TempDir::new().unwrap();
    let blocked = home.path().join("state");
    std::fs::write(&blocked, "a file where the folder should be").unwrap();
    let activity = open(&blocked.join("activity.db"));
    activity.run_started(started("a", now_ms()));
    activity.call_ended(
        "a",
        Call {
            tool: "log".to_owned(),
            ..Call::default()
        },
    );
    activity.run_ended("a", ended("success"));
    assert!(!activity.flush(Duration::from_millis(200)));
    let problem = activity.problem().unwrap();
    assert!(
        problem.contains("activity.db") && problem.contains("kept in memory"),
        "{problem}"
    );
    assert_eq!(ids(&activity, None, 10), ["a"]);
    assert_eq!(activity.run("a").unwrap().unwrap().call_list.len(), 1);

    std::fs::remove_file(&blocked).unwrap();
    assert!(activity.flush(Duration::from_secs(10)));
    assert_eq!(activity.problem(), None);
    drop(activity);
    let detail = open(&blocked.join("activity.db"))
        .run("a")
        .unwrap()
        .unwrap();
    assert_eq!(
        (detail.row.status.as_str(), detail.call_list.len()),
        ("success", 1)
    );
}

#[test]
fn a_damaged_file_is_put_aside_and_said_so() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("activity.db");
    let garbage = "garbage ".repeat(4_000);
    std::fs::write(&path, &garbage).unwrap();
    let activity = open(&path);
    activity.run_started(started("a", now_ms()));
    assert!(activity.flush(Duration::from_secs(10)));
    assert!(activity.problem().unwrap().contains("damaged"));
    assert_eq!(ids(&activity, None, 10), ["a"]);
    assert_eq!(
        std::fs::read_to_string(home.path().join("activity.db.damaged-1")).unwrap(),
        garbage
    );
}

#[test]
fn a_file_damaged_while_open_is_put_aside_and_nothing_recorded_since_is_lost() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("activity.db");
    let activity = open(&path);
    activity.run_started(started("before", now_ms()));
    assert!(activity.flush(Duration::from_secs(10)));
    // A full checkpoint empties the log, so that the damage is not repaired from there.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(connection);
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::write(&path, vec![0xa5; usize::try_from(length).unwrap()]).unwrap();

    activity.run_started(started("after", now_ms()));
    assert!(
        activity.flush(Duration::from_secs(10)),
        "{:?}",
        activity.problem()
    );
    assert_eq!(ids(&activity, None, 10), ["after"]);
    assert!(home.path().join("activity.db.damaged-1").exists());
}

#[test]
fn recording_returns_at_once_while_another_process_holds_the_file() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("activity.db");
    let activity = open(&path);
    activity.run_started(started("first", now_ms()));
    assert!(activity.flush(Duration::from_secs(10)));
    let holder = rusqlite::Connection::open(&path).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let begin = Instant::now();
    for number in 0..1_000 {
        activity.run_started(started(&number.to_string(), now_ms()));
        activity.run_ended(&number.to_string(), ended("success"));
    }
    // Far below the time that writing waits for the holder.
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    holder.execute_batch("ROLLBACK").unwrap();
    assert!(activity.flush(Duration::from_secs(10)));
    let statuses = activity.recent_runs(None, 200).unwrap();
    assert!(
        statuses
            .iter()
            .filter(|row| row.run_id != "first")
            .all(|row| row.status == "success")
    );
}
