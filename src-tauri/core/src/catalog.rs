//! The servers known to us with their tools: found by name, searched, called.
//!
//! The catalog is given entries and makes the difference to what it had: a server whose entry did
//! not change keeps its process. Tools come from running servers and, until a server has been
//! started, from what the cache kept of it. Names are resolved here and arguments checked here, so
//! that one place says what a call means before anything is sent.
//!
//! It does not know who calls, what that caller may do, or where entries come from.

mod alias;
mod arguments;
mod cache;
mod offers;
mod search;
mod signature;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use self::arguments::ArgumentCheck;
use self::cache::{Cache, Fingerprint};
pub use self::offers::Offer;
use self::search::SearchIndex;
use crate::api::LogLine;
use crate::clients::entry::{Entry, EntryTransport, Source};
use crate::secrets::SecretsError;
use crate::sign_in::{ClientSettings, SignInError, SignIns, SignedOut, SigningIn};
use crate::tokens;
use crate::upstream::{
    Caller, Change, LoginEnv, SharedLimits, Tool, ToolList, Upstream, UpstreamError,
    UpstreamLimits, UpstreamState,
};

/// Servers that a search starts at the same time.
const STARTS_AT_ONCE: usize = 8;

/// How long a search waits for servers whose tools nobody knows yet.
const SEARCH_WAIT: Duration = Duration::from_secs(10);

/// How often idle servers are looked for: at least and at most.
const IDLE_CHECK_MIN: Duration = Duration::from_millis(50);
const IDLE_CHECK_MAX: Duration = Duration::from_secs(30);

/// The text of a tool's failure.
const FAILURE_CHARS_MAX: usize = 20_000;

/// What a catalog needs to know.
#[derive(Clone, Debug)]
pub struct CatalogConfig {
    /// Bounds of each server.
    pub limits: UpstreamLimits,
    /// Where to keep what was learned of servers; none: nothing is kept.
    pub cache_dir: Option<PathBuf>,
    /// The environment that a terminal of the user would have.
    pub login_env: LoginEnv,
    /// The user's sign-ins, with the secrets that entries name.
    pub sign_ins: Arc<SignIns>,
    /// Who hears of changes.
    pub events: broadcast::Sender<CatalogEvent>,
}

/// What changed. Ask for the new state; events may be missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogEvent {
    /// Servers came or went, or their entries changed.
    Servers,
    /// A server's state changed.
    State {
        /// Its name.
        server: String,
    },
    /// A server's tools were listed.
    Tools {
        /// Its name.
        server: String,
    },
}

/// A server's name and its Python form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName {
    /// As its entry says.
    pub name: String,
    /// As an identifier, unique among the servers.
    pub alias: String,
}

/// What there is to show of a server.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// As its entry says.
    pub name: String,
    /// As an identifier.
    pub alias: String,
    /// What the entry says of it, else what the server calls itself.
    pub description: Option<String>,
    /// Where the entry was found.
    pub sources: Vec<Source>,
    /// Why it is off; `None`: it is on.
    pub off: Option<String>,
    /// Variables without a value; it is not started while there are any.
    pub needs: Vec<String>,
    /// Working directory, of a child process.
    pub cwd: Option<PathBuf>,
    /// Where it stands.
    pub state: UpstreamState,
    /// The protocol revision that it speaks, while it runs.
    pub revision: Option<String>,
    /// How many tools it has, as far as is known.
    pub tools: Option<usize>,
    /// What is odd about it, one sentence each.
    pub notes: Vec<String>,
    /// What it says of its use.
    pub instructions: Option<String>,
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// Since when it runs.
    pub started_at: Option<SystemTime>,
}

impl ServerStatus {
    /// Whether a call can be tried: it is on and lacks no value.
    pub fn is_callable(&self) -> bool {
        self.off.is_none() && self.needs.is_empty()
    }
}

