//! Two lists of commands: what the app answers and what the window may send. That the window's own list
//! is the core's is tested with the window.

use std::collections::BTreeSet;

#[test]
fn the_app_answers_every_command_and_opens_no_other() {
    let asked = include_str!("../../ui/src/ipc/commands.ts");
    let asked: BTreeSet<String> = asked
        .split("= command('")
        .skip(1)
        .filter_map(|rest| rest.split_once('\''))
        .map(|(name, _)| name.to_owned())
        .collect();

    let source = include_str!("../../src-tauri/app/commands.rs");
    let list = source.split("generate_handler![").nth(1).unwrap();
    let answered = list.split(']').next().unwrap().split(',');
    let answered: BTreeSet<String> = answered
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(answered, asked);

    let capability = include_str!("../../src-tauri/capabilities/main.json");
    let capability: serde_json::Value = serde_json::from_str(capability).unwrap();
    let opened: BTreeSet<&str> = capability["permissions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let mut expected: BTreeSet<String> = answered
        .iter()
        .map(|name| format!("allow-{}", name.replace('_', "-")))
        .collect();
    // One event, heard and no longer heard; nothing else of Tauri's.
    expected.insert("core:event:allow-listen".to_owned());
    expected.insert("core:event:allow-unlisten".to_owned());
    assert_eq!(opened, expected.iter().map(String::as_str).collect());
}
