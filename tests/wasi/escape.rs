//! Ways out that are none: each case names what is tried and why it is refused, and after all of them
//! the same session still works.

use std::fmt::Write as _;

use crate::session::Session;

/// (code, what the reply must contain)
const CASES: &[(&str, &str)] = &[
    // No network.
    (
        "import socket; socket.socket()",
        "OSError: the sandbox has no network",
    ),
    (
        "import _socket; _socket.socket()",
        "OSError: [Errno 58] Not supported",
    ),
    (
        "import socket; socket.create_connection(('127.0.0.1', 80), 1)",
        "OSError: the sandbox has no network",
    ),
    (
        "import socket; socket.getaddrinfo('example.com', 80)",
        "OSError: the sandbox has no network",
    ),
    (
        "import _socket; _socket.gethostbyname('localhost')",
        "gaierror",
    ),
    (
        "import asyncio; await asyncio.open_connection('127.0.0.1', 80)",
        "OSError: the sandbox has no network",
    ),
    (
        "import asyncio; await asyncio.start_server(print, '127.0.0.1', 0)",
        "OSError: the sandbox has no network",
    ),
    (
        "import asyncio; await asyncio.get_running_loop().getaddrinfo('x', 1)",
        "OSError: the sandbox has no network",
    ),
    (
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1/')",
        "URLError",
    ),
    ("import ssl", "ModuleNotFoundError"),
    // No processes and threads.
    (
        "import subprocess; subprocess.run(['ls'])",
        "OSError: the built-in sandbox has no processes",
    ),
    (
        "import os; os.popen('ls')",
        "OSError: the built-in sandbox has no processes",
    ),
    (
        "import os; os.system('ls')",
        "OSError: the built-in sandbox has no processes",
    ),
    ("import os; os.fork()", "AttributeError"),
    ("import os; os.execv('/bin/sh', ['sh'])", "AttributeError"),
    (
        "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
        "AttributeError",
    ),
    ("import os; os.kill(1, 9)", "AttributeError"),
    ("import os; os.setuid(0)", "AttributeError"),
    ("import os; os.chroot('/tmp')", "AttributeError"),
    (
        "import asyncio; await asyncio.create_subprocess_exec('ls')",
        "OSError: the built-in sandbox has no processes",
    ),
    (
        "import threading; threading.Thread(target=print).start()",
        "RuntimeError: the built-in sandbox has no threads",
    ),
    (
        "import _thread; _thread.start_new_thread(print, ())",
        "RuntimeError: the built-in sandbox has no threads",
    ),
    (
        "import concurrent.futures as c; c.ThreadPoolExecutor().submit(print)",
        "RuntimeError: the built-in sandbox has no threads",
    ),
    (
        "import concurrent.futures as c; c.ProcessPoolExecutor()",
        "OSError: the built-in sandbox has no processes",
    ),
    (
        "import multiprocessing; multiprocessing.Process(target=print).start()",
        "OSError: the built-in sandbox has no processes",
    ),
    // No native code.
    (
        "import ctypes",
        "ModuleNotFoundError: ctypes is not in the built-in sandbox",
    ),
    ("import mmap", "ModuleNotFoundError: mmap is not in"),
    ("import fcntl", "ModuleNotFoundError: fcntl is not in"),
    ("import resource", "ModuleNotFoundError: resource is not in"),
    (
        "import importlib.machinery as m; m.ExtensionFileLoader('x', '/tmp/x.so').create_module(None)",
        "AttributeError",
    ),
    // No files of the machine.
    ("open('/etc/passwd')", "FileNotFoundError"),
    ("open('/proc/self/environ')", "FileNotFoundError"),
    ("open('/proc/self/mem', 'rb')", "FileNotFoundError"),
    ("open('/../../../../etc/passwd')", "FileNotFoundError"),
    ("open('/tmp/../../../etc/passwd')", "FileNotFoundError"),
    ("open('../../../../../etc/passwd')", "FileNotFoundError"),
    ("open('/dev/fd/3')", "FileNotFoundError"),
    ("open('/dev/mem', 'rb')", "FileNotFoundError"),
    ("open('/dev/tty')", "FileNotFoundError"),
    ("open('/guest/runner.py')", "FileNotFoundError"),
    (
        "import os; os.symlink('/etc/passwd', '/tmp/l1'); open('/tmp/l1')",
        "FileNotFoundError",
    ),
    (
        "import os; os.symlink('../../../etc', '/tmp/l2'); os.listdir('/tmp/l2')",
        "FileNotFoundError",
    ),
    (
        "import os; os.symlink('loop', '/tmp/loop'); open('/tmp/loop')",
        "Symbolic link loop",
    ),
    (
        "import os; sorted(os.listdir('/'))",
        "['dev', 'lib', 'packages', 'tmp', 'workspace']",
    ),
    ("import os; os.read(3, 10)", "IsADirectoryError"),
    ("import os; os.read(4, 10)", "Bad file descriptor"),
    ("import os; os.write(7, b'x')", "Bad file descriptor"),
    // Nothing of the host's environment.
    (
        "import os; sorted(os.environ)",
        "['HOME', 'LANG', 'MPLBACKEND', 'PATH', 'TMPDIR']",
    ),
    ("import sys; sys.argv", "['']"),
    // What is read only stays so.
    ("open('/lib/python.zip', 'r+b')", "Read-only file system"),
    ("open('/lib/json.py', 'w')", "Read-only file system"),
    (
        "import os; os.remove('/lib/python.zip')",
        "Read-only file system",
    ),
    (
        "import os; os.rename('/lib', '/lab')",
        "Read-only file system",
    ),
    (
        "import os; os.rename('/workspace', '/tmp/w')",
        "Read-only file system",
    ),
    ("import os; os.rmdir('/tmp')", "Read-only file system"),
    ("import os; os.mkdir('/evil')", "Read-only file system"),
    (
        "import os; os.link('/lib/python.zip', '/tmp/x')",
        "Cross-device link",
    ),
    (
        "open('/tmp/\\0/etc/passwd')",
        "ValueError: embedded null byte",
    ),
    ("open('/tmp/' + 'a' * 300, 'w')", "Filename too long"),
    // Bounds.
    (
        "open('/tmp/fill', 'wb').write(b'x' * (70 << 20))",
        "No space left on device",
    ),
    (
        "open('/workspace/fill', 'wb').write(b'x' * (140 << 20))",
        "No space left on device",
    ),
    (
        "import os; os.remove('/tmp/fill'); os.remove('/workspace/fill')",
        "None",
    ),
    (
        "f = open('/tmp/far', 'wb'); f.seek(1 << 40); f.write(b'x'); f.flush()",
        "No space left on device",
    ),
    (
        "import os\nos.truncate('/tmp/far', 1 << 50)",
        "File too large",
    ),
    (
        "import os\nheld = []\nwhile True: held.append(os.open('/dev/null', os.O_RDONLY))",
        "No file descriptors available",
    ),
    (
        "for fd in held: os.close(fd)\nn = 0\nwhile True:\n    n += 1\n    open(f'/tmp/n{n}', 'w').close()",
        "No space left on device",
    ),
    (
        "for i in range(1, n): os.remove(f'/tmp/n{i}')\nn > 10000",
        "True",
    ),
    ("bytearray(1 << 30)", "MemoryError"),
    ("[0] * (1 << 28)", "MemoryError"),
    ("bytearray(1 << 40)", "OverflowError"),
    // Deep things.
    ("f = lambda: f()\nf()", "RecursionError"),
    (
        "a = []\nfor _ in range(100000): a = [a]\nrepr(a)",
        "RecursionError",
    ),
    (
        "eval('(' * 1000 + ')' * 1000)",
        "MemoryError: Parser stack overflowed",
    ),
    (
        "compile('-' * 100000 + '1', 'x', 'eval')",
        "MemoryError: Parser stack overflowed",
    ),
    ("import json; json.loads('[' * 100000)", "RecursionError"),
    (
        "import pickle; pickle.loads(b'\\x80\\x04\\x95' + b'\\xff' * 8)",
        "OverflowError",
    ),
    (
        "import pickle; pickle.loads(b\"cos\\nsystem\\n(S'ls'\\ntR.\")",
        "OSError: the built-in sandbox has no processes",
    ),
    (
        "import marshal; marshal.loads(b'(' + b'\\xff\\xff\\xff\\x7f')",
        "MemoryError",
    ),
    // The interpreter's end.
    (
        "import faulthandler; faulthandler._sigsegv()",
        "ended by force because it crashed",
    ),
    ("import os; os.abort()", "ended by force because it crashed"),
    ("import os; os._exit(5)", "exit 5"),
    ("import sys; sys.exit(3)", "exit 3"),
    (
        "import signal; signal.raise_signal(signal.SIGINT)",
        "KeyboardInterrupt",
    ),
    ("import signal; signal.alarm(1)", "AttributeError"),
    // Frames that only the host or nobody sends.
    (
        "import _door; _door.send(1, 5, b'{}')",
        "a frame of a kind that no guest sends",
    ),
    (
        "import _door; _door.send(2, 5, b'{}')",
        "a frame of a kind that no guest sends",
    ),
    (
        "import _door; _door.send(99, 5, b'{}')",
        "a frame of a kind that no guest sends",
    ),
    (
        "import _door; _door.send(17, 5, b'x' * (65 << 20))",
        "a frame larger than any may be",
    ),
    ("import _door; _door.send(16, 0, b'{}'); 1", "1"),
    ("import _door; _door.send(22, 999999, b'{}'); 1", "1"),
    (
        "import _door; _door.on_turn(print)",
        "RuntimeError: the turns are taken",
    ),
    // What a run breaks, the next one finds whole.
    (
        "import os\nfor fd in range(3): os.close(fd)\nprint('still here')",
        "still here",
    ),
    (
        "import sys; sys.stdout = sys.stderr = None; sys.modules.clear(); 1",
        "1",
    ),
    (
        "import builtins; del builtins.print, builtins.__import__",
        "None",
    ),
    ("print('whole')", "whole"),
    (
        "import asyncio; asyncio.get_event_loop_policy().get_event_loop().close(); 1",
        "1",
    ),
    ("import asyncio; await asyncio.sleep(0); 2", "2"),
    ("import json\njson.loads = json.dumps = None; 3", "3"),
];

