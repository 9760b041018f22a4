//! Signing in to remote servers: OAuth 2.1 as MCP has it, with a person in front of a browser.
//!
//! A sign-in is one for each address of a server, whoever names it, and lasts in [`Secrets`]. While
//! it lasts, tokens are renewed without a word, once for all who wait. No browser is opened here: a
//! [`SigningIn`] gives the address for one, and there is at most one of them at a time. What a
//! server's documents name is only reached as far as [`Web`] lets it. Nothing is known here of the
//! protocol that the tokens are used for.

pub(crate) mod challenge;
mod client;
mod discovery;
mod redirect;
mod tokens;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::challenge::Challenge;
use self::client::Client;
pub use self::client::ClientSettings;
use self::discovery::{Found, canonical};
use self::redirect::Redirect;
use self::tokens::{Brought, Kept, NotRenewed, Tokens};
use crate::atomic::{self, Lock, LockError};
use crate::secrets::{Secret, Secrets, SecretsError};
use crate::upstream::LoginEnv;
use crate::web::{Web, WebError};

/// How long a person may take in the browser.
const IN_BROWSER: Duration = Duration::from_mins(10);

/// Another process renews the same token; it has a deadline of its own for that.
const OTHER_PROCESS: Duration = Duration::from_secs(40);

/// How often its lock is asked for.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A token that is being renewed when the bridge ends: the old one is worth nothing any more.
const RENEWALS_END_WITHIN: Duration = Duration::from_secs(5);

/// Servers whose sign-in is kept at hand.
const AT_HAND_MAX: usize = 1_000;

/// Of the words that a stranger adds.
const WORDS_CHARS_MAX: usize = 300;

/// Why nobody is signed in.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SignInError {
    /// The server is a program on this machine.
    #[error("server `{server}` is a program on this machine, which has no sign-in")]
    NotRemote {
        /// Which server.
        server: String,
    },
    /// No server of that name.
    #[error("{message}")]
    NoServer {
        /// Which, and what comes near.
        message: String,
    },
    /// The entry has a token of its own.
    #[error(
        "server `{server}` uses the `Authorization` header of its configuration; remove that to sign in instead"
    )]
    OwnHeader {
        /// Which server.
        server: String,
    },
    /// The server takes everybody.
    #[error("server `{server}` answers without a sign-in")]
    NotNeeded {
        /// Which server.
        server: String,
    },
    /// It wants to know who calls, and does not say how to tell it.
    #[error(
        "there is no sign-in: {detail}; if it gave you a token, put that into its `headers`, as `Authorization`"
    )]
    NoSignIn {
        /// What was missing.
        detail: String,
    },
    /// Something cannot be reached.
    #[error("{reason}")]
    Unreachable {
        /// What, and why.
        reason: String,
    },
    /// A document names an address that is not used.
    #[error("the sign-in is refused: {reason}")]
    Forbidden {
        /// Which, and why.
        reason: String,
    },
    /// A document or an answer is not what it must be.
    #[error("the sign-in is refused: {detail}")]
    Malformed {
        /// How.
        detail: String,
    },
    /// Codes could be stolen on their way.
    #[error(
        "the sign-in is refused: {issuer} does not protect the code that it sends (PKCE with S256)"
    )]
    NoPkce {
        /// Who signs people in.
        issuer: String,
    },
    /// Runbridge is unknown there and cannot make itself known.
    #[error(
        "{issuer} only knows clients that were registered with it: register one there, with the redirect address http://127.0.0.1:PORT/callback, and put its `client_id` and `redirect_port` under `servers.NAME.sign_in` in settings.json"
    )]
    NoClient {
        /// Who signs people in.
        issuer: String,
    },
    /// The registration was refused.
    #[error("{issuer} does not register Runbridge: {detail}")]
    Registration {
        /// Who signs people in.
        issuer: String,
        /// What it said.
        detail: String,
    },
    /// The port that the registration names is taken.
    #[error(
        "port {port}, to which the browser is to come back, is in use by another program; close that, or name another `redirect_port` where the client is registered and in settings.json"
    )]
    Port {
        /// Which.
        port: u16,
    },
    /// The person, or the authorization server, said no.
    #[error("the sign-in was refused: {detail}")]
    Denied {
        /// In its words.
        detail: String,
    },
    /// No token came for the code.
    #[error("the sign-in could not be completed: {detail}")]
    Exchange {
        /// Why.
        detail: String,
    },
    /// Nobody came back from the browser.
    #[error("nobody signed in within {} minutes", IN_BROWSER.as_secs() / 60)]
    TimedOut,
    /// One at a time.
    #[error("a sign-in to `{server}` is under way; complete or cancel it first")]
    Busy {
        /// The server of that one.
        server: String,
    },
    /// It was given up.
    #[error("the sign-in was cancelled")]
    Cancelled,
    /// It cannot be kept.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}

