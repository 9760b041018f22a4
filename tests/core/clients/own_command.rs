//! Claude Code's own command makes the change where it is installed, and what it does is checked.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;

use runbridge_core::clients::connect::{Action, State};
use runbridge_core::paths::Os;

use crate::home::{Home, PROGRAM};

const FILE: &str = ".claude.json";
const BEFORE: &str = "{\n\t\"numStartups\": 3,\n\t\"mcpServers\": {\"a\": {\"command\": \"x\"}}\n}";

/// A home folder with a program `claude` that does this. `$4` is the entry.
fn with_claude(script: &str) -> Home {
    let home = Home::new(Os::Linux);
    home.write(FILE, BEFORE);
    let program = home.write(".local/bin/claude", &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    home
}

const SERVERS: &str =
    r#"{"numStartups": 3, "mcpServers": {"runbridge": '"$4"', "a": {"command": "x"}}"#;

#[test]
fn what_the_command_writes_is_undone_to_the_byte() {
    let home = with_claude(&format!(
        "test \"$*\" = \"mcp add-json runbridge $4 --scope user\" || exit 9\n\
         printf '%s' '{SERVERS}}}' > \"$HOME/{FILE}\""
    ));
    let plan = home.act("claude-code", Action::Connect).unwrap();
    assert!(
        plan.notes[0].contains("`claude mcp add-json`"),
        "{:?}",
        plan.notes
    );
    let written: serde_json::Value = serde_json::from_str(&home.read(FILE)).unwrap();
    assert_eq!(written["mcpServers"]["runbridge"]["command"], PROGRAM);
    assert!(!home.read(FILE).contains('\t'), "the command wrote it");
    assert!(matches!(home.state("claude-code"), State::Connected { .. }));
    home.disconnect("claude-code");
    assert_eq!(home.read(FILE), BEFORE);
}

#[test]
fn what_the_command_writes_of_its_own_stays_when_we_leave() {
    let home = with_claude(&format!(
        "printf '%s' '{SERVERS}, \"userID\": \"u\"}}' > \"$HOME/{FILE}\""
    ));
    home.connect("claude-code");
    home.disconnect("claude-code");
    let left: serde_json::Value = serde_json::from_str(&home.read(FILE)).unwrap();
    assert_eq!(
        left,
        serde_json::json!({"numStartups": 3, "mcpServers": {"a": {"command": "x"}}, "userID": "u"})
    );
}

#[test]
fn a_command_that_does_not_do_it_leaves_it_to_us() {
    for script in ["exit 1", "exit 0", "kill -9 $$"] {
        let home = with_claude(script);
        home.connect("claude-code");
        assert!(home.read(FILE).starts_with("{\n\t\"numStartups\": 3,"));
        assert!(matches!(home.state("claude-code"), State::Connected { .. }));
        home.disconnect("claude-code");
        assert_eq!(home.read(FILE), BEFORE, "{script}");
    }
}

#[test]
fn a_command_that_changes_something_else_at_that_moment_loses_nothing() {
    let home = with_claude(&format!(
        "printf '%s' '{{\"numStartups\": 4}}' > \"$HOME/{FILE}\"; exit 1"
    ));
    home.connect("claude-code");
    let written: serde_json::Value = serde_json::from_str(&home.read(FILE)).unwrap();
    assert_eq!(written["numStartups"], 4);
    assert_eq!(written["mcpServers"]["runbridge"]["command"], PROGRAM);
    home.disconnect("claude-code");
    assert_eq!(home.read(FILE), "{\"numStartups\": 4}");
}
