//! A client gives a call up after a time that nobody can set: a run that takes longer is answered
//! before, goes on, and is collected.

use std::time::{Duration, Instant};

use runbridge_testkit::{Bridge, Era, Reply, RequestError, TempHome};
use serde_json::json;

use crate::{engine, on};

/// How long the client of these tests waits, as far as the bridge knows.
const WAITS_MS: u64 = 3_000;

/// A bridge that knows how long its client waits.
fn impatient(era: Era) -> Bridge {
    let home = TempHome::new();
    let lessons = json!({ "runbridge-testkit": WAITS_MS });
    home.write(".runbridge/cache/patience.json", &lessons.to_string());
    on(engine()).era(era).start(home)
}

fn collect(bridge: &Bridge, run: &str) -> Reply {
    bridge.run(&format!("runtime.result('{run}')"))
}

/// The reply of code that ends by itself, however slow the machine is.
fn settled(bridge: &Bridge, code: &str, session: &str) -> Reply {
    let mut reply = bridge.run_with(json!({ "code": code, "session": session, "timeout": 60 }));
    let end = Instant::now() + Duration::from_mins(1);
    while reply.status() == "running" && Instant::now() < end {
        reply = collect(bridge, reply.str("runId"));
    }
    reply
}

/// Runs until another session lets it go.
const LONG: &str = "
import time
print('begun', flush=True)
while load_memory('go', default=None) is None:
    time.sleep(0.05)
print('ended')
x = 6 * 7
x
";

fn a_long_run_is_answered_in_time_and_collected(era: Era) {
    let bridge = impatient(era);
    for session in ["default", "other"] {
        assert_eq!(settled(&bridge, "1", session).status(), "success");
    }
    let reply = bridge.run_with(json!({ "code": LONG, "timeout": 100 }));
    // Not at the end of its 100 s; how exactly it comes in time depends on the machine.
    assert!(reply.took < Duration::from_secs(20), "{:?}", reply.took);
    assert_eq!(
        (reply.status(), reply.stdout(), reply.is_error()),
        ("running", "begun\n", false),
        "{}",
        reply.result
    );
    let run = reply.str("runId").to_owned();
    let how = format!("runtime.result('{run}')");
    assert!(reply.text().contains(&how), "{}", reply.text());

    // It is not over; who asks within other code is told at once.
    assert_eq!(collect(&bridge, &run).status(), "running");
    let looked = settled(&bridge, &format!("print({how}.status)"), "other");
    assert_eq!(looked.stdout(), "running\n", "{}", looked.result);
    settled(&bridge, "save_memory('go', True)", "other");

    let end = Instant::now() + Duration::from_mins(1);
    let mut collected = collect(&bridge, &run);
    while collected.status() == "running" && Instant::now() < end {
        collected = collect(&bridge, &run);
    }
    assert_eq!(
        (
            collected.status(),
            collected.stdout(),
            collected.str("result")
        ),
        ("success", "begun\nended\n", "42"),
        "{}",
        collected.result
    );
    // An answer that got lost can be asked for again, and the variables are there.
    assert_eq!(collect(&bridge, &run).result, collected.result);
    let code = format!("print(x, {how}.stdout.split())");
    assert_eq!(
        settled(&bridge, &code, "default").stdout(),
        "42 ['begun', 'ended']\n"
    );
    bridge.close();
}

#[test]
fn a_long_run_is_answered_in_time_and_collected_by_a_client_that_greets() {
    a_long_run_is_answered_in_time_and_collected(Era::Initialize("2025-06-18"));
}

#[test]
fn a_long_run_is_answered_in_time_and_collected_by_a_client_without_a_greeting() {
    a_long_run_is_answered_in_time_and_collected(Era::Stateless("2026-07-28"));
}

#[test]
fn a_client_that_gives_a_call_up_is_answered_sooner_from_then_on() {
    let mut bridge = on(engine()).start(TempHome::new());
    bridge.run("1");
    let endless = json!({ "code": "import time\nwhile True: time.sleep(0.05)", "timeout": 100 });
    let pending = bridge.client().send_run(endless.clone());
    let id = pending.id;
    assert!(!pending.answered_within(Duration::from_millis(WAITS_MS)));
    bridge.client().notify(
        "notifications/cancelled",
        json!({ "requestId": id, "reason": "McpError: MCP error -32001: Request timed out" }),
    );
    // The variables are kept, so the next run of the session waits until the first has stopped.
    assert_eq!(bridge.run("2").status(), "success");
    for _ in 0..2 {
        let reply = bridge.run_with(endless.clone());
        assert_eq!(reply.status(), "running", "{}", reply.result);
        // What it was taught, with the time that a slow machine took to hear of it.
        assert!(reply.took < Duration::from_secs(20), "{:?}", reply.took);
        // The lesson outlives the bridge.
        bridge.restart();
    }
    bridge.close();
}

#[test]
fn a_run_that_nobody_knows_cannot_be_collected() {
    let bridge = on(engine()).start(TempHome::new());
    let reply = collect(&bridge, "00000000deadbeef");
    assert_eq!(reply.status(), "validation_error", "{}", reply.result);
    assert!(
        reply.text().contains("`00000000deadbeef`"),
        "{}",
        reply.text()
    );
    let code = "try: runtime.result('nonsense')\nexcept KeyError as error: print('no run', 'nonsense' in str(error))";
    assert_eq!(bridge.prints(code), "no run True\n");
    bridge.close();
}

#[test]
fn giving_up_the_wait_for_a_run_does_not_end_it() {
    let bridge = impatient(Era::Initialize("2025-11-25"));
    for session in ["default", "other"] {
        settled(&bridge, "1", session);
    }
    let reply = bridge.run_with(json!({ "code": LONG, "timeout": 100 }));
    let run = reply.str("runId").to_owned();
    let waiting = bridge
        .client()
        .send_run(json!({ "code": format!("runtime.result('{run}')") }));
    bridge.client().cancel(waiting.id);
    let answer = waiting.wait(Duration::from_secs(1));
    assert!(
        matches!(answer, Err(RequestError::TimedOut(_))),
        "{answer:?}"
    );
    settled(&bridge, "save_memory('go', True)", "other");
    let collected = settled(&bridge, &format!("runtime.result('{run}')"), "default");
    assert_eq!(collected.status(), "success", "{}", collected.result);
    bridge.close();
}
