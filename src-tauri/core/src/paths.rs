//! Every place on disk, and every look at the environment.
//!
//! [`Environment::of_process`] is the only place in this crate that reads the environment of the process;
//! all other code is handed an [`Environment`] or a [`Paths`]. That is how tests show Windows or macOS
//! to the code on any machine. Nothing here creates a folder or knows what the files hold.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variable by which a bridge knows that another bridge started it as a server.
pub const NESTED: &str = "RUNBRIDGE_NESTED";

/// The operating system whose conventions apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Linux, and other Unix systems that follow the XDG conventions.
    Linux,
    /// macOS.
    Macos,
    /// Windows.
    Windows,
}

impl Os {
    /// The one this program was built for.
    pub const CURRENT: Self = if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::Macos
    } else {
        Self::Linux
    };
}

/// The environment of a process, taken once, and which program is the sidecar.
///
/// Values that are not Unicode are left out: no path or setting of ours can be made from them.
#[derive(Clone, Debug)]
pub struct Environment {
    os: Os,
    variables: BTreeMap<String, String>,
    sidecar: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process. Call it once, at the start.
    pub fn of_process() -> Self {
        let mut environment = Self::new(
            Os::CURRENT,
            std::env::vars_os().filter_map(|(name, value)| {
                let text = |text: OsString| text.into_string().ok();
                Some((text(name)?, text(value)?))
            }),
        );
        // It goes into clients' files, so on Windows it is written as people do.
        environment.sidecar = std::env::current_exe().and_then(dunce::canonicalize).ok();
        // A service manager may start us without it; the password database still knows.
        let home_name = if environment.os == Os::Windows {
            "USERPROFILE"
        } else {
            "HOME"
        };
        if environment.get(home_name).is_none()
            && let Some(home) =
                std::env::home_dir().and_then(|home| home.to_str().map(str::to_owned))
        {
            environment.set(home_name, &home);
        }
        environment
    }

    /// An environment made of `variables`, as `os` would read it.
    pub fn new<N: Into<String>, V: Into<String>>(
        os: Os,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut environment = Self {
            os,
            variables: BTreeMap::new(),
            sidecar: None,
        };
        for (name, value) in variables {
            environment.set(&name.into(), &value.into());
        }
        environment
    }

    /// The operating system whose conventions apply.
    pub fn os(&self) -> Os {
        self.os
    }

    /// A variable's value, the empty one included.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(self.key(name).as_ref())
            .map(String::as_str)
    }

    /// A variable's value, unless it is blank: most programs read a blank setting as none.
    pub fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.trim().is_empty())
    }

    /// An absolute path from a variable; a relative one would depend on where we were started.
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        self.filled(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// Gives `name` a value.
    pub fn set(&mut self, name: &str, value: &str) {
        let key = self.key(name).into_owned();
        self.variables.insert(key, value.to_owned());
    }

    /// The same with another sidecar: for a program that is none itself, such as the app.
    #[must_use]
    pub fn with_sidecar(mut self, program: PathBuf) -> Self {
        self.sidecar = Some(program);
        self
    }

    /// The sidecar's program, which is the worker of the built-in sandbox too: this program, where
    /// nobody said another.
    pub fn sidecar(&self) -> Option<&Path> {
        self.sidecar.as_deref()
    }

    /// Where the built-in Python may be: beside the sidecar, where packages of Linux and macOS keep
    /// what belongs to a program, or where Cargo's target folder has it.
    pub fn python_folders(&self) -> Vec<PathBuf> {
        let Some(folder) = self.sidecar.as_deref().and_then(Path::parent) else {
            return Vec::new();
        };
        let above = folder.parent().unwrap_or(folder);
        vec![
            folder.join("python"),
            above.join("lib/runbridge/python"),
            above.join("Resources/python"),
            above.join("guest/python"),
        ]
    }

    /// All variables by name.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// The same with the variables of `other` that are missing here, such as those of a login shell.
    #[must_use]
    pub fn filled_from(mut self, other: &BTreeMap<String, String>) -> Self {
        for (name, value) in other {
            let key = self.key(name).into_owned();
            self.variables.entry(key).or_insert_with(|| value.clone());
        }
        self
    }

    /// Windows does not tell `Path` from `PATH`.
    fn key<'a>(&self, name: &'a str) -> std::borrow::Cow<'a, str> {
        if self.os == Os::Windows {
            name.to_uppercase().into()
        } else {
            name.into()
        }
    }
}

