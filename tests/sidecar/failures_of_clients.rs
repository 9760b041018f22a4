//! Clients that cancel, vanish, come in pairs or ask for much at once.

use std::path::Path;
use std::time::{Duration, Instant};

use runbridge_testkit::{Bridge, Engine, TempHome, wait_for};
use serde_json::json;

use crate::{bridge, engine, on, on_every_sandbox};

on_every_sandbox!(
    a_cancelled_run_stops_with_its_calls_and_keeps_the_variables,
    a_client_that_goes_leaves_nothing,
    a_client_that_is_killed_leaves_nothing,
    two_clients_at_once_share_nothing,
    four_overlapping_runs_of_one_session_keep_their_order,
    runs_of_different_sessions_are_parallel,
);

/// A bridge whose server notes its start, so that a test can see that a run has begun.
fn noting(engine: Engine) -> Bridge {
    let home = TempHome::new();
    let starts = home.join("starts");
    let entry = home.stub(&["--starts", &starts.to_string_lossy()]);
    on(engine).server("stub", entry).start(home)
}

/// Wait until a file is there.
fn appears(path: &Path) {
    assert!(
        wait_for(Duration::from_secs(30), || path.exists().then_some(())).is_some(),
        "the run did not begin"
    );
}

/// The number of calls of the server that are under way; asked from a session of its own.
fn calls_now(bridge: &Bridge) -> u64 {
    let code = "print((await mcp_stub.counts())['now'] - 1)";
    let reply = bridge.run_with(json!({ "code": code, "session": "observer" }));
    reply
        .stdout()
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{}", reply.result))
}

fn a_cancelled_run_stops_with_its_calls_and_keeps_the_variables(engine: Engine) {
    let bridge = noting(engine);
    bridge.prints("kept = 'still here'");
    let pending = bridge
        .client()
        .send_run(json!({ "code": "await mcp_stub.never()", "timeout": 100 }));
    appears(&bridge.home().join("starts"));
    assert!(
        wait_for(Duration::from_secs(10), || (calls_now(&bridge) == 1)
            .then_some(()))
        .is_some()
    );
    bridge.client().cancel(pending.id);
    let begun = Instant::now();
    assert_eq!(bridge.prints("print(kept)"), "still here\n");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    let told = wait_for(Duration::from_secs(5), || {
        let counts = bridge.json("import json\nprint(json.dumps(await mcp_stub.counts()))");
        (counts["cancelled"].as_array().unwrap().len() == 1).then_some(())
    });
    assert!(
        told.is_some(),
        "the server was not told of the cancelled call"
    );
    bridge.assert_goes_on();
    bridge.close();
}

fn a_client_that_goes_leaves_nothing(engine: Engine) {
    let bridge = noting(engine);
    let _pending = bridge
        .client()
        .send_run(json!({ "code": "await mcp_stub.never()", "timeout": 100 }));
    appears(&bridge.home().join("starts"));
    let closed = bridge.close();
    assert!(closed.took < Duration::from_secs(12), "{:?}", closed.took);
}

fn a_client_that_is_killed_leaves_nothing(engine: Engine) {
    let bridge = noting(engine);
    let _pending = bridge
        .client()
        .send_run(json!({ "code": "await mcp_stub.never()", "timeout": 100 }));
    appears(&bridge.home().join("starts"));
    bridge.kill();
}

fn two_clients_at_once_share_nothing(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let (other, _) = bridge.another_client();
    let first = bridge
        .client()
        .send_run(json!({ "code": "who = 'first'\nprint(who)" }));
    let second = other.send_run(json!({ "code": "who = 'second'\nprint(who)" }));
    assert_eq!(first.reply().unwrap().stdout(), "first\n");
    assert_eq!(second.reply().unwrap().stdout(), "second\n");
    assert_eq!(bridge.prints("print(who)"), "first\n");
    assert_eq!(other.run("print(who)").stdout(), "second\n");
    // One that ends does not take the other's containers with it.
    assert!(!other.close().killed);
    assert_eq!(bridge.prints("print(who)"), "first\n");
    bridge.close();
}

