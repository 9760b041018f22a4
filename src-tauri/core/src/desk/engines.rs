//! Container engines of this machine as a window lists them.

use runbridge_sandbox::container::{ContainerFacts, EngineFound, EngineKind, EnginePlace};

use crate::api::{ContainerEngine, EngineState};

/// What was found, without the places where nothing is.
pub(super) fn of_places(places: &[EnginePlace]) -> Vec<ContainerEngine> {
    let mut engines: Vec<ContainerEngine> = Vec::new();
    for place in places {
        let EngineFound::Engine {
            kind,
            version,
            rootless,
        } = &place.found
        else {
            continue;
        };
        // Two paths may be one socket.
        let known = engines
            .iter()
            .any(|known| same_socket(&known.socket, &place.address));
        if !known {
            engines.push(ContainerEngine {
                name: name(*kind, &place.address),
                version: Some(version.clone()),
                socket: place.address.clone(),
                rootless: *rootless,
                state: EngineState::Running,
                in_use: false,
            });
        }
    }
    engines
}

/// Put the one in use first, also if it was not found by looking: we may have started it.
pub(super) fn mark_used(engines: &mut Vec<ContainerEngine>, facts: &ContainerFacts) {
    let at = engines
        .iter()
        .position(|engine| same_socket(&engine.socket, &facts.socket));
    let mut used = match at {
        Some(at) => engines.remove(at),
        None => ContainerEngine {
            name: name(facts.engine, &facts.socket),
            version: Some(facts.version.clone()),
            socket: facts.socket.clone(),
            rootless: facts.rootless,
            state: EngineState::Running,
            in_use: true,
        },
    };
    used.in_use = true;
    engines.insert(0, used);
}

/// The product's name, as far as its socket tells more than its kind.
fn name(kind: EngineKind, address: &str) -> String {
    let product = match kind {
        EngineKind::Podman => "Podman",
        EngineKind::Docker if address.contains("colima") => "Colima",
        EngineKind::Docker if address.contains(".rd/") => "Rancher Desktop",
        EngineKind::Docker if address.contains("orbstack") => "OrbStack",
        EngineKind::Docker if address.contains(".docker/") => "Docker Desktop",
        EngineKind::Docker => "Docker",
    };
    product.to_owned()
}

/// `/var/run` is `/run` on today's systems.
fn same_socket(one: &str, other: &str) -> bool {
    let plain = |address: &str| address.replace("/var/run/", "/run/");
    plain(one) == plain(other)
}
