//! The container engines that a test may use, asked over their sockets in the few words needed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// An engine by the name that the tests know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// `podman`, `docker` or `podman-rootless`.
    pub name: String,
    /// Its socket.
    pub socket: PathBuf,
}

/// A container that carries our label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// The label `runbridge.owner`.
    pub owner: String,
    /// `running`, `exited`, …
    pub state: String,
}

/// The image that tests run in, from `RUNBRIDGE_TEST_IMAGE`.
pub fn image() -> String {
    std::env::var("RUNBRIDGE_TEST_IMAGE")
        .unwrap_or_else(|_| "localhost/runbridge-python:bookworm".to_owned())
}

impl Engine {
    /// All engines of `RUNBRIDGE_TEST_ENGINES`: `name=unix:///path`, separated by commas.
    pub fn all() -> Vec<Self> {
        let list = std::env::var("RUNBRIDGE_TEST_ENGINES").unwrap_or_default();
        list.split(',')
            .filter_map(|item| {
                let (name, url) = item.split_once('=')?;
                let socket = url.strip_prefix("unix://").unwrap_or(url);
                Some(Self {
                    name: name.trim().to_owned(),
                    socket: socket.into(),
                })
            })
            .collect()
    }

    /// The engine called `name`, if it runs.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|engine| engine.name == name)
    }

    /// Its socket as a URL.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// The variables that make the bridge use this engine and no other.
    pub fn variables(&self) -> [(String, String); 2] {
        let (runtime, host) = if self.name.starts_with("podman") {
            ("podman", "CONTAINER_HOST")
        } else {
            ("docker", "DOCKER_HOST")
        };
        [
            ("MCP_BRIDGE_RUNTIME".to_owned(), runtime.to_owned()),
            (host.to_owned(), self.url()),
        ]
    }

    /// Every container with our label, in whatever state.
    pub fn containers(&self) -> Vec<Container> {
        let filters = r#"{"label":["runbridge=1"]}"#;
        let body = self.request(
            "GET",
            &format!(
                "/v1.41/containers/json?all=true&filters={}",
                percent(filters)
            ),
        );
        let list: Value = serde_json::from_slice(&body).unwrap_or_else(|error| {
            panic!(
                "{}: {error} in {}",
                self.name,
                String::from_utf8_lossy(&body)
            )
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut containers: Vec<_> = list
            .as_array()
            .unwrap_or_else(|| panic!("{}: a list of containers expected, got {list}", self.name))
            .iter()
            .map(|item| Container {
                id: text(&item["Id"]),
                owner: text(&item["Labels"]["runbridge.owner"]),
                state: text(&item["State"]),
            })
            .collect();
        containers.sort();
        containers
    }

    /// Remove a container with force.
    pub fn remove(&self, id: &str) {
        self.request("DELETE", &format!("/v1.41/containers/{id}?force=true"));
    }

    /// HTTP/1.0, so that the answer is whole when the connection ends.
    fn request(&self, method: &str, target: &str) -> Vec<u8> {
        let mut stream = UnixStream::connect(&self.socket)
            .unwrap_or_else(|error| panic!("{} at {}: {error}", self.name, self.socket.display()));
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        write!(
            stream,
            "{method} {target} HTTP/1.0\r\nHost: localhost\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .unwrap_or_else(|error| panic!("{}: {target}: {error}", self.name));
        let body = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .map_or(answer.len(), |at| at + 4);
        answer.split_off(body)
    }
}

fn percent(text: &str) -> String {
    let encode = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}
