//! Where `npx`, `uvx`, `node` and their like are when no PATH says so.
//!
//! Version managers put them into the PATH by shell code that a login shell may not run. Of node there must
//! be one choice: the manager's default, before any other node.

use std::path::{Path, PathBuf};

use crate::paths::{Environment, Os};

/// Puts the default node of a version manager before all others, unless the PATH has such a node already.
pub(super) fn add_node(environment: &Environment, path: &mut Vec<PathBuf>) {
    let Some(home) = home(environment) else {
        return;
    };
    let managers = node_managers(environment, &home);
    let is_managed = |folder: &PathBuf| {
        managers
            .iter()
            .any(|manager| folder.starts_with(&manager.folder))
    };
    if !path.iter().any(is_managed)
        && let Some(node) = managers.iter().find_map(|manager| manager.default.clone())
    {
        path.insert(0, node);
    }
}

/// Puts the other folders in which launchers usually are last.
pub(super) fn add_usual(environment: &Environment, path: &mut Vec<PathBuf>) {
    let Some(home) = home(environment) else {
        return;
    };
    path.extend(
        usual(environment, &home)
            .into_iter()
            .filter(|folder| folder.is_dir()),
    );
}

fn home(environment: &Environment) -> Option<PathBuf> {
    environment.folder(if environment.os() == Os::Windows {
        "USERPROFILE"
    } else {
        "HOME"
    })
}

/// One manager of node versions.
struct Manager {
    /// What a PATH entry of it begins with.
    folder: PathBuf,
    /// The programs of its default version.
    default: Option<PathBuf>,
}

fn node_managers(environment: &Environment, home: &Path) -> Vec<Manager> {
    let folder = |variable: &str, default: &str| {
        environment
            .folder(variable)
            .unwrap_or_else(|| home.join(default))
    };
    let existing = |path: PathBuf| Some(path).filter(|path| path.is_dir());
    let nvm = folder("NVM_DIR", ".nvm");
    let fnm_homes = [
        ".local/share/fnm",
        "Library/Application Support/fnm",
        ".fnm",
        "AppData/Roaming/fnm",
    ];
    let fnm = environment
        .folder("FNM_DIR")
        .into_iter()
        .chain(fnm_homes.iter().map(|fnm| home.join(fnm)));
    let fnm_bin = if environment.os() == Os::Windows {
        "aliases/default"
    } else {
        "aliases/default/bin"
    };
    let volta = folder("VOLTA_HOME", ".volta");
    let mise = folder("MISE_DATA_DIR", ".local/share/mise");
    let asdf = folder("ASDF_DATA_DIR", ".asdf");
    let mut managers = vec![Manager {
        default: nvm_default(&nvm),
        folder: nvm,
    }];
    managers.extend(fnm.map(|fnm| Manager {
        default: existing(fnm.join(fnm_bin)),
        folder: fnm,
    }));
    managers.push(Manager {
        default: existing(volta.join("bin")),
        folder: volta,
    });
    // Their shims hold other programs too, and those of node only if it is installed there.
    let with_node = |shims: PathBuf| Some(shims).filter(|shims| shims.join("node").exists());
    managers.push(Manager {
        default: with_node(mise.join("shims")),
        folder: mise,
    });
    managers.push(Manager {
        default: with_node(asdf.join("shims")),
        folder: asdf,
    });
    managers
}

/// Folders in which launchers are wherever the user or an installer put them.
fn usual(environment: &Environment, home: &Path) -> Vec<PathBuf> {
    let at_home = [
        ".local/bin",
        ".cargo/bin",
        ".bun/bin",
        ".deno/bin",
        ".pyenv/shims",
        ".pyenv/bin",
        ".asdf/shims",
        ".local/share/mise/shims",
        ".rye/shims",
        "Library/pnpm",
        ".local/share/pnpm",
        ".nix-profile/bin",
        "go/bin",
    ];
    let mut folders: Vec<PathBuf> = at_home.iter().map(|folder| home.join(folder)).collect();
    match environment.os() {
        Os::Linux => folders.extend(
            [
                "/usr/local/bin",
                "/home/linuxbrew/.linuxbrew/bin",
                "/snap/bin",
            ]
            .map(PathBuf::from),
        ),
        Os::Macos => folders
            .extend(["/opt/homebrew/bin", "/usr/local/bin", "/opt/local/bin"].map(PathBuf::from)),
        Os::Windows => {
            let under = |variable: &str, folder: &str| {
                environment.folder(variable).map(|base| base.join(folder))
            };
            folders.extend(
                [
                    under("APPDATA", "npm"),
                    under("ProgramFiles", "nodejs"),
                    under("LOCALAPPDATA", "pnpm"),
                    under("LOCALAPPDATA", "Microsoft/WinGet/Links"),
                    under("USERPROFILE", "scoop/shims"),
                ]
                .into_iter()
                .flatten(),
            );
        }
    }
    folders
}

