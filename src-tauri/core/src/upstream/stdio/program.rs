//! Which file a server's command means, and the environment that it gets. Starts nothing; the
//! operating system is a value, so that what Windows does is decided, and tried, everywhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::os;
use crate::paths::{NESTED, Os};

/// Endings tried when PATHEXT is not set.
const DEFAULT_PATHEXT: &str = ".COM;.EXE;.BAT;.CMD";

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<PathBuf>,
}

/// Why a program was not started, in words, and what may help.
#[derive(Clone, Debug)]
pub(crate) struct SpawnError {
    pub(crate) reason: String,
    pub(crate) hint: Option<String>,
}

impl Program {
    /// The program's file: as written if it is a path, else the first of that name on the child's
    /// PATH.
    pub(super) fn file(&self, os: Os) -> Result<PathBuf, SpawnError> {
        let command = self.command.trim();
        if command.is_empty() {
            return Err(SpawnError {
                reason: "its command is empty".to_owned(),
                hint: None,
            });
        }
        if command.contains(|letter| letter == '/' || os == Os::Windows && letter == '\\') {
            let folder = self.cwd.as_deref().unwrap_or(Path::new(""));
            let path = folder.join(command);
            return match runnable(os, &path, &self.env) {
                Some(path) => Ok(path),
                None if path.is_file() => Err(SpawnError {
                    reason: format!("`{}` is not executable", path.display()),
                    hint: None,
                }),
                None => Err(SpawnError {
                    reason: format!("`{}` is not there", path.display()),
                    hint: None,
                }),
            };
        }
        let path = variable(os, &self.env, "PATH").unwrap_or(os::DEFAULT_PATH);
        path.split(if os == Os::Windows { ';' } else { ':' })
            // Windows lets a folder stand in quotation marks.
            .map(|folder| match os {
                Os::Windows => folder.trim_matches('"'),
                Os::Linux | Os::Macos => folder,
            })
            .map(Path::new)
            .filter(|folder| folder.is_absolute())
            .find_map(|folder| runnable(os, &folder.join(command), &self.env))
            .ok_or_else(|| SpawnError {
                reason: format!("`{command}` was not found on PATH ({path})"),
                hint: Some(install_hint(command)),
            })
    }
}

/// The environment of a server: the user's login environment, changed as the entry says.
///
/// A bridge among the servers, behind a wrapper that nobody saw through, finds [`NESTED`] in it and
/// starts no servers of its own: without end, each start would start the next.
pub(crate) fn environment(
    os: Os,
    login: &BTreeMap<String, String>,
    entry: &BTreeMap<String, Option<String>>,
) -> BTreeMap<String, String> {
    let mut env = login.clone();
    env.insert(NESTED.to_owned(), "1".to_owned());
    for (name, value) in entry {
        // Windows ignores case in names: `PATH` of the entry replaces `Path` of the login.
        if os == Os::Windows {
            env.retain(|known, _| !known.eq_ignore_ascii_case(name));
        }
        match value {
            Some(value) => env.insert(name.clone(), value.clone()),
            None => env.remove(name),
        };
    }
    env
}

/// Windows ignores case in names.
fn variable<'a>(os: Os, env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let is_it =
        |known: &str| known == name || os == Os::Windows && known.eq_ignore_ascii_case(name);
    env.iter()
        .find(|(known, _)| is_it(known))
        .map(|(_, value)| value.as_str())
}

/// The file to start for `path`, if there is one.
fn runnable(os: Os, path: &Path, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    if os != Os::Windows {
        return os::is_executable(path).then(|| path.to_owned());
    }
    // The file itself if its ending is one that Windows runs, else the file with such an ending:
    // `npx` is `npx.cmd`, and the `npx` beside it is a shell script. A batch file is started through
    // `cmd.exe` by the standard library, which quotes for it and refuses what cannot be quoted.
    let endings = variable(os, env, "PATHEXT").unwrap_or(DEFAULT_PATHEXT);
    let endings = || endings.split(';').filter(|ending| !ending.is_empty());
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    if path.is_file() && endings().any(|ending| name.ends_with(&ending.to_lowercase())) {
        return Some(path.to_owned());
    }
    // Written as files are, in lower case, where letters count.
    endings()
        .flat_map(|ending| [ending.to_owned(), ending.to_lowercase()])
        .map(|ending| {
            let mut whole = path.as_os_str().to_owned();
            whole.push(ending);
            PathBuf::from(whole)
        })
        .find(|path| path.is_file())
}

