//! What is refused, with the file as it was, and why.

use std::path::Path;

use runbridge_core::clients::connect::{Action, ConnectError, Connector, State};
use runbridge_core::paths::Os;

use crate::home::{Home, PROGRAM};

#[test]
fn a_file_that_cannot_be_read_is_not_written() {
    for (client, path, text, says) in [
        (
            "cursor",
            ".cursor/mcp.json",
            "{\n  \"mcpServers\": {\n",
            ":",
        ),
        (
            "cursor",
            ".cursor/mcp.json",
            "{\"mcpServers\": []}",
            "must be an object, not a list",
        ),
        (
            "cursor",
            ".cursor/mcp.json",
            "[]",
            "must be an object, not a list",
        ),
        (
            "codex",
            ".codex/config.toml",
            "a = 1\nb = \n",
            "config.toml:2:",
        ),
        (
            "continue",
            ".continue/config.yaml",
            "a: 1\nb: [1\nc: 2\n",
            "config.yaml:3:",
        ),
        (
            "continue",
            ".continue/config.yaml",
            "x: &s []\nmcpServers: *s\n",
            "change it by hand",
        ),
        // What Claude Desktop cannot read it replaces, and all servers are gone.
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            "{\n  // mine\n  \"mcpServers\": {}\n}",
            ":2:",
        ),
        (
            "claude-code",
            ".claude.json",
            "{\"mcpServers\": {},}",
            "plain JSON",
        ),
    ] {
        let home = Home::new(Os::Linux);
        home.write(path, text);
        let error = home.act(client, Action::Connect).err().unwrap();
        assert!(matches!(error, ConnectError::Unreadable { .. }), "{error}");
        let error = error.to_string();
        assert!(
            error.contains(says) && error.contains("nothing was changed"),
            "{error}"
        );
        assert_eq!(home.read(path), text);
    }
    let home = Home::new(Os::Linux);
    home.write(".cursor/mcp.json", "{\n  \"mcpServers\": {\n");
    assert!(matches!(
        home.state("cursor"),
        State::Unreadable {
            position: Some(_),
            ..
        }
    ));
}

#[test]
fn a_mark_that_the_client_does_not_accept_goes_with_consent_and_comes_back() {
    for (client, path) in [
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
        ),
        ("gemini-cli", ".gemini/settings.json"),
    ] {
        let home = Home::new(Os::Linux);
        let before = "\u{FEFF}{\r\n  \"mcpServers\": {}\r\n}";
        home.write(path, before);
        assert!(matches!(home.state(client), State::Unreadable { .. }));
        let error = home.act(client, Action::Connect).err().unwrap();
        assert!(
            matches!(error, ConnectError::ByteOrderMark { .. }),
            "{error}"
        );
        assert_eq!(home.read(path), before);
        let consented = |action| {
            home.search(|search| {
                Connector::new(search, Path::new(PROGRAM), None)
                    .dropping_mark()
                    .carry_out(client, action, None, false)
            })
        };
        let plan = consented(Action::Connect).unwrap();
        assert!(
            plan.notes[0].contains("byte order mark"),
            "{:?}",
            plan.notes
        );
        let connected = home.read(path);
        assert!(
            connected.starts_with("{\r\n  \"mcpServers\": {\r\n    \"runbridge\""),
            "{connected}"
        );
        // The client's editor puts it back; the entry stands already.
        home.write(path, &format!("\u{FEFF}{connected}"));
        consented(Action::Connect).unwrap();
        assert_eq!(home.read(path), connected);
        home.write(path, before);
        consented(Action::Connect).unwrap();
        home.disconnect(client);
        assert_eq!(home.read(path), before);
    }
}

