//! Code that ends badly: each with its true status, and a bridge that goes on and leaves nothing.

use std::time::Duration;

use runbridge_testkit::{Engine, TempHome};
use serde_json::json;

use crate::{on, on_every_engine, on_every_sandbox, with_stub};

on_every_sandbox!(
    an_exception,
    a_syntax_error,
    a_system_exit_keeps_the_variables,
    an_exit_of_the_process,
    a_memory_bomb,
    a_disk_fill,
    an_await_that_never_ends,
    fifty_megabytes_in_one_write,
    fifty_megabytes_in_lines,
    a_line_of_seventy_thousand,
    code_of_a_megabyte,
    results_and_arguments_of_megabytes,
    user_code_that_breaks_what_it_stands_on,
);

// The built-in sandbox has no processes and no native code; `builtin.rs` has what it says of them.
on_every_engine!(
    a_segmentation_fault,
    a_fork_bomb,
    a_child_that_outlives_its_run
);

fn an_exception(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    bridge.prints("kept = 1");
    let reply = bridge.ends("print('before')\n{}['absent']", 10, "error");
    assert_eq!(reply.stdout(), "before\n");
    assert!(
        reply.text().contains("KeyError: 'absent'"),
        "{}",
        reply.text()
    );
    assert_eq!(bridge.prints("print(kept)"), "1\n");
    let chained =
        "try:\n    {}['k']\nexcept KeyError as error:\n    raise ValueError('outer') from error";
    let reply = bridge.ends(chained, 10, "error");
    assert!(
        reply.text().contains("KeyError: 'k'") && reply.text().contains("ValueError: outer"),
        "{}",
        reply.text()
    );
    bridge.assert_goes_on();
    bridge.close();
}

fn a_syntax_error(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let reply = bridge.ends("good = 1\nx = = 1", 10, "error");
    assert!(
        reply.text().contains("SyntaxError") && reply.text().contains("line 2"),
        "{}",
        reply.text()
    );
    assert!(reply.text().contains("x = = 1"), "{}", reply.text());
    bridge.assert_goes_on();
    bridge.close();
}

fn a_system_exit_keeps_the_variables(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    bridge.prints("kept = 1");
    let reply = bridge.ends("import sys\nprint('before')\nsys.exit(3)", 10, "error");
    assert_eq!(reply.field("exitCode"), 3, "{}", reply.result);
    assert_eq!(bridge.prints("print(kept)"), "1\n");
    bridge.close();
}

fn an_exit_of_the_process(engine: Engine) {
    let restored = engine.is_builtin();
    let bridge = on(engine).start(TempHome::new());
    bridge.prints("gone = 1");
    let reply = bridge.ends(
        "import os\nprint('before', flush=True)\nos._exit(7)",
        10,
        "error",
    );
    assert_eq!(reply.field("exitCode"), 7, "{}", reply.result);
    assert!(reply.text().contains("before"), "{}", reply.text());
    // The built-in sandbox has a copy of its guest, from before the run.
    let (told, there) = if restored {
        ("variables and files are as they were before it", "True\n")
    } else {
        ("its variables are gone", "False\n")
    };
    let said = format!("{} {}", reply.text(), reply.str("summary"));
    assert!(said.contains(told), "{}", reply.result);
    assert_eq!(bridge.prints("print('gone' in globals())"), there);
    bridge.assert_goes_on();
    bridge.close();
}

fn a_segmentation_fault(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let reply = bridge.ends("import ctypes\nctypes.string_at(0)", 10, "error");
    assert_eq!(reply.field("exitCode"), 139, "{}", reply.result);
    bridge.assert_goes_on();
    bridge.close();
}

fn a_memory_bomb(engine: Engine) {
    let enforced = !engine.name.contains("rootless");
    let bridge = on(engine)
        .variable("MCP_BRIDGE_MEMORY", "256m")
        .start(TempHome::new());
    let code = "keep = []\nwhile True:\n    keep.append(bytearray(b'x') * (16 << 20))";
    let reply = bridge.run_with(json!({ "code": code, "timeout": 30 }));
    // Where the engine enforces nothing, the runner's own bound raises inside Python.
    let raised = reply.status() == "error" && reply.text().contains("MemoryError");
    assert!(
        reply.status() == "out_of_memory" || (!enforced && raised),
        "{}",
        reply.result
    );
    assert!(reply.is_error());
    // The runner's own bound is one of address space, which is larger.
    let named = reply.text().contains("256") || (!enforced && reply.text().contains("512 MiB"));
    assert!(named, "the limit must be named: {}", reply.text());
    bridge.assert_goes_on();
    bridge.close();
}

