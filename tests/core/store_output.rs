//! Output of runs: both ends for the reply, the whole text for later reading, within bounds.

use std::path::Path;
use std::sync::Arc;

use runbridge_core::output::{
    Captured, ConnectionOutputs, OutputError, OutputLimits, Outputs, run_name, run_of_name,
};
use runbridge_core::redact::Redactor;
use runbridge_core::reply::{self, OutputMode, ReplyLimits, RunFacts, Status};
use runbridge_core::secrets::Secret;
use runbridge_sandbox::{OutputSink, Stream};
use tempfile::TempDir;

const SMALL: OutputLimits = OutputLimits {
    edge_chars_max: 10,
    memory_bytes_max: 100,
    run_bytes_max: 10_000,
    all_bytes_max: 20_000,
    runs_max: 3,
};

fn nothing_secret() -> Arc<Redactor> {
    Arc::default()
}

fn print(outputs: &ConnectionOutputs, run: u64, text: &str) {
    outputs.sink().write(run, Stream::Stdout, text.as_bytes());
}

fn read(outputs: &ConnectionOutputs, run: u64, start: u64, end: u64) -> String {
    outputs.read(run, start, end).unwrap().text
}

fn files_in(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn short_output_is_whole_and_needs_no_file() {
    let home = TempDir::new().unwrap();
    let folder = home.path().join("output");
    let outputs = Outputs::new(&folder, OutputLimits::default()).connection();
    outputs.begin(1, &nothing_secret());
    let mut sink = outputs.sink();
    sink.write(1, Stream::Stdout, b"out 1\n\n");
    sink.write(1, Stream::Stderr, b"err\r\n");
    sink.write(1, Stream::Stdout, b"out 2");
    let captures = outputs.finish(1);
    assert_eq!(captures.stdout, Captured::from("out 1\n\nout 2"));
    assert_eq!(captures.stderr, Captured::from("err\r\n"));
    outputs.seal(1, "\nstderr:\n", "42");
    assert_eq!(
        read(&outputs, 1, 0, u64::MAX),
        "out 1\n\nout 2\nstderr:\nerr\r\n42"
    );
    assert!(!folder.exists());
}

#[test]
fn long_output_keeps_both_ends_and_every_character_can_be_read() {
    let home = TempDir::new().unwrap();
    let outputs = Outputs::new(home.path(), SMALL).connection();
    outputs.begin(7, &nothing_secret());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    for number in 0..300 {
        let (out, err) = (format!("{number}★\n"), format!("e🎉{number} "));
        let mut sink = outputs.sink();
        // Borders inside characters.
        for byte in out.bytes() {
            sink.write(7, Stream::Stdout, &[byte]);
        }
        sink.write(7, Stream::Stderr, err.as_bytes());
        stdout += &out;
        stderr += &err;
    }
    let captures = outputs.finish(7);
    for (captured, whole) in [(captures.stdout, &stdout), (captures.stderr, &stderr)] {
        let chars: Vec<char> = whole.chars().collect();
        assert_eq!(captured.head, chars[..10].iter().collect::<String>());
        assert_eq!(
            captured.tail,
            chars[chars.len() - 10..].iter().collect::<String>()
        );
        assert_eq!(captured.omitted, chars.len() as u64 - 20);
    }
    let after = "value ř".repeat(50);
    outputs.seal(7, "stderr:\n", &after);
    let whole: Vec<char> = format!("{stdout}stderr:\n{stderr}{after}")
        .chars()
        .collect();
    let total = whole.len() as u64;
    for (start, end) in [
        (0, 1),
        (0, total),
        (5, 5),
        (90, 400),
        (1_100, 1_300),
        (total - 3, total + 100),
        (total, u64::MAX),
        (9, 2),
    ] {
        let part: String = whole
            .iter()
            .skip(start as usize)
            .take(end.saturating_sub(start) as usize)
            .collect();
        let read = outputs.read(7, start, end).unwrap();
        assert_eq!((read.text, read.chars), (part, total), "{start}..{end}");
    }
    assert_eq!(
        files_in(home.path()),
        0,
        "the file has no name that a crash could leave"
    );
}

#[test]
fn output_after_the_end_is_kept_behind_everything_and_without_a_run_dropped() {
    let home = TempDir::new().unwrap();
    let outputs = Outputs::new(home.path(), SMALL).connection();
    outputs.begin(1, &nothing_secret());
    print(&outputs, 1, "early ");
    outputs.finish(1);
    outputs.seal(1, "", "value ");
    outputs.begin(2, &nothing_secret());
    print(&outputs, 1, "late");
    print(&outputs, 2, "other");
    print(&outputs, 99, "nobody's");
    assert_eq!(read(&outputs, 1, 0, 100), "early value late");
    assert_eq!(read(&outputs, 2, 0, 100), "other");
    assert!(matches!(
        outputs.read(99, 0, 1),
        Err(OutputError::Unknown { .. })
    ));
}

#[test]
fn secrets_are_gone_before_anything_is_kept() {
    let home = TempDir::new().unwrap();
    let outputs = Outputs::new(home.path(), SMALL).connection();
    outputs.begin(
        1,
        &Arc::new(Redactor::new(&[Secret::new("hunter2-hunter2")])),
    );
    for byte in b"token hunter2-hunter2 and hunter2-hunte" {
        outputs.sink().write(1, Stream::Stdout, &[*byte]);
    }
    outputs.finish(1);
    assert_eq!(read(&outputs, 1, 0, 100), "token *** and hunter2-hunte");
}

#[test]
fn a_connection_reads_only_its_own_runs() {
    let home = TempDir::new().unwrap();
    let all = Outputs::new(home.path(), SMALL);
    let (mine, other) = (all.connection(), all.connection());
    mine.begin(1, &nothing_secret());
    print(&mine, 1, "mine");
    print(&other, 1, "forged");
    assert!(matches!(
        other.read(1, 0, 9),
        Err(OutputError::Unknown { .. })
    ));
    assert_eq!(read(&mine, 1, 0, 9), "mine");
}

#[test]
fn a_connection_that_goes_leaves_its_room_to_the_others() {
    let home = TempDir::new().unwrap();
    let all = Outputs::new(home.path(), SMALL);
    let (mine, other) = (all.connection(), all.connection());
    for run in 1..=2 {
        mine.begin(run, &nothing_secret());
        print(&mine, run, &"x".repeat(9_000));
        other.begin(run, &nothing_secret());
    }
    print(&other, 1, &"x".repeat(9_000));
    assert!(
        matches!(other.read(1, 0, 9), Err(OutputError::NotKept { .. })),
        "no room"
    );
    drop(mine);
    print(&other, 2, &"x".repeat(9_000));
    assert_eq!(read(&other, 2, 8_999, 9_999), "x");
}

#[test]
fn a_run_that_still_prints_is_not_the_one_to_go() {
    let home = TempDir::new().unwrap();
    let outputs = Outputs::new(home.path(), SMALL).connection();
    for run in 1..=4 {
        outputs.begin(run, &nothing_secret());
        print(&outputs, run, "x");
        if run != 1 {
            outputs.finish(run);
        }
    }
    assert_eq!(read(&outputs, 1, 0, 9), "x");
    assert!(outputs.read(2, 0, 9).is_err());
}

#[test]
fn the_oldest_runs_go_when_there_are_too_many_or_too_large_ones() {
    let home = TempDir::new().unwrap();
    let outputs = Outputs::new(home.path(), SMALL).connection();
    let large = "x".repeat(9_000);
    for run in 1..=3 {
        outputs.begin(run, &nothing_secret());
        print(&outputs, run, if run == 3 { "small" } else { &large });
        outputs.finish(run);
    }
    outputs.begin(4, &nothing_secret());
    assert!(outputs.read(1, 0, 1).is_err(), "three runs are kept");
    assert!(outputs.read(2, 0, 1).is_ok());

    print(&outputs, 4, &large);
    outputs.finish(4);
    outputs.begin(5, &nothing_secret());
    outputs.sink().write(5, Stream::Stderr, large.as_bytes());
    assert!(outputs.read(2, 0, 1).is_err(), "its bytes were needed");
    assert_eq!(read(&outputs, 5, 8_999, 9_999), "x");
    assert_eq!(read(&outputs, 4, 8_999, 9_999), "x");
}

#[test]
fn what_one_run_may_not_keep_is_named_and_its_end_is_still_known() {
    let home = TempDir::new().unwrap();
    let outputs = Outputs::new(home.path(), SMALL).connection();
    outputs.begin(1, &nothing_secret());
    print(&outputs, 1, &"x".repeat(9_950));
    print(&outputs, 1, &"y".repeat(200));
    print(&outputs, 1, "and LAST");
    let captures = outputs.finish(1);
    assert_eq!(
        (captures.stdout.tail.as_str(), captures.stdout.omitted),
        ("yyand LAST", 10_138)
    );
    outputs.seal(1, "", "value");
    assert_eq!(read(&outputs, 1, 9_940, 9_950), "x".repeat(10));
    assert!(matches!(
        outputs.read(1, 9_940, 9_951),
        Err(OutputError::NotKept { from: 9_950, .. })
    ));
    assert_eq!(read(&outputs, 1, 10_158, 99_999), "value");
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_the_later_reading() {
    let home = TempDir::new().unwrap();
    let blocked = home.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let outputs = Outputs::new(&blocked.join("output"), SMALL).connection();
    outputs.begin(1, &nothing_secret());
    print(&outputs, 1, &"x".repeat(1_000));
    assert_eq!(outputs.finish(1).stdout.omitted, 980);
    let error = outputs.read(1, 0, 10).unwrap_err();
    assert!(error.to_string().contains("writing to"), "{error}");
}

#[test]
fn fifty_megabytes_are_kept_in_little_memory() {
    let home = TempDir::new().unwrap();
    let limits = OutputLimits::default();
    let outputs = Outputs::new(home.path(), limits).connection();
    outputs.begin(1, &nothing_secret());
    let before = peak_memory_bytes();
    let mut sink = outputs.sink();
    let line = "a line with a ★ in it\n".repeat(2_500);
    let line_chars = line.chars().count() as u64;
    for _ in 0..870 {
        sink.write(1, Stream::Stdout, line.as_bytes());
    }
    sink.write(1, Stream::Stdout, b"LAST");
    let captured = outputs.finish(1).stdout;
    let grown = peak_memory_bytes() - before;
    assert!(captured.tail.ends_with("LAST"));
    assert_eq!(captured.omitted, 870 * line_chars + 4 - 40_000);
    assert_eq!(
        read(&outputs, 1, 800 * line_chars, 800 * line_chars + 22),
        "a line with a ★ in it\n"
    );
    assert!(grown < 8 << 20, "{grown} bytes");
    assert!(matches!(
        outputs.read(1, 0, 5_000_000),
        Err(OutputError::TooMuch { chars: 5_000_000 })
    ));
}

/// The largest memory this process ever had; 0 where the system does not tell this way.
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

#[test]
fn the_name_of_a_run_leads_back_to_it() {
    for run in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
        assert_eq!(run_of_name(&run_name(run)), Some(run));
    }
    for name in [
        "",
        "1",
        "zzzzzzzzzzzzzzzz",
        "+123456789abcdef",
        "00000000000000001",
    ] {
        assert_eq!(run_of_name(name), None, "{name}");
    }
}

#[test]
fn a_cut_reply_and_what_it_says_to_read_are_together_the_whole_text() {
    let home = TempDir::new().unwrap();
    let outputs = Outputs::new(home.path(), OutputLimits::default()).connection();
    outputs.begin(0xa1, &nothing_secret());
    let stdout = "a ★ line\n".repeat(100_000);
    print(&outputs, 0xa1, &stdout);
    outputs.sink().write(0xa1, Stream::Stderr, b"careful");
    let captures = outputs.finish(0xa1);
    let facts = RunFacts {
        stdout: captures.stdout,
        stderr: captures.stderr,
        result: Some("[0, 1]".to_owned()),
        ..RunFacts::new(run_name(0xa1), Status::Success)
    };
    let reply = reply::build(facts, OutputMode::Text, ReplyLimits::default());
    outputs.seal(0xa1, &reply.between, &reply.after);

    let whole = format!("{stdout}stderr:\ncareful\n[0, 1]");
    assert_eq!(read(&outputs, 0xa1, 0, u64::MAX), whole);
    let (head, rest) = reply.text.split_once("\n[... ").unwrap();
    let (notice, tail) = rest.split_once(" ...]\n").unwrap();
    let asked = notice
        .split_once("runtime.output(\"00000000000000a1\", ")
        .unwrap()
        .1;
    let (from, to) = asked.split_once(')').unwrap().0.split_once(", ").unwrap();
    let middle = read(&outputs, 0xa1, from.parse().unwrap(), to.parse().unwrap());
    assert!(format!("{head}{middle}{tail}") == whole);
}
