//! From limits to the description of a hardened container; deny by default. A pure function and
//! its inverse: what the engine says it will enforce, read back.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::engine::CanLimit;
use crate::SandboxLimits;
use crate::limits::{Enforcement, LimitFact};
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, HealthConfig, HostConfig, HostConfigLogConfig,
    ResourcesUlimits,
};

/// What one sandbox's containers have in common.
#[derive(Clone, Debug)]
pub(crate) struct Spec<'a> {
    pub(crate) image: &'a str,
    /// `uid:gid`
    pub(crate) user: &'a str,
    pub(crate) limits: &'a SandboxLimits,
    /// The program that `python3 -c` runs.
    pub(crate) boot: &'a str,
    /// Folders that the image declares as volumes; see [`body`].
    pub(crate) volumes: &'a [String],
    /// A folder of this machine that holds packages and nothing else.
    pub(crate) packages: Option<&'a Path>,
    /// Our own hard limits, where the engine cannot exceed them.
    pub(crate) hard: HardLimits,
    pub(crate) labels: HashMap<String, String>,
}

/// Hard limits of this process; `None` is unlimited or unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HardLimits {
    pub(crate) processes: Option<u64>,
    pub(crate) open_files: Option<u64>,
}

impl HardLimits {
    /// Those of this process, where containers run on the same kernel.
    pub(crate) fn of_this_process() -> Self {
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{Resource, getrlimit};
            Self {
                processes: getrlimit(Resource::Nproc).maximum,
                open_files: getrlimit(Resource::Nofile).maximum,
            }
        }
        #[cfg(not(target_os = "linux"))]
        Self::default()
    }
}

/// `RLIMIT_NPROC` counts the processes of one user id over all containers and the system, so it is
/// no limit of one sandbox: that is `PidsLimit`. It only has to be explicit, because an engine's
/// default may exceed what the engine itself may set.
const PROCESSES_OF_USER_MAX: u64 = 4096;

/// `multiprocessing` needs `/dev/shm` for its locks; large data belongs into `/tmp`.
const SHM_BYTES: i64 = 16 << 20;

