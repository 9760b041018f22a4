//! Memory within one process: keys, values, bounds, damage, the earlier bridge's records.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use runbridge_core::memory::{ImportMode, Info, Memory, MemoryError, MemoryLimits, UpdateResult};
use serde_json::value::{RawValue, to_raw_value};
use tempfile::TempDir;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn open(folder: &Path) -> Memory {
    Memory::open(folder, None, MemoryLimits::default()).unwrap()
}

fn save(memory: &Memory, key: &str, value: &str) -> Info {
    memory.save(key, &raw(value), None, "test").unwrap()
}

fn load(memory: &Memory, key: &str) -> Option<String> {
    memory
        .load(key)
        .unwrap()
        .map(|record| record.value.get().to_owned())
}

fn keys(memory: &Memory) -> Vec<String> {
    memory
        .list()
        .unwrap()
        .items
        .into_iter()
        .map(|info| info.key)
        .collect()
}

fn file_of(memory: &Memory, name: &str) -> std::path::PathBuf {
    memory.folder().join(name)
}

#[test]
fn distinct_keys_stay_distinct_and_nothing_leaves_the_folder() {
    let home = TempDir::new().unwrap();
    let memory = open(&home.path().join("state/memory"));
    let emoji = "🎉".repeat(200);
    let almost = format!("{}🎊", "🎉".repeat(199));
    let all = [
        "../../outside",
        "..\\..\\outside",
        "/tmp/outside",
        "memories/../../outside",
        "a\0b",
        "file:///x",
        "Foo",
        "foo",
        "a/b",
        "a b",
        "Привет",
        "привет",
        "CON",
        "con",
        "trailing.",
        "trailing",
        " ",
        "\n",
        ".lock",
        "## Foo (bar)!",
        &emoji,
        &almost,
    ];
    for (number, key) in all.iter().enumerate() {
        save(&memory, key, &number.to_string());
    }
    for (number, key) in all.iter().enumerate() {
        assert_eq!(load(&memory, key), Some(number.to_string()), "{key:?}");
    }
    assert_eq!(
        keys(&memory).into_iter().collect::<BTreeSet<_>>(),
        all.iter().map(ToString::to_string).collect()
    );
    let outside: Vec<_> = fs::read_dir(home.path())
        .unwrap()
        .chain(fs::read_dir(home.path().join("state")).unwrap())
        .collect();
    assert_eq!(
        outside.len(),
        2,
        "only state/ and state/memory/: {outside:?}"
    );
    for key in &all {
        assert!(memory.delete(key).unwrap(), "{key:?}");
        assert!(!memory.delete(key).unwrap(), "{key:?}");
        assert_eq!(load(&memory, key), None, "{key:?}");
    }
    assert!(keys(&memory).is_empty());
}

#[test]
fn a_key_has_1_to_200_characters() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    for (key, chars) in [(String::new(), 0), ("x".repeat(201), 201)] {
        let error = memory.save(&key, &raw("1"), None, "test").unwrap_err();
        assert!(
            matches!(error, MemoryError::Key { chars: found } if found == chars),
            "{error}"
        );
        assert!(matches!(memory.load(&key), Err(MemoryError::Key { .. })));
        assert!(matches!(memory.delete(&key), Err(MemoryError::Key { .. })));
    }
}

#[test]
fn values_come_back_as_they_were_written() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for value in [
        "null",
        "false",
        "0",
        "\"\"",
        "[]",
        "{}",
        "1180591620717411303424",
        "0.1",
        "1e400",
        "\"★ 🎉 řemeslník\"",
        "{\"深\": [null]}",
        "\"\\ud800\"",
        "-0.0",
        &deep,
    ] {
        save(&memory, "k", value);
        assert_eq!(load(&memory, "k").as_deref(), Some(value));
    }
}

