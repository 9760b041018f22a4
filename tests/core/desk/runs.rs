//! Runs: from the window, live, stopped, paused, on record.

use std::time::Duration;

use runbridge_core::api::{
    CallState, Change, ErrorCode, RunFilter, RunStatus, SandboxKind, Severity, Stream,
};
use runbridge_core::request;
use runbridge_core::run;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::{Before, Bench, PATIENCE, fake_upstream};

#[tokio::test]
async fn a_run_of_the_window_is_told_from_its_queue_to_its_end() {
    let mut bench = Before::default().server("fake", &json!({})).open().await;
    bench.state().await;
    bench.listen_anew();
    let script = "# about\nprint hello\neprint careful\ncall fake echo {\"text\":\"hi\"}\ncall fake fail {}\nvalue 42";
    let id = bench.desk.run_code(script.to_owned()).unwrap();
    let mut statuses = Vec::new();
    let mut output = [String::new(), String::new()];
    let mut calls = Vec::new();
    let last = bench
        .hear(|change| match change {
            Change::Run { run } if run.id == id => {
                if statuses.last() != Some(&run.status) {
                    statuses.push(run.status);
                }
                run.status.is_over().then(|| run.clone())
            }
            Change::RunOutput {
                run_id,
                stream,
                text,
            } if *run_id == id => {
                output[usize::from(*stream == Stream::Stderr)].push_str(text);
                None
            }
            Change::Call { run_id, call } if *run_id == id => {
                calls.push((
                    call.id.clone(),
                    call.tool.clone(),
                    call.state == CallState::Open,
                ));
                None
            }
            _ => None,
        })
        .await;
    assert_eq!(
        statuses,
        [RunStatus::Queued, RunStatus::Running, RunStatus::Success]
    );
    assert_eq!((last.calls, last.calls_failed), (2, 1));
    assert_eq!(last.servers, ["fake"]);
    assert_eq!(last.title, "print hello");
    assert_eq!(
        (last.client.as_str(), last.kind),
        ("runbridge", Some(SandboxKind::Container))
    );
    assert!(last.duration_ms.is_some() && last.reply_tokens.unwrap() > 0);
    assert!(last.direct_tokens.unwrap() > last.reply_tokens.unwrap());
    assert!(output[0].starts_with("hello\n") && output[0].contains("hi"));
    assert_eq!(output[1], "careful\n");
    let call = |id: &str, tool: &str, open| (id.to_owned(), tool.to_owned(), open);
    assert_eq!(
        calls,
        [
            call("1", "echo", true),
            call("1", "echo", false),
            call("2", "fail", true),
            call("2", "fail", false)
        ]
    );

    let detail = bench.desk.read_run(id.clone()).await.unwrap();
    assert_eq!(detail.run.status, RunStatus::Success);
    assert_eq!(detail.code, script);
    assert_eq!(
        (detail.stdout, detail.stderr),
        (output[0].clone(), output[1].clone())
    );
    assert_eq!(detail.result.as_deref(), Some("42"));
    assert_eq!(detail.calls.len(), 2);
    let CallState::Failed { error } = &detail.calls[1].state else {
        panic!("{:?}", detail.calls[1])
    };
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::ToolFailed, "date must be in the future")
    );
    assert_eq!(detail.calls[0].arguments, r#"{"text":"hi"}"#);
    let state = bench.state().await;
    assert!(state.seen.run && state.runs.is_empty());
    assert_eq!(
        (state.savings.runs_today, state.savings.calls_today),
        (1, 2)
    );
    assert!(state.savings.definitions_tokens > 100);
    assert_eq!(bench.server("fake").await.calls_today, 2);
    bench.close().await;
}

#[tokio::test]
async fn the_most_memory_of_a_run_is_told_while_it_lasts_and_kept() {
    let mut bench = Bench::open().await;
    let id = bench.desk.run_code("wait".to_owned()).unwrap();
    // What the gauge of the scripted sandbox shows.
    let used = Some(12_345_678);
    bench
        .hear(|change| match change {
            Change::Run { run } if run.id == id => (run.memory_bytes_peak == used).then_some(()),
            _ => None,
        })
        .await;
    bench.desk.stop_run(&id).unwrap();
    let live = bench.ended(&id).await.run;
    assert_eq!(live.memory_bytes_peak, used);
    // The same once it comes from the disk.
    assert!(bench.bridge.activity().flush(PATIENCE));
    let page = bench.desk.read_runs(RunFilter::default(), None, 10);
    assert_eq!(page.await.unwrap().runs[0].memory_bytes_peak, used);
    bench.close().await;
}