#[test]
fn a_client_that_may_not_start_us_is_not_connected() {
    for (file, text, says) in [
        (
            "etc/claude-code/managed-mcp.json",
            "{\"mcpServers\": {}}",
            "your organisation decides",
        ),
        (
            "etc/claude-code/managed-settings.json",
            "{\"allowedMcpServers\": [{\"serverName\": \"other\"}]}",
            "not among what Claude Code may use",
        ),
        (
            ".claude/settings.json",
            "{\"deniedMcpServers\": [{\"serverName\": \"runbridge\"}]}",
            "is not to use it",
        ),
    ] {
        let home = Home::new(Os::Linux);
        home.write(".claude.json", "{}");
        home.write(file, text);
        let error = home.act("claude-code", Action::Connect).err().unwrap();
        assert!(matches!(error, ConnectError::Forbidden { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(matches!(home.state("claude-code"), State::Forbidden { .. }));
        assert_eq!(home.read(".claude.json"), "{}");
    }
}

#[test]
fn a_mark_that_the_client_accepts_stays() {
    let home = Home::new(Os::Linux);
    let before = "\u{FEFF}{\r\n\t\"servers\": {}\r\n}";
    home.write(".config/Code/User/mcp.json", before);
    home.connect("vscode");
    assert!(
        home.read(".config/Code/User/mcp.json")
            .starts_with("\u{FEFF}{\r\n\t\"servers\": {\r\n\t\t\"runbridge\"")
    );
    home.disconnect("vscode");
    assert_eq!(home.read(".config/Code/User/mcp.json"), before);
}

#[test]
fn another_programs_entry_of_our_name_is_left_alone() {
    let home = Home::new(Os::Linux);
    let text =
        "{\"mcpServers\": {\"runbridge\": {\"command\": \"node\", \"args\": [\"theirs.js\"]}}}";
    home.write(".cursor/mcp.json", text);
    assert_eq!(home.state("cursor"), State::NameTaken);
    for action in [Action::Connect, Action::Disconnect, Action::Move] {
        let error = home.act("cursor", action).err().unwrap();
        assert!(matches!(error, ConnectError::NameTaken { .. }), "{error}");
        assert_eq!(home.read(".cursor/mcp.json"), text);
    }
}

#[test]
fn an_entry_of_an_earlier_place_is_brought_up_to_date_and_a_hand_written_one_is_respected() {
    let home = Home::new(Os::Linux);
    home.write(
        ".cursor/mcp.json",
        "{\n  \"mcpServers\": {\n    \"runbridge\": {\"command\": \"/old/runbridge\", \"args\": []}\n  }\n}\n",
    );
    home.connect("cursor");
    assert_eq!(
        home.read(".cursor/mcp.json"),
        format!(
            "{{\n  \"mcpServers\": {{\n    \"runbridge\": {{\"command\": \"{PROGRAM}\", \"args\": []}}\n  }}\n}}\n"
        )
    );
    let by_hand = format!("{{\"mcpServers\": {{\"python\": {{\"command\": \"{PROGRAM}\"}}}}}}");
    home.write(".cursor/mcp.json", &by_hand);
    let plan = home.act("cursor", Action::Connect).unwrap();
    assert!(!plan.is_change());
    assert!(plan.notes[0].contains("`python`"), "{:?}", plan.notes);
    assert_eq!(home.read(".cursor/mcp.json"), by_hand);
}

#[test]
fn disconnecting_takes_out_only_what_is_ours() {
    let home = Home::new(Os::Linux);
    let path = ".cursor/mcp.json";
    home.write(path, "{\n  \"mcpServers\": {\n    \"keep\": {\n      \"command\": \"x\"\n    }\n  },\n  \"other\": 1\n}\n");
    home.connect("cursor");
    // Another program adds an entry and writes everything in its own order.
    let mut root: serde_json::Value = serde_json::from_str(&home.read(path)).unwrap();
    let servers = root["mcpServers"].as_object_mut().unwrap();
    servers.insert("new".to_owned(), serde_json::json!({"command": "n"}));
    servers.sort_keys();
    home.write(path, &serde_json::to_string_pretty(&root).unwrap());
    home.disconnect("cursor");
    root["mcpServers"]
        .as_object_mut()
        .unwrap()
        .shift_remove("runbridge")
        .unwrap();
    assert_eq!(
        home.read(path),
        serde_json::to_string_pretty(&root).unwrap()
    );

    // The user changed our entry by hand: it goes, and the backup has it.
    home.connect("cursor");
    let by_hand = home.read(path).replace(PROGRAM, "/usr/bin/strace");
    home.write(path, &by_hand);
    assert_eq!(home.state("cursor"), State::Changed);
    let plan = home.act("cursor", Action::Disconnect).unwrap();
    assert!(plan.notes[0].contains("by hand"), "{:?}", plan.notes);
    let backups = home.with(|connector| plan.backups(connector));
    assert_eq!(std::fs::read_to_string(&backups[0]).unwrap(), by_hand);

    // The file is gone: nothing to do, and nothing is made.
    home.connect("cursor");
    std::fs::remove_file(home.path().join(path)).unwrap();
    home.disconnect("cursor");
    assert!(!home.path().join(path).exists());
}

#[test]
fn a_preview_changes_nothing_and_shows_no_secret() {
    let home = Home::new(Os::Linux);
    let text = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\", \"env\": {\"API_TOKEN\": \"tok-123456789\"}}\n  }\n}\n";
    home.write(".cursor/mcp.json", text);
    let plan = home
        .with(|connector| connector.plan("cursor", Action::Connect, None, false))
        .unwrap();
    let diff = plan.diff();
    assert!(
        diff.contains("+    \"runbridge\": {\n") && diff.contains("***"),
        "{diff}"
    );
    assert!(
        !diff.contains("tok-123456789") && !diff.contains("\n-  "),
        "{diff}"
    );
    assert_eq!(home.read(".cursor/mcp.json"), text);
    assert!(!home.paths().data.exists());
    // What was planned is done to the file that was looked at, or not at all.
    home.write(".cursor/mcp.json", "{}");
    let error = home.with(|connector| connector.apply(&plan)).unwrap_err();
    assert!(matches!(error, ConnectError::Changed { .. }), "{error}");
    assert_eq!(home.read(".cursor/mcp.json"), "{}");
    assert_eq!(home.state("cursor"), State::NotConnected);
}

#[test]
fn an_extension_that_is_us_is_a_connection_and_others_are_noted() {
    let home = Home::new(Os::Macos);
    let app = "Library/Application Support/Claude";
    let config = home.write(&format!("{app}/claude_desktop_config.json"), "{}\n");
    let manifest = |name: &str, command: &str| {
        let text = format!(
            r#"{{"manifest_version": "0.3", "name": "{name}", "display_name": "The {name}",
            "server": {{"type": "binary", "entry_point": "server/x", "mcp_config": {{"command": "never",
            "args": [], "platform_overrides": {{"darwin": {{"command": "{command}"}}}}}}}}}}"#
        );
        home.write(
            &format!("{app}/Claude Extensions/by.{name}/manifest.json"),
            &text,
        )
    };
    manifest("notes", "${__dirname}/server/notes");
    assert_eq!(home.state("claude-desktop"), State::NotConnected);

    let ours = manifest("runbridge", "${__dirname}/server/runbridge");
    let state = State::Extension { manifest: ours };
    assert_eq!(home.state("claude-desktop"), state);
    let plan = home.act("claude-desktop", Action::Connect).unwrap();
    assert!(!plan.is_change(), "{}", plan.diff());
    assert!(
        plan.notes[0].contains("as an extension already"),
        "{:?}",
        plan.notes
    );
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "{}\n");
    let found = home.discover();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    let skipped: Vec<_> = found
        .skipped
        .iter()
        .map(|skipped| (skipped.name.as_str(), skipped.reason.as_str()))
        .collect();
    assert_eq!(skipped[0].0, "notes");
    assert!(
        skipped[0].1.contains("which only its client can run"),
        "{skipped:?}"
    );
    assert_eq!(skipped[1].0, "runbridge");
    assert!(skipped[1].1.contains("Runbridge itself"), "{skipped:?}");

    // Switched off there, it is no connection.
    let switch = format!("{app}/Claude Extensions Settings/by.runbridge.json");
    home.write(&switch, r#"{"isEnabled": false}"#);
    assert_eq!(home.state("claude-desktop"), State::NotConnected);
    home.connect("claude-desktop");
    assert!(matches!(
        home.state("claude-desktop"),
        State::Connected { .. }
    ));
    // Both at once are one connection too many, and the file says which one is ours to undo.
    home.write(&switch, r#"{"isEnabled": true}"#);
    assert!(matches!(
        home.state("claude-desktop"),
        State::Connected { .. }
    ));
    home.disconnect("claude-desktop");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "{}\n");
    assert!(matches!(
        home.state("claude-desktop"),
        State::Extension { .. }
    ));
}
