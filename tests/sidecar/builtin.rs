//! The built-in sandbox: when a session gets it, what it says of itself and of what it lacks, and
//! what it survives.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use runbridge_testkit::{Bridge, BridgeOptions, Engine, TempHome, wait_for};
use serde_json::json;

use crate::{SIDECAR, engine, on};

fn builtin() -> BridgeOptions {
    on(Engine::builtin())
}

/// A bridge that takes what is ready, on a machine where no engine is found but at `socket`.
fn automatic(socket: Option<&str>) -> BridgeOptions {
    let options = builtin()
        .variable("MCP_BRIDGE_RUNTIME", "auto")
        .variable("PATH", "/nowhere");
    // Nowhere is as good a place as any to find none.
    options.variable(
        "DOCKER_HOST",
        socket.unwrap_or("unix:///nowhere/docker.sock"),
    )
}

#[test]
fn what_is_not_there_says_what_to_do_instead() {
    let bridge = builtin().start(TempHome::new());
    for (code, told) in [
        (
            "import numpy",
            "numpy is not in the built-in sandbox; switch to Container in Sandbox settings",
        ),
        (
            "import pandas as pd",
            "pandas is not in the built-in sandbox; switch to Container",
        ),
        (
            "import ctypes",
            "ctypes is not in the built-in sandbox; switch to Container",
        ),
        (
            "import threading\nthreading.Thread(target=print).start()",
            "the built-in sandbox has no threads; use `await`, `asyncio.gather`",
        ),
        (
            "import asyncio\nawait asyncio.to_thread(print)",
            "the built-in sandbox has no threads",
        ),
        (
            "import subprocess\nsubprocess.run(['ls'])",
            "the built-in sandbox has no processes; switch to Container in Sandbox settings",
        ),
        (
            "import multiprocessing\nmultiprocessing.Pool(2).map(abs, [1])",
            "the built-in sandbox has no processes; switch to Container in Sandbox settings",
        ),
        (
            "import requests",
            "requests is not here, for the sandbox has no network; use the tools of a server",
        ),
        (
            "import os\nos.system('ls')",
            "the built-in sandbox has no processes; switch to Container in Sandbox settings",
        ),
        (
            "import urllib.request\nurllib.request.urlopen('http://127.0.0.1/')",
            "the sandbox has no network; use the tools of a server",
        ),
    ] {
        let reply = bridge.ends(code, 10, "error");
        assert!(reply.text().contains(told), "{code}\n{}", reply.text());
    }
    bridge.assert_goes_on();
    bridge.close();
}

#[test]
fn the_reply_python_and_doctor_tell_which_sandbox_it_is() {
    let bridge = builtin()
        .variable("MCP_BRIDGE_MEMORY", "300m")
        .variable("MCP_BRIDGE_CPUS", "0.5")
        .start(TempHome::new());
    let reply = bridge.run("import json\nprint(json.dumps(runtime.sandbox()))");
    assert_eq!(reply.str("sandbox"), "wasi", "{}", reply.result);
    let facts: serde_json::Value = serde_json::from_str(reply.stdout()).unwrap();
    assert_eq!(facts["backend"], "wasi");
    assert!(
        facts["python"].as_str().unwrap().starts_with("3."),
        "{facts}"
    );
    let memory = &facts["limits"]["memory_bytes_max"];
    assert_eq!(
        memory,
        &json!({ "asked": 300.0 * f64::from(1 << 20), "enforced": true, "how": "worker" })
    );
    assert_eq!(facts["limits"]["cpus_max"]["enforced"], false, "{facts}");
    assert!(
        reply.text().contains("0.5 CPUs is not in force"),
        "{}",
        reply.text()
    );

    let doctor = doctor(&bridge);
    for part in [
        "built-in, Python 3.",
        "memory_bytes_max 300 MiB, by worker",
        "packages: 0 installed; code may install some once you agree",
        "in the built-in sandbox, in ",
    ] {
        assert!(doctor.contains(part), "{part} in\n{doctor}");
    }
    bridge.close();
}