impl From<WebError> for SignInError {
    fn from(error: WebError) -> Self {
        match error {
            WebError::Forbidden(reason) => Self::Forbidden { reason },
            WebError::Unreachable(reason) | WebError::TooLong(reason) => {
                Self::Unreachable { reason }
            }
        }
    }
}

/// What came of a sign-out. In each case nothing is left here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedOut {
    /// The tokens are worth nothing any more.
    Revoked,
    /// The server offers no way to say so; its tokens end by themselves.
    Forgotten,
    /// It could not be told, for this reason; its tokens end by themselves.
    NotTold(String),
    /// Nobody was signed in.
    WasNot,
}

/// All sign-ins of this user.
pub struct SignIns {
    secrets: Arc<Secrets>,
    login_env: LoginEnv,
    /// Where processes take turns; none: there is no other one.
    locks: Option<PathBuf>,
    state: Mutex<State>,
    renewals: TaskTracker,
}

#[derive(Default)]
struct State {
    /// `None`: nobody is signed in there.
    at_hand: HashMap<String, Option<Arc<Kept>>>,
    /// What servers said when they last refused somebody who was not signed in.
    challenges: HashMap<String, Challenge>,
    renewals: HashMap<String, Renewal>,
    under_way: Option<Weak<SigningIn>>,
}

type Renewal = Shared<BoxFuture<'static, Result<Secret, NotRenewed>>>;

impl std::fmt::Debug for SignIns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignIns")
    }
}

/// Whom to sign in to.
pub(crate) struct Wanted {
    /// Its name, for people.
    pub(crate) server: String,
    /// Its address, from the user's entry.
    pub(crate) url: Url,
    /// Asks it what it wants.
    pub(crate) challenge: BoxFuture<'static, Result<Challenge, SignInError>>,
    pub(crate) settings: ClientSettings,
    /// Has it use the sign-in at once.
    pub(crate) signed_in: BoxFuture<'static, ()>,
}

/// One sign-in under way. It ends with the last who holds it.
pub struct SigningIn {
    server: String,
    stage: watch::Receiver<Stage>,
    arrivals: mpsc::Sender<redirect::Arrival>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
enum Stage {
    Preparing,
    Open {
        url: String,
        redirect: String,
        state: String,
    },
    Done(Result<(), SignInError>),
}

impl SigningIn {
    /// The server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The address to open in a browser, once it is known.
    pub async fn url(&self) -> Result<String, SignInError> {
        let mut stage = self.stage.clone();
        let known = stage
            .wait_for(|stage| !matches!(stage, Stage::Preparing))
            .await;
        match known.as_deref() {
            Ok(Stage::Open { url, .. }) => Ok(url.clone()),
            Ok(Stage::Done(Err(error))) => Err(error.clone()),
            Ok(Stage::Done(Ok(())) | Stage::Preparing) | Err(_) => Err(SignInError::Cancelled),
        }
    }

    /// Wait for the end.
    pub async fn finished(&self) -> Result<(), SignInError> {
        let mut stage = self.stage.clone();
        let done = stage
            .wait_for(|stage| matches!(stage, Stage::Done(_)))
            .await;
        match done.as_deref() {
            Ok(Stage::Done(outcome)) => outcome.clone(),
            Ok(Stage::Preparing | Stage::Open { .. }) | Err(_) => Err(SignInError::Cancelled),
        }
    }

