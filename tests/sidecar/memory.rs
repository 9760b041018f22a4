//! Contract 5: what the model asked to remember.

use std::sync::atomic::{AtomicBool, Ordering};

use runbridge_testkit::{McpClient, TempHome};
use serde_json::{Value, json};

use crate::{bridge, engine, on};

#[test]
fn values_outlive_the_bridge_with_their_metadata_and_version() {
    let mut bridge = bridge();
    bridge.prints(
        "save_memory('plan', {'steps': [1, 2.5, None, True, 2**70]}, metadata={'tags': ['work']})",
    );
    bridge.prints("update_memory('plan', lambda value: {**value, 'more': 'x'})");
    bridge.restart();
    let told = bridge.json(
        "
import json
info = get_memory_info('plan')
same = load_memory('plan') == {'steps': [1, 2.5, None, True, 2**70], 'more': 'x'}
print(json.dumps({'same': same, 'info': info, 'exists': memory_exists('plan'),
    'absent': [load_memory('no'), load_memory('no', default=7), memory_exists('no'), get_memory_info('no')],
    'keys': [item['key'] for item in list_memories()],
    'deleted': [delete_memory('plan'), delete_memory('plan')]}))",
    );
    assert_eq!(told["same"], true, "{told}");
    assert_eq!(
        (&told["info"]["metadata"], &told["info"]["version"]),
        (&json!({ "tags": ["work"] }), &json!(2))
    );
    for key in ["key", "created_at", "updated_at"] {
        assert!(told["info"][key].is_string(), "{key}: {told}");
    }
    assert_eq!(told["absent"], json!([null, 7, false, null]));
    assert_eq!(
        (&told["keys"], &told["deleted"]),
        (&json!(["plan"]), &json!([true, false]))
    );
    bridge.close();
}

#[test]
fn one_document_per_key_is_under_the_state_folder() {
    let bridge = bridge();
    bridge.prints("save_memory('only', {'a': 1})");
    let dir = bridge.home().join("MCPs/memory");
    let documents: Vec<Value> = std::fs::read_dir(&dir)
        .unwrap()
        .filter_map(|entry| {
            serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).ok()
        })
        .filter(|document: &Value| document["key"] == "only")
        .collect();
    assert_eq!(documents.len(), 1);
    for key in [
        "key",
        "value",
        "metadata",
        "created_at",
        "updated_at",
        "version",
    ] {
        assert!(documents[0].get(key).is_some(), "{key}: {}", documents[0]);
    }
    bridge.close();
}

#[test]
fn records_of_the_earlier_bridge_are_taken_over() {
    let home = TempHome::new();
    let record = json!({
        "key": "old", "value": [1, 2], "metadata": { "from": "before" },
        "created_at": "2026-01-02T03:04:05", "updated_at": 1_767_323_045.5,
    });
    home.write("MCPs/user_tools/memory/old.json", &record.to_string());
    let bridge = on(engine()).start(home);
    assert_eq!(
        bridge.prints("print(load_memory('old') == [1, 2], get_memory_info('old')['metadata'] == {'from': 'before'})"),
        "True True\n"
    );
    bridge.close();
}

#[test]
fn distinct_keys_stay_distinct_and_inside_the_folder() {
    let mut bridge = bridge();
    let before = files(&bridge);
    bridge.prints(
        "
keys = ['a/b', 'a b', 'Foo', 'foo', '../../outside', 'nul\\x00byte', '\u{43a}\u{43b}\u{44e}\u{447}', '\u{441}\u{43b}\u{43e}\u{43d}',
        'CON', 'con', 'dot.', 'dot', '%61', 'a', '\u{1f600}' * 200, '\u{1f600}' * 199, 'x' * 200]
for number, key in enumerate(keys):
    save_memory(key, number)",
    );
    bridge.restart();
    let printed = bridge.prints(
        "print([load_memory(key) for key in __import__('json').loads('''KEYS''')])"
            .replace(
                "KEYS",
                &json!([
                    "a/b",
                    "a b",
                    "Foo",
                    "foo",
                    "../../outside",
                    "\u{43a}\u{43b}\u{44e}\u{447}",
                    "CON",
                    "con",
                    "dot.",
                    "dot",
                    "%61",
                    "a",
                    "\u{1f600}".repeat(200),
                    "x".repeat(200)
                ])
                .to_string(),
            )
            .as_str(),
    );
    assert_eq!(
        printed,
        "[0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 16]\n"
    );
    assert_eq!(files(&bridge), before, "a file outside the memory folder");
    bridge.close();
}

