//! The socket between the app and the sidecars of one user: where it is, who may own it, and the
//! greeting of both ends. After the greeting the socket carries plain MCP lines, of which this
//! module knows nothing.
//!
//! Three things keep others out: the folder is the user's alone, the system tells each end whose
//! process the other is, and a token from a file that only the user can read is shown first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::io::{AsyncWrite, BufReader};

use crate::atomic::{self, Lock, LockError};
use crate::paths::Paths;
use crate::secrets::Secret;
use crate::token;

#[cfg(any(windows, test))]
#[cfg_attr(
    not(windows),
    expect(unreachable_pub, reason = "only the ends of pipes are given away")
)]
mod ending;
#[cfg_attr(unix, path = "local_socket/unix.rs")]
#[cfg_attr(windows, path = "local_socket/windows.rs")]
mod os;

pub(crate) use self::os::{Cutter, Listening, Stream};
pub use self::os::{ReadHalf, WriteHalf};

/// The form of the greeting. Another number means that the two ends come from versions which cannot
/// talk; a new field does not need one.
const FORMAT: u32 = 1;

/// Longest greeting: a path of 4 KiB, escaped, and a few words.
const GREETING_BYTES_MAX: u64 = 32 * 1024;

/// How long either end waits for the other's greeting. It needs no more than a turn of the
/// scheduler; a machine that is very busy takes seconds for that.
pub const GREETING_WITHIN: Duration = Duration::from_secs(3);

/// Where the pieces are.
#[derive(Debug)]
struct Places {
    /// The folder of lock and token.
    folder: PathBuf,
    /// The socket, as the system finds it.
    address: PathBuf,
    token: PathBuf,
    lock: PathBuf,
}

impl Places {
    fn of(paths: &Paths) -> Self {
        let folder = paths.runtime.clone();
        Self {
            address: os::address(&folder),
            token: folder.join("app.token"),
            lock: folder.join("app.lock"),
            folder,
        }
    }
}

/// Why this process is not the app that serves the user's clients.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another app is.
    #[error("another Runbridge app of this user runs already; it holds `{}`", lock.display())]
    Taken {
        /// The lock that it holds.
        lock: PathBuf,
    },
    /// A folder that must be private is not.
    #[error("`{}` belongs to another user or is no folder; remove it", folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
    },
    /// Something else is where the socket should be.
    #[error("`{}` is in the way: {why}", path.display())]
    InTheWay {
        /// The path.
        path: PathBuf,
        /// What it is, and what to do.
        why: &'static str,
    },
    /// The system refused.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ClaimError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// The right to be the one app of this user, held by a lock of the system: a crash gives it back.
#[derive(Clone, Debug)]
pub struct Owner(Arc<Claim>);

#[derive(Debug)]
struct Claim {
    places: Places,
    _lock: Lock,
}

impl Owner {
    /// Become the owner, unless another process is. Keep the value for as long as the bridge lives.
    pub fn claim(paths: &Paths) -> Result<Self, ClaimError> {
        let places = Places::of(paths);
        os::prepare(&places.folder, &places.address)?;
        let lock = Lock::take(&places.lock, Duration::ZERO).map_err(|error| match error {
            LockError::Busy { path, .. } => ClaimError::Taken { lock: path },
            LockError::Io { path, source } => ClaimError::io("lock", &path)(source),
        })?;
        Ok(Self(Arc::new(Claim {
            places,
            _lock: lock,
        })))
    }

    /// Listen. What a crashed app left in the way is removed.
    pub(crate) fn bind(&self) -> Result<Bound, ClaimError> {
        let places = &self.0.places;
        os::clear(&places.address)?;
        let token = token::fresh().map_err(ClaimError::io("make a token for", &places.address))?;
        // The token first: who finds the socket may look for it at once.
        atomic::write(&places.token, token.expose().as_bytes())
            .map_err(ClaimError::io("write", &places.token))?;
        Ok(Bound {
            listening: Listening::at(&places.address)?,
            token,
            owner: self.clone(),
        })
    }
}

/// The socket of the owner, and the token that opens it; their files go with it.
pub(crate) struct Bound {
    pub(crate) listening: Listening,
    pub(crate) token: Secret,
    owner: Owner,
}

impl Drop for Bound {
    fn drop(&mut self) {
        remove(&self.owner.0.places.token);
    }
}

/// Remove a file that is not needed any more.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!("cannot remove `{}`: {error}", path.display());
    }
}

/// What a sidecar says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The folder that its client started it in.
    pub cwd: PathBuf,
    /// It served its client from another bridge before, where that client ran code.
    pub resumed: bool,
    /// It has no client of its own, and asks for clients to be served over HTTP at this port of
    /// loopback for as long as it stays; 0: at any.
    pub http_port: Option<u16>,
}

/// Where the app serves HTTP for a sidecar that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The port.
    pub port: u16,
    /// The file with the token that clients show.
    pub token_file: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct HelloLine {
    runbridge: u32,
    version: String,
    pid: u32,
    cwd: PathBuf,
    #[serde(default)]
    resumed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http_port: Option<u16>,
    token: String,
}

#[derive(Serialize, Deserialize)]
struct WelcomeLine {
    runbridge: u32,
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<Refusal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<Served>,
}

