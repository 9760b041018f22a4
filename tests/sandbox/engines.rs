//! The engines under test, and a look at them that does not go through the code under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig, ResourcesUlimits};
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use runbridge_sandbox::SandboxLimits;
use runbridge_sandbox::container::{ContainerConfig, ContainerSandbox, EngineChoice, EngineSearch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An engine under test.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Engine {
    /// Rootless Podman enforces nothing where the system has only cgroup v1.
    pub(crate) fn enforces(&self) -> bool {
        !(self.name.contains("rootless") && Path::new("/sys/fs/cgroup/memory").exists())
    }

    pub(crate) fn client(&self) -> Docker {
        let path = self
            .url
            .strip_prefix("unix://")
            .expect("tests use Unix sockets");
        Docker::connect_with_unix(
            path,
            30,
            &bollard::ClientVersion {
                major_version: 1,
                minor_version: 41,
            },
        )
        .unwrap()
    }

    /// Names of all containers that carry this label, in any state.
    pub(crate) async fn containers(&self, label: &str) -> Vec<String> {
        self.list(label)
            .await
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// Names and states. By hand: the client library cannot read Podman's states.
    pub(crate) async fn list(&self, label: &str) -> Vec<(String, String)> {
        let path = self.url.strip_prefix("unix://").unwrap();
        let filter = format!(
            "%7B%22label%22%3A%5B%22{}%22%5D%7D",
            label.replace('=', "%3D")
        );
        let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
        let request = format!(
            "GET /v1.41/containers/json?all=1&filters={filter} HTTP/1.0\r\nHost: x\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let list: serde_json::Value =
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let text =
            |value: &serde_json::Value| value.as_str().unwrap().trim_start_matches('/').to_owned();
        list.as_array()
            .unwrap()
            .iter()
            .map(|item| (text(&item["Names"][0]), text(&item["State"])))
            .collect()
    }
}

/// All engines under test; none on a machine without.
pub(crate) fn engines() -> Vec<Engine> {
    const HOW: &str = "run `cargo xtask test`, which starts the engines, or set it by hand";
    let list = std::env::var("RUNBRIDGE_TEST_ENGINES")
        .unwrap_or_else(|_| panic!("RUNBRIDGE_TEST_ENGINES is not set: {HOW}"));
    list.split(',')
        .filter_map(|item| item.split_once('='))
        .map(|(name, url)| Engine {
            name: name.trim().to_owned(),
            url: url.trim().to_owned(),
        })
        .collect()
}

pub(crate) fn image() -> String {
    std::env::var("RUNBRIDGE_TEST_IMAGE")
        .expect("RUNBRIDGE_TEST_IMAGE is not set: run `cargo xtask test`")
}

/// Run a case on every engine, one after the other.
pub(crate) async fn on_every_engine<F: Future<Output = ()>>(case: impl Fn(Engine) -> F) {
    let engines = engines();
    if engines.is_empty() {
        // The thread of a test has its name.
        let test = std::thread::current();
        runbridge_testkit::skip(
            test.name().unwrap_or("a test"),
            "no container engine is there",
        );
    }
    for engine in engines {
        eprintln!("on {}", engine.name);
        case(engine).await;
    }
}

/// A configuration with a folder and an owner of its own.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) config: ContainerConfig,
    dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(engine: &Engine) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = ContainerConfig {
            engine: EngineChoice::Forced(engine.url.clone()),
            image: image(),
            user: "65534:65534".into(),
            limits: SandboxLimits {
                memory_bytes_max: 128 << 20,
                processes_max: 64,
                ..SandboxLimits::default()
            },
            owner: unique("t"),
            owner_lock_dir: dir.path().join("owners"),
            packages: None,
            search: EngineSearch::bare(),
            spares: 0,
            only_ready: false,
        };
        Self {
            engine: engine.clone(),
            config,
            dir,
        }
    }

    /// A folder of its own.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    pub(crate) async fn open(&self) -> ContainerSandbox {
        ContainerSandbox::open(self.config.clone(), Arc::new(|_| {}))
            .await
            .unwrap()
    }

    pub(crate) async fn containers(&self) -> Vec<String> {
        self.engine
            .containers(&format!("runbridge.owner={}", self.config.owner))
            .await
    }

    /// How many of them run.
    pub(crate) async fn running(&self) -> usize {
        let list = self
            .engine
            .list(&format!("runbridge.owner={}", self.config.owner))
            .await;
        list.iter().filter(|(_, state)| state == "running").count()
    }

    /// Create a container behind the back of the code under test; it is not started.
    pub(crate) async fn create_bare(&self, labels: &[(&str, &str)]) -> String {
        let name = unique("bare");
        let body = ContainerCreateBody {
            image: Some(self.config.image.clone()),
            cmd: Some(vec!["python3".into()]),
            labels: Some(
                labels
                    .iter()
                    .map(|(key, value)| ((*key).into(), (*value).into()))
                    .collect(),
            ),
            host_config: Some(HostConfig {
                network_mode: Some("none".into()),
                ulimits: Some(
                    ["nofile", "nproc"]
                        .map(|name| ResourcesUlimits {
                            name: Some(name.into()),
                            soft: Some(256),
                            hard: Some(256),
                        })
                        .to_vec(),
                ),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        self.engine
            .client()
            .create_container(Some(options), body)
            .await
            .unwrap();
        name
    }

    pub(crate) async fn exists(&self, name: &str) -> bool {
        self.engine
            .client()
            .inspect_container(name, None)
            .await
            .is_ok()
    }

    pub(crate) async fn remove(&self, name: &str) {
        let options = RemoveContainerOptionsBuilder::new().force(true).build();
        self.engine
            .client()
            .remove_container(name, Some(options))
            .await
            .unwrap();
    }

    /// Start the program that owns containers, and wait until it has `guests` of them.
    pub(crate) fn spawn_owner(&self, owner: &str, guests: usize) -> std::process::Child {
        let mut child = self.spawn_owner_at(&self.engine.url, owner, guests);
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.take().unwrap()),
            &mut line,
        )
        .unwrap();
        assert_eq!(line, "ready\n");
        child
    }

    /// Start the program that owns containers of the engine at `url`.
    pub(crate) fn spawn_owner_at(
        &self,
        url: &str,
        owner: &str,
        guests: usize,
    ) -> std::process::Child {
        let program = std::env::current_exe().unwrap();
        let program = program
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("examples/sandbox_owner");
        Command::new(program)
            .args([url, &self.config.image, owner])
            .arg(&self.config.owner_lock_dir)
            .arg(guests.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{prefix}{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Wait until `done`, for what sends no event.
pub(crate) async fn eventually(what: &str, within: Duration, mut done: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
