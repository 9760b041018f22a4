//! Serve MCP on stdin and stdout to the client that started us, until it closes stdin.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use rmcp::ServiceExt as _;
use rmcp::transport::async_rw::AsyncRwTransport;
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::mcp_server::McpServer;
use runbridge_core::paths::Environment;
use tokio::signal;

/// The longest line a client may send: the code of a run, escaped, with room to spare.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Serve until the client has gone or a signal asks us to end; then end all that was started.
pub(crate) async fn stdio() -> anyhow::Result<ExitCode> {
    let bridge = Bridge::open(Environment::of_process(), Role::Serve)?;
    for problem in bridge.settings_problems() {
        tracing::warn!("{problem}");
    }
    let connection = bridge.connect();
    let server = McpServer::new(Arc::clone(&bridge), Arc::clone(&connection));
    let transport = AsyncRwTransport::new_server(tokio::io::stdin(), tokio::io::stdout())
        .with_max_line_length(LINE_BYTES_MAX);
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
    let outcome = tokio::select! {
        outcome = served => outcome.map(|_| ()),
        () = asked_to_end() => Ok(()),
    };
    bridge.disconnect(&connection).await;
    bridge.shut_down().await;
    if let Err(error) = outcome {
        // A client that leaves before its greeting is no fault of ours.
        tracing::info!("{error:#}");
    }
    // The runtime would wait for the thread that reads stdin, which a signal does not wake.
    std::process::exit(0);
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
    #[cfg(not(unix))]
    if signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