/// The programs of nvm's default version; without one, of the newest.
fn nvm_default(nvm: &Path) -> Option<PathBuf> {
    let versions = nvm.join("versions/node");
    let mut installed: Vec<(Vec<u64>, PathBuf)> = std::fs::read_dir(&versions)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            Some((
                version(entry.file_name().to_str()?)?,
                entry.path().join("bin"),
            ))
        })
        .filter(|(_, bin)| bin.is_dir())
        .collect();
    installed.sort();
    let wanted = nvm_alias(nvm, "default", 8);
    let matching = installed
        .iter()
        .rev()
        .find(|(version, _)| version.starts_with(&wanted));
    matching.or(installed.last()).map(|(_, bin)| bin.clone())
}

/// The version that an alias means, as far as it is given; empty for the newest.
fn nvm_alias(nvm: &Path, alias: &str, hops_left: usize) -> Vec<u64> {
    // An alias is a file name below a folder of ours to read, never a way out of it.
    if hops_left == 0 || alias.split('/').any(|part| part == ".." || part.is_empty()) {
        return Vec::new();
    }
    match std::fs::read_to_string(nvm.join("alias").join(alias)) {
        Ok(text) => {
            let target = text.trim();
            version(target).unwrap_or_else(|| nvm_alias(nvm, target, hops_left - 1))
        }
        // `node` and `stable` mean the newest, and so does what is not there.
        Err(_) => Vec::new(),
    }
}

/// `v22.11.0`, `22.11` or `22`.
fn version(text: &str) -> Option<Vec<u64>> {
    text.strip_prefix('v')
        .unwrap_or(text)
        .split('.')
        .map(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    fn nvm(versions: &[&str], aliases: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for version in versions {
            std::fs::create_dir_all(
                home.path()
                    .join(".nvm/versions/node")
                    .join(version)
                    .join("bin"),
            )
            .unwrap();
        }
        for (alias, target) in aliases {
            let path = home.path().join(".nvm/alias").join(alias);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{target}\n")).unwrap();
        }
        home
    }

    fn chosen(home: &tempfile::TempDir, path: &str) -> Vec<String> {
        let environment = Environment::new(Os::Linux, [("HOME", home.path().to_str().unwrap())]);
        let mut folders: Vec<PathBuf> = path.split(':').map(PathBuf::from).collect();
        add_node(&environment, &mut folders);
        add_usual(&environment, &mut folders);
        let base = home.path().join(".nvm/versions/node");
        folders
            .iter()
            .map(|folder| {
                folder
                    .strip_prefix(&base)
                    .unwrap_or(folder)
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn nvm_gives_its_default_before_every_other_node() {
        let versions = ["v18.20.4", "v22.11.0", "v22.2.0", "v9.0.0"];
        for (aliases, expected) in [
            (&[("default", "22")] as &[_], "v22.11.0/bin"),
            (&[("default", "v18.20.4")], "v18.20.4/bin"),
            (
                &[
                    ("default", "lts/*"),
                    ("lts/*", "lts/hydrogen"),
                    ("lts/hydrogen", "v18.20.4"),
                ],
                "v18.20.4/bin",
            ),
            (&[("default", "node")], "v22.11.0/bin"),
            (&[("default", "default")], "v22.11.0/bin"),
            (&[("default", "../../../etc/passwd")], "v22.11.0/bin"),
            (&[], "v22.11.0/bin"),
        ] {
            let home = nvm(&versions, aliases);
            assert_eq!(
                chosen(&home, "/usr/bin:/bin")[..2],
                [expected, "/usr/bin"],
                "{aliases:?}"
            );
        }
    }

    #[test]
    fn a_node_that_the_path_already_chose_is_kept() {
        let home = nvm(&["v18.20.4", "v22.11.0"], &[("default", "22")]);
        let bin = home.path().join(".nvm/versions/node/v18.20.4/bin");
        assert_eq!(
            chosen(&home, &format!("/usr/bin:{}", bin.display()))[..2],
            ["/usr/bin", "v18.20.4/bin"]
        );
    }

    #[test]
    fn other_managers_and_usual_folders_are_found() {
        let home = tempfile::tempdir().unwrap();
        for folder in [".volta/bin", ".local/bin", ".bun/bin"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        let at = |folder: &str| home.path().join(folder).to_str().unwrap().to_owned();
        let path = chosen(&home, "/usr/bin");
        assert_eq!(
            path[..4],
            [
                at(".volta/bin"),
                "/usr/bin".to_owned(),
                at(".local/bin"),
                at(".bun/bin")
            ]
        );
    }
}
