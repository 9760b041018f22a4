//! Limits that hold, and facts that say so when they do not.

use runbridge_sandbox::Enforcement;
use runbridge_sandbox::container::EngineKind;
use serde_json::json;

use crate::engines::{Bench, on_every_engine};
use crate::python::Python;

/// Takes memory in steps and touches it.
const MEMORY_BOMB: &str = "
held = []
for step in range(64):
    held.append(bytearray(b'x') * (16 << 20))
print('took', len(held) * 16, 'MiB')
";

#[tokio::test]
async fn the_facts_say_what_the_engine_enforces() {
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        bench.config.limits.cpus_max = Some(0.5);
        let sandbox = bench.open().await;
        let facts = sandbox.facts();
        let kind = if engine.name.starts_with("docker") {
            EngineKind::Docker
        } else {
            EngineKind::Podman
        };
        assert_eq!(
            (facts.engine, facts.rootless),
            (kind, engine.name.contains("rootless"))
        );
        assert_eq!(facts.socket, engine.url);
        assert!(
            !facts.version.is_empty() && !facts.image_id.is_empty(),
            "{facts:?}"
        );
        let how: Vec<_> = facts
            .limits
            .iter()
            .map(|(name, fact)| (*name, fact.how, fact.enforced))
            .collect();
        let cgroup = |name| {
            if engine.enforces() {
                (name, Enforcement::Cgroup, true)
            } else {
                (name, Enforcement::Rlimit, true)
            }
        };
        let cpus = if engine.enforces() {
            Enforcement::Cgroup
        } else {
            Enforcement::None
        };
        assert_eq!(
            how,
            [
                ("cpus_max", cpus, engine.enforces()),
                cgroup("memory_bytes_max"),
                ("open_files_max", Enforcement::Rlimit, true),
                cgroup("processes_max"),
                ("tmp_bytes_max", Enforcement::Mount, true),
                ("workspace_bytes_max", Enforcement::Mount, true),
            ]
        );
        let warned = facts
            .warnings
            .iter()
            .any(|warning| warning.contains("does not limit memory, processes, CPUs"));
        assert_eq!(warned, !engine.enforces(), "{:?}", facts.warnings);
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_memory_bomb_ends_its_own_guest_only() {
    on_every_engine(async |engine| {
        let sandbox = Bench::new(&engine).open().await;
        let mut victim = Python::new(sandbox.start().await.unwrap()).await;
        let mut other = Python::new(sandbox.start().await.unwrap()).await;
        let ran = victim.run(MEMORY_BOMB).await;
        if engine.enforces() {
            assert!(ran.done.is_none(), "{ran:?}");
            let exit = victim.end(true).await;
            assert_eq!(
                (exit.code, exit.out_of_memory),
                (Some(137), true),
                "{exit:?}"
            );
        } else {
            // Each process is held by itself, so Python sees it coming.
            assert_eq!(
                ran.done.as_ref().unwrap()["error"]["type"],
                "MemoryError",
                "{ran:?}"
            );
            victim.end(true).await;
        }
        assert_eq!(other.run("print(1)").await.stdout, "1\n");
        other.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_kill_by_its_own_code_is_not_taken_for_want_of_memory() {
    on_every_engine(async |engine| {
        let sandbox = Bench::new(&engine).open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        assert!(
            python
                .run("import os; os.kill(os.getpid(), 9)")
                .await
                .done
                .is_none()
        );
        let exit = python.end(true).await;
        assert_eq!(
            (exit.code, exit.out_of_memory, exit.stderr_tail.as_str()),
            (Some(137), false, "")
        );
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_fork_bomb_stops_at_the_limit_and_others_still_begin() {
    const BOMB: &str = "
import os, signal, time
children = []
try:
    while len(children) < 500:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)
    print('no limit')
except BlockingIOError:
    print('limit')
";
    const DEFUSE: &str = "
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print('alive')
";
    on_every_engine(async |engine| {
        let sandbox = Bench::new(&engine).open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        let ran = python.run(BOMB).await;
        assert_eq!(ran.stdout, "limit\n", "{ran:?}");
        // Where processes are counted by user, the other has none left.
        let mut other = Python::new(sandbox.start().await.unwrap()).await;
        assert_eq!(other.run("print('begun')").await.stdout, "begun\n");
        other.end(true).await;
        assert_eq!(python.run(DEFUSE).await.stdout, "alive\n");
        python.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_is_an_error_inside() {
    const FILL: &str = "
import json, os
def fill(folder):
    written = 0
    try:
        with open(folder + '/big', 'wb', buffering=0) as file:
            while written < 1 << 30:
                written += file.write(bytes(1 << 20))
    except OSError as error:
        reason = error.strerror
    os.unlink(folder + '/big')
    return [written >> 20, reason]
print(json.dumps({folder: fill(folder) for folder in ('/tmp', '/workspace')}))
";
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        bench.config.limits.tmp_bytes_max = 8 << 20;
        bench.config.limits.workspace_bytes_max = 16 << 20;
        let sandbox = bench.open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        assert_eq!(
            python.run(FILL).await.json(),
            json!({"/tmp": [8, "No space left on device"], "/workspace": [16, "No space left on device"]})
        );
        python.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn open_files_end_at_the_limit() {
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        bench.config.limits.open_files_max = 128;
        let sandbox = bench.open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        let seen = python
            .run("import resource; print(list(resource.getrlimit(resource.RLIMIT_NOFILE)))")
            .await
            .json();
        assert_eq!(seen, json!([128, 128]));
        python.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}
