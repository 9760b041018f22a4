//! Where a container engine may listen on this machine, best place first.
//!
//! [`look`] reads the few files that name places; [`candidates`] orders them and is pure. Whether
//! anything listens there, and whether it is Podman or Docker, only the answer of the socket tells.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The kind of system that the engine's client, which is us, runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Containers run on this kernel.
    Linux,
    /// Containers run in a virtual machine; its socket is forwarded.
    Macos,
    /// Containers run in a virtual machine; its named pipe is forwarded.
    Windows,
}

impl Os {
    /// The system this was compiled for.
    pub const fn current() -> Self {
        if cfg!(windows) {
            Self::Windows
        } else if cfg!(target_os = "macos") {
            Self::Macos
        } else {
            Self::Linux
        }
    }
}

/// What the search for an engine needs to know of the user and the environment. This crate does
/// not read the environment itself, so that a decision can be repeated in a test.
#[derive(Clone, Debug)]
pub struct EngineSearch {
    /// The system.
    pub os: Os,
    /// Effective user id, where there is such a thing.
    pub uid: Option<u32>,
    /// Home folder.
    pub home: Option<PathBuf>,
    /// `TMPDIR`: newer Podman machines on macOS put their socket there.
    pub temp_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, which programs started from a desktop often lack.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `PATH`, to find the `podman` program where no Podman socket answers.
    pub path: Option<OsString>,
    /// `CONTAINER_HOST`
    pub container_host: Option<String>,
    /// `DOCKER_HOST`
    pub docker_host: Option<String>,
    /// `DOCKER_CONTEXT`
    pub docker_context: Option<String>,
    /// `DOCKER_CONFIG`, else `~/.docker`.
    pub docker_config_dir: Option<PathBuf>,
}

impl EngineSearch {
    /// A search that knows nothing but the system: it finds what listens in the places common to
    /// all users.
    pub fn bare() -> Self {
        Self {
            os: Os::current(),
            uid: None,
            home: None,
            temp_dir: None,
            xdg_runtime_dir: None,
            path: None,
            container_host: None,
            docker_host: None,
            docker_context: None,
            docker_config_dir: None,
        }
    }

    fn docker_config_dir(&self) -> Option<PathBuf> {
        self.docker_config_dir
            .clone()
            .or_else(|| Some(self.home.as_ref()?.join(".docker")))
    }
}

/// Where an engine's API is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A Windows named pipe, written with forward slashes.
    Pipe(String),
    /// Not on this machine, or not spoken by us: the address as written.
    Refused(String),
}

impl Address {
    /// Read an address as `DOCKER_HOST` and its like are written; a bare path is a socket.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix://") {
            Self::Unix(PathBuf::from(path))
        } else if let Some(pipe) = text.strip_prefix("npipe://") {
            Self::Pipe(forward_slashes(pipe))
        } else if text.starts_with(r"\\.\pipe\") || text.starts_with("//./pipe/") {
            Self::Pipe(forward_slashes(text))
        } else if text.starts_with('/') {
            Self::Unix(PathBuf::from(text))
        } else {
            Self::Refused(text.to_owned())
        }
    }
}

/// `npipe:////./pipe/x`, `npipe://\\.\pipe\x` and `npipe://./pipe/x` all name one pipe.
fn forward_slashes(pipe: &str) -> String {
    format!("//{}", pipe.replace('\\', "/").trim_start_matches('/'))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Pipe(pipe) => write!(f, "npipe://{pipe}"),
            Self::Refused(text) => f.write_str(text),
        }
    }
}

/// A place to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The place.
    pub(crate) address: Address,
    /// Why it is one: a variable's name or the product that listens there.
    pub(crate) source: &'static str,
}

/// What files say about places; see [`look`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// The endpoint of the chosen Docker context.
    pub(crate) docker_context_host: Option<String>,
    /// Sockets of Podman machines that exist.
    pub(crate) podman_sockets: Vec<PathBuf>,
    /// Names of the Podman machines that are set up, running or not.
    pub(crate) podman_machines: Vec<String>,
    /// Sockets of Colima profiles that exist.
    pub(crate) colima_sockets: Vec<PathBuf>,
}

/// Every place to try, in the order of preference among equals: Podman's before Docker's, and in
/// each what the user names before what is usual.
pub(crate) fn candidates(search: &EngineSearch, findings: &Findings) -> Vec<Candidate> {
    let mut list = Vec::new();
    podman_places(search, findings, &mut list);
    docker_places(search, findings, &mut list);
    let mut seen = HashSet::new();
    list.retain(|candidate| seen.insert(candidate.address.clone()));
    list
}