#[tokio::test]
async fn output_is_told_within_a_moment_while_the_run_goes_on() {
    let mut bench = Before::default()
        .entry(
            "fake",
            json!({ "command": "true", "env": { "API_TOKEN": "s3cret-s3cret-s3cret" } }),
        )
        .open()
        .await;
    bench.listen_anew();
    let id = bench
        .desk
        .run_code("print first s3cret-s3cret-s3cret\nwait".to_owned())
        .unwrap();
    bench.running(&id).await;
    let text = bench
        .hear(|change| match change {
            Change::RunOutput { text, .. } => Some(text.clone()),
            _ => None,
        })
        .await;
    assert_eq!(text, "first ***\n");
    // What a window reads of a live run goes on with what it is told later.
    let detail = bench.desk.read_run(id.clone()).await.unwrap();
    assert_eq!(
        (detail.stdout.as_str(), detail.run.status),
        ("first ***\n", RunStatus::Running)
    );
    assert!(detail.seq <= bench.bridge.events().seq());
    assert_eq!(bench.state().await.runs.len(), 1);
    bench.desk.stop_run(&id).unwrap();
    let detail = bench.ended(&id).await;
    assert_eq!(detail.run.status, RunStatus::Cancelled);
    let error = detail.error.unwrap();
    assert_eq!(error.code, ErrorCode::RunCancelled);
    assert!(
        error.message.contains("the user stopped the run"),
        "{}",
        error.message
    );
    assert_eq!(
        bench.desk.stop_run(&id).unwrap_err().code,
        ErrorCode::RunNotFound
    );
    bench.close().await;
}

#[tokio::test]
async fn a_client_learns_that_the_user_stopped_its_run() {
    let mut bench = Bench::open().await;
    let connection = bench.bridge.connect();
    let arguments = [("code".to_owned(), json!("wait"))].into_iter().collect();
    let request = request::parse(arguments, 30, 120).unwrap();
    let (bridge, of_client) = (bench.bridge.clone(), connection.clone());
    let running = tokio::spawn(async move {
        let cancel = CancellationToken::new();
        run::run_python(
            &bridge,
            &of_client,
            Some("tester"),
            request,
            cancel,
            run::Audience::default(),
            None,
        )
        .await
    });
    let id = bench
        .hear(|change| match change {
            Change::Run { run } if run.status == RunStatus::Running => Some(run.id.clone()),
            _ => None,
        })
        .await;
    let live = bench.desk.read_run(id.clone()).await.unwrap().run;
    assert_eq!(live.client, "tester");
    assert_eq!(live.connection_id, Some(connection.id().to_string()));
    bench.desk.stop_run(&id).unwrap();
    let reply = running.await.unwrap();
    assert!(
        reply.text.contains("the user stopped the run in Runbridge"),
        "{}",
        reply.text
    );
    bench.bridge.disconnect(&connection).await;
    bench.close().await;
}

#[tokio::test]
async fn a_pause_stops_what_runs_and_lets_nothing_begin() {
    let mut bench = Bench::open().await;
    let id = bench.desk.run_code("wait".to_owned()).unwrap();
    bench.running(&id).await;
    bench.desk.set_paused(true);
    let detail = bench.ended(&id).await;
    assert_eq!(detail.run.status, RunStatus::Cancelled);
    assert!(detail.error.unwrap().message.contains("paused"));
    assert!(bench.state().await.paused);
    let error = bench.desk.run_code("print no".to_owned()).unwrap_err();
    assert_eq!(error.code, ErrorCode::BridgeBusy);
    // A client is told why, and what to do.
    let connection = bench.bridge.connect();
    let arguments = [("code".to_owned(), json!("print no"))]
        .into_iter()
        .collect();
    let request = request::parse(arguments, 30, 120).unwrap();
    let cancel = CancellationToken::new();
    let reply = run::run_python(
        &bench.bridge,
        &connection,
        None,
        request,
        cancel,
        run::Audience::default(),
        None,
    )
    .await;
    assert!(
        reply.is_error && reply.text.contains("the user has paused Runbridge"),
        "{}",
        reply.text
    );
    bench.bridge.disconnect(&connection).await;
    bench.desk.set_paused(false);
    assert_eq!(bench.run("print yes").await.stdout, "yes\n");
    bench.close().await;
}

