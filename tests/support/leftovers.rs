//! The proof that nothing of one bridge is left: containers, processes, sockets, temporary files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Engine, wait_for};

/// What one bridge may leave behind, and where to look for it.
pub struct Leftovers {
    home: PathBuf,
    temp_dir: PathBuf,
    engine: Option<Engine>,
    owners: BTreeSet<String>,
}

impl Leftovers {
    /// Look after the bridge that lives in `home` and uses `engine`.
    pub fn of(home: &Path, engine: Option<Engine>) -> Self {
        Self {
            home: home.to_owned(),
            temp_dir: home.join("tmp"),
            engine,
            owners: BTreeSet::new(),
        }
    }

    /// Learn, while the bridge lives, which containers are its own: those whose owner holds a lock
    /// file in this home. Other tests use the same engine at the same time.
    pub fn note_owner(&mut self) {
        for path in files_below(&self.home) {
            let beside_id = path.with_file_name("folder-id").exists();
            if let Some(owner) = path.file_stem()
                && beside_id
                && path.extension().is_some_and(|kind| kind == "lock")
            {
                self.owners.insert(owner.to_string_lossy().into_owned());
            }
        }
    }

    /// The owners noted so far.
    pub fn owners(&self) -> &BTreeSet<String> {
        &self.owners
    }

    /// How many of the bridge's containers run now.
    pub fn running_containers(&self) -> usize {
        self.containers()
            .iter()
            .filter(|line| line.contains("running"))
            .count()
    }

    /// Processes of the bridge or its servers that run now.
    pub fn processes(&self) -> Vec<String> {
        processes_naming(&self.home.to_string_lossy())
    }

    /// Panic unless everything is gone within thirty seconds: a guest that lost its host before it
    /// was connected to it takes ten to notice.
    pub fn assert_none(&self) {
        self.assert_no(|_| true);
    }

    /// As [`Leftovers::assert_none`], but a container that was never started may be there, and files.
    pub fn assert_nothing_runs(&self) {
        self.assert_no(|line| !line.ends_with("(created)") && !line.starts_with("temporary file"));
    }

    fn assert_no(&self, counts: impl Fn(&str) -> bool) {
        let mut left = Vec::new();
        let clean = wait_for(Duration::from_secs(30), || {
            left = self.now();
            left.retain(|line| counts(line));
            left.is_empty().then_some(())
        });
        assert!(clean.is_some(), "left behind:\n  {}", left.join("\n  "));
    }

    pub(crate) fn now(&self) -> Vec<String> {
        let mut left = self.containers();
        left.extend(self.processes());
        // What an engine started for a container lives outside it and names the container, which
        // the engine may have forgotten.
        left.extend(self.owners.iter().flat_map(|owner| processes_naming(owner)));
        left.extend(sockets_of(&self.home));
        left.extend(
            files_below(&self.temp_dir)
                .iter()
                .map(|path| format!("temporary file {}", path.display())),
        );
        left
    }

    fn containers(&self) -> Vec<String> {
        let Some(engine) = &self.engine else {
            return Vec::new();
        };
        if self.owners.is_empty()
            || std::os::unix::net::UnixStream::connect(&engine.socket).is_err()
        {
            return Vec::new();
        }
        engine
            .containers()
            .into_iter()
            .filter(|container| self.owners.contains(&container.owner))
            .map(|container| {
                format!(
                    "container {} of {} ({})",
                    container.id, container.owner, container.state
                )
            })
            .collect()
    }
}

/// Processes whose command line or environment has `name` in it.
fn processes_naming(name: &str) -> Vec<String> {
    let names = |bytes: &[u8]| {
        bytes
            .windows(name.len())
            .any(|window| window == name.as_bytes())
    };
    let mut found = Vec::new();
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == own {
            continue;
        }
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if names(&command) || names(&environment) {
            let shown = String::from_utf8_lossy(&command).replace('\0', " ");
            found.push(format!(
                "process {pid}: {}",
                shown.chars().take(200).collect::<String>()
            ));
        }
    }
    found
}

/// Sockets in use below `home`, abstract ones too, and socket files that nobody removed.
fn sockets_of(home: &Path) -> Vec<String> {
    let needle = home.to_string_lossy();
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let open = table
        .lines()
        .filter(|line| line.contains(&*needle))
        .map(|line| format!("open socket {line}"));
    let files = files_below(home).into_iter().filter_map(|path| {
        use std::os::unix::fs::FileTypeExt as _;
        let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
        kind.is_socket()
            .then(|| format!("socket file {}", path.display()))
    });
    open.chain(files).collect()
}

/// Every path below `dir` that is not a folder.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) => found.push(entry.path()),
                Err(_) => {}
            }
        }
    }
    found
}
