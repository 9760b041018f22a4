//! The process that holds one guest: it reads the host's frames, gives Python its turns, and puts a
//! guest that was lost back to where its last run left it.
//!
//! It takes all it needs from its first argument and gives up every right before the guest runs.
//! stdin and stdout carry frames; stderr is for its last words.

use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wasmtime::{Engine, Module};

use super::checkpoint::{Checkpoint, Pages};
use super::confine;
use super::door::{Door, Output};
use super::files::{self, Files, FilesLimits};
use super::machine::{self, Ended, Machine, State, Template};
use super::preview1::Clock;
use crate::SandboxLimits;
use crate::frame::{self, Frame, Kind};

/// What a worker is to do.
#[derive(Deserialize, Serialize)]
pub(super) enum Task {
    /// Hold a guest.
    Serve(Serve),
    /// Compile a module for this machine.
    Compile { module: PathBuf, out: PathBuf },
}

#[derive(Deserialize, Serialize)]
pub(super) struct Serve {
    pub(super) code: PathBuf,
    /// Read-only files for `/lib`.
    pub(super) zips: Vec<PathBuf>,
    /// Read-only files for `/packages`.
    pub(super) packages: Vec<PathBuf>,
    pub(super) limits: SandboxLimits,
    pub(super) grace_ms: u64,
}

/// Exit codes, told to the host; Python's own never get here.
const FAILED: i32 = 70;

/// Be a worker: do what the first of `arguments` says, and end the process.
///
/// The binary that holds the product calls this when it was started in its hidden mode, before it
/// has done anything else.
pub fn main(mut arguments: impl Iterator<Item = String>) -> ! {
    confine::close_inherited();
    let task = arguments
        .next()
        .ok_or_else(|| "no task was given".to_owned())
        .and_then(|task| serde_json::from_str(&task).map_err(|error| error.to_string()));
    let done = match task {
        Ok(Task::Serve(serve)) => start(serve),
        Ok(Task::Compile { module, out }) => compile(&module, &out),
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        let _ = writeln!(io::stderr(), "{error}");
        exit(FAILED);
    }
    exit(0);
}

fn compile(module: &Path, out: &Path) -> Result<(), String> {
    spawn("host", || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = writeln!(io::stderr(), "whoever wanted the code waits no longer");
        exit(FAILED);
    })?;
    let bytes = std::fs::read(module).map_err(|error| format!("{}: {error}", module.display()))?;
    let engine = machine::engine().map_err(|error| format!("{error:#}"))?;
    let code = engine
        .precompile_module(&bytes)
        .map_err(|error| format!("{error:#}"))?;
    std::fs::write(out, code).map_err(|error| format!("{}: {error}", out.display()))
}

/// The guest's thread needs a larger stack than a process begins with.
fn start(serve: Serve) -> Result<(), String> {
    thread::Builder::new()
        .name("guest".to_owned())
        .stack_size(machine::THREAD_STACK_BYTES)
        .spawn(move || serve_guest(&serve))
        .map_err(|error| error.to_string())?
        .join()
        .unwrap_or_else(|_| Err("the worker panicked".to_owned()))
}

fn serve_guest(serve: &Serve) -> Result<(), String> {
    let told = |error: wasmtime::Error| format!("{error:#}");
    let engine = machine::engine().map_err(told)?;
    let module = load(&engine, &serve.code)?;
    let template = Template::new(&engine, &module).map_err(told)?;
    let nudge = {
        let engine = engine.clone();
        Box::new(move || engine.increment_epoch())
    };
    let grace = Duration::from_millis(serve.grace_ms);
    let door = Arc::new(Door::new(Box::new(Stdout::new()), grace, nudge));
    let files = first_files(serve)?;
    let pages = Pages::new();
    confine::before_threads(&serve.limits)?;
    // A thread that is still being started needs what is given up next.
    let started = Arc::new(Barrier::new(3));
    for (name, work) in [("watch", Door::watch as fn(&Door)), ("reader", read_frames)] {
        let (door, started) = (door.clone(), started.clone());
        spawn(name, move || {
            started.wait();
            work(&door);
        })?;
    }
    started.wait();
    confine::before_guest()?;
    let state = State::new(
        files.clone(),
        Clock::real(),
        Some(door.clone()),
        serve.limits.memory_bytes_max as usize,
    );
    let mut guest = Guest {
        machine: Some(Machine::start(&template, state, None).map_err(told)?),
        template,
        door,
        fresh: files,
        pages,
        checkpoint: None,
        saved_at: Instant::now(),
        run_since: true,
    };
    guest.live()
}

/// Code that this product compiled; see [`super::module`] for how it is known to be that.
#[expect(
    unsafe_code,
    reason = "wasmtime runs what is in the file as machine code"
)]
fn load(engine: &Engine, code: &Path) -> Result<Module, String> {
    // SAFETY: `module::Cache` hands out only files whose bytes it has hashed and found to be what
    // an engine of this product wrote, in a folder where nobody but the user may write.
    let module = unsafe { Module::deserialize_file(engine, code) };
    module.map_err(|error| format!("{}: {error:#}", code.display()))
}

