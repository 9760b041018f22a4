//! Saved tools: kept, replaced, reported when broken.

use std::fs;

use runbridge_core::saved_tools::{
    NewTool, SOURCE_BYTES_MAX, SavedTools, SavedToolsError, TOOLS_MAX,
};
use tempfile::TempDir;

fn tool(name: &str, source: &str) -> NewTool {
    NewTool {
        name: name.to_owned(),
        source: source.to_owned(),
        description: "Adds.".to_owned(),
    }
}

#[test]
fn a_saved_tool_is_there_for_the_next_process_and_a_same_named_one_replaces_it() {
    let home = TempDir::new().unwrap();
    let saved = SavedTools::open(home.path()).unwrap();
    let first = saved.save(tool("add", "def add(): return 1\n")).unwrap();
    saved.save(tool("Add", "def Add(): return 3\n")).unwrap();
    saved
        .save(tool("add", "def add(): return 'ž\\n'\n"))
        .unwrap();

    let list = SavedTools::open(home.path()).unwrap().load_all().unwrap();
    let seen: Vec<_> = list
        .tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.source.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("Add", "def Add(): return 3\n"),
            ("add", "def add(): return 'ž\\n'\n")
        ]
    );
    assert_eq!(list.tools[1].created_at, first.created_at);
    assert!(list.broken.is_empty());

    assert!(saved.delete("add").unwrap());
    assert!(!saved.delete("add").unwrap());
    assert_eq!(saved.load_all().unwrap().tools.len(), 1);
}

#[test]
fn a_broken_file_is_reported_and_kept_beside_when_its_name_is_saved() {
    let home = TempDir::new().unwrap();
    let saved = SavedTools::open(home.path()).unwrap();
    saved.save(tool("good", "def good(): ...\n")).unwrap();
    fs::write(home.path().join("bad.json"), "{").unwrap();
    let list = saved.load_all().unwrap();
    assert_eq!((list.tools.len(), list.broken.len()), (1, 1));
    assert_eq!(list.broken[0].path, home.path().join("bad.json"));

    saved.save(tool("bad", "def bad(): ...\n")).unwrap();
    assert_eq!(saved.load_all().unwrap().tools.len(), 2);
    assert_eq!(
        fs::read_to_string(home.path().join("bad.json.damaged-1")).unwrap(),
        "{"
    );
}

#[test]
fn what_is_no_function_name_or_too_large_is_refused() {
    let home = TempDir::new().unwrap();
    let saved = SavedTools::open(home.path()).unwrap();
    for name in ["", "../x", "a b", "1a", "a\0", &"a".repeat(101)] {
        assert!(
            matches!(
                saved.save(tool(name, "")),
                Err(SavedToolsError::Name { .. })
            ),
            "{name:?}"
        );
        assert!(
            matches!(saved.delete(name), Err(SavedToolsError::Name { .. })),
            "{name:?}"
        );
    }
    let large = tool("large", &"x".repeat(SOURCE_BYTES_MAX + 1));
    assert!(matches!(
        saved.save(large),
        Err(SavedToolsError::TooLarge { what: "source", .. })
    ));
    for number in 0..TOOLS_MAX {
        fs::write(home.path().join(format!("t{number}.json")), "{}").unwrap();
    }
    assert!(matches!(
        saved.save(tool("more", "")),
        Err(SavedToolsError::TooMany { .. })
    ));
}
