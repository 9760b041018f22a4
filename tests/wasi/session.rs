//! One embedded Python, driven by the interpreter that the product uses.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use runbridge_sandbox::wasi::{Wasi, WorkerCommand};
use runbridge_sandbox::{
    CallError, CallHandler, Guest, GuestExit, Interpreter, OutputSink, RunEnd, RunOutcome,
    RunRequest, SandboxLimits, Stream,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Of the driver; the worker's own is shorter.
const GRACE_MS: u64 = 2_000;
pub(crate) const WORKER_GRACE_MS: u64 = 700;

/// `target/debug`, or whatever the profile is.
fn profile() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

pub(crate) fn target() -> PathBuf {
    profile().parent().unwrap().to_owned()
}

pub(crate) fn worker() -> WorkerCommand {
    let folder = profile().join("examples");
    WorkerCommand {
        program: folder.join(format!("wasi_worker{}", std::env::consts::EXE_SUFFIX)),
        arguments: Vec::new(),
    }
}

pub(crate) fn module() -> PathBuf {
    std::env::var_os("RUNBRIDGE_TEST_PYTHON")
        .map_or_else(|| target().join("guest/python"), PathBuf::from)
}

/// The embedded Python, compiled once for all tests.
pub(crate) async fn wasi() -> Wasi {
    prepare(&target().join("guest/cache")).await
}

pub(crate) async fn prepare(cache: &Path) -> Wasi {
    Wasi::prepare(&module(), cache, worker())
        .await
        .expect("build it with `cargo xtask guest`")
}

/// Processes that this one has started: workers, ended or not.
#[cfg(target_os = "linux")]
pub(crate) fn workers() -> Vec<u32> {
    let me = std::process::id().to_string();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let parent = status
                .lines()
                .find_map(|line| line.strip_prefix("PPid:\t"))?;
            (parent == me).then_some(pid)
        })
        .collect()
}

/// Memory of a process that it shares with no other, in MiB.
#[cfg(target_os = "linux")]
pub(crate) fn private_mib(pid: u32) -> Option<f64> {
    let memory = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = memory
        .lines()
        .find_map(|line| line.strip_prefix("Private_Dirty:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// What a run printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) outcome: RunOutcome,
    pub(crate) took: Duration,
}

impl Ran {
    /// The value of the last expression of a run that ended as it should.
    pub(crate) fn value(&self) -> &str {
        assert_eq!(self.outcome.end, RunEnd::Finished, "{self:?}");
        assert_eq!(self.outcome.error, None, "{self:?}");
        self.outcome.result.as_deref().unwrap_or("None")
    }

    /// `Type: message` of the exception that ended it.
    pub(crate) fn raised(&self) -> String {
        let error = self.outcome.error.as_ref();
        let error = error.unwrap_or_else(|| panic!("nothing was raised: {self:?}"));
        format!("{}: {}", error.r#type, error.message)
    }

    pub(crate) fn notes(&self) -> String {
        self.outcome.notes.join("\n")
    }
}

pub(crate) struct Session {
    pub(crate) interpreter: Interpreter,
    printed: Printed,
    runs: u64,
    pub(crate) tools: Arc<Tools>,
}

impl Session {
    pub(crate) async fn start() -> Self {
        Self::limited(&SandboxLimits::default()).await
    }

    pub(crate) async fn limited(limits: &SandboxLimits) -> Self {
        Self::of(wasi().await.start(limits, WORKER_GRACE_MS).unwrap()).await
    }

    pub(crate) async fn of(guest: Guest) -> Self {
        let printed = Printed::default();
        let sink = Box::new(printed.clone());
        let interpreter = Interpreter::attach(guest, sink, Duration::from_secs(30))
            .await
            .unwrap();
        Self {
            interpreter,
            printed,
            runs: 0,
            tools: Arc::default(),
        }
    }

    pub(crate) async fn run(&mut self, code: &str) -> Ran {
        self.run_for(code, 20_000).await
    }

    pub(crate) async fn run_for(&mut self, code: &str, run_ms_max: u64) -> Ran {
        self.run_until(code, run_ms_max, CancellationToken::new())
            .await
    }

    pub(crate) async fn run_until(
        &mut self,
        code: &str,
        run_ms_max: u64,
        cancel: CancellationToken,
    ) -> Ran {
        self.runs += 1;
        let request = RunRequest {
            id: 1000 + self.runs,
            code: code.to_owned(),
            file_name: format!("<run {}>", self.runs),
            context: json!({"servers": [{"name": "srv", "alias": "srv", "description": ""}]}),
            run_ms_max,
            grace_ms_max: GRACE_MS,
            images_bytes_max: 1 << 20,
        };
        self.printed.take();
        let started = Instant::now();
        let outcome = self
            .interpreter
            .run(request, self.tools.clone(), cancel)
            .await;
        let took = started.elapsed();
        let (stdout, stderr) = self.printed.take();
        Ran {
            stdout,
            stderr,
            outcome,
            took,
        }
    }

    /// What was printed since the last run, as (run, text).
    pub(crate) fn late(&self) -> Vec<(u64, String)> {
        let late = self.printed.0.lock().unwrap();
        late.iter()
            .map(|(run, _, bytes)| (*run, String::from_utf8_lossy(bytes).into_owned()))
            .collect()
    }

    pub(crate) async fn end(self) -> GuestExit {
        self.interpreter.end().await
    }
}

type Piece = (u64, Stream, Vec<u8>);

#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<Piece>>>);

impl Printed {
    fn take(&self) -> (String, String) {
        let pieces = std::mem::take(&mut *self.0.lock().unwrap());
        let of = |stream| {
            let bytes: Vec<u8> = pieces
                .iter()
                .filter(|piece| piece.1 == stream)
                .flat_map(|piece| piece.2.clone())
                .collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        (of(Stream::Stdout), of(Stream::Stderr))
    }
}

impl OutputSink for Printed {
    fn write(&mut self, run: u64, stream: Stream, bytes: &[u8]) {
        let mut pieces = self.0.lock().unwrap();
        pieces.push((run, stream, bytes.to_vec()));
    }
}

/// The host's side of the tests: a tool that echoes, one that takes its time, one that fails.
#[derive(Default)]
pub(crate) struct Tools {
    /// Calls that were begun and neither answered nor cancelled.
    pub(crate) under_way: Arc<Mutex<i64>>,
}

struct UnderWay(Arc<Mutex<i64>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.lock().unwrap() -= 1;
    }
}

impl CallHandler for Tools {
    fn call(
        self: Arc<Self>,
        method: String,
        params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, CallError>> {
        *self.under_way.lock().unwrap() += 1;
        let under_way = UnderWay(self.under_way.clone());
        async move {
            let _under_way = under_way;
            let params: Value = serde_json::from_str(params.get()).unwrap();
            let arguments = &params["arguments"];
            match params["tool"].as_str() {
                Some("slow") => {
                    let ms = arguments["ms"].as_u64().unwrap();
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                }
                Some("bad") => return Err(CallError::new("mcp", "it went wrong")),
                _ => {}
            }
            let told = json!({"method": method, "echo": arguments});
            let result = json!({"structuredContent": told, "content": []});
            Ok(serde_json::value::to_raw_value(&result).unwrap())
        }
        .boxed()
    }
}
