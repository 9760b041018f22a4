//! A home folder of one's own, with the server definitions a user would have in it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{Side, WireCheck};

/// Where the scripted servers of a home write down what they are told.
const RECORDS: &str = "told";

/// A user's home that lives as long as the value.
pub struct TempHome {
    dir: tempfile::TempDir,
}

impl TempHome {
    /// An empty home. Its path is short because socket paths are limited to about 100 bytes, and
    /// canonical because processes are recognised by it.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("rbt-")
            .tempdir_in(std::env::temp_dir())
            .unwrap();
        for folder in ["MCPs", "tmp", "files", RECORDS] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path below the home.
    pub fn join(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// What `TMPDIR` says.
    pub fn temp_dir(&self) -> PathBuf {
        self.join("tmp")
    }

    /// Write `~/MCPs/servers.json`, atomically as an editor does.
    pub fn write_servers(&self, servers: &Map<String, Value>) {
        self.write(
            "MCPs/servers.json",
            &json!({ "mcpServers": servers }).to_string(),
        );
    }

    /// Write any file of the home, atomically.
    pub fn write(&self, relative: &str, text: &str) {
        let path = self.join(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let temp = path.with_extension("tmp");
        std::fs::write(&temp, text).unwrap();
        std::fs::rename(temp, path).unwrap();
    }

    /// Let the built-in Python be compiled once for all homes: `program` is a sidecar in a target
    /// folder, which holds the code.
    pub fn share_compiled_python(&self, program: &Path) {
        let Some(target) = program.ancestors().nth(2) else {
            return;
        };
        let shared = target.join("guest/cache");
        std::fs::create_dir_all(&shared).unwrap();
        // With a folder of its own for all that is the bridge's, and without.
        for cache in [".runbridge/cache", ".cache/runbridge"] {
            let cache = self.join(cache);
            std::fs::create_dir_all(&cache).unwrap();
            let linked = std::os::unix::fs::symlink(&shared, cache.join("python"));
            let there = linked.is_ok() || cache.join("python").exists();
            assert!(there, "{linked:?}");
        }
    }

    /// The entry of the scripted server `tests/support/stub_server.py`. Its command line names this
    /// home, so that a process that outlives the test is found. What it is told is checked when the
    /// home goes.
    pub fn stub(&self, arguments: &[&str]) -> Value {
        let records = self.join(RECORDS).to_string_lossy().into_owned();
        self.quick_stub(&[&["--record", &records], arguments].concat())
    }

    /// As [`TempHome::stub`], for measuring: nothing is written down or checked.
    pub fn quick_stub(&self, arguments: &[&str]) -> Value {
        let script = self.join("stub_server.py");
        if !script.exists() {
            std::fs::write(&script, include_str!("stub_server.py")).unwrap();
        }
        let mut args = vec!["-B".to_owned(), script.to_string_lossy().into_owned()];
        args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        json!({ "command": python(), "args": args, "env": { "STUB_SECRET": "s3cr3t-value-of-stub" } })
    }
}

impl Drop for TempHome {
    fn drop(&mut self) {
        let Ok(records) = std::fs::read_dir(self.join(RECORDS)) else {
            return;
        };
        if std::thread::panicking() {
            return;
        }
        for record in records {
            let text = std::fs::read_to_string(record.unwrap().path()).unwrap();
            let mut check = WireCheck::of(Side::Client);
            for line in text.lines() {
                // A process that was killed may have left half a line.
                let Ok(message) = serde_json::from_str::<Value>(line) else {
                    continue;
                };
                // What the scripted server asks by itself.
                let asks = match message["id"].as_str() {
                    Some("question") => Some("elicitation/create"),
                    Some("model") => Some("sampling/createMessage"),
                    _ => None,
                };
                if let Some(method) = asks.filter(|_| message.get("method").is_none()) {
                    check.hear(&json!({
                        "jsonrpc": "2.0", "id": message["id"], "method": method,
                    }));
                }
                if let Err(wrong) = check.say(&message) {
                    panic!("a server was told what the protocol does not allow: {wrong}");
                }
                if message["method"] == "initialize" {
                    // The scripted server takes what it is offered.
                    let revision = &message["params"]["protocolVersion"];
                    check.hear(&json!({
                        "id": message["id"],
                        "result": { "protocolVersion": revision },
                    }));
                }
            }
        }
    }
}

impl Default for TempHome {
    fn default() -> Self {
        Self::new()
    }
}

/// A Python for scripts of ours on the host: the system's own where there is one, since a shim
/// costs tens of milliseconds a start.
fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() {
        "/usr/bin/python3"
    } else {
        "python3"
    }
}