#[test]
fn the_file_is_the_document_that_is_promised() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    memory
        .save(
            "plan",
            &raw("[1, 2]"),
            Some(&raw("{\"tag\": \"a\"}")),
            "claude",
        )
        .unwrap();
    let text = fs::read_to_string(file_of(&memory, "plan.json")).unwrap();
    insta::with_settings!({ filters => [(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>")] }, {
        insta::assert_snapshot!(text, @r#"
        {
          "key": "plan",
          "value": [1, 2],
          "metadata": {"tag": "a"},
          "created_at": "<time>",
          "updated_at": "<time>",
          "version": 1,
          "writer": "claude"
        }
        "#);
    });
}

#[test]
fn an_update_is_compare_and_set_and_keeps_metadata() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    assert!(matches!(
        memory.update("k", &raw("0"), Some(1), "a").unwrap(),
        UpdateResult::Conflict(None)
    ));
    assert!(matches!(
        memory.update("k", &raw("0"), None, "a").unwrap(),
        UpdateResult::Saved(_)
    ));
    memory
        .save("k", &raw("1"), Some(&raw("\"label\"")), "a")
        .unwrap();
    assert!(matches!(
        memory.update("k", &raw("9"), Some(1), "b").unwrap(),
        UpdateResult::Conflict(Some(2))
    ));
    assert!(matches!(
        memory.update("k", &raw("9"), None, "b").unwrap(),
        UpdateResult::Conflict(Some(2))
    ));
    let UpdateResult::Saved(info) = memory.update("k", &raw("2"), Some(2), "b").unwrap() else {
        panic!("conflict")
    };
    assert_eq!(
        (
            info.version,
            info.metadata.unwrap().get(),
            info.writer.as_deref()
        ),
        (3, "\"label\"", Some("b"))
    );
    assert_eq!(load(&memory, "k").as_deref(), Some("2"));
}

#[test]
fn a_version_read_before_a_deletion_never_matches_again() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    let read = save(&memory, "k", "1").version;
    memory.delete("k").unwrap();
    drop(memory);
    let memory = open(home.path());
    save(&memory, "k", "2");
    assert!(matches!(
        memory.update("k", &raw("3"), Some(read), "late").unwrap(),
        UpdateResult::Conflict(Some(_))
    ));
    assert_eq!(load(&memory, "k").as_deref(), Some("2"));
}

#[test]
fn times_and_writer_tell_first_and_last_change() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    let first = save(&memory, "k", "1");
    let second = memory.save("k", &raw("2"), None, "other").unwrap();
    assert_eq!(second.created_at, first.created_at);
    assert!(second.updated_at >= first.updated_at);
    assert_eq!(
        (second.version, second.writer.as_deref(), second.value_bytes),
        (2, Some("other"), 1)
    );
    assert_eq!(memory.info("k").unwrap().unwrap().version, 2);
    assert!(memory.info("absent").unwrap().is_none());
}

#[test]
fn a_damaged_file_is_reported_and_never_lost() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    save(&memory, "good", "1");
    let path = file_of(&memory, "broken.json");
    for (n, text) in [
        &b"{\"key\": \"broken\", \"val"[..],
        b"",
        b"\xff\xfe",
        b"{\"key\":\"other\",\"value\":1,\"created_at\":\"\",\"updated_at\":\"\",\"version\":1}",
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(&path, text).unwrap();
        let error = memory.load("broken").unwrap_err();
        assert!(
            matches!(&error, MemoryError::Damaged { path: at, .. } if *at == path),
            "{error}"
        );
        assert!(
            memory.update("broken", &raw("1"), None, "test").is_err(),
            "an update needs the old value"
        );
        let listing = memory.list().unwrap();
        assert_eq!(listing.items.len(), 1);
        assert_eq!(
            listing
                .damaged
                .iter()
                .map(|damaged| &damaged.path)
                .collect::<Vec<_>>(),
            [&path]
        );
        assert_eq!(fs::read(&path).unwrap(), text, "reading changes nothing");

        save(&memory, "broken", "2");
        assert_eq!(load(&memory, "broken").as_deref(), Some("2"));
        assert_eq!(
            fs::read(file_of(&memory, &format!("broken.json.damaged-{}", n + 1))).unwrap(),
            text
        );
    }
    fs::write(&path, "again").unwrap();
    assert!(memory.delete("broken").unwrap());
    assert_eq!(
        fs::read(file_of(&memory, "broken.json.damaged-5")).unwrap(),
        b"again"
    );
    assert_eq!(keys(&memory), ["good"]);
}

