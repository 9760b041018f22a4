//! One container from create to gone: its streams become a [`Guest`], its end a [`GuestExit`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, StatsOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::engine::Engine;
use super::owner::OwnerLock;
use super::reap;
use crate::{Guest, GuestExit, Mounting, SandboxError, Usage};

const CREATE_WITHIN: Duration = Duration::from_secs(10);
const ATTACH_WITHIN: Duration = Duration::from_secs(10);
const START_WITHIN: Duration = Duration::from_secs(10);
const MEASURE_WITHIN: Duration = Duration::from_secs(2);
const BOOT_WITHIN: Duration = Duration::from_secs(5);

/// How long a guest whose output has ended may take until the engine reports its exit.
const EXIT_WITHIN: Duration = Duration::from_secs(3);

/// How long the last bytes of a container that is gone may take.
const TAIL_WITHIN: Duration = Duration::from_secs(1);

/// Pieces of output in flight. The engine sends at most 32 KiB in one, so a guest that prints
/// faster than it is read is held at half a megabyte, by the pipe it writes to.
const OUTPUT_PIECES_MAX: usize = 16;

/// What is kept of the raw stderr.
const STDERR_TAIL_BYTES_MAX: usize = 4096;

/// What all containers of one sandbox share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) owner: String,
    pub(crate) body: ContainerCreateBody,
    /// What a guest reads before frames begin.
    pub(crate) boot: Bytes,
    /// How they see the folder of packages.
    pub(crate) mounting: Mounting,
    /// Whether exceeding the memory limit kills, so that a SIGKILL which is not ours means that.
    pub(crate) memory_kills: bool,
    /// Every task that serves a container.
    pub(crate) tasks: TaskTracker,
    /// Those of them that start one.
    pub(crate) starts: TaskTracker,
    /// Where those tasks run, also when a guest is dropped elsewhere.
    pub(crate) runtime: Handle,
    /// Nothing is to be started any more. Guests that live go on: the sandbox may have been replaced
    /// by one of another shape.
    pub(crate) closing: CancellationToken,
    /// Every container is being removed, whoever uses it.
    pub(crate) shut_down: CancellationToken,
    /// As long as anything of ours may be left, the owner lives.
    pub(crate) _lock: OwnerLock,
}

