//! One run of Python, from its checked request to its reply: the session's turn, an interpreter,
//! the code, and what came of it. The file to read first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use runbridge_sandbox::{GuestExit, PythonError, RunEnd, RunOutcome, RunRequest, SandboxError};
use serde_json::json;
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;

use crate::activity::{RunEnded, RunStarted};
use crate::api::{RunStatus, SandboxKind};
use crate::arrivals::Arrival;
use crate::bridge::{Bridge, Connection};
use crate::calls::{Asker, Inside, RunCalls};
use crate::catalog::ServerStatus;
use crate::interpreters::{Busy, Lease, LiveInterpreter};
use crate::late_runs::UnderWay;
use crate::live_runs::{self, Begun, LiveRun};
use crate::output::run_name;
use crate::packages::Target;
use crate::peak;
use crate::questions::Ask;
use crate::redact::Redactor;
use crate::reply::{self, ErrorFacts, OutputMode, Reply, ReplyLimits, RunFacts, Status};
use crate::request::{PythonRequest, SESSION_DEFAULT};
use crate::sandboxes::Started;
use crate::settings::units::Unit;
use crate::settings::{self, Limits, PackagesPolicy, Settings};
use crate::timestamp::now_ms;
use crate::tokens;
use crate::upstream::UpstreamError;

/// How long an interrupted run may take to stop before its sandbox is killed.
const GRACE_MS: u64 = 2_000;

/// Between two signs of life of a run; the shortest patience of a client that we know is 60 s.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// Hears what a run is waiting for, in words.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Who follows a run.
#[derive(Clone, Default)]
pub struct Audience {
    /// Hears what it is doing.
    pub report: Option<Report>,
    /// Puts questions of servers to its user.
    pub ask: Option<Ask>,
}

/// Execute one run and make its reply. `cancel` ends it early; dropping the future leaves the run
/// to its deadline. Runs of one session go in the order of `arrival`.
pub async fn run_python(
    bridge: &Arc<Bridge>,
    connection: &Arc<Connection>,
    client: Option<&str>,
    request: PythonRequest,
    cancel: CancellationToken,
    audience: Audience,
    arrival: Option<Arrival>,
) -> Reply {
    let id = unguessable();
    run_as(
        id, bridge, connection, client, request, cancel, audience, arrival,
    )
    .await
}

/// As [`run_python`], with an id that is already known.
#[allow(
    clippy::too_many_arguments,
    reason = "one more than its twin, and no two of them belong together"
)]
pub(crate) async fn run_as(
    id: u64,
    bridge: &Arc<Bridge>,
    connection: &Arc<Connection>,
    client: Option<&str>,
    request: PythonRequest,
    cancel: CancellationToken,
    audience: Audience,
    arrival: Option<Arrival>,
) -> Reply {
    if let Some(arrival) = &arrival {
        arrival.turn().await;
    }
    let settings = bridge.settings();
    bridge.discovered().await;
    let servers = match allowed_servers(bridge, request.servers.as_deref()) {
        Ok(servers) => servers,
        Err(error) => return refused(bridge, &error.to_string()),
    };
    let mut facts = RunFacts::new(run_name(id), Status::Success);
    facts.timeout_seconds = request.timeout_seconds;
    for name in &request.ignored {
        facts.notes.push(format!(
            "the argument `{name}` means nothing here and was ignored"
        ));
    }
    if let Some(client) = client {
        bridge.name_client(connection.id(), client);
    }
    let redactor = bridge.redactor();
    let live = bridge.live_runs().begin(Begun {
        id: facts.run_id.clone(),
        client: client.unwrap_or_default().to_owned(),
        connection: connection.id(),
        session: request.session.clone(),
        session_name: (request.session != SESSION_DEFAULT).then(|| request.session.clone()),
        code: redactor.text(&request.code).into_owned(),
        cancel: cancel.clone(),
    });
    let run = Run {
        bridge,
        connection,
        client,
        settings: &settings,
        redactor,
        id,
        cancel,
        report: audience.report,
        ask: audience.ask,
        live: Arc::new(live),
    };
    run.execute(request, servers, facts, arrival).await
}