/// The tools of one server with all that is derived from them.
pub struct ServerTools {
    list: Arc<ToolList>,
    aliases: Vec<String>,
    by_name: HashMap<String, usize>,
    index: SearchIndex,
    /// Compiled when first needed.
    checks: Vec<OnceLock<ArgumentCheck>>,
    /// What each tool's definition costs a model; counted when first needed.
    tokens: OnceLock<Vec<u64>>,
}

/// One tool of a [`ServerTools`].
#[derive(Clone)]
pub struct ToolRef {
    tools: Arc<ServerTools>,
    at: usize,
}

/// What a search found.
#[derive(Clone)]
pub struct SearchResult {
    /// Best first.
    pub hits: Vec<SearchHit>,
    /// Servers whose tools are not among the hits, each with the reason.
    pub failures: Vec<(String, String)>,
}

/// One tool that fits.
#[derive(Clone)]
pub struct SearchHit {
    /// Its server.
    pub server: ServerName,
    /// The tool.
    pub tool: ToolRef,
    /// How well it fits; comparable within one search only.
    pub score: f32,
}

/// The answer to a call: what the server sent, unchanged.
#[derive(Debug)]
pub struct CallResult {
    /// The MCP result.
    pub result: Box<RawValue>,
    /// The tool says that it failed; see [`CallResult::failure`].
    pub is_error: bool,
    /// `structuredContent` is `{"result": …}` around the value that is meant.
    pub unwrap: bool,
    /// The server's real name.
    pub server: String,
    /// The tool's real name.
    pub tool: String,
}

/// See the module.
pub struct Catalog {
    config: CatalogConfig,
    limits: SharedLimits,
    cache: Cache,
    servers: RwLock<Vec<Arc<Server>>>,
    /// One change of the entries at a time.
    changing: tokio::sync::Mutex<()>,
    _idle_check: AbortOnDropHandle<()>,
}

/// An entry and what lives for it.
struct Server {
    name: ServerName,
    entry: Entry,
    live: Arc<Live>,
}

/// What outlives a change of an entry that does not concern the process.
struct Live {
    upstream: Arc<Upstream>,
    fingerprint: Fingerprint,
    cache: Cache,
    tools: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    tools: Option<Arc<ServerTools>>,
    /// The cache has been asked.
    loaded: bool,
}

impl Catalog {
    /// A catalog without servers. Needs a tokio runtime.
    pub fn new(config: CatalogConfig) -> Arc<Self> {
        Arc::new_cyclic(|catalog| Self {
            cache: Cache::new(config.cache_dir.clone()),
            limits: SharedLimits::new(config.limits.clone()),
            config,
            servers: RwLock::default(),
            changing: tokio::sync::Mutex::new(()),
            _idle_check: AbortOnDropHandle::new(tokio::spawn(stop_idle_servers(Weak::clone(
                catalog,
            )))),
        })
    }

    /// Bounds of each server from now on; what waits already keeps its own.
    pub fn set_limits(&self, limits: UpstreamLimits) {
        self.limits.set(limits);
    }

