//! One server at a time: how it starts, answers, misbehaves and ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runbridge_core::api::Severity;
use runbridge_core::catalog::{CallResult, Catalog, CatalogConfig, CatalogEvent, ServerStatus};
use runbridge_core::clients::entry::{Entry, EntryTransport, Lent};
use runbridge_core::questions::{Answer, Ask, Asked, Question};
use runbridge_core::secrets::Secrets;
use runbridge_core::sign_in::SignIns;
use runbridge_core::upstream::{
    Caller, LogReader, Person, UpstreamError, UpstreamLimits, UpstreamState,
};
use runbridge_testkit::{Side, WireCheck};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio::time::timeout;

/// No wait of a test is longer, and none is expected to come near it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A catalog in a folder of its own.
pub(crate) struct Bench {
    pub(crate) dir: Traces,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) events: broadcast::Receiver<CatalogEvent>,
}

/// A folder in which scripted servers write down what they were told: it must have been what the
/// protocol allows.
pub(crate) struct Traces(TempDir);

impl std::ops::Deref for Traces {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        &self.0
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for file in std::fs::read_dir(self.path()).unwrap() {
            let path = file.unwrap().path();
            if path
                .extension()
                .is_none_or(|extension| extension != "trace")
            {
                continue;
            }
            let mut check = WireCheck::of(Side::Client);
            for event in events(&path) {
                if event["event"] == "start" {
                    check = WireCheck::of(Side::Client);
                }
                check.hear(&event["said"]);
                if let Some(message) = event.get("message")
                    && let Err(wrong) = check.say(message)
                {
                    panic!("a server was told what the protocol does not allow: {wrong}");
                }
            }
        }
    }
}

/// What a scripted server has written down.
fn events(trace: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(UpstreamLimits::default())
    }

    pub(crate) fn with(limits: UpstreamLimits) -> Self {
        Self::made(limits, &[])
    }

    /// With more in the login environment.
    pub(crate) fn with_env(env: &[(&str, String)]) -> Self {
        Self::made(UpstreamLimits::default(), env)
    }

    fn made(limits: UpstreamLimits, env: &[(&str, String)]) -> Self {
        Self::with_sign_ins(limits, env, no_sign_ins())
    }

    pub(crate) fn with_sign_ins(
        limits: UpstreamLimits,
        env: &[(&str, String)],
        sign_ins: Arc<SignIns>,
    ) -> Self {
        let dir = Traces(tempfile::tempdir().unwrap());
        let (catalog, events) = Self::catalog(&dir, limits, env, sign_ins);
        Self {
            dir,
            catalog,
            events,
        }
    }

    /// A bench with one server `fake` that keeps to `script`.
    pub(crate) async fn one(script: Value) -> Self {
        let bench = Self::new();
        bench
            .catalog
            .set_entries(vec![bench.entry("fake", script)])
            .await;
        bench
    }

    fn catalog(
        dir: &Traces,
        limits: UpstreamLimits,
        env: &[(&str, String)],
        sign_ins: Arc<SignIns>,
    ) -> (Arc<Catalog>, broadcast::Receiver<CatalogEvent>) {
        let (events, receiver) = broadcast::channel(256);
        let mut login_env = BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), "/home/someone".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ]);
        login_env.extend(
            env.iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone())),
        );
        let cache_dir = Some(dir.path().join("cache"));
        (
            Catalog::new(CatalogConfig {
                limits,
                cache_dir,
                login_env: login_env.into(),
                sign_ins,
                events,
            }),
            receiver,
        )
    }

    /// The same folder after a restart of the bridge.
    pub(crate) async fn again(self, entries: Vec<Entry>) -> Self {
        self.catalog.shut_down().await;
        let (catalog, events) =
            Self::catalog(&self.dir, UpstreamLimits::default(), &[], no_sign_ins());
        catalog.set_entries(entries).await;
        Self {
            dir: self.dir,
            catalog,
            events,
        }
    }

    pub(crate) fn entry(&self, name: &str, mut script: Value) -> Entry {
        script["trace"] = self.trace_path(name).to_str().unwrap().into();
        entry(
            name,
            fake_upstream().to_str().unwrap(),
            &[&script.to_string()],
        )
    }

    fn trace_path(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.trace"))
    }

    pub(crate) fn trace(&self, name: &str) -> Vec<Value> {
        events(&self.trace_path(name))
    }

    pub(crate) fn starts(&self, name: &str) -> usize {
        self.trace(name)
            .iter()
            .filter(|event| event["event"] == "start")
            .count()
    }

    /// The methods that the server was sent.
    pub(crate) fn methods(&self, name: &str) -> Vec<String> {
        let trace = self.trace(name);
        trace
            .iter()
            .filter_map(|event| event["message"]["method"].as_str())
            .map(str::to_owned)
            .collect()
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<CallResult, UpstreamError> {
        self.call_within(tool, arguments, None).await
    }

    pub(crate) async fn call_within(
        &self,
        tool: &str,
        arguments: Value,
        limit: Option<Duration>,
    ) -> Result<CallResult, UpstreamError> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        timeout(PATIENCE, self.catalog.call("fake", tool, arguments, limit))
            .await
            .expect("a call ends")
    }

    pub(crate) async fn text(&self, tool: &str, arguments: Value) -> String {
        text(&self.call(tool, arguments).await.unwrap())
    }

    pub(crate) async fn structured(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await.unwrap();
        let mut value: Value = serde_json::from_str(result.result.get()).unwrap();
        value["structuredContent"].take()
    }

    pub(crate) async fn error(&self, tool: &str, arguments: Value) -> UpstreamError {
        self.call(tool, arguments).await.unwrap_err()
    }

    pub(crate) fn status(&self) -> ServerStatus {
        self.catalog.servers().remove(0)
    }
}

