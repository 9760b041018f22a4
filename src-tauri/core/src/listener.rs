//! Lends one bridge out on the local socket: accepts sidecars, greets them and serves MCP to each.
//!
//! Knows who is connected, not what they run. One task per client; none can hold up another.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use tokio::io::BufReader;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::bridge::{Bridge, ConnectedClient, Connection};
use crate::http_face::HttpFace;
use crate::local_socket::{
    self, Bound, ClaimError, Cutter, GREETING_WITHIN, Hello, Owner, ReadHalf, Refusal, Served,
    Stream, WriteHalf,
};
use crate::mcp_server::{self, McpServer};
use crate::secrets::Secret;
use crate::timestamp::now_ms;

/// Clients served at once; more are refused as busy and help themselves. Ten editors with ten
/// windows each stay below it.
const CLIENTS_MAX: usize = 128;

/// Connections that have not greeted yet; more wait in the system's own queue. Those who never
/// greet hold a place for [`GREETING_WITHIN`].
const GREETINGS_MAX: usize = 64;

/// Pause after the system could not accept, such as for lack of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How long clients may take to be let go when the listener is shut down: the longest grace of a
/// run and some.
const LET_GO_WITHIN: Duration = Duration::from_secs(6);

/// The listening socket with its clients. Dropping it lets all of them go.
pub struct Listener {
    bridge: Arc<Bridge>,
    tasks: TaskTracker,
    accepting: AbortOnDropHandle<()>,
    stop: DropGuard,
}

struct Shared {
    bridge: Arc<Bridge>,
    token: Secret,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Listener {
    /// Serve `bridge` to the sidecars of this user. Needs a tokio runtime.
    pub fn open(bridge: Arc<Bridge>, owner: &Owner) -> Result<Self, ClaimError> {
        let bound = owner.bind()?;
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            bridge: Arc::clone(&bridge),
            token: bound.token.clone(),
            places: Arc::new(Semaphore::new(CLIENTS_MAX)),
            stop: stop.clone(),
        });
        let tasks = TaskTracker::new();
        let accepting = tokio::spawn(accept(bound, shared, tasks.clone()));
        Ok(Self {
            bridge,
            tasks,
            accepting: AbortOnDropHandle::new(accepting),
            stop: stop.drop_guard(),
        })
    }

    /// Who is connected now, and each change of it.
    pub fn clients(&self) -> watch::Receiver<Vec<ConnectedClient>> {
        self.bridge.clients()
    }

    /// Let all clients go and remove the socket. Their sidecars answer what is under way; runs are
    /// cancelled and interpreters ended before this returns.
    pub async fn shut_down(self) {
        let Self {
            tasks,
            accepting,
            stop,
            ..
        } = self;
        // First, or a sidecar would come back to us.
        accepting.abort();
        // It ends by the abort, which is no news.
        let _ = accepting.await;
        drop(stop);
        tasks.close();
        if tokio::time::timeout(LET_GO_WITHIN, tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("{} clients were not let go in time", tasks.len());
        }
    }
}

fn served(face: &HttpFace) -> Served {
    let place = face.place();
    Served {
        port: place.port(),
        token_file: place.token_file().to_owned(),
    }
}