/// The container to create.
pub(crate) fn body(spec: &Spec<'_>) -> ContainerCreateBody {
    let limits = spec.limits;
    let memory = i64::try_from(limits.memory_bytes_max).unwrap_or(i64::MAX);
    ContainerCreateBody {
        image: Some(spec.image.to_owned()),
        user: Some(spec.user.to_owned()),
        // The same for all, so that nothing of the engine or the machine shows.
        hostname: Some("sandbox".to_owned()),
        // Not `/workspace`: Docker would create a folder for it in the image, owned by root, whose
        // mode the mount then takes over.
        working_dir: Some("/".to_owned()),
        // Both, so that nothing of the image's own entry point or command is left.
        entrypoint: Some(vec!["python3".to_owned()]),
        cmd: Some(
            ["-I", "-B", "-u", "-c", spec.boot]
                .map(str::to_owned)
                .to_vec(),
        ),
        // No command of the image runs beside ours.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // When we vanish, stdin ends and the guest with it.
        stdin_once: Some(true),
        tty: Some(false),
        network_disabled: Some(true),
        // There is nothing to shut down in an orderly way.
        stop_signal: Some("SIGKILL".to_owned()),
        stop_timeout: Some(1),
        labels: Some(spec.labels.clone()),
        host_config: Some(HostConfig {
            // The engine removes the container when it has ended, even when we no longer can.
            auto_remove: Some(true),
            network_mode: Some("none".to_owned()),
            readonly_rootfs: Some(true),
            tmpfs: Some(tmpfs(limits, spec.volumes)),
            binds: spec.packages.and_then(bind).map(|bind| vec![bind]),
            shm_size: Some(SHM_BYTES),
            cap_drop: Some(vec!["ALL".to_owned()]),
            privileged: Some(false),
            // The seccomp profile is the engine's default because none is named.
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            ipc_mode: Some("private".to_owned()),
            // The guest's own first process reaps; an engine's may not be installed.
            init: Some(false),
            memory: Some(memory),
            // Memory and swap together: equal means no swap.
            memory_swap: Some(memory),
            pids_limit: Some(i64::from(limits.processes_max)),
            nano_cpus: limits.cpus_max.map(|cpus| (cpus * 1e9) as i64),
            ulimits: Some(vec![
                ulimit(
                    "nofile",
                    capped(u64::from(limits.open_files_max), spec.hard.open_files),
                ),
                ulimit("nproc", capped(PROCESSES_OF_USER_MAX, spec.hard.processes)),
                ulimit("core", 0),
            ]),
            // What the guest prints is the user's, and can be 50 MB; the engine keeps no copy.
            log_config: Some(HostConfigLogConfig {
                typ: Some("none".to_owned()),
                config: None,
            }),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// The writable folders, and a lid on each folder that would otherwise be writable: Podman makes
/// `/run` and `/var/tmp` of a read-only container writable without a size, and an image may declare
/// volumes, which live on disk.
fn tmpfs(limits: &SandboxLimits, volumes: &[String]) -> HashMap<String, String> {
    const LID: &str = "ro,nosuid,nodev,noexec,size=64k,mode=0755";
    let writable = |bytes: u64| format!("rw,nosuid,nodev,size={bytes},mode=1777");
    let mut mounts: HashMap<String, String> = volumes
        .iter()
        .map(String::as_str)
        .chain(["/run", "/var/tmp"])
        .map(|path| (path.to_owned(), LID.to_owned()))
        .collect();
    mounts.insert("/tmp".to_owned(), writable(limits.tmp_bytes_max));
    mounts.insert(
        "/workspace".to_owned(),
        writable(limits.workspace_bytes_max),
    );
    mounts
}

/// Where a container sees the packages that were installed.
const PACKAGES: &str = "/packages";

/// The one thing of this machine that a container sees, to read and not to write. `z` lets the
/// containers of all our sessions read it where `SELinux` would let none. `None`: the engine could not
/// tell the end of such a path.
fn bind(folder: &Path) -> Option<String> {
    let folder = folder.to_str()?;
    let after_drive = match folder.as_bytes() {
        [letter, b':', ..] if letter.is_ascii_alphabetic() => &folder[2..],
        _ => folder,
    };
    (!after_drive.contains([':', ','])).then(|| format!("{folder}:{PACKAGES}:ro,z"))
}

/// Whether the folder of packages is there and cannot be written to; asked of what was created.
pub(crate) fn sees_packages(created: &ContainerInspectResponse) -> bool {
    let mounts = created.mounts.iter().flatten();
    let mut packages = mounts.filter(|mount| mount.destination.as_deref() == Some(PACKAGES));
    packages.any(|mount| mount.rw == Some(false))
}

fn capped(value: u64, hard: Option<u64>) -> i64 {
    hard.map_or(value, |hard| value.min(hard)) as i64
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    }
}

/// What holds for a container that was created from [`body`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enforced {
    /// By the name of the limit in [`SandboxLimits`].
    pub(crate) limits: BTreeMap<&'static str, LimitFact>,
    /// What the guest must do to itself because the engine does not: `as`, `nproc`, `nofile`, `core`.
    pub(crate) rlimits: BTreeMap<&'static str, u64>,
    /// What the user should know: sentences without their subject, which is the engine.
    shortfalls: Vec<String>,
}

impl Enforced {
    /// A sentence for each thing that is weaker than asked for.
    pub(crate) fn warnings(&self, engine: &str) -> impl Iterator<Item = String> {
        self.shortfalls
            .iter()
            .map(move |shortfall| format!("{engine} {shortfall}"))
    }
}

/// Address space that Python and its libraries reserve without using it. `RLIMIT_AS` counts it, so
/// a process limited to its memory alone could not import them.
const RESERVED_BYTES: u64 = 256 << 20;

/// Read back from `inspect` what the engine took on. An engine may drop a limit and still report
/// success: rootless Podman on cgroup v1 drops all of them. What it says that it cannot limit at all
/// it does not, whatever it wrote down.
pub(crate) fn read_back(
    limits: &SandboxLimits,
    engine: CanLimit,
    created: &ContainerInspectResponse,
) -> Enforced {
    let host = created.host_config.clone().unwrap_or_default();
    let mut facts = BTreeMap::new();
    let mut rlimits = BTreeMap::new();
    let mut dropped = Vec::new();
    let mut shortfalls = Vec::new();

    let memory = limits.memory_bytes_max as i64;
    if engine.memory && host.memory == Some(memory) {
        facts.insert("memory_bytes_max", fact(memory as f64, Enforcement::Cgroup));
        if host.memory_swap != Some(memory) {
            shortfalls.push(format!(
                "limits memory but not swap; a run may use more than {} MiB on disk",
                memory >> 20
            ));
        }
    } else {
        rlimits.insert("as", limits.memory_bytes_max + RESERVED_BYTES);
        facts.insert("memory_bytes_max", fact(memory as f64, Enforcement::Rlimit));
        dropped.push("memory");
    }

    let processes = i64::from(limits.processes_max);
    if engine.processes && host.pids_limit == Some(processes) {
        facts.insert("processes_max", fact(processes as f64, Enforcement::Cgroup));
    } else {
        rlimits.insert("nproc", u64::from(limits.processes_max));
        facts.insert("processes_max", fact(processes as f64, Enforcement::Rlimit));
        dropped.push("processes");
    }

    let cpus = limits.cpus_max.map(|cpus| (cpus * 1e9) as i64);
    let quota = match (host.cpu_quota.unwrap_or(0), host.cpu_period.unwrap_or(0)) {
        (quota, period) if quota > 0 && period > 0 => {
            Some((quota as f64 / period as f64 * 1e9) as i64)
        }
        _ => None,
    };
    let how = match cpus {
        None => Enforcement::None,
        Some(_) if engine.cpus && (host.nano_cpus == cpus || quota == cpus) => Enforcement::Cgroup,
        Some(_) => {
            dropped.push("CPUs");
            Enforcement::None
        }
    };
    facts.insert(
        "cpus_max",
        LimitFact {
            asked: limits.cpus_max,
            enforced: how == Enforcement::Cgroup,
            how,
        },
    );

    let files = u64::from(limits.open_files_max);
    let set = |name: &str| {
        let full = format!("RLIMIT_{}", name.to_ascii_uppercase());
        host.ulimits.iter().flatten().any(|limit| {
            limit.name.as_deref() == Some(name) || limit.name.as_deref() == Some(&full)
        })
    };
    if !set("nofile") {
        rlimits.insert("nofile", files);
    }
    if !set("core") {
        rlimits.insert("core", 0);
    }
    facts.insert("open_files_max", fact(files as f64, Enforcement::Rlimit));

    for (name, path, bytes) in [
        ("tmp_bytes_max", "/tmp", limits.tmp_bytes_max),
        (
            "workspace_bytes_max",
            "/workspace",
            limits.workspace_bytes_max,
        ),
    ] {
        let size = format!("size={bytes}");
        let options = host.tmpfs.as_ref().and_then(|mounts| mounts.get(path));
        let holds = options.is_some_and(|options| options.split(',').any(|option| option == size));
        if !holds {
            shortfalls.push(format!("does not limit the size of {path}"));
        }
        let how = if holds {
            Enforcement::Mount
        } else {
            Enforcement::None
        };
        facts.insert(name, fact(bytes as f64, how));
    }

    if !dropped.is_empty() {
        shortfalls.insert(0, dropped_limits(&dropped, &rlimits));
    }
    Enforced {
        limits: facts,
        rlimits,
        shortfalls,
    }
}

fn fact(asked: f64, how: Enforcement) -> LimitFact {
    LimitFact {
        asked: Some(asked),
        enforced: how != Enforcement::None,
        how,
    }
}

fn dropped_limits(dropped: &[&str], rlimits: &BTreeMap<&str, u64>) -> String {
    let mut parts = vec![format!("does not limit {} here", dropped.join(", "))];
    if let Some(bytes) = rlimits.get("as") {
        parts.push(format!(
            "each process is limited to {} MiB of address space instead",
            bytes >> 20
        ));
    }
    if let Some(processes) = rlimits.get("nproc") {
        parts.push(format!(
            "all sandboxes of this user share {processes} processes instead"
        ));
    }
    parts.join("; ") + ". A system with cgroup v2, or a rootful engine, enforces them"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use bollard::models::ContainerInspectResponse;
    use serde_json::{Value, json};

    use super::*;

    fn limits() -> SandboxLimits {
        SandboxLimits {
            cpus_max: Some(0.5),
            ..SandboxLimits::default()
        }
    }

    fn created() -> Value {
        let limits = limits();
        let spec = Spec {
            image: "python:3.14-slim",
            user: "65534:65534",
            limits: &limits,
            boot: "<boot>",
            volumes: &["/data".to_owned()],
            packages: Some(Path::new("/home/me/packages")),
            hard: HardLimits {
                processes: Some(1000),
                open_files: None,
            },
            labels: HashMap::from([("runbridge".to_owned(), "1".to_owned())]),
        };
        serde_json::to_value(body(&spec)).unwrap()
    }

    /// The whole of it: an option that is added or lost must be seen here.
    #[test]
    fn the_container_is_closed_but_for_what_is_named() {
        assert_eq!(
            created(),
            json!({
                "Image": "python:3.14-slim",
                "User": "65534:65534",
                "Hostname": "sandbox",
                "WorkingDir": "/",
                "Entrypoint": ["python3"],
                "Cmd": ["-I", "-B", "-u", "-c", "<boot>"],
                "Healthcheck": {"Test": ["NONE"]},
                "AttachStdin": true, "AttachStdout": true, "AttachStderr": true,
                "OpenStdin": true, "StdinOnce": true, "Tty": false,
                "NetworkDisabled": true,
                "StopSignal": "SIGKILL", "StopTimeout": 1,
                "Labels": {"runbridge": "1"},
                "HostConfig": {
                    "AutoRemove": true,
                    "NetworkMode": "none",
                    "ReadonlyRootfs": true,
                    "Binds": ["/home/me/packages:/packages:ro,z"],
                    "Tmpfs": {
                        "/tmp": "rw,nosuid,nodev,size=67108864,mode=1777",
                        "/workspace": "rw,nosuid,nodev,size=134217728,mode=1777",
                        "/run": "ro,nosuid,nodev,noexec,size=64k,mode=0755",
                        "/var/tmp": "ro,nosuid,nodev,noexec,size=64k,mode=0755",
                        "/data": "ro,nosuid,nodev,noexec,size=64k,mode=0755",
                    },
                    "ShmSize": 16 << 20,
                    "CapDrop": ["ALL"],
                    "Privileged": false,
                    "SecurityOpt": ["no-new-privileges"],
                    "IpcMode": "private",
                    "Init": false,
                    "Memory": 512 << 20, "MemorySwap": 512 << 20,
                    "PidsLimit": 128,
                    "NanoCpus": 500_000_000,
                    "Ulimits": [
                        {"Name": "nofile", "Soft": 1024, "Hard": 1024},
                        {"Name": "nproc", "Soft": 1000, "Hard": 1000},
                        {"Name": "core", "Soft": 0, "Hard": 0},
                    ],
                    "LogConfig": {"Type": "none"},
                },
            })
        );
    }

    fn back(change: impl FnOnce(&mut Value)) -> Enforced {
        back_of(CanLimit::default(), change)
    }

    fn back_of(engine: CanLimit, change: impl FnOnce(&mut Value)) -> Enforced {
        let mut host = created()["HostConfig"].clone();
        change(&mut host);
        let inspect = json!({ "HostConfig": host });
        read_back(
            &limits(),
            engine,
            &serde_json::from_value::<ContainerInspectResponse>(inspect).unwrap(),
        )
    }

    fn hows(enforced: &Enforced) -> Vec<Enforcement> {
        enforced.limits.values().map(|fact| fact.how).collect()
    }

    #[test]
    fn an_engine_that_keeps_its_word_needs_no_help() {
        use Enforcement::{Cgroup, Mount, Rlimit};
        let enforced = back(|_| {});
        assert_eq!(
            hows(&enforced),
            [Cgroup, Cgroup, Rlimit, Cgroup, Mount, Mount]
        );
        assert!(enforced.rlimits.is_empty());
        assert_eq!(enforced.warnings("podman").count(), 0);
    }

    #[test]
    fn podman_writes_the_same_in_its_own_way() {
        let enforced = back(|host| {
            host["NanoCpus"] = json!(0);
            host["CpuQuota"] = json!(50_000);
            host["CpuPeriod"] = json!(100_000);
            host["Ulimits"] = json!([
                {"Name": "RLIMIT_NOFILE", "Soft": 1024, "Hard": 1024},
                {"Name": "RLIMIT_CORE", "Soft": 0, "Hard": 0},
            ]);
            host["Tmpfs"]["/tmp"] =
                json!("rw,nosuid,nodev,size=67108864,mode=1777,rprivate,tmpcopyup");
        });
        assert!(enforced.rlimits.is_empty(), "{:?}", enforced.rlimits);
        assert_eq!(enforced.warnings("podman").count(), 0);
    }

    #[test]
    fn what_an_engine_drops_is_made_up_for_and_said() {
        use Enforcement::{Mount, None, Rlimit};
        let enforced = back(|host| {
            for name in ["Memory", "MemorySwap", "PidsLimit", "NanoCpus"] {
                host[name] = json!(0);
            }
            host["Ulimits"] = json!([]);
            host["Tmpfs"] = json!({"/tmp": "rw,size=67108864"});
        });
        assert_eq!(hows(&enforced), [None, Rlimit, Rlimit, Rlimit, Mount, None]);
        assert_eq!(
            enforced.rlimits,
            BTreeMap::from([
                ("as", 768 << 20),
                ("core", 0),
                ("nofile", 1024),
                ("nproc", 128)
            ])
        );
        assert_eq!(
            enforced
                .warnings("rootless podman on cgroup v1")
                .collect::<Vec<_>>(),
            [
                "rootless podman on cgroup v1 does not limit memory, processes, CPUs here; each process is limited \
                 to 768 MiB of address space instead; all sandboxes of this user share 128 processes instead. \
                 A system with cgroup v2, or a rootful engine, enforces them",
                "rootless podman on cgroup v1 does not limit the size of /workspace",
            ]
        );
    }

    #[test]
    fn an_engine_that_cannot_limit_is_not_believed() {
        use Enforcement::{Cgroup, Mount, None, Rlimit};
        let engine = CanLimit {
            memory: false,
            processes: true,
            cpus: false,
        };
        let enforced = back_of(engine, |_| {});
        assert_eq!(
            hows(&enforced),
            [None, Rlimit, Rlimit, Cgroup, Mount, Mount]
        );
        assert!(enforced.rlimits.contains_key("as"));
        let warning = enforced.warnings("rootless docker").next().unwrap();
        assert!(
            warning.contains("does not limit memory, CPUs here"),
            "{warning}"
        );
    }

    #[test]
    fn swap_that_stays_open_is_said() {
        let enforced = back(|host| host["MemorySwap"] = json!(-1));
        assert_eq!(
            enforced.warnings("docker").collect::<Vec<_>>(),
            ["docker limits memory but not swap; a run may use more than 512 MiB on disk"]
        );
    }
}