fn first_files(serve: &Serve) -> Result<Files, String> {
    let mut files = Files::new(FilesLimits {
        tmp_bytes_max: serve.limits.tmp_bytes_max,
        workspace_bytes_max: serve.limits.workspace_bytes_max,
        descriptors_max: serve.limits.open_files_max as usize,
        memory_bytes_max: serve.limits.memory_bytes_max,
    });
    files.mount_all(&serve.zips)?;
    for package in &serve.packages {
        // One that was removed meanwhile is missed by who imports it, and by nobody else.
        if let Err(error) = files.mount_one(files::PACKAGES, package) {
            let _ = writeln!(io::stderr(), "{}: {error}", package.display());
        }
    }
    Ok(files)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 << 10)
        .spawn(work)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Bring the host's frames to the door until the host is gone, and the process with it.
fn read_frames(door: &Door) {
    let mut stdin = io::BufReader::with_capacity(64 << 10, io::stdin().lock());
    loop {
        match read_frame(&mut stdin).and_then(|frame| door.deliver(frame)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => exit(0),
            Err(error) => {
                let _ = writeln!(io::stderr(), "cannot go on: {error}");
                exit(FAILED);
            }
        }
    }
}

fn read_frame(from: &mut impl Read) -> io::Result<Frame> {
    let mut header = [0; frame::HEADER_BYTES];
    from.read_exact(&mut header)?;
    let [version, kind, _, _, l0, l1, l2, l3, id @ ..] = header;
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let kind = Kind::of_host(kind).filter(|_| version == frame::VERSION);
    let Some(kind) = kind.filter(|_| length <= frame::PAYLOAD_BYTES_MAX) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the host sent what is not a frame",
        ));
    };
    let mut payload = vec![0; length];
    from.read_exact(&mut payload)?;
    Ok(Frame {
        kind,
        id: u64::from_be_bytes(id),
        payload: Bytes::from(payload),
    })
}

/// A guest and what it takes to bring it back.
struct Guest {
    /// Always there, but for the moment in which it is replaced.
    machine: Option<Machine>,
    template: Template,
    door: Arc<Door>,
    /// The files of a guest that has done nothing yet.
    fresh: Files,
    pages: Pages,
    checkpoint: Option<Checkpoint>,
    saved_at: Instant,
    /// A run has ended after that.
    run_since: bool,
}

/// How often a guest is copied that does things between runs.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

impl Guest {
    /// Until the host is gone: the reader ends the process then.
    fn live(&mut self) -> Result<(), String> {
        let mut next = None;
        // Greet.
        self.turn(&mut next)?;
        loop {
            self.door.wait_for_turn(next);
            self.turn(&mut next)?;
        }
    }

    fn turn(&mut self, next: &mut Option<Instant>) -> Result<(), String> {
        let Some(machine) = &mut self.machine else {
            return Err("the guest is gone".to_owned());
        };
        let turned = machine.turn();
        let ended_run = self.door.end_turn();
        let ended = match turned {
            Ok(wanted) if self.door.active().is_none() => {
                *next = wanted;
                self.run_since |= ended_run;
                self.save();
                return Ok(());
            }
            Ok(_) => Ended::Crashed("the run was left without an end".to_owned()),
            Err(ended) => ended,
        };
        *next = Some(Instant::now());
        self.restore(&ended)
    }

    /// Keep a copy of the guest, if there is anything new in it.
    fn save(&mut self) {
        if !self.run_since && self.saved_at.elapsed() < CHECKPOINT_EVERY {
            return;
        }
        if let Some(machine) = &self.machine {
            self.checkpoint = machine.save(&mut self.pages, self.checkpoint.take());
        }
        self.run_since = false;
        self.saved_at = Instant::now();
    }

    /// Go on from the last checkpoint, and tell the host how the run ended.
    fn restore(&mut self, ended: &Ended) -> Result<(), String> {
        let run = self.door.abandon().map_err(|error| error.to_string())?;
        // The old one goes first: two do not fit into the limit.
        let old = self.machine.take().map(Machine::into_state);
        let mut state = old.ok_or("the guest is gone")?;
        state.files = self.fresh.clone();
        let machine = Machine::start(&self.template, state, self.checkpoint.as_ref());
        self.machine = Some(machine.map_err(|error| format!("{error:#}"))?);
        let Some(run) = run else {
            return Ok(());
        };
        let payload = done(ended, self.checkpoint.is_some()).to_string();
        self.door
            .end_run(run, payload.as_bytes())
            .map_err(|error| error.to_string())
    }
}

/// The end of a run whose guest was lost in it.
fn done(ended: &Ended, restored: bool) -> serde_json::Value {
    let variables = if restored {
        "variables and files are as they were before it; calls that it made are not undone"
    } else {
        "variables and files are gone, for they were too large to be kept aside"
    };
    let note = format!("The run was ended by force because {ended}: {variables}.");
    match ended {
        Ended::Exited(code) => serde_json::json!({"exit_code": code, "notes": [note]}),
        Ended::Stopped => serde_json::json!({
            "error": {"type": "KeyboardInterrupt", "message": "", "traceback": ""},
            "notes": [note],
        }),
        Ended::Crashed(_) | Ended::Failed => serde_json::json!({
            "error": {"type": "SystemError", "message": ended.to_string(), "traceback": ""},
            "notes": [note],
        }),
    }
}

/// The descriptor that carries frames to the host.
struct Stdout {
    lock: std::sync::Mutex<()>,
}

impl Stdout {
    fn new() -> Self {
        Self {
            lock: std::sync::Mutex::new(()),
        }
    }
}

impl Output for Stdout {
    #[cfg(unix)]
    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        // Past the standard library's line buffer.
        let _whole = self.lock.lock();
        while !bytes.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let _whole = self.lock.lock();
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}