#[test]
fn the_bounds_are_errors_that_say_what_to_do() {
    let home = TempDir::new().unwrap();
    let memory = Memory::open(
        home.path(),
        None,
        MemoryLimits {
            value_bytes_max: 10,
            keys_max: 2,
        },
    )
    .unwrap();
    save(&memory, "a", "\"12345678\"");
    let error = memory
        .save("a", &raw("\"123456789\""), None, "test")
        .unwrap_err();
    assert_eq!(error.code(), "memory_full");
    insta::assert_snapshot!(error, @r#"memory_full: the value of "a" is 11 bytes of JSON, at most 10 are kept per key; split it over several keys or keep less of it"#);
    assert_eq!(load(&memory, "a").as_deref(), Some("\"12345678\""));

    save(&memory, "b", "1");
    let error = memory.save("c", &raw("1"), None, "test").unwrap_err();
    assert_eq!(error.code(), "memory_full");
    insta::assert_snapshot!(error, @r#"memory_full: 2 keys are kept, which is the limit, so "c" was not saved; delete_memory() keys that are no longer needed, list_memories() names them"#);
    save(&memory, "b", "2");
    memory.delete("a").unwrap();
    save(&memory, "c", "1");
    let big = to_raw_value(&"x".repeat(70_000)).unwrap();
    assert_eq!(
        memory
            .save("c", &raw("1"), Some(&big), "test")
            .unwrap_err()
            .code(),
        "memory_full"
    );
}

#[test]
fn the_count_of_keys_stays_right_with_two_owners_damage_and_a_lost_tally() {
    let home = TempDir::new().unwrap();
    let limits = MemoryLimits {
        keys_max: 3,
        ..MemoryLimits::default()
    };
    let open = || Memory::open(home.path(), None, limits).unwrap();
    let (a, b) = (open(), open());
    save(&a, "1", "0");
    save(&b, "2", "0");
    save(&a, "3", "0");
    assert!(b.save("4", &raw("0"), None, "test").is_err());
    b.delete("1").unwrap();
    save(&a, "4", "0");
    assert!(a.save("5", &raw("0"), None, "test").is_err());

    fs::write(file_of(&a, "2.json"), "damaged").unwrap();
    save(&a, "2", "1");
    assert!(
        a.save("5", &raw("0"), None, "test").is_err(),
        "putting aside and saving is one key"
    );

    // As a writer killed between its mark and its count leaves it, and as nobody leaves it.
    for tally in ["? 0", "", "\u{0}garbage", "99999999999999999999999 x"] {
        fs::write(file_of(&a, ".lock"), tally).unwrap();
        assert!(a.save("5", &raw("0"), None, "test").is_err(), "{tally}");
        a.delete("4").unwrap();
        save(&b, "4", "0");
        assert!(a.save("5", &raw("0"), None, "test").is_err(), "{tally}");
    }
}

#[test]
fn records_of_the_earlier_bridge_are_taken_over_once_and_left_untouched() {
    let home = TempDir::new().unwrap();
    let legacy = home.path().join("user_tools/memory");
    fs::create_dir_all(&legacy).unwrap();
    let old = [
        (
            "plan.json",
            r#"{"key": "plan", "value": {"n": 1180591620717411303424}, "metadata": {}, "created_at": "2025-11-20T12:00:00.123456", "updated_at": 1763640001.5}"#,
        ),
        (
            "My_Key.json",
            r#"{"key": "My Key", "value": [0.1], "metadata": null, "created_at": "2025-11-20T12:00:00+00:00", "updated_at": "2025-11-21T12:00:00+00:00"}"#,
        ),
        ("nan.json", r#"{"key": "nan", "value": NaN}"#),
        ("notes.txt", "not ours"),
    ];
    for (name, text) in old {
        fs::write(legacy.join(name), text).unwrap();
    }
    let folder = home.path().join("memory");
    let open = || Memory::open(&folder, Some(&legacy), MemoryLimits::default()).unwrap();
    let memory = open();
    assert_eq!(keys(&memory), ["My Key", "plan"]);
    let plan = memory.load("plan").unwrap().unwrap();
    assert_eq!(plan.value.get(), r#"{"n": 1180591620717411303424}"#);
    assert_eq!(
        (plan.info.created_at.as_str(), plan.info.updated_at.as_str()),
        ("2025-11-20T12:00:00.123Z", "2025-11-20T12:00:01.500Z")
    );
    let damaged = memory.list().unwrap().damaged;
    assert_eq!(
        damaged
            .iter()
            .map(|damaged| damaged.path.clone())
            .collect::<Vec<_>>(),
        [legacy.join("nan.json")]
    );

    memory.delete("plan").unwrap();
    save(&memory, "My Key", "\"mine\"");
    // The earlier bridge is used once more.
    fs::write(legacy.join("late.json"), r#"{"key": "late", "value": 1}"#).unwrap();
    fs::write(legacy.join("nan.json"), r#"{"key": "nan", "value": null}"#).unwrap();
    let memory = open();
    assert_eq!(keys(&memory), ["My Key", "late", "nan"]);
    assert_eq!(load(&memory, "My Key").as_deref(), Some("\"mine\""));
    assert!(memory.list().unwrap().damaged.is_empty());
    assert_eq!(
        fs::read_to_string(legacy.join("plan.json")).unwrap(),
        old[0].1
    );
}

#[test]
fn a_key_of_ours_wins_over_one_of_the_earlier_bridge() {
    let home = TempDir::new().unwrap();
    let legacy = home.path().join("legacy");
    fs::create_dir_all(&legacy).unwrap();
    fs::write(legacy.join("k.json"), r#"{"key": "k", "value": "old"}"#).unwrap();
    let folder = home.path().join("memory");
    save(&open(&folder), "k", "\"new\"");
    let memory = Memory::open(&folder, Some(&legacy), MemoryLimits::default()).unwrap();
    assert_eq!(load(&memory, "k").as_deref(), Some("\"new\""));
}

#[test]
fn an_export_imported_elsewhere_is_the_same_memory() {
    let home = TempDir::new().unwrap();
    let from = open(&home.path().join("from"));
    save(&from, "big", "1180591620717411303424");
    from.save("labelled", &raw("null"), Some(&raw("[\"a\"]")), "test")
        .unwrap();
    fs::write(file_of(&from, "x.json"), "damaged").unwrap();
    let mut text = Vec::new();
    let left_out = from.export(&mut text).unwrap();
    assert_eq!(left_out.len(), 1);
    let text = String::from_utf8(text).unwrap();

    let to = open(&home.path().join("to"));
    save(&to, "big", "0");
    save(&to, "other", "0");
    let report = to.import(&text, ImportMode::Merge, "import").unwrap();
    assert_eq!((report.added, report.replaced, report.removed), (1, 1, 0));
    assert_eq!(keys(&to), ["big", "labelled", "other"]);
    let report = to.import(&text, ImportMode::Replace, "import").unwrap();
    assert_eq!((report.added, report.replaced, report.removed), (0, 2, 1));
    assert_eq!(load(&to, "big").as_deref(), Some("1180591620717411303424"));
    let (labelled, original) = (
        to.info("labelled").unwrap().unwrap(),
        from.info("labelled").unwrap().unwrap(),
    );
    assert_eq!(labelled.metadata.unwrap().get(), "[\"a\"]");
    assert_eq!(labelled.created_at, original.created_at);
}

#[test]
fn a_bad_import_changes_nothing() {
    let home = TempDir::new().unwrap();
    let memory = Memory::open(
        home.path(),
        None,
        MemoryLimits {
            value_bytes_max: 100,
            keys_max: 2,
        },
    )
    .unwrap();
    save(&memory, "k", "1");
    let document = |items: &str| {
        format!(r#"{{"format": "runbridge-memory", "format_version": 1, "items": [{items}]}}"#)
    };
    for text in [
        "",
        "[]",
        r#"{"format": "other", "format_version": 1, "items": []}"#,
        r#"{"format": "runbridge-memory", "format_version": 2, "items": []}"#,
        &document(r#"{"key": "a", "value": 1}, {"key": "", "value": 1}"#),
        &document(r#"{"key": "a", "value": 1}, {"key": "a", "value": 2}"#),
        &document(
            r#"{"key": "a", "value": 1}, {"key": "b", "value": 2}, {"key": "c", "value": 3}"#,
        ),
        &document(&format!(
            r#"{{"key": "a", "value": 1}}, {{"key": "b", "value": "{}"}}"#,
            "x".repeat(100)
        )),
    ] {
        memory
            .import(text, ImportMode::Replace, "import")
            .unwrap_err();
        assert_eq!(keys(&memory), ["k"], "{text}");
    }
}

#[test]
fn ten_thousand_keys_are_saved_and_listed_without_a_scan_per_save() {
    let home = TempDir::new().unwrap();
    let memory = open(home.path());
    // Files as an earlier run left them; made without the flush that each real save does.
    for number in 0..9_999 {
        let text = format!(
            r#"{{"key":"{number}","value":1,"created_at":"","updated_at":"","version":1}}"#
        );
        fs::write(file_of(&memory, &format!("{number}.json")), text).unwrap();
    }
    drop(memory);
    let memory = open(home.path());
    assert_eq!(memory.list().unwrap().items.len(), 9_999);
    save(&memory, "last", "1");
    assert_eq!(
        memory
            .save("one more", &raw("1"), None, "test")
            .unwrap_err()
            .code(),
        "memory_full"
    );
}
