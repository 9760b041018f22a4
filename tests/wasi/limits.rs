//! Time and memory.

use std::time::Duration;

use runbridge_sandbox::{RunEnd, SandboxLimits};
use tokio_util::sync::CancellationToken;

use crate::session::Session;

const TIMED_OUT: RunEnd = RunEnd::TimedOut { killed: false };

#[tokio::test]
async fn an_interrupt_reaches_python_wherever_it_is_and_keeps_variables() {
    let mut session = Session::start().await;
    session.run("import asyncio, re, time\nkept = [1, 2]").await;
    for code in [
        "while True: pass",
        "while True: print(1)",
        "time.sleep(60)",
        "await asyncio.sleep(60)",
        "await asyncio.get_running_loop().create_future()",
        "re.match('(a+)+$', 'a' * 40 + 'b')",
        "mcp.runtime.list_servers_sync() if 0 else [10 ** 10 ** 6 for _ in range(10 ** 6)]",
        "await mcp.runtime.call_tool('srv', 'slow', {'ms': 60000})",
    ] {
        let ran = session.run_for(code, 300).await;
        assert_eq!(ran.outcome.end, TIMED_OUT, "{code}: {ran:?}");
        assert!(ran.notes().is_empty(), "{code}: {}", ran.notes());
        assert!(ran.took < Duration::from_secs(2), "{code}: {:?}", ran.took);
        assert_eq!(session.run("kept").await.value(), "[1, 2]", "{code}");
    }
    assert_eq!(*session.tools.under_way.lock().unwrap(), 0);
}

#[tokio::test]
async fn what_ignores_the_interrupt_is_ended_and_the_variables_come_back() {
    let mut session = Session::start().await;
    session.run("kept = [1, 2]").await;
    for code in [
        "kept = 0\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "kept = 0\nsum(range(10 ** 12))",
    ] {
        let ran = session.run_for(code, 300).await;
        assert_eq!(ran.outcome.end, TIMED_OUT, "{code}: {ran:?}");
        assert!(ran.notes().contains("ended by force"), "{code}: {ran:?}");
        assert_eq!(session.run("kept").await.value(), "[1, 2]", "{code}");
    }
}

#[tokio::test]
async fn a_cancelled_run_stops_at_once() {
    let mut session = Session::start().await;
    let cancel = CancellationToken::new();
    let canceller = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        canceller.cancel();
    });
    let ran = session.run_until("while True: pass", 20_000, cancel).await;
    assert_eq!(ran.outcome.end, RunEnd::Cancelled { killed: false });
    assert_eq!(session.run("1").await.value(), "1");
}

#[tokio::test]
async fn memory_that_is_refused_is_an_exception_and_the_session_goes_on() {
    let limits = SandboxLimits {
        memory_bytes_max: 128 << 20,
        ..SandboxLimits::default()
    };
    let mut session = Session::limited(&limits).await;
    session.run("kept = 'here'").await;
    let ran = session.run("bytearray(1 << 30)").await;
    assert!(ran.raised().starts_with("MemoryError"), "{ran:?}");
    let ran = session
        .run("grown = []\nwhile True: grown.append('x' * 10000)")
        .await;
    assert!(ran.raised().starts_with("MemoryError"), "{ran:?}");
    let ran = session
        .run("grown = None\nkept, len(bytearray(20 << 20))")
        .await;
    assert_eq!(ran.value(), "('here', 20971520)");
}
