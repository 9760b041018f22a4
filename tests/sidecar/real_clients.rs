//! Real clients read what we write into their files, and we read what they write.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use runbridge_testkit::{Components, TempHome, wait_for};
use serde_json::{Value, json};

use crate::SIDECAR;

fn components() -> Components {
    Components::from_env().expect("RUNBRIDGE_TEST_COMPONENTS: run `cargo xtask test`")
}

/// What a program says on stdout and stderr, in a home folder of its own.
fn heard(home: &TempHome, program: &Path, arguments: &[&str]) -> (String, String) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", std::env::var_os("PATH").unwrap())
        // Otherwise opencode asks its makers for news first.
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    (stdout, stderr)
}

fn says(home: &TempHome, program: &Path, arguments: &[&str]) -> String {
    heard(home, program, arguments).0
}

fn runbridge(home: &TempHome, arguments: &[&str]) -> String {
    says(home, Path::new(SIDECAR), arguments)
}

#[test]
fn claude_code_connects_to_us_and_we_read_what_it_writes() {
    let (home, claude) = (TempHome::new(), components().client("claude"));
    std::fs::create_dir_all(home.join(".claude")).unwrap();
    let add = [
        "mcp", "add", "--scope", "user", "other", "--", "/bin/cat", "-u",
    ];
    says(&home, &claude, &add);
    runbridge(&home, &["connect", "claude-code"]);
    let listed = says(&home, &claude, &["mcp", "list"]);
    let ours = listed.lines().find(|line| line.starts_with("runbridge:"));
    assert!(
        ours.is_some_and(|line| line.contains("Connected")),
        "{listed}"
    );
    let servers: Value = serde_json::from_str(&runbridge(&home, &["servers", "--json"])).unwrap();
    assert_eq!(servers["servers"][0]["name"], "other");
    // It has written into its file by now; of that we take away nothing but our entry.
    let read = || -> Value {
        let text = std::fs::read_to_string(home.join(".claude.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let mut before = read();
    before["mcpServers"]
        .as_object_mut()
        .unwrap()
        .shift_remove("runbridge")
        .unwrap();
    runbridge(&home, &["disconnect", "claude-code"]);
    assert_eq!(read(), before);
    assert!(!says(&home, &claude, &["mcp", "list"]).contains("runbridge:"));
}

#[test]
fn claude_codes_own_command_connects_us() {
    let (home, claude) = (TempHome::new(), components().client("claude"));
    std::fs::create_dir_all(home.join(".claude")).unwrap();
    home.write(".local/bin/claude", "");
    std::fs::remove_file(home.join(".local/bin/claude")).unwrap();
    std::os::unix::fs::symlink(&claude, home.join(".local/bin/claude")).unwrap();
    let connected = runbridge(&home, &["connect", "claude-code"]);
    assert!(connected.contains("`claude mcp add-json`"), "{connected}");
    let read = || std::fs::read_to_string(home.join(".claude.json")).unwrap();
    let written: Value = serde_json::from_str(&read()).unwrap();
    assert_eq!(written["mcpServers"]["runbridge"]["command"], SIDECAR);
    // It notes more than our entry in there, which we did not plan.
    assert!(written.as_object().unwrap().len() > 1, "{written}");
    let listed = says(&home, &claude, &["mcp", "list"]);
    assert!(listed.contains("runbridge:"), "{listed}");
    let again = runbridge(&home, &["connect", "claude-code"]);
    assert!(again.contains("connected already"), "{again}");
    runbridge(&home, &["disconnect", "claude-code"]);
    let left: Value = serde_json::from_str(&read()).unwrap();
    assert!(left["mcpServers"].get("runbridge").is_none(), "{left}");
    assert!(left.as_object().unwrap().len() > 1, "{left}");
}

#[test]
fn codex_reads_our_entry() {
    let (home, codex) = (TempHome::new(), components().client("codex"));
    let before = "# mine\nmodel = \"o9\"   # trailing\n\n[mcp_servers.other]\ncommand = \"x\"\n";
    home.write(".codex/config.toml", before);
    runbridge(&home, &["connect", "codex"]);
    let list = || -> Value {
        serde_json::from_str(&says(&home, &codex, &["mcp", "list", "--json"])).unwrap()
    };
    let listed = list();
    let names: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, [&json!("other"), &json!("runbridge")]);
    assert_eq!(listed[1]["transport"]["command"], SIDECAR);
    assert_eq!(listed[1]["enabled"], true);
    runbridge(&home, &["disconnect", "codex"]);
    assert_eq!(list().as_array().unwrap().len(), 1);
    let after = std::fs::read_to_string(home.join(".codex/config.toml")).unwrap();
    assert_eq!(after, before);
}

#[test]
fn gemini_connects_to_us() {
    let (home, gemini) = (TempHome::new(), components().client("gemini"));
    home.write(
        ".gemini/settings.json",
        "{\n  // comments are allowed here\n  \"security\": {\"folderTrust\": {\"enabled\": false}}\n}\n",
    );
    runbridge(&home, &["connect", "gemini-cli"]);
    // Some versions list on stderr, and on a busy machine nothing the first time.
    let mut listed = String::new();
    let connected = wait_for(Duration::from_secs(90), || {
        let (stdout, stderr) = heard(&home, &gemini, &["mcp", "list"]);
        listed = stdout + &stderr;
        let ours = listed.lines().find(|line| line.contains("runbridge:"))?;
        ours.contains("Connected").then_some(())
    });
    assert!(connected.is_some(), "{listed}");
}

#[test]
fn opencode_connects_to_us() {
    let (home, opencode) = (TempHome::new(), components().client("opencode"));
    // It puts the schema in where that is missing.
    let before = "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  // mine\n  \"mcp\": {\"other\": {\"type\": \"local\", \"command\": [\"/bin/cat\"], \"enabled\": false}}\n}\n";
    home.write(".config/opencode/opencode.jsonc", before);
    runbridge(&home, &["connect", "opencode"]);
    // It lists on stderr, and draws as it does so.
    let (stdout, stderr) = heard(&home, &opencode, &["mcp", "list"]);
    let listed = stdout + &stderr;
    let ours = listed.lines().find(|line| line.contains("runbridge"));
    assert!(
        ours.is_some_and(|line| line.contains("connected")),
        "{listed}"
    );
    let other = listed.lines().find(|line| line.contains("other"));
    assert!(
        other.is_some_and(|line| line.contains("disabled")),
        "{listed}"
    );
    runbridge(&home, &["disconnect", "opencode"]);
    let after = std::fs::read_to_string(home.join(".config/opencode/opencode.jsonc")).unwrap();
    assert_eq!(after, before);
}
