//! One live connection per server: started when needed, ready, called, cancelled, stopped.
//!
//! A server is in one of the states of [`UpstreamState`]. Whoever needs it asks for its connection;
//! the first starts it, the others wait for the same start. A start that fails costs only those who
//! waited for it, and the next one waits longer each time. A server that died is started again by
//! the next call, while the call that it died in is never repeated.
//!
//! It knows processes, addresses, the protocol and time. It does not know what tools mean, what the
//! model may call, or that there are other servers.
//!
//! A transport is a file beside `stdio.rs` and `http.rs`: something that implements rmcp's
//! [`Transport`](rmcp::transport::Transport) and is made in [`Upstream::open`].

mod asking;
mod connection;
mod error;
mod http;
pub(crate) mod lifecycle;
mod link;
mod log;
mod stdio;
mod tools;
mod values;
mod wire;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use reqwest::Url;
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde_json::Map;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub use self::asking::Person;
use self::connection::Connection;
pub use self::connection::{Caller, Progress};
pub use self::error::UpstreamError;
use self::error::seconds;
use self::http::{Fault, Remote, Site};
use self::lifecycle::{Era, GreetError, Greeting, greet};
use self::link::Link;
use self::log::ServerLog;
pub use self::log::{HearLine, LogReader};
use self::stdio::{Noise, ProcessHandle, Program, StderrTail};
pub use self::tools::{Tool, ToolList};
use crate::api::LogLine;
use crate::clients::entry::{Entry, EntryTransport};
use crate::paths::Os;
use crate::sign_in::challenge::Challenge;
use crate::sign_in::{ClientSettings, SignInError, SignIns, Wanted};

/// The first wait after a failed start, doubled with each further failure.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// The longest wait between two starts of a server that keeps failing.
const BACKOFF_MAX: Duration = Duration::from_mins(1);

/// A server that lived this long before it died counts as one that works.
const WORKED_AFTER: Duration = Duration::from_secs(10);

/// Deaths in a row, each soon after the start, before starts are spaced out.
const DEATHS_FORGIVEN: u32 = 5;

/// One question to a server that nobody is signed in to.
const CHALLENGE: Duration = Duration::from_secs(15);

/// How long to wait for the exit status of a server whose output has ended.
const EXIT_STATUS: Duration = Duration::from_secs(1);

/// Bounds in time; each is a setting.
#[derive(Clone, Debug)]
pub struct UpstreamLimits {
    /// From the start of the process, or the first request to an address, to the list of tools.
    pub start_ms_max: u64,
    /// The same for programs that may download the server first, such as `npx`.
    pub start_download_ms_max: u64,
    /// One call, from when the server is ready.
    pub call_ms_max: u64,
    /// A server that nobody has used for this long is stopped.
    pub idle_ms_max: u64,
}

/// The limits of all servers, which the user may change while they run. Each wait takes those that are
/// in force when it begins.
#[derive(Clone, Debug)]
pub(crate) struct SharedLimits(Arc<RwLock<UpstreamLimits>>);

impl SharedLimits {
    pub(crate) fn new(limits: UpstreamLimits) -> Self {
        Self(Arc::new(RwLock::new(limits)))
    }

    pub(crate) fn get(&self) -> UpstreamLimits {
        let limits = self.0.read().unwrap_or_else(PoisonError::into_inner);
        limits.clone()
    }

    pub(crate) fn set(&self, limits: UpstreamLimits) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            start_ms_max: 30_000,
            start_download_ms_max: 60_000,
            call_ms_max: 60_000,
            idle_ms_max: 600_000,
        }
    }
}

