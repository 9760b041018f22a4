//! Container engines for the tests, each with a store and a socket of its own: rootful Podman,
//! Docker, and both rootless as an ordinary user. Nothing of the system's own engines is used or
//! changed.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::http;
use crate::machine::{install, is_root, on_path, run};

/// Who runs what is rootless; an account that exists for nothing else.
const USER: &str = "runbridge-test";

/// Programs the engines need, with the Debian package of each.
const PROGRAMS: [(&str, &str); 7] = [
    ("podman", "podman"),
    ("runc", "runc"),
    ("dockerd", "docker.io"),
    ("newuidmap", "uidmap"),
    ("rootlesskit", "rootlesskit"),
    ("setpriv", "util-linux"),
    ("useradd", "passwd"),
];

/// Starting includes building a store.
const READY_WITHIN: Duration = Duration::from_secs(40);

/// Docker stops its own containerd first.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// An engine that answers; what was started for it ends with this value.
pub(crate) struct Engine {
    /// `podman`, `docker`, or one of them with `-rootless`.
    pub(crate) name: String,
    /// Its socket.
    pub(crate) socket: PathBuf,
    /// `None` when it ran already, left by an earlier call that was killed.
    service: Option<Child>,
    /// What outlives the service.
    left: Left,
}

/// What an engine leaves when its service ends.
#[derive(Default)]
struct Left {
    /// Names the process that keeps a rootless user namespace open.
    pause_pid_file: Option<PathBuf>,
    /// Where Podman has mounted its own store; a folder with a mount in it cannot be removed.
    mount: Option<PathBuf>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // What somebody else started is theirs to end.
        let Some(service) = &mut self.service else {
            return;
        };
        end(service);
        let pid = |file: &PathBuf| {
            std::fs::read_to_string(file)
                .ok()?
                .trim()
                .parse::<u32>()
                .ok()
        };
        if let Some(pid) = self.left.pause_pid_file.as_ref().and_then(pid) {
            signal("-KILL", &pid.to_string());
        }
        if let Some(mount) = &self.left.mount {
            let _ = Command::new("umount")
                .arg(mount)
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Start all of them. Their stores live in `dir` and survive, so that an image is loaded once.
pub(crate) fn start_all(dir: &Path) -> anyhow::Result<Vec<Engine>> {
    if !is_root() {
        bail!(
            "the test engines are started by root: run this as root, or name running engines in RUNBRIDGE_TEST_ENGINES"
        );
    }
    install_missing()?;
    std::fs::create_dir_all(dir)?;
    let dir = dir.canonicalize()?;
    let user = ordinary_user()?;
    // One after the other costs seconds; they have nothing to do with one another.
    std::thread::scope(|scope| {
        let podman = scope.spawn(|| start_podman(&dir));
        let docker = scope.spawn(|| start_docker(&dir));
        let rootless_podman = scope.spawn(|| start_rootless_podman(&user));
        let rootless_docker = scope.spawn(|| start_rootless_docker(&user));
        [podman, docker, rootless_podman, rootless_docker]
            .into_iter()
            .map(|engine| {
                engine
                    .join()
                    .unwrap_or_else(|_| bail!("starting an engine panicked"))
            })
            .collect()
    })
}

fn start_podman(dir: &Path) -> anyhow::Result<Engine> {
    let dir = folder(dir, "podman")?;
    let socket = dir.join("podman.sock");
    let left = Left {
        mount: Some(dir.join("root/overlay")),
        ..Left::default()
    };
    start("podman", &socket, left, &dir.join("log"), || {
        let mut command = Command::new("podman");
        // Its monitors leave a file `oom` where they run when a container runs out of memory.
        command.current_dir(&dir);
        command.envs(write_config(&dir)?);
        command
            .arg("--root")
            .arg(dir.join("root"))
            .arg("--runroot")
            .arg(dir.join("run"));
        command
            .args(["system", "service", "--time=0"])
            .arg(url(&socket));
        Ok(command)
    })
}

fn start_docker(dir: &Path) -> anyhow::Result<Engine> {
    let dir = folder(dir, "docker")?;
    let socket = dir.join("docker.sock");
    start("docker", &socket, Left::default(), &dir.join("log"), || {
        // A pid file of a daemon that was killed may name another program by now.
        let pid_file = dir.join("pid");
        let _ = std::fs::remove_file(&pid_file);
        let mut command = Command::new("dockerd");
        of_docker(&mut command, &dir, &socket);
        command.arg("--pidfile").arg(pid_file);
        command.args(["--exec-opt", "native.cgroupdriver=cgroupfs"]);
        Ok(command)
    })
}

/// What both daemons of Docker are told.
fn of_docker(command: &mut Command, dir: &Path, socket: &Path) {
    command
        .arg("--data-root")
        .arg(dir.join("data"))
        .arg("--exec-root")
        .arg(dir.join("exec"))
        .arg("--host")
        .arg(url(socket));
    // A registry that breaks off does so on purpose: five attempts take most of a minute.
    command.arg("--max-download-attempts=1");
    // Containers here have no network, so the system's is left alone.
    command.args([
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
    ]);
    // Some machines do not let even root raise its own limits.
    command.args(["--default-ulimit", "nofile=1024:1024"]);
}

fn start_rootless_podman(user: &User) -> anyhow::Result<Engine> {
    // Below its home, because no folder of ours need be open to that user.
    let dir = user.home.join("engine");
    let runtime = dir.join("runtime");
    let socket = dir.join("podman.sock");
    let pause = runtime.join("libpod/tmp/pause.pid");
    let left = Left {
        pause_pid_file: Some(pause),
        ..Left::default()
    };
    start("podman-rootless", &socket, left, &dir.join("log"), || {
        user.empty(&dir, &[&runtime, &dir.join("run")])?;
        let config = write_config(&dir)?;
        for (_, path) in &config {
            user.own(path)?;
        }
        let mut command = user.command(&runtime);
        command.envs(config);
        command
            .arg("podman")
            // Podman's own choice, which it does not make when it is given a folder.
            .args(["--storage-driver", "overlay"])
            .arg("--root")
            .arg(dir.join("overlay"))
            .arg("--runroot")
            .arg(dir.join("run"));
        command
            .args(["system", "service", "--time=0"])
            .arg(url(&socket));
        Ok(command)
    })
}

fn start_rootless_docker(user: &User) -> anyhow::Result<Engine> {
    let dir = user.home.join("docker");
    let runtime = dir.join("runtime");
    let socket = runtime.join("docker.sock");
    let log = dir.join("log");
    start("docker-rootless", &socket, Left::default(), &log, || {
        user.empty(&dir, &[&runtime, &dir.join("exec")])?;
        let mut command = user.command(&runtime);
        // The namespaces that Docker's own script makes, but for a network that nothing here uses.
        command.args(["rootlesskit", "--net=host", "--propagation=rprivate"]);
        command.args(["--copy-up=/etc", "--copy-up=/run"]);
        command.args([
            "sh",
            "-c",
            "rm -f /run/docker /run/containerd; exec dockerd \"$@\"",
            "dockerd",
        ]);
        command.arg("--rootless");
        of_docker(&mut command, &dir, &socket);
        Ok(command)
    })
}

/// Start a service unless its socket answers already, and wait until it does.
fn start(
    name: &str,
    socket: &Path,
    left: Left,
    log: &Path,
    command: impl FnOnce() -> anyhow::Result<Command>,
) -> anyhow::Result<Engine> {
    let mut engine = Engine {
        name: name.to_owned(),
        socket: socket.to_owned(),
        service: None,
        left,
    };
    if http::answers(socket) {
        return Ok(engine);
    }
    let mut command = command().with_context(|| format!("cannot prepare {name}"))?;
    let output = std::fs::File::create(log)?;
    let service = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Ctrl-C ends the tests first, which end their containers, and then this.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let service = engine.service.insert(service);
    let start = Instant::now();
    while !http::answers(socket) {
        if let Some(status) = service.try_wait()? {
            bail!("{name} ended with {status}:\n{}", tail(log));
        }
        if start.elapsed() > READY_WITHIN {
            bail!(
                "{name} is not ready after {} s:\n{}",
                READY_WITHIN.as_secs(),
                tail(log)
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(engine)
}

fn end(service: &mut Child) {
    let pid = service.id().to_string();
    signal("-TERM", &pid);
    let start = Instant::now();
    while start.elapsed() < STOP_WITHIN && matches!(service.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // Rootless Podman is two processes, of which the one that serves may outlive the other.
    signal("-KILL", &format!("-{pid}"));
    let _ = service.wait();
}

/// `whom`: a process, or with a minus sign before it the group of one.
fn signal(signal: &str, whom: &str) {
    let _ = Command::new("kill")
        .args([signal, "--", whom])
        .stderr(Stdio::null())
        .status();
}

fn folder(dir: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn url(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

/// Podman's settings for a machine without systemd, on which limits may not be raised, and for
/// registries of tests, which speak without TLS. Docker takes those of loopback without a word.
fn write_config(dir: &Path) -> anyhow::Result<[(&'static str, PathBuf); 2]> {
    let engine = "[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
                [containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n";
    let registries = "[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n";
    std::fs::create_dir_all(dir)?;
    let files = [
        ("CONTAINERS_CONF", "containers.conf", engine),
        ("CONTAINERS_REGISTRIES_CONF", "registries.conf", registries),
    ];
    for (_, name, text) in files {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(files.map(|(variable, name, _)| (variable, dir.join(name))))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

struct User {
    id: u32,
    group: u32,
    home: PathBuf,
}

impl User {
    fn own(&self, path: &Path) -> anyhow::Result<()> {
        std::os::unix::fs::chown(path, Some(self.id), Some(self.group))
            .with_context(|| format!("cannot give {} away", path.display()))
    }

    /// `dir`, in which `gone` are new: what lives in a runtime folder does not survive a restart of
    /// the machine.
    fn empty(&self, dir: &Path, gone: &[&Path]) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir)?;
        self.own(dir)?;
        for path in gone {
            if path.exists() {
                std::fs::remove_dir_all(path)
                    .with_context(|| format!("cannot empty {}", path.display()))?;
            }
            std::fs::create_dir(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
            self.own(path)?;
        }
        Ok(())
    }

    /// What runs its arguments as this user.
    fn command(&self, runtime: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={}", self.id))
            .arg(format!("--regid={}", self.group))
            .arg("--clear-groups");
        let path = std::env::var_os("PATH")
            .unwrap_or_else(|| OsString::from("/usr/bin:/bin:/usr/sbin:/sbin"));
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", runtime)
            .current_dir(&self.home);
        command
    }
}

/// The account, created if need be, with exactly one range of subordinate ids: Podman refuses two.
fn ordinary_user() -> anyhow::Result<User> {
    if find_user()?.is_none() {
        run(Command::new("useradd").args(["--create-home", "--shell", "/bin/sh", USER]))?;
    }
    let user = find_user()?.with_context(|| format!("useradd did not create {USER}"))?;
    for file in ["/etc/subuid", "/etc/subgid"] {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let wanted = one_range(&text);
        if wanted != text {
            write_whole(Path::new(file), &wanted)?;
        }
    }
    Ok(user)
}

fn find_user() -> anyhow::Result<Option<User>> {
    let text = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let Some(line) = text
        .lines()
        .find(|line| line.split(':').next() == Some(USER))
    else {
        return Ok(None);
    };
    let fields: Vec<_> = line.split(':').collect();
    let [_, _, id, group, _, home, _] = fields.as_slice() else {
        bail!("/etc/passwd: cannot read {line:?}")
    };
    Ok(Some(User {
        id: id.parse()?,
        group: group.parse()?,
        home: PathBuf::from(home),
    }))
}

/// The file with one line for our user, behind all other ranges if there was none.
fn one_range(text: &str) -> String {
    const COUNT: u64 = 65_536;
    let is_ours = |line: &&str| line.split(':').next() == Some(USER);
    let ours = text.lines().find(is_ours).map(str::to_owned);
    let line = ours.unwrap_or_else(|| {
        let end = |line: &str| {
            let mut fields = line
                .split(':')
                .skip(1)
                .map(|field| field.parse::<u64>().unwrap_or(0));
            fields.next().unwrap_or(0) + fields.next().unwrap_or(0)
        };
        let start = text.lines().map(end).max().unwrap_or(0).max(100_000);
        format!("{USER}:{start}:{COUNT}")
    });
    let mut lines: Vec<_> = text.lines().filter(|line| !is_ours(line)).collect();
    lines.push(&line);
    lines.join("\n") + "\n"
}

fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let aside = path.with_extension("runbridge-new");
    let mut file = std::fs::File::create(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::set_permissions(
        &aside,
        std::fs::metadata(path).map_or_else(
            |_| std::fs::Permissions::from_mode(0o644),
            |meta| meta.permissions(),
        ),
    )?;
    std::fs::rename(&aside, path).with_context(|| format!("cannot write {}", path.display()))
}

fn install_missing() -> anyhow::Result<()> {
    let missing: Vec<_> = PROGRAMS
        .iter()
        .filter(|(program, _)| !on_path(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        install(&missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_user_has_exactly_one_range_and_others_keep_theirs() {
        for (before, after) in [
            ("", "runbridge-test:100000:65536\n"),
            (
                "a:100000:65536\nb:200000:10\n",
                "a:100000:65536\nb:200000:10\nrunbridge-test:200010:65536\n",
            ),
            (
                "runbridge-test:100000:65536\na:165536:65536\nrunbridge-test:100000:65536\n",
                "a:165536:65536\nrunbridge-test:100000:65536\n",
            ),
            (
                "a:100000:65536\nrunbridge-test:165536:65536\n",
                "a:100000:65536\nrunbridge-test:165536:65536\n",
            ),
        ] {
            assert_eq!(one_range(before), after, "{before:?}");
        }
    }
}
