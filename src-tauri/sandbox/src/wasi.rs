//! Backend 2: CPython compiled to WebAssembly, in a worker process of its own.
//!
//! Needs nothing installed. The guest is the same Python as in a container and speaks the same
//! frames; below it are no processes, threads or sockets, and its files are in memory. A worker
//! holds one guest: a fault of the engine costs one interpreter, and ending the process leaves
//! nothing. Does not know what the guest's Python does.

mod checkpoint;
mod confine;
mod door;
mod files;
#[cfg(test)]
mod hostile;
mod machine;
mod module;
mod preview1;
mod snapshot;
mod spares;
mod worker;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::{Enforcement, Guest, GuestExit, LimitFact, Mounting, SandboxError, SandboxLimits};
pub use snapshot::{Initialized, initialize};
use spares::{Shape, Spares};
pub use worker::main as worker_main;

/// Pieces of output that wait for whoever drives the guest; above it the worker's pipe is not read.
const PIECES_WAITING_MAX: usize = 16;
const PIECE_BYTES: usize = 64 << 10;

/// What is kept of a worker's stderr.
const STDERR_BYTES_MAX: usize = 4096;

/// A worker whose host is gone ends by itself; how long to wait for that.
const GOODBYE: Duration = Duration::from_secs(2);

/// Compiling takes 3 to 20 seconds.
const COMPILE: Duration = Duration::from_mins(3);

/// How a program starts itself as a worker: it must hand the argument that follows `arguments` to
/// [`worker_main`].
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The binary.
    pub program: PathBuf,
    /// What makes it a worker.
    pub arguments: Vec<OsString>,
}

/// The embedded Python, compiled and ready to be started.
#[derive(Clone, Debug)]
pub struct Wasi {
    worker: WorkerCommand,
    code: PathBuf,
    zips: Vec<PathBuf>,
    python: String,
    packages: Packages,
    /// Of all clones together.
    spares: Arc<Spares>,
}

/// The files that a new guest finds in its `/packages`, as of now.
#[derive(Clone)]
struct Packages(Arc<dyn Fn() -> Vec<PathBuf> + Send + Sync>);

impl std::fmt::Debug for Packages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Packages")
    }
}

/// What is true of the embedded sandbox under some limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WasiFacts {
    /// `wasi`
    pub backend: &'static str,
    /// Python's version.
    pub python: String,
    /// Each limit by its name in [`SandboxLimits`].
    pub limits: BTreeMap<&'static str, LimitFact>,
    /// A sentence for each thing that is weaker than asked for.
    pub warnings: Vec<String>,
}

impl Wasi {
    /// Take the embedded Python from `folder`; `None` if it must be compiled first, see
    /// [`Wasi::prepare`]. Quick enough to be called at any time.
    ///
    /// # Errors
    /// [`SandboxError::ModuleMissing`] if it is not there or cannot be used.
    pub fn open(
        folder: &Path,
        cache: &Path,
        worker: WorkerCommand,
    ) -> Result<Option<Self>, SandboxError> {
        let missing = |reason| SandboxError::ModuleMissing { reason };
        let module = module::Module::find(folder).map_err(missing)?;
        let cache = module::Cache::new(cache, &module).map_err(missing)?;
        Ok(cache.trusted().map(|code| Self::of(module, code, worker)))
    }

    /// As [`Wasi::open`], and compile it if need be: once per machine and version, some seconds.
    /// Cancel safe.
    ///
    /// # Errors
    /// [`SandboxError::ModuleMissing`] as above, or if it could not be compiled.
    pub async fn prepare(
        folder: &Path,
        cache: &Path,
        worker: WorkerCommand,
    ) -> Result<Self, SandboxError> {
        if let Some(ready) = Self::open(folder, cache, worker.clone())? {
            return Ok(ready);
        }
        let missing = |reason| SandboxError::ModuleMissing { reason };
        let module = module::Module::find(folder).map_err(missing)?;
        let cache = module::Cache::new(cache, &module).map_err(missing)?;
        let code = compile_once(&worker, &module, cache)
            .await
            .map_err(missing)?;
        Ok(Self::of(module, code, worker))
    }

    fn of(module: module::Module, code: PathBuf, worker: WorkerCommand) -> Self {
        Self {
            worker,
            code,
            zips: module.zips,
            python: module.python,
            packages: Packages(Arc::new(Vec::new)),
            spares: Arc::default(),
        }
    }

    /// Let guests that are started from now on find these files in their `/packages`, to read and not
    /// to write.
    #[must_use]
    pub fn with_packages(
        mut self,
        packages: impl Fn() -> Vec<PathBuf> + Send + Sync + 'static,
    ) -> Self {
        self.packages = Packages(Arc::new(packages));
        self
    }