fn no_sign_ins() -> Arc<SignIns> {
    SignIns::new(Secrets::in_memory(), BTreeMap::new().into(), None)
}

pub(crate) fn text(result: &CallResult) -> String {
    let value: Value = serde_json::from_str(result.result.get()).unwrap();
    value["content"][0]["text"].as_str().unwrap().to_owned()
}

pub(crate) fn entry(name: &str, command: &str, args: &[&str]) -> Entry {
    Entry {
        name: name.to_owned(),
        transport: EntryTransport::Stdio {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            cwd: None,
        },
        description: None,
        off: None,
        needs: Vec::new(),
        tools_allowed: None,
        tools_denied: Vec::new(),
        start_ms_max: None,
        call_ms_max: None,
        lent: Lent::default(),
        sources: Vec::new(),
    }
}

/// Built beside the test binary.
fn fake_upstream() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples").join(format!(
        "core_fake_upstream{}",
        std::env::consts::EXE_SUFFIX
    ))
}

/// Wait until `condition` holds; there is no event for what the system does.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn lives(pid: u64) -> bool {
    // A zombie has ended; only its parent has not looked yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("Z").starts_with('Z'))
}

fn pid_of(trace: &[Value], event: &str) -> u64 {
    trace.iter().find(|one| one["event"] == event).unwrap()["pid"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn a_server_is_started_by_the_first_call_and_serves_the_next() {
    let bench = Bench::one(json!({})).await;
    assert!(matches!(bench.status().state, UpstreamState::Stopped));
    assert_eq!(bench.starts("fake"), 0);
    let pid = bench.text("pid", json!({})).await;
    assert_eq!(bench.text("echo", json!({"text": "fine"})).await, "fine");
    assert_eq!(bench.text("pid", json!({})).await, pid);
    let status = bench.status();
    assert!(matches!(status.state, UpstreamState::Ready));
    assert_eq!(status.pid.unwrap().to_string(), pid);
    assert_eq!(status.revision.as_deref(), Some("2025-11-25"));
    assert_eq!(status.tools, Some(16));
    assert_eq!(bench.starts("fake"), 1);
}

#[tokio::test]
async fn the_environment_is_the_login_one_changed_as_the_entry_says() {
    let bench = Bench::new();
    let mut fake = bench.entry("fake", json!({}));
    let EntryTransport::Stdio { args, env, cwd, .. } = &mut fake.transport else {
        panic!()
    };
    env.insert("TOKEN".to_owned(), Some("s3cret".to_owned()));
    env.insert("LANG".to_owned(), None);
    args.extend(["two words".to_owned(), "$HOME".to_owned(), "ünï".to_owned()]);
    *cwd = Some(bench.dir.path().canonicalize().unwrap());
    bench.catalog.set_entries(vec![fake]).await;
    let told = bench.structured("environment", json!({})).await;
    assert_eq!(
        told["env"],
        json!({
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/home/someone",
            "TOKEN": "s3cret",
            "RUNBRIDGE_NESTED": "1",
        })
    );
    assert_eq!(told["argv"], json!(["two words", "$HOME", "ünï"]));
    assert_eq!(
        told["cwd"].as_str().unwrap(),
        bench.dir.path().canonicalize().unwrap().to_str().unwrap()
    );
}

#[tokio::test]
async fn twenty_calls_at_once_run_at_once_in_one_process() {
    let bench = Bench::one(json!({})).await;
    let begun = Instant::now();
    let calls = (0..20_u64).map(|number| bench.call("sleep", json!({"ms": 400 - number * 10})));
    for result in futures_util::future::join_all(calls).await {
        assert_eq!(text(&result.unwrap()), "slept");
    }
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(bench.starts("fake"), 1);
}

#[tokio::test]
async fn noise_on_stdout_is_skipped_and_its_first_line_noted() {
    let bench = Bench::one(json!({"noise": ["Server starting...", "[1, 2"]})).await;
    assert_eq!(bench.text("noise", json!({})).await, "fine");
    let notes = bench.status().notes;
    assert_eq!(
        notes,
        ["writes to stdout, which is for messages alone; the first line was: Server starting..."]
    );
}

#[tokio::test]
async fn a_flood_on_stderr_blocks_nothing_and_its_end_is_kept() {
    let bench = Bench::one(json!({})).await;
    for _ in 0..3 {
        assert_eq!(
            bench.text("flood", json!({"bytes": 256 * 1024})).await,
            "done"
        );
    }
    until("the last line arrives", || {
        bench
            .catalog
            .stderr("fake")
            .unwrap()
            .ends_with("the last line\n")
    })
    .await;
    assert_eq!(bench.catalog.stderr("fake").unwrap().len(), 64 * 1024);
}

#[tokio::test]
async fn a_result_of_ten_megabytes_arrives_whole() {
    let bench = Bench::one(json!({})).await;
    assert_eq!(
        bench.text("big", json!({"bytes": 10_000_000})).await.len(),
        10_000_000
    );
}

#[tokio::test]
async fn a_server_that_exits_on_discover_is_started_twice_once_and_then_remembered() {
    let bench = Bench::one(json!({"discover": "exit"})).await;
    assert_eq!(bench.text("echo", json!({"text": "fine"})).await, "fine");
    assert_eq!(bench.starts("fake"), 2);
    let entries = vec![bench.entry("fake", json!({"discover": "exit"}))];
    until("the era is kept", || {
        cached(bench.dir.path()).contains("\"era\":\"initialize\"")
    })
    .await;
    let bench = bench.again(entries).await;
    assert_eq!(bench.text("echo", json!({"text": "fine"})).await, "fine");
    assert_eq!(bench.starts("fake"), 3);
}

pub(crate) fn cached(dir: &Path) -> String {
    let Ok(files) = std::fs::read_dir(dir.join("cache")) else {
        return String::new();
    };
    files
        .filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok())
        .collect()
}

#[tokio::test]
async fn silence_on_discover_costs_three_seconds_and_no_second_process() {
    let bench = Bench::one(json!({"discover": "silent"})).await;
    let begun = Instant::now();
    assert_eq!(bench.text("echo", json!({"text": "fine"})).await, "fine");
    assert!(begun.elapsed() >= Duration::from_secs(3));
    assert_eq!(bench.starts("fake"), 1);
}

#[tokio::test]
async fn a_slow_start_is_waited_for_by_all_callers_together() {
    let bench = Bench::one(json!({"start_ms": 4000})).await;
    let calls = (0..5).map(|_| bench.text("pid", json!({})));
    let pids = futures_util::future::join_all(async_starting(&bench, calls).await).await;
    assert!(pids.iter().all(|pid| *pid == pids[0]));
    assert_eq!(bench.starts("fake"), 1);
}

/// Give the calls back unfinished, after the server was seen to be starting.
async fn async_starting<'a, F: Future<Output = String> + 'a>(
    bench: &'a Bench,
    calls: impl Iterator<Item = F> + 'a,
) -> Vec<std::pin::Pin<Box<dyn Future<Output = String> + 'a>>> {
    let mut calls: Vec<std::pin::Pin<Box<dyn Future<Output = String> + 'a>>> =
        calls.map(|call| Box::pin(call) as _).collect();
    let first = &mut calls[0];
    tokio::select! {
        _ = first => panic!("the start is slow"),
        () = until("it starts", || matches!(bench.status().state, UpstreamState::Starting)) => {}
    }
    calls
}

