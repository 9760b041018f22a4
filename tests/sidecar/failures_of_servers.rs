//! Servers that misbehave: each costs its own calls alone.

use std::time::Duration;

use runbridge_testkit::{Bridge, TempHome};
use serde_json::{Value, json};

use crate::{engine, on};

/// A bridge with a good server and a bad one.
fn good_and_bad(bad: impl FnOnce(&TempHome) -> Value) -> Bridge {
    let home = TempHome::new();
    let (good, bad) = (home.stub(&[]), bad(&home));
    on(engine())
        .server("good", good)
        .server("bad", bad)
        .settings(json!({ "version": 1, "limits": { "server_start_ms_max": 3_000 } }))
        .start(home)
}

const ATTEMPT: &str = "
try:
    print(await mcp_bad.echo(text='x'))
except runtime.MCPError as error:
    print(error.server, '|', error.code, '|', error)
print(await mcp_good.echo(text='good works'))
";

#[test]
fn a_server_that_exits_at_once_costs_only_its_own_calls_and_its_words_are_told() {
    let bridge = good_and_bad(|home| home.stub(&["--exit-at-once"]));
    let printed = bridge.prints(ATTEMPT);
    assert!(printed.starts_with("bad |"), "{printed}");
    assert!(
        printed.contains("the licence file is missing"),
        "the last stderr line must be told: {printed}"
    );
    assert!(printed.ends_with("good works\n"), "{printed}");
    bridge.close();
}

#[test]
fn a_command_that_is_not_there_is_named_with_a_hint() {
    let bridge = good_and_bad(|_| json!({ "command": "npx-that-is-not-there", "args": ["x"] }));
    let printed = bridge.prints(ATTEMPT);
    assert!(
        printed.contains("npx-that-is-not-there") && printed.contains("PATH"),
        "{printed}"
    );
    assert!(printed.ends_with("good works\n"), "{printed}");
    bridge.close();
}

#[test]
fn a_server_that_hangs_in_its_greeting_is_given_up() {
    let bridge = good_and_bad(|home| home.stub(&["--hang"]));
    let reply = bridge.run_with(json!({ "code": ATTEMPT, "timeout": 60 }));
    assert_eq!(reply.status(), "success", "{}", reply.result);
    assert!(
        reply.stdout().starts_with("bad |") && reply.stdout().ends_with("good works\n"),
        "{}",
        reply.stdout()
    );
    // Three seconds by the setting, twice if it was started anew to find out its revision.
    assert!(reply.took < Duration::from_secs(20), "{:?}", reply.took);
    bridge.close();
}

#[test]
fn a_server_that_crashes_in_a_call_fails_that_call_at_once_and_comes_back() {
    let bridge = good_and_bad(|home| home.stub(&[]));
    let printed = bridge.prints(
        "
import time
begun = time.monotonic()
try:
    await mcp_bad.crash()
except runtime.MCPError as error:
    print('3' in str(error), 'about to crash' in str(error), time.monotonic() - begun < 10)
print(await mcp_good.echo(text='good'))
print(await mcp_bad.echo(text='back'))
",
    );
    assert_eq!(printed, "True True True\ngood\nback\n");
    bridge.close();
}

#[test]
fn a_crash_under_many_calls_ends_each_of_them() {
    let bridge = good_and_bad(|home| home.stub(&[]));
    let printed = bridge.prints(
        "
import asyncio
waiting = [asyncio.create_task(mcp_bad.never()) for _ in range(5)]
while (await mcp_bad.counts())['now'] < 6:
    await asyncio.sleep(0.01)
results = await runtime.gather(*waiting, mcp_bad.crash(), mcp_good.echo(text='other'))
print([type(result).__name__ for result in results])
",
    );
    assert_eq!(printed, format!("[{}'str']\n", "'MCPError', ".repeat(6)));
    bridge.assert_goes_on();
    bridge.close();
}

#[test]
fn a_server_killed_from_outside_is_started_anew() {
    let bridge = good_and_bad(|home| home.stub(&[]));
    let pid = bridge.prints("print((await mcp_bad.whoami())['pid'])");
    let status = std::process::Command::new("kill")
        .args(["-9", pid.trim()])
        .status()
        .unwrap();
    assert!(status.success());
    // The first call may meet the dying process; none after it may.
    bridge.run("try:\n    await mcp_bad.echo(text='x')\nexcept runtime.MCPError:\n    pass");
    let anew = bridge.prints("print((await mcp_bad.whoami())['pid'])");
    assert_ne!(anew, pid);
    bridge.close();
}