    /// Hear of changes from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<CatalogEvent> {
        self.config.events.subscribe()
    }

    /// Take over these entries. New servers are there at once and started when needed; a changed one
    /// is stopped, and started anew by the next call; a removed one is stopped. Returns when the
    /// processes that had to stop are gone; the entries count before.
    pub async fn set_entries(&self, entries: Vec<Entry>) {
        let _one_at_a_time = self.changing.lock().await;
        let before = self.all();
        let aliases = alias::assign(entries.iter().map(|entry| entry.name.as_str()));
        let mut kept = Vec::new();
        let mut now: Vec<Arc<Server>> = Vec::with_capacity(entries.len());
        for (entry, alias) in entries.into_iter().zip(aliases) {
            if now.iter().any(|server| server.entry.name == entry.name) {
                tracing::warn!(server = %entry.name, "two entries have the same name; the first counts");
                continue;
            }
            let same = before.iter().find(|server| server.entry.name == entry.name);
            let live = match same {
                Some(server) if same_process(&server.entry, &entry) => {
                    kept.push(Arc::clone(&server.live));
                    Arc::clone(&server.live)
                }
                Some(_) | None => self.live(&entry),
            };
            let name = ServerName {
                name: entry.name.clone(),
                alias,
            };
            now.push(Arc::new(Server { name, entry, live }));
        }
        let off: Vec<_> = now
            .iter()
            .filter(|server| server.entry.off.is_some())
            .cloned()
            .collect();
        *self.servers.write().unwrap_or_else(PoisonError::into_inner) = now;
        let _ = self.config.events.send(CatalogEvent::Servers);
        let gone = before
            .iter()
            .filter(|server| !kept.iter().any(|live| Arc::ptr_eq(live, &server.live)));
        let stop = gone.map(|server| server.live.upstream.shut_down());
        tokio::join!(
            join_all(stop),
            join_all(off.iter().map(|server| server.live.upstream.stop()))
        );
    }

    /// Begin to sign in to a server; see [`SigningIn`]. Once that has succeeded, the server's next
    /// call uses it.
    pub fn sign_in(
        &self,
        server: &str,
        settings: ClientSettings,
    ) -> Result<Arc<SigningIn>, SignInError> {
        let upstream = self.to_sign_in(server)?;
        self.config.sign_ins.begin(upstream.wanted(settings)?)
    }

    /// Sign out of a server, and end the connection that used it.
    pub async fn sign_out(&self, server: &str) -> Result<SignedOut, SignInError> {
        let upstream = self.to_sign_in(server)?;
        let done = self.config.sign_ins.sign_out(&upstream.address()?).await?;
        if done != SignedOut::WasNot {
            upstream.stop().await;
        }
        Ok(done)
    }

    /// Whether somebody is signed in to a server.
    pub async fn is_signed_in(&self, server: &str) -> Result<bool, SecretsError> {
        let address = self.to_sign_in(server).and_then(|server| server.address());
        match address {
            Ok(address) => self.config.sign_ins.is_signed_in(&address).await,
            Err(_) => Ok(false),
        }
    }

    fn to_sign_in(&self, server: &str) -> Result<Arc<Upstream>, SignInError> {
        let server = self.server(server).map_err(|error| SignInError::NoServer {
            message: error.to_string(),
        })?;
        Ok(Arc::clone(&server.live.upstream))
    }

    /// All servers in the order of their entries, those that are off too.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.all().iter().map(|server| server.status()).collect()
    }

    /// The server of that name or, failing that, alias.
    pub fn find(&self, name_or_alias: &str) -> Result<ServerName, UpstreamError> {
        self.server(name_or_alias).map(|server| server.name.clone())
    }

    /// The server of that name or alias, if calls to it can be tried.
    pub fn callable(&self, name_or_alias: &str) -> Result<ServerName, UpstreamError> {
        let server = self.enabled(name_or_alias)?;
        if server.entry.needs.is_empty() {
            return Ok(server.name.clone());
        }
        Err(UpstreamError::NeedsValue {
            server: server.entry.name.clone(),
            needs: server.entry.needs.clone(),
        })
    }

    /// The tools as far as they are known without starting anything.
    pub fn tools_known(&self, server: &str) -> Result<Option<Vec<ToolRef>>, UpstreamError> {
        let server = self.enabled(server)?;
        Ok(server.live.known().map(|tools| server.allowed(&tools)))
    }

    /// The tools of a running server, started for it if need be.
    pub async fn tools(&self, server: &str) -> Result<Vec<ToolRef>, UpstreamError> {
        let server = self.enabled(server)?;
        let list = server.live.upstream.tools().await?;
        Ok(server.allowed(&server.live.tools_of(&list)))
    }

    /// One tool by its name or alias, from what is known; the server is started if nothing is.
    pub async fn tool(&self, server: &str, tool: &str) -> Result<ToolRef, UpstreamError> {
        let server = self.enabled(server)?;
        if let Some(found) = server.live.known().and_then(|tools| tools.find(tool)) {
            return server.permitted(found);
        }
        let list = server.live.upstream.tools().await?;
        self.resolve(&server, &list, tool).await
    }

    /// The best tools for a query, over all servers that are on, or those of them that are named in
    /// `only` (by their real names). A server whose tools are not known is started for it; one that
    /// takes too long is named among the failures and may be there the next time.
    pub async fn search(&self, query: &str, limit: usize, only: Option<&[String]>) -> SearchResult {
        let servers: Vec<Arc<Server>> = self
            .all()
            .into_iter()
            .filter(|server| server.entry.off.is_none())
            .filter(|server| only.is_none_or(|only| only.contains(&server.entry.name)))
            .collect();
        let mut failures: BTreeMap<String, String> = BTreeMap::new();
        let unknown: Vec<Arc<Server>> = servers
            .iter()
            .filter(|server| server.live.known().is_none())
            .cloned()
            .collect();
        for server in &unknown {
            let waited = format!(
                "its tools were not known within {} s; search again",
                SEARCH_WAIT.as_secs()
            );
            failures.insert(server.entry.name.clone(), waited);
        }
        let deadline = Instant::now() + SEARCH_WAIT;
        // Starts go on by themselves when this stops waiting for them.
        let mut started = futures_util::stream::iter(unknown)
            .map(|server| async move {
                let listed = server.live.upstream.tools().await;
                (server, listed)
            })
            .buffer_unordered(STARTS_AT_ONCE);
        while let Ok(Some((server, listed))) = timeout_at(deadline, started.next()).await {
            match listed {
                Ok(list) => {
                    server.live.tools_of(&list);
                    failures.remove(&server.entry.name);
                }
                Err(error) => {
                    failures.insert(server.entry.name.clone(), error.message());
                }
            }
        }
        let known: Vec<(Arc<Server>, Arc<ServerTools>)> = servers
            .into_iter()
            .filter_map(|server| server.live.known().map(|tools| (server, tools)))
            .collect();
        let indexes: Vec<&SearchIndex> = known.iter().map(|(_, tools)| &tools.index).collect();
        let hits = search::search(query, &indexes, usize::MAX)
            .into_iter()
            .filter_map(|hit| {
                let (server, tools) = &known[hit.index];
                let tool = ToolRef {
                    tools: Arc::clone(tools),
                    at: hit.tool,
                };
                let tool = server.permitted(tool).ok()?;
                Some(SearchHit {
                    server: server.name.clone(),
                    tool,
                    score: hit.score,
                })
            })
            .take(limit)
            .collect();
        SearchResult {
            hits,
            failures: failures.into_iter().collect(),
        }
    }

    /// Call a tool, by its name or alias. The arguments are checked before anything is sent.
    /// `limit` bounds the call from when the server is ready; `None` takes the server's own.
    /// Dropping the future cancels the call at the server.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Option<Duration>,
    ) -> Result<CallResult, UpstreamError> {
        self.call_for(server, tool, arguments, limit, Caller::default())
            .await
    }

    /// The same for somebody who hears how far it has got, and whom the server may ask.
    pub async fn call_for(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Option<Duration>,
        caller: Caller,
    ) -> Result<CallResult, UpstreamError> {
        let server = self.enabled(server)?;
        let upstream = &server.live.upstream;
        let (name, unwrap, arguments) = match upstream.tools().await {
            Ok(list) => {
                let found = self.resolve(&server, &list, tool).await?;
                let arguments = found
                    .check()
                    .check(found.alias(), arguments)
                    .map_err(|message| UpstreamError::Arguments { message })?;
                (
                    found.tool().name.clone(),
                    found.tool().result_is_wrapped(),
                    arguments,
                )
            }
            // It runs but does not list its tools; it may know this one all the same.
            Err(UpstreamError::Protocol { .. }) if upstream.is_ready() => {
                (tool.to_owned(), false, arguments)
            }
            Err(error) => return Err(error),
        };
        let result = upstream.call(&name, arguments, limit, caller).await?;
        CallResult::read(result, unwrap, server.entry.name.clone(), name)
    }

    /// What the definitions of all tools that runs may call would cost a model, as far as they are
    /// known without starting anything.
    pub fn definition_tokens(&self) -> u64 {
        let on = self
            .all()
            .into_iter()
            .filter(|server| server.entry.off.is_none() && server.entry.needs.is_empty());
        on.filter_map(|server| Some(server.allowed(&server.live.known()?)))
            .flatten()
            .map(|tool| tool.tokens())
            .sum()
    }

    /// The entry of a server, also of one that is off.
    pub fn entry(&self, server: &str) -> Result<Entry, UpstreamError> {
        Ok(self.server(server)?.entry.clone())
    }

    /// All tools of a server as far as they are known, those too that it is not allowed to call, with
    /// whether it is. The server may be off.
    pub fn all_tools(&self, server: &str) -> Result<Vec<(ToolRef, bool)>, UpstreamError> {
        let server = self.server(server)?;
        let known = server.live.known();
        let tools = known.into_iter().flat_map(|tools| {
            (0..tools.list.tools.len()).map(move |at| ToolRef {
                tools: Arc::clone(&tools),
                at,
            })
        });
        Ok(tools
            .map(|tool| {
                let allowed = server.allows(&tool.tool().name);
                (tool, allowed)
            })
            .collect())
    }

    /// The end of what a server wrote to stderr, of its last process if it does not run.
    pub fn stderr(&self, server: &str) -> Result<String, UpstreamError> {
        Ok(self.server(server)?.live.upstream.stderr())
    }

    /// The last lines that a server logged over the protocol.
    pub fn log(&self, server: &str) -> Result<Vec<LogLine>, UpstreamError> {
        Ok(self.server(server)?.live.upstream.log())
    }

    /// Hear that a server writes to stderr or logs something, until its entry changes.
    pub fn written(&self, server: &str) -> Result<watch::Receiver<()>, UpstreamError> {
        Ok(self.server(server)?.live.upstream.written())
    }

    /// Stop a server and start it at once, whatever happened before.
    pub async fn restart(&self, server: &str) -> Result<(), UpstreamError> {
        let server = self.enabled(server)?;
        server.live.upstream.stop().await;
        match server.live.upstream.tools().await {
            Err(UpstreamError::Protocol { .. }) if server.live.upstream.is_ready() => Ok(()),
            started => started.map(drop),
        }
    }

    /// Stop all servers, all at the same time; when this returns nothing of them is left. Later
    /// calls fail.
    pub async fn shut_down(&self) {
        let _one_at_a_time = self.changing.lock().await;
        let servers = self.all();
        join_all(
            servers
                .iter()
                .map(|server| server.live.upstream.shut_down()),
        )
        .await;
    }

    /// The tool of that name or alias. A name that is missing may be new, and not every server
    /// tells, so the list is asked for once more before it is called missing.
    async fn resolve(
        &self,
        server: &Server,
        list: &Arc<ToolList>,
        tool: &str,
    ) -> Result<ToolRef, UpstreamError> {
        if let Some(found) = server.live.tools_of(list).find(tool) {
            return server.permitted(found);
        }
        let list = server.live.upstream.list_again().await?;
        let tools = server.live.tools_of(&list);
        if let Some(found) = tools.find(tool) {
            return server.permitted(found);
        }
        let names = list
            .tools
            .iter()
            .map(|known| known.name.as_str())
            .filter(|name| server.allows(name));
        Err(UpstreamError::ToolNotFound {
            server: server.entry.name.clone(),
            tool: tool.to_owned(),
            nearest: alias::nearest(tool, names),
        })
    }

    fn live(&self, entry: &Entry) -> Arc<Live> {
        let fingerprint = Fingerprint::of(entry);
        let era = self.cache.load(&fingerprint).and_then(|kept| kept.era);
        let events = self.config.events.clone();
        Arc::new_cyclic(|live: &Weak<Live>| {
            let live = Weak::clone(live);
            let observer = move |server: &str, change: Change| {
                let server = server.to_owned();
                let event = match change {
                    Change::State => CatalogEvent::State { server },
                    Change::Tools(list) => {
                        if let Some(live) = live.upgrade() {
                            live.tools_of(&list);
                            live.keep(list);
                        }
                        CatalogEvent::Tools { server }
                    }
                };
                let _ = events.send(event);
            };
            Live {
                upstream: Upstream::new(
                    entry.clone(),
                    self.config.login_env.clone(),
                    Arc::clone(&self.config.sign_ins),
                    self.limits.clone(),
                    era,
                    Arc::new(observer),
                ),
                fingerprint,
                cache: self.cache.clone(),
                tools: Mutex::default(),
            }
        })
    }

    fn all(&self) -> Vec<Arc<Server>> {
        self.servers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn server(&self, name_or_alias: &str) -> Result<Arc<Server>, UpstreamError> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        let by_name = servers
            .iter()
            .find(|server| server.name.name == name_or_alias);
        let found = by_name.or_else(|| {
            servers
                .iter()
                .find(|server| server.name.alias == name_or_alias)
        });
        // Another client may call the same server otherwise.
        let found = found.or_else(|| {
            servers.iter().find(|server| {
                let mut sources = server.entry.sources.iter();
                sources.any(|source| source.name == name_or_alias)
            })
        });
        found.cloned().ok_or_else(|| UpstreamError::ServerNotFound {
            name: name_or_alias.to_owned(),
            nearest: alias::nearest(
                name_or_alias,
                servers
                    .iter()
                    .filter(|server| server.entry.off.is_none())
                    .map(|server| server.name.name.as_str()),
            ),
        })
    }

    fn enabled(&self, name_or_alias: &str) -> Result<Arc<Server>, UpstreamError> {
        let server = self.server(name_or_alias)?;
        match &server.entry.off {
            None => Ok(server),
            Some(reason) => Err(UpstreamError::ServerDisabled {
                server: server.entry.name.clone(),
                reason: reason.clone(),
            }),
        }
    }
}

