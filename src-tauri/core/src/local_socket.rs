//! The socket between the app and the sidecars of one user: where it is, who may own it, and the
//! greeting of both ends. After the greeting the socket carries plain MCP lines, of which this
//! module knows nothing.
//!
//! Three things keep others out: the folder is the user's alone, the system tells each end whose
//! process the other is, and a token from a file that only the user can read is shown first.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::io::{AsyncWrite, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::atomic::{self, Lock, LockError};
use crate::paths::Paths;
use crate::secrets::Secret;
use crate::token;

/// The form of the greeting. Another number means that the two ends come from versions which cannot
/// talk; a new field does not need one.
const FORMAT: u32 = 1;

/// Longest greeting: a path of 4 KiB, escaped, and a few words.
const GREETING_BYTES_MAX: u64 = 32 * 1024;

/// How long either end waits for the other's greeting. It needs no more than a turn of the
/// scheduler; a machine that is very busy takes seconds for that.
pub const GREETING_WITHIN: Duration = Duration::from_secs(3);

/// Longest path of a socket that every Unix takes: macOS has 104 bytes with the zero at the end.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Where the pieces are.
#[derive(Debug)]
struct Places {
    /// The folder of lock and token.
    folder: PathBuf,
    /// The folder of the socket; another one if the path would be too long for a socket.
    socket_folder: PathBuf,
    socket: PathBuf,
    token: PathBuf,
    lock: PathBuf,
}

impl Places {
    fn of(paths: &Paths) -> Self {
        let folder = paths.runtime.clone();
        let near = folder.join("app.sock");
        let (socket_folder, socket) = if near.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
            (folder.clone(), near)
        } else {
            let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
            let uid = own_uid();
            let short = PathBuf::from(format!("/tmp/runbridge-{uid}"));
            let name = format!("{}.sock", token::hex(&digest[..8]));
            (short.clone(), short.join(name))
        };
        Self {
            token: folder.join("app.token"),
            lock: folder.join("app.lock"),
            folder,
            socket_folder,
            socket,
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
    #[error("`{}` is no socket; remove it", path.display())]
    InTheWay {
        /// The path.
        path: PathBuf,
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
        for folder in [&places.folder, &places.socket_folder] {
            make_private(folder)?;
        }
        let lock = match Lock::take(&places.lock, Duration::ZERO) {
            Ok(lock) => lock,
            Err(LockError::Busy { path, .. }) => return Err(ClaimError::Taken { lock: path }),
            Err(LockError::Io { path, source }) => {
                return Err(ClaimError::Io {
                    what: "lock",
                    path,
                    source,
                });
            }
        };
        Ok(Self(Arc::new(Claim {
            places,
            _lock: lock,
        })))
    }

    /// Listen. What a crashed app left in the way is removed, which only the holder of the lock may.
    pub(crate) fn bind(&self) -> Result<Bound, ClaimError> {
        let places = &self.0.places;
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| ClaimError::Io { what, path, source }
        };
        match fs::symlink_metadata(&places.socket) {
            Ok(found) if found.file_type().is_socket() => {
                fs::remove_file(&places.socket).map_err(failed("remove", &places.socket))?;
            }
            Ok(_) => {
                return Err(ClaimError::InTheWay {
                    path: places.socket.clone(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed("look at", &places.socket)(source)),
        }
        let token = token::fresh().map_err(failed("make a token for", &places.socket))?;
        // The token first: who finds the socket may look for it at once.
        atomic::write(&places.token, token.expose().as_bytes())
            .map_err(failed("write", &places.token))?;
        let listener =
            UnixListener::bind(&places.socket).map_err(failed("listen on", &places.socket))?;
        let bound = Bound {
            listener,
            token,
            owner: self.clone(),
        };
        fs::set_permissions(&places.socket, Permissions::from_mode(0o600))
            .map_err(failed("protect", &places.socket))?;
        Ok(bound)
    }
}

/// The socket of the owner; its files go with it.
pub(crate) struct Bound {
    pub(crate) listener: UnixListener,
    pub(crate) token: Secret,
    owner: Owner,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let places = &self.owner.0.places;
        for path in [&places.socket, &places.token] {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!("cannot remove `{}`: {error}", path.display());
            }
        }
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
    pub read: BufReader<OwnedReadHalf>,
    /// To the app.
    pub write: OwnedWriteHalf,
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
    let stream = UnixStream::connect(&places.socket).await.map_err(absent)?;
    if !is_own(&stream) {
        return Err(ConnectError::NotOurs {
            path: places.socket.clone(),
        });
    }
    let (read, mut write) = stream.into_split();
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

/// Whether the process at the other end belongs to our user. When in doubt it does not.
pub(crate) fn is_own(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own_uid())
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Have a folder that only this user may enter.
fn make_private(folder: &Path) -> Result<(), ClaimError> {
    let failed = |what| {
        let path = folder.to_owned();
        move |source| ClaimError::Io { what, path, source }
    };
    atomic::create_folder(folder).map_err(failed("create"))?;
    let found = fs::symlink_metadata(folder).map_err(failed("look at"))?;
    if !found.is_dir() || found.uid() != own_uid() {
        return Err(ClaimError::NotOurs {
            folder: folder.to_owned(),
        });
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(failed("protect"))?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    #[test]
    fn a_long_path_gets_a_short_socket_that_is_its_own() {
        let long = |name: &str| Paths::under(&Path::new("/").join("long".repeat(40)).join(name));
        let (one, other) = (Places::of(&long("one")), Places::of(&long("other")));
        for places in [&one, &other] {
            assert!(places.socket.as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
            assert_eq!(
                places.lock.parent(),
                Some(&*places.folder),
                "only the socket is elsewhere"
            );
        }
        assert_ne!(one.socket, other.socket);
        assert_eq!(one.socket, Places::of(&long("one")).socket);
        let near = Places::of(&Paths::under(Path::new("/home/u")));
        assert_eq!(near.socket_folder, near.folder);
    }

    #[test]
    fn folders_of_others_and_links_are_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let error = make_private(&link).unwrap_err();
        assert!(matches!(error, ClaimError::NotOurs { .. }), "{error}");
    }
}
