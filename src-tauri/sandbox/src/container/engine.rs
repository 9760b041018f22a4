//! Find a container engine, learn what it is and open a client to it.
//!
//! What an engine is (Podman or Docker, rootless or not) comes from its own answers, never from the
//! path of its socket or the text of a program. Nothing here knows of images or containers.

mod ask;
mod podman;
pub(crate) mod search;

use std::fmt;
use std::time::Duration;

use bollard::{ClientVersion, Docker};
use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::ask::Answer;
pub(crate) use self::ask::CanLimit;
use self::podman::Service;
use self::search::{Address, Candidate, EngineSearch, Findings};
use crate::SandboxError;
use crate::container::{EngineFound, EnginePlace, Progress};

/// Which engine to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// The best one that answers: rootless before rootful, Podman before Docker.
    Auto,
    /// Only this one: `podman`, `docker` or the address of a socket.
    Forced(String),
}

/// A product that serves the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Podman, through its Docker-compatible API.
    Podman,
    /// Docker and what calls itself so.
    Docker,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        })
    }
}

/// An engine that answers.
pub(crate) struct Engine {
    /// For requests that are answered at once. Every one of them goes through [`Engine::ask`].
    pub(crate) docker: Docker,
    /// For requests whose answer comes when something happens, however late.
    pub(crate) patient: Docker,
    pub(crate) kind: EngineKind,
    pub(crate) version: String,
    pub(crate) address: Address,
    pub(crate) rootless: bool,
    /// 1 or 2, where the engine tells it.
    pub(crate) cgroup_version: Option<u8>,
    pub(crate) limits: CanLimit,
    /// Places that had to be passed over and that the user named.
    pub(crate) warnings: Vec<String>,
    /// The API service, where we had to start it. It ends when the engine is dropped.
    _service: Option<Service>,
}

impl Engine {
    /// Make one request, for at most `within`.
    pub(crate) async fn ask<T>(
        &self,
        operation: &'static str,
        within: Duration,
        request: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, SandboxError> {
        match tokio::time::timeout(within, request).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.error(operation, error_text(&error))),
            Err(_) => Err(self.error(
                operation,
                format!("no answer within {} s", within.as_secs()),
            )),
        }
    }

    /// Ask for what the client library cannot read.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        within: Duration,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, SandboxError> {
        let version = self.docker.client_version();
        let path = format!(
            "/v{}.{}{path}",
            version.major_version, version.minor_version
        );
        match tokio::time::timeout(within, ask::get(&self.address, &path, query)).await {
            Ok(answer) => answer.map_err(|reason| self.error(operation, reason)),
            Err(_) => Err(self.error(
                operation,
                format!("no answer within {} s", within.as_secs()),
            )),
        }
    }

    pub(crate) fn error(&self, operation: &'static str, reason: impl Into<String>) -> SandboxError {
        SandboxError::Engine {
            engine: format!("{} at {}", self.kind, self.address),
            operation,
            reason: reason.into(),
        }
    }
}

/// What an engine said, without the client's words around it.
pub(crate) fn error_text(error: &bollard::errors::Error) -> String {
    use bollard::errors::Error;
    let text = match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        // The client's own text is "client error (Connect)"; what the system said is below it.
        other => {
            let mut deepest: &dyn std::error::Error = other;
            while let Some(source) = deepest.source() {
                deepest = source;
            }
            deepest.to_string()
        }
    };
    shorten(&text)
}