impl Server {
    fn status(&self) -> ServerStatus {
        let upstream = self.live.upstream.status();
        let known = self.live.known();
        let cwd = match &self.entry.transport {
            EntryTransport::Stdio { cwd, .. } => cwd.clone(),
            EntryTransport::Http { .. } => None,
        };
        ServerStatus {
            name: self.name.name.clone(),
            alias: self.name.alias.clone(),
            description: self.entry.description.clone().or(upstream.title),
            sources: self.entry.sources.clone(),
            off: self.entry.off.clone(),
            needs: self.entry.needs.clone(),
            cwd,
            state: upstream.state,
            revision: upstream.revision,
            tools: known.map(|tools| self.allowed(&tools).len()),
            notes: upstream.notes,
            instructions: upstream.instructions,
            pid: upstream.pid,
            started_at: upstream.started_at,
        }
    }

    fn allows(&self, tool: &str) -> bool {
        allows(&self.entry, tool)
    }

    fn allowed(&self, tools: &Arc<ServerTools>) -> Vec<ToolRef> {
        (0..tools.list.tools.len())
            .map(|at| ToolRef {
                tools: Arc::clone(tools),
                at,
            })
            .filter(|tool| self.allows(&tool.tool().name))
            .collect()
    }

    fn permitted(&self, tool: ToolRef) -> Result<ToolRef, UpstreamError> {
        if self.allows(&tool.tool().name) {
            Ok(tool)
        } else {
            Err(UpstreamError::ToolDenied {
                server: self.entry.name.clone(),
                tool: tool.tool().name.clone(),
            })
        }
    }
}

