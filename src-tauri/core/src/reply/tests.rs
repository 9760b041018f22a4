#![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

const CAP: usize = 20_000;

fn success() -> RunFacts {
    RunFacts::new("00000000000000a1", Status::Success)
}

fn reply(facts: RunFacts) -> Reply {
    build(facts, OutputMode::Text, ReplyLimits::default())
}

fn shown(facts: RunFacts) -> String {
    let reply = reply(facts);
    let fields = serde_json::to_string_pretty(&reply.structured).unwrap();
    format!(
        "{}\n=== isError: {} ===\n{fields}",
        reply.text, reply.is_error
    )
}

/// What the outputs would keep of a long text.
fn captured(text: &str) -> Captured {
    let chars = text.chars().count();
    if chars <= CAP {
        return Captured::from(text);
    }
    let head = crate::output::first_chars(text, CAP);
    let tail = crate::output::last_chars(text, CAP.min(chars - CAP));
    Captured {
        head: head.to_owned(),
        tail: tail.to_owned(),
        omitted: (chars - head.chars().count() - tail.chars().count()) as u64,
    }
}

#[test]
fn print_and_value() {
    let text = |stdout: &str, stderr: &str, result: Option<&str>| {
        reply(RunFacts {
            stdout: stdout.into(),
            stderr: stderr.into(),
            result: result.map(Into::into),
            ..success()
        })
        .text
    };
    assert_eq!(text("x\n", "", None), "x\n");
    assert_eq!(text("", "", Some("2")), "2");
    assert_eq!(text("x\n", "", Some("'y'")), "x\n'y'");
    assert_eq!(
        text("o\n\n\nno newline", "e\n", None),
        "o\n\n\nno newline\nstderr:\ne\n"
    );
    assert_eq!(text("", "e", Some("2")), "stderr:\ne\n2");
    assert_eq!(text(" \r\n\t\0\u{1b}[0m", "", None), " \r\n\t\0\u{1b}[0m");
    assert_eq!(text("", "", None), "(success, no output)");
}

