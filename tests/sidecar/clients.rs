//! The commands that connect clients, as a person types them, killed in the middle too.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use runbridge_testkit::TempHome;

use crate::SIDECAR;

fn command(home: &TempHome, arguments: &[&str]) -> Command {
    let mut command = Command::new(SIDECAR);
    command
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin");
    command
}

fn runbridge(home: &TempHome, arguments: &[&str]) -> Output {
    command(home, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn file(home: &TempHome) -> PathBuf {
    home.join(".cursor/mcp.json")
}

const BEFORE: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n";

#[test]
fn a_client_is_connected_moved_and_left_from_the_command_line() {
    let home = TempHome::new();
    let none = runbridge(&home, &["clients"]);
    assert!(text(&none.stdout).contains("No MCP client was found"));
    home.write(".cursor/mcp.json", BEFORE);
    let read = || std::fs::read_to_string(file(&home)).unwrap();

    let preview = runbridge(&home, &["connect", "cursor", "--dry-run"]);
    let shown = text(&preview.stdout);
    assert!(
        shown.contains("+    \"runbridge\": {") && shown.contains("nothing was changed"),
        "{shown}"
    );
    assert_eq!(read(), BEFORE);

    let done = runbridge(&home, &["connect", "cursor"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let connected = read();
    assert!(
        connected.contains(&format!("\"command\": \"{SIDECAR}\"")),
        "{connected}"
    );
    let clients = runbridge(&home, &["clients", "--json"]);
    let clients: serde_json::Value = serde_json::from_slice(&clients.stdout).unwrap();
    assert_eq!(clients[0]["id"], "cursor");
    assert_eq!(clients[0]["state"]["state"], "connected");

    assert!(runbridge(&home, &["move", "cursor"]).status.success());
    assert!(!read().contains("\"a\""), "{}", read());
    let servers = text(&runbridge(&home, &["servers"]).stdout);
    assert!(
        servers.contains("a  ") && servers.contains("(cursor)"),
        "{servers}"
    );
    assert!(runbridge(&home, &["restore", "cursor"]).status.success());
    assert_eq!(read(), connected);
    assert!(runbridge(&home, &["disconnect", "cursor"]).status.success());
    assert_eq!(read(), BEFORE);

    let nothing = runbridge(&home, &["restore", "cursor"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("no servers of Cursor were moved"));
}

/// Lets a command run for so long and kills it, as `kill -9` does.
fn killed_after(home: &TempHome, arguments: &[&str], delay: Duration) -> bool {
    let mut child = command(home, arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(delay);
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

/// How long a command takes from start to end.
fn duration(home: &TempHome, arguments: &[&str]) -> Duration {
    let started = Instant::now();
    assert!(runbridge(home, arguments).status.success());
    started.elapsed()
}

fn visible(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with(".runbridge-tmp-"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_kill_at_any_moment_leaves_the_old_file_or_the_new_one() {
    const STEPS: u32 = 40;
    let home = TempHome::new();
    home.write(".cursor/mcp.json", BEFORE);
    let read = || std::fs::read_to_string(file(&home)).unwrap();
    let whole = duration(&home, &["connect", "cursor"]);
    let connected = read();
    runbridge(&home, &["disconnect", "cursor"]);
    let (mut old, mut new, mut killed) = (0, 0, 0);
    for step in 0..STEPS {
        killed += u32::from(killed_after(
            &home,
            &["connect", "cursor"],
            whole * step / STEPS,
        ));
        let now = read();
        assert!(now == BEFORE || now == connected, "{now:?}");
        if now == connected {
            new += 1;
        } else {
            old += 1;
        }
        assert_eq!(visible(&home.join(".cursor")), ["mcp.json"]);
        // Whatever was left behind, the next command puts it right.
        assert!(runbridge(&home, &["connect", "cursor"]).status.success());
        assert_eq!(read(), connected);
        assert!(runbridge(&home, &["disconnect", "cursor"]).status.success());
        assert_eq!(read(), BEFORE);
    }
    assert!(
        killed > 0 && old > 0 && new > 0,
        "{killed} killed, {old} old, {new} new"
    );
}
