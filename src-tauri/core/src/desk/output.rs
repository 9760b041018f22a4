//! The last words of servers, and word of new ones while a window shows them, and never else.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;

use super::{Answer, Desk, Inner, lock};
use crate::api::{Change, ServerOutput};
use crate::calls::redacted_line;
use crate::catalog::CatalogEvent;
use crate::live_runs::TELL_EVERY;

/// The server whose words are told.
pub(super) struct Watched {
    server: String,
    #[allow(dead_code, reason = "telling ends with it")]
    telling: AbortOnDropHandle<()>,
}

impl Desk {
    /// What a server wrote and logged last.
    pub fn read_server_output(&self, server: &str) -> Answer<ServerOutput> {
        let inner = &self.0;
        let catalog = inner.bridge.catalog();
        let failed = |error| inner.upstream(&error);
        let redactor = inner.bridge.redactor();
        let log = catalog.log(server).map_err(failed)?;
        Ok(ServerOutput {
            stderr: inner.redacted(&catalog.stderr(server).map_err(failed)?),
            log: log
                .into_iter()
                .map(|line| redacted_line(line, &redactor))
                .collect(),
        })
    }

    /// Have word of what a server writes and logs from now on, in place of any other server's, or no
    /// longer. Windows may switch from one to the next in any order.
    pub fn watch_server_output(&self, server: &str, on: bool) {
        let mut watched = lock(&self.0.reading_out);
        if on {
            let telling = tell(Arc::clone(&self.0), server.to_owned());
            *watched = Some(Watched {
                server: server.to_owned(),
                telling: AbortOnDropHandle::new(tokio::spawn(telling)),
            });
        } else {
            watched.take_if(|watched| watched.server == server);
        }
    }
}

/// Runs until it is dropped. What came before it began may have been read or not, so it is told of too.
async fn tell(inner: Arc<Inner>, server: String) {
    let catalog = inner.bridge.catalog();
    let mut events = catalog.subscribe();
    loop {
        let written = catalog.written(&server);
        let changed = async {
            let Ok(mut written) = written else {
                return std::future::pending().await;
            };
            loop {
                inner.bridge.events().tell(Change::ServerOutput {
                    server: server.clone(),
                });
                tokio::time::sleep(TELL_EVERY).await;
                if written.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        // A changed entry has another connection, with words of its own.
        let replaced = async {
            loop {
                match events.recv().await {
                    Ok(CatalogEvent::Servers) | Err(RecvError::Lagged(_)) => return true,
                    Ok(CatalogEvent::State { .. } | CatalogEvent::Tools { .. }) => {}
                    Err(RecvError::Closed) => return false,
                }
            }
        };
        tokio::select! {
            () = changed => {}
            again = replaced => if !again { return },
        }
    }
}