#[tokio::test]
async fn a_start_beyond_its_limit_says_so_and_how_to_raise_it() {
    let bench = Bench::new();
    let mut fake = bench.entry(
        "fake",
        json!({"initialize": "silent", "stderr": ["downloading 3 of 90"]}),
    );
    fake.start_ms_max = Some(700);
    bench.catalog.set_entries(vec![fake]).await;
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_unreachable");
    insta::assert_snapshot!(error, @"server `fake` did not start: still starting after 0.7 s (it has not answered); its last line on stderr: downloading 3 of 90. If it needs longer, for a download perhaps, raise the server's start limit (`start_ms_max`)");
}

#[tokio::test]
async fn failed_starts_are_spaced_out_and_a_restart_is_not() {
    let bench = Bench::one(json!({"exit": 3, "stderr": ["no such key"]})).await;
    let error = bench.error("echo", json!({})).await;
    insta::assert_snapshot!(error, @"server `fake` did not start: it exited with code 3 before it was ready; its last line on stderr: no such key");
    let starts = bench.starts("fake");
    let begun = Instant::now();
    let error = bench.error("echo", json!({})).await;
    assert!(begun.elapsed() < Duration::from_millis(500));
    assert!(matches!(error, UpstreamError::BackingOff { .. }), "{error}");
    assert!(error.to_string().contains("no such key"), "{error}");
    assert_eq!(error.code(), "server_unreachable");
    assert_eq!(bench.starts("fake"), starts);
    assert!(bench.catalog.restart("fake").await.is_err());
    assert!(bench.starts("fake") > starts);
    assert!(matches!(bench.status().state, UpstreamState::Failed { .. }));
}