fn podman_places(search: &EngineSearch, findings: &Findings, list: &mut Vec<Candidate>) {
    let mut unix = |source, path: PathBuf| {
        list.push(Candidate {
            address: Address::Unix(path),
            source,
        });
    };
    match search.os {
        Os::Linux => {
            if let Some(dir) = &search.xdg_runtime_dir {
                unix("rootless Podman", dir.join("podman/podman.sock"));
            }
            if let Some(uid) = search.uid {
                unix(
                    "rootless Podman",
                    PathBuf::from(format!("/run/user/{uid}/podman/podman.sock")),
                );
            }
            unix("Podman", PathBuf::from("/run/podman/podman.sock"));
        }
        Os::Macos => {
            for socket in &findings.podman_sockets {
                unix("Podman machine", socket.clone());
            }
            if let Some(home) = &search.home {
                unix(
                    "Podman machine",
                    home.join(".local/share/containers/podman/machine/podman.sock"),
                );
            }
        }
        Os::Windows => {
            let machines =
                findings
                    .podman_machines
                    .iter()
                    .map(|name| match name.strip_prefix("podman-") {
                        Some(_) => name.clone(),
                        None => format!("podman-{name}"),
                    });
            for pipe in std::iter::once("podman-machine-default".to_owned()).chain(machines) {
                list.push(Candidate {
                    address: Address::Pipe(format!("//./pipe/{pipe}")),
                    source: "Podman machine",
                });
            }
        }
    }
    if let Some(host) = &search.container_host {
        list.insert(
            0,
            Candidate {
                address: Address::parse(host),
                source: "CONTAINER_HOST",
            },
        );
    }
}

fn docker_places(search: &EngineSearch, findings: &Findings, list: &mut Vec<Candidate>) {
    let mut add = |source, address| list.push(Candidate { address, source });
    if let Some(host) = &search.docker_host {
        add("DOCKER_HOST", Address::parse(host));
    }
    if let Some(host) = &findings.docker_context_host {
        add("Docker context", Address::parse(host));
    }
    if search.os == Os::Windows {
        add("Docker", Address::Pipe("//./pipe/docker_engine".to_owned()));
        add(
            "Docker Desktop",
            Address::Pipe("//./pipe/dockerDesktopLinuxEngine".to_owned()),
        );
        return;
    }
    if search.os == Os::Linux {
        if let Some(dir) = &search.xdg_runtime_dir {
            add("rootless Docker", Address::Unix(dir.join("docker.sock")));
        }
        if let Some(uid) = search.uid {
            add(
                "rootless Docker",
                Address::Unix(PathBuf::from(format!("/run/user/{uid}/docker.sock"))),
            );
        }
    }
    if let Some(home) = &search.home {
        add(
            "Docker Desktop",
            Address::Unix(home.join(".docker/run/docker.sock")),
        );
        if search.os == Os::Linux {
            add(
                "Docker Desktop",
                Address::Unix(home.join(".docker/desktop/docker.sock")),
            );
        }
        for socket in &findings.colima_sockets {
            add("Colima", Address::Unix(socket.clone()));
        }
        if search.os == Os::Macos {
            add(
                "OrbStack",
                Address::Unix(home.join(".orbstack/run/docker.sock")),
            );
        }
        add(
            "Rancher Desktop",
            Address::Unix(home.join(".rd/docker.sock")),
        );
    }
    add(
        "Docker",
        Address::Unix(PathBuf::from("/var/run/docker.sock")),
    );
}

/// Read what other programs' files say about places. A file that is absent, too big or broken says
/// nothing.
pub(crate) fn look(search: &EngineSearch) -> Findings {
    let mut findings = Findings {
        docker_context_host: docker_context_host(search),
        ..Findings::default()
    };
    let Some(home) = &search.home else {
        return findings;
    };
    if search.os != Os::Windows {
        for root in [home.join(".colima"), home.join(".config/colima")] {
            findings.colima_sockets.extend(
                folder(&root)
                    .into_iter()
                    .map(|profile| profile.join("docker.sock"))
                    .filter(|path| path.exists()),
            );
        }
    }
    if search.os != Os::Linux {
        for provider in folder(&home.join(".config/containers/podman/machine")) {
            findings
                .podman_machines
                .extend(folder(&provider).iter().filter_map(|file| {
                    let name = file.file_name()?.to_str()?.strip_suffix(".json")?;
                    Some(name.to_owned())
                }));
        }
        findings.podman_machines.sort();
        findings.podman_machines.dedup();
    }
    if search.os == Os::Macos {
        let machines = home.join(".local/share/containers/podman/machine");
        sockets_below(&machines, 3, &mut findings.podman_sockets);
        if let Some(temp) = &search.temp_dir {
            sockets_below(&temp.join("podman"), 1, &mut findings.podman_sockets);
        }
    }
    findings
}