/// Why no place could be found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathsError {
    /// Nothing says whose files these are.
    #[error("{variable} is not set to an absolute path, so your home folder is unknown; set it")]
    NoHome {
        /// The variable that would say it.
        variable: &'static str,
    },
    /// A variable that moves our files cannot be used.
    #[error("{variable} is `{value}`, which is not an absolute path; give the whole path")]
    NotAbsolute {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        value: String,
    },
}

/// Every place on disk that the bridge uses. None of them need exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The user's home folder.
    pub home: PathBuf,
    /// Decisions of the user: `settings.json`.
    pub config: PathBuf,
    /// What must outlive a restart: the activity record.
    pub data: PathBuf,
    /// What can be made anew: tool lists, spooled output.
    pub cache: PathBuf,
    /// The socket and locks; on a file system that supports both.
    pub runtime: PathBuf,
    /// Log files.
    pub logs: PathBuf,
    /// Memory and saved tools: `MCP_BRIDGE_STATE_DIR`, else `~/MCPs`.
    pub state: PathBuf,
    /// Where other programs of this user keep their settings: `~/.config`, `~/Library/Application Support`, `%APPDATA%`.
    pub user_config: PathBuf,
    /// `$XDG_CONFIG_HOME` or `~/.config`, which some programs use on every system.
    pub xdg_config: PathBuf,
    /// As [`Paths::user_config`], but for what belongs to this machine: `~/.local/share`, `%LOCALAPPDATA%`.
    pub user_local: PathBuf,
}

impl Paths {
    /// The places of the user that `environment` describes.
    ///
    /// `RUNBRIDGE_HOME` moves configuration, data, cache, runtime files and logs together.
    pub fn for_user(environment: &Environment) -> Result<Self, PathsError> {
        let os = environment.os();
        let variable = if os == Os::Windows {
            "USERPROFILE"
        } else {
            "HOME"
        };
        let home = environment
            .folder(variable)
            .ok_or(PathsError::NoHome { variable })?;
        let xdg = |name: &str, default: &str| {
            environment
                .folder(name)
                .unwrap_or_else(|| home.join(default))
        };
        let xdg_config = xdg("XDG_CONFIG_HOME", ".config");
        let (user_config, user_local) = match os {
            Os::Linux => (xdg_config.clone(), xdg("XDG_DATA_HOME", ".local/share")),
            Os::Macos => (
                home.join("Library/Application Support"),
                home.join("Library/Application Support"),
            ),
            Os::Windows => (
                environment
                    .folder("APPDATA")
                    .unwrap_or_else(|| home.join("AppData/Roaming")),
                environment
                    .folder("LOCALAPPDATA")
                    .unwrap_or_else(|| home.join("AppData/Local")),
            ),
        };
        let state = absolute(environment, "MCP_BRIDGE_STATE_DIR", &home)?
            .unwrap_or_else(|| home.join("MCPs"));
        let mut paths = match os {
            Os::Linux => {
                let cache = xdg("XDG_CACHE_HOME", ".cache").join("runbridge");
                Self {
                    config: xdg_config.join("runbridge"),
                    data: user_local.join("runbridge"),
                    runtime: environment
                        .folder("XDG_RUNTIME_DIR")
                        .map_or_else(|| cache.join("run"), |runtime| runtime.join("runbridge")),
                    logs: xdg("XDG_STATE_HOME", ".local/state").join("runbridge/logs"),
                    cache,
                    home,
                    state,
                    user_config,
                    xdg_config,
                    user_local,
                }
            }
            Os::Macos => Self {
                config: user_config.join("Runbridge"),
                data: user_config.join("Runbridge/data"),
                cache: home.join("Library/Caches/Runbridge"),
                runtime: home.join("Library/Caches/Runbridge/run"),
                logs: home.join("Library/Logs/Runbridge"),
                home,
                state,
                user_config,
                xdg_config,
                user_local,
            },
            Os::Windows => Self {
                config: user_config.join("Runbridge"),
                data: user_local.join("Runbridge/data"),
                cache: user_local.join("Runbridge/cache"),
                runtime: user_local.join("Runbridge/run"),
                logs: user_local.join("Runbridge/logs"),
                home,
                state,
                user_config,
                xdg_config,
                user_local,
            },
        };
        if let Some(all) = absolute(environment, "RUNBRIDGE_HOME", &paths.home)? {
            paths.move_ours(&all);
        }
        Ok(paths)
    }