fn doctor(bridge: &Bridge) -> String {
    let output = Command::new(bridge.program())
        .args(["doctor", "--no-servers"])
        .env_clear()
        .env("HOME", bridge.home().path())
        .env("TMPDIR", bridge.home().temp_dir())
        .envs(bridge.variables().iter().cloned())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_engine_that_does_not_answer_is_not_waited_for() {
    let outside = TempHome::new();
    let socket = outside.join("docker.sock");
    // It takes connections and says nothing, as an engine does that is starting.
    let _silent = UnixListener::bind(&socket).unwrap();
    let address = format!("unix://{}", socket.display());
    // Once, for all: the built-in Python is compiled.
    let bridge = builtin().start(TempHome::new());
    bridge.assert_goes_on();
    bridge.close();
    let bridge = automatic(Some(&address)).start(TempHome::new());
    let reply = bridge.run("print('at once')");
    assert_eq!(reply.stdout(), "at once\n", "{}", reply.result);
    assert_eq!(reply.str("sandbox"), "wasi");
    // An engine is given seconds to answer.
    assert!(reply.took < Duration::from_secs(3), "{:?}", reply.took);
    bridge.close();
}

#[test]
fn without_any_engine_the_automatic_choice_works_and_doctor_says_why() {
    let bridge = automatic(None).start(TempHome::new());
    assert_eq!(bridge.run("print(1)").str("sandbox"), "wasi");
    let told = doctor(&bridge);
    assert!(
        told.contains("built-in, Python 3.")
            && told.contains("none in use: no container engine is available"),
        "{told}"
    );
    bridge.close();
}

#[test]
fn a_container_that_is_ready_is_taken_and_a_session_keeps_what_it_began_with() {
    let engine = engine();
    if engine.is_builtin() {
        return runbridge_testkit::skip(
            "the automatic choice of a container",
            "no engine is there",
        );
    }
    let bridge = on(engine)
        .variable("MCP_BRIDGE_RUNTIME", "auto")
        .start(TempHome::new());
    let sandbox = |session: &str| {
        let reply = bridge.run_with(json!({ "code": "kept = 1", "session": session }));
        reply.str("sandbox").to_owned()
    };
    let first = sandbox("first");
    let mut tries = 0;
    let ready = wait_for(Duration::from_mins(1), || {
        tries += 1;
        (sandbox(&format!("new {tries}")) == "container").then_some(())
    });
    assert!(ready.is_some(), "no session got the container");
    let again = bridge.run_with(json!({ "code": "kept", "session": "first" }));
    assert_eq!(again.str("sandbox"), first, "{}", again.result);
    // Also when its interpreter is a new one.
    bridge.run_with(json!({ "code": "import os; os._exit(1)", "session": "first" }));
    assert_eq!(sandbox("first"), first);
    bridge.close();
}

#[test]
fn a_missing_python_is_an_error_that_says_what_to_do() {
    // The program alone, as if somebody had taken it out of its folder.
    let elsewhere = TempHome::new();
    let program = elsewhere.join("runbridge");
    std::fs::copy(SIDECAR, &program).unwrap();
    let start = |runtime: &str| {
        let options = BridgeOptions::new(&program, Engine::builtin())
            .variable("MCP_BRIDGE_RUNTIME", runtime)
            .variable("PATH", "/nowhere")
            .variable("DOCKER_HOST", "unix:///nowhere/docker.sock");
        options.start(TempHome::new())
    };
    let bridge = start("builtin");
    let reply = bridge.ends("print(1)", 10, "error");
    assert_eq!(reply.field("error")["type"], "wasi_module_missing");
    let place = elsewhere.join("python");
    for part in [
        &*place.to_string_lossy(),
        "install Runbridge again",
        "MCP_BRIDGE_RUNTIME=container",
    ] {
        assert!(reply.text().contains(part), "{part}: {}", reply.text());
    }
    bridge.close();

    let bridge = start("auto");
    let reply = bridge.ends("print(1)", 10, "error");
    assert_eq!(reply.field("error")["type"], "sandbox_unavailable");
    for part in ["docker.sock", "the built-in Python is not available"] {
        assert!(reply.text().contains(part), "{part}: {}", reply.text());
    }
    bridge.close();
}

#[test]
fn the_first_start_on_a_machine_tells_what_it_does() {
    let home = TempHome::new();
    // A cache of its own: nothing is compiled yet, but somebody was killed while it was.
    let cache = home.join(".runbridge/cache/python");
    std::fs::create_dir_all(&cache).unwrap();
    let unfinished = cache.join("python-0123456789abcdef-0.0123456789abcdef.partial");
    std::fs::write(&unfinished, "half of it").unwrap();
    let bridge = builtin().start(home);
    let params = json!({
        "name": "run_python",
        "arguments": { "code": "print('ready')" },
        "_meta": { "progressToken": "first" },
    });
    let pending = bridge.client().send_request("tools/call", params);
    let told = bridge
        .client()
        .notification(Duration::from_mins(2), |notification| {
            notification["params"]["message"]
                .as_str()
                .is_some_and(|words| {
                    words.starts_with("preparing the built-in Python for this machine, once")
                })
        });
    assert!(told.is_some(), "no progress was told");
    let reply = pending.wait(Duration::from_mins(3)).unwrap();
    assert_eq!(reply["structuredContent"]["stdout"], "ready\n", "{reply}");
    assert!(
        bridge
            .client()
            .stderr()
            .contains("preparing the built-in Python")
    );
    assert!(!unfinished.exists());
    bridge.close();
}

#[test]
fn a_compilation_ends_with_the_sidecar_that_wanted_it() {
    let home = TempHome::new();
    std::fs::create_dir_all(home.join(".runbridge/cache/python")).unwrap();
    let bridge = builtin().start(home);
    let compiler = wait_for(Duration::from_mins(1), || {
        workers(&bridge).into_iter().find(|worker| {
            let words = std::fs::read(format!("/proc/{worker}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("Compile")
        })
    });
    let compiler = compiler.expect("nothing is compiled");
    kill(bridge.client().pid());
    let status = format!("/proc/{compiler}/status");
    let gone = wait_for(Duration::from_mins(1), || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        // Whoever takes in orphans here may be slow to notice that one has ended.
        (status.is_empty() || status.contains("State:\tZ")).then_some(())
    });
    assert!(gone.is_some(), "the compiler goes on");
}

#[test]
fn hundreds_of_sessions_one_after_another_leave_nothing() {
    let bridge = builtin().start(TempHome::new());
    let run = |number: u32| {
        let reply = bridge.run_with(json!({ "code": "print(1)", "session": format!("n{number}") }));
        assert_eq!(reply.stdout(), "1\n", "{}", reply.result);
    };
    let descriptors = || {
        let folder = format!("/proc/{}/fd", bridge.client().pid());
        std::fs::read_dir(folder).unwrap().count()
    };
    // Until as many interpreters live as may, and the allocator has what it needs.
    for number in 0..40 {
        run(number);
    }
    let alive = workers(&bridge).len();
    let before = (descriptors(), bridge.client().memory_kib("VmRSS"));
    for number in 40..160 {
        run(number);
    }
    // Some may be on their way up or down as they are counted.
    let settled = wait_for(Duration::from_mins(1), || {
        (workers(&bridge).len() <= alive + 2 && descriptors() <= before.0 + 8).then_some(())
    });
    assert!(
        settled.is_some(),
        "{} workers and {} descriptors, {alive} and {} before",
        workers(&bridge).len(),
        descriptors(),
        before.0
    );
    let grown = bridge.client().memory_kib("VmRSS").saturating_sub(before.1);
    assert!(grown < 8 << 10, "{grown} KiB more");
    bridge.close();
}

#[test]
fn a_worker_that_is_killed_costs_one_session() {
    // Without one that waits, the second session's worker is the new one.
    let bridge = builtin()
        .settings(json!({ "version": 1, "sandbox": { "spares": 0 } }))
        .start(TempHome::new());
    let run =
        |session: &str, code: &str| bridge.run_with(json!({ "code": code, "session": session }));
    run("one", "kept = 'one'");
    let before = workers(&bridge);
    run("two", "kept = 'two'");
    let victim = workers(&bridge)
        .into_iter()
        .find(|worker| !before.contains(worker))
        .unwrap();
    let pending = bridge.client().send_run(
        json!({ "code": "import time\ntime.sleep(60)", "session": "two", "timeout": 100 }),
    );
    // Nothing tells that the run has begun; it makes no difference to what must follow.
    kill(victim);
    let reply = pending.reply().unwrap();
    assert_eq!(reply.status(), "error", "{}", reply.result);
    assert_eq!(run("one", "print(kept)").stdout(), "one\n");
    let after = run("two", "print('kept' in globals())");
    assert_eq!(after.stdout(), "False\n", "{}", after.result);
    bridge.close();
}

/// Processes of this bridge's workers.
fn workers(bridge: &Bridge) -> Vec<u32> {
    let parent = bridge.client().pid().to_string();
    let children = std::fs::read_dir("/proc").unwrap().flatten();
    children
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let status: PathBuf = entry.path().join("status");
            let status = std::fs::read_to_string(status).ok()?;
            let of = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let worker = String::from_utf8_lossy(&words).contains("__worker");
            (of.trim() == parent && worker).then_some(pid)
        })
        .collect()
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn it_writes_to_two_places_in_memory_alone_and_sees_nothing_of_the_host() {
    let bridge = builtin()
        .variable("AWS_SECRET_ACCESS_KEY", "of-the-host")
        .start(TempHome::new());
    let facts = bridge.json(
        "
import json, os
facts = {}
for place, size in (('/tmp', 64), ('/workspace', 128)):
    written = 0
    try:
        with open(place + '/fill', 'wb') as file:
            while written < 400:
                file.write(b'x' * (1 << 20))
                file.flush()
                written += 1
    except OSError as error:
        facts[place] = [abs(written - size) <= 2, error.errno]
    os.remove(place + '/fill')
for place in ('/etc/passwd', '/proc/self/maps', '/home', '/lib/new', '/new', '/tmp/../etc/hostname'):
    try:
        open(place, 'w' if 'new' in place else 'r')
        facts[place] = 'opened'
    except OSError as error:
        facts[place] = type(error).__name__
facts['env'] = sorted(os.environ)
print(json.dumps(facts))",
    );
    let names = facts["env"].to_string();
    for name in ["AWS", "RUNBRIDGE", "MCP_BRIDGE", "SHELL"] {
        assert!(!names.contains(name), "{names}");
    }
    // WASI's number of ENOSPC.
    assert_eq!(facts["/tmp"], json!([true, 51]), "{facts}");
    assert_eq!(facts["/workspace"], json!([true, 51]), "{facts}");
    for place in [
        "/etc/passwd",
        "/proc/self/maps",
        "/home",
        "/lib/new",
        "/new",
        "/tmp/../etc/hostname",
    ] {
        assert_ne!(facts[place], "opened", "{place}");
        assert!(facts[place].is_string(), "{place}: {facts}");
    }
    bridge.assert_goes_on();
    bridge.close();
}

#[test]
fn an_interrupted_run_answers_soon_and_the_next_one_at_once() {
    let bridge = builtin().start(TempHome::new());
    bridge.prints("kept = 1");
    // C code that never looks at an interrupt.
    let begun = Instant::now();
    let reply = bridge.ends("sum(range(10**12))", 1, "timeout");
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        reply.text().contains("as they were before it"),
        "{}",
        reply.text()
    );
    assert_eq!(bridge.prints("print(kept)"), "1\n");
    bridge.close();
}
