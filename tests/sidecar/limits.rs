//! Contract 4: the limits, the forms they are written in, and what ends a run.

use std::time::Duration;

use runbridge_testkit::{Engine, TempHome, wait_for};
use serde_json::json;

use crate::{bridge, engine, on, on_every_engine, on_every_sandbox, with_stub, with_stub_and};

on_every_sandbox!(
    a_timeout_interrupts_and_keeps_the_variables,
    a_run_that_eats_the_interrupt_is_ended_and_the_reply_says_what_is_lost,
);

// The built-in sandbox has no threads to count; `builtin.rs` has its limits.
on_every_engine!(the_limits_hold_inside_as_they_are_told);

fn the_limits_hold_inside_as_they_are_told(engine: Engine) {
    let bridge = on(engine)
        .variable("MCP_BRIDGE_MEMORY", "200m")
        .variable("MCP_BRIDGE_PIDS", "40")
        .start(TempHome::new());
    let printed = bridge.prints(
        "
import threading, time
threads = []
try:
    while len(threads) < 200:
        thread = threading.Thread(target=time.sleep, args=(1,), daemon=True)
        thread.start()
        threads.append(thread)
except RuntimeError:
    pass
print(len(threads) < 60)
",
    );
    // Where the engine enforces nothing the runner's own limit must hold, or the reply must warn.
    if printed != "True\n" {
        let told = bridge.prints("print(runtime.sandbox())");
        assert!(
            told.contains("processes"),
            "neither a limit nor a warning: {told}"
        );
    }
    let reply = bridge.run("keep = []\nwhile True:\n    keep.append(bytearray(b'x') * (8 << 20))");
    assert!(reply.is_error(), "{}", reply.result);
    bridge.assert_goes_on();
    bridge.close();
}

fn a_timeout_interrupts_and_keeps_the_variables(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    bridge.prints("kept = 'still here'");
    for code in [
        "while True:\n    pass",
        "import time\ntime.sleep(60)",
        "import asyncio\nawait asyncio.sleep(60)",
    ] {
        let reply = bridge.ends(&format!("print('partial')\n{code}"), 1, "timeout");
        assert_eq!(
            reply.stdout(),
            "partial\n",
            "output before the timeout is kept"
        );
        assert!(reply.took < Duration::from_secs(8), "{:?}", reply.took);
        assert_eq!(bridge.prints("print(kept)"), "still here\n", "after {code}");
    }
    bridge.close();
}

fn a_run_that_eats_the_interrupt_is_ended_and_the_reply_says_what_is_lost(engine: Engine) {
    // A container is killed; the built-in sandbox goes on from a copy of its guest.
    let (told, there) = if engine.is_builtin() {
        ("variables and files are as they were before it", "True\n")
    } else {
        ("its variables are gone", "False\n")
    };
    let bridge = on(engine).start(TempHome::new());
    bridge.prints("kept = 1");
    let code = "print('partial')\nwhile True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass";
    let reply = bridge.ends(code, 1, "timeout");
    assert!(reply.text().contains("partial"), "{}", reply.text());
    let said = format!("{} {}", reply.text(), reply.str("summary"));
    assert!(said.contains(told), "{}", reply.result);
    assert!(reply.took < Duration::from_secs(12), "{:?}", reply.took);
    assert_eq!(bridge.prints("print('kept' in globals())"), there);
    bridge.close();
}

#[test]
fn limits_are_written_as_people_write_them() {
    for (value, seconds) in [("2", 2), ("1s", 1), ("2000ms", 2)] {
        let bridge = on(engine())
            .variable("MCP_BRIDGE_TIMEOUT", value)
            .start(TempHome::new());
        let reply = bridge.run("import time\ntime.sleep(60)");
        assert_eq!(
            (reply.status(), reply.field("timeoutSeconds")),
            ("timeout", &json!(seconds)),
            "{value}"
        );
        bridge.close();
    }
    for (value, bytes) in [
        ("256m", 256_u64 << 20),
        ("1GiB", 1 << 30),
        ("1.5g", 3 << 29),
    ] {
        let bridge = on(engine())
            .variable("MCP_BRIDGE_MEMORY", value)
            .start(TempHome::new());
        let told = bridge.prints("print(runtime.sandbox())");
        assert!(told.contains(&bytes.to_string()), "{value}: {told}");
        bridge.close();
    }
}

#[test]
fn a_value_that_cannot_be_read_is_told_and_the_default_stays() {
    let bridge = on(engine())
        .variable("MCP_BRIDGE_TIMEOUT", "a while")
        .variable("MCP_BRIDGE_MEMORY", "lots")
        .start(TempHome::new());
    // Over a second, so that a default of zero would show.
    let printed =
        bridge.prints("import time\ntime.sleep(1.5)\nprint('works')\nprint(runtime.sandbox())");
    assert!(
        printed.starts_with("works\n") && printed.contains(&(512_u64 << 20).to_string()),
        "{printed}"
    );
    let log = bridge.client().stderr();
    for part in [
        "MCP_BRIDGE_TIMEOUT",
        "a while",
        "30s",
        "MCP_BRIDGE_MEMORY",
        "512m",
    ] {
        assert!(log.contains(part), "{part} is not in the log: {log}");
    }
    bridge.close();
}

