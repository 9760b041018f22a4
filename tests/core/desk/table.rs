//! The list of commands: the window's lines, the table, and the desk's methods are the same.

use std::path::Path;

use runbridge_core::api::COMMANDS;

/// Commands that the core knows nothing of; the shell answers them by itself.
const OF_THE_SHELL: [&str; 4] = [
    "check_for_update",
    "install_update",
    "restart_app",
    // The desk gives the path: `client_file`.
    "show_client_file",
];

fn read(relative: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(relative)).unwrap()
}

#[test]
fn the_window_has_a_line_for_each_command_of_the_table() {
    let lines = read("ui/src/ipc/commands.ts");
    let named: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split_once("= command('")?.1.split_once('\''))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(named, COMMANDS);
}

#[test]
fn the_desk_has_a_method_for_each_command_of_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/desk");
    let mut source = String::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            source.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    let missing: Vec<&&str> = COMMANDS
        .iter()
        .filter(|name| !OF_THE_SHELL.contains(name))
        .filter(|name| {
            !source.contains(&format!("fn {name}(&self"))
                && !source.contains(&format!("fn {name}(\n"))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