/// The environment that a terminal of the user would have. It may still be on its way: a server's
/// start waits for it, nothing else does.
#[derive(Clone)]
pub struct LoginEnv(Shared<BoxFuture<'static, Arc<BTreeMap<String, String>>>>);

impl LoginEnv {
    /// What `asked` will give; it begins when it is first waited for.
    pub fn of(asked: impl Future<Output = Arc<BTreeMap<String, String>>> + Send + 'static) -> Self {
        Self(asked.boxed().shared())
    }

    /// The variables, once they are known.
    pub async fn get(&self) -> Arc<BTreeMap<String, String>> {
        self.0.clone().await
    }
}

impl From<BTreeMap<String, String>> for LoginEnv {
    fn from(known: BTreeMap<String, String>) -> Self {
        Self::of(std::future::ready(Arc::new(known)))
    }
}

impl std::fmt::Debug for LoginEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginEnv")
    }
}

/// Where a server stands.
#[derive(Clone, Debug)]
pub enum UpstreamState {
    /// Not running; the next call starts it.
    Stopped,
    /// On its way.
    Starting,
    /// Running, its tools known.
    Ready,
    /// The last start failed, or it died.
    Failed {
        /// Why.
        error: Arc<UpstreamError>,
        /// Until when calls fail at once with that error.
        retry_in: Duration,
    },
}

/// What there is to show of a server.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// Where it stands.
    pub state: UpstreamState,
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// Since when it runs.
    pub started_at: Option<SystemTime>,
    /// The protocol revision that it speaks.
    pub revision: Option<String>,
    /// What it calls itself.
    pub title: Option<String>,
    /// What it says of its use.
    pub instructions: Option<String>,
    /// What is odd about it, one sentence each.
    pub notes: Vec<String>,
}

/// What its owner hears of.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// [`UpstreamStatus`] differs.
    State,
    /// The tools were listed.
    Tools(Arc<ToolList>),
}

pub(crate) type Observer = Arc<dyn Fn(&str, Change) + Send + Sync>;

/// One server's connection, or the means to have one.
pub(crate) struct Upstream {
    entry: Entry,
    login_env: LoginEnv,
    sign_ins: Arc<SignIns>,
    limits: SharedLimits,
    observer: Observer,
    state: Mutex<State>,
    /// The era that its last greeting showed.
    era: Mutex<Option<Era>>,
    stderr: Mutex<Arc<StderrTail>>,
    log: Arc<ServerLog>,
    /// Something was written or logged.
    written: watch::Sender<()>,
    /// The process of a start that has not succeeded: it may still be there when the start is given
    /// up. The next start waits for its end, so that there is never a second copy.
    unready: Mutex<Option<ProcessHandle>>,
    /// Calls that hold or await the connection.
    in_flight: AtomicUsize,
    used_at: Mutex<Instant>,
}

enum State {
    Stopped,
    Starting {
        done: watch::Receiver<Option<StartResult>>,
        cancel: CancellationToken,
    },
    Ready {
        connection: Arc<Connection>,
        deaths: u32,
    },
    Failed {
        error: Arc<UpstreamError>,
        failures: u32,
        deaths: u32,
        retry_at: Instant,
    },
    /// For good.
    ShutDown,
}

type StartResult = Result<Arc<Connection>, UpstreamError>;

enum ReadyOrStarting {
    Ready(Arc<Connection>),
    Starting(watch::Receiver<Option<StartResult>>),
}

impl Upstream {
    pub(crate) fn new(
        entry: Entry,
        login_env: LoginEnv,
        sign_ins: Arc<SignIns>,
        limits: SharedLimits,
        era: Option<Era>,
        observer: Observer,
    ) -> Arc<Self> {
        let written = watch::Sender::default();
        Arc::new(Self {
            entry,
            login_env,
            sign_ins,
            limits,
            observer,
            state: Mutex::new(State::Stopped),
            era: Mutex::new(era),
            stderr: Mutex::new(Arc::new(StderrTail::new(written.clone()))),
            log: Arc::new(ServerLog::new(written.clone())),
            written,
            unready: Mutex::new(None),
            in_flight: AtomicUsize::new(0),
            used_at: Mutex::new(Instant::now()),
        })
    }