#[test]
fn the_ceiling_of_the_timeout_is_a_setting() {
    let bridge = on(engine())
        .variable("MCP_BRIDGE_MAX_TIMEOUT", "200s")
        .start(TempHome::new());
    let reply = bridge.run_with(json!({ "code": "1", "timeout": 190 }));
    assert_eq!(reply.status(), "success", "{}", reply.result);
    let over = bridge.run_with(json!({ "code": "1", "timeout": 201 }));
    assert_eq!(over.status(), "validation_error", "{}", over.result);
    bridge.close();
}

#[test]
fn the_state_folder_can_be_moved() {
    let home = TempHome::new();
    let state = home.join("elsewhere");
    let bridge = on(engine())
        .variable("MCP_BRIDGE_STATE_DIR", state.to_string_lossy())
        .start(home);
    bridge.prints("save_memory('k', 1)");
    assert!(std::fs::read_dir(state.join("memory")).unwrap().count() > 0);
    bridge.close();
}

#[test]
fn a_run_may_make_so_many_calls_and_no_more() {
    let bridge = with_stub_and(
        engine(),
        &[],
        json!({ "version": 1, "limits": { "calls_max": 5 } }),
    );
    let reply =
        bridge.run("for n in range(9):\n    print(n, await mcp_stub.echo(text='x'), flush=True)");
    assert_eq!(reply.status(), "error", "{}", reply.result);
    assert_eq!(reply.stdout().lines().count(), 5, "{}", reply.result);
    assert!(
        reply.text().contains('5') && reply.text().contains("calls"),
        "{}",
        reply.text()
    );
    assert_eq!(
        bridge.prints("print(await mcp_stub.echo(text='the next run has its own'))"),
        "the next run has its own\n"
    );
    bridge.close();
}

#[test]
fn one_call_has_a_deadline_of_its_own() {
    let bridge = with_stub_and(
        engine(),
        &[],
        json!({ "version": 1, "limits": { "call_ms_max": 1_000 } }),
    );
    let printed = bridge.prints(
        "
try:
    await mcp_stub.never()
except runtime.MCPError as error:
    print('raised', error.tool)
print(await mcp_stub.echo(text='the server lives'))
",
    );
    assert_eq!(printed, "raised never\nthe server lives\n");
    bridge.close();
}

#[test]
fn an_idle_interpreter_is_stopped() {
    let mut bridge = on(engine())
        .variable("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", "2s")
        .settings(json!({ "version": 1, "sandbox": { "spares": 0 } }))
        .start(TempHome::new());
    bridge.prints("x = 1");
    bridge.leftovers().note_owner();
    assert_eq!(
        bridge.leftovers().owners().len(),
        1,
        "the container's owner was not found"
    );
    assert_eq!(bridge.leftovers().running_containers(), 1);
    let stopped = wait_for(Duration::from_secs(15), || {
        (bridge.leftovers().running_containers() == 0).then_some(())
    });
    assert!(stopped.is_some(), "the idle container still runs");
    assert_eq!(bridge.prints("print('x' in globals())"), "False\n");
    bridge.close();
}

#[test]
fn a_timeout_cancels_the_calls_it_waits_for() {
    let bridge = with_stub(engine());
    bridge.ends("await mcp_stub.never()", 1, "timeout");
    let cancelled = wait_for(Duration::from_secs(5), || {
        let counts = bridge.json("import json\nprint(json.dumps(await mcp_stub.counts()))");
        (counts["cancelled"].as_array().unwrap().len() == 1).then_some(())
    });
    assert!(cancelled.is_some(), "the server was not told");
    bridge.close();
}

#[test]
fn the_image_is_a_setting_and_its_absence_an_error_of_the_run() {
    let bridge = on(engine())
        .variable("MCP_BRIDGE_IMAGE", "localhost/absent:1")
        .start(TempHome::new());
    let reply = bridge.run("print(1)");
    assert_eq!(
        (reply.status(), reply.is_error()),
        ("error", true),
        "{}",
        reply.result
    );
    let text = reply.text();
    assert!(text.contains("localhost/absent:1"), "{text}");
    assert_eq!(text.matches("MCP_BRIDGE_IMAGE").count(), 1, "{text}");
    // The bridge goes on with what needs no sandbox.
    bridge.client().request("tools/list", json!({})).unwrap();
    let again = bridge.run("print(1)");
    assert_eq!(again.status(), "error", "{}", again.result);
    bridge.close();
}

#[test]
fn an_engine_that_is_forced_and_absent_is_named() {
    for (runtime, host) in [("docker", "DOCKER_HOST"), ("podman", "CONTAINER_HOST")] {
        let bridge = on(engine())
            .variable("MCP_BRIDGE_RUNTIME", runtime)
            .variable(host, "unix:///nonexistent/engine.sock")
            .start(TempHome::new());
        let reply = bridge.run("print(1)");
        assert_eq!(reply.status(), "error", "{}", reply.result);
        assert!(reply.text().contains(runtime), "{}", reply.text());
        bridge.close();
    }
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let bridge = bridge();
    let told = bridge.prints("print(runtime.sandbox())");
    for part in [
        (512_u64 << 20).to_string(),
        "128".to_owned(),
        (64_u64 << 20).to_string(),
        (128_u64 << 20).to_string(),
    ] {
        assert!(told.contains(&part), "{part}: {told}");
    }
    let reply = bridge.run(
        "import time
time.sleep(60)",
    );
    assert_eq!(
        (reply.status(), reply.field("timeoutSeconds")),
        ("timeout", &json!(30)),
        "{}",
        reply.result
    );
    bridge.close();
}
