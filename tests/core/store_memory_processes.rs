//! Memory between processes: two writers, a killed writer, a full disk.
//!
//! The helper processes are this test binary again, told by a variable what to do.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runbridge_core::memory::{Memory, MemoryLimits, UpdateResult};
use serde_json::value::to_raw_value;
use tempfile::TempDir;

const TASK: &str = "STORE_TEST_TASK";
const FOLDER: &str = "STORE_TEST_FOLDER";

/// What a helper process does; without the variable it is an ordinary empty run.
#[test]
fn helper() {
    let (Ok(task), Some(folder)) = (std::env::var(TASK), std::env::var_os(FOLDER)) else {
        return;
    };
    let memory = Memory::open(Path::new(&folder), None, MemoryLimits::default()).unwrap();
    match task.as_str() {
        "increment" => {
            for _ in 0..1_000 {
                increment(&memory);
            }
        }
        "write until killed" => {
            for counter in 0_u64.. {
                // A value of some size, so that a kill can fall into the middle of it.
                let value = (counter, "x".repeat(20_000));
                memory
                    .save("counter", &to_raw_value(&value).unwrap(), None, "helper")
                    .unwrap();
                memory
                    .save(
                        &format!("new {counter}"),
                        &to_raw_value(&counter).unwrap(),
                        None,
                        "helper",
                    )
                    .unwrap();
                acknowledge(&counter.to_string());
            }
        }
        "save too much" => {
            let error = memory
                .save(
                    "k",
                    &to_raw_value(&"x".repeat(100_000)).unwrap(),
                    None,
                    "helper",
                )
                .unwrap_err();
            acknowledge(&format!("{}: {error}", error.code()));
        }
        other => panic!("unknown task {other}"),
    }
}

#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn acknowledge(fact: &str) {
    // The test harness writes to the same line.
    println!("\nack {fact}");
}

fn increment(memory: &Memory) {
    loop {
        let (value, version) = match memory.load("counter").unwrap() {
            Some(record) => (
                record.value.get().parse::<u64>().unwrap(),
                Some(record.info.version),
            ),
            None => (0, None),
        };
        let next = to_raw_value(&(value + 1)).unwrap();
        match memory.update("counter", &next, version, "helper").unwrap() {
            UpdateResult::Saved(_) => return,
            UpdateResult::Conflict(_) => {}
        }
    }
}

fn helper_command(task: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "store_memory_processes::helper",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(TASK, task)
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn acknowledged(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("ack ").map(ToOwned::to_owned))
}

#[test]
fn two_processes_incrementing_a_thousand_times_each_make_two_thousand() {
    let home = TempDir::new().unwrap();
    let mut writers: Vec<Child> = (0..2)
        .map(|_| helper_command("increment", home.path()).spawn().unwrap())
        .collect();
    for writer in &mut writers {
        assert!(writer.wait().unwrap().success());
    }
    let memory = Memory::open(home.path(), None, MemoryLimits::default()).unwrap();
    let record = memory.load("counter").unwrap().unwrap();
    assert_eq!((record.value.get(), record.info.version), ("2000", 2000));
}

#[test]
fn a_writer_killed_at_any_moment_loses_nothing_it_acknowledged() {
    let home = TempDir::new().unwrap();
    let mut written = 0;
    for round in 0..50_u64 {
        let mut child = helper_command("write until killed", home.path())
            .spawn()
            .unwrap();
        let mut acknowledgements = acknowledged(&mut child);
        let mut last: u64 = acknowledgements
            .next()
            .expect("the helper writes")
            .parse()
            .unwrap();
        // The moment of the kill is the point here, so it is spread over one write.
        let until = Instant::now() + Duration::from_micros(round * 97 % 4_000);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in acknowledgements {
            last = line.parse().unwrap();
        }

        let memory = Memory::open(home.path(), None, MemoryLimits::default()).unwrap();
        let listing = memory.list().unwrap();
        assert_eq!(listing.damaged, [], "round {round}");
        let (counter, filling): (u64, String) =
            serde_json::from_str(memory.load("counter").unwrap().unwrap().value.get()).unwrap();
        assert!(
            counter >= last,
            "round {round}: {last} was acknowledged, {counter} is there"
        );
        assert_eq!(filling.len(), 20_000);
        for number in 0..=last {
            let key = format!("new {number}");
            assert!(
                memory.delete(&key).unwrap(),
                "round {round}: {key} was acknowledged"
            );
        }
        // At most the key in flight is left over; the count of keys must have survived as well.
        memory.delete(&format!("new {}", last + 1)).unwrap();
        assert_eq!(memory.list().unwrap().items.len(), 1, "round {round}");
        let exact = Memory::open(
            home.path(),
            None,
            MemoryLimits {
                keys_max: 2,
                ..MemoryLimits::default()
            },
        )
        .unwrap();
        exact
            .save("second", &to_raw_value(&1).unwrap(), None, "test")
            .unwrap();
        exact
            .save("third", &to_raw_value(&1).unwrap(), None, "test")
            .unwrap_err();
        exact.delete("second").unwrap();
        written += last + 1;
    }
    assert!(written >= 50);
}

/// A limit on file size stands in for the full disk: writing fails half-way in the same place.
#[cfg(unix)]
#[test]
fn a_write_that_the_disk_refuses_is_a_clear_error_and_keeps_the_old_value() {
    let home = TempDir::new().unwrap();
    let memory = Memory::open(home.path(), None, MemoryLimits::default()).unwrap();
    memory
        .save("k", &to_raw_value("old").unwrap(), None, "test")
        .unwrap();

    let helper = helper_command("save too much", home.path());
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""])
        .arg(helper.get_program());
    limited
        .args(helper.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    for (name, value) in helper.get_envs() {
        limited.env(name, value.unwrap());
    }
    let mut child = limited.spawn().unwrap();
    let said: Vec<String> = acknowledged(&mut child).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("memory_io: cannot write `"), "{said:?}");
    assert!(said[0].contains("unchanged"), "{said:?}");

    assert_eq!(memory.load("k").unwrap().unwrap().value.get(), "\"old\"");
    let names: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().contains("tmp")),
        "{names:?}"
    );
}