impl Live {
    /// The tools from the last listing, or from the cache.
    fn known(&self) -> Option<Arc<ServerTools>> {
        let mut known = self.lock();
        if known.tools.is_none() && !known.loaded {
            known.loaded = true;
            known.tools = self
                .cache
                .load(&self.fingerprint)
                .map(|kept| Arc::new(ServerTools::new(self.upstream.name(), Arc::new(kept.list))));
        }
        known.tools.clone()
    }

    /// The derived form of a list; made once for each.
    fn tools_of(&self, list: &Arc<ToolList>) -> Arc<ServerTools> {
        let mut known = self.lock();
        match &known.tools {
            Some(tools) if Arc::ptr_eq(&tools.list, list) => Arc::clone(tools),
            Some(_) | None => {
                let tools = Arc::new(ServerTools::new(self.upstream.name(), Arc::clone(list)));
                known.tools = Some(Arc::clone(&tools));
                tools
            }
        }
    }

    /// Write the cache, off the threads that serve calls.
    fn keep(&self, list: Arc<ToolList>) {
        let (cache, fingerprint, era) = (
            self.cache.clone(),
            self.fingerprint.clone(),
            self.upstream.era(),
        );
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn_blocking(move || cache.save(&fingerprint, era, &list));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerTools {
    fn new(server: &str, list: Arc<ToolList>) -> Self {
        let names = || list.tools.iter().map(|tool| tool.name.as_str());
        let aliases = alias::assign(names());
        let mut by_name: HashMap<String, usize> = aliases
            .iter()
            .cloned()
            .enumerate()
            .map(|(at, alias)| (alias, at))
            .collect();
        // Written last, so that a real name wins over an alias that looks like it.
        by_name.extend(names().enumerate().map(|(at, name)| (name.to_owned(), at)));
        Self {
            aliases,
            by_name,
            index: SearchIndex::new(server, &list.tools),
            checks: list.tools.iter().map(|_| OnceLock::new()).collect(),
            tokens: OnceLock::new(),
            list,
        }
    }

    fn find(self: &Arc<Self>, name_or_alias: &str) -> Option<ToolRef> {
        let at = *self.by_name.get(name_or_alias)?;
        Some(ToolRef {
            tools: Arc::clone(self),
            at,
        })
    }
}

impl ToolRef {
    /// What the server says of it.
    pub fn tool(&self) -> &Tool {
        &self.tools.list.tools[self.at]
    }

    /// Its Python name, unique among its server's tools.
    pub fn alias(&self) -> &str {
        &self.tools.aliases[self.at]
    }

    /// One line: `create_issue(*, repo: str, title: str, labels: list[str] = None) -> dict`.
    pub fn signature(&self) -> String {
        signature::signature(self.alias(), self.tool())
    }

    /// Description, parameters and result in words.
    pub fn docs(&self) -> String {
        signature::docs(self.tool())
    }

    /// What its definition would cost a model that is given it.
    pub fn tokens(&self) -> u64 {
        let counted = self.tools.tokens.get_or_init(|| {
            let tools = self.tools.list.tools.iter();
            tools.map(definition_tokens).collect()
        });
        counted.get(self.at).copied().unwrap_or_default()
    }

    fn check(&self) -> &ArgumentCheck {
        self.tools.checks[self.at].get_or_init(|| ArgumentCheck::new(&self.tool().input_schema))
    }
}

impl CallResult {
    fn read(
        result: Box<RawValue>,
        unwrap: bool,
        server: String,
        tool: String,
    ) -> Result<Self, UpstreamError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Glance<'a> {
            #[serde(borrow, default)]
            is_error: Option<&'a RawValue>,
            #[serde(borrow, default)]
            result_type: Option<&'a RawValue>,
        }
        let glance: Glance<'_> =
            serde_json::from_str(result.get()).map_err(|error| UpstreamError::Protocol {
                server: server.clone(),
                detail: format!("its answer to `{tool}` is not a result: {error}"),
            })?;
        if glance
            .result_type
            .is_some_and(|kind| kind.get() == "\"input_required\"")
        {
            return Err(UpstreamError::ToolFailed {
                message: format!(
                    "tool `{tool}` of server `{server}` asks the user for input, which Runbridge cannot pass on"
                ),
                server,
            });
        }
        let is_error = glance.is_error.is_some_and(|flag| flag.get() == "true");
        Ok(Self {
            result,
            is_error,
            unwrap,
            server,
            tool,
        })
    }