impl Shared {
    /// Start a container in a task of its own, which goes on when nobody waits for it: it must not be
    /// left half made.
    pub(crate) fn spawn_start(
        &self,
        start: impl Future<Output = Result<Guest, SandboxError>> + Send + 'static,
    ) -> JoinHandle<Result<Guest, SandboxError>> {
        self.tasks.spawn(self.starts.track_future(start))
    }
}

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Create a container; it is not started. Returns its id and what the engine remarked.
pub(crate) async fn create(
    engine: &Engine,
    owner: &str,
    body: &ContainerCreateBody,
) -> Result<(String, Vec<String>), SandboxError> {
    // The count belongs to the process: a sandbox that is opened anew must not reuse a name.
    let name = format!(
        "runbridge-{owner}-{}",
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    let request = engine.docker.create_container(Some(options), body.clone());
    match tokio::time::timeout(CREATE_WITHIN, request).await {
        Ok(Err(Error::DockerResponseServerError {
            status_code: 404,
            message,
        })) => Err(SandboxError::ImageMissing {
            image: body.image.clone().unwrap_or_default(),
            reason: super::engine::shorten(&message),
        }),
        Ok(done) => {
            let created = engine
                .ask("create a container", CREATE_WITHIN, async { done })
                .await?;
            Ok((created.id, created.warnings))
        }
        Err(_) => {
            // It may still come to be, and only its name is known.
            reap::remove(engine, &name).await;
            Err(engine.error(
                "create a container",
                format!("no answer within {} s", CREATE_WITHIN.as_secs()),
            ))
        }
    }
}

/// Create, start and boot a container. For [`Shared::spawn_start`].
pub(crate) async fn start(shared: Arc<Shared>) -> Result<Guest, SandboxError> {
    let (id, _) = create(&shared.engine, &shared.owner, &shared.body).await?;
    boot(shared, id).await
}

/// Start and boot the container that [`create`] made. As [`start`].
pub(crate) async fn boot(shared: Arc<Shared>, id: String) -> Result<Guest, SandboxError> {
    let engine = &shared.engine;
    if shared.closing.is_cancelled() {
        reap::remove(engine, &id).await;
        return Err(engine.error("start a container", "the sandbox is shut down"));
    }
    let (exit_sender, exit) = watch::channel(None);
    let mut ending = Ending {
        id: id.clone(),
        exit,
        pump: None,
        shared: Some(shared.clone()),
    };

    // Before the start: the engine removes the container when it ends, and its exit status with it.
    shared
        .tasks
        .spawn(report_exit(shared.clone(), id.clone(), exit_sender));
    engine
        .ask(
            "start a container",
            START_WITHIN,
            engine.docker.start_container(&id, None),
        )
        .await?;

    // After the start: the guest says nothing before it was told its program, and gives up if that
    // does not come. The other way round Podman makes processes that wait for the start, and would
    // wait for ever if we were killed in between.
    let options = AttachContainerOptionsBuilder::new()
        .stdin(true)
        .stdout(true)
        .stderr(true)
        .stream(true)
        .build();
    let attached = engine.docker.attach_container(&id, Some(options));
    let attached = engine
        .ask("attach to a container", ATTACH_WITHIN, attached)
        .await;
    let AttachContainerResults { output, mut input } = match attached {
        Ok(attached) => attached,
        // It may have ended meanwhile, which says more.
        Err(error) => {
            let code = ending.exit_within(EXIT_WITHIN).await;
            return Err(code.map_or(error, ended_early));
        }
    };

    let (pieces, receiver) = mpsc::channel(OUTPUT_PIECES_MAX);
    let shut_down = shared.shut_down.clone();
    ending.pump = Some(shared.tasks.spawn(pump(output, pieces, shut_down)));

    let send = async {
        input.write_all(&shared.boot).await?;
        input.flush().await
    };
    if let Ok(Err(_)) | Err(_) = tokio::time::timeout(BOOT_WITHIN, send).await {
        let exit = ending.end(false).await;
        let reason = match (exit.stderr_tail.trim(), exit.code) {
            ("", Some(code)) => return Err(ended_early(code)),
            ("", None) => "it did not take its program".to_owned(),
            (tail, _) => super::engine::shorten(tail),
        };
        return Err(SandboxError::GuestStart { reason });
    }
    let mounting = shared.mounting.clone();
    // Whoever measures may not keep an engine that the bridge has let go of.
    let measured = (Arc::downgrade(&shared), id);
    Ok(Guest {
        input: Box::new(input),
        output: receiver,
        end: Box::new(move |kill| ending.end(kill).boxed()),
        gauge: Some(Arc::new(move || {
            let (shared, id) = measured.clone();
            async move { measure(shared.upgrade()?, id).await }.boxed()
        })),
        mounting,
    })
}

/// What a container uses, as its engine counts it.
async fn measure(shared: Arc<Shared>, id: String) -> Option<Usage> {
    // Without waiting for a second sample, from which engines compute a share of time.
    let options = StatsOptionsBuilder::new()
        .stream(false)
        .one_shot(true)
        .build();
    let mut samples = std::pin::pin!(shared.engine.docker.stats(&id, Some(options)));
    let sample = tokio::time::timeout(MEASURE_WITHIN, samples.next()).await;
    let sample = sample.ok()??.ok()?;
    let memory = sample.memory_stats?;
    // What files were read is given back when memory is short; the name is that of cgroup v2 or v1.
    let files = memory.stats.as_ref().and_then(|stats| {
        let named = |name: &str| stats.get(name).copied();
        named("inactive_file").or_else(|| named("total_inactive_file"))
    });
    Some(Usage {
        memory_bytes: memory.usage?.saturating_sub(files.unwrap_or_default()),
        cpu_ns: sample
            .cpu_stats
            .and_then(|cpu| cpu.cpu_usage)
            .and_then(|used| used.total_usage),
    })
}

fn ended_early(code: i64) -> SandboxError {
    SandboxError::GuestStart {
        reason: format!("it ended with exit status {code} before it took its program"),
    }
}

/// Take what the container writes until it ends or nobody reads. Returns the end of its raw stderr.
async fn pump(
    mut output: impl futures_util::Stream<Item = Result<LogOutput, Error>> + Unpin,
    pieces: mpsc::Sender<Bytes>,
    shut_down: CancellationToken,
) -> Vec<u8> {
    let mut tail = Vec::new();
    loop {
        let piece = tokio::select! {
            piece = output.next() => piece,
            () = pieces.closed() => break,
        };
        match piece {
            Some(Ok(LogOutput::StdOut { message })) => {
                // A reader that has stopped reading must not hold up the end.
                tokio::select! {
                    sent = pieces.send(message) => if sent.is_err() { break },
                    () = shut_down.cancelled() => break,
                }
            }
            Some(Ok(LogOutput::StdErr { message } | LogOutput::Console { message })) => {
                keep_tail(&mut tail, &message);
            }
            Some(Ok(LogOutput::StdIn { .. })) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "lost a container's output");
                break;
            }
            None => break,
        }
    }
    tail
}

