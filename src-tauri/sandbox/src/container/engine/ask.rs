//! Ask a socket who is there.
//!
//! Plain HTTP/1.0 requests, because the client library's types lack what tells a rootless Podman
//! and do not know the states of its containers, and because a refused connection must keep its
//! reason. Who it is comes from the headers of `/_ping`: Podman takes half a second for `/version`.

use std::io;
use std::path::Path;
use std::time::Duration;

use bollard::ClientVersion;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::EngineKind;
use super::search::{Address, Os};
use crate::container::hex;

/// How long an engine may take to say who it is. A healthy one needs milliseconds; one that wakes
/// its virtual machine first is not healthy enough to wait for.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Docker's `info` is some 5 kB, and grows with plugins.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// What an engine says of itself.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) address: Address,
    pub(super) kind: EngineKind,
    pub(super) version: String,
    pub(super) api: ClientVersion,
    pub(super) rootless: bool,
    /// 1 or 2, where the engine tells it.
    pub(super) cgroup_version: Option<u8>,
    pub(super) limits: CanLimit,
}

/// What an engine can limit by its own word. What it took on is read back from each container; but
/// rootless Docker without cgroups writes down all that it is asked for, and keeps nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct CanLimit {
    #[serde(rename = "MemoryLimit")]
    pub(crate) memory: bool,
    #[serde(rename = "PidsLimit")]
    pub(crate) processes: bool,
    #[serde(rename = "CpuCfsQuota")]
    pub(crate) cpus: bool,
}

/// Of an engine that says nothing of it.
impl Default for CanLimit {
    fn default() -> Self {
        Self {
            memory: true,
            processes: true,
            cpus: true,
        }
    }
}

/// What only `/info` tells.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Info {
    /// Only Podman has it.
    rootless: bool,
    security_options: Vec<String>,
    cgroup_version: String,
    #[serde(flatten)]
    limits: CanLimit,
}

impl Info {
    fn rootless(&self) -> bool {
        self.rootless
            || self
                .security_options
                .iter()
                .any(|option| option.contains("name=rootless"))
    }

    fn cgroup_version(&self) -> Option<u8> {
        self.cgroup_version.parse().ok()
    }
}

/// Ask; an error is the reason in a few words.
pub(super) async fn who_is_there(address: &Address, within: Duration) -> Result<Answer, String> {
    if let Address::Refused(text) = address {
        return Err(refusal(text));
    }
    match tokio::time::timeout(within, questions(address)).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {within:?}")),
    }
}

fn refusal(text: &str) -> String {
    let remote = ["tcp://", "ssh://", "http://", "https://"];
    if remote.iter().any(|scheme| text.starts_with(scheme)) {
        "a remote engine is not used: the sandbox must run on this machine".to_owned()
    } else {
        "not the address of a socket".to_owned()
    }
}

async fn questions(address: &Address) -> Result<Answer, String> {
    let (ping, peer_uid) = exchange(address, "/_ping").await?;
    let api = ping
        .header("api-version")
        .and_then(parse_version)
        .ok_or("it does not answer as an engine does")?;
    let server = ping.header("server").unwrap_or_default();
    let libpod = ping.header("libpod-api-version");
    let kind = if libpod.is_some() {
        EngineKind::Podman
    } else {
        EngineKind::Docker
    };
    // `Docker/29.0.1 (linux)`
    let docker = server.split(['/', ' ']).nth(1).unwrap_or_default();
    let version = libpod.unwrap_or(docker).to_owned();
    let (rootless, cgroup_version, limits) = match peer_uid {
        // Podman needs a quarter of a second for `/info`. Where it shares our kernel, the user it
        // runs as and the kernel say the same.
        Some(uid) if kind == EngineKind::Podman && Os::current() == Os::Linux => (
            uid != 0,
            Some(cgroup_version_of(Path::new("/sys/fs/cgroup"))),
            CanLimit::default(),
        ),
        _ => {
            let info: Info = get(address, "/info", &[]).await?;
            (info.rootless(), info.cgroup_version(), info.limits)
        }
    };
    Ok(Answer {
        address: address.clone(),
        kind,
        version,
        api,
        rootless,
        cgroup_version,
        limits,
    })
}

/// Version 2 alone has this file in the root of its tree; what mixes both is version 1 to engines.
fn cgroup_version_of(tree: &Path) -> u8 {
    if tree.join("cgroup.controllers").exists() {
        2
    } else {
        1
    }
}

/// `1.41`
fn parse_version(text: &str) -> Option<ClientVersion> {
    let (major, minor) = text.split_once('.')?;
    Some(ClientVersion {
        major_version: major.parse().ok()?,
        minor_version: minor.parse().ok()?,
    })
}

/// One request, answered in JSON.
pub(super) async fn get<T: DeserializeOwned>(
    address: &Address,
    path: &str,
    query: &[(&str, &str)],
) -> Result<T, String> {
    let (reply, _) = exchange(address, &target(path, query)).await?;
    serde_json::from_slice(&reply.body)
        .map_err(|_| format!("it does not answer {path} as an engine does"))
}

