//! What a guest finds when it looks around.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use bollard::models::ContainerConfig;
use bollard::query_parameters::{CommitContainerOptionsBuilder, RemoveImageOptionsBuilder};

use runbridge_sandbox::Mounting;

use crate::engines::{Bench, on_every_engine, unique};
use crate::python::Python;

const LOOK_AROUND: &str = r"
import json, os
status = dict(line.split(':\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\t' in line)
def write(path):
    try:
        with open(path + '/probe', 'w') as file:
            file.write('x')
        return 'ok'
    except OSError as error:
        return error.strerror
def size(path):
    stat = os.statvfs(path)
    return stat.f_blocks * stat.f_frsize
print(json.dumps({
    'uid': os.getuid(), 'gid': os.getgid(), 'groups': [g for g in os.getgroups() if g != os.getgid()],
    'capabilities': [status[name] for name in ('CapEff', 'CapPrm', 'CapBnd', 'CapInh', 'CapAmb')],
    'no_new_privileges': status['NoNewPrivs'], 'seccomp': status['Seccomp'],
    'interfaces': sorted(line.split(':')[0].strip() for line in open('/proc/net/dev').read().splitlines()[2:]),
    'hostname': os.uname().nodename,
    'write': {path: write(path) for path in ('/', '/etc', '/usr', '/run', '/var/tmp', '/tmp', '/workspace')},
    'size': {path: size(path) for path in ('/tmp', '/workspace')},
    'environment': sorted(set(os.environ) - {'PATH', 'HOME', 'LANG', 'TMPDIR'}),
}))
";

#[tokio::test]
async fn a_guest_has_no_rights_no_network_and_two_small_writable_folders() {
    on_every_engine(async |engine| {
        let sandbox = Bench::new(&engine).open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        let mut seen = python.run(LOOK_AROUND).await.json();
        let environment = seen.as_object_mut().unwrap().remove("environment").unwrap();
        assert_eq!(
            seen,
            json!({
                "uid": 65534, "gid": 65534, "groups": [],
                "capabilities": vec!["0000000000000000"; 5],
                "no_new_privileges": "1", "seccomp": "2",
                "interfaces": ["lo"],
                "hostname": "sandbox",
                "write": {
                    "/": "Read-only file system", "/etc": "Read-only file system", "/usr": "Read-only file system",
                    "/run": "Read-only file system", "/var/tmp": "Read-only file system",
                    "/tmp": "ok", "/workspace": "ok",
                },
                "size": {"/tmp": 64 << 20, "/workspace": 128 << 20},
            }),
        );
        for name in environment.as_array().unwrap() {
            let name = name.as_str().unwrap();
            assert!(name.starts_with("PYTHON") || name == "MPLBACKEND", "the environment has {name}");
        }
        python.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn an_image_cannot_open_what_is_closed() {
    const LOOK: &str = "
import json, os
def write(path):
    try:
        open(path + '/probe', 'w').close()
        return 'ok'
    except OSError as error:
        return error.strerror
print(json.dumps([write('/data'), os.getuid(), sorted(name for name in os.environ if name.startswith('IMAGE'))]))
";
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        let bare = bench.create_bare(&[("runbridge-test", "1")]).await;
        let repository = format!("localhost/{}", unique("shape"));
        let changes = [
            "VOLUME /data",
            "ENTRYPOINT [\"/bin/false\"]",
            "CMD [\"x\"]",
            "USER 0",
            "ENV IMAGE_SECRET=1",
        ];
        let options = CommitContainerOptionsBuilder::new()
            .container(&bare)
            .repo(&repository)
            .tag("1")
            .changes(&changes.join("\n"))
            .build();
        engine
            .client()
            .commit_container(options, ContainerConfig::default())
            .await
            .unwrap();
        bench.remove(&bare).await;

        bench.config.image = format!("{repository}:1");
        let sandbox = bench.open().await;
        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        assert_eq!(
            python.run(LOOK).await.json(),
            json!(["Read-only file system", 65534, []])
        );
        python.end(true).await;
        sandbox.shut_down().await;
        let force = RemoveImageOptionsBuilder::new().force(true).build();
        engine
            .client()
            .remove_image(&bench.config.image, Some(force), None)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_folder_of_packages_is_seen_and_never_written_to() {
    const LOOK: &str = "
import json, os
def tried(action):
    try:
        action()
        return 'done'
    except OSError as error:
        return error.strerror
mounts = [line.split()[4] for line in open('/proc/self/mountinfo') if line.split()[4].startswith('/packages')]
print(json.dumps([
    sorted(os.listdir('/packages')), open('/packages/a.whl').read(), mounts,
    tried(lambda: open('/packages/b.whl', 'w')), tried(lambda: os.remove('/packages/a.whl')),
    tried(lambda: open('/packages/a.whl', 'r+')), tried(lambda: os.listdir('/packages/..' + folder)),
]))
";
    on_every_engine(async |engine| {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("packages");
        std::fs::create_dir(&packages).unwrap();
        std::fs::write(packages.join("a.whl"), "first").unwrap();
        // Nothing but the mount keeps the guest from writing, and the rootless engine of the tests,
        // which is another user's, comes in.
        for (path, mode) in [
            (folder.path(), 0o755),
            (&packages, 0o777),
            (&packages.join("a.whl"), 0o666),
        ] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut bench = Bench::new(&engine);
        bench.config.packages = Some(packages.clone());
        let sandbox = bench.open().await;
        let guest = sandbox.start().await.unwrap();
        assert_eq!(guest.mounting, Mounting::Folder);
        let mut python = Python::new(guest).await;
        let folder = format!("folder = {:?}\n", folder.path());
        let seen = python.run(&(folder + LOOK)).await.json();
        let read_only = "Read-only file system";
        assert_eq!(
            seen,
            json!([
                ["a.whl"],
                "first",
                ["/packages"],
                read_only,
                read_only,
                read_only,
                "No such file or directory"
            ])
        );
        std::fs::write(packages.join("later.whl"), "later").unwrap();
        let later = python
            .run("print(open('/packages/later.whl').read())")
            .await;
        assert_eq!(later.stdout, "later\n");
        python.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}

#[tokio::test]
async fn without_a_folder_of_packages_a_guest_sees_none() {
    sees_no_packages(None, &Mounting::Without).await;
}

#[tokio::test]
async fn an_engine_without_the_folder_runs_all_the_same() {
    // No engine can tell where such a path ends.
    sees_no_packages(Some("/no:where"), &Mounting::Never).await;
}

async fn sees_no_packages(folder: Option<&str>, mounting: &Mounting) {
    on_every_engine(async |engine| {
        let mut bench = Bench::new(&engine);
        bench.config.packages = folder.map(Into::into);
        let sandbox = bench.open().await;
        let guest = sandbox.start().await.unwrap();
        assert_eq!(guest.mounting, *mounting);
        let mut python = Python::new(guest).await;
        let seen = python
            .run("import os\nprint(os.path.exists('/packages'))")
            .await;
        assert_eq!(seen.stdout, "False\n");
        python.end(true).await;
        sandbox.shut_down().await;
    })
    .await;
}