fn keep_tail(tail: &mut Vec<u8>, more: &[u8]) {
    tail.extend_from_slice(&more[more.len().saturating_sub(STDERR_TAIL_BYTES_MAX)..]);
    let over = tail.len().saturating_sub(STDERR_TAIL_BYTES_MAX);
    tail.drain(..over);
}

/// Wait for the exit status, which the engine sends once.
async fn report_exit(shared: Arc<Shared>, id: String, sender: watch::Sender<Option<i64>>) {
    let options = WaitContainerOptionsBuilder::new()
        .condition("next-exit")
        .build();
    let mut exits = std::pin::pin!(shared.engine.patient.wait_container(&id, Some(options)));
    // Nobody may be left to hear it: a container that could not be started has no exit.
    let exit = tokio::select! {
        exit = exits.next() => exit,
        () = sender.closed() => return,
    };
    match exit {
        Some(Ok(exit)) => drop(sender.send(Some(exit.status_code))),
        // The client makes an error of each status but 0.
        Some(Err(Error::DockerContainerWaitError { code, .. })) => drop(sender.send(Some(code))),
        Some(Err(error)) => tracing::debug!(container = id, %error, "no exit status"),
        None => {}
    }
}

/// The duty to end one container. Dropping it undone does it in the background.
struct Ending {
    id: String,
    exit: watch::Receiver<Option<i64>>,
    /// Gives the end of the raw stderr.
    pump: Option<JoinHandle<Vec<u8>>>,
    /// `None` once the duty is done.
    shared: Option<Arc<Shared>>,
}

impl Ending {
    /// End the container and wait until nothing of it is left. A guest that ended by itself is
    /// given the time to say how; one that runs is killed, at once if `kill`.
    async fn end(mut self, kill: bool) -> GuestExit {
        let Some(shared) = self.shared.take() else {
            return GuestExit::default();
        };
        let ended = self.pump.as_ref().is_none_or(JoinHandle::is_finished);
        let mut code = if ended || !kill {
            self.exit_within(EXIT_WITHIN).await
        } else {
            *self.exit.borrow()
        };
        let mut ours = false;
        if code.is_none() {
            reap::kill(&shared.engine, &self.id).await;
            ours = true;
            code = self.exit_within(EXIT_WITHIN).await;
        }
        if let Err(error) = reap::wait_gone(&shared.engine, &self.id).await {
            tracing::warn!(container = self.id, %error, "could not remove a container");
        }
        let tail = match self.pump.take() {
            // What was written before the end has arrived; this only collects it.
            Some(pump) => {
                let abort = pump.abort_handle();
                let tail = tokio::time::timeout(TAIL_WITHIN, pump).await;
                abort.abort();
                tail.ok().and_then(Result::ok).unwrap_or_default()
            }
            None => Vec::new(),
        };
        exit(
            code,
            ours,
            shared.memory_kills,
            &String::from_utf8_lossy(&tail),
        )
    }

