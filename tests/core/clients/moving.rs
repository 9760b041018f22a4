//! The client's own servers behind the bridge, and back.

use runbridge_core::clients::connect::{Action, ConnectError};
use runbridge_core::paths::Os;

use crate::home::{Home, fixtures};

/// Name and way to start of every server that is on.
fn servers(home: &Home) -> Vec<String> {
    let mut servers: Vec<String> = home
        .discover()
        .entries
        .iter()
        .filter(|entry| entry.off.is_none())
        .map(|entry| {
            let sources: std::collections::BTreeSet<_> = entry
                .sources
                .iter()
                .map(|source| (&source.client, &source.path))
                .collect();
            format!(
                "{} {:?} {:?} {sources:?}",
                entry.name, entry.transport, entry.needs
            )
        })
        .collect();
    servers.sort();
    servers
}

#[test]
fn the_servers_of_every_client_are_the_same_behind_the_bridge() {
    let mut moved_somewhere = 0;
    for fixture in fixtures() {
        let home = Home::of(&fixture);
        for standing in home.standings() {
            let Some(file) = &standing.file else { continue };
            let before = std::fs::read(file).ok();
            let known = servers(&home);
            let Ok(plan) = home.act(standing.id, Action::Move) else {
                continue;
            };
            moved_somewhere += usize::from(!plan.moved().is_empty());
            assert_eq!(servers(&home), known, "{}", fixture.display());
            if plan.moved().is_empty() {
                let error = home.act(standing.id, Action::Restore).err().unwrap();
                assert!(matches!(error, ConnectError::NothingMoved { .. }));
            } else {
                assert_eq!(home.standing(standing.id).unwrap().moved(), plan.moved());
                home.act(standing.id, Action::Restore).unwrap();
                assert_eq!(servers(&home), known, "{}", fixture.display());
            }
            home.disconnect(standing.id);
            assert_eq!(std::fs::read(file).ok(), before, "{}", file.display());
            assert_eq!(servers(&home), known);
        }
    }
    assert!(
        moved_somewhere >= 20,
        "only {moved_somewhere} clients had servers to move"
    );
}

#[test]
fn moving_back_keeps_what_others_wrote_meanwhile() {
    let home = Home::new(Os::Linux);
    let path = ".cursor/mcp.json";
    home.write(
        path,
        "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\", \"extra\": [1.5, null]},\n    \"b\": {\"url\": \"https://b.example/mcp\"},\n    \"c\": {\"command\": \"${env:UNSET}\"}\n  },\n  \"other\": 1\n}\n",
    );
    let plan = home.act("cursor", Action::Move).unwrap();
    assert_eq!(plan.moved(), ["a", "b"]);
    assert!(
        plan.notes.iter().any(|note| note.contains("`c` stays")),
        "{:?}",
        plan.notes
    );
    let mut root: serde_json::Value = serde_json::from_str(&home.read(path)).unwrap();
    assert_eq!(
        root["mcpServers"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["runbridge", "c"]
    );
    // The user adds one server and defines another anew.
    root["mcpServers"]["new"] = serde_json::json!({"command": "n"});
    root["mcpServers"]["b"] = serde_json::json!({"command": "mine"});
    home.write(path, &serde_json::to_string_pretty(&root).unwrap());
    let plan = home.act("cursor", Action::Disconnect).unwrap();
    assert!(
        plan.notes.iter().any(|note| note.contains("`b`")),
        "{:?}",
        plan.notes
    );
    let root: serde_json::Value = serde_json::from_str(&home.read(path)).unwrap();
    assert_eq!(
        root,
        serde_json::json!({"mcpServers": {
            "a": {"command": "x", "extra": [1.5, null]}, "c": {"command": "${env:UNSET}"},
            "new": {"command": "n"}, "b": {"command": "mine"}}, "other": 1})
    );
}

#[test]
fn moved_servers_outlive_the_file_that_they_came_from() {
    let home = Home::new(Os::Linux);
    let path = ".cursor/mcp.json";
    home.write(path, "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}");
    let known = servers(&home);
    home.act("cursor", Action::Move).unwrap();
    std::fs::remove_file(home.path().join(path)).unwrap();
    let plan = home.act("cursor", Action::Disconnect).unwrap();
    assert!(
        plan.notes[1].contains("stay behind the bridge"),
        "{:?}",
        plan.notes
    );
    assert!(!home.path().join(path).exists());
    assert_eq!(servers(&home), known);
    home.act("cursor", Action::Restore).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&home.read(path)).unwrap(),
        serde_json::json!({"mcpServers": {"a": {"command": "x"}}})
    );
    assert_eq!(servers(&home), known);
}