    /// The version of the embedded Python in `folder`, compiled or not.
    ///
    /// # Errors
    /// As [`Wasi::open`].
    pub fn python_in(folder: &Path) -> Result<String, SandboxError> {
        let module = module::Module::find(folder);
        let module = module.map_err(|reason| SandboxError::ModuleMissing { reason })?;
        Ok(module.python)
    }

    /// The version of its Python.
    pub fn python(&self) -> &str {
        &self.python
    }

    /// What a guest that is started with `limits` is held to.
    pub fn facts(&self, limits: &SandboxLimits) -> WasiFacts {
        let held = |asked: f64| LimitFact {
            asked: Some(asked),
            enforced: true,
            how: Enforcement::Worker,
        };
        // A guest has one thread, and there are no processes.
        let cpus = match limits.cpus_max {
            Some(cpus) if cpus >= 1.0 => held(cpus),
            asked => LimitFact {
                asked,
                enforced: false,
                how: Enforcement::None,
            },
        };
        let mut warnings = Vec::new();
        if let Some(asked) = cpus.asked.filter(|_| !cpus.enforced) {
            warnings.push(format!(
                "the built-in sandbox uses up to one CPU; the limit of {asked} CPUs is not in force there"
            ));
        }
        WasiFacts {
            backend: "wasi",
            python: self.python.clone(),
            limits: BTreeMap::from([
                ("memory_bytes_max", held(limits.memory_bytes_max as f64)),
                ("processes_max", held(f64::from(limits.processes_max))),
                ("cpus_max", cpus),
                ("tmp_bytes_max", held(limits.tmp_bytes_max as f64)),
                (
                    "workspace_bytes_max",
                    held(limits.workspace_bytes_max as f64),
                ),
                ("open_files_max", held(f64::from(limits.open_files_max))),
            ]),
            warnings,
        }
    }

    /// Keep `count` guests of these limits ready from now on, so that [`Wasi::start`] has one at once.
    /// Each costs what an idle interpreter costs. Needs a tokio runtime.
    ///
    /// # Errors
    /// As [`Wasi::start`].
    pub fn keep_spares(
        &self,
        limits: &SandboxLimits,
        grace_ms: u64,
        count: usize,
    ) -> Result<(), SandboxError> {
        let shape = Shape {
            limits: limits.clone(),
            grace_ms,
        };
        for _ in 0..self.spares.want(&shape, count) {
            self.spares.put(&shape, self.new_guest(&shape)?);
        }
        Ok(())
    }

    /// Keep no spares any more, and wait until those that there were have ended.
    pub async fn end_spares(&self) {
        let ends = self
            .spares
            .close()
            .into_iter()
            .map(|guest| (guest.end)(true));
        futures_util::future::join_all(ends).await;
    }

    /// Start one guest, or take a spare. `grace_ms` is what an interrupted run may take to stop before it is ended
    /// by force, and must be shorter than the grace that the run's driver gives.
    ///
    /// # Errors
    /// [`SandboxError::WorkerStart`] if the worker could not be started.
    pub fn start(&self, limits: &SandboxLimits, grace_ms: u64) -> Result<Guest, SandboxError> {
        let shape = Shape {
            limits: limits.clone(),
            grace_ms,
        };
        match self.spares.take(&shape) {
            Some(spare) => {
                self.refill(shape);
                Ok(spare)
            }
            None => self.new_guest(&shape),
        }
    }

    /// Start a replacement, but not at once: whoever took the spare has work to do that the user
    /// waits for.
    fn refill(&self, shape: Shape) {
        const PAUSE: Duration = Duration::from_millis(250);
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            for _ in 0..this.spares.missing(&shape) {
                match this.new_guest(&shape) {
                    Ok(guest) => this.spares.put(&shape, guest),
                    // The next start says so to whoever needs it.
                    Err(error) => return tracing::debug!(%error, "no spare"),
                }
            }
        });
    }

    fn new_guest(&self, shape: &Shape) -> Result<Guest, SandboxError> {
        let packages = (self.packages.0)();
        let names = packages.iter().filter_map(|path| path.file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        let mounting = Mounting::Sent(names.collect());
        let task = worker::Task::Serve(worker::Serve {
            code: self.code.clone(),
            zips: self.zips.clone(),
            packages,
            limits: shape.limits.clone(),
            grace_ms: shape.grace_ms,
        });
        let failed = |reason: String| SandboxError::WorkerStart { reason };
        let mut child = self.worker.spawn(&task, Stdio::piped()).map_err(failed)?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed("the worker has no pipes".to_owned()));
        };
        let gauge = child.id().map(crate::usage::of_process);
        let (pieces, received) = mpsc::channel(PIECES_WAITING_MAX);
        tokio::spawn(pump(output, pieces));
        let errors = tokio::spawn(tail(errors));
        Ok(Guest {
            input: Box::new(input),
            output: received,
            end: Box::new(move |kill| -> BoxFuture<'static, GuestExit> {
                Box::pin(end(child, errors, kill))
            }),
            gauge,
            mounting,
        })
    }
}