    /// Call a tool. The limit counts from when the server is ready. Dropping the future tells the
    /// server to stop working on it.
    pub(crate) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: Map<String, serde_json::Value>,
        limit: Option<Duration>,
        caller: Caller,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let _in_use = self.in_use();
        let limit = limit.unwrap_or_else(|| {
            Duration::from_millis(
                self.entry
                    .call_ms_max
                    .unwrap_or(self.limits.get().call_ms_max),
            )
        });
        let connection = self.connection().await?;
        let first = connection
            .call(tool, arguments.clone(), limit, caller.clone())
            .await;
        if !matches!(first, Err(UpstreamError::SessionLost { .. })) {
            return first;
        }
        // It was refused unread, so this is not a second time.
        let connection = self.connection_after(&connection).await?;
        connection.call(tool, arguments, limit, caller).await
    }

    /// Any other request, within the same limit as a call.
    pub(crate) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: serde_json::Value,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let _in_use = self.in_use();
        let limit = self
            .entry
            .call_ms_max
            .unwrap_or(self.limits.get().call_ms_max);
        let limit = Duration::from_millis(limit);
        let connection = self.connection().await?;
        let first = connection.ask(method, params.clone(), limit).await;
        if !matches!(first, Err(UpstreamError::SessionLost { .. })) {
            return first;
        }
        let connection = self.connection_after(&connection).await?;
        connection.ask(method, params, limit).await
    }

    /// The tools, from a running server; started for it if need be.
    pub(crate) async fn tools(self: &Arc<Self>) -> Result<Arc<ToolList>, UpstreamError> {
        let _in_use = self.in_use();
        self.connection().await?.tools()
    }

    /// List the tools once more, unless that was done a moment ago.
    pub(crate) async fn list_again(self: &Arc<Self>) -> Result<Arc<ToolList>, UpstreamError> {
        let _in_use = self.in_use();
        let connection = self.connection().await?;
        let first = connection.list_again().await;
        if !matches!(first, Err(UpstreamError::SessionLost { .. })) {
            return first;
        }
        self.connection_after(&connection).await?.list_again().await
    }

    /// Whether nothing needs to be started for a call.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&*self.state(), State::Ready { connection, .. } if !connection.is_closed())
    }

    pub(crate) fn status(&self) -> UpstreamStatus {
        let state = self.state();
        let (shown, connection) = match &*state {
            State::Stopped | State::ShutDown => match self.cannot_start() {
                None => (UpstreamState::Stopped, None),
                Some(error) => {
                    let (error, retry_in) = (Arc::new(error), Duration::ZERO);
                    (UpstreamState::Failed { error, retry_in }, None)
                }
            },
            State::Starting { .. } => (UpstreamState::Starting, None),
            State::Ready { connection, .. } if connection.is_closed() => {
                (UpstreamState::Stopped, None)
            }
            State::Ready { connection, .. } => (UpstreamState::Ready, Some(connection)),
            State::Failed {
                error, retry_at, ..
            } => {
                let retry_in = retry_at.saturating_duration_since(Instant::now());
                (
                    UpstreamState::Failed {
                        error: Arc::clone(error),
                        retry_in,
                    },
                    None,
                )
            }
        };
        let greeting = connection.map(|connection| connection.greeting());
        UpstreamStatus {
            state: shown,
            pid: connection
                .and_then(|connection| connection.process())
                .map(|process| process.pid()),
            started_at: connection.map(|connection| connection.started_at()),
            revision: greeting.map(|greeting| greeting.revision.clone()),
            title: greeting.and_then(|greeting| greeting.title.clone()),
            instructions: greeting.and_then(|greeting| greeting.instructions.clone()),
            notes: connection
                .map(|connection| connection.notes())
                .unwrap_or_default(),
        }
    }

    /// The end of what the last process wrote to stderr.
    pub(crate) fn stderr(&self) -> String {
        lock(&self.stderr).text()
    }

    /// The last lines that it logged over the protocol.
    pub(crate) fn log(&self) -> Vec<LogLine> {
        self.log.lines(&self.entry.name)
    }

    /// Hear that it writes to stderr or logs something, from now on.
    pub(crate) fn written(&self) -> watch::Receiver<()> {
        self.written.subscribe()
    }

    pub(crate) fn name(&self) -> &str {
        &self.entry.name
    }

    pub(crate) fn era(&self) -> Option<Era> {
        *lock(&self.era)
    }

    /// What a sign-in to this server needs to know.
    pub(crate) fn wanted(
        self: &Arc<Self>,
        settings: ClientSettings,
    ) -> Result<Wanted, SignInError> {
        let url = self.address()?;
        let (asking, signed_in) = (Arc::clone(self), Arc::clone(self));
        Ok(Wanted {
            server: self.entry.name.clone(),
            url,
            challenge: async move { asking.challenge().await }.boxed(),
            settings,
            signed_in: async move { signed_in.stop().await }.boxed(),
        })
    }

    /// The address that somebody can sign in to.
    pub(crate) fn address(&self) -> Result<Url, SignInError> {
        let server = self.entry.name.clone();
        let EntryTransport::Http { url, headers, .. } = &self.entry.transport else {
            return Err(SignInError::NotRemote { server });
        };
        if headers
            .keys()
            .any(|name| name.trim().eq_ignore_ascii_case("authorization"))
        {
            return Err(SignInError::OwnHeader { server });
        }
        Url::parse(url.trim()).map_err(|error| SignInError::Malformed {
            detail: format!("the address of `{server}` is not a URL: {error}"),
        })
    }

    /// What the server says to somebody who is not signed in.
    async fn challenge(&self) -> Result<Challenge, SignInError> {
        let EntryTransport::Http { url, headers, sse } = &self.entry.transport else {
            let server = self.entry.name.clone();
            return Err(SignInError::NotRemote { server });
        };
        let unreachable = |error: UpstreamError| SignInError::Unreachable {
            reason: error.to_string(),
        };
        let asked = async {
            let site = self.site(url, headers).await.map_err(unreachable)?;
            let fault = |fault: Fault| unreachable(fault.into_error(&self.entry.name));
            let site = site.map_err(fault)?;
            site.ask_who(*sse, lifecycle::question())
                .await
                .map_err(fault)
        };
        timeout(CHALLENGE, asked).await.unwrap_or_else(|_| {
            Err(unreachable(self.unreachable(format!(
                "it has not answered within {}",
                seconds(CHALLENGE)
            ))))
        })
    }

    /// Stop the process, if there is one, and forget failures: the next call starts it at once.
    pub(crate) async fn stop(&self) {
        self.end(State::Stopped).await;
    }

    /// Stop the process; nothing starts it again.
    pub(crate) async fn shut_down(&self) {
        self.end(State::ShutDown).await;
    }

    /// Stop the process if nobody has used it for as long as the limit says. Gives the time after
    /// which to ask again.
    pub(crate) async fn stop_if_idle(&self) -> Duration {
        let idle_max = Duration::from_millis(self.limits.get().idle_ms_max);
        let connection = {
            let mut state = self.state();
            // A caller counts itself before it looks at the state, so nobody can slip in between.
            let idle = lock(&self.used_at).elapsed();
            match &*state {
                State::Ready { connection, .. } if self.in_flight.load(Ordering::SeqCst) == 0 => {
                    if let Some(left) = idle_max.checked_sub(idle).filter(|left| !left.is_zero()) {
                        return left;
                    }
                    let connection = Arc::clone(connection);
                    *state = State::Stopped;
                    connection
                }
                State::Ready { .. }
                | State::Stopped
                | State::Starting { .. }
                | State::Failed { .. }
                | State::ShutDown => return idle_max,
            }
        };
        tracing::info!(server = %self.entry.name, "an idle server is stopped");
        self.changed(Change::State);
        connection.stop().await;
        idle_max
    }

    async fn end(&self, next: State) {
        let before = {
            let mut state = self.state();
            // Cancelled under the lock: a start that ends now must not take the state back.
            if let State::Starting { cancel, .. } = &*state {
                cancel.cancel();
            }
            let for_good = matches!(*state, State::ShutDown);
            let next = if for_good { State::ShutDown } else { next };
            std::mem::replace(&mut *state, next)
        };
        match before {
            State::Stopped | State::ShutDown | State::Failed { .. } => {}
            State::Starting { mut done, .. } => {
                let _ = done.wait_for(Option::is_some).await;
            }
            State::Ready { connection, .. } => connection.stop().await,
        }
        self.stop_unready().await;
        self.changed(Change::State);
    }

    /// The connection: at hand, or when the start that is under way or begins now has ended.
    async fn connection(self: &Arc<Self>) -> StartResult {
        match self.ready_or_starting()? {
            ReadyOrStarting::Ready(connection) => Ok(connection),
            ReadyOrStarting::Starting(done) => wait(done, &self.entry.name).await,
        }
    }

    /// The connection that takes the place of one whose session the server has ended.
    async fn connection_after(self: &Arc<Self>, ended: &Arc<Connection>) -> StartResult {
        // The news of it is on its way.
        let _ = timeout(EXIT_STATUS, ended.closed()).await;
        self.connection().await
    }

    /// Begins a start if none is under way. The error is that none may begin.
    fn ready_or_starting(self: &Arc<Self>) -> Result<ReadyOrStarting, UpstreamError> {
        if let Some(error) = self.cannot_start() {
            return Err(error);
        }
        let mut state = self.state();
        let (failures, deaths) = match &*state {
            State::Ready { connection, .. } if !connection.is_closed() => {
                return Ok(ReadyOrStarting::Ready(Arc::clone(connection)));
            }
            State::Ready { connection, deaths } => {
                // It died, and this call comes before the news of it. One that lives on without its
                // output must be gone before its successor starts.
                if let Some(process) = connection.process().filter(|one| !one.has_exited()) {
                    *lock(&self.unready) = Some(process);
                }
                (0, *deaths + 1)
            }
            State::Starting { done, .. } => return Ok(ReadyOrStarting::Starting(done.clone())),
            State::Failed {
                error, retry_at, ..
            } if *retry_at > Instant::now() => {
                return Err(UpstreamError::BackingOff {
                    last: Arc::clone(error),
                    retry_in: retry_at.saturating_duration_since(Instant::now()),
                });
            }
            State::Failed {
                failures, deaths, ..
            } => (*failures, *deaths),
            State::Stopped => (0, 0),
            State::ShutDown => return Err(self.stopped()),
        };
        let (finished, done) = watch::channel(None);
        let cancel = CancellationToken::new();
        *state = State::Starting {
            done: done.clone(),
            cancel: cancel.clone(),
        };
        drop(state);
        // The start is a task of its own: it goes on when the caller that began it has gone. It ends
        // by its own limit or by `cancel`.
        tokio::spawn(Arc::clone(self).start(cancel, finished, failures, deaths));
        self.changed(Change::State);
        Ok(ReadyOrStarting::Starting(done))
    }

    async fn start(
        self: Arc<Self>,
        cancel: CancellationToken,
        finished: watch::Sender<Option<StartResult>>,
        failures: u32,
        deaths: u32,
    ) {
        let result = tokio::select! {
            result = self.open() => result,
            () = cancel.cancelled() => Err(self.stopped()),
        };
        {
            let mut state = self.state();
            if cancel.is_cancelled() {
                // Whoever cancelled has set the state that is to be.
            } else if let Ok(connection) = &result {
                *state = State::Ready {
                    connection: Arc::clone(connection),
                    deaths,
                };
                self.watch_for_death(connection, deaths);
            } else if let Err(error) = &result {
                tracing::info!(server = %self.entry.name, %error, "a server did not start");
                *state = State::Failed {
                    error: Arc::new(error.clone()),
                    failures: failures + 1,
                    deaths,
                    retry_at: Instant::now() + pause_after(error, failures),
                };
            }
        }
        if cancel.is_cancelled()
            && let Ok(connection) = &result
        {
            connection.stop().await;
        }
        if let Ok(connection) = &result
            && let Ok(tools) = connection.tools()
        {
            self.changed(Change::Tools(tools));
        }
        self.changed(Change::State);
        finished.send_replace(Some(result));
    }

    /// From nothing to a connection with its tools listed.
    async fn open(self: &Arc<Self>) -> StartResult {
        match &self.entry.transport {
            EntryTransport::Stdio {
                command,
                args,
                env,
                cwd,
            } => self.open_process(command, args, env, cwd.as_deref()).await,
            EntryTransport::Http { url, headers, sse } => {
                let limit = self
                    .entry
                    .start_ms_max
                    .unwrap_or(self.limits.get().start_ms_max);
                let limit = Duration::from_millis(limit);
                timeout(limit, self.open_address(url, headers, *sse))
                    .await
                    .unwrap_or_else(|_| {
                        Err(self
                            .unreachable(format!("it has not answered within {}", seconds(limit))))
                    })
            }
        }
    }

    /// Over the transport that the entry names, or else over the other one: files often do not say
    /// which it is, or are older than the server.
    async fn open_address(
        self: &Arc<Self>,
        url: &str,
        headers: &BTreeMap<String, String>,
        sse: bool,
    ) -> StartResult {
        let first = match self.open_over(url, headers, sse).await? {
            Ok(connection) => return Ok(connection),
            Err(fault) => fault,
        };
        let other_may_fit =
            sse && matches!(first, Fault::Protocol(_)) || first.hints_at_other_transport();
        if other_may_fit && let Ok(connection) = self.open_over(url, headers, !sse).await? {
            return Ok(connection);
        }
        Err(first.into_error(&self.entry.name))
    }

    /// The inner error is that of the transport, which another one might not meet.
    async fn open_over(
        self: &Arc<Self>,
        url: &str,
        headers: &BTreeMap<String, String>,
        sse: bool,
    ) -> Result<Result<Arc<Connection>, Fault>, UpstreamError> {
        let opened = match self.site(url, headers).await? {
            Ok(site) if sse => Remote::sse(site).await,
            Ok(site) => Ok(Remote::streamable(site)),
            Err(fault) => Err(fault),
        };
        let (remote, mut transport) = match opened {
            Ok(opened) => opened,
            Err(fault) => return Ok(Err(fault)),
        };
        // Without the old transport there was no new era.
        let era = if sse {
            Some(Era::Initialize)
        } else {
            self.era()
        };
        let greeting = match greet(&mut transport, era, &self.entry.lent).await {
            Ok(greeting) => greeting,
            Err(error) => {
                return match (remote.fault(), error) {
                    (Some(fault), _) => Ok(Err(fault)),
                    (None, GreetError::Refused(detail)) => Err(self.no_common_version(&detail)),
                    (None, GreetError::Closed { .. }) => {
                        Err(self.unreachable("it closed the connection".to_owned()))
                    }
                };
            }
        };
        *lock(&self.era) = Some(greeting.era);
        let link = Link::Remote(remote);
        let connection = self.connect(transport, link, greeting);
        match connection.list().await {
            Ok(()) => Ok(Ok(connection)),
            Err(error) => {
                connection.stop().await;
                Err(error)
            }
        }
    }

    async fn site(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<Result<Site, Fault>, UpstreamError> {
        let login = self.login_env.get().await;
        let headers =
            values::of_headers(&self.entry.name, headers, self.sign_ins.secrets()).await?;
        let (url, server) = (url.to_owned(), self.entry.name.clone());
        let sign_ins = Arc::clone(&self.sign_ins);
        // It reads the system's certificates.
        let made = tokio::task::spawn_blocking(move || {
            Site::new(&url, &headers, &login, |url| {
                sign_ins.authority(&server, url)
            })
        });
        made.await.map_err(|_| self.stopped())
    }

    async fn open_process(
        self: &Arc<Self>,
        command: &str,
        args: &[String],
        env: &BTreeMap<String, Option<String>>,
        cwd: Option<&Path>,
    ) -> StartResult {
        let server = &self.entry.name;
        let env = values::of_variables(server, env, self.sign_ins.secrets()).await?;
        let program = Program {
            command: command.to_owned(),
            args: args.to_vec(),
            env: stdio::environment(Os::CURRENT, &*self.login_env.get().await, &env),
            cwd: cwd.map(Path::to_owned),
        };
        self.stop_unready().await;
        let limit = self.start_limit(command);
        let mut era = self.era();
        loop {
            let stderr = Arc::new(StderrTail::new(self.written.clone()));
            *lock(&self.stderr) = Arc::clone(&stderr);
            self.written.send_replace(());
            let noise = Arc::new(Noise::default());
            let started = stdio::start(&program, Arc::clone(&stderr), Arc::clone(&noise));
            let started = started.await.map_err(|error| UpstreamError::Start {
                server: server.clone(),
                reason: error.reason,
                stderr_last: None,
                hint: error.hint,
            })?;
            let stdio::Started {
                mut transport,
                process,
            } = started;
            *lock(&self.unready) = Some(process.handle());
            let begun = Instant::now();
            let greeted = timeout(limit, greet(&mut transport, era, &self.entry.lent)).await;
            let failure = match greeted {
                Ok(Ok(greeting)) => {
                    *lock(&self.era) = Some(greeting.era);
                    let link = Link::Child {
                        process,
                        stderr,
                        noise,
                    };
                    let connection = self.connect(transport, link, greeting);
                    let left = limit.saturating_sub(begun.elapsed());
                    match timeout(left, connection.list()).await {
                        Ok(Ok(())) => {
                            *lock(&self.unready) = None;
                            return Ok(connection);
                        }
                        Ok(Err(error)) => return Err(connection.as_start_error(error).await),
                        Err(_) => {
                            return Err(self.still_starting(limit, "it has not listed its tools"));
                        }
                    }
                }
                Ok(Err(GreetError::Closed {
                    discover_unanswered: true,
                })) if era != Some(Era::Initialize) => {
                    // Servers of the old era may exit on a question that they do not know. Which
                    // era it is of shows when it answers; nothing is remembered before.
                    tracing::debug!(%server, "ended on server/discover; it is started again for initialize");
                    era = Some(Era::Initialize);
                    process.stop().await;
                    continue;
                }
                Ok(Err(GreetError::Closed { .. })) => {
                    let reason = match process.exit(EXIT_STATUS).await {
                        Some(exit) => format!("it {exit} before it was ready"),
                        None => "it closed its output before it was ready".to_owned(),
                    };
                    UpstreamError::Start {
                        server: server.clone(),
                        reason,
                        stderr_last: lock(&self.stderr).last_line(),
                        hint: None,
                    }
                }
                Ok(Err(GreetError::Refused(detail))) => self.no_common_version(&detail),
                Err(_) => {
                    // Silent to both questions: perhaps the first one confused it.
                    *lock(&self.era) = Some(Era::Initialize);
                    self.still_starting(limit, "it has not answered")
                }
            };
            return Err(failure);
        }
    }

    fn connect(
        self: &Arc<Self>,
        transport: impl Transport<RoleClient> + 'static,
        link: Link,
        greeting: Greeting,
    ) -> Arc<Connection> {
        let (server, log) = (self.entry.name.clone(), Arc::clone(&self.log));
        let lent = &self.entry.lent;
        Connection::new(
            server,
            transport,
            link,
            greeting,
            lent,
            log,
            self.on_tools(),
        )
    }

    /// What a connection does with a new list of tools.
    fn on_tools(self: &Arc<Self>) -> impl Fn(Arc<ToolList>) + Send + Sync + 'static {
        let upstream = Arc::downgrade(self);
        move |tools| {
            if let Some(upstream) = upstream.upgrade() {
                upstream.changed(Change::Tools(tools));
            }
        }
    }

    fn no_common_version(&self, detail: &str) -> UpstreamError {
        UpstreamError::Protocol {
            server: self.entry.name.clone(),
            detail: format!("no common protocol version: {detail}"),
        }
    }

    fn unreachable(&self, reason: String) -> UpstreamError {
        UpstreamError::Unreachable {
            server: self.entry.name.clone(),
            reason,
        }
    }

    async fn stop_unready(&self) {
        let unready = lock(&self.unready).take();
        if let Some(process) = unready {
            process.stop().await;
        }
    }

    fn still_starting(&self, limit: Duration, detail: &str) -> UpstreamError {
        UpstreamError::Start {
            server: self.entry.name.clone(),
            reason: format!("still starting after {} ({detail})", seconds(limit)),
            stderr_last: lock(&self.stderr).last_line(),
            hint: Some(
                "If it needs longer, for a download perhaps, raise the server's start limit (`start_ms_max`)".to_owned(),
            ),
        }
    }

    fn start_limit(&self, command: &str) -> Duration {
        let name = std::path::Path::new(command)
            .file_stem()
            .unwrap_or_default();
        let downloads = ["npx", "uvx", "docker", "podman", "bunx", "pipx"]
            .iter()
            .any(|known| name == *known);
        Duration::from_millis(self.entry.start_ms_max.unwrap_or(if downloads {
            self.limits
                .get()
                .start_download_ms_max
                .max(self.limits.get().start_ms_max)
        } else {
            self.limits.get().start_ms_max
        }))
    }

    /// When the server dies by itself, its state says so at once and not when it is next called.
    fn watch_for_death(self: &Arc<Self>, connection: &Arc<Connection>, deaths: u32) {
        let upstream = Arc::downgrade(self);
        let watched = Arc::downgrade(connection);
        let began = Instant::now();
        let closed = connection.closed();
        // Ends with the connection, which has its own bounds.
        tokio::spawn(async move {
            closed.await;
            let Some(connection) = watched.upgrade() else {
                return;
            };
            let error = connection.death().await;
            let Some(upstream) = upstream.upgrade() else {
                return;
            };
            {
                let mut state = upstream.state();
                let current = matches!(&*state, State::Ready { connection: now, .. } if Arc::ptr_eq(now, &connection));
                if !current {
                    return;
                }
                let deaths = if began.elapsed() > WORKED_AFTER {
                    1
                } else {
                    deaths + 1
                };
                let wait = match deaths.checked_sub(DEATHS_FORGIVEN + 1) {
                    None => Duration::ZERO,
                    Some(surplus) => backoff(surplus),
                };
                tracing::info!(server = %upstream.entry.name, %error, "a server died");
                *state = State::Failed {
                    error: Arc::new(error),
                    failures: 0,
                    deaths,
                    retry_at: Instant::now() + wait,
                };
            }
            upstream.changed(Change::State);
        });
    }

    /// What no new attempt changes, but a change of the entry does.
    fn cannot_start(&self) -> Option<UpstreamError> {
        (!self.entry.needs.is_empty()).then(|| UpstreamError::NeedsValue {
            server: self.entry.name.clone(),
            needs: self.entry.needs.clone(),
        })
    }

    fn stopped(&self) -> UpstreamError {
        UpstreamError::Stopped {
            server: self.entry.name.clone(),
        }
    }

    fn changed(&self, change: Change) {
        (self.observer)(&self.entry.name, change);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn in_use(&self) -> InUse<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InUse(self)
    }
}

/// Keeps a server from being stopped as idle.
struct InUse<'a>(&'a Upstream);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        *lock(&self.0.used_at) = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn wait(mut done: watch::Receiver<Option<StartResult>>, server: &str) -> StartResult {
    match done.wait_for(Option::is_some).await {
        Ok(result) => match &*result {
            Some(result) => result.clone(),
            None => Err(UpstreamError::Stopped {
                server: server.to_owned(),
            }),
        },
        // The task of the start is gone: the runtime shuts down.
        Err(_) => Err(UpstreamError::Stopped {
            server: server.to_owned(),
        }),
    }
}

/// Somebody may sign in at any time, in this process or another one.
fn pause_after(error: &UpstreamError, failures: u32) -> Duration {
    backoff(if error.wants_sign_in() { 0 } else { failures })
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_FIRST
        .saturating_mul(1 << failures.min(10))
        .min(BACKOFF_MAX)
}

/// A panic elsewhere does not make the data behind a lock unusable: each critical section here
/// leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