#[tokio::test]
async fn an_interpreter_is_listed_measured_and_ended() {
    let mut bench = Bench::open().await;
    bench.run("print one").await;
    let state = bench.state().await;
    let [interpreter] = &state.interpreters[..] else {
        panic!("{:?}", state.interpreters)
    };
    assert_eq!(
        (interpreter.client.as_str(), interpreter.runs),
        ("runbridge", 1)
    );
    assert!(interpreter.idle_since_at.is_some() && interpreter.connection_id.is_none());
    assert_eq!(interpreter.memory_bytes_max, 512 << 20);
    assert_eq!(state.sandbox.python.as_deref(), Some("3.14.0"));

    let measured = |change: &Change| match change {
        Change::Measured { measures, .. } => Some(measures.clone()),
        _ => None,
    };
    bench.listen_anew();
    assert!(
        bench
            .hear_within(Duration::from_millis(1_500), measured)
            .await
            .is_none()
    );
    bench.desk.watch_interpreters(true);
    let first = bench.hear(measured).await;
    assert_eq!(
        (first[0].memory_bytes, first[0].cpu_thousandths),
        (12_345_678, None)
    );
    assert_eq!(bench.hear(measured).await[0].cpu_thousandths, Some(0));
    bench.desk.watch_interpreters(false);
    bench.listen_anew();
    assert!(
        bench
            .hear_within(Duration::from_millis(1_500), measured)
            .await
            .is_none()
    );

    // One that works is ended with its run.
    let id = bench.desk.run_code("wait".to_owned()).unwrap();
    bench.running(&id).await;
    bench
        .desk
        .stop_interpreter(interpreter.id.clone())
        .await
        .unwrap();
    assert_eq!(bench.ended(&id).await.run.status, RunStatus::Cancelled);
    assert!(bench.state().await.interpreters.is_empty());
    let again = bench.desk.stop_interpreter(interpreter.id.clone()).await;
    assert!(again.is_err());
    bench.close().await;
}

#[tokio::test]
async fn the_record_is_filtered_paged_exported_and_cleared() {
    let mut bench = Before::default().server("fake", &json!({})).open().await;
    bench.run("call fake pid {}").await;
    bench.run("print 100%_sure").await;
    bench.run("raise no").await;
    let filter = |change: fn(&mut RunFilter)| {
        let mut filter = RunFilter::default();
        change(&mut filter);
        filter
    };
    for (filter, titles) in [
        (
            filter(|_| {}),
            vec!["raise no", "print 100%_sure", "call fake pid {}"],
        ),
        (
            filter(|it| it.server = Some("fake".to_owned())),
            vec!["call fake pid {}"],
        ),
        (
            filter(|it| it.status = Some(RunStatus::Error)),
            vec!["raise no"],
        ),
        (
            filter(|it| it.text = "0%_S".to_owned()),
            vec!["print 100%_sure"],
        ),
        (filter(|it| it.text = "0%%".to_owned()), vec![]),
        (filter(|it| it.client = Some("cursor".to_owned())), vec![]),
    ] {
        let page = bench
            .desk
            .read_runs(filter.clone(), None, 50)
            .await
            .unwrap();
        let found: Vec<&str> = page.runs.iter().map(|run| run.title.as_str()).collect();
        assert_eq!(found, titles, "{filter:?}");
        assert_eq!(page.total, titles.len() as u64);
        assert_eq!(page.clients, ["runbridge"]);
    }
    let first = bench
        .desk
        .read_runs(RunFilter::default(), None, 2)
        .await
        .unwrap();
    assert_eq!((first.runs.len(), first.total), (2, 3));
    let second = bench
        .desk
        .read_runs(RunFilter::default(), first.next, 2)
        .await
        .unwrap();
    assert_eq!((second.runs.len(), second.next), (1, None));

    let file = bench.home.path().join("runs.json");
    let saved = bench
        .desk
        .export_runs(RunFilter::default(), &file)
        .await
        .unwrap();
    assert_eq!(saved, file.display().to_string());
    let exported: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(exported["runs"].as_array().unwrap().len(), 3);
    assert_eq!(exported["runs"][2]["calls"][0]["tool"], "pid");
    let nowhere = bench.home.path().join("not/there/runs.json");
    assert!(
        bench
            .desk
            .export_runs(RunFilter::default(), &nowhere)
            .await
            .is_err()
    );

    bench.desk.clear_runs().await.unwrap();
    let page = bench
        .desk
        .read_runs(RunFilter::default(), None, 50)
        .await
        .unwrap();
    assert_eq!((page.total, page.runs.len()), (0, 0));
    // Clearing does not take back what was achieved.
    assert!(bench.state().await.seen.run);
    let gone = bench.desk.read_run("0000000000000000".to_owned()).await;
    assert_eq!(gone.unwrap_err().code, ErrorCode::RunNotFound);
    bench.close().await;
}