fn install_hint(command: &str) -> String {
    let what = match command {
        "npx" | "npm" | "node" => "Install Node.js (nodejs.org), which brings it",
        "uvx" | "uv" => "Install uv (docs.astral.sh/uv), which brings it",
        "docker" => "Install and start Docker, or Podman with its `docker` command",
        "python" => "Install Python, or write `python3` in the configuration",
        "python3" | "pip" | "pipx" => "Install Python, which brings it",
        "bunx" | "bun" => "Install Bun (bun.sh), which brings it",
        "deno" => "Install Deno (deno.com)",
        "go" | "cargo" | "dotnet" | "java" => "Install its toolchain",
        _ => "Install it, or write its full path in the configuration",
    };
    format!("{what}, or set PATH in the server's `env`")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    /// A machine with these files, whose PATH has these folders of it.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn with(files: &[&str]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for file in files {
                let path = root.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            Self(root)
        }

        fn at(&self, path: &str) -> String {
            self.0.path().join(path).to_string_lossy().into_owned()
        }

        /// What `command` means on Windows, below the root.
        fn means(&self, command: &str, env: &[(&str, &str)]) -> Result<String, String> {
            let program = Program {
                command: command.to_owned(),
                args: Vec::new(),
                env: env
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
                cwd: None,
            };
            let found = program.file(Os::Windows).map_err(|error| error.reason)?;
            let below = found.strip_prefix(self.0.path()).unwrap();
            Ok(below.to_string_lossy().into_owned())
        }
    }

    #[test]
    fn windows_finds_what_its_endings_make_runnable() {
        let machine = Machine::with(&[
            "nodejs/npx",
            "nodejs/npx.cmd",
            "nodejs/node.exe",
            "system/cmd.exe",
            "bin/uvx.exe",
            "odd;name/tool.bat",
            "scripts/server.js",
        ]);
        let path = format!(
            r#"relative;{};{};{};"{}""#,
            machine.at("nodejs"),
            machine.at("system"),
            machine.at("bin"),
            machine.at("scripts"),
        );
        let env = [("Path", path.as_str()), ("PathExt", ".EXE;.CMD")];
        for (command, file) in [
            // The file of that very name is a script for another system.
            ("npx", "nodejs/npx.cmd"),
            ("node.exe", "nodejs/node.exe"),
            ("node", "nodejs/node.exe"),
            ("cmd", "system/cmd.exe"),
            (" uvx ", "bin/uvx.exe"),
            // Not among this machine's endings.
            ("server.js", "none"),
        ] {
            let found = machine.means(command, &env);
            assert_eq!(found.unwrap_or("none".to_owned()), file, "{command}");
        }
        // A whole path, and one without its ending.
        for (command, file) in [
            ("nodejs/npx.cmd", "nodejs/npx.cmd"),
            ("nodejs/npx", "nodejs/npx.cmd"),
            ("nodejs/node", "nodejs/node.exe"),
        ] {
            let found = machine.means(&machine.at(command), &env);
            assert_eq!(found.as_deref(), Ok(file), "{command}");
        }
        let error = machine.means(&machine.at("scripts/server.js"), &env);
        assert!(error.unwrap_err().ends_with("server.js` is not executable"));
        // Without PATHEXT batch files are known too.
        let found = machine.means(&machine.at("odd;name/tool"), &[]);
        assert_eq!(found.as_deref(), Ok("odd;name/tool.bat"));
    }

    #[test]
    fn an_entry_replaces_a_variable_however_windows_writes_it() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let login = map(&[("Path", "of the login"), ("COMSPEC", "cmd.exe")]);
        let entry = BTreeMap::from([("PATH".to_owned(), Some("of the entry".to_owned()))]);
        let both = environment(Os::Windows, &login, &entry);
        assert_eq!(variable(Os::Windows, &both, "PATH"), Some("of the entry"));
        assert!(!both.contains_key("Path"));
        assert_eq!(both["COMSPEC"], "cmd.exe");
        let both = environment(Os::Linux, &login, &entry);
        assert_eq!(both["Path"], "of the login");
    }
}