/// One line of at most 300 characters: an engine may answer with a page.
pub(crate) fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Find the engine to use.
///
/// All places are asked at once, so one that hangs costs its deadline and no more. With `only_ready`
/// no machine is started.
pub(crate) async fn find(
    choice: &EngineChoice,
    search: &EngineSearch,
    only_ready: bool,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Engine, SandboxError> {
    let wanted = Wanted::from(choice);
    let (candidates, findings) = match &wanted {
        Wanted::At(address) => (
            vec![Candidate {
                address: address.clone(),
                source: "asked for",
            }],
            Findings::default(),
        ),
        Wanted::Any | Wanted::Only(_) => look(search).await,
        Wanted::Unknown => (Vec::new(), Findings::default()),
    };

    let mut places = ask_all(candidates).await;
    let mut tried: Vec<String> = places.iter().filter_map(Place::refusal).collect();
    let mut best = take_best(&mut places, &wanted);

    if podman::may_serve(search, &wanted, best.as_ref().map(rank)) {
        match podman::serve(search, progress).await {
            Ok(Some((answer, service))) => return open(answer, tried, Some(service)),
            Ok(None) => {}
            Err(reason) => tried.push(reason),
        }
    }
    if best.is_none()
        && !only_ready
        && let Some(machine) = podman::machine_to_start(search, &wanted, &findings)
    {
        match podman::start_machine(search, machine, progress).await {
            Ok(()) => {
                let (candidates, _) = look(search).await;
                let mut places = ask_all(candidates).await;
                best = take_best(&mut places, &wanted);
                if best.is_none() {
                    tried.push(format!(
                        "Podman machine `{machine}`: it was started, and no engine answers"
                    ));
                }
            }
            Err(reason) => tried.push(reason),
        }
    }
    match best {
        Some(answer) => open(answer, tried, None),
        None => Err(wanted.absent(choice, tried)),
    }
}

/// Every place with what is there, best place first.
pub(crate) async fn survey(search: &EngineSearch) -> Vec<EnginePlace> {
    let (candidates, _) = look(search).await;
    ask_all(candidates)
        .await
        .into_iter()
        .map(|place| EnginePlace {
            address: place.candidate.address.to_string(),
            source: place.candidate.source,
            found: match place.answer {
                Ok(Answer {
                    kind,
                    version,
                    rootless,
                    ..
                }) => EngineFound::Engine {
                    kind,
                    version,
                    rootless,
                },
                Err(reason) => EngineFound::Nothing { reason },
            },
        })
        .collect()
}

/// Reading other programs' files may be slow where a home folder is on a network.
async fn look(search: &EngineSearch) -> (Vec<Candidate>, Findings) {
    let facts = search.clone();
    let findings = tokio::task::spawn_blocking(move || search::look(&facts))
        .await
        .unwrap_or_default();
    (search::candidates(search, &findings), findings)
}

/// What the caller's choice comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Any,
    Only(EngineKind),
    At(Address),
    Unknown,
}

impl From<&EngineChoice> for Wanted {
    fn from(choice: &EngineChoice) -> Self {
        let EngineChoice::Forced(name) = choice else {
            return Self::Any;
        };
        match name.trim().to_ascii_lowercase().as_str() {
            "podman" => Self::Only(EngineKind::Podman),
            "docker" => Self::Only(EngineKind::Docker),
            _ if name.contains('/') || name.contains('\\') => Self::At(Address::parse(name)),
            _ => Self::Unknown,
        }
    }
}

impl Wanted {
    fn takes(&self, kind: EngineKind) -> bool {
        match self {
            Self::Any | Self::At(_) => true,
            Self::Only(only) => *only == kind,
            Self::Unknown => false,
        }
    }

    fn absent(&self, choice: &EngineChoice, tried: Vec<String>) -> SandboxError {
        let EngineChoice::Forced(name) = choice else {
            return SandboxError::NoEngine { tried };
        };
        let reason = match self {
            Self::Unknown => {
                "it is not an engine: give `podman`, `docker` or the address of a socket".to_owned()
            }
            Self::Any | Self::Only(_) | Self::At(_) if tried.is_empty() => {
                "other engines answer, this one does not".to_owned()
            }
            Self::Any | Self::Only(_) | Self::At(_) => tried.join("; "),
        };
        SandboxError::EngineAbsent {
            engine: name.clone(),
            reason,
        }
    }
}

/// A place and what was found there.
struct Place {
    candidate: Candidate,
    answer: Result<Answer, String>,
}

impl Place {
    fn refusal(&self) -> Option<String> {
        let reason = self.answer.as_ref().err()?;
        Some(format!(
            "{} ({}): {reason}",
            self.candidate.address, self.candidate.source
        ))
    }
}

async fn ask_all(candidates: Vec<Candidate>) -> Vec<Place> {
    // Two paths may be one socket (`/var/run` is `/run`); whoever answers twice is only ranked twice.
    join_all(candidates.into_iter().map(|candidate| async move {
        let answer = ask::who_is_there(&candidate.address, ask::ANSWER_WITHIN).await;
        Place { candidate, answer }
    }))
    .await
}

/// Better is greater.
fn rank(answer: &Answer) -> (bool, bool) {
    (answer.rootless, answer.kind == EngineKind::Podman)
}

/// The best answer that is wanted; the earlier place wins among equals.
fn take_best(places: &mut Vec<Place>, wanted: &Wanted) -> Option<Answer> {
    places
        .drain(..)
        .filter_map(|place| place.answer.ok())
        .filter(|answer| wanted.takes(answer.kind))
        .reduce(|best, next| {
            if rank(&next) > rank(&best) {
                next
            } else {
                best
            }
        })
}