fn four_overlapping_runs_of_one_session_keep_their_order(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    bridge.prints("order = []");
    let code = |n: usize| {
        format!(
            "import asyncio\nprint('begin {n}')\norder.append({n})\nawait asyncio.sleep(0.2)\nprint('end {n}')"
        )
    };
    let runs: Vec<_> = (0..4)
        .map(|n| {
            bridge
                .client()
                .send_run(json!({ "code": code(n), "timeout": 30 }))
        })
        .collect();
    for (n, run) in runs.into_iter().enumerate() {
        assert_eq!(
            run.reply().unwrap().stdout(),
            format!("begin {n}\nend {n}\n")
        );
    }
    assert_eq!(bridge.prints("print(order)"), "[0, 1, 2, 3]\n");
    // One that runs into its timeout in the middle shifts nobody's reply.
    let slow = "import time\nprint('slow', flush=True)\ntime.sleep(60)";
    let first = bridge
        .client()
        .send_run(json!({ "code": slow, "timeout": 1 }));
    let next: Vec<_> = (0..3)
        .map(|n| {
            bridge
                .client()
                .send_run(json!({ "code": format!("print({n})") }))
        })
        .collect();
    assert_eq!(first.reply().unwrap().status(), "timeout");
    for (n, run) in next.into_iter().enumerate() {
        assert_eq!(run.reply().unwrap().stdout(), format!("{n}\n"));
    }
    bridge.close();
}

fn runs_of_different_sessions_are_parallel(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let run = |session: usize, code: &str| {
        bridge
            .client()
            .send_run(json!({ "code": code, "session": format!("s{session}"), "timeout": 60 }))
    };
    // Start the interpreters first, so that only the runs are timed.
    for started in (0..4).map(|n| run(n, "1")).collect::<Vec<_>>() {
        assert_eq!(started.reply().unwrap().status(), "success");
    }
    let begun = Instant::now();
    let runs: Vec<_> = (0..4)
        .map(|n| run(n, "import time\ntime.sleep(1)\nprint('slept')"))
        .collect();
    for run in runs {
        assert_eq!(run.reply().unwrap().stdout(), "slept\n");
    }
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?} for four runs of one second",
        begun.elapsed()
    );
    bridge.close();
}

#[test]
fn a_run_that_was_cancelled_while_it_waited_never_runs() {
    let bridge = bridge();
    bridge.prints("ran = []");
    let first = bridge
        .client()
        .send_run(json!({ "code": "import time\ntime.sleep(1)" }));
    let second = bridge
        .client()
        .send_run(json!({ "code": "ran.append('cancelled')" }));
    let third = bridge
        .client()
        .send_run(json!({ "code": "ran.append('third')" }));
    bridge.client().cancel(second.id);
    assert_eq!(first.reply().unwrap().status(), "success");
    assert_eq!(third.reply().unwrap().status(), "success");
    assert_eq!(bridge.prints("print(ran)"), "['third']\n");
    bridge.close();
}

#[test]
fn progress_is_told_to_a_client_that_asks_for_it() {
    let bridge = bridge();
    let params = json!({
        "name": "run_python",
        "arguments": { "code": "print('x')" },
        "_meta": { "progressToken": "p1" },
    });
    let result = bridge.client().request("tools/call", params).unwrap();
    assert_eq!(result["structuredContent"]["status"], "success", "{result}");
    bridge.close();
}

#[test]
fn a_client_that_asks_for_very_much_at_once_gets_every_answer() {
    let bridge = on(engine()).start(TempHome::new());
    let runs: Vec<_> = (0..40)
        .map(|n| {
            bridge
                .client()
                .send_run(json!({ "code": format!("print({n})") }))
        })
        .collect();
    for (n, run) in runs.into_iter().enumerate() {
        let reply = run
            .reply()
            .unwrap_or_else(|error| panic!("run {n}: {error}"));
        assert_eq!(reply.stdout(), format!("{n}\n"), "{}", reply.result);
    }
    bridge.close();
}