#[tokio::test]
async fn no_case_gets_out_and_the_session_survives_them_all() {
    let mut session = Session::start().await;
    session.run("kept = 'kept'").await;
    let mut wrong = String::new();
    for (code, wanted) in CASES {
        let ran = session.run(code).await;
        let outcome = &ran.outcome;
        let mut reply = ran.stdout.clone();
        if let Some(error) = &outcome.error {
            let _ = write!(reply, "{}: {}", error.r#type, error.message);
        }
        if let Some(code) = outcome.exit_code {
            let _ = write!(reply, "exit {code}");
        }
        if outcome.error.is_none() && outcome.exit_code.is_none() {
            reply += outcome.result.as_deref().unwrap_or("None");
        }
        reply += &ran.notes();
        if outcome.end != runbridge_sandbox::RunEnd::Finished || !reply.contains(wanted) {
            let _ = writeln!(
                wrong,
                "{code}\n  wanted {wanted}\n  got {:?} {reply}",
                outcome.end
            );
        }
        if !session.interpreter.is_alive() {
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(session.run("kept").await.value(), "'kept'");
}

#[tokio::test]
async fn sessions_do_not_see_one_another() {
    let mut one = Session::start().await;
    let mut two = Session::start().await;
    one.run(
        "secret = 'x' * 100\nopen('/tmp/secret', 'w').write(secret)\nimport json; json.secret = 1",
    )
    .await;
    let ran = two
        .run("import os, json; os.listdir('/tmp'), 'secret' in globals(), hasattr(json, 'secret')")
        .await;
    assert_eq!(ran.value(), "([], False, False)");
}

#[tokio::test]
async fn randomness_differs_from_session_to_session() {
    let code = "import random, uuid, os, secrets\n(random.random(), uuid.uuid4(), os.urandom(8), secrets.token_hex(8))";
    let one = Session::start().await.run(code).await;
    let two = Session::start().await.run(code).await;
    assert_ne!(one.value(), two.value());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_worker_has_nothing_to_break_out_with() {
    let mut session = Session::start().await;
    session.run("1").await;
    let me = std::process::id().to_string();
    let workers: Vec<_> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let status = std::fs::read_to_string(path.join("status")).ok()?;
            let parent = status
                .lines()
                .find_map(|line| line.strip_prefix("PPid:\t"))?;
            (parent == me).then_some((path, status))
        })
        .collect();
    // Other tests of this process have workers of their own: what holds for one holds for all.
    assert!(!workers.is_empty());
    for (path, status) in workers {
        let Ok(environment) = std::fs::read(path.join("environ")) else {
            continue;
        };
        assert_eq!(environment, b"", "{status}");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        assert!(status.contains("Seccomp:\t2"), "{status}");
        let open = std::fs::read_dir(path.join("fd")).unwrap().count();
        assert!(open <= 7, "{open} descriptors");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_worker_ends_with_its_host() {
    let program = crate::session::worker().program;
    // A guest of a host that was killed: its pipe is closed by the kernel.
    let guest = crate::session::wasi()
        .await
        .start(&runbridge_sandbox::SandboxLimits::default(), 500)
        .unwrap();
    let mut output = guest.output;
    output.recv().await.unwrap();
    drop(guest.input);
    let closed = tokio::time::timeout(std::time::Duration::from_secs(5), async {
        while output.recv().await.is_some() {}
    });
    closed.await.expect("the worker lives on");
    let exit = (guest.end)(false).await;
    assert_eq!(exit.code, Some(0), "{}: {exit:?}", program.display());
}