/// The reply for a run that goes on: what it has printed so far, what it is doing, and how to collect
/// the rest.
pub(crate) fn so_far(bridge: &Bridge, connection: &Connection, run: &UnderWay) -> Reply {
    let mut facts = RunFacts::new(run_name(run.id()), Status::Running);
    let captured = connection.outputs().so_far(run.id());
    facts.stdout = captured.stdout;
    facts.stderr = captured.stderr;
    let doing = run.doing().borrow().clone();
    if !doing.is_empty() {
        facts.notes.push(doing);
    }
    finish(&bridge.settings(), facts)
}

/// The reply to a request that cannot be executed as it is.
pub fn refused(bridge: &Bridge, problem: &str) -> Reply {
    let mut facts = RunFacts::new(String::new(), Status::ValidationError);
    facts.error = Some(error_facts("validation_error", problem));
    finish(&bridge.settings(), facts)
}

/// One run under way.
struct Run<'a> {
    bridge: &'a Arc<Bridge>,
    connection: &'a Arc<Connection>,
    client: Option<&'a str>,
    settings: &'a Settings,
    redactor: Arc<Redactor>,
    id: u64,
    cancel: CancellationToken,
    report: Option<Report>,
    ask: Option<Ask>,
    live: Arc<LiveRun>,
}

/// Why the code did not get to run.
enum NotRun {
    Cancelled,
    Paused,
    Busy,
    Sandbox(Arc<SandboxError>),
    NoRoom,
}