    /// The places of a user whose home folder is `dir` and who has set nothing; ours are in `dir/.runbridge`.
    /// For tests: two of them on different folders share nothing.
    pub fn under(dir: &Path) -> Self {
        let mut paths = Self {
            home: dir.to_owned(),
            config: PathBuf::new(),
            data: PathBuf::new(),
            cache: PathBuf::new(),
            runtime: PathBuf::new(),
            logs: PathBuf::new(),
            state: dir.join("MCPs"),
            user_config: dir.join(".config"),
            xdg_config: dir.join(".config"),
            user_local: dir.join(".local/share"),
        };
        paths.move_ours(&dir.join(".runbridge"));
        paths
    }

    fn move_ours(&mut self, all: &Path) {
        self.config = all.join("config");
        self.data = all.join("data");
        self.cache = all.join("cache");
        self.runtime = all.join("run");
        self.logs = all.join("logs");
    }

    /// The user's decisions.
    pub fn settings(&self) -> PathBuf {
        self.config.join("settings.json")
    }

    /// The record of runs and calls.
    pub fn activity(&self) -> PathBuf {
        self.data.join("activity.sqlite")
    }

    /// Remembered values, one file per key.
    pub fn memory(&self) -> PathBuf {
        self.state.join("memory")
    }

    /// Remembered values of the earlier Python bridge.
    pub fn legacy_memory(&self) -> PathBuf {
        self.state.join("user_tools/memory")
    }

    /// Functions that the model kept.
    pub fn saved_tools(&self) -> PathBuf {
        self.state.join("tools")
    }

    /// Tool lists of servers that are not running.
    pub fn catalog_cache(&self) -> PathBuf {
        self.cache.join("catalog")
    }

    /// The built-in Python, compiled for this machine.
    pub fn python_cache(&self) -> PathBuf {
        self.cache.join("python")
    }

    /// Packages that were installed for the code of runs.
    pub fn packages(&self) -> PathBuf {
        self.data.join("packages")
    }

    /// What was fetched for that.
    pub fn packages_cache(&self) -> PathBuf {
        self.cache.join("packages")
    }

    /// Secret values, encrypted.
    pub fn secrets(&self) -> PathBuf {
        self.data.join("secrets")
    }

    /// The key of those that were written while no keyring opened.
    pub fn secrets_key(&self) -> PathBuf {
        self.config.join("secrets.key")
    }

    /// What a client shows to be served over HTTP.
    pub fn http_token(&self) -> PathBuf {
        self.data.join("http-token")
    }

    /// What clients have taught us by giving calls up.
    pub(crate) fn patience(&self) -> PathBuf {
        self.cache.join("patience.json")
    }

    /// Output of runs that is too long for a reply.
    pub fn output_spool(&self) -> PathBuf {
        self.cache.join("output")
    }
}

/// An absolute path from a variable, where `~` may stand for the home folder.
fn absolute(
    environment: &Environment,
    variable: &'static str,
    home: &Path,
) -> Result<Option<PathBuf>, PathsError> {
    let Some(value) = environment.filled(variable) else {
        return Ok(None);
    };
    let path = under_home(value, home).unwrap_or_else(|| PathBuf::from(value));
    if path.is_absolute() {
        Ok(Some(path))
    } else {
        Err(PathsError::NotAbsolute {
            variable,
            value: value.to_owned(),
        })
    }
}