/// The one field that every form of the greeting has.
#[derive(Deserialize)]
struct AnyLine {
    runbridge: u32,
}

/// Why the app does not serve a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The greeting was none.
    #[error("it did not understand the greeting")]
    Unreadable,
    /// The greeting has the form of another version.
    #[error("it is of a version that greets in another way; update both")]
    Format,
    /// The token was wrong.
    #[error("it did not accept the token")]
    Token,
    /// There are too many clients.
    #[error("it serves as many clients as it can")]
    Busy,
    /// There is no HTTP at that port.
    #[error("it cannot serve HTTP at that port")]
    Port,
}

/// Read and check a sidecar's greeting.
pub(crate) async fn hear_hello(
    stream: &mut (impl AsyncBufRead + Unpin),
    token: &Secret,
) -> Result<Hello, Refusal> {
    let line = read_greeting(stream)
        .await
        .map_err(|_| Refusal::Unreadable)?;
    let any: AnyLine = serde_json::from_slice(&line).map_err(|_| Refusal::Unreadable)?;
    if any.runbridge != FORMAT {
        return Err(Refusal::Format);
    }
    let hello: HelloLine = serde_json::from_slice(&line).map_err(|_| Refusal::Unreadable)?;
    if !token::same(hello.token.as_bytes(), token.expose().as_bytes()) {
        return Err(Refusal::Token);
    }
    Ok(Hello {
        version: hello.version,
        pid: hello.pid,
        cwd: hello.cwd,
        resumed: hello.resumed,
        http_port: hello.http_port,
    })
}

/// Answer a sidecar's greeting.
pub(crate) async fn say_welcome(
    stream: &mut (impl AsyncWrite + Unpin),
    answer: Result<Option<Served>, Refusal>,
) -> io::Result<()> {
    let (http, refused) = match answer {
        Ok(http) => (http, None),
        Err(refused) => (None, Some(refused)),
    };
    let line = WelcomeLine {
        runbridge: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        refused,
        http,
    };
    write_greeting(stream, &line).await
}

/// A sidecar's way to the app.
#[derive(Debug)]
pub struct AppStream {
    /// From the app.
    pub read: BufReader<ReadHalf>,
    /// To the app.
    pub write: WriteHalf,
    /// The app's version.
    pub version: String,
    /// Where it serves HTTP, if that was asked for and it can.
    pub http: Option<Served>,
}

/// Why there is no way to the app.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No app runs.
    #[error("no Runbridge app runs")]
    Absent,
    /// It does not want us.
    #[error("the Runbridge app (version {version}) refused: {why}")]
    Refused {
        /// The app's version.
        version: String,
        /// Its reason.
        why: Refusal,
    },
    /// The socket belongs to someone else's process.
    #[error("`{}` is served by a process of another user", path.display())]
    NotOurs {
        /// The socket.
        path: PathBuf,
    },
    /// It took too long.
    #[error("the Runbridge app did not answer within {} s", GREETING_WITHIN.as_secs())]
    Silent,
    /// The connection broke or carried something else.
    #[error("the Runbridge app cannot be reached: {0}")]
    Io(#[from] io::Error),
}

/// Find the app of this user and greet it. Returns within [`GREETING_WITHIN`], and at once if there
/// is none.
pub async fn connect(paths: &Paths, hello: &Hello) -> Result<AppStream, ConnectError> {
    let places = Places::of(paths);
    tokio::time::timeout(GREETING_WITHIN, greet(&places, hello))
        .await
        .unwrap_or(Err(ConnectError::Silent))
}

async fn greet(places: &Places, hello: &Hello) -> Result<AppStream, ConnectError> {
    let absent = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ConnectError::Absent,
        _ => ConnectError::Io(error),
    };
    // Small, ours and local: not worth a thread of the runtime.
    let token = fs::read_to_string(&places.token).map_err(absent)?;
    let stream = Stream::connect(&places.address).await.map_err(absent)?;
    if !stream.is_own() {
        return Err(ConnectError::NotOurs {
            path: places.address.clone(),
        });
    }
    let (read, mut write, _) = stream.into_parts()?;
    let mut read = BufReader::new(read);
    let line = HelloLine {
        runbridge: FORMAT,
        version: hello.version.clone(),
        pid: hello.pid,
        cwd: hello.cwd.clone(),
        resumed: hello.resumed,
        http_port: hello.http_port,
        token,
    };
    write_greeting(&mut write, &line).await?;
    let answer = read_greeting(&mut read).await?;
    let welcome: WelcomeLine = serde_json::from_slice(&answer).map_err(io::Error::from)?;
    match welcome.refused {
        None => Ok(AppStream {
            read,
            write,
            version: welcome.version,
            http: welcome.http,
        }),
        Some(why) => Err(ConnectError::Refused {
            version: welcome.version,
            why,
        }),
    }
}

async fn read_greeting(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    stream
        .take(GREETING_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .await?;
    if line.pop() == Some(b'\n') {
        Ok(line)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the greeting is cut off or too long",
        ))
    }
}

async fn write_greeting(
    stream: &mut (impl AsyncWrite + Unpin),
    line: &impl Serialize,
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    stream.write_all(&bytes).await
}