impl Run<'_> {
    async fn execute(
        self,
        request: PythonRequest,
        servers: Option<Vec<String>>,
        mut facts: RunFacts,
        arrival: Option<Arrival>,
    ) -> Reply {
        self.record_start(&request, &facts.run_id);
        if self.bridge.is_paused() {
            not_run(&mut facts, &NotRun::Paused, &request.session);
            return self.reply(facts, 0);
        }
        let mut lease = match self.ready(&request.session, &mut facts, arrival).await {
            Ok(lease) => lease,
            Err(reason) => {
                not_run(&mut facts, &reason, &request.session);
                return self.reply(facts, 0);
            }
        };
        let calls = Arc::new(RunCalls::new(
            Arc::clone(self.bridge),
            Arc::clone(self.connection),
            facts.run_id.clone(),
            Arc::clone(&self.live),
            Asker {
                client: self.client.unwrap_or("unknown client").to_owned(),
                session: (request.session != SESSION_DEFAULT).then(|| request.session.clone()),
            },
            servers.clone(),
            lease.sandbox.clone(),
            inside(&lease),
            Audience {
                report: self.report.clone(),
                ask: self.ask.clone(),
            },
        ));
        lease.runs += 1;
        let mut context = self.context(servers.as_deref(), lease.runs == 1);
        match self.packages(&lease).await {
            Ok(Some(files)) => context["packages"] = json!(files),
            // Python then says what is missing as it always does.
            Ok(None) => {}
            Err(note) => facts.notes.push(note),
        }
        let run = RunRequest {
            id: self.id,
            code: request.code.clone(),
            file_name: format!("<run {}>", lease.runs),
            context,
            run_ms_max: request.timeout_seconds * 1000,
            grace_ms_max: GRACE_MS,
            images_bytes_max: ReplyLimits::default().image_bytes_max,
        };
        self.connection.outputs().begin(self.id, &self.redactor);
        self.live
            .running(lease.sandbox.as_ref().map(|sandbox| sandbox.kind()));
        lease.busy();
        let outcome = match lease.interpreter.as_mut() {
            Some(interpreter) => {
                let measuring = peak::watch(interpreter.gauge(), |bytes| self.live.uses(bytes));
                let running = interpreter.run(run, calls.clone(), self.cancel.clone());
                self.with_signs_of_life(running, measuring, &calls).await
            }
            None => return self.reply(facts, 0),
        };
        if let (RunEnd::OutOfMemory, Some(limit)) = (&outcome.end, lease.memory_bytes_max()) {
            // No look is as near to the end as the limit is.
            self.live.uses(limit);
        }
        if let RunEnd::Cancelled { killed: true } = outcome.end {
            lease.lost = Some("an earlier run was cancelled and did not stop by itself".to_owned());
        }
        drop(lease);
        facts.calls = calls.tool_calls();
        facts.servers = calls.servers_called();
        facts.notes.extend(calls.notes());
        self.take_outcome(outcome, &mut facts);
        self.reply(facts, calls.result_tokens())
    }

    /// Wait for the code, and say now and then that it runs: clients give up requests that they hear
    /// nothing of.
    async fn with_signs_of_life(
        &self,
        running: impl Future<Output = RunOutcome>,
        measuring: impl Future<Output = ()>,
        calls: &RunCalls,
    ) -> RunOutcome {
        tokio::pin!(running, measuring);
        let began = Instant::now();
        let mut signs = interval_at(began + SIGN_OF_LIFE, SIGN_OF_LIFE);
        loop {
            tokio::select! {
                outcome = &mut running => return outcome,
                () = &mut measuring => {}
                _ = signs.tick() => {
                    if let Some(report) = &self.report {
                        let seconds = began.elapsed().as_secs();
                        report(&format!(
                            "running for {seconds} s, {} tool calls so far",
                            calls.tool_calls()
                        ));
                    }
                }
            }
        }
    }

    /// The session's turn, with a live interpreter.
    async fn ready(
        &self,
        session: &str,
        facts: &mut RunFacts,
        arrival: Option<Arrival>,
    ) -> Result<Lease, NotRun> {
        let interpreters = self.bridge.interpreters();
        let turn = interpreters.take(self.connection.id(), session);
        tokio::pin!(turn);
        // The first poll takes a place in the session's queue; the next call may then take its own.
        let at_once = futures_util::poll!(&mut turn);
        drop(arrival);
        let lease = match at_once {
            Poll::Ready(lease) => lease,
            Poll::Pending => tokio::select! {
                lease = turn => lease,
                () = self.cancel.cancelled() => return Err(NotRun::Cancelled),
            },
        };
        let mut lease = lease.map_err(|Busy| NotRun::Busy)?;
        if lease
            .interpreter
            .as_ref()
            .is_some_and(|interpreter| !interpreter.is_alive())
        {
            lease.interpreter = None;
            lease
                .lost
                .get_or_insert_with(|| "the interpreter ended between two runs".to_owned());
        }
        if lease.interpreter.is_none() {
            let kind = lease.sandbox.as_ref().map(|sandbox| sandbox.kind());
            let started = tokio::select! {
                started = self.start_interpreter(kind) => started?,
                () = self.cancel.cancelled() => return Err(NotRun::Cancelled),
            };
            let live = self.live_interpreter(session, started.facts.kind());
            lease.began(started, live);
        }
        if lease.runs == 0 && self.connection.is_resumed() {
            lease.lost = Some("Runbridge was restarted".to_owned());
        }
        if let Some(why) = lease.lost.take() {
            facts
                .notes
                .push(format!("the variables of earlier runs are gone: {why}"));
        }
        facts.sandbox.clone_from(&lease.sandbox);
        if lease.runs == 0
            && let Some(sandbox) = &lease.sandbox
        {
            facts.warnings = sandbox.warnings().to_vec();
        }
        Ok(lease)
    }

    fn live_interpreter(&self, session: &str, kind: SandboxKind) -> LiveInterpreter {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        LiveInterpreter {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            connection: self.connection.id(),
            session: session.to_owned(),
            client: self.client.unwrap_or_default().to_owned(),
            kind,
            started_at: now_ms(),
            idle_since_at: None,
            runs: 0,
            memory_bytes_max: self.settings.limits.memory_bytes_max,
        }
    }

    async fn start_interpreter(&self, kind: Option<SandboxKind>) -> Result<Started, NotRun> {
        let interpreters_max = self.settings.limits.interpreters_max as usize;
        if !self.bridge.interpreters().make_room(interpreters_max).await {
            return Err(NotRun::NoRoom);
        }
        let sink = Box::new(self.connection.outputs().sink());
        let report = |step: &str| {
            if let Some(report) = &self.report {
                report(step);
            }
        };
        let sandboxes = self.bridge.sandboxes();
        let started = sandboxes.start(self.settings, kind, sink, &report);
        started.await.map_err(NotRun::Sandbox)
    }

    /// The files of packages that the interpreter sees, brought up to date; `None`: they are off.
    async fn packages(&self, lease: &Lease) -> Result<Option<Vec<String>>, String> {
        if self.settings.packages.policy == PackagesPolicy::Off {
            return Ok(None);
        }
        let (Some(sandbox), Some(inside)) = (&lease.sandbox, inside(lease)) else {
            return Ok(None);
        };
        let packages = self.bridge.packages();
        if !inside.mounts.are_possible() || packages.are_none() {
            return Ok(Some(Vec::new()));
        }
        let Some(target) = Target::new(sandbox.kind(), &inside.python) else {
            return Ok(Some(Vec::new()));
        };
        let mounted = packages.mount(&target, &inside.mounts).await;
        mounted
            .map(Some)
            .map_err(|error| format!("installed packages are not all here: {error}"))
    }

    /// What the guest's API needs to know of this run.
    fn context(&self, servers: Option<&[String]>, first: bool) -> serde_json::Value {
        let listed: Vec<_> = self
            .bridge
            .catalog()
            .servers()
            .into_iter()
            .filter(ServerStatus::is_callable)
            .filter(|server| servers.is_none_or(|names| names.contains(&server.name)))
            .map(|server| {
                json!({
                    "name": server.name,
                    "alias": server.alias,
                    "description": server.description,
                })
            })
            .collect();
        let mut context = json!({ "servers": listed });
        if first {
            context["saved_tools"] = self.bridge.saved_tools_for_guest();
        }
        context
    }

    fn take_outcome(&self, outcome: RunOutcome, facts: &mut RunFacts) {
        let redact = |text: String| match self.redactor.text(&text) {
            std::borrow::Cow::Borrowed(_) => text,
            std::borrow::Cow::Owned(redacted) => redacted,
        };
        facts.result = outcome.result.map(redact);
        facts.images = outcome.images;
        facts.notes.extend(outcome.notes.into_iter().map(redact));
        facts.exit_code = outcome.exit_code;
        let raised = outcome.error.map(|error| PythonError {
            r#type: error.r#type,
            message: redact(error.message),
            traceback: redact(error.traceback),
        });
        ended(facts, outcome.end, raised, &self.settings.limits);
    }

    fn reply(&self, mut facts: RunFacts, result_tokens: u64) -> Reply {
        if facts.status == Status::Cancelled
            && let Some(by) = self.live.stopped_by()
        {
            facts.error = Some(error_facts("run_cancelled", by.words()));
        }
        let outputs = self.connection.outputs();
        let captured = outputs.finish(self.id);
        facts.stdout = captured.stdout;
        facts.stderr = captured.stderr;
        let record = self.record_of(&facts, result_tokens);
        let reply = finish(self.settings, facts);
        self.record_end(&reply, record);
        outputs.seal(self.id, &reply.between, &reply.after);
        reply
    }
}