fn open(
    answer: Answer,
    tried: Vec<String>,
    service: Option<Service>,
) -> Result<Engine, SandboxError> {
    /// Every request has its own, shorter deadline; this one only bounds what would slip past.
    const REQUEST_S_MAX: u64 = 30;
    /// A container may live as long as its user's work; this is a year.
    const PATIENCE_S_MAX: u64 = 365 * 24 * 3600;

    // The engine may be older than the client library, or newer.
    let newest = *bollard::API_DEFAULT_VERSION;
    let api = if answer.api < newest {
        answer.api
    } else {
        newest
    };
    let docker =
        connect(&answer.address, REQUEST_S_MAX, &api).map_err(|error| SandboxError::Engine {
            engine: format!("{} at {}", answer.kind, answer.address),
            operation: "open a connection",
            reason: error_text(&error),
        })?;
    // What the user named and did not get is worth a word; that the usual places are empty is not.
    let named = ["CONTAINER_HOST", "DOCKER_HOST", "Docker context"];
    let warnings = tried
        .into_iter()
        .filter(|line| named.iter().any(|name| line.contains(name)))
        .collect();
    Ok(Engine {
        patient: docker
            .clone()
            .with_timeout(Duration::from_secs(PATIENCE_S_MAX)),
        docker,
        kind: answer.kind,
        version: answer.version,
        address: answer.address,
        rootless: answer.rootless,
        cgroup_version: answer.cgroup_version,
        limits: answer.limits,
        warnings,
        _service: service,
    })
}

fn connect(
    address: &Address,
    timeout_s: u64,
    api: &ClientVersion,
) -> Result<Docker, bollard::errors::Error> {
    match address {
        #[cfg(unix)]
        Address::Unix(path) => Docker::connect_with_unix(&path.to_string_lossy(), timeout_s, api),
        #[cfg(windows)]
        Address::Pipe(pipe) => Docker::connect_with_named_pipe(pipe, timeout_s, api),
        other => Err(bollard::errors::Error::UnsupportedURISchemeError {
            uri: other.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, answer: Result<(EngineKind, bool), &str>) -> Place {
        let address = Address::Unix(path.into());
        let answer = answer
            .map_err(str::to_owned)
            .map(|(kind, rootless)| Answer {
                address: address.clone(),
                kind,
                version: "1".into(),
                rootless,
                api: ClientVersion {
                    major_version: 1,
                    minor_version: 41,
                },
                cgroup_version: Some(1),
                limits: CanLimit::default(),
            });
        Place {
            candidate: Candidate {
                address,
                source: "test",
            },
            answer,
        }
    }

    fn pick(wanted: &Wanted, places: Vec<Place>) -> Option<String> {
        let mut places = places;
        take_best(&mut places, wanted).map(|answer| answer.address.to_string())
    }

    #[test]
    fn the_best_engine_is_rootless_then_podman_then_first() {
        use EngineKind::{Docker, Podman};
        let rows = [
            (
                vec![
                    place("/a", Ok((Docker, false))),
                    place("/b", Ok((Podman, false))),
                ],
                Some("unix:///b"),
            ),
            (
                vec![
                    place("/a", Ok((Podman, false))),
                    place("/b", Ok((Docker, true))),
                ],
                Some("unix:///b"),
            ),
            (
                vec![
                    place("/a", Ok((Docker, true))),
                    place("/b", Ok((Podman, true))),
                ],
                Some("unix:///b"),
            ),
            (
                vec![
                    place("/a", Ok((Docker, false))),
                    place("/b", Ok((Docker, false))),
                ],
                Some("unix:///a"),
            ),
            (
                vec![place("/a", Err("absent")), place("/b", Ok((Docker, false)))],
                Some("unix:///b"),
            ),
            (vec![place("/a", Err("absent"))], None),
        ];
        for (places, picked) in rows {
            assert_eq!(pick(&Wanted::Any, places).as_deref(), picked);
        }
        let both = || {
            vec![
                place("/a", Ok((Podman, true))),
                place("/b", Ok((Docker, false))),
            ]
        };
        assert_eq!(
            pick(&Wanted::Only(Docker), both()).as_deref(),
            Some("unix:///b")
        );
        assert_eq!(pick(&Wanted::Unknown, both()), None);
    }

    #[test]
    fn a_forced_engine_is_a_name_or_an_address() {
        for (text, wanted) in [
            ("Podman", Wanted::Only(EngineKind::Podman)),
            ("docker", Wanted::Only(EngineKind::Docker)),
            (
                "unix:///x.sock",
                Wanted::At(Address::Unix("/x.sock".into())),
            ),
            ("/x.sock", Wanted::At(Address::Unix("/x.sock".into()))),
            (
                "tcp://h:1",
                Wanted::At(Address::Refused("tcp://h:1".into())),
            ),
            ("lxc", Wanted::Unknown),
        ] {
            assert_eq!(
                Wanted::from(&EngineChoice::Forced(text.into())),
                wanted,
                "{text}"
            );
        }
    }

    #[test]
    fn what_an_engine_says_is_cut_to_one_line() {
        assert_eq!(shorten("a\n  b\tc "), "a b c");
        assert_eq!(shorten(&"é".repeat(400)).chars().count(), 301);
    }
}
