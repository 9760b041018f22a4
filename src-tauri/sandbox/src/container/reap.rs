//! Remove what dead owners left: exactly our own containers, never anything else.

use std::collections::HashMap;
use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::{KillContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use futures_util::future::join_all;
use serde::Deserialize;

use super::engine::Engine;
use super::owner::Owners;
use crate::SandboxError;

/// Marks every container of ours.
pub(crate) const LABEL: &str = "runbridge";
/// Names the owner.
pub(crate) const LABEL_OWNER: &str = "runbridge.owner";
/// Names the folder in which the owner's lock is.
pub(crate) const LABEL_OWNERS: &str = "runbridge.owners";

const LIST_WITHIN: Duration = Duration::from_secs(10);
const KILL_WITHIN: Duration = Duration::from_secs(5);
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The labels of a container that `owner` creates.
pub(crate) fn labels(owners: &Owners, owner: &str) -> HashMap<String, String> {
    HashMap::from([
        (LABEL.to_owned(), "1".to_owned()),
        (LABEL_OWNER.to_owned(), owner.to_owned()),
        (LABEL_OWNERS.to_owned(), owners.folder_id.clone()),
    ])
}

/// Remove the containers whose owner has ended. Returns how many there were.
pub(crate) async fn reap_dead(engine: &Engine, owners: &Owners) -> Result<usize, SandboxError> {
    let list = list(engine, owners).await?;
    let dead: Vec<_> = list
        .iter()
        .filter(|container| is_dead(container, owners))
        .collect();
    join_all(dead.iter().map(|container| remove(engine, &container.id))).await;
    owners.tidy();
    Ok(dead.len())
}

/// Remove every container of `owner`.
pub(crate) async fn remove_all_of(
    engine: &Engine,
    owners: &Owners,
    owner: &str,
) -> Result<(), SandboxError> {
    let list = list(engine, owners).await?;
    let own = list
        .iter()
        .filter(|container| owner_of(container) == Some(owner));
    join_all(own.map(|container| remove(engine, &container.id))).await;
    Ok(())
}

/// Kill a container and wait until nothing of it is left. Whatever state it is in, that it cannot
/// be removed is only worth a line in the log: the next start reaps it.
pub(crate) async fn remove(engine: &Engine, id: &str) {
    kill(engine, id).await;
    if let Err(error) = wait_gone(engine, id).await {
        tracing::warn!(container = id, %error, "could not remove a container");
    }
}

/// Send SIGKILL. A container that no longer runs is as good as killed, and engines differ in how
/// they say so (404, 409, 500).
pub(crate) async fn kill(engine: &Engine, id: &str) {
    let options = KillContainerOptionsBuilder::new().signal("KILL").build();
    let killed = engine
        .ask(
            "kill a container",
            KILL_WITHIN,
            engine.docker.kill_container(id, Some(options)),
        )
        .await;
    if let Err(error) = killed {
        tracing::debug!(container = id, %error, "not killed");
    }
}

/// Remove a container that has ended, or was never started, until the engine no longer knows it.
/// The engine removes it too, at the same time, so an answer other than "not found" means "not yet".
pub(crate) async fn wait_gone(engine: &Engine, id: &str) -> Result<(), SandboxError> {
    let options = || {
        Some(
            RemoveContainerOptionsBuilder::new()
                .force(true)
                .v(true)
                .build(),
        )
    };
    let gone = async {
        loop {
            match engine.docker.remove_container(id, options()).await {
                // Asked again, because Podman answers before it has forgotten.
                Ok(()) => {}
                Err(Error::DockerResponseServerError {
                    status_code: 404, ..
                }) => return Ok(()),
                // Engines have no event for "removed" that both send.
                Err(Error::DockerResponseServerError { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                // The engine itself is gone, and its containers are not ours to remove any more.
                Err(error) => return Err(error),
            }
        }
    };
    engine.ask("remove a container", GONE_WITHIN, gone).await
}

/// What a list says of a container. The client library's own type knows only the states that Docker
/// has, and Podman has more.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
}

async fn list(engine: &Engine, owners: &Owners) -> Result<Vec<Listed>, SandboxError> {
    let labels = [
        format!("{LABEL}=1"),
        format!("{LABEL_OWNERS}={}", owners.folder_id),
    ];
    let filters = serde_json::json!({ "label": labels }).to_string();
    engine
        .get(
            "list containers",
            LIST_WITHIN,
            "/containers/json",
            &[("all", "true"), ("filters", &filters)],
        )
        .await
}

fn owner_of(container: &Listed) -> Option<&str> {
    container
        .labels
        .as_ref()?
        .get(LABEL_OWNER)
        .map(String::as_str)
}

/// The filter of the list is the engine's work and a mistake there would cost another's container,
/// so the labels are looked at again.
fn is_dead(container: &Listed, owners: &Owners) -> bool {
    let Some(labels) = &container.labels else {
        return false;
    };
    labels.get(LABEL).is_some_and(|mark| mark == "1")
        && labels.get(LABEL_OWNERS) == Some(&owners.folder_id)
        && labels
            .get(LABEL_OWNER)
            .is_some_and(|owner| owners.is_dead(owner))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use super::*;

    fn container(labels: &[(&str, &str)]) -> Listed {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Listed {
            id: "x".to_owned(),
            labels: Some(labels),
        }
    }

    #[test]
    fn only_a_dead_owner_of_our_own_folder_loses_its_container() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let _alive = owners.hold("alive").unwrap();
        let folder = owners.folder_id.as_str();
        for (labels, dead) in [
            (
                vec![(LABEL, "1"), (LABEL_OWNERS, folder), (LABEL_OWNER, "gone")],
                true,
            ),
            (
                vec![(LABEL, "1"), (LABEL_OWNERS, folder), (LABEL_OWNER, "alive")],
                false,
            ),
            (
                vec![
                    (LABEL, "1"),
                    (LABEL_OWNERS, "another"),
                    (LABEL_OWNER, "gone"),
                ],
                false,
            ),
            (vec![(LABEL, "1"), (LABEL_OWNERS, folder)], false),
            (vec![(LABEL_OWNERS, folder), (LABEL_OWNER, "gone")], false),
            (vec![(LABEL, "1"), (LABEL_OWNER, "gone")], false),
            (
                vec![
                    (LABEL, "1"),
                    (LABEL_OWNERS, folder),
                    (LABEL_OWNER, "../gone"),
                ],
                false,
            ),
            (vec![], false),
        ] {
            assert_eq!(is_dead(&container(&labels), &owners), dead, "{labels:?}");
        }
    }
}
