//! Contract 2: the reply.

use serde_json::{Value, json};

use crate::{bridge_on, on, on_both_kinds};
use runbridge_testkit::{Engine, Reply, TempHome};

on_both_kinds!(
    the_text_has_stdout_then_stderr_then_the_value,
    output_keeps_every_byte_of_blank_lines_and_line_ends,
    fields_with_nothing_in_them_are_left_out,
    the_fields_tell_of_calls_servers_and_the_timeout,
    an_uncaught_exception_is_an_error_with_the_users_lines_alone,
    exit_codes_are_told_when_they_are_not_zero,
    toon_mode_gives_a_fenced_block_of_the_same_fields,
    a_long_output_keeps_head_and_tail_and_the_rest_can_be_read,
    the_cap_holds_whatever_path_the_bytes_take,
    the_cap_is_a_setting,
    control_characters_and_lone_surrogates_arrive,
    images_follow_the_text,
);

const CAP: usize = 20_000;

/// Where `part` is in the text; the test ends if it is not there.
#[track_caller]
fn at(text: &str, part: &str) -> usize {
    text.find(part)
        .unwrap_or_else(|| panic!("{part:?} is not in {text:?}"))
}

fn the_text_has_stdout_then_stderr_then_the_value(engine: Engine) {
    let bridge = bridge_on(engine);
    let reply = bridge
        .run("import sys\nprint('to err', file=sys.stderr)\nprint('to out')\n['the', 'value']");
    let text = reply.text();
    assert!(text.starts_with("to out\n"), "{text}");
    assert!(at(&text, "stderr:") < at(&text, "to err"), "{text}");
    assert!(
        at(&text, "to err") < at(&text, "['the', 'value']"),
        "{text}"
    );
    assert_eq!(reply.stdout(), "to out\n");
    assert_eq!(reply.str("stderr"), "to err\n");
    assert_eq!(reply.str("result"), "['the', 'value']");
    bridge.close();
}

fn output_keeps_every_byte_of_blank_lines_and_line_ends(engine: Engine) {
    let bridge = bridge_on(engine);
    let reply = bridge.run("print('a\\n\\n  b\\t\\r\\nc\\n\\n', end='')");
    assert_eq!(reply.stdout(), "a\n\n  b\t\r\nc\n\n");
    assert!(
        reply.text().starts_with("a\n\n  b\t\r\nc\n\n"),
        "{:?}",
        reply.text()
    );
    bridge.close();
}

fn fields_with_nothing_in_them_are_left_out(engine: Engine) {
    let bridge = bridge_on(engine);
    let reply = bridge.run("x = 1");
    let fields = reply.result["structuredContent"].as_object().unwrap();
    assert_eq!(fields["status"], "success");
    for name in ["stdout", "stderr", "result", "error", "servers", "calls"] {
        assert!(!fields.contains_key(name), "{name} of {fields:?}");
    }
    assert!(!fields["summary"].as_str().unwrap().is_empty());
    let nothing = bridge.run("None");
    assert_eq!(nothing.field("result"), &Value::Null);
    bridge.close();
}

fn the_fields_tell_of_calls_servers_and_the_timeout(engine: Engine) {
    let bridge = crate::with_stub(engine);
    let code = "for text in 'ab':\n    print(await mcp_stub.echo(text=text))";
    let reply = bridge.run(code);
    assert_eq!(reply.stdout(), "a\nb\n");
    assert_eq!(reply.field("servers"), &json!(["stub"]));
    let calls = reply.field("calls");
    assert!(
        calls == &json!(2) || calls.as_array().is_some_and(|calls| calls.len() == 2),
        "{calls}"
    );
    let late = bridge.ends("import time\ntime.sleep(60)", 1, "timeout");
    assert_eq!(late.field("timeoutSeconds"), 1);
    bridge.close();
}

fn an_uncaught_exception_is_an_error_with_the_users_lines_alone(engine: Engine) {
    let bridge = bridge_on(engine);
    let reply = bridge.run("print('before')\ndef divide(n):\n    return 1 / n\n\ndivide(0)");
    assert_eq!(reply.status(), "error");
    assert!(reply.is_error());
    assert_eq!(reply.stdout(), "before\n");
    let text = reply.text();
    assert!(at(&text, "before") < at(&text, "ZeroDivisionError: division by zero"));
    for part in ["line 5", "divide(0)", "line 3", "return 1 / n"] {
        at(&text, part);
    }
    for ours in ["runner.py", "runtime.py", "boot.py", "asyncio/"] {
        assert!(!text.contains(ours), "{ours} is in {text}");
    }
    assert!(
        reply
            .field("error")
            .to_string()
            .contains("ZeroDivisionError"),
        "{}",
        reply.result
    );
    bridge.close();
}

fn exit_codes_are_told_when_they_are_not_zero(engine: Engine) {
    let bridge = bridge_on(engine);
    let zero = bridge.run("import sys\nprint('bye')\nsys.exit()");
    assert_eq!(zero.status(), "success", "{}", zero.result);
    let three = bridge.run("import sys\nprint('before')\nsys.exit(3)");
    assert_eq!(
        (three.status(), three.field("exitCode")),
        ("error", &json!(3)),
        "{}",
        three.result
    );
    assert!(
        three.text().contains('3') && three.text().starts_with("before\n"),
        "{}",
        three.text()
    );
    bridge.close();
}

