//! Compiled code is loaded only while it is what was compiled.

use std::fs;
use std::path::{Path, PathBuf};

use runbridge_sandbox::SandboxError;
use runbridge_sandbox::wasi::Wasi;

use crate::session;

/// A cache of our own with what the shared one holds.
async fn copy() -> (tempfile::TempDir, PathBuf) {
    session::wasi().await;
    let folder = tempfile::tempdir().unwrap();
    let mut code = None;
    for entry in fs::read_dir(session::target().join("guest/cache")).unwrap() {
        let path = entry.unwrap().path();
        let copied = folder.path().join(path.file_name().unwrap());
        fs::copy(&path, &copied).unwrap();
        if copied
            .extension()
            .is_some_and(|extension| extension == "code")
        {
            code = Some(copied);
        }
    }
    (folder, code.unwrap())
}

fn open(cache: &Path) -> Result<Option<Wasi>, SandboxError> {
    Wasi::open(&session::module(), cache, session::worker())
}

#[tokio::test]
async fn a_moved_cache_is_checked_and_used() {
    let (cache, _) = copy().await;
    assert!(open(cache.path()).unwrap().is_some());
    // The second time by what was remembered of the first.
    assert!(open(cache.path()).unwrap().is_some());
}

#[tokio::test]
async fn damaged_code_is_not_used() {
    let (cache, code) = copy().await;
    assert!(open(cache.path()).unwrap().is_some());
    let mut bytes = fs::read(&code).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&code, &bytes).unwrap();
    assert!(open(cache.path()).unwrap().is_none());
    bytes[middle] ^= 1;
    fs::write(&code, &bytes).unwrap();
    assert!(open(cache.path()).unwrap().is_some());
    fs::write(&code, &bytes[..middle]).unwrap();
    assert!(open(cache.path()).unwrap().is_none());
}

#[tokio::test]
async fn code_without_its_hash_is_not_used() {
    let (cache, code) = copy().await;
    fs::remove_file(code.with_extension("json")).unwrap();
    assert!(open(cache.path()).unwrap().is_none());
}

#[cfg(unix)]
#[tokio::test]
async fn code_that_others_could_have_written_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;

    let (cache, code) = copy().await;
    fs::set_permissions(&code, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(open(cache.path()).unwrap().is_none());
    fs::set_permissions(&code, fs::Permissions::from_mode(0o600)).unwrap();
    let elsewhere = cache.path().join("elsewhere");
    fs::rename(&code, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &code).unwrap();
    assert!(open(cache.path()).unwrap().is_none());
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = open(cache.path()).unwrap_err().to_string();
    assert!(refused.contains("others may write there"), "{refused}");
}

#[test]
fn a_missing_module_says_which_file() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Wasi::open(folder.path(), folder.path(), session::worker()).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("inventory.json"), "{text}");
}