impl Run<'_> {
    fn record_start(&self, request: &PythonRequest, run_id: &str) {
        let sandbox = self.bridge.sandboxes().facts(self.settings);
        self.bridge.activity().run_started(RunStarted {
            run_id: run_id.to_owned(),
            client: self.client.unwrap_or_default().to_owned(),
            connection: Some(format!("{}-{}", self.bridge.id(), self.connection.id())),
            title: live_runs::title(&self.redactor.text(&request.code)),
            session: (request.session != SESSION_DEFAULT).then(|| request.session.clone()),
            code: self.redactor.text(&request.code).into_owned(),
            sandbox: sandbox.map(|facts| facts.name()).unwrap_or_default(),
            started_at: now_ms(),
        });
    }

    /// What the record keeps of what came of the run.
    fn record_of(&self, facts: &RunFacts, result_tokens: u64) -> RunEnded {
        let error = facts.error.as_ref();
        RunEnded {
            status: facts.status.as_str().to_owned(),
            stdout: facts.stdout.clone(),
            stderr: facts.stderr.clone(),
            result: facts.result.clone(),
            error: error.map(|error| {
                let line = error.message.lines().next().unwrap_or_default();
                format!("{}: {line}", error.r#type)
            }),
            error_text: error.map(|error| match error.traceback.as_str() {
                "" => error.message.clone(),
                traceback => traceback.to_owned(),
            }),
            servers: facts.servers.clone(),
            calls: facts.calls,
            calls_failed: self.live.calls_failed().into(),
            memory_bytes_peak: self.live.memory_bytes_peak(),
            log: self.live.log(),
            kind: facts.sandbox.as_ref().map(|sandbox| match sandbox.kind() {
                SandboxKind::Container => "container".to_owned(),
                SandboxKind::Wasi => "wasi".to_owned(),
            }),
            reply_tokens: 0,
            result_tokens,
            definition_tokens: self.bridge.catalog().definition_tokens(),
            ended_at: now_ms(),
        }
    }

    fn record_end(&self, reply: &Reply, mut record: RunEnded) {
        record.reply_tokens = tokens::estimate(&reply.text);
        let ended = live_runs::Ended {
            status: RunStatus::of_record(&record.status),
            servers: record.servers.clone(),
            calls: record.calls,
            reply_tokens: record.reply_tokens,
            direct_tokens: record.definition_tokens + record.result_tokens,
        };
        let activity = self.bridge.activity();
        activity.run_ended(&run_name(self.id), record);
        // Told last: whoever hears it may read the record at once.
        self.live.ended(ended);
    }
}