#[tokio::test]
async fn a_missing_program_is_named_with_a_hint() {
    let bench = Bench::new();
    bench
        .catalog
        .set_entries(vec![
            entry("fake", "uvx-of-nowhere", &[]),
            entry("path", "/no/such/file", &[]),
        ])
        .await;
    insta::assert_snapshot!(bench.error("echo", json!({})).await, @"server `fake` did not start: `uvx-of-nowhere` was not found on PATH (/usr/local/bin:/usr/bin:/bin). Install it, or write its full path in the configuration, or set PATH in the server's `env`");
    let error = bench
        .catalog
        .call("path", "echo", Map::new(), None)
        .await
        .unwrap_err();
    insta::assert_snapshot!(error, @"server `path` did not start: `/no/such/file` is not there");
}

#[tokio::test]
async fn versions_old_unknown_and_missing_work() {
    for (version, revision, note) in [
        (json!("2024-11-05"), "2024-11-05", None),
        (
            json!(""),
            "2025-11-25",
            Some("names no protocol version; it is spoken to as 2025-11-25"),
        ),
        (
            json!("2099-01-01"),
            "2099-01-01",
            Some(
                "names protocol version 2099-01-01, which Runbridge does not know; it is spoken to as 2025-11-25",
            ),
        ),
    ] {
        let bench = Bench::one(json!({"protocol_version": version})).await;
        assert_eq!(bench.text("echo", json!({"text": "fine"})).await, "fine");
        let status = bench.status();
        assert_eq!(status.revision.as_deref(), Some(revision));
        assert_eq!(status.notes.first().map(String::as_str), note);
    }
}

#[tokio::test]
async fn a_server_without_a_common_version_is_told_apart() {
    let bench = Bench::one(json!({"initialize": "error"})).await;
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_protocol");
    insta::assert_snapshot!(error, @"server `fake`: no common protocol version: it speaks 1999-01-01, and Runbridge speaks 2024-11-05 to 2026-07-28");
}

#[tokio::test]
async fn a_server_of_the_new_era_is_never_initialized() {
    let bench = Bench::one(json!({"discover": "modern"})).await;
    assert_eq!(bench.text("echo", json!({"text": "fine"})).await, "fine");
    let status = bench.status();
    assert_eq!(status.revision.as_deref(), Some("2026-07-28"));
    assert_eq!(status.instructions.as_deref(), Some("Be brief."));
    assert_eq!(
        bench.methods("fake"),
        ["server/discover", "tools/list", "tools/call"]
    );
    for event in bench
        .trace("fake")
        .iter()
        .filter(|event| event["event"] == "message")
    {
        let meta = &event["message"]["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28",
            "{event}"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientInfo"]["name"], "runbridge",
            "{event}"
        );
        assert!(
            meta["io.modelcontextprotocol/clientCapabilities"].is_object(),
            "{event}"
        );
    }
    let error = bench.error("wants_input", json!({})).await;
    insta::assert_snapshot!(error, @"server `fake`: it wants an answer from its user before it goes on, and there is none: nobody who could be asked is behind this call");
}

#[tokio::test]
async fn every_question_of_a_server_is_answered() {
    for script in [json!({}), json!({"discover": "modern"})] {
        let bench = Bench::one(script).await;
        let asked = async |method: &str, params: Value| {
            bench
                .structured("ask", json!({"method": method, "params": params}))
                .await
        };
        assert_eq!(asked("ping", Value::Null).await["result"], json!({}));
        assert_eq!(
            asked("roots/list", json!({})).await["result"],
            json!({"roots": []})
        );
        assert_eq!(
            asked(
                "sampling/createMessage",
                json!({"messages": [], "maxTokens": 5})
            )
            .await["error"]["code"],
            -32601
        );
        let asked_nobody = asked("elicitation/create", question()["params"].take()).await;
        assert_eq!(
            asked_nobody["error"]["message"],
            "Runbridge could not ask its user: nobody who could be asked uses the server now"
        );
        assert_eq!(asked("no/such", json!([1])).await["error"]["code"], -32601);
    }
}

