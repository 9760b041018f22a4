//! A proxy on loopback that harms what passes through it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// What happens to answers that begin from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    None,
    /// Each piece comes later.
    Latency(Duration),
    /// The connection closes after so many bytes.
    CutAfter(usize),
    /// The same with a reset.
    ResetAfter(usize),
    /// Nothing comes after so many bytes, and the connection stays.
    StallAfter(usize),
    /// So many bytes at a time, with a pause.
    Trickle(usize, Duration),
}

pub(crate) struct FaultProxy {
    pub(crate) address: SocketAddr,
    harm: Arc<Mutex<Harm>>,
    _task: AbortOnDropHandle<()>,
}

impl FaultProxy {
    pub(crate) async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let harm = Arc::new(Mutex::new(Harm::None));
        let shared = Arc::clone(&harm);
        let task = tokio::spawn(async move {
            let mut connections = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                let passing = tokio::spawn(pass(client, target, Arc::clone(&shared)));
                connections.push(AbortOnDropHandle::new(passing));
            }
        });
        Self {
            address,
            harm,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(crate) fn set(&self, harm: Harm) {
        *self.harm.lock().unwrap() = harm;
    }
}

async fn pass(client: TcpStream, target: SocketAddr, harm: Arc<Mutex<Harm>>) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        let mut passed = 0;
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let harm = *harm.lock().unwrap();
            let mut piece = &buffer[..count];
            match harm {
                Harm::None => {}
                Harm::Latency(latency) => sleep(latency).await,
                Harm::CutAfter(bytes) | Harm::ResetAfter(bytes) | Harm::StallAfter(bytes) => {
                    piece = &piece[..piece.len().min(bytes.saturating_sub(passed))];
                }
                Harm::Trickle(bytes, pause) => {
                    for some in piece.chunks(bytes) {
                        if to_client.write_all(some).await.is_err() {
                            return;
                        }
                        sleep(pause).await;
                    }
                    continue;
                }
            }
            passed += piece.len();
            if to_client.write_all(piece).await.is_err() {
                return;
            }
            if piece.len() < count {
                match harm {
                    Harm::StallAfter(_) => std::future::pending().await,
                    Harm::ResetAfter(_) => {
                        let _ = to_client.as_ref().set_zero_linger();
                        return;
                    }
                    _ => return,
                }
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
