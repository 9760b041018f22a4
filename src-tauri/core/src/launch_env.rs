//! The environment that servers are started with: what a terminal of this user would have.
//!
//! A program that was started from a dock, a menu or another program lacks what the user's shell sets up,
//! first of all the PATH with `npx` and `uvx`. So the login shell is asked once, and folders are added in
//! which launchers usually are. What a single server adds to this is not known here. Our own variables,
//! which may hold other servers' secrets, never get in.

mod launchers;
mod shell;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::paths::{Environment, Os};

/// A shell that needs longer is not worth waiting for: the first server would wait with it.
const SHELL_WITHIN: Duration = Duration::from_secs(5);

/// The login environment, found out when it is first needed.
#[derive(Debug)]
pub struct LoginEnvironment {
    environment: Environment,
    shell_within: Duration,
    found: OnceCell<Arc<BTreeMap<String, String>>>,
}

impl LoginEnvironment {
    /// The login environment of the user that `environment` belongs to. Nothing is asked yet.
    pub fn new(environment: Environment) -> Self {
        Self {
            environment,
            shell_within: SHELL_WITHIN,
            found: OnceCell::new(),
        }
    }

    /// The same with another deadline for the shell.
    #[must_use]
    pub fn within(mut self, shell_within: Duration) -> Self {
        self.shell_within = shell_within;
        self
    }

    /// All variables. The first call asks the login shell and may take seconds; later ones are immediate.
    ///
    /// A shell that fails or takes too long leaves the environment of this process. Cancelling the call
    /// ends the shell; the next call asks again.
    pub async fn variables(&self) -> Arc<BTreeMap<String, String>> {
        let found = self.found.get_or_init(|| async {
            let own = without_ours(self.environment.variables());
            let asked = match self.environment.os() {
                Os::Windows => shell::registry(&own, self.shell_within).await,
                Os::Linux | Os::Macos => shell::login(&self.environment, &own, self.shell_within).await,
            };
            let asked = asked.unwrap_or_else(|why| {
                tracing::warn!("the login shell was not asked: {why}; servers get the environment of this process");
                BTreeMap::new()
            });
            Arc::new(combine(&self.environment, own, &asked))
        });
        Arc::clone(found.await)
    }
}

/// `environment` without what is meant for us alone.
fn without_ours(environment: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = |name: &str| {
        name.starts_with("MCP_BRIDGE_")
            || name.starts_with("RUNBRIDGE_")
            || name == "MCP_SERVERS_CONFIG"
    };
    let mut variables = environment.clone();
    variables.retain(|name, _| !ours(name));
    variables
}

/// What belongs to a shell itself and not to what it starts.
const OF_THE_SHELL: [&str; 6] = ["_", "SHLVL", "PWD", "OLDPWD", "TERM", "SHELL_SESSION_ID"];

/// The variables of this process, those that only the shell has, and one PATH out of both.
fn combine(
    environment: &Environment,
    mut own: BTreeMap<String, String>,
    asked: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let split =
        |variables: &BTreeMap<String, String>| split_path(environment.os(), variables.get("PATH"));
    let (own_path, asked_path) = (split(&own), split(asked));
    // A PATH that somebody arranged, such as that of a terminal, keeps its order and its node.
    let arranged = own_path.iter().any(|folder| !is_systems(folder));
    let node_chosen = arranged && own_path.iter().any(|folder| folder.join("node").is_file());
    let mut path = if arranged {
        [own_path, asked_path]
    } else {
        [asked_path, own_path]
    }
    .concat();
    if !node_chosen {
        launchers::add_node(environment, &mut path);
    }
    launchers::add_usual(environment, &mut path);
    for (name, value) in without_ours(asked) {
        if !OF_THE_SHELL.contains(&name.as_str()) {
            own.entry(name).or_insert(value);
        }
    }
    own.insert("PATH".to_owned(), join_path(environment.os(), &path));
    own
}

fn split_path(os: Os, path: Option<&String>) -> Vec<PathBuf> {
    let separator = if os == Os::Windows { ';' } else { ':' };
    path.map(String::as_str)
        .unwrap_or_default()
        .split(separator)
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// Each folder once, where it first occurs.
fn join_path(os: Os, folders: &[PathBuf]) -> String {
    let mut seen = std::collections::HashSet::new();
    let once: Vec<_> = folders
        .iter()
        .filter(|folder| seen.insert(*folder))
        .map(|folder| folder.to_string_lossy())
        .collect();
    once.join(if os == Os::Windows { ";" } else { ":" })
}

/// Folders that the system itself puts into every PATH.
fn is_systems(folder: &Path) -> bool {
    [
        "/usr",
        "/bin",
        "/sbin",
        "/snap",
        "/System",
        "/Library",
        "/opt/homebrew",
    ]
    .iter()
    .any(|system| folder.starts_with(system))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    fn combined(own: &[(&str, &str)], asked: &[(&str, &str)]) -> BTreeMap<String, String> {
        let environment =
            Environment::new(Os::Linux, own.iter().copied().chain([("HOME", "/nobody")]));
        let asked: BTreeMap<_, _> = asked
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        combine(&environment, without_ours(environment.variables()), &asked)
    }

    #[test]
    fn a_bare_path_follows_the_shell_and_an_arranged_one_leads() {
        let asked = [
            ("PATH", "/home/u/bin:/usr/bin"),
            ("EXTRA", "1"),
            ("SET", "theirs"),
            ("SHLVL", "3"),
        ];
        let bare = combined(&[("PATH", "/usr/bin:/bin"), ("SET", "ours")], &asked);
        assert!(
            bare["PATH"].starts_with("/home/u/bin:/usr/bin:/bin"),
            "{}",
            bare["PATH"]
        );
        assert_eq!(
            (
                bare["EXTRA"].as_str(),
                bare["SET"].as_str(),
                bare.get("SHLVL")
            ),
            ("1", "ours", None)
        );
        let arranged = combined(&[("PATH", "/work/venv/bin:/usr/bin")], &asked);
        assert!(
            arranged["PATH"].starts_with("/work/venv/bin:/usr/bin:/home/u/bin"),
            "{}",
            arranged["PATH"]
        );
    }

    #[test]
    fn our_own_variables_stay_with_us() {
        let variables = combined(
            &[
                ("MCP_SERVERS_CONFIG", "{}"),
                ("MCP_BRIDGE_IMAGE", "x"),
                ("RUNBRIDGE_HOME", "/x"),
                ("KEEP", "1"),
            ],
            &[("MCP_BRIDGE_TIMEOUT", "1")],
        );
        assert_eq!(
            variables.keys().collect::<Vec<_>>(),
            ["HOME", "KEEP", "PATH"]
        );
    }
}