/// A person who is called Ada, thinks for a while, and remembers what was asked.
pub(crate) fn person(run: &str, thinks: Duration) -> (Person, Arc<Mutex<Vec<Question>>>) {
    let heard = Arc::<Mutex<Vec<Question>>>::default();
    let asked = Arc::clone(&heard);
    let ask: Ask = Arc::new(move |question| {
        asked.lock().unwrap().push(question);
        Box::pin(async move {
            tokio::time::sleep(thinks).await;
            let answer = json!({ "name": "Ada" });
            Ok(Answer::Accepted(answer.as_object().unwrap().clone()))
        })
    });
    let run = run.to_owned();
    (Person { run, ask }, heard)
}

pub(crate) async fn call_as(
    bench: &Bench,
    person: Person,
    tool: &str,
    arguments: Value,
    limit: Duration,
) -> Result<CallResult, UpstreamError> {
    let caller = Caller {
        person: Some(person),
        ..Caller::default()
    };
    let arguments = arguments.as_object().unwrap().clone();
    bench
        .catalog
        .call_for("fake", tool, arguments, Some(limit), caller)
        .await
}

fn question() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "method": "elicitation/create", "params": { "message": "Name?", "requestedSchema": schema } })
}

#[tokio::test]
async fn a_question_reaches_the_person_behind_the_call_and_their_time_does_not_count() {
    for (script, tool, arguments) in [
        (json!({}), "ask", question()),
        (json!({"discover": "modern"}), "wants_input", json!({})),
    ] {
        let bench = Bench::one(script).await;
        bench.text("pid", json!({})).await;
        let (ada, heard) = person("run", Duration::from_secs(2));
        let limit = Duration::from_millis(1_500);
        let answer = call_as(&bench, ada, tool, arguments, limit).await.unwrap();
        let answer: Value = serde_json::from_str(answer.result.get()).unwrap();
        let answer = &answer["structuredContent"];
        let accepted = json!({ "action": "accept", "content": { "name": "Ada" } });
        if tool == "ask" {
            assert_eq!(answer["result"], accepted);
        } else {
            assert_eq!(answer["heard"]["name"], accepted);
            assert_eq!(answer["heard"]["where"], json!({ "roots": [] }));
            assert_eq!(answer["state"], "s");
        }
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 1);
        assert_eq!((&*heard[0].server, &*heard[0].message), ("fake", "Name?"));
    }
}

