//! Files in `/packages`: those that a guest is started with, and those that come while it lives.

use runbridge_sandbox::{MOUNTED_BYTES_MAX, MountError};

use crate::session::{Session, WORKER_GRACE_MS, wasi};

#[tokio::test]
async fn files_are_there_from_the_start_or_at_once_and_outlive_a_lost_guest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("first.whl");
    std::fs::write(&path, "first").unwrap();
    let paths = vec![path, folder.path().join("gone.whl")];
    let wasi = wasi().await.with_packages(move || paths.clone());
    let limits = runbridge_sandbox::SandboxLimits::default();
    let mut session = Session::of(wasi.start(&limits, WORKER_GRACE_MS).unwrap()).await;
    let list =
        "import os\n{n: open('/packages/' + n).read() for n in sorted(os.listdir('/packages'))}";
    assert_eq!(session.run(list).await.value(), "{'first.whl': 'first'}");
    let mounts = session.interpreter.mounts();
    assert!(mounts.are_possible() && mounts.has("first.whl"));
    mounts.add("second.whl", b"second").await.unwrap();
    // What is there stays what it is.
    mounts.add("second.whl", b"other").await.unwrap();
    mounts.add("first.whl", b"other").await.unwrap();
    let both = "{'first.whl': 'first', 'second.whl': 'second'}";
    assert_eq!(session.run(list).await.value(), both);
    mounts.add("third.whl", b"third").await.unwrap();
    // The guest goes on from where it knew nothing of the third.
    session.run("import os; os._exit(1)").await;
    let all = "{'first.whl': 'first', 'second.whl': 'second', 'third.whl': 'third'}";
    assert_eq!(session.run(list).await.value(), all);
    let refused = session
        .run("open('/packages/third.whl', 'r+b')")
        .await
        .raised();
    assert!(refused.contains("Read-only file system"), "{refused}");
}

#[tokio::test]
async fn a_guest_takes_in_so_much_and_then_nothing_more() {
    let mut session = Session::start().await;
    let mounts = session.interpreter.mounts();
    let half = vec![7; (MOUNTED_BYTES_MAX / 2) as usize];
    mounts.add("a", &half).await.unwrap();
    mounts.add("b", &half).await.unwrap();
    assert_eq!(mounts.add("c", b"x").await, Err(MountError::Full));
    let sizes =
        "import os\n[os.path.getsize('/packages/' + n) for n in sorted(os.listdir('/packages'))]";
    let half = half.len();
    assert_eq!(
        session.run(sizes).await.value(),
        format!("[{half}, {half}]")
    );
}

#[tokio::test]
async fn a_guest_that_is_gone_takes_nothing() {
    let session = Session::start().await;
    let mounts = session.interpreter.mounts();
    session.interpreter.end().await;
    assert_eq!(mounts.add("a", b"x").await, Err(MountError::Gone));
}