fn toon_mode_gives_a_fenced_block_of_the_same_fields(engine: Engine) {
    let bridge = on(engine)
        .variable("MCP_BRIDGE_OUTPUT_MODE", "toon")
        .start(TempHome::new());
    let reply = bridge.run("print('in toon')\n41 + 1");
    let text = reply.text();
    assert!(text.starts_with("```toon\n"), "{text}");
    assert!(text.trim_end().ends_with("```"), "{text}");
    for part in ["status: success", "in toon", "42"] {
        at(&text, part);
    }
    bridge.close();
}

/// The id in `runtime.output('…', start, end)`, as the reply tells the model.
fn run_id(reply: &Reply) -> String {
    let text = reply.text();
    let rest = &text[at(&text, "runtime.output(") + "runtime.output(".len()..];
    let quoted = rest.trim_start();
    let quote = quoted.chars().next().unwrap();
    assert!(quote == '\'' || quote == '"', "{rest}");
    quoted[1..].split(quote).next().unwrap().to_owned()
}

#[track_caller]
fn assert_within_cap(reply: &Reply) {
    let text = reply.text().chars().count();
    assert!(text <= CAP, "text of {text} characters");
    let fields: usize = reply.result["structuredContent"]
        .as_object()
        .unwrap()
        .values()
        .map(size)
        .sum();
    assert!(fields <= CAP, "fields of {fields} characters");
}

/// Characters of all texts inside a value.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

fn a_long_output_keeps_head_and_tail_and_the_rest_can_be_read(engine: Engine) {
    let bridge = bridge_on(engine);
    let reply = bridge.run("print('HEAD' + 'x' * 100_000 + 'TAIL')");
    assert_within_cap(&reply);
    let text = reply.text();
    assert!(
        text.starts_with("HEADxxx") && text.contains("xxxTAIL"),
        "{text}"
    );
    let id = run_id(&reply);
    let rest = bridge.prints(&format!(
        "whole = ''\nfor start in range(0, 100_009, 20_000):\n    whole += runtime.output({id:?}, start, start + 20_000)\n\
         print(len(whole), whole == 'HEAD' + 'x' * 100_000 + 'TAIL\\n')"
    ));
    assert_eq!(rest, "100009 True\n");
    bridge.close();
}

fn the_cap_holds_whatever_path_the_bytes_take(engine: Engine) {
    // The built-in sandbox has no processes.
    let processes = !engine.is_builtin();
    let bridge = bridge_on(engine);
    let of_a_process =
        "import subprocess\nsubprocess.run(['python3', '-c', 'print(\"c\" * 100_000)'])";
    for code in [
        "import sys\nsys.stderr.write('e' * 100_000)",
        "'r' * 100_000",
        "raise ValueError('v' * 100_000)",
        "import os\nos.write(1, b'w' * 100_000)",
        "import sys\nprint('o' * 15_000)\nsys.stderr.write('e' * 15_000)\n'r' * 15_000",
        "import sys\nsys.exit('m' * 100_000)",
        "print('\\u4f60' * 100_000)",
    ]
    .into_iter()
    .chain(processes.then_some(of_a_process))
    {
        let reply = bridge.run(code);
        assert_within_cap(&reply);
        assert!(
            reply.text().chars().count() > 1_000,
            "{code}: {}",
            reply.text()
        );
    }
    bridge.close();
}

fn the_cap_is_a_setting(engine: Engine) {
    let home = TempHome::new();
    let bridge = on(engine)
        .settings(json!({ "version": 1, "limits": { "reply_chars_max": 2_000 } }))
        .start(home);
    let reply = bridge.run("print('x' * 10_000)");
    let count = reply.text().chars().count();
    assert!((1_000..=2_000).contains(&count), "{count}");
    bridge.close();
}

fn control_characters_and_lone_surrogates_arrive(engine: Engine) {
    let bridge = bridge_on(engine);
    assert_eq!(
        bridge.prints("print('a\\x00b\\x1b[31mred\\x1b[0m\\rcr')"),
        "a\0b\u{1b}[31mred\u{1b}[0m\rcr\n"
    );
    assert_eq!(bridge.prints("print('\\ud800 end')"), "\\ud800 end\n");
    assert_eq!(
        bridge.prints("print('\u{1f600} \u{4f60}')"),
        "\u{1f600} \u{4f60}\n"
    );
    bridge.close();
}

fn images_follow_the_text(engine: Engine) {
    let bridge = crate::with_stub(engine);
    let reply = bridge
        .run("print('first')\nblocks = await mcp_stub.image()\ndisplay(blocks[0])\nprint('last')");
    assert_eq!(reply.status(), "success", "{}", reply.result);
    let content = reply.result["content"].as_array().unwrap();
    assert_eq!(content[0]["type"], "text");
    assert_eq!(reply.images().len(), 1, "{}", reply.result);
    assert_eq!(content.last().unwrap()["mimeType"], "image/png");
    assert_eq!(reply.stdout(), "first\nlast\n");
    bridge.close();
}
