//! Serve MCP on stdin and stdout to the client that started us, until it closes stdin: by relaying
//! to the app if one runs, else with a bridge of our own. Or, where a person asks for it, over HTTP.

use std::io::IsTerminal as _;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use crate::relay;
use crate::style;
use anyhow::Context as _;
use rmcp::ServiceExt as _;
use runbridge_core::bridge::{Bridge, Connection, Role};
use runbridge_core::http_face::{self, HttpFace, Place};
use runbridge_core::mcp_server::{self, McpServer};
use runbridge_core::paths::Environment;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::signal;

/// Serve until the client has gone or a signal asks us to end; then end all that was started.
pub(crate) fn stdio() -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process();
    if let Some(app) = relay::App::of(&environment) {
        // Relaying is waiting for two streams in turn; threads would only cost memory.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        if let Some(link) = runtime.block_on(app.find()) {
            tell_of_unused_settings(&environment);
            runtime.block_on(relayed(&app, link, &environment));
            exit();
        }
    }
    Runtime::new()?.block_on(solo(environment))?;
    exit();
}

/// Options of `runbridge serve`.
#[derive(clap::Args)]
pub(crate) struct ServeArguments {
    /// Serve over streamable HTTP at an address of this machine, for clients that want a URL
    #[arg(long)]
    pub(crate) http: bool,
    /// The port; 0 takes any that is free
    #[arg(long, requires = "http", default_value_t = http_face::PORT)]
    pub(crate) port: u16,
}

/// Serve over HTTP until a signal asks us to end: by the app's bridge while one runs, else by one of our
/// own, at the same port.
pub(crate) async fn http(port: u16) -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process();
    // One wait for both: a signal between them would be heard by neither.
    let mut asked = std::pin::pin!(asked_to_end());
    let Some(port) = http_by_app(&environment, port, asked.as_mut()).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let bridge = open(environment)?;
    let face = match HttpFace::open(Arc::clone(&bridge), port).await {
        Ok(face) => face,
        Err(error) => {
            bridge.shut_down().await;
            return Err(error.into());
        }
    };
    tell_of(face.place());
    asked.as_mut().await;
    face.shut_down().await;
    bridge.shut_down().await;
    Ok(ExitCode::SUCCESS)
}

/// Have the app serve HTTP while it runs. Gives the port to serve at without it; `None`: we are to end.
async fn http_by_app(
    environment: &Environment,
    port: u16,
    mut asked_to_end: Pin<&mut impl Future<Output = ()>>,
) -> Option<u16> {
    let Some(app) = relay::App::of(environment) else {
        return Some(port);
    };
    let Some(mut lent) = app.lend_port(port).await else {
        return Some(port);
    };
    tell_of_unused_settings(environment);
    tell_of(lent.place());
    style::remark("the Runbridge app serves it, so that all clients share one bridge");
    loop {
        let port = lent.place().port();
        let found = async {
            lent.ended().await;
            tracing::warn!("the Runbridge app has gone; looking for it");
            app.lend_port_again(port).await
        };
        let found = tokio::select! {
            found = found => found,
            () = asked_to_end.as_mut() => return None,
        };
        let Some(found) = found else {
            tracing::warn!("the Runbridge app stays away; serving without it");
            return Some(port);
        };
        tracing::info!("the Runbridge app is back");
        lent = found;
    }
}

/// Say where it is. A terminal is a person's; what else stderr may be keeps no secrets.
fn tell_of(place: &Place) {
    let mut lines = vec![format!("serving MCP at {}", place.url())];
    if std::io::stderr().is_terminal() {
        let (token, address) = (place.token(), place.url_with_token());
        lines.push(format!(
            "a client sends the header  Authorization: Bearer {}",
            token.expose()
        ));
        lines.push(format!(
            "or, if it can only take an address:  {}",
            address.expose()
        ));
        lines.push("Ctrl-C ends it".to_owned());
    } else {
        let file = place.token_file();
        lines.push(format!("the token for clients is in {}", file.display()));
    }
    for line in lines {
        style::remark(&line);
    }
}

/// The runtime would wait for the thread that reads stdin, which nothing wakes.
fn exit() -> ! {
    std::process::exit(0)
}