/// `~` and `~/rest` as a path in the home folder; anything else is `None`.
pub(crate) fn under_home(text: &str, home: &Path) -> Option<PathBuf> {
    match text.strip_prefix('~')? {
        "" => Some(home.to_owned()),
        rest => rest.strip_prefix(['/', '\\']).map(|rest| home.join(rest)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    fn user(os: Os, variables: &[(&str, &str)]) -> Paths {
        Paths::for_user(&Environment::new(os, variables.iter().copied())).unwrap()
    }

    #[test]
    fn linux_follows_xdg() {
        let plain = user(Os::Linux, &[("HOME", "/h")]);
        assert_eq!(
            plain.settings(),
            Path::new("/h/.config/runbridge/settings.json")
        );
        assert_eq!(plain.data, Path::new("/h/.local/share/runbridge"));
        assert_eq!(plain.runtime, Path::new("/h/.cache/runbridge/run"));
        assert_eq!(plain.memory(), Path::new("/h/MCPs/memory"));
        let moved = user(
            Os::Linux,
            &[
                ("HOME", "/h"),
                ("XDG_CONFIG_HOME", "/c"),
                ("XDG_RUNTIME_DIR", "/run/user/1"),
            ],
        );
        assert_eq!(moved.config, Path::new("/c/runbridge"));
        assert_eq!(moved.runtime, Path::new("/run/user/1/runbridge"));
    }

    #[test]
    fn a_relative_xdg_folder_is_ignored_as_xdg_says() {
        assert_eq!(
            user(Os::Linux, &[("HOME", "/h"), ("XDG_CONFIG_HOME", "c")]).config,
            Path::new("/h/.config/runbridge")
        );
    }

    #[test]
    fn macos_and_windows_follow_their_own() {
        let mac = user(Os::Macos, &[("HOME", "/Users/u")]);
        assert_eq!(
            mac.config,
            Path::new("/Users/u/Library/Application Support/Runbridge")
        );
        assert_eq!(mac.logs, Path::new("/Users/u/Library/Logs/Runbridge"));
        let windows = user(
            Os::Windows,
            &[
                ("UserProfile", "/u"),
                ("AppData", "/u/r"),
                ("LocalAppData", "/u/l"),
            ],
        );
        assert_eq!(windows.config, Path::new("/u/r/Runbridge"));
        assert_eq!(windows.data, Path::new("/u/l/Runbridge/data"));
        assert_eq!(
            user(Os::Windows, &[("USERPROFILE", "/u")]).user_config,
            Path::new("/u/AppData/Roaming")
        );
    }

    #[test]
    fn one_variable_moves_all_that_is_ours() {
        let paths = user(
            Os::Linux,
            &[
                ("HOME", "/h"),
                ("RUNBRIDGE_HOME", "~/x"),
                ("MCP_BRIDGE_STATE_DIR", "/s"),
            ],
        );
        for ours in [
            &paths.config,
            &paths.data,
            &paths.cache,
            &paths.runtime,
            &paths.logs,
        ] {
            assert!(ours.starts_with("/h/x"), "{}", ours.display());
        }
        assert_eq!(paths.state, Path::new("/s"));
        assert_eq!(
            paths.user_config,
            Path::new("/h/.config"),
            "other programs' files stay where they are"
        );
    }

    #[test]
    fn an_unusable_variable_is_named() {
        let no_home = Environment::new(Os::Linux, [("HOME", "")]);
        assert_eq!(
            Paths::for_user(&no_home),
            Err(PathsError::NoHome { variable: "HOME" })
        );
        let relative = Environment::new(
            Os::Linux,
            [("HOME", "/h"), ("MCP_BRIDGE_STATE_DIR", "state")],
        );
        let error = Paths::for_user(&relative).unwrap_err().to_string();
        assert!(
            error.contains("MCP_BRIDGE_STATE_DIR") && error.contains("`state`"),
            "{error}"
        );
    }
}