/// Every file of the home that a hostile key could have made.
fn files(bridge: &runbridge_testkit::Bridge) -> Vec<String> {
    let list = |dir: &str| -> Vec<String> {
        let entries = std::fs::read_dir(bridge.home().join(dir))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .map(|entry| entry.path().to_string_lossy().into_owned())
            .filter(|path| path.contains("outside"))
            .collect()
    };
    ["", "MCPs", ".runbridge", ".."]
        .iter()
        .flat_map(|dir| list(dir))
        .collect()
}

#[test]
fn what_json_cannot_hold_is_refused_with_its_place() {
    let bridge = bridge();
    let printed = bridge.prints(
        "
for key, value in [('k', {'a': [1, 2, {3}]}), ('k', {'n': float('nan')}), ('k', float('inf')), ('', 1), ('x' * 201, 1), ('k', 'v' * (1 << 21))]:
    try:
        save_memory(key, value)
        print('saved')
    except Exception as error:
        print(type(error).__name__, error)
print(memory_exists('k'))
",
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert!(
        lines[0].starts_with("TypeError") && lines[0].contains("['a'][2]"),
        "{printed}"
    );
    assert!(lines[1].contains("['n']"), "{printed}");
    assert!(lines.iter().all(|line| *line != "saved"), "{printed}");
    assert!(
        lines[5].contains("MiB") || lines[5].contains("1048576"),
        "{printed}"
    );
    assert_eq!(lines[6], "False");
    bridge.close();
}

#[test]
fn a_damaged_file_is_reported_and_kept() {
    let mut bridge = bridge();
    bridge.prints("save_memory('good', 1)\nsave_memory('bad', 2)");
    let dir = bridge.home().join("MCPs/memory");
    let path = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"bad\"")))
        .unwrap();
    std::fs::write(&path, "{\"key\": \"bad\", \"val").unwrap();
    bridge.restart();
    let reply = bridge.run("print(load_memory('good'))\nload_memory('bad')");
    assert_eq!(
        (reply.status(), reply.stdout()),
        ("error", "1\n"),
        "{}",
        reply.result
    );
    assert!(reply.text().contains("damaged"), "{}", reply.text());
    assert_eq!(
        bridge.prints("save_memory('bad', 3)\nprint(load_memory('bad'))"),
        "3\n"
    );
    let kept = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let kept = kept.filter(|path| {
        std::fs::read_to_string(path).is_ok_and(|text| text == "{\"key\": \"bad\", \"val")
    });
    assert_eq!(kept.count(), 1, "the damaged text must be kept beside");
    bridge.close();
}

#[test]
fn two_writers_of_a_thousand_updates_each_lose_none() {
    let bridge = bridge();
    let (other, _) = bridge.another_client();
    let code = "for _ in range(1000):\n    update_memory('count', lambda value: (value or 0) + 1)\nprint('done')";
    let arguments = json!({ "code": code, "timeout": 120 });
    let first = bridge.client().send_run(arguments.clone());
    let second = other.send_run(arguments);
    for reply in [first.reply().unwrap(), second.reply().unwrap()] {
        assert_eq!(reply.stdout(), "done\n", "{}", reply.result);
    }
    assert_eq!(
        bridge.prints("print(load_memory('count'), get_memory_info('count')['version'])"),
        "2000 2000\n"
    );
    assert!(!other.close().killed);
    bridge.close();
}

/// Each round ends the sidecar by SIGKILL while it writes; what a reply has acknowledged is there.
#[test]
fn a_kill_during_writes_loses_no_acknowledged_record() {
    let mut bridge = bridge();
    let (mut acknowledged, mut written) = (0_u64, 0_u64);
    for round in 0..10_u64 {
        let (client, _) = bridge.another_client();
        client.run("pass");
        bridge.leftovers().note_owner();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    written += 1;
                    let code = format!(
                        "save_memory('n', {written}, metadata={{'pad': 'p' * 2000}})\nprint('ok')"
                    );
                    match client.send_run(json!({ "code": code })).reply() {
                        Ok(reply) if reply.stdout() == "ok\n" => acknowledged = written,
                        _ => break,
                    }
                }
            });
            // A different moment each round, between and within writes.
            std::thread::sleep(std::time::Duration::from_millis(30 + 17 * round));
            stop.store(round % 2 == 0, Ordering::Relaxed);
            kill(&client);
        });
        bridge.restart();
        if acknowledged > 0 {
            let value: u64 = bridge
                .prints("print(load_memory('n'))")
                .trim()
                .parse()
                .unwrap();
            assert!(
                (acknowledged..=written).contains(&value),
                "{value}, acknowledged {acknowledged}, tried {written}"
            );
        }
    }
    assert!(
        acknowledged >= 10,
        "too few writes to prove anything: {acknowledged}"
    );
    bridge.close();
}

/// SIGKILL to a client's process that another thread still waits for.
fn kill(client: &McpClient) {
    let status = std::process::Command::new("kill")
        .args(["-9", &client.pid().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}
