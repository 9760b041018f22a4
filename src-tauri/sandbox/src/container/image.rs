//! Have the image: look for it, else pull it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bollard::errors::Error;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;

use super::Progress;
use super::engine::{Engine, error_text, shorten};
use crate::SandboxError;

const INSPECT_WITHIN: Duration = Duration::from_secs(10);

/// A registry that says nothing for this long has stalled.
const PULL_SILENCE_MAX: Duration = Duration::from_mins(2);

/// Nobody waits longer than this, and a slow line that needs it is better pulled by hand.
const PULL_MAX: Duration = Duration::from_mins(30);

/// The user interface needs no more.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// What the sandbox needs to know of an image.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) bytes: u64,
    /// Folders that it declares as volumes.
    pub(crate) volumes: Vec<String>,
}

/// Use `reference` if the engine has it, else pull it, unless `only_ready`.
pub(crate) async fn ensure(
    engine: &Engine,
    reference: &str,
    only_ready: bool,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Image, SandboxError> {
    let missing = |reason: String| SandboxError::ImageMissing {
        image: reference.to_owned(),
        reason,
    };
    if let Some(image) = inspect(engine, reference).await? {
        return Ok(image);
    }
    if is_local(reference) {
        return Err(missing(format!(
            "{} does not have it, and a local image is not pulled",
            engine.kind
        )));
    }
    if only_ready {
        return Err(missing(format!(
            "{} does not have it yet; Container in Sandbox settings (MCP_BRIDGE_RUNTIME=container) pulls it",
            engine.kind
        )));
    }
    match tokio::time::timeout(PULL_MAX, pull(engine, reference, progress)).await {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => return Err(missing(reason)),
        Err(_) => {
            return Err(missing(format!(
                "not pulled within {} min",
                PULL_MAX.as_secs() / 60
            )));
        }
    }
    inspect(engine, reference)
        .await?
        .ok_or_else(|| missing("pulled, but not found under this name".to_owned()))
}

async fn inspect(engine: &Engine, reference: &str) -> Result<Option<Image>, SandboxError> {
    let request = async {
        match engine.docker.inspect_image(reference).await {
            Ok(image) => Ok(Some(image)),
            Err(Error::DockerResponseServerError {
                status_code: 404, ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let found = engine
        .ask("look for the image", INSPECT_WITHIN, request)
        .await?;
    Ok(found.map(|found| Image {
        volumes: volumes(&found),
        bytes: found.size.unwrap_or_default().unsigned_abs(),
        id: found.id.unwrap_or_default(),
    }))
}

fn volumes(image: &ImageInspect) -> Vec<String> {
    let declared = image
        .config
        .as_ref()
        .and_then(|config| config.volumes.clone())
        .unwrap_or_default();
    declared
        .into_iter()
        .filter(|path| path.starts_with('/'))
        .collect()
}

/// Images built on this machine carry this in place of a registry.
fn is_local(reference: &str) -> bool {
    reference.starts_with("localhost/")
}

/// Without a tag or digest an engine may pull all of them.
fn with_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains(':') || reference.contains('@') {
        reference.to_owned()
    } else {
        format!("{reference}:latest")
    }
}

async fn pull(
    engine: &Engine,
    reference: &str,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), String> {
    let options = CreateImageOptionsBuilder::new()
        .from_image(&with_tag(reference))
        .build();
    let mut events = std::pin::pin!(engine.patient.create_image(Some(options), None, None));
    let mut layers = Layers::default();
    let mut told_at = None;
    loop {
        let event = match tokio::time::timeout(PULL_SILENCE_MAX, events.next()).await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => return Err(useful_part(&error_text(&error))),
            Ok(None) => return Ok(()),
            Err(_) => return Err(format!("no progress for {} s", PULL_SILENCE_MAX.as_secs())),
        };
        if let Some(message) = event
            .error_detail
            .as_ref()
            .and_then(|detail| detail.message.as_deref())
        {
            return Err(useful_part(message));
        }
        layers.take(event);
        if told_at.is_none_or(|at: Instant| at.elapsed() >= PROGRESS_EVERY) {
            told_at = Some(Instant::now());
            progress(layers.progress(reference));
        }
    }
}

/// An engine wraps what matters: `initializing source docker://…: pinging …: Get "https://…": dial
/// tcp: lookup …: no such host`. The outermost and the innermost parts say it.
fn useful_part(message: &str) -> String {
    let parts: Vec<_> = message
        .split(": ")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    match parts.as_slice() {
        [first, .., cause, last] if parts.len() > 4 => {
            shorten(&format!("{first}: {cause}: {last}"))
        }
        _ => shorten(message),
    }
}

/// Bytes of each layer: known so far, and in all.
#[derive(Default)]
struct Layers(HashMap<String, (u64, u64)>);

impl Layers {
    fn take(&mut self, event: CreateImageInfo) {
        // An image has at most 127 layers; more are not an image's.
        const LAYERS_MAX: usize = 512;
        let (Some(id), Some(detail)) = (event.id, event.progress_detail) else {
            return;
        };
        let (Some(done), Some(total)) = (detail.current, detail.total) else {
            return;
        };
        // Unpacking counts the same layer from zero again; what was fetched stays fetched.
        if self.0.len() < LAYERS_MAX || self.0.contains_key(&id) {
            let layer = self.0.entry(id).or_default();
            layer.0 = layer.0.max(u64::try_from(done).unwrap_or(0));
            layer.1 = layer.1.max(u64::try_from(total).unwrap_or(0));
        }
    }

    fn progress(&self, image: &str) -> Progress {
        let (done, total) = self.0.values().fold((0, 0), |sum, layer| {
            (sum.0 + layer.0.min(layer.1), sum.1 + layer.1)
        });
        Progress::PullingImage {
            image: image.to_owned(),
            bytes_done: done,
            bytes_total: total,
        }
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    #[test]
    fn a_reference_without_tag_means_latest() {
        for (reference, full) in [
            ("python", "python:latest"),
            ("python:3.14-slim", "python:3.14-slim"),
            ("box:5000/python", "box:5000/python:latest"),
            ("python@sha256:00", "python@sha256:00"),
        ] {
            assert_eq!(with_tag(reference), full);
        }
    }

    #[test]
    fn the_useful_part_of_a_failed_pull_is_short() {
        let podman = "initializing source docker://box.test/python:3.14-slim: pinging container registry box.test: \
                      Get \"https://box.test/v2/\": dial tcp: lookup box.test on 10.0.0.1:53: no such host";
        assert_eq!(
            useful_part(podman),
            "initializing source docker://box.test/python:3.14-slim: lookup box.test on 10.0.0.1:53: no such host"
        );
        assert_eq!(useful_part("manifest unknown"), "manifest unknown");
    }

    #[test]
    fn layers_add_up_and_never_go_back() {
        let event = |id: &str, current, total| CreateImageInfo {
            id: Some(id.to_owned()),
            progress_detail: Some(ProgressDetail {
                current: Some(current),
                total: Some(total),
            }),
            ..CreateImageInfo::default()
        };
        let mut layers = Layers::default();
        layers.take(event("a", 50, 100));
        layers.take(event("b", 10, 50));
        layers.take(event("a", 100, 100));
        layers.take(event("a", 5, 100));
        assert_eq!(
            layers.progress("x"),
            Progress::PullingImage {
                image: "x".into(),
                bytes_done: 110,
                bytes_total: 150
            }
        );
    }
}