    /// The address on which a browser ended that cannot reach this machine; whether it is the one
    /// that this sign-in waits for.
    pub fn paste(&self, address: &str) -> bool {
        let stage = self.stage.borrow();
        let Stage::Open {
            redirect, state, ..
        } = &*stage
        else {
            return false;
        };
        let Some(address) = redirect::read(address, redirect, state) else {
            return false;
        };
        let (outcome, _) = tokio::sync::oneshot::channel();
        let arrival = redirect::Arrival { address, outcome };
        self.arrivals.try_send(arrival).is_ok()
    }
}

impl SignIns {
    /// The sign-ins that `secrets` hold. Processes that share them take turns in `locks`.
    pub fn new(secrets: Arc<Secrets>, login_env: LoginEnv, locks: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            secrets,
            login_env,
            locks,
            state: Mutex::default(),
            renewals: TaskTracker::new(),
        })
    }

    /// What they are kept in, with all other secrets.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The means to speak to one server as the user who signed in there.
    pub(crate) fn authority(self: &Arc<Self>, server: &str, url: &Url) -> Authority {
        Authority {
            sign_ins: Arc::clone(self),
            server: server.to_owned(),
            url: url.clone(),
            key: canonical(url),
        }
    }

    /// Whether somebody is signed in to the server at this address.
    pub(crate) async fn is_signed_in(&self, url: &Url) -> Result<bool, SecretsError> {
        let kept = Kept::load(&self.secrets, &canonical(url)).await?;
        Ok(kept.is_some_and(|kept| kept.tokens.is_some()))
    }

    /// Begin to sign in; the one that is under way, if it is to the same server. Needs a tokio
    /// runtime.
    pub(crate) fn begin(self: &Arc<Self>, wanted: Wanted) -> Result<Arc<SigningIn>, SignInError> {
        let mut state = self.state();
        if let Some(under_way) = state.under_way.as_ref().and_then(Weak::upgrade)
            && !matches!(&*under_way.stage.borrow(), Stage::Done(_))
        {
            return if under_way.server == wanted.server {
                Ok(Arc::clone(&under_way))
            } else {
                let server = under_way.server.clone();
                Err(SignInError::Busy { server })
            };
        }
        let (stage, seen) = watch::channel(Stage::Preparing);
        let (arrivals, arrived) = mpsc::channel(1);
        let sign_ins = Arc::clone(self);
        let server = wanted.server.clone();
        let came = arrivals.clone();
        let task = tokio::spawn(async move {
            let outcome = sign_ins.sign_in(wanted, &stage, came, arrived).await;
            stage.send_replace(Stage::Done(outcome));
        });
        let signing_in = Arc::new(SigningIn {
            server,
            stage: seen,
            arrivals,
            _task: AbortOnDropHandle::new(task),
        });
        state.under_way = Some(Arc::downgrade(&signing_in));
        Ok(signing_in)
    }

    async fn sign_in(
        &self,
        wanted: Wanted,
        stage: &watch::Sender<Stage>,
        arrivals: mpsc::Sender<redirect::Arrival>,
        mut arrived: mpsc::Receiver<redirect::Arrival>,
    ) -> Result<(), SignInError> {
        let server = canonical(&wanted.url);
        let before = Kept::load(&self.secrets, &server).await?;
        let web = Web::on_behalf_of(&wanted.url, &*self.login_env.get().await).await;
        let mut challenge = wanted.challenge.await?;
        // Some greet everybody and refuse what comes after; that refusal says what is needed.
        if challenge.none_needed
            && let Some(said) = self.state().challenges.get(&server)
        {
            challenge = said.clone();
        }
        let found = discovery::find(&web, &wanted.url, &challenge).await?;
        let scope = scope(&wanted.settings, &challenge, &found, before.as_ref());
        let (redirect, client) = self
            .client(
                &web,
                &found,
                &wanted.settings,
                before.as_ref(),
                scope.as_deref(),
            )
            .await?;
        let (verifier, state) = (random()?, random()?);
        let address = redirect.address();
        let url = page(
            &found,
            &client,
            &address,
            &state,
            &verifier,
            scope.as_deref(),
        );
        stage.send_replace(Stage::Open {
            url,
            redirect: address.clone(),
            state: state.clone(),
        });
        let page = AbortOnDropHandle::new(tokio::spawn(redirect.serve(state, arrivals)));
        let arrival = timeout(IN_BROWSER, arrived.recv()).await;
        let arrival = arrival
            .map_err(|_| SignInError::TimedOut)?
            .ok_or(SignInError::Cancelled)?;
        let complete = async {
            let code = redirect::code(&arrival.address, &found.issuer, found.names_itself)?;
            let brought = Brought {
                code: &code,
                verifier: &verifier,
                redirect: &address,
                scope: scope.as_deref(),
            };
            let (token, resource) = (&found.token, &found.resource);
            let tokens = tokens::for_code(&web, token, &client, resource, &brought).await?;
            let kept = Kept {
                server: server.clone(),
                resource: found.resource.clone(),
                issuer: found.issuer.clone(),
                token: found.token.to_string(),
                revoke: found.revoke.as_ref().map(Url::to_string),
                client: client.clone(),
                tokens: Some(tokens),
                wanted: None,
            };
            kept.save(&self.secrets).await?;
            self.keep_at_hand(&server, Some(kept));
            Ok(())
        };
        let outcome: Result<(), SignInError> = complete.await;
        if outcome.is_ok() {
            wanted.signed_in.await;
        }
        let words = outcome.as_ref().err().map(ToString::to_string);
        if arrival.outcome.send(words).is_ok() {
            // The page is written in the background; a moment for it.
            sleep(Duration::from_millis(100)).await;
        }
        drop(page);
        outcome
    }

    /// Who we are there, and the page that the browser comes back to.
    async fn client(
        &self,
        web: &Web,
        found: &Found,
        settings: &ClientSettings,
        before: Option<&Kept>,
        scope: Option<&str>,
    ) -> Result<(Redirect, Client), SignInError> {
        let secret = match &settings.client_secret {
            Some(text) => match Secrets::reference(text.expose()) {
                Some(name) => {
                    let secret = self.secrets.get(name).await?;
                    let secret = secret.ok_or_else(|| SignInError::Malformed {
                        detail: format!("there is no secret `{name}` for the client"),
                    })?;
                    Some(secret.expose().to_owned())
                }
                None => Some(text.expose().to_owned()),
            },
            None => None,
        };
        let before = before.filter(|before| before.issuer == found.issuer);
        let known = client::known(settings, secret, found, before.map(|before| &before.client));
        let cannot_bind = |error: std::io::Error| SignInError::Unreachable {
            reason: format!("no port for the browser to come back to: {error}"),
        };
        if let Some(client) = known {
            match (Redirect::bind(client.port).await, client.port) {
                (Ok(redirect), _) => return Ok((redirect, client)),
                (Err(_), Some(port)) if !client.registered => {
                    return Err(SignInError::Port { port });
                }
                (Err(error), None) => return Err(cannot_bind(error)),
                // Registered once more, with a port that is free.
                (Err(_), Some(_)) => {}
            }
        }
        let redirect = Redirect::bind(settings.redirect_port)
            .await
            .map_err(cannot_bind)?;
        let (address, port) = (redirect.address(), redirect.port());
        let client = client::register(web, found, &address, port, scope).await?;
        Ok((redirect, client))
    }

    /// Forget the sign-in, and tell the authorization server so.
    pub(crate) async fn sign_out(&self, url: &Url) -> Result<SignedOut, SecretsError> {
        let server = canonical(url);
        let kept = Kept::load(&self.secrets, &server).await?;
        self.secrets.forget(&Kept::secret_name(&server)).await?;
        self.keep_at_hand(&server, None);
        let Some((kept, tokens)) = kept.and_then(|mut kept| {
            let tokens = kept.tokens.take()?;
            Some((kept, tokens))
        }) else {
            return Ok(SignedOut::WasNot);
        };
        let Some(revoke) = kept.revoke.as_deref().and_then(|url| Url::parse(url).ok()) else {
            return Ok(SignedOut::Forgotten);
        };
        let web = Web::on_behalf_of(url, &*self.login_env.get().await).await;
        let mut told = Ok(());
        // The one that renews first: it would outlive the other.
        let refresh = tokens
            .refresh
            .as_deref()
            .map(|token| (token, "refresh_token"));
        for (token, kind) in refresh
            .into_iter()
            .chain([(&*tokens.access, "access_token")])
        {
            let revoked = tokens::revoke(&web, &revoke, &kept.client, token, kind).await;
            told = told.and(revoked);
        }
        Ok(match told {
            Ok(()) => SignedOut::Revoked,
            Err(error) => SignedOut::NotTold(error.to_string()),
        })
    }

    /// Let renewals end that are under way.
    pub(crate) async fn shut_down(&self) {
        self.renewals.close();
        let _ = timeout(RENEWALS_END_WITHIN, self.renewals.wait()).await;
    }

    /// What is kept, from memory if it was looked up before.
    async fn kept(&self, server: &str) -> Result<Option<Arc<Kept>>, SecretsError> {
        let at_hand = self.state().at_hand.get(server).cloned();
        match at_hand {
            Some(at_hand) => Ok(at_hand),
            None => self.kept_now(server).await,
        }
    }

    /// The same from where all processes keep it.
    async fn kept_now(&self, server: &str) -> Result<Option<Arc<Kept>>, SecretsError> {
        let kept = Kept::load(&self.secrets, server).await?;
        Ok(self.keep_at_hand(server, kept))
    }

    fn keep_at_hand(&self, server: &str, kept: Option<Kept>) -> Option<Arc<Kept>> {
        let kept = kept.map(Arc::new);
        let mut state = self.state();
        if state.at_hand.len() >= AT_HAND_MAX {
            state.at_hand.clear();
        }
        state.at_hand.insert(server.to_owned(), kept.clone());
        kept
    }

    /// Another token than `used`: one that somebody else has got meanwhile, or a renewed one. All who
    /// ask at the same time wait for one renewal, which goes on when they give up: the server may
    /// already have taken the old token back.
    async fn renew(
        self: &Arc<Self>,
        server: &str,
        url: &Url,
        used: &str,
    ) -> Result<Secret, NotRenewed> {
        let renewal = {
            let mut state = self.state();
            if let Some(renewal) = state.renewals.get(server) {
                renewal.clone()
            } else {
                let sign_ins = Arc::clone(self);
                let (key, url, used) = (server.to_owned(), url.clone(), used.to_owned());
                let task = self.renewals.spawn(async move {
                    let outcome = sign_ins.renew_alone(&key, &url, &used).await;
                    sign_ins.state().renewals.remove(&key);
                    outcome
                });
                let renewal = async move {
                    match task.await {
                        Ok(outcome) => outcome,
                        Err(error) => Err(NotRenewed::Failed(error.to_string())),
                    }
                };
                let renewal = renewal.boxed().shared();
                state.renewals.insert(server.to_owned(), renewal.clone());
                renewal
            }
        };
        renewal.await
    }

    async fn renew_alone(&self, server: &str, url: &Url, used: &str) -> Result<Secret, NotRenewed> {
        let failed = |error: SecretsError| NotRenewed::Failed(error.to_string());
        let _turn = self.turn(server).await?;
        let Some(kept) = self.kept_now(server).await.map_err(failed)? else {
            return Err(signed_out());
        };
        let Some(tokens) = &kept.tokens else {
            return Err(signed_out());
        };
        if tokens.access != used {
            return Ok(Secret::new(tokens.access.clone()));
        }
        let web = Web::on_behalf_of(url, &*self.login_env.get().await).await;
        let (next, outcome) = match tokens::renewed(&web, &kept, tokens).await {
            Ok(tokens) => {
                let token = Secret::new(tokens.access.clone());
                (Some(tokens), Ok(token))
            }
            Err(NotRenewed::Failed(reason)) => return Err(NotRenewed::Failed(reason)),
            Err(ended @ NotRenewed::Ended { .. }) => (None, Err(ended)),
        };
        let mut kept = Kept::clone(&kept);
        kept.tokens = next;
        if let Err(NotRenewed::Ended {
            client_too: true, ..
        }) = &outcome
        {
            kept.client.registered = false;
        }
        // What is not kept serves at least this process.
        if let Err(error) = kept.save(&self.secrets).await {
            tracing::warn!(%error, "a renewed sign-in cannot be kept");
        }
        self.keep_at_hand(server, Some(kept));
        outcome
    }

    /// One process at a time renews: a token that was used twice is taken for a stolen one.
    async fn turn(&self, server: &str) -> Result<Option<Lock>, NotRenewed> {
        let Some(folder) = &self.locks else {
            return Ok(None);
        };
        let failed = |reason: String| NotRenewed::Failed(reason);
        atomic::create_folder(folder).map_err(|error| failed(error.to_string()))?;
        let hash = Sha256::digest(server.as_bytes());
        let hash = hash[..8]
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let path = folder.join(format!("sign-in-{hash:016x}.lock"));
        let since = Instant::now();
        loop {
            match Lock::take(&path, Duration::ZERO) {
                Ok(lock) => return Ok(Some(lock)),
                Err(LockError::Busy { .. }) if since.elapsed() < OTHER_PROCESS => {
                    sleep(LOCK_PAUSE).await;
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }

    /// The server wants more rights than it was given: the next sign-in asks for them.
    async fn want(&self, server: &str, scope: &str) {
        let Ok(Some(kept)) = self.kept_now(server).await else {
            return;
        };
        if kept.wanted.as_deref() == Some(scope) {
            return;
        }
        let mut kept = Kept::clone(&kept);
        kept.wanted = Some(cut(scope));
        if let Err(error) = kept.save(&self.secrets).await {
            tracing::debug!(%error, "the rights that a server wants are not remembered");
        }
        self.keep_at_hand(server, Some(kept));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signed_out() -> NotRenewed {
    NotRenewed::Ended {
        client_too: false,
        detail: "you have signed out".to_owned(),
    }
}

/// Why there is no token where there was one.
pub(crate) enum NoToken {
    /// Somebody has to sign in anew.
    Ended(String),
    /// It may be had later.
    Unreachable(String),
}

impl From<NotRenewed> for NoToken {
    fn from(error: NotRenewed) -> Self {
        match error {
            NotRenewed::Ended { detail, .. } => Self::Ended(detail),
            NotRenewed::Failed(reason) => Self::Unreachable(reason),
        }
    }
}

/// Speaks to one server as the user who signed in there, if somebody has.
pub(crate) struct Authority {
    sign_ins: Arc<SignIns>,
    server: String,
    url: Url,
    key: String,
}

impl Authority {
    /// The token to send now; `None`: nobody is signed in.
    pub(crate) async fn token(&self) -> Result<Option<Secret>, NoToken> {
        let kept = self.sign_ins.kept(&self.key).await;
        let kept = kept.map_err(|error| NoToken::Ended(error.to_string()))?;
        let Some(tokens) = kept.as_ref().and_then(|kept| kept.tokens.as_ref()) else {
            return Ok(None);
        };
        if !tokens.is_due() || tokens.refresh.is_none() {
            return Ok(Some(Secret::new(tokens.access.clone())));
        }
        match self.renewed(tokens).await {
            Ok(token) => Ok(Some(token)),
            // It may still be good: our clock says when it ends, and the server decides.
            Err(NotRenewed::Failed(_)) => Ok(Some(Secret::new(tokens.access.clone()))),
            Err(ended) => Err(ended.into()),
        }
    }

    /// After a refusal: another token, to try once more with; `None`: there is none.
    pub(crate) async fn after_refusal(
        &self,
        used: Option<&Secret>,
    ) -> Result<Option<Secret>, NoToken> {
        let kept = self.sign_ins.kept_now(&self.key).await;
        let kept = kept.map_err(|error| NoToken::Ended(error.to_string()))?;
        let Some(tokens) = kept.as_ref().and_then(|kept| kept.tokens.as_ref()) else {
            return Ok(None);
        };
        match used {
            Some(used) if used.expose() == tokens.access => Ok(Some(self.renewed(tokens).await?)),
            Some(_) | None => Ok(Some(Secret::new(tokens.access.clone()))),
        }
    }

    async fn renewed(&self, tokens: &Tokens) -> Result<Secret, NotRenewed> {
        self.sign_ins
            .renew(&self.key, &self.url, &tokens.access)
            .await
    }

    /// The server refuses whoever is not signed in, and says this.
    pub(crate) fn refused(&self, challenge: Challenge) {
        let mut state = self.sign_ins.state();
        if state.challenges.len() >= AT_HAND_MAX {
            state.challenges.clear();
        }
        state.challenges.insert(self.key.clone(), challenge);
    }

    /// The server wants more rights.
    pub(crate) async fn want(&self, scope: &str) {
        self.sign_ins.want(&self.key, scope).await;
    }

    /// Whether a token was sent.
    pub(crate) fn is_signed_in(&self) -> bool {
        let state = self.sign_ins.state();
        let kept = state.at_hand.get(&self.key);
        kept.is_some_and(|kept| kept.as_ref().is_some_and(|kept| kept.tokens.is_some()))
    }

    /// What to do, for people.
    pub(crate) fn how(&self) -> String {
        format!(
            "sign in in Runbridge: choose Sign in beside the server in its window, or run `runbridge login {}`",
            self.server
        )
    }
}

/// The rights to ask for.
fn scope(
    settings: &ClientSettings,
    challenge: &Challenge,
    found: &Found,
    before: Option<&Kept>,
) -> Option<String> {
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut all: Vec<String> = Vec::new();
    if settings.scopes.is_empty() {
        match &challenge.scope {
            Some(scope) => all.extend(words(scope)),
            None => all.extend(found.scopes.iter().flatten().cloned()),
        }
    } else {
        all.extend(settings.scopes.iter().cloned());
    }
    if let Some(before) = before
        && let Some(wanted) = &before.wanted
    {
        // What was given stays, and what was missing comes to it.
        let given = before
            .tokens
            .as_ref()
            .and_then(|tokens| tokens.scope.as_deref());
        all.extend(words(given.unwrap_or_default()));
        all.extend(words(wanted));
    }
    if !all.is_empty() && found.offline {
        all.push("offline_access".to_owned());
    }
    let mut asked: Vec<&str> = Vec::new();
    for scope in &all {
        if !asked.contains(&scope.as_str()) {
            asked.push(scope);
        }
    }
    (!asked.is_empty()).then(|| asked.join(" "))
}

/// The page on which a person signs in.
fn page(
    found: &Found,
    client: &Client,
    redirect: &str,
    state: &str,
    verifier: &str,
    scope: Option<&str>,
) -> String {
    let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let mut url = found.authorize.clone();
    {
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect)
            .append_pair("state", state)
            .append_pair("code_challenge", &digest)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &found.resource);
        if let Some(scope) = scope {
            query.append_pair("scope", scope);
        }
    }
    url.into()
}

/// 256 bits that nobody can guess.
fn random() -> Result<String, SignInError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| SignInError::Unreachable {
        reason: format!("the system gives no random numbers: {error}"),
    })?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Words of a stranger, as far as they are shown.
fn cut(words: &str) -> String {
    words
        .chars()
        .filter(|c| !c.is_control())
        .take(WORDS_CHARS_MAX)
        .collect()
}
