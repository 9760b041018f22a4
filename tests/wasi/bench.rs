//! Figures of the embedded backend, as JSON lines: `{"name", "value", "unit"}`. Each is the median of
//! its repetitions on whatever machine this is; compare them within one run only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    dead_code,
    reason = "a measurement that cannot prepare has failed, and the result goes to stdout"
)]

mod session;

use std::time::Instant;

use runbridge_sandbox::SandboxLimits;
use session::Session;

#[tokio::main]
async fn main() {
    let started = Instant::now();
    session::wasi().await;
    tell(
        "open the module, or compile it",
        started.elapsed().as_secs_f64() * 1e3,
        "ms",
    );

    let mut times = Vec::new();
    for _ in 0..21 {
        let started = Instant::now();
        let mut session = Session::limited(&SandboxLimits::default()).await;
        assert_eq!(session.run("print(1)").await.stdout, "1\n");
        times.push(started.elapsed().as_secs_f64() * 1e3);
        session.end().await;
    }
    tell("new session to first output", median(times), "ms");

    let mut session = Session::start().await;
    session.run("import asyncio\nn = 0").await;
    tell(
        "warm print(1)",
        runs(&mut session, "print(1)", 501).await * 1e3,
        "us",
    );
    tell(
        "warm x += 1 with 30 MiB held",
        {
            session.run("held = [str(i) for i in range(500000)]").await;
            let us = runs(&mut session, "n += 1", 101).await * 1e3;
            session.run("del held").await;
            us
        },
        "us",
    );
    let calls = "for i in range(1000): await mcp.runtime.call_tool('srv', 'echo', {'i': i})";
    tell(
        "call in a loop of 1000",
        runs(&mut session, calls, 5).await,
        "us",
    );
    let gather = "len(await asyncio.gather(*[mcp.runtime.call_tool('srv', 'slow', {'ms': 50}) for _ in range(100)]))";
    tell(
        "100 calls of 50 ms at once",
        runs(&mut session, gather, 5).await,
        "ms",
    );
    let fib = "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(24)";
    tell("fib(24)", runs(&mut session, fib, 5).await, "ms");
    let sum = "sum(i * i for i in range(1000000))";
    tell("sum(i * i) of 1e6", runs(&mut session, sum, 5).await, "ms");
    let print = "for i in range(100000): print('x' * 500)";
    tell(
        "print 50 MB in lines",
        runs(&mut session, print, 3).await,
        "ms",
    );
    let print = "print('x' * 50000000)";
    tell(
        "print 50 MB at once",
        runs(&mut session, print, 3).await,
        "ms",
    );
    tell(
        "interrupt of an endless loop after 100 ms",
        {
            let ran = session.run_for("while True: pass", 100).await;
            ran.took.as_secs_f64() * 1e3 - 100.0
        },
        "ms",
    );
    tell(
        "end and restore of a loop that ignores it",
        {
            let ran = session.run_for("sum(range(10 ** 12))", 100).await;
            ran.took.as_secs_f64() * 1e3 - 100.0 - session::WORKER_GRACE_MS as f64
        },
        "ms",
    );
    session.end().await;
    #[cfg(target_os = "linux")]
    {
        many(200).await;
        in_turn(10_000).await;
    }
}

/// Start and end many sessions, and see what is left of them.
#[cfg(target_os = "linux")]
async fn in_turn(count: usize) {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let resident_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.unwrap().parse::<f64>().unwrap()
    };
    let mut begun = (0, 0.0);
    let started = Instant::now();
    for number in 0..count {
        if number == count / 10 {
            begun = (descriptors(), resident_kib());
        }
        let mut session = Session::start().await;
        assert_eq!(session.run("1 + 1").await.value(), "2");
        session.end().await;
    }
    let each = started.elapsed().as_secs_f64() * 1e3 / count as f64;
    tell(&format!("each of {count} sessions in turn"), each, "ms");
    tell(
        "memory of the host after nine tenths of them",
        (resident_kib() - begun.1) / 1024.0,
        "MiB more",
    );
    let more = descriptors() as f64 - begun.0 as f64;
    tell("descriptors after them", more, "more");
    tell(
        "processes after them",
        session::workers().len() as f64,
        "left",
    );
}

/// Start many sessions, leave them idle, and see what one costs.
#[cfg(target_os = "linux")]
async fn many(count: usize) {
    let mut sessions = Vec::new();
    let started = Instant::now();
    for _ in 0..count {
        let mut session = Session::start().await;
        session.run("x = 1").await;
        sessions.push(session);
    }
    let each = started.elapsed().as_secs_f64() * 1e3 / count as f64;
    tell(
        &format!("each of {count} sessions, started one by one"),
        each,
        "ms",
    );
    let private = session::workers()
        .into_iter()
        .filter_map(session::private_mib);
    tell(
        "private memory of an idle session",
        median(private.collect()),
        "MiB",
    );
    let mut last = sessions.pop().unwrap();
    let busy = sessions.pop().unwrap();
    let busy = tokio::spawn(async move {
        let mut busy = busy;
        busy.run_for("while True: pass", 3_000).await;
    });
    tell(
        "warm print(1) beside a busy session",
        runs(&mut last, "print(1)", 101).await * 1e3,
        "us",
    );
    busy.await.unwrap();
    for session in sessions {
        session.end().await;
    }
}

async fn runs(session: &mut Session, code: &str, count: usize) -> f64 {
    let mut times = Vec::new();
    for _ in 0..count {
        let ran = session.run(code).await;
        assert_eq!(ran.outcome.error, None, "{code}");
        times.push(ran.took.as_secs_f64() * 1e3);
    }
    median(times)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn tell(name: &str, value: f64, unit: &str) {
    println!(
        "{}",
        serde_json::json!({"name": name, "value": (value * 100.0).round() / 100.0, "unit": unit})
    );
}