/// The interpreter of a session, for what its calls need to know of it.
fn inside(lease: &Lease) -> Option<Inside> {
    lease.interpreter.as_ref().map(|interpreter| Inside {
        python: interpreter.hello().python.clone(),
        mounts: interpreter.mounts(),
    })
}

/// Put into `facts` how the run ended.
fn ended(facts: &mut RunFacts, end: RunEnd, raised: Option<PythonError>, limits: &Limits) {
    let traceback = raised
        .as_ref()
        .map(|error| error.traceback.clone())
        .unwrap_or_default();
    match end {
        RunEnd::Finished => match raised {
            Some(error) => {
                facts.status = if error.r#type == "MemoryError" {
                    let limit = Unit::Bytes.show(limits.memory_bytes_max);
                    facts.notes.push(format!(
                        "the memory limit is {limit}; MCP_BRIDGE_MEMORY sets it"
                    ));
                    Status::OutOfMemory
                } else {
                    Status::Error
                };
                facts.error = Some(ErrorFacts {
                    r#type: error.r#type,
                    message: error.message,
                    traceback,
                });
            }
            None if facts.exit_code.is_some_and(|code| code != 0) => facts.status = Status::Error,
            None => {}
        },
        RunEnd::TimedOut { killed } => {
            facts.status = Status::Timeout;
            facts.variables_lost = killed;
            facts.error = Some(ErrorFacts {
                r#type: "run_timeout".to_owned(),
                message: format!("the run timed out after {} s", facts.timeout_seconds),
                traceback: place_of_interrupt(&traceback).to_owned(),
            });
        }
        RunEnd::Cancelled { killed } => {
            facts.status = Status::Cancelled;
            facts.variables_lost = killed;
            facts.error = Some(error_facts("run_cancelled", "the client cancelled the run"));
        }
        RunEnd::OutOfMemory => {
            facts.status = Status::OutOfMemory;
            facts.variables_lost = true;
            facts.exit_code = Some(137);
            let limit = Unit::Bytes.show(limits.memory_bytes_max);
            facts.error = Some(error_facts(
                "run_out_of_memory",
                &format!(
                    "the sandbox reached its memory limit of {limit} and was killed; \
                     MCP_BRIDGE_MEMORY sets it"
                ),
            ));
        }
        RunEnd::Died(exit) => {
            facts.status = Status::Error;
            facts.variables_lost = true;
            facts.exit_code = exit.code;
            facts.error = Some(error_facts("process_ended", &death(&exit)));
        }
        RunEnd::Violated(reason) => {
            facts.status = Status::Error;
            facts.variables_lost = true;
            facts.error = Some(error_facts(
                "protocol_violated",
                &format!(
                    "the code disturbed the channel of its own sandbox, which was ended: {reason}"
                ),
            ));
        }
    }
}

/// Where the code stood when it was interrupted: the traceback without the exception that
/// interrupted it, which was ours.
fn place_of_interrupt(traceback: &str) -> &str {
    let text = traceback.trim_end();
    ["KeyboardInterrupt", "asyncio.exceptions.CancelledError"]
        .iter()
        .find_map(|ours| text.strip_suffix(ours))
        .unwrap_or(text)
}

fn death(exit: &GuestExit) -> String {
    let how = match exit.code {
        Some(code @ 129..=192) => format!("was ended by signal {}", code - 128),
        Some(code) => format!("ended with exit code {code}"),
        None => "ended".to_owned(),
    };
    let tail = exit.stderr_tail.trim();
    if tail.is_empty() {
        format!("the Python process {how} in the middle of the run")
    } else {
        format!("the Python process {how} in the middle of the run: {tail}")
    }
}