    /// The error that a result with `isError` stands for, with what the tool said.
    pub fn failure(&self) -> Option<UpstreamError> {
        self.is_error.then(|| {
            let result: Value = serde_json::from_str(self.result.get()).unwrap_or_default();
            let blocks = result
                .get("content")
                .and_then(Value::as_array)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let texts: Vec<&str> = blocks
                .iter()
                .filter_map(|block| block.get("text").and_then(Value::as_str))
                .collect();
            let mut text = texts.join("\n");
            if text.trim().is_empty() {
                text = match result.get("structuredContent") {
                    Some(value) if !value.is_null() => value.to_string(),
                    _ => format!(
                        "tool `{}` of server `{}` failed and did not say why",
                        self.tool, self.server
                    ),
                };
            }
            UpstreamError::ToolFailed {
                server: self.server.clone(),
                message: text.chars().take(FAILURE_CHARS_MAX).collect(),
            }
        })
    }
}

/// How many tools a server has that may be called, and what their definitions cost a model; `None`: nobody
/// has listed them yet. Nothing is started for it.
pub(crate) fn known_cost(cache_dir: &Path, entry: &Entry) -> Option<(usize, u64)> {
    let cache = Cache::new(Some(cache_dir.to_owned()));
    let list = cache.load(&Fingerprint::of(entry))?.list;
    let allowed = list.tools.iter().filter(|tool| allows(entry, &tool.name));
    Some(allowed.fold((0, 0), |(tools, tokens), tool| {
        (tools + 1, tokens + definition_tokens(tool))
    }))
}