async fn accept(mut bound: Bound, shared: Arc<Shared>, tasks: TaskTracker) {
    let greetings = Arc::new(Semaphore::new(GREETINGS_MAX));
    loop {
        let Ok(place) = Arc::clone(&greetings).acquire_owned().await else {
            return;
        };
        match bound.listening.accept().await {
            Ok(stream) => {
                let shared = Arc::clone(&shared);
                tasks.spawn(async move {
                    let greeted = shared.greet(stream).await;
                    drop(place);
                    if let Some(greeted) = greeted {
                        shared.serve(greeted).await;
                    }
                });
            }
            Err(error) => {
                tracing::warn!("a client could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

/// A sidecar that may be served.
struct Greeted {
    hello: Hello,
    read: BufReader<ReadHalf>,
    write: WriteHalf,
    cutter: Cutter,
    /// It wants this and nothing else.
    face: Option<HttpFace>,
    _place: OwnedSemaphorePermit,
}

impl Shared {
    async fn greet(&self, stream: Stream) -> Option<Greeted> {
        let greeting = async {
            if !stream.is_own() {
                // Not even a reason: whoever it is has no business here.
                tracing::warn!("a process of another user tried to connect");
                return None;
            }
            let (read, mut write, cutter) = stream.into_parts().ok()?;
            let mut read = BufReader::new(read);
            let heard = local_socket::hear_hello(&mut read, &self.token).await;
            let heard = heard.and_then(|hello| {
                let place = Arc::clone(&self.places).try_acquire_owned();
                place.map(|place| (hello, place)).map_err(|_| Refusal::Busy)
            });
            let heard = match heard {
                Ok((hello, place)) => {
                    let face = self.face(hello.http_port).await;
                    face.map(|face| (hello, place, face))
                }
                Err(why) => Err(why),
            };
            let answer = match &heard {
                Ok((.., face)) => Ok(face.as_ref().map(served)),
                Err(why) => {
                    tracing::warn!("a client was refused: {why}");
                    Err(*why)
                }
            };
            if let Err(error) = local_socket::say_welcome(&mut write, answer).await {
                tracing::info!("a client left while it was greeted: {error}");
                return None;
            }
            let (hello, place, face) = heard.ok()?;
            Some(Greeted {
                hello,
                read,
                write,
                cutter,
                face,
                _place: place,
            })
        };
        tokio::select! {
            greeted = tokio::time::timeout(GREETING_WITHIN, greeting) => greeted.unwrap_or_else(|_| {
                tracing::warn!("a client did not greet in time");
                None
            }),
            () = self.stop.cancelled() => None,
        }
    }

    /// The face that a sidecar asks for.
    async fn face(&self, port: Option<u16>) -> Result<Option<HttpFace>, Refusal> {
        let Some(port) = port else { return Ok(None) };
        let opened = HttpFace::open(Arc::clone(&self.bridge), port).await;
        opened.map(Some).map_err(|error| {
            tracing::warn!("a client wants HTTP: {error}");
            Refusal::Port
        })
    }

    /// Serve over HTTP until the sidecar that asked for it has gone.
    async fn hold(&self, face: HttpFace, mut read: BufReader<ReadHalf>) {
        let mut nowhere = tokio::io::sink();
        tokio::select! {
            // It has nothing to say.
            _ = tokio::io::copy(&mut read, &mut nowhere) => {}
            () = self.stop.cancelled() => {}
        }
        face.shut_down().await;
    }

    async fn serve(&self, greeted: Greeted) {
        let Greeted {
            hello,
            read,
            write,
            cutter,
            face,
            _place,
        } = greeted;
        if let Some(face) = face {
            self.hold(face, read).await;
            // Only now the sidecar sees the end: the port is free for it.
            drop(write);
            return;
        }
        let connection = if hello.resumed {
            self.bridge.connect_resumed()
        } else {
            self.bridge.connect()
        };
        let id = connection.id();
        self.bridge.change_clients(|clients| {
            clients.push(ConnectedClient {
                connection: id,
                name: None,
                client_version: None,
                revision: None,
                pid: hello.pid,
                version: hello.version,
                cwd: hello.cwd,
                since_at: now_ms(),
            });
        });
        let mcp = self.speak(read, write, &connection);
        tokio::pin!(mcp);
        tokio::select! {
            () = &mut mcp => {}
            () = self.stop.cancelled() => {
                // The sidecar shall see the end before the cancelled runs can answer: it tells its
                // client to ask again, and no reply may say that the client cancelled.
                cutter.cut();
                connection.close();
                mcp.await;
            }
        }
        self.bridge.disconnect(&connection).await;
        self.bridge
            .change_clients(|clients| clients.retain(|client| client.connection != id));
    }

    async fn speak(
        &self,
        read: BufReader<ReadHalf>,
        write: WriteHalf,
        connection: &Arc<Connection>,
    ) {
        let server = McpServer::new(Arc::clone(&self.bridge), Arc::clone(connection));
        let service = match server.serve(mcp_server::transport(read, write)).await {
            Ok(service) => service,
            Err(error) => {
                tracing::info!("a client left before its greeting: {error}");
                return;
            }
        };
        if let Some(peer) = service.peer().peer_info() {
            let name = peer.client_info.name.clone();
            let version = peer.client_info.version.clone();
            let revision = peer.protocol_version.to_string();
            self.bridge.change_clients(|clients| {
                let own = clients
                    .iter_mut()
                    .find(|client| client.connection == connection.id());
                if let Some(client) = own {
                    client.name = Some(name);
                    client.client_version = Some(version).filter(|version| !version.is_empty());
                    client.revision = Some(revision);
                }
            });
        }
        if let Err(error) = service.waiting().await {
            tracing::warn!("serving a client broke off: {error}");
        }
    }
}