fn a_fork_bomb(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    // Bounded here as well, for an engine that bounds nothing.
    let code = "
import os, time
forks = 0
try:
    while forks < 400:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        forks += 1
except OSError as error:
    print(type(error).__name__)
print(forks < 200)
";
    assert_eq!(bridge.prints(code), "BlockingIOError\nTrue\n");
    bridge.assert_goes_on();
    bridge.close();
}

fn a_disk_fill(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let code = "with open('/tmp/fill', 'wb') as file:\n    while True:\n        file.write(b'x' * (1 << 20))";
    let reply = bridge.ends(code, 20, "error");
    assert!(
        reply.text().contains("No space left on device"),
        "{}",
        reply.text()
    );
    assert_eq!(
        bridge.prints(
            "import os\nos.remove('/tmp/fill')\nprint(open('/tmp/new', 'w').write('fits'))"
        ),
        "4\n"
    );
    bridge.close();
}

fn an_await_that_never_ends(engine: Engine) {
    let bridge = with_stub(engine);
    bridge.prints("kept = 1");
    for code in [
        "import asyncio\nawait asyncio.Event().wait()",
        "await mcp_stub.never()",
    ] {
        let reply = bridge.ends(code, 1, "timeout");
        assert!(reply.took < Duration::from_secs(8), "{:?}", reply.took);
    }
    assert_eq!(
        bridge.prints("print(kept, await mcp_stub.echo(text='x'))"),
        "1 x\n"
    );
    bridge.close();
}

fn fifty_megabytes_in_one_write(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let reply = bridge.ends("print('z' * 50_000_000)", 60, "success");
    let text = reply.text();
    assert!(
        text.chars().count() <= 20_000 && text.starts_with("zzz"),
        "{} characters",
        text.chars().count()
    );
    assert!(
        bridge.client().memory_kib("VmHWM") < 400_000,
        "{} KiB",
        bridge.client().memory_kib("VmHWM")
    );
    bridge.assert_goes_on();
    bridge.close();
}

fn fifty_megabytes_in_lines(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let code = "for number in range(50_000):\n    print(number, 'z' * 993)";
    let reply = bridge.ends(code, 100, "success");
    let text = reply.text();
    assert!(
        text.starts_with("0 zzz") && text.contains("49999 zzz"),
        "head and tail are kept"
    );
    assert!(
        text.chars().count() <= 20_000,
        "{} characters",
        text.chars().count()
    );
    bridge.assert_goes_on();
    bridge.close();
}

fn a_line_of_seventy_thousand(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let reply = bridge.ends("print('x' * 70_000)", 10, "success");
    assert!(reply.text().chars().count() <= 20_000);
    bridge.assert_goes_on();
    bridge.close();
}

fn code_of_a_megabyte(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let code = format!("text = '{}'\nprint(len(text))", "c".repeat(1_000_000));
    assert_eq!(bridge.prints(&code), "1000000\n");
    bridge.close();
}

fn results_and_arguments_of_megabytes(engine: Engine) {
    let bridge = with_stub(engine);
    let code = "
for size in (100_000, 10_000_000):
    print(len(await mcp_stub.big(size=size)))
print(len(await mcp_stub.echo(text='q' * 1_000_000)))
";
    assert_eq!(bridge.prints(code), "100000\n10000000\n1000000\n");
    bridge.assert_goes_on();
    bridge.close();
}

fn a_child_that_outlives_its_run(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    let code = "import subprocess\nsubprocess.Popen(['python3', '-c', 'import time; time.sleep(600)'])\nprint('left one')";
    assert_eq!(bridge.prints(code), "left one\n");
    bridge.assert_goes_on();
    bridge.close();
}

fn user_code_that_breaks_what_it_stands_on(engine: Engine) {
    let bridge = on(engine).start(TempHome::new());
    for code in [
        "import sys\nsys.stdout = None\nsys.stderr = None",
        "import sys\nsys.stdout.close()",
        "import builtins\ndel builtins.print\nbuiltins.len = None",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)",
        "import sys\nsys.modules.clear()",
        "del runtime, mcp\nglobals().clear()",
        "import os\nos.close(0)\nos.close(1)\nos.close(2)",
        "import threading\nthreading.Thread = None",
        "import gc\ngc.disable()\ngc.collect()",
        "try:\n    print('got', input())\nexcept EOFError:\n    pass",
    ] {
        // How such a run ends is its own affair; the next one must have a whole Python again.
        bridge.run_with(json!({ "code": code, "timeout": 5 }));
        let reply = bridge.run("import builtins\nprint('whole', runtime is not None)");
        let whole = reply.stdout() == "whole True\n";
        let told = reply.is_error() && code.contains("builtins");
        assert!(whole || told, "after {code:?}: {}", reply.result);
        if told {
            bridge.run("runtime.reset()");
        }
    }
    bridge.close();
}