#[tokio::test]
async fn a_window_that_missed_changes_sees_it_by_their_numbers() {
    let mut bench = Bench::open().await;
    let state = bench.state().await;
    bench.listen_anew();
    bench.desk.set_paused(true);
    bench.desk.set_paused(false);
    let one = bench.events.recv().await.unwrap().seq;
    let two = bench.events.recv().await.unwrap().seq;
    assert_eq!((one, two), (state.seq + 1, state.seq + 2));
    assert!(bench.state().await.seq >= two);
    bench.close().await;
}

/// A long record is paged in the time of a blink, whatever page and filter.
#[tokio::test]
async fn ten_thousand_runs_are_paged() {
    use runbridge_core::activity::{RunEnded, RunStarted};
    let bench = Bench::open().await;
    let activity = bench.bridge.activity();
    for batch in 0..100 {
        for number in 0..100 {
            let run_id = format!("{:016x}", batch * 100 + number);
            activity.run_started(RunStarted {
                run_id: run_id.clone(),
                client: format!("client-{}", number % 7),
                title: format!("run {number}"),
                code: format!("print({number})\n").repeat(20),
                started_at: 1_900_000_000_000 + batch * 100 + number,
                ..RunStarted::default()
            });
            let end = RunEnded {
                status: "success".to_owned(),
                servers: vec!["fake".to_owned()],
                ended_at: 1_900_000_000_000 + batch * 100 + number + 5,
                ..RunEnded::default()
            };
            activity.run_ended(&run_id, end);
        }
        // No more may wait than are kept while the file cannot be written.
        assert!(activity.flush(Duration::from_secs(30)));
    }
    let filter = RunFilter {
        client: Some("client-3".to_owned()),
        text: "print(3".to_owned(),
        ..RunFilter::default()
    };
    let began = std::time::Instant::now();
    let page = bench.desk.read_runs(filter, None, 100).await.unwrap();
    let filtered = began.elapsed();
    assert_eq!((page.total, page.runs.len()), (300, 100));
    let mut after = None;
    let mut seen = 0;
    let mut slowest = Duration::ZERO;
    loop {
        let began = std::time::Instant::now();
        let page = bench
            .desk
            .read_runs(RunFilter::default(), after, 200)
            .await
            .unwrap();
        slowest = slowest.max(began.elapsed());
        assert_eq!(page.total, 10_000);
        seen += page.runs.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, 10_000);
    // Tens of milliseconds are usual; a machine with other work to do may take its time.
    assert!(
        filtered < Duration::from_secs(5) && slowest < Duration::from_secs(5),
        "{filtered:?} {slowest:?}"
    );
    bench.close().await;
}

#[tokio::test]
async fn what_a_server_logs_of_a_run_is_on_record_with_it_and_without_secrets() {
    let secret = "s3cret-s3cret-s3cret";
    let script = json!({ "logging": true });
    let entry = json!({
        "command": fake_upstream(), "args": [script.to_string()], "env": { "API_TOKEN": secret },
    });
    let mut bench = Before::default().entry("fake", entry).open().await;
    let line = json!({ "level": "error", "data": format!("refused {secret}") });
    let run = bench.run(&format!("call fake log {line}")).await;
    let quiet = bench.run("call fake echo {}").await;
    assert_eq!(quiet.log, []);
    let [line] = &run.log[..] else {
        panic!("{:?}", run.log)
    };
    assert_eq!((&line.server[..], line.severity), ("fake", Severity::Error));
    assert!(
        line.text.starts_with("refused ") && !line.text.contains(secret),
        "{}",
        line.text
    );
    let server = bench.desk.read_server_output("fake").unwrap();
    assert_eq!(server.log, run.log);
    // The bridge of tomorrow has the record alone.
    let home = bench.close().await;
    let bench = Bench::open_in(home, Vec::new()).await;
    let kept = bench.desk.read_run(run.run.id.clone()).await.unwrap();
    assert_eq!(kept.log, run.log);
    let server = bench.desk.read_server_output("fake").unwrap();
    assert!(server.log.is_empty());
    bench.close().await;
}
