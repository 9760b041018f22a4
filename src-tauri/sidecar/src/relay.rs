//! Carry MCP lines between the client and the app, and outlive the app: what is under way when it
//! ends is answered, a restarted app is greeted as the client greeted, and if none comes back this
//! process serves its client by itself.
//!
//! Knows of MCP only what `relay/talk.rs` remembers; it changes no line.

mod lines;
mod talk;

use std::cell::{Cell, RefCell};
use std::io;
use std::time::{Duration, Instant};

use runbridge_core::http_face::Place;
use runbridge_core::local_socket::{self, AppStream, ConnectError, Hello, Refusal};
use runbridge_core::mcp_server::LINE_BYTES_MAX;
use runbridge_core::paths::{Environment, NESTED, Paths};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use self::lines::Lines;
use self::talk::{FromClient, Talk};
use crate::serve::OwnBridge;

/// The longest line from the app: a reply at its highest cap, escaped, twice, and its images.
const APP_LINE_BYTES_MAX: usize = 4 * LINE_BYTES_MAX;

/// How long a lost app is looked for. An update or a restart by hand takes about as long; a client
/// that waits for an answer waits no longer.
const RECONNECT_WITHIN: Duration = Duration::from_secs(5);

/// First and longest pause between two looks.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// How long an app may take to answer a greeting that it is sent again.
const GREETING_WITHIN: Duration = Duration::from_secs(5);

/// How long the app may take to finish after the client has gone: a little more than it allows the
/// requests under way.
const FINISH_WITHIN: Duration = Duration::from_secs(8);

/// The app that might serve this process's client.
pub(crate) struct App {
    paths: Paths,
    hello: Hello,
}

/// A live way to a bridge: the app's, or our own.
pub(crate) struct Link {
    read: Lines<Box<dyn AsyncRead + Unpin>>,
    write: Box<dyn AsyncWrite + Unpin>,
}

impl Link {
    /// A link over both ends of something.
    pub(crate) fn new(
        read: impl AsyncRead + Unpin + 'static,
        write: impl AsyncWrite + Unpin + 'static,
    ) -> Self {
        Self {
            read: Lines::new(Box::new(read), APP_LINE_BYTES_MAX),
            write: Box::new(write),
        }
    }
}

impl From<AppStream> for Link {
    fn from(stream: AppStream) -> Self {
        Self::new(stream.read, stream.write)
    }
}

impl App {
    /// The app of the user whom `environment` describes. `None` where none may be asked: a bridge
    /// that another bridge started as a server must not be lent that bridge's servers.
    pub(crate) fn of(environment: &Environment) -> Option<Self> {
        if environment.filled(NESTED).is_some() {
            return None;
        }
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            cwd: std::env::current_dir().unwrap_or_default(),
            resumed: false,
            http_port: None,
        };
        let paths = Paths::for_user(environment).ok()?;
        Some(Self { paths, hello })
    }

    /// Look for it once.
    pub(crate) async fn find(&self) -> Option<Link> {
        match local_socket::connect(&self.paths, &self.hello).await {
            Ok(stream) => {
                tracing::info!("served by the Runbridge app, version {}", stream.version);
                Some(stream.into())
            }
            Err(ConnectError::Absent) => None,
            Err(error) => {
                tracing::warn!("{error}; serving without it");
                None
            }
        }
    }

    /// Have it serve HTTP at this port, if it is there and can.
    pub(crate) async fn lend_port(&self, port: u16) -> Option<LentPort> {
        match local_socket::connect(&self.paths, &self.asking_for(port)).await {
            Ok(stream) => LentPort::of(stream),
            Err(ConnectError::Absent) => None,
            Err(error) => {
                tracing::warn!("{error}; serving without it");
                None
            }
        }
    }

    /// The same of an app that has gone and may come back.
    pub(crate) async fn lend_port_again(&self, port: u16) -> Option<LentPort> {
        let stream = self.look(&self.asking_for(port), Instant::now()).await?;
        LentPort::of(stream)
    }

    fn asking_for(&self, port: u16) -> Hello {
        Hello {
            http_port: Some(port),
            ..self.hello.clone()
        }
    }

    /// Look for it until it is there again, which `lost_at` gives a limit.
    async fn find_again(&self, lost_at: Instant, resumed: bool) -> Option<Link> {
        let hello = Hello {
            resumed,
            ..self.hello.clone()
        };
        self.look(&hello, lost_at).await.map(Link::from)
    }

    async fn look(&self, hello: &Hello, lost_at: Instant) -> Option<AppStream> {
        let mut pause = PAUSE_FIRST;
        while lost_at.elapsed() < RECONNECT_WITHIN {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            match local_socket::connect(&self.paths, hello).await {
                Ok(stream) => return Some(stream),
                Err(
                    error @ ConnectError::Refused {
                        why: Refusal::Format,
                        ..
                    },
                ) => {
                    tracing::warn!("{error}");
                    return None;
                }
                // It may be about to end or to begin.
                Err(error) => tracing::debug!("{error}"),
            }
        }
        None
    }
}

/// HTTP that the app serves for us, for as long as this is kept.
pub(crate) struct LentPort {
    place: Place,
    stream: AppStream,
}