#[tokio::test]
async fn a_question_that_could_be_anybody_s_is_put_to_nobody() {
    let bench = Bench::one(json!({})).await;
    bench.text("pid", json!({})).await;
    let ((ada, ada_heard), (eve, eve_heard)) = (
        person("one", Duration::ZERO),
        person("other", Duration::ZERO),
    );
    let waits = call_as(&bench, eve, "sleep", json!({ "ms": 5_000 }), PATIENCE);
    let asks = async {
        // The other call is under way when its request has arrived.
        until("the other call", || {
            bench
                .methods("fake")
                .iter()
                .filter(|one| *one == "tools/call")
                .count()
                == 2
        })
        .await;
        call_as(&bench, ada, "ask", question(), PATIENCE)
            .await
            .unwrap()
    };
    tokio::select! {
        _ = waits => panic!("it sleeps longer"),
        answer = asks => {
            let answer: Value = serde_json::from_str(answer.result.get()).unwrap();
            let message = &answer["structuredContent"]["error"]["message"];
            assert!(message.as_str().unwrap().contains("2 runs use the server"), "{message}");
        }
    }
    assert!(ada_heard.lock().unwrap().is_empty() && eve_heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_a_server_logs_is_heard_by_the_caller_and_kept_with_the_server() {
    for discover in ["error", "modern"] {
        let bench = Bench::one(json!({ "discover": discover, "logging": true })).await;
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let lines = Arc::clone(&heard);
        let log = LogReader {
            run: "one".to_owned(),
            hear: Arc::new(move |line| lines.lock().unwrap().push(line.text.clone())),
        };
        let call = |arguments: Value, log: Option<LogReader>| {
            let caller = Caller {
                log,
                ..Caller::default()
            };
            let arguments = arguments.as_object().unwrap().clone();
            bench
                .catalog
                .call_for("fake", "log", arguments, None, caller)
        };
        let first = json!({ "level": "warning", "data": { "disk": "full" } });
        call(first, Some(log.clone())).await.unwrap();
        // It came before the answer, so it has been heard.
        assert_eq!(*heard.lock().unwrap(), [r#"{"disk":"full"}"#]);
        // In the newest revision a server stays silent where nobody listens.
        let unheard = json!({ "level": "info", "data": "to nobody" });
        call(unheard, None).await.unwrap();
        let flood = json!({ "level": "debug", "data": "again", "times": 500 });
        call(flood, Some(log)).await.unwrap();
        assert!(heard.lock().unwrap().len() < 200);
        let kept = bench.catalog.log("fake").unwrap();
        let is = |text: &str| kept.iter().any(|line| line.text == text);
        assert_eq!(is("to nobody"), discover != "modern");
        assert_eq!(kept[0].severity, Severity::Warning);
        assert_eq!(kept[0].logger.as_deref(), Some("fake"));
        let last = kept.last().unwrap();
        assert!(last.text.contains("lines were left out"), "{}", last.text);
        if discover == "error" {
            until("it is told what to log", || {
                bench.trace("fake").iter().any(|event| {
                    event["message"]["method"] == "logging/setLevel"
                        && event["message"]["params"]["level"] == "info"
                })
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_tool_that_is_called_as_a_task_is_followed_to_its_result() {
    for discover in ["error", "modern"] {
        let bench = Bench::one(json!({ "discover": discover, "tasks": true })).await;
        let words = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&words);
        let (ada, asked) = person("one", Duration::from_millis(10));
        let caller = Caller {
            person: Some(ada),
            progress: Some(Arc::new(move |now: &str| {
                told.lock().unwrap().push(now.to_owned());
            })),
            ..Caller::default()
        };
        let arguments = json!({ "asks": true }).as_object().unwrap().clone();
        let called = bench
            .catalog
            .call_for("fake", "research", arguments, Some(PATIENCE), caller)
            .await
            .unwrap();
        let value: Value = serde_json::from_str(called.result.get()).unwrap();
        assert_eq!(
            value["structuredContent"]["heard"],
            json!({ "action": "accept", "content": { "name": "Ada" } }),
            "{discover}"
        );
        assert_eq!(asked.lock().unwrap().len(), 1);
        assert_eq!(
            words.lock().unwrap()[..2],
            ["it is working", "it is input_required"]
        );
        assert!(!bench.methods("fake").contains(&"tasks/cancel".to_owned()));
        // Nobody behind the call can be asked, which ends the task.
        if discover == "modern" {
            let error = bench.error("research", json!({ "asks": true })).await;
            assert!(error.to_string().contains("nobody"), "{error}");
            until("the task is cancelled", || {
                bench.methods("fake").contains(&"tasks/cancel".to_owned())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_task_that_nobody_waits_for_is_cancelled() {
    for discover in ["error", "modern"] {
        let bench = Bench::one(json!({ "discover": discover, "tasks": true })).await;
        bench.text("echo", json!({ "text": "up" })).await;
        let limit = Some(Duration::from_millis(400));
        let endless = json!({ "looks": 1_000_000 });
        let error = bench.call_within("research", endless, limit).await;
        assert!(
            matches!(error, Err(UpstreamError::ToolTimeout { .. })),
            "{error:?}"
        );
        until("the task is cancelled", || {
            bench.methods("fake").contains(&"tasks/cancel".to_owned())
        })
        .await;
        assert_eq!(bench.text("echo", json!({ "text": "on" })).await, "on");
    }
}

#[tokio::test]
async fn a_server_is_lent_what_the_settings_say_and_nothing_else() {
    for discover in ["error", "modern"] {
        let bench = Bench::new();
        let mut fake = bench.entry("fake", json!({ "discover": discover }));
        fake.lent = Lent {
            roots: vec![PathBuf::from("/home/ada/my project")],
            sampling: true,
        };
        bench.catalog.set_entries(vec![fake]).await;
        let said = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "4" } });
        let model = said.clone();
        let ask: Ask = Arc::new(move |question| {
            let Asked::Model(request) = question.asked else {
                panic!("{question:?}")
            };
            // What reaches beyond the request itself is not passed on.
            let mut parts: Vec<_> = request.keys().collect();
            parts.sort();
            assert_eq!(parts, ["maxTokens", "messages"]);
            let said = model.as_object().unwrap().clone();
            Box::pin(async move { Ok(Answer::Said(said)) })
        });
        let client = Person {
            run: "one".to_owned(),
            ask,
        };
        let ask = |method: &str, params: Value| {
            let asked = json!({ "method": method, "params": params });
            call_as(&bench, client.clone(), "ask", asked, PATIENCE)
        };
        let heard = |called: CallResult| -> Value {
            let value: Value = serde_json::from_str(called.result.get()).unwrap();
            value["structuredContent"].clone()
        };
        let roots = heard(ask("roots/list", json!({})).await.unwrap());
        assert_eq!(
            roots["result"]["roots"],
            json!([{ "uri": "file:///home/ada/my%20project", "name": "my project" }])
        );
        let message = json!({ "role": "user", "content": { "type": "text", "text": "2 + 2?" } });
        let request =
            json!({ "messages": [message], "maxTokens": 5, "includeContext": "allServers" });
        let answer = heard(ask("sampling/createMessage", request).await.unwrap());
        assert_eq!(answer["result"], said);
        let tools = json!({ "messages": [message], "maxTokens": 5, "tools": [{ "name": "x" }] });
        let refused = heard(ask("sampling/createMessage", tools).await.unwrap());
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains("call tools"), "{why}");
        let declared = bench.trace("fake").into_iter().find_map(|event| {
            let params = event["message"]["params"].clone();
            let old = params["capabilities"].clone();
            let new = params["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
            [old, new].into_iter().find(Value::is_object)
        });
        let declared = declared.unwrap();
        assert!(declared["roots"].is_object() && declared["sampling"].is_object());
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled_and_the_server_lives_on() {
    let bench = Bench::one(json!({})).await;
    let pid = bench.text("pid", json!({})).await;
    let error = bench
        .call_within(
            "sleep",
            json!({"ms": 1500}),
            Some(Duration::from_millis(300)),
        )
        .await
        .unwrap_err();
    assert_eq!(error.code(), "tool_timeout");
    insta::assert_snapshot!(error, @"tool `sleep` of server `fake` timed out 0.3 s after the call; the server keeps running");
    until("the server is told", || {
        bench
            .methods("fake")
            .contains(&"notifications/cancelled".to_owned())
    })
    .await;
    let trace = bench.trace("fake");
    let message = |method: &str, name: Option<&str>| {
        trace
            .iter()
            .map(|event| &event["message"])
            .find(|message| {
                message["method"] == method
                    && name.is_none_or(|name| message["params"]["name"] == name)
            })
            .unwrap()
    };
    assert_eq!(
        message("notifications/cancelled", None)["params"]["requestId"],
        message("tools/call", Some("sleep"))["id"]
    );
    // The late answer comes while these run, and belongs to none of them.
    for number in 0..10 {
        assert_eq!(bench.text("sleep", json!({"ms": 200})).await, "slept");
        assert_eq!(
            bench
                .text("echo", json!({"text": number.to_string()}))
                .await,
            number.to_string()
        );
    }
    assert_eq!(bench.text("pid", json!({})).await, pid);
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let bench = Bench::one(json!({})).await;
    bench.text("pid", json!({})).await;
    let call = bench.call("sleep", json!({"ms": 10_000}));
    assert!(timeout(Duration::from_millis(200), call).await.is_err());
    until("the server is told", || {
        bench
            .methods("fake")
            .contains(&"notifications/cancelled".to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_crash_fails_its_calls_fast_and_the_next_call_starts_anew() {
    let bench = Bench::one(json!({})).await;
    let pid = bench.text("pid", json!({})).await;
    let begun = Instant::now();
    let (bystander, error) = tokio::join!(
        bench.call("sleep", json!({"ms": 15_000})),
        bench.call("crash", json!({}))
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let error = error.unwrap_err();
    assert_eq!(error.code(), "server_unreachable");
    insta::assert_snapshot!(error, @"server `fake` exited with code 7 during this call; its last line on stderr: out of cheese; the next call starts it again");
    assert!(
        matches!(bystander, Err(UpstreamError::Died { .. })),
        "{bystander:?}"
    );
    assert_ne!(bench.text("pid", json!({})).await, pid);
    // The call that killed it was not repeated.
    let crashes = bench
        .trace("fake")
        .iter()
        .filter(|event| event["message"]["params"]["name"] == "crash")
        .count();
    assert_eq!((crashes, bench.starts("fake")), (1, 2));
    let error = bench.error("close_stdout", json!({})).await;
    assert!(error.to_string().contains("SIGABRT"), "{error}");
    assert_eq!(bench.text("echo", json!({"text": "alive"})).await, "alive");
}

#[tokio::test]
async fn errors_of_tools_and_servers_keep_their_words_and_codes() {
    let bench = Bench::one(json!({})).await;
    let failed = bench.call("fail", json!({})).await.unwrap();
    assert!(failed.is_error);
    let failure = failed.failure().unwrap();
    assert_eq!(
        (failure.code(), failure.message()),
        (
            "tool_failed".into(),
            "date must be in the future".to_owned()
        )
    );
    let silent = bench
        .call("fail_silently", json!({}))
        .await
        .unwrap()
        .failure()
        .unwrap();
    assert_eq!(
        silent.message(),
        "tool `fail_silently` of server `fake` failed and did not say why"
    );
    let refused = bench.error("refuse", json!({})).await;
    assert_eq!(
        (refused.code(), refused.message()),
        ((-32602).into(), "bad params: limit".to_owned())
    );
    assert_eq!(refused.data(), Some(&json!({"limit": 5})));
    let null = bench.error("null", json!({})).await;
    assert_eq!(null.code(), "server_protocol");
    assert!(
        bench
            .call("echo", json!({"text": "still here"}))
            .await
            .unwrap()
            .failure()
            .is_none()
    );
}

#[tokio::test]
async fn a_server_has_time_to_save_its_state_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let bye = bench.dir.path().join("bye.txt");
    let fake = bench.entry("fake", json!({"bye": [bye, 1500], "grandchild": true}));
    bench.catalog.set_entries(vec![fake]).await;
    bench.text("pid", json!({})).await;
    let trace = bench.trace("fake");
    let (pid, grandchild) = (pid_of(&trace, "start"), pid_of(&trace, "grandchild"));
    assert!(lives(grandchild));
    bench.catalog.shut_down().await;
    assert_eq!(std::fs::read_to_string(bye).unwrap(), "bye");
    assert!(!lives(pid) && !lives(grandchild));
    assert_eq!(
        bench.error("pid", json!({})).await.code(),
        "server_unreachable"
    );
    assert_eq!(bench.starts("fake"), 1);
}

#[tokio::test]
async fn stubborn_servers_are_killed_all_at_the_same_time() {
    let bench = Bench::new();
    let entries: Vec<Entry> = ["one", "two", "three"]
        .into_iter()
        .map(|name| {
            let mut stubborn = bench.entry(name, json!({"ignore_eof": true}));
            let EntryTransport::Stdio { command, args, .. } = &mut stubborn.transport else {
                panic!()
            };
            // An ignored signal stays ignored in the program that takes the shell's place.
            let script = "trap '' TERM; exec \"$0\" \"$@\"".to_owned();
            args.splice(
                ..0,
                [
                    "-c".to_owned(),
                    script,
                    std::mem::replace(command, "sh".to_owned()),
                ],
            );
            stubborn
        })
        .collect();
    let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    bench.catalog.set_entries(entries).await;
    for name in &names {
        bench
            .catalog
            .call(name, "pid", Map::new(), None)
            .await
            .unwrap();
    }
    let begun = Instant::now();
    bench.catalog.shut_down().await;
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    for name in &names {
        assert!(!lives(pid_of(&bench.trace(name), "start")));
    }
}

#[tokio::test]
async fn what_a_crashed_server_started_is_ended_too() {
    let bench = Bench::one(json!({"grandchild": true})).await;
    bench.error("crash", json!({})).await;
    let grandchild = pid_of(&bench.trace("fake"), "grandchild");
    until("the grandchild ends", || !lives(grandchild)).await;
}

#[tokio::test]
async fn an_idle_server_is_stopped_and_a_busy_one_is_not() {
    let bench = Bench::with(UpstreamLimits {
        idle_ms_max: 300,
        ..UpstreamLimits::default()
    });
    bench
        .catalog
        .set_entries(vec![bench.entry("fake", json!({}))])
        .await;
    assert_eq!(bench.text("sleep", json!({"ms": 1200})).await, "slept");
    assert_eq!(bench.starts("fake"), 1);
    let pid = pid_of(&bench.trace("fake"), "start");
    until("it is stopped", || !lives(pid)).await;
    assert!(matches!(bench.status().state, UpstreamState::Stopped));
    assert!(
        bench
            .trace("fake")
            .iter()
            .any(|event| event["event"] == "eof")
    );
    assert_eq!(bench.text("echo", json!({"text": "again"})).await, "again");
    assert_eq!(bench.starts("fake"), 2);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_does_not_outlive_a_bridge_that_is_killed() {
    // The bridge must be another process than the one that looks on; it is this test once more.
    if let Ok(trace) = std::env::var("RUNBRIDGE_TEST_TRACE") {
        let bench = Bench::new();
        let script = json!({"ignore_eof": true, "trace": trace}).to_string();
        let fake = entry("fake", fake_upstream().to_str().unwrap(), &[&script]);
        bench.catalog.set_entries(vec![fake]).await;
        bench.text("pid", json!({})).await;
        return std::future::pending().await;
    }
    let bench = Bench::new();
    let name = "upstream::a_server_does_not_outlive_a_bridge_that_is_killed";
    let mut bridge = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("RUNBRIDGE_TEST_TRACE", bench.trace_path("held"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let called = || bench.methods("held").contains(&"tools/call".to_owned());
    until("the server is called", called).await;
    let pid = pid_of(&bench.trace("held"), "start");
    assert!(lives(pid));
    bridge.kill().await.unwrap();
    until("the server ends", || !lives(pid)).await;
}
