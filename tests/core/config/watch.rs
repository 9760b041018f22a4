//! Changes on a real disk, seen in time.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runbridge_core::watch::Watcher;
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

/// A change must be known within a second; a busy machine gets a little more.
const SOON: Duration = Duration::from_millis(2_500);

/// How long nothing must be heard for nothing to have happened: longer than any look takes.
const SILENCE: Duration = Duration::from_millis(1_200);

struct Watched {
    folder: TempDir,
    watcher: Watcher,
    changes: Receiver<()>,
}

impl Watched {
    /// Watches `paths` in a folder prepared by `prepare`, and is past the first message.
    async fn new(paths: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        Self::with(Watcher::start, paths, prepare).await
    }

    async fn with(
        start: fn(Vec<PathBuf>) -> (Watcher, Receiver<()>),
        paths: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let folder = TempDir::new().unwrap();
        prepare(folder.path());
        // Something that exists, so that the first message tells when watching has begun.
        fs::write(folder.path().join("anchor"), "").unwrap();
        let paths = paths
            .iter()
            .chain(&["anchor"])
            .map(|path| folder.path().join(path))
            .collect();
        let (watcher, changes) = start(paths);
        let mut watched = Self {
            folder,
            watcher,
            changes,
        };
        watched.hears("the first message").await;
        watched
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    async fn hears(&mut self, what: &str) {
        assert_eq!(
            timeout(SOON, self.changes.recv()).await.ok().flatten(),
            Some(()),
            "not noticed: {what}"
        );
    }

    async fn hears_nothing(&mut self, what: &str) {
        assert!(
            timeout(SILENCE, self.changes.recv()).await.is_err(),
            "noticed: {what}"
        );
    }
}

fn replace(path: &Path, text: &str) {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, text).unwrap();
    fs::rename(temporary, path).unwrap();
}

#[tokio::test]
async fn writing_replacing_removing_and_returning_are_noticed() {
    let mut watched = Watched::new(&["a.json"], |folder| {
        fs::write(folder.join("a.json"), "1").unwrap();
    })
    .await;
    let file = watched.at("a.json");
    fs::write(&file, "2").unwrap();
    watched.hears("written in place").await;
    replace(&file, "3");
    watched.hears("replaced").await;
    replace(&file, "4");
    watched.hears("replaced again").await;
    fs::remove_file(&file).unwrap();
    watched.hears("removed").await;
    fs::write(&file, "4").unwrap();
    watched.hears("returned").await;
}

#[tokio::test]
async fn what_does_not_change_the_content_is_no_change() {
    let mut watched = Watched::new(&["a.json"], |folder| {
        fs::write(folder.join("a.json"), "1").unwrap();
    })
    .await;
    replace(&watched.at("a.json"), "1");
    fs::write(watched.at("neighbour.json"), "x").unwrap();
    watched
        .hears_nothing("the same content and a neighbour")
        .await;
}

#[tokio::test]
async fn a_burst_is_one_change_and_none_of_it_is_lost() {
    let mut watched = Watched::new(&["a.json"], |_| {}).await;
    for n in 0..200 {
        fs::write(watched.at("a.json"), n.to_string()).unwrap();
    }
    watched.hears("the burst").await;
    watched.hears_nothing("the burst a second time").await;
    fs::write(watched.at("a.json"), "after").unwrap();
    watched.hears("a change after the burst").await;
}

#[tokio::test]
async fn folders_that_appear_later_are_followed_down() {
    let mut watched = Watched::new(&["not/yet/here/a.json"], |_| {}).await;
    fs::create_dir_all(watched.at("not/yet/here")).unwrap();
    fs::write(watched.at("not/yet/here/a.json"), "1").unwrap();
    watched.hears("a file in new folders").await;
    fs::remove_dir_all(watched.at("not")).unwrap();
    watched.hears("the folders removed").await;
    fs::create_dir(watched.at("not")).unwrap();
    watched.hears_nothing("a folder without the file").await;
    fs::create_dir_all(watched.at("not/yet/here")).unwrap();
    replace(&watched.at("not/yet/here/a.json"), "2");
    watched.hears("the folders anew").await;
}