fn not_run(facts: &mut RunFacts, reason: &NotRun, session: &str) {
    match reason {
        NotRun::Cancelled => {
            facts.status = Status::Cancelled;
            facts.error = Some(error_facts("run_cancelled", "the client cancelled the run"));
        }
        NotRun::Paused => {
            facts.status = Status::Error;
            facts.error = Some(error_facts(
                "bridge_paused",
                "the user has paused Runbridge; nothing runs until they resume it in its window or \
                 its tray menu, so ask them before you try again",
            ));
        }
        NotRun::Busy => {
            facts.status = Status::Error;
            facts.error = Some(error_facts(
                "bridge_busy",
                &format!(
                    "too many runs wait for the session `{session}`; try again when one has ended"
                ),
            ));
        }
        NotRun::NoRoom => {
            facts.status = Status::Error;
            facts.error = Some(error_facts(
                "bridge_busy",
                "every interpreter that may live at once is busy; try again when a run has ended",
            ));
        }
        NotRun::Sandbox(error) => {
            facts.status = Status::Error;
            facts.error = Some(error_facts(sandbox_code(error), &sandbox_message(error)));
        }
    }
}

/// The code under which a missing sandbox is reported.
pub fn sandbox_code(error: &SandboxError) -> &'static str {
    match error {
        SandboxError::ImageMissing { .. } => "image_missing",
        SandboxError::NoEngine { .. }
        | SandboxError::EngineAbsent { .. }
        | SandboxError::Engine { .. }
        | SandboxError::GuestStart { .. }
        | SandboxError::WorkerStart { .. } => "sandbox_unavailable",
        SandboxError::ModuleMissing { .. } => "wasi_module_missing",
    }
}

/// What is wrong with the sandbox, and what to do.
pub fn sandbox_message(error: &SandboxError) -> String {
    format!("{error}; {}", sandbox_hint(error))
}

/// What to do about a sandbox that cannot be had.
pub fn sandbox_hint(error: &SandboxError) -> &'static str {
    match error {
        SandboxError::NoEngine { .. } => {
            "install Podman or Docker, or start it; `runbridge doctor` shows what was looked at"
        }
        SandboxError::EngineAbsent { .. } => {
            "install or start it, or unset MCP_BRIDGE_RUNTIME to take what there is"
        }
        SandboxError::ImageMissing { .. } => {
            "pull it by hand, signed in if its registry wants that, or set MCP_BRIDGE_IMAGE to an \
             image that the engine has"
        }
        SandboxError::Engine { .. } => "check that the engine is running; `runbridge doctor` helps",
        SandboxError::ModuleMissing { .. } => {
            "install Runbridge again (from source: `cargo xtask guest`), or switch to Container in \
             Sandbox settings (MCP_BRIDGE_RUNTIME=container)"
        }
        SandboxError::WorkerStart { .. } => {
            "if Runbridge was just updated, restart the client; `runbridge doctor` helps"
        }
        SandboxError::GuestStart { .. } => {
            "the image needs `python3`, version 3.9 or newer, on its PATH; `runbridge doctor` helps"
        }
    }
}

fn finish(settings: &Settings, facts: RunFacts) -> Reply {
    let mode = match settings.output_mode {
        settings::OutputMode::Text => OutputMode::Text,
        settings::OutputMode::Toon => OutputMode::Toon,
        settings::OutputMode::Json => OutputMode::Json,
    };
    let limits = ReplyLimits {
        chars_max: settings.limits.reply_chars_max as usize,
        ..ReplyLimits::default()
    };
    reply::build(facts, mode, limits)
}

fn error_facts(code: &str, message: &str) -> ErrorFacts {
    ErrorFacts {
        r#type: code.to_owned(),
        message: message.to_owned(),
        traceback: String::new(),
    }
}

/// Names of the servers a run may call; `None`: all. Asked for by name or alias.
fn allowed_servers(
    bridge: &Bridge,
    asked: Option<&[String]>,
) -> Result<Option<Vec<String>>, UpstreamError> {
    let Some(asked) = asked else { return Ok(None) };
    let mut names = Vec::with_capacity(asked.len());
    for name in asked {
        let server = bridge.catalog().callable(name)?.name;
        if !names.contains(&server) {
            names.push(server);
        }
    }
    Ok(Some(names))
}

/// A run's id. Code of one run cannot guess that of the next, so it cannot speak for it.
pub(crate) fn unguessable() -> u64 {
    let mut bytes = [0; 8];
    // Without the system's randomness ids are still unique, which is all that honest code needs.
    if getrandom::fill(&mut bytes).is_err() {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        bytes = now.as_nanos().to_le_bytes()[..8]
            .try_into()
            .unwrap_or_default();
    }
    u64::from_le_bytes(bytes)
}