impl LentPort {
    fn of(stream: AppStream) -> Option<Self> {
        let Some(served) = stream.http.clone() else {
            tracing::warn!(
                "the Runbridge app, version {}, serves no HTTP; serving without it",
                stream.version
            );
            return None;
        };
        match Place::of(served.port, served.token_file) {
            Ok(place) => Some(Self { place, stream }),
            Err(error) => {
                tracing::warn!("the token of the Runbridge app cannot be read: {error}");
                None
            }
        }
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Wait until the app has gone.
    pub(crate) async fn ended(&mut self) {
        // It has nothing to say; its end is what counts.
        let _ = tokio::io::copy(&mut self.stream.read, &mut tokio::io::sink()).await;
    }
}

/// Serve the client on stdin and stdout over `link`, until it has gone. `own` is where a bridge of
/// our own is put if it comes to that; the caller shuts it down.
pub(crate) async fn run(
    app: &App,
    mut link: Link,
    environment: &Environment,
    own: &mut Option<OwnBridge>,
) -> anyhow::Result<()> {
    let mut client = Lines::new(tokio::io::stdin(), LINE_BYTES_MAX);
    let mut out = tokio::io::stdout();
    let talk = RefCell::new(Talk::default());
    // Since when no bridge has said anything; an app that only ever closes is not waited for anew.
    let mut lost_at = None;
    loop {
        let end = carry(&mut client, &mut out, &mut link, &talk).await?;
        let End::Lost { heard } = end else {
            return Ok(());
        };
        if own.is_some() {
            tracing::error!("our own bridge ended its connection");
            return Ok(());
        }
        tracing::warn!("the Runbridge app has gone; looking for it");
        if heard {
            lost_at = None;
        }
        let lost_at = *lost_at.get_or_insert_with(Instant::now);
        let answers = talk.borrow_mut().lost();
        for answer in answers {
            write_line(&mut out, &answer).await?;
        }
        let resumed = talk.borrow().has_run_code();
        let found = tokio::select! {
            found = app.find_again(lost_at, resumed) => found,
            () = client.ended() => return Ok(()),
        };
        link = if let Some(found) = found {
            tracing::info!("the Runbridge app is back");
            found
        } else {
            tracing::warn!("the Runbridge app stays away; serving without it");
            let (bridge, link) = OwnBridge::start(environment.clone(), resumed)?;
            *own = Some(bridge);
            link
        };
        let greeted = greet_again(&mut out, &mut link, &talk);
        match tokio::time::timeout(GREETING_WITHIN, greeted).await {
            Ok(greeted) => greeted?,
            // What follows finds the link closed, and looks again while there is time.
            Err(_) => link = Link::new(tokio::io::empty(), tokio::io::sink()),
        }
    }
}

/// How the carrying of lines ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has gone, and all that it is due was said.
    ClientGone,
    /// The bridge has gone.
    Lost {
        /// It had said something since it was greeted.
        heard: bool,
    },
}

/// Carry lines both ways until one end has gone. An error is that of the client's own stdout.
async fn carry(
    client: &mut Lines<tokio::io::Stdin>,
    out: &mut (impl AsyncWrite + Unpin),
    link: &mut Link,
    talk: &RefCell<Talk>,
) -> io::Result<End> {
    let Link { read, write } = link;
    // One refusal at a time: a client that reads none of them gets no further.
    let (refuse, mut refusals) = mpsc::channel(1);
    let up = async {
        while let Ok(Some(line)) = client.next().await {
            let verdict = talk.borrow_mut().hear_client(&line);
            match verdict {
                FromClient::Pass => {
                    if write.write_all(&line).await.is_err() {
                        // The other direction still reads what the bridge said before it went.
                        return false;
                    }
                }
                FromClient::Drop => {}
                // It can be sent for as long as the other direction goes on, which ends us both.
                FromClient::Refuse(answer) => drop(refuse.send(answer).await),
            }
        }
        // Everything was passed on; the bridge answers what it has and closes.
        let _ = write.shutdown().await;
        true
    };
    let heard = Cell::new(false);
    let down = async {
        loop {
            let line = tokio::select! {
                line = read.next() => {
                    let Ok(Some(line)) = line else { break };
                    heard.set(true);
                    talk.borrow_mut().hear_bridge(&line);
                    line
                }
                Some(refusal) = refusals.recv() => refusal,
            };
            write_line(out, &line).await?;
        }
        io::Result::Ok(())
    };
    tokio::pin!(down);
    let client_gone = tokio::select! {
        client_gone = up => client_gone,
        ended = &mut down => {
            ended?;
            return Ok(End::Lost { heard: heard.get() });
        }
    };
    if client_gone {
        if tokio::time::timeout(FINISH_WITHIN, down).await.is_err() {
            tracing::warn!("the bridge did not finish in time");
        }
        return Ok(End::ClientGone);
    }
    down.await?;
    Ok(End::Lost { heard: heard.get() })
}

/// Greet a new bridge as the client greeted the first. What it answers to a greeting that was
/// answered before is kept from the client, who knows it.
async fn greet_again(
    out: &mut (impl AsyncWrite + Unpin),
    link: &mut Link,
    talk: &RefCell<Talk>,
) -> io::Result<()> {
    let Some(greeting) = talk.borrow().greeting() else {
        return Ok(());
    };
    // A link that is gone again shows itself as such to whoever carries lines next.
    if link.write.write_all(&greeting.line).await.is_err() {
        return Ok(());
    }
    loop {
        let Ok(Some(line)) = link.read.next().await else {
            return Ok(());
        };
        let answers_it = talk::answers(&line, &greeting.id);
        if !answers_it || !greeting.answered {
            talk.borrow_mut().hear_bridge(&line);
            write_line(out, &line).await?;
        }
        if answers_it {
            break;
        }
    }
    let initialized = talk.borrow().initialized();
    if let Some(initialized) = initialized
        && link.write.write_all(&initialized).await.is_err()
    {
        return Ok(());
    }
    let news = talk.borrow().news_of_restart();
    if let Some(news) = news {
        write_line(out, news).await?;
    }
    Ok(())
}

async fn write_line(out: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> io::Result<()> {
    out.write_all(line).await?;
    out.flush().await
}