fn allows(entry: &Entry, tool: &str) -> bool {
    let listed = |names: &[String]| names.iter().any(|name| name == tool || name == "*");
    entry.tools_allowed.as_deref().is_none_or(listed)
        && !entry.tools_denied.iter().any(|name| name == tool)
}

/// The tokens of a tool as clients hand it to a model.
fn definition_tokens(tool: &Tool) -> u64 {
    let definition = serde_json::json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
    });
    tokens::estimate(&definition.to_string())
}

/// Whether a running process of the one entry is what the other asks for.
fn same_process(one: &Entry, other: &Entry) -> bool {
    one.transport == other.transport
        && one.needs == other.needs
        && one.start_ms_max == other.start_ms_max
        && one.call_ms_max == other.call_ms_max
        && one.lent == other.lent
}

async fn stop_idle_servers(catalog: Weak<Catalog>) {
    let mut wait = IDLE_CHECK_MIN;
    loop {
        sleep(wait).await;
        let Some(catalog) = catalog.upgrade() else {
            return;
        };
        let servers = catalog.all();
        let waits = join_all(
            servers
                .iter()
                .map(|server| server.live.upstream.stop_if_idle()),
        )
        .await;
        wait = waits
            .into_iter()
            .min()
            .unwrap_or(IDLE_CHECK_MAX)
            .clamp(IDLE_CHECK_MIN, IDLE_CHECK_MAX);
        // The first idle server may have been started a moment after this look.
        wait =
            wait.min(Duration::from_millis(catalog.limits.get().idle_ms_max).max(IDLE_CHECK_MIN));
    }
}
