//! Ask a socket who is there.
//!
//! Plain HTTP/1.0 requests, because the client library's types lack what tells a rootless Podman
//! and do not know the states of its containers, and because a refused connection must keep its
//! reason.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::EngineKind;
use super::search::Address;

/// How long an engine may take to say who it is. A healthy one needs milliseconds; one that wakes
/// its virtual machine first is not healthy enough to wait for.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Docker's `info` is some 5 kB, and grows with plugins.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What an engine says of itself.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) address: Address,
    pub(super) kind: EngineKind,
    pub(super) version: String,
    pub(super) rootless: bool,
    pub(super) cgroup_version: Option<u8>,
    pub(super) in_virtual_machine: bool,
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
    let version: Version = get(address, "/version", &[]).await?;
    let info: Info = get(address, "/info", &[]).await?;
    Ok(Answer {
        address: address.clone(),
        kind: version.kind(),
        version: version.version,
        rootless: info.rootless
            || info
                .security_options
                .iter()
                .any(|option| option.contains("name=rootless")),
        cgroup_version: info.cgroup_version.parse().ok(),
        // Docker Desktop for Linux runs a virtual machine and says so.
        in_virtual_machine: info.operating_system.contains("Docker Desktop"),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    version: String,
    #[serde(default)]
    components: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Component {
    name: String,
}

impl Version {
    fn kind(&self) -> EngineKind {
        if self
            .components
            .iter()
            .any(|component| component.name.starts_with("Podman"))
        {
            EngineKind::Podman
        } else {
            EngineKind::Docker
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Info {
    /// Only Podman has it.
    rootless: bool,
    security_options: Vec<String>,
    cgroup_version: String,
    operating_system: String,
}

/// One request, answered in JSON.
pub(super) async fn get<T: DeserializeOwned>(
    address: &Address,
    path: &str,
    query: &[(&str, &str)],
) -> Result<T, String> {
    let target = target(path, query);
    let body = match address {
        #[cfg(unix)]
        Address::Unix(socket) => match tokio::net::UnixStream::connect(socket).await {
            Ok(stream) => exchange(stream, &target).await,
            Err(error) => return Err(no_connection(&error)),
        },
        #[cfg(windows)]
        Address::Pipe(pipe) => {
            match tokio::net::windows::named_pipe::ClientOptions::new()
                .open(pipe.replace('/', "\\"))
            {
                Ok(stream) => exchange(stream, &target).await,
                Err(error) => return Err(no_connection(&error)),
            }
        }
        other => return Err(format!("{other} cannot be reached from this system")),
    };
    let body = body.map_err(|error| format!("it broke off: {error}"))?;
    serde_json::from_slice(&body)
        .map_err(|_| format!("it does not answer {path} as an engine does"))
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
                    target.push(char::from(byte))
                }
                _ => target.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    target
}

/// One request on a fresh connection; HTTP/1.0 makes the engine close it behind the answer.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
) -> io::Result<Vec<u8>> {
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .await?;
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n");
    Ok(split
        .map(|end| answer.split_off(end + 4))
        .unwrap_or_default())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use super::*;

    /// A socket that answers each request with the next text.
    fn engine(dir: &std::path::Path, answers: Vec<String>) -> Address {
        let path = dir.join("engine.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await.unwrap();
                stream
                    .write_all(format!("HTTP/1.0 200 OK\r\n\r\n{answer}").as_bytes())
                    .await
                    .unwrap();
            }
        });
        Address::Unix(path)
    }

    #[tokio::test]
    async fn podman_is_known_by_its_components_and_rootless_by_its_info() {
        let dir = tempfile::tempdir().unwrap();
        let address = engine(
            dir.path(),
            vec![
                r#"{"Version":"4.3.1","Components":[{"Name":"Podman Engine","Version":"4.3.1"}]}"#
                    .into(),
                r#"{"Rootless":true,"SecurityOptions":["name=seccomp"],"CgroupVersion":"1"}"#
                    .into(),
            ],
        );
        let answer = who_is_there(&address, ANSWER_WITHIN).await.unwrap();
        assert_eq!(
            (
                answer.kind,
                answer.version.as_str(),
                answer.rootless,
                answer.cgroup_version
            ),
            (EngineKind::Podman, "4.3.1", true, Some(1))
        );
    }

    #[tokio::test]
    async fn docker_is_rootless_by_its_security_options() {
        let dir = tempfile::tempdir().unwrap();
        let address = engine(
            dir.path(),
            vec![
                r#"{"Version":"29.0.1","Components":[{"Name":"Engine"}]}"#.into(),
                r#"{"SecurityOptions":["name=seccomp,profile=builtin","name=rootless"],"CgroupVersion":"2"}"#.into(),
            ],
        );
        let answer = who_is_there(&address, ANSWER_WITHIN).await.unwrap();
        assert_eq!((answer.kind, answer.rootless), (EngineKind::Docker, true));
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
        let stranger = engine(dir.path(), vec!["<html>".into()]);
        for (address, reason) in [
            (Address::Unix(dir.path().join("none.sock")), "absent"),
            (Address::Unix(dead), "not running"),
            (stranger, "does not answer /version as an engine does"),
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
