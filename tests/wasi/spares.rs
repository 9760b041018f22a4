//! Workers that wait: taken, replaced, ended when they are of no use.

use std::time::{Duration, Instant};

use runbridge_sandbox::SandboxLimits;

use crate::session::{self, Session, WORKER_GRACE_MS};

/// Limits that no other test has, so that their workers are known by them.
fn limits(memory_bytes_max: u64) -> SandboxLimits {
    SandboxLimits {
        memory_bytes_max,
        ..SandboxLimits::default()
    }
}

/// Processes that live with these limits.
fn workers(limits: &SandboxLimits) -> Vec<u32> {
    let mark = format!("\"memory_bytes_max\":{}", limits.memory_bytes_max);
    let mut found: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let line = std::fs::read(path.join("cmdline")).ok()?;
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            String::from_utf8_lossy(&line)
                .contains(&mark)
                .then_some(pid)
        })
        .collect();
    found.sort_unstable();
    found
}

fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

async fn until(what: &str, mut probe: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if probe() {
            return;
        }
        assert!(Instant::now() < end, "{what}: not within 30 s");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_spare_is_taken_replaced_and_ended_when_it_is_of_no_use() {
    let (first, second) = (limits(301 << 20), limits(302 << 20));
    let wasi = session::wasi().await;
    wasi.keep_spares(&first, WORKER_GRACE_MS, 1).unwrap();
    // A process that was just begun may not have its command line yet.
    until("one waits", || workers(&first).len() == 1).await;
    let waiting = workers(&first);

    // It is the one that waited, and another one waits soon after.
    let mut taken = Session::of(wasi.start(&first, WORKER_GRACE_MS).unwrap()).await;
    assert_eq!(taken.run("x = 41; x + 1").await.value(), "42");
    assert!(workers(&first).contains(&waiting[0]));
    until("another waits", || workers(&first).len() == 2).await;

    // Each is a Python of its own, with its own randomness.
    let mut other = Session::of(wasi.start(&first, WORKER_GRACE_MS).unwrap()).await;
    assert_eq!(other.run("'x' in globals()").await.value(), "False");
    let random = "import random; random.random(), hash('x')";
    let (one, two) = (taken.run(random).await, other.run(random).await);
    assert_ne!(one.value(), two.value());

    // Other limits: what waited with the old ones ends, those in use do not.
    until("a third waits", || workers(&first).len() == 3).await;
    wasi.keep_spares(&second, WORKER_GRACE_MS, 1).unwrap();
    until("the spare is gone", || workers(&first).len() == 2).await;
    assert_eq!(taken.run("x").await.value(), "41");
    until("one of the others waits", || workers(&second).len() == 1).await;

    // One that died while it waited is not handed out.
    let dead = workers(&second)[0];
    let killed = rustix::process::Pid::from_raw(dead.cast_signed()).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    // Its pipes are closed once it waits to be buried; twice, so that the runtime has heard of it.
    for _ in 0..2 {
        until("it has ended", || has_ended(dead)).await;
    }
    let mut next = Session::of(wasi.start(&second, WORKER_GRACE_MS).unwrap()).await;
    assert_eq!(next.run("1").await.value(), "1");

    wasi.end_spares().await;
    drop((taken, other, next));
    until("all are gone", || {
        workers(&first).is_empty() && workers(&second).is_empty()
    })
    .await;
}