impl WorkerCommand {
    fn spawn(&self, task: &worker::Task, stdin: Stdio) -> Result<Child, String> {
        let task = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(task)
            .env_clear()
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        {
            command.current_dir("/");
            // A terminal's interrupt is for its host.
            command.process_group(0);
        }
        #[cfg(windows)]
        {
            // Where it is, lest the folder that the host was started in cannot be removed.
            if let Some(folder) = self.program.parent() {
                command.current_dir(folder);
            }
            // A terminal of its own, which has no window and no interrupts.
            command.creation_flags(windows_sys::Win32::System::Threading::CREATE_NO_WINDOW);
        }
        command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))
    }
}

async fn compile_once(
    worker: &WorkerCommand,
    module: &module::Module,
    cache: module::Cache,
) -> Result<PathBuf, String> {
    let _lock = right_to_compile(cache.clone()).await?;
    if let Some(code) = cache.trusted() {
        return Ok(code);
    }
    cache.sweep_unfinished();
    module.verify()?;
    let scratch = cache.scratch()?;
    let compiled = compile(worker, &module.wasm, &scratch).await;
    let kept = compiled.and_then(|()| cache.keep(&scratch));
    if kept.is_err() {
        let _ = std::fs::remove_file(&scratch);
    }
    kept
}

/// Waits on a thread of its own: a runtime that is shut down would wait for a blocking task.
async fn right_to_compile(cache: module::Cache) -> Result<std::fs::File, String> {
    let (give, given) = oneshot::channel();
    std::thread::Builder::new()
        .name("compile-lock".to_owned())
        .spawn(move || give.send(cache.lock()))
        .map_err(|error| error.to_string())?;
    match tokio::time::timeout(COMPILE, given).await {
        Ok(Ok(lock)) => lock,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!(
            "another process has been compiling for {} s",
            COMPILE.as_secs()
        )),
    }
}

async fn compile(worker: &WorkerCommand, module: &Path, out: &Path) -> Result<(), String> {
    let task = worker::Task::Compile {
        module: std::path::absolute(module).map_err(|error| error.to_string())?,
        out: std::path::absolute(out).map_err(|error| error.to_string())?,
    };
    let mut child = worker.spawn(&task, Stdio::piped())?;
    // Nothing is written to it. It closes with this process, however that ends, and the worker then
    // ends too.
    let _open = child.stdin.take();
    let output = tokio::time::timeout(COMPILE, child.wait_with_output())
        .await
        .map_err(|_| format!("compiling took longer than {} s", COMPILE.as_secs()))?
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "compiling ended with {}: {}",
        output.status,
        stderr.trim()
    ))
}

async fn pump(mut output: impl AsyncRead + Unpin, pieces: mpsc::Sender<Bytes>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE_BYTES);
        match output.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                if pieces.send(buffer.split().freeze()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The last bytes of a stream.
async fn tail(mut errors: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut piece = [0; STDERR_BYTES_MAX];
    while let Ok(count @ 1..) = errors.read(&mut piece).await {
        kept.extend_from_slice(&piece[..count]);
        let excess = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..excess);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

async fn end(mut child: Child, errors: JoinHandle<String>, kill: bool) -> GuestExit {
    if kill {
        let _ = child.start_kill();
    }
    let mut waited = tokio::time::timeout(GOODBYE, child.wait()).await;
    if waited.is_err() {
        let _ = child.start_kill();
        waited = tokio::time::timeout(GOODBYE, child.wait()).await;
    }
    let stderr_tail = match tokio::time::timeout(GOODBYE, errors).await {
        Ok(Ok(tail)) => tail,
        _ => String::new(),
    };
    GuestExit {
        code: waited.ok().and_then(Result::ok).map(code),
        // A guest that meets its memory limit gets a MemoryError and lives on.
        out_of_memory: false,
        stderr_tail,
    }
}

#[cfg(unix)]
fn code(status: ExitStatus) -> i64 {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = status.signal().map(|signal| 128 + signal);
    i64::from(status.code().or(signal).unwrap_or(-1))
}

#[cfg(not(unix))]
fn code(status: ExitStatus) -> i64 {
    i64::from(status.code().unwrap_or(-1))
}