/// A reply as it came.
struct Reply {
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One request on a connection of its own; with it the user that answers, where the system tells.
async fn exchange(address: &Address, target: &str) -> Result<(Reply, Option<u32>), String> {
    let (reply, peer_uid) = match address {
        #[cfg(unix)]
        Address::Unix(socket) => match tokio::net::UnixStream::connect(socket).await {
            Ok(stream) => {
                let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                (send_and_read(stream, target).await, uid)
            }
            Err(error) => return Err(no_connection(&error)),
        },
        #[cfg(windows)]
        Address::Pipe(pipe) => {
            match tokio::net::windows::named_pipe::ClientOptions::new()
                .open(pipe.replace('/', "\\"))
            {
                Ok(stream) => (send_and_read(stream, target).await, None),
                Err(error) => return Err(no_connection(&error)),
            }
        }
        other => return Err(format!("{other} cannot be reached from this system")),
    };
    Ok((
        reply.map_err(|error| format!("it broke off: {error}"))?,
        peer_uid,
    ))
}

fn no_connection(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "absent".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::ConnectionRefused => {
            "not running (its socket is there, nothing listens)".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A path with its query, in which whatever is not plain is escaped.
fn target(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    for (index, (key, value)) in query.iter().enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(key);
        target.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    target.push(char::from(byte));
                }
                _ => {
                    target.push('%');
                    target.push_str(&hex(&[byte]));
                }
            }
        }
    }
    target
}

/// HTTP/1.0 makes the engine close the connection behind its reply, which is how it ends.
async fn send_and_read(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    target: &str,
) -> io::Result<Reply> {
    stream
        .write_all(format!("GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())
        .await?;
    let mut bytes = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut bytes)
        .await?;
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap_or(bytes.len());
    let body = bytes.split_off((end + 4).min(bytes.len()));
    Ok(Reply {
        head: String::from_utf8_lossy(&bytes).into_owned(),
        body,
    })
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use super::*;

    /// A socket that answers each request with the next head and body.
    fn engine(dir: &std::path::Path, answers: Vec<(&'static str, &'static str)>) -> Address {
        let path = dir.join("engine.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            for (headers, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await.unwrap();
                let answer = format!("HTTP/1.0 200 OK\r\n{headers}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Address::Unix(path)
    }

    const PODMAN: &str =
        "Api-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\nServer: Libpod/4.3.1 (linux)";
    const DOCKER: &str = "Api-Version: 1.51\r\nServer: Docker/29.0.1 (linux)";

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn podman_is_known_by_its_greeting_alone() {
        let dir = tempfile::tempdir().unwrap();
        // It answers one request; a second would find nobody.
        let address = engine(dir.path(), vec![(PODMAN, "OK")]);
        let answer = who_is_there(&address, ANSWER_WITHIN).await.unwrap();
        assert_eq!(
            (answer.kind, answer.version.as_str(), answer.rootless),
            (
                EngineKind::Podman,
                "4.3.1",
                !rustix::process::geteuid().is_root()
            )
        );
        assert!(answer.cgroup_version.is_some());
    }

    #[test]
    fn the_cgroup_version_is_read_off_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("memory")).unwrap();
        assert_eq!(cgroup_version_of(dir.path()), 1);
        std::fs::write(dir.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert_eq!(cgroup_version_of(dir.path()), 2);
    }

    #[tokio::test]
    async fn docker_is_rootless_by_its_security_options() {
        let dir = tempfile::tempdir().unwrap();
        let info = r#"{"SecurityOptions":["name=seccomp,profile=builtin","name=rootless"],"CgroupVersion":"2","MemoryLimit":true,"CpuCfsQuota":false}"#;
        let address = engine(dir.path(), vec![(DOCKER, "OK"), ("X: y", info)]);
        let answer = who_is_there(&address, ANSWER_WITHIN).await.unwrap();
        assert_eq!(
            (
                answer.kind,
                answer.version.as_str(),
                answer.rootless,
                answer.cgroup_version,
                answer.api.minor_version
            ),
            (EngineKind::Docker, "29.0.1", true, Some(2), 51)
        );
        // It says nothing of processes.
        let CanLimit {
            memory,
            processes,
            cpus,
        } = answer.limits;
        assert_eq!((memory, processes, cpus), (true, true, false));
    }

    #[test]
    fn a_query_is_escaped() {
        assert_eq!(
            target("/x", &[("a", "1"), ("f", r#"{"l":["b=c"]}"#)]),
            "/x?a=1&f=%7B%22l%22%3A%5B%22b%3Dc%22%5D%7D"
        );
    }

    #[tokio::test]
    async fn each_place_that_fails_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join("dead.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let stranger = engine(dir.path(), vec![("Content-Type: text/html", "<html>")]);
        for (address, reason) in [
            (Address::Unix(dir.path().join("none.sock")), "absent"),
            (Address::Unix(dead), "not running"),
            (stranger, "does not answer as an engine does"),
            (
                Address::Refused("tcp://10.0.0.5:2375".into()),
                "a remote engine is not used",
            ),
            (
                Address::Refused("nonsense".into()),
                "not the address of a socket",
            ),
        ] {
            let said = who_is_there(&address, ANSWER_WITHIN).await.unwrap_err();
            assert!(said.contains(reason), "{address}: {said}");
        }
    }

    #[tokio::test]
    async fn an_engine_that_never_answers_is_left_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent.sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let said = who_is_there(&Address::Unix(path), Duration::from_millis(20))
            .await
            .unwrap_err();
        assert_eq!(said, "no answer within 20ms");
    }
}