    async fn exit_within(&mut self, within: Duration) -> Option<i64> {
        let known = self.exit.wait_for(Option::is_some);
        match tokio::time::timeout(within, known).await {
            Ok(Ok(code)) => *code,
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        if let Some(pump) = &self.pump {
            pump.abort();
        }
        // If the runtime has ended, so do we, and with us the container's stdin.
        let id = std::mem::take(&mut self.id);
        let (tasks, runtime) = (shared.tasks.clone(), shared.runtime.clone());
        tasks.spawn_on(
            async move { reap::remove(&shared.engine, &id).await },
            &runtime,
        );
    }
}

/// What `boot.py` writes behind everything else when the runner was killed by SIGKILL: how many
/// processes of the container the kernel has killed for memory.
const OOM_MARK: &str = "oom_kill ";

/// How it ended. SIGKILL has three senders: us, the kernel for want of memory, and the user's own
/// code.
fn exit(code: Option<i64>, ours: bool, memory_kills: bool, stderr: &str) -> GuestExit {
    let stderr = without_words_of_podman(stderr);
    let (tail, kills) = match stderr.trim_end().rsplit_once(OOM_MARK) {
        Some((tail, count)) => (tail, count.parse::<u64>().ok()),
        None => (stderr, None),
    };
    GuestExit {
        code,
        // Without a mark the guest's first process itself was killed, which its own code cannot do.
        out_of_memory: code == Some(KILLED) && !ours && memory_kills && kills != Some(0),
        stderr_tail: if kills.is_some() {
            tail.to_owned()
        } else {
            stderr.to_owned()
        },
    }
}

/// When Podman cannot pass on what we write, because the guest has just ended, it says so at the end
/// of the guest's own stderr.
fn without_words_of_podman(stderr: &str) -> &str {
    match stderr.rsplit_once("Error: ") {
        Some((own, words)) if words.contains(" unixpacket ") && words.lines().count() == 1 => own,
        _ => stderr,
    }
}

/// 128 + SIGKILL.
const KILLED: i64 = 137;

#[cfg(test)]
mod tests {
    use super::*;

    /// As it came from Podman 4.3.1.
    macro_rules! podmans_words {
        () => {
            "Error: write unixpacket @->/proc/self/fd/14/attach: write: broken pipe\n"
        };
    }

    #[test]
    fn a_kill_is_for_memory_only_when_neither_we_nor_the_code_did_it() {
        for (code, ours, memory_kills, stderr, out_of_memory) in [
            (Some(137), false, true, "", true),
            (Some(137), false, true, "oom_kill 2\n", true),
            (Some(137), false, true, "oom_kill 0\n", false),
            (
                Some(137),
                false,
                true,
                concat!("oom_kill 0\n", podmans_words!()),
                false,
            ),
            (Some(137), true, true, "", false),
            (Some(137), false, false, "", false),
            (Some(139), false, true, "oom_kill 2\n", false),
            (Some(0), false, true, "", false),
            (None, false, true, "", false),
        ] {
            let exit = exit(code, ours, memory_kills, stderr);
            assert_eq!(
                exit.out_of_memory, out_of_memory,
                "{code:?} {ours} {memory_kills} {stderr:?}"
            );
        }
        assert_eq!(
            exit(Some(137), false, true, "words\noom_kill 1\n").stderr_tail,
            "words\n"
        );
    }

    #[test]
    fn what_podman_says_is_not_taken_for_the_guests_words() {
        for (stderr, own) in [
            (podmans_words!(), ""),
            (concat!("last words\n", podmans_words!()), "last words\n"),
            ("Error: my own\n", "Error: my own\n"),
            (
                concat!(podmans_words!(), "more\n"),
                concat!(podmans_words!(), "more\n"),
            ),
        ] {
            assert_eq!(exit(Some(1), false, true, stderr).stderr_tail, own);
        }
    }

    #[test]
    fn only_the_tail_of_stderr_is_kept() {
        let mut tail = Vec::new();
        keep_tail(&mut tail, b"start");
        keep_tail(&mut tail, &[b'x'; 5000]);
        keep_tail(&mut tail, b"end");
        assert_eq!(tail.len(), STDERR_TAIL_BYTES_MAX);
        assert!(tail.ends_with(b"xend"));
    }
}