#[test]
fn a_success_with_everything() {
    insta::assert_snapshot!(shown(RunFacts {
        stdout: "2 files\n".into(),
        stderr: "careful\n".into(),
        result: Some("['a', 'b']".into()),
        exit_code: Some(0),
        calls: 3,
        servers: vec!["filesystem".into(), "time".into()],
        notes: vec!["line 3: coroutine 'f' was never awaited".into()],
        warnings: vec!["the memory limit is not enforced".into()],
        ..success()
    }), @r#"
    2 files
    stderr:
    careful
    ['a', 'b']
    note: line 3: coroutine 'f' was never awaited
    warning: the memory limit is not enforced
    === isError: false ===
    {
      "status": "success",
      "summary": "success",
      "exitCode": 0,
      "stdout": "2 files\n",
      "stderr": "careful\n",
      "result": "['a', 'b']",
      "servers": [
        "filesystem",
        "time"
      ],
      "calls": 3,
      "notes": [
        "line 3: coroutine 'f' was never awaited"
      ],
      "warnings": [
        "the memory limit is not enforced"
      ]
    }
    "#);
}

#[test]
fn an_exception() {
    insta::assert_snapshot!(shown(RunFacts {
        status: Status::Error,
        stdout: "before".into(),
        exit_code: Some(1),
        error: Some(ErrorFacts {
            r#type: "ZeroDivisionError".into(),
            message: "division by zero".into(),
            traceback: "Traceback (most recent call last):\n  File \"<run 3>\", line 1, in <module>\n    1/0\n    ~^~\nZeroDivisionError: division by zero\n".into(),
        }),
        ..success()
    }), @r#"
    before
    Traceback (most recent call last):
      File "<run 3>", line 1, in <module>
        1/0
        ~^~
    ZeroDivisionError: division by zero
    exit code: 1
    status: error
    === isError: true ===
    {
      "status": "error",
      "summary": "ZeroDivisionError: division by zero",
      "exitCode": 1,
      "stdout": "before",
      "error": {
        "type": "ZeroDivisionError",
        "message": "division by zero",
        "traceback": "Traceback (most recent call last):\n  File \"<run 3>\", line 1, in <module>\n    1/0\n    ~^~\nZeroDivisionError: division by zero\n"
      }
    }
    "#);
}

#[test]
fn a_timeout_that_kept_the_variables() {
    insta::assert_snapshot!(shown(RunFacts {
        status: Status::Timeout,
        stdout: "started\n".into(),
        timeout_seconds: 3,
        ..success()
    }), @r#"
    started
    status: timeout (timed out after 3 s; variables are kept)
    === isError: true ===
    {
      "status": "timeout",
      "summary": "timed out after 3 s; variables are kept",
      "stdout": "started\n",
      "timeoutSeconds": 3
    }
    "#);
}

#[test]
fn other_ends() {
    let ended = |status, exit_code, variables_lost, error: Option<(&str, &str)>| {
        let error = error.map(|(name, message)| ErrorFacts {
            r#type: name.into(),
            message: message.into(),
            traceback: String::new(),
        });
        let reply = reply(RunFacts {
            status,
            exit_code,
            variables_lost,
            error,
            timeout_seconds: 30,
            ..success()
        });
        assert!(reply.is_error);
        format!("{}\n  summary: {}", reply.text, reply.structured["summary"])
    };
    insta::assert_snapshot!([
        ended(Status::Error, Some(3), false, None),
        ended(Status::Error, Some(139), true, Some(("", "Python ended by itself"))),
        ended(Status::Error, None, false, Some(("image_missing", "image `x` is not available: no such image"))),
        ended(Status::Timeout, None, true, None),
        ended(Status::Cancelled, None, false, None),
        ended(Status::OutOfMemory, Some(137), true, None),
        ended(Status::ValidationError, None, false, Some(("", "`code` is blank"))),
    ].join("\n--\n"), @r#"
    exit code: 3
    status: error (exited with code 3)
      summary: "exited with code 3"
    --
    Python ended by itself
    exit code: 139
    status: error (the interpreter was ended and its variables are gone)
      summary: "Python ended by itself; the interpreter was ended and its variables are gone"
    --
    image_missing: image `x` is not available: no such image
    status: error
      summary: "image_missing: image `x` is not available: no such image"
    --
    status: timeout (timed out after 30 s; the interpreter was ended and its variables are gone)
      summary: "timed out after 30 s; the interpreter was ended and its variables are gone"
    --
    status: cancelled (ended by the client; variables are kept)
      summary: "ended by the client; variables are kept"
    --
    exit code: 137
    status: out_of_memory (the memory limit was reached; the interpreter was ended and its variables are gone)
      summary: "the memory limit was reached; the interpreter was ended and its variables are gone"
    --
    `code` is blank
    status: validation_error
      summary: "`code` is blank"
    "#);
}

#[test]
fn fifty_megabytes_show_both_ends_and_the_way_to_the_rest() {
    let facts = RunFacts {
        stdout: Captured {
            head: "A".repeat(CAP),
            tail: format!("{}LAST\n", "Z".repeat(CAP - 5)),
            omitted: 50_000_000 - 2 * CAP as u64,
        },
        status: Status::Error,
        error: Some(ErrorFacts {
            r#type: "E".into(),
            message: "m".into(),
            traceback: "Traceback\nE: m".into(),
        }),
        ..success()
    };
    let reply = reply(facts);
    assert!(reply.text.chars().count() <= CAP && reply.text.chars().count() > CAP - 100);
    assert!(
        reply
            .text
            .ends_with("ZLAST\nTraceback\nE: m\nstatus: error")
    );
    let notice = reply.text.lines().nth(1).unwrap();
    assert_eq!(
        notice,
        "[... 49,980,139 characters left out; runtime.output(\"00000000000000a1\", 9945, 49990084) returns them ...]"
    );
    let stdout = reply.structured["stdout"].as_str().unwrap();
    assert!(stdout.starts_with('A') && stdout.ends_with("LAST\n"));
    assert!(serde_json::to_string(&reply.structured).unwrap().len() <= CAP);
}

#[test]
fn what_the_notice_names_is_exactly_what_is_missing() {
    let numbers = |ending: &str| {
        (0..9_000)
            .map(|n| n.to_string() + ending)
            .collect::<String>()
    };
    let (stdout, stderr, result) = (numbers("★\n"), numbers(" e"), numbers(","));
    let reply = reply(RunFacts {
        stdout: captured(&stdout),
        stderr: captured(&stderr),
        result: Some(result.clone()),
        ..success()
    });
    let whole: Vec<char> = format!("{stdout}{}{stderr}{}", reply.between, reply.after)
        .chars()
        .collect();
    let complete = |shown: &str| {
        let (head, rest) = shown.split_once("\n[... ").unwrap();
        let (notice, tail) = rest.split_once(" ...]\n").unwrap();
        let range = notice
            .split_once("a1\", ")
            .unwrap()
            .1
            .split_once(')')
            .unwrap()
            .0;
        let (from, to) = range.split_once(", ").unwrap();
        let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
        format!("{head}{}{tail}", whole[from..to].iter().collect::<String>())
    };
    assert_eq!(complete(&reply.text), whole.iter().collect::<String>());
    for (field, text) in [
        ("stdout", &stdout),
        ("stderr", &stderr),
        ("result", &result),
    ] {
        assert_eq!(
            &complete(reply.structured[field].as_str().unwrap()),
            text,
            "{field}"
        );
    }
}

#[test]
fn an_image_that_does_not_fit_becomes_a_note() {
    let image = |bytes| Image {
        mime_type: "image/png".into(),
        data: Bytes::from(vec![0; bytes]),
    };
    let facts = RunFacts {
        images: vec![image(10), image(2_000_000), image(20)],
        ..success()
    };
    let reply = reply(facts);
    assert_eq!(
        reply
            .images
            .iter()
            .map(|image| image.data.len())
            .collect::<Vec<_>>(),
        [10, 20]
    );
    insta::assert_snapshot!(reply.text, @"note: image 2 (image/png, 2,000,000 bytes) was left out: the images of one reply hold at most 786,432 bytes; show it smaller, for example with a lower dpi");
    assert_eq!(reply.structured["notes"].as_array().unwrap().len(), 1);
    let silent = build(
        RunFacts {
            images: vec![image(10)],
            ..success()
        },
        OutputMode::Text,
        ReplyLimits::default(),
    );
    assert_eq!(
        (silent.text.as_str(), silent.structured["summary"].as_str()),
        ("", Some("success"))
    );
}

#[test]
fn the_fields_as_a_fenced_block() {
    let facts = || RunFacts {
        stdout: "a: 1\nb\n".into(),
        result: Some("2".into()),
        calls: 2,
        servers: vec!["git".into(), "time".into()],
        ..success()
    };
    insta::assert_snapshot!(build(facts(), OutputMode::Toon, ReplyLimits::default()).text, @r#"
    ```toon
    status: success
    summary: success
    stdout: "a: 1\nb\n"
    result: "2"
    servers[2]: git,time
    calls: 2
    ```
    "#);
    insta::assert_snapshot!(build(facts(), OutputMode::Json, ReplyLimits::default()).text, @r#"
    ```json
    {"status":"success","summary":"success","stdout":"a: 1\nb\n","result":"2","servers":["git","time"],"calls":2}
    ```
    "#);
}

#[test]
fn an_error_whose_end_has_a_digit_more_than_its_message_fits_too() {
    // The message ends before character 100,000 of the whole text, the error behind it.
    let facts = RunFacts {
        status: Status::Error,
        stdout: captured(&"x".repeat(3_339)),
        stderr: captured(&"x".repeat(7_820)),
        result: Some("x".repeat(1_467)),
        error: Some(ErrorFacts {
            r#type: "x".repeat(8_780),
            message: "x".repeat(19_210),
            traceback: "x".repeat(13_740),
        }),
        notes: vec!["n".repeat(500); 90],
        servers: vec!["s".repeat(300); 90],
        calls: 1,
        ..success()
    };
    for cap in 14_000..14_200 {
        let limits = ReplyLimits {
            chars_max: cap,
            ..ReplyLimits::default()
        };
        let text = build(facts.clone(), OutputMode::Json, limits).text;
        assert!(
            text.chars().count() <= cap,
            "{} > {cap}",
            text.chars().count()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_path_leads_over_the_cap(
        unit in prop::sample::select(vec!["x", "\n", "\"", "\0", "★", "🎉", "ab: c\n", "\\"]),
        sizes in prop::array::uniform6(0_usize..60_000),
        notes in 0_usize..200,
        cap in 2_000_usize..30_000,
        mode in prop::sample::select(vec![OutputMode::Text, OutputMode::Toon, OutputMode::Json]),
    ) {
        let long = |at: usize| unit.repeat(sizes[at] / unit.len());
        let facts = RunFacts {
            status: Status::Error,
            stdout: captured(&long(0)),
            stderr: captured(&long(1)),
            result: Some(long(2)),
            error: Some(ErrorFacts { r#type: long(3), message: long(4), traceback: long(5) }),
            notes: vec!["n".repeat(500); notes],
            servers: vec!["s".repeat(300); notes],
            calls: 1,
            ..success()
        };
        let reply = build(facts, mode, ReplyLimits { chars_max: cap, ..ReplyLimits::default() });
        prop_assert!(reply.text.chars().count() <= cap, "text {} > {cap}", reply.text.chars().count());
        let json = serde_json::to_string(&reply.structured).unwrap().chars().count();
        prop_assert!(json <= cap, "fields {json} > {cap}");
    }
}