/// Entries of a folder in a stable order. The bound keeps a folder that is not what we think from
/// costing time.
fn folder(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    let mut entries: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .take(256)
        .collect();
    entries.sort();
    entries
}

/// Sockets of engines, not the machine's other ones (`gvproxy.sock`, `ignition.sock`).
fn sockets_below(path: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in folder(path) {
        let name = entry
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name == "podman.sock" || name.ends_with("-api.sock") {
            found.push(entry);
        } else if depth > 1 && entry.is_dir() {
            sockets_below(&entry, depth - 1, found);
        }
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct ContextMeta {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Endpoints", default)]
    endpoints: std::collections::HashMap<String, ContextEndpoint>,
}

#[derive(Deserialize)]
struct ContextEndpoint {
    #[serde(rename = "Host")]
    host: Option<String>,
}

fn docker_context_host(search: &EngineSearch) -> Option<String> {
    let dir = search.docker_config_dir()?;
    let name = search
        .docker_context
        .clone()
        .filter(|name| !name.is_empty())
        .or_else(|| {
            serde_json::from_slice::<DockerConfig>(&read_bounded(&dir.join("config.json"))?)
                .ok()?
                .current_context
        })?;
    folder(&dir.join("contexts/meta"))
        .iter()
        .filter_map(|context| {
            serde_json::from_slice::<ContextMeta>(&read_bounded(&context.join("meta.json"))?).ok()
        })
        .find(|meta| meta.name == name)?
        .endpoints
        .remove("docker")?
        .host
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    // Docker's own files are a few kilobytes.
    const BYTES_MAX: u64 = 1 << 20;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .ok()?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    (bytes.len() as u64 <= BYTES_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use super::*;

    fn on(os: Os) -> EngineSearch {
        EngineSearch {
            os,
            home: Some("/home/u".into()),
            ..EngineSearch::bare()
        }
    }

    fn order(search: &EngineSearch, findings: &Findings) -> Vec<String> {
        candidates(search, findings)
            .iter()
            .map(|c| format!("{} ({})", c.address, c.source))
            .collect()
    }

    #[test]
    fn linux_places_come_in_order_and_once() {
        let search = EngineSearch {
            uid: Some(1000),
            xdg_runtime_dir: Some("/run/user/1000".into()),
            container_host: Some("unix:///c/podman.sock".into()),
            docker_host: Some("unix:///x/docker.sock".into()),
            ..on(Os::Linux)
        };
        let findings = Findings {
            docker_context_host: Some("unix:///ctx/docker.sock".into()),
            colima_sockets: vec!["/home/u/.colima/default/docker.sock".into()],
            ..Findings::default()
        };
        assert_eq!(
            order(&search, &findings),
            [
                "unix:///c/podman.sock (CONTAINER_HOST)",
                "unix:///run/user/1000/podman/podman.sock (rootless Podman)",
                "unix:///run/podman/podman.sock (Podman)",
                "unix:///x/docker.sock (DOCKER_HOST)",
                "unix:///ctx/docker.sock (Docker context)",
                "unix:///run/user/1000/docker.sock (rootless Docker)",
                "unix:///home/u/.docker/run/docker.sock (Docker Desktop)",
                "unix:///home/u/.docker/desktop/docker.sock (Docker Desktop)",
                "unix:///home/u/.colima/default/docker.sock (Colima)",
                "unix:///home/u/.rd/docker.sock (Rancher Desktop)",
                "unix:///var/run/docker.sock (Docker)",
            ]
        );
    }

    #[test]
    fn the_runtime_folder_is_found_by_uid_when_the_variable_is_unset() {
        let search = EngineSearch {
            uid: Some(1000),
            ..on(Os::Linux)
        };
        assert_eq!(
            order(&search, &Findings::default())[0],
            "unix:///run/user/1000/podman/podman.sock (rootless Podman)"
        );
    }

    #[test]
    fn macos_places_come_from_machines_and_desktops() {
        let findings = Findings {
            podman_sockets: vec!["/tmp/t/podman/podman-machine-default-api.sock".into()],
            colima_sockets: vec!["/home/u/.colima/default/docker.sock".into()],
            ..Findings::default()
        };
        assert_eq!(
            order(&on(Os::Macos), &findings),
            [
                "unix:///tmp/t/podman/podman-machine-default-api.sock (Podman machine)",
                "unix:///home/u/.local/share/containers/podman/machine/podman.sock (Podman machine)",
                "unix:///home/u/.docker/run/docker.sock (Docker Desktop)",
                "unix:///home/u/.colima/default/docker.sock (Colima)",
                "unix:///home/u/.orbstack/run/docker.sock (OrbStack)",
                "unix:///home/u/.rd/docker.sock (Rancher Desktop)",
                "unix:///var/run/docker.sock (Docker)",
            ]
        );
    }

    #[test]
    fn windows_pipes_have_podman_first() {
        let findings = Findings {
            podman_machines: vec!["work".into()],
            ..Findings::default()
        };
        assert_eq!(
            order(&on(Os::Windows), &findings),
            [
                "npipe:////./pipe/podman-machine-default (Podman machine)",
                "npipe:////./pipe/podman-work (Podman machine)",
                "npipe:////./pipe/docker_engine (Docker)",
                "npipe:////./pipe/dockerDesktopLinuxEngine (Docker Desktop)",
            ]
        );
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, address) in [
            (
                "unix:///x/docker.sock",
                Address::Unix("/x/docker.sock".into()),
            ),
            (" /x/docker.sock ", Address::Unix("/x/docker.sock".into())),
            (
                "npipe:////./pipe/docker_engine",
                Address::Pipe("//./pipe/docker_engine".into()),
            ),
            (
                r"npipe://\\.\pipe\docker_engine",
                Address::Pipe("//./pipe/docker_engine".into()),
            ),
            (
                r"\\.\pipe\docker_engine",
                Address::Pipe("//./pipe/docker_engine".into()),
            ),
            (
                "tcp://10.0.0.5:2375",
                Address::Refused("tcp://10.0.0.5:2375".into()),
            ),
            ("ssh://core@box", Address::Refused("ssh://core@box".into())),
            ("", Address::Refused(String::new())),
        ] {
            assert_eq!(Address::parse(text), address, "{text}");
        }
    }

    #[test]
    fn the_docker_context_comes_from_its_files() {
        let home = tempfile::tempdir().unwrap();
        let docker = home.path().join(".docker");
        for (folder, name, host) in [
            ("aa", "other", "tcp://1.2.3.4:1"),
            ("bb", "colima", "unix:///c.sock"),
        ] {
            let meta = docker.join("contexts/meta").join(folder);
            std::fs::create_dir_all(&meta).unwrap();
            let text = format!(
                r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#
            );
            std::fs::write(meta.join("meta.json"), text).unwrap();
        }
        std::fs::create_dir_all(docker.join("contexts/meta/broken")).unwrap();
        std::fs::write(docker.join("contexts/meta/broken/meta.json"), "{").unwrap();
        std::fs::write(
            docker.join("config.json"),
            r#"{"currentContext":"colima","auths":{}}"#,
        )
        .unwrap();

        let search = EngineSearch {
            home: Some(home.path().into()),
            ..on(Os::Linux)
        };
        assert_eq!(
            look(&search).docker_context_host.as_deref(),
            Some("unix:///c.sock")
        );
        let by_variable = EngineSearch {
            docker_context: Some("other".into()),
            ..search.clone()
        };
        assert_eq!(
            look(&by_variable).docker_context_host.as_deref(),
            Some("tcp://1.2.3.4:1")
        );
        let default = EngineSearch {
            docker_context: Some("default".into()),
            ..search
        };
        assert_eq!(look(&default).docker_context_host, None);
    }

    #[test]
    fn machines_and_profiles_come_from_their_folders() {
        let home = tempfile::tempdir().unwrap();
        let temp = tempfile::tempdir().unwrap();
        for path in [
            home.path().join(".colima/default/docker.sock"),
            home.path()
                .join(".local/share/containers/podman/machine/applehv/podman.sock"),
            home.path()
                .join(".local/share/containers/podman/machine/applehv/gvproxy.sock"),
            home.path()
                .join(".config/containers/podman/machine/applehv/work.json"),
            temp.path().join("podman/work-api.sock"),
        ] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let search = EngineSearch {
            home: Some(home.path().into()),
            temp_dir: Some(temp.path().into()),
            ..on(Os::Macos)
        };
        assert_eq!(
            look(&search),
            Findings {
                docker_context_host: None,
                podman_sockets: vec![
                    home.path()
                        .join(".local/share/containers/podman/machine/applehv/podman.sock"),
                    temp.path().join("podman/work-api.sock"),
                ],
                podman_machines: vec!["work".into()],
                colima_sockets: vec![home.path().join(".colima/default/docker.sock")],
            }
        );
    }
}