#[tokio::test]
async fn a_folder_replaced_under_the_same_name_is_still_watched() {
    let mut watched = Watched::new(&["d/a.json"], |folder| {
        fs::create_dir(folder.join("d")).unwrap();
        fs::write(folder.join("d/a.json"), "1").unwrap();
    })
    .await;
    fs::remove_dir_all(watched.at("d")).unwrap();
    fs::create_dir(watched.at("d")).unwrap();
    fs::write(watched.at("d/a.json"), "2").unwrap();
    watched.hears("the new folder's file").await;
    fs::write(watched.at("d/a.json"), "3").unwrap();
    watched.hears("a change inside the new folder").await;
}

#[tokio::test]
async fn a_new_file_in_a_watched_folder_is_noticed() {
    let mut watched = Watched::new(&["MCPs"], |folder| {
        fs::create_dir(folder.join("MCPs")).unwrap();
    })
    .await;
    fs::write(watched.at("MCPs/new.json"), "1").unwrap();
    watched.hears("a new file").await;
    fs::rename(watched.at("MCPs/new.json"), watched.at("MCPs/other.json")).unwrap();
    watched.hears("a renamed file").await;
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_followed_to_their_targets_and_watched_themselves() {
    use std::os::unix::fs::symlink;
    let mut watched = Watched::new(&["a.json", "linked/b.json"], |folder| {
        for target in ["one", "two"] {
            fs::create_dir(folder.join(target)).unwrap();
            fs::write(folder.join(target).join("real.json"), target).unwrap();
            fs::write(folder.join(target).join("b.json"), target).unwrap();
        }
        symlink("one/real.json", folder.join("a.json")).unwrap();
        symlink("one", folder.join("linked")).unwrap();
    })
    .await;
    replace(&watched.at("one/real.json"), "changed");
    watched.hears("the target replaced").await;
    fs::remove_file(watched.at("a.json")).unwrap();
    symlink("two/real.json", watched.at("a.json")).unwrap();
    watched.hears("the link turned").await;
    replace(&watched.at("two/real.json"), "changed");
    watched.hears("the new target replaced").await;
    fs::remove_file(watched.at("linked")).unwrap();
    symlink("two", watched.at("linked")).unwrap();
    watched.hears("a folder's link turned").await;
    replace(&watched.at("two/b.json"), "changed");
    watched.hears("a file behind the folder's link").await;
}

#[tokio::test]
async fn without_help_from_the_system_changes_are_looked_for() {
    let mut watched = Watched::with(Watcher::polling, &["a.json"], |_| {}).await;
    fs::write(watched.at("a.json"), "1").unwrap();
    watched.hears("a new file").await;
    fs::write(watched.at("a.json"), "2").unwrap();
    watched.hears("the same size within the same moment").await;
}

#[tokio::test]
async fn other_paths_can_be_watched_later() {
    let mut watched = Watched::new(&["a.json"], |folder| {
        fs::write(folder.join("b.json"), "1").unwrap();
    })
    .await;
    watched
        .watcher
        .update(vec![watched.at("b.json"), watched.at("c.json")]);
    watched.hears("a path that may have changed before").await;
    fs::write(watched.at("a.json"), "1").unwrap();
    watched
        .hears_nothing("a path that is no longer watched")
        .await;
    fs::write(watched.at("b.json"), "2").unwrap();
    watched.hears("a path that is").await;
    fs::write(watched.at("c.json"), "2").unwrap();
    watched.hears("a path that was not there").await;
}

#[tokio::test]
async fn dropping_it_ends_it() {
    let Watched {
        watcher,
        mut changes,
        ..
    } = Watched::new(&["a.json"], |_| {}).await;
    drop(watcher);
    assert_eq!(timeout(SOON, changes.recv()).await.unwrap(), None);
}