async fn solo(environment: Environment) -> anyhow::Result<()> {
    let bridge = open(environment)?;
    let connection = bridge.connect();
    let served = serve(
        &bridge,
        &connection,
        tokio::io::stdin(),
        tokio::io::stdout(),
    );
    tokio::select! {
        () = served => {}
        () = asked_to_end() => {}
    }
    bridge.disconnect(&connection).await;
    bridge.shut_down().await;
    Ok(())
}

fn open(environment: Environment) -> anyhow::Result<Arc<Bridge>> {
    let bridge = Bridge::open(environment, Role::Serve)?;
    for problem in bridge.settings_problems().iter() {
        tracing::warn!("{problem}");
    }
    Ok(bridge)
}

/// Serve the client at the other end of these streams until it has gone.
async fn serve(
    bridge: &Arc<Bridge>,
    connection: &Arc<Connection>,
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
) {
    let server = McpServer::new(Arc::clone(bridge), Arc::clone(connection));
    let transport = mcp_server::transport(read, write);
    let served = async {
        let service = server
            .serve(transport)
            .await
            .context("the client did not greet us")?;
        service
            .waiting()
            .await
            .context("serving the client broke off")
    };
    if let Err(error) = served.await {
        // A client that leaves before its greeting is no fault of ours.
        tracing::info!("{error:#}");
    }
}
async fn relayed(app: &relay::App, link: relay::Link, environment: &Environment) {
    let mut own = None;
    tokio::select! {
        ended = relay::run(app, link, environment, &mut own) => if let Err(error) = ended {
            tracing::warn!("{error:#}");
        },
        () = asked_to_end() => {}
    }
    if let Some(own) = own {
        own.shut_down().await;
    }
}

/// A client may set variables for its bridge; the app's bridge does not have them.
fn tell_of_unused_settings(environment: &Environment) {
    let unused: Vec<&str> = environment
        .variables()
        .keys()
        .map(String::as_str)
        .filter(|name| name.starts_with("MCP_BRIDGE_") || *name == "MCP_SERVERS_CONFIG")
        .filter(|name| *name != "MCP_BRIDGE_LOG_LEVEL")
        .collect();
    if !unused.is_empty() {
        let unused = unused.join(", ");
        tracing::warn!("the app's settings are in force; of no effect here: {unused}");
    }
}

/// The bridge that a relay opens when the app stays away, on threads of its own.
pub(crate) struct OwnBridge {
    runtime: Runtime,
    bridge: Arc<Bridge>,
    connection: Arc<Connection>,
}
impl OwnBridge {
    /// Bytes under way between relay and bridge.
    const PIPE_BYTES: usize = 64 * 1024;

    /// Open it, with a link to it.
    pub(crate) fn start(
        environment: Environment,
        resumed: bool,
    ) -> anyhow::Result<(Self, relay::Link)> {
        let runtime = Runtime::new()?;
        let inside = runtime.enter();
        let bridge = open(environment)?;
        drop(inside);
        let connection = if resumed {
            bridge.connect_resumed()
        } else {
            bridge.connect()
        };
        let (ours, its) = tokio::io::duplex(Self::PIPE_BYTES);
        let (read, write) = tokio::io::split(its);
        {
            let (bridge, connection) = (Arc::clone(&bridge), Arc::clone(&connection));
            runtime.spawn(async move { serve(&bridge, &connection, read, write).await });
        }
        let (read, write) = tokio::io::split(ours);
        let own = Self {
            runtime,
            bridge,
            connection,
        };
        Ok((own, relay::Link::new(read, write)))
    }

    /// End all that it started.
    pub(crate) async fn shut_down(self) {
        let Self {
            runtime,
            bridge,
            connection,
        } = self;
        let ended = runtime.spawn(async move {
            bridge.disconnect(&connection).await;
            bridge.shut_down().await;
        });
        if let Err(error) = ended.await {
            tracing::error!("the bridge was not shut down in order: {error}");
        }
        // The process ends next; a thread that still waits for something shall not keep it.
        runtime.shutdown_background();
    }
}

/// A signal that means: end now, in order.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        let Ok(mut terminate) = signal::unix::signal(signal::unix::SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        let Ok(mut hang_up) = signal::unix::signal(signal::unix::SignalKind::hangup()) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
            _ = signal::ctrl_c() => {}
        }
    }
    #[cfg(windows)]
    {
        let (Ok(mut stop), Ok(mut close)) =
            (signal::windows::ctrl_break(), signal::windows::ctrl_close())
        else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = stop.recv() => {}
            _ = close.recv() => {}
            _ = signal::ctrl_c() => {}
        }
    }
}
