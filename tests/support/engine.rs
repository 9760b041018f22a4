//! Where Python may run in a test: container engines, asked over their sockets in the few words
//! needed, and the built-in sandbox, which needs none.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// The name of the built-in sandbox among engines.
const BUILTIN: &str = "builtin";

/// An engine, or the built-in sandbox, by the name that the tests know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// `podman`, `docker`, one of them with `-rootless`, or `builtin`.
    pub name: String,
    /// Its socket; the built-in sandbox has none.
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

    /// The engine called `name`, if it runs; the built-in sandbox always does.
    pub fn named(name: &str) -> Option<Self> {
        if name == BUILTIN {
            return Some(Self::builtin());
        }
        Self::all().into_iter().find(|engine| engine.name == name)
    }

    /// The built-in sandbox.
    pub fn builtin() -> Self {
        Self {
            name: BUILTIN.to_owned(),
            socket: PathBuf::new(),
        }
    }

    /// Whether it is the built-in sandbox.
    pub fn is_builtin(&self) -> bool {
        self.name == BUILTIN
    }

    /// Its socket as a URL.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// The variables that make the bridge use this engine and no other.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match self.name.as_str() {
            BUILTIN => vec![variable("MCP_BRIDGE_RUNTIME", BUILTIN)],
            name if name.starts_with("podman") => vec![
                variable("MCP_BRIDGE_RUNTIME", "podman"),
                variable("CONTAINER_HOST", &self.url()),
            ],
            _ => vec![
                variable("MCP_BRIDGE_RUNTIME", "docker"),
                variable("DOCKER_HOST", &self.url()),
            ],
        }
    }

    /// Every container with our label, in whatever state.
    pub fn containers(&self) -> Vec<Container> {
        if self.is_builtin() {
            return Vec::new();
        }
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

    /// An image of it as an archive.
    pub(crate) fn save(&self, image: &str) -> Vec<u8> {
        self.request("GET", &format!("/v1.41/images/{image}/get"))
    }

    /// Whether it has an image.
    pub fn has_image(&self, image: &str) -> bool {
        let told = self.request("GET", &format!("/v1.41/images/{image}/json"));
        serde_json::from_slice::<Value>(&told).is_ok_and(|told| told["Id"].is_string())
    }

    /// Remove an image with force.
    pub fn remove_image(&self, image: &str) {
        self.request("DELETE", &format!("/v1.41/images/{image}?force=true"));
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
