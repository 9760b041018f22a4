//! Contract 1: the MCP face.

use std::time::{Duration, Instant};

use runbridge_testkit::{Era, McpClient, RequestError, TempHome};
use serde_json::json;

use crate::{bridge, engine, on, with_stub};

const CAPABILITIES: &str = "resource://mcp-server-code-execution-mode/capabilities";

#[test]
fn it_greets_with_its_name_and_two_capabilities() {
    let bridge = bridge();
    let greeting = bridge.greeting();
    assert_eq!(greeting["serverInfo"]["name"], "runbridge");
    assert!(greeting["capabilities"]["tools"].is_object(), "{greeting}");
    assert!(
        greeting["capabilities"]["resources"].is_object(),
        "{greeting}"
    );
    assert!(
        greeting["capabilities"].get("prompts").is_none(),
        "{greeting}"
    );
    bridge.close();
}

#[test]
fn there_is_one_tool_with_four_arguments() {
    let bridge = bridge();
    let list = bridge.client().request("tools/list", json!({})).unwrap();
    let tools = list["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1, "{list}");
    assert_eq!(tools[0]["name"], "run_python");
    let schema = &tools[0]["inputSchema"];
    let mut names: Vec<_> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    names.sort();
    assert_eq!(names, ["code", "servers", "session", "timeout"]);
    assert_eq!(schema["required"], json!(["code"]));
    assert_eq!(schema["properties"]["code"]["type"], "string");
    assert_eq!(schema["properties"]["servers"]["type"], "array");
    assert_eq!(schema["properties"]["timeout"]["type"], "integer");
    assert_eq!(schema["properties"]["session"]["type"], "string");
    bridge.close();
}

#[test]
fn the_settings_say_how_much_is_logged_and_a_variable_overrides_them() {
    let settings = json!({ "version": 1, "log_level": "trace" });
    let chatty = on(engine())
        .settings(settings.clone())
        .start(TempHome::new());
    let silenced = on(engine())
        .settings(settings)
        .variable("MCP_BRIDGE_LOG_LEVEL", "error")
        .start(TempHome::new());
    let told = |bridge: &runbridge_testkit::Bridge| bridge.client().stderr().contains("TRACE");
    assert_eq!((told(&chatty), told(&silenced)), (true, false));
    chatty.close();
    silenced.close();
}

#[test]
fn blank_code_is_a_validation_error() {
    let bridge = bridge();
    for code in ["", "  \n\t"] {
        let reply = bridge.run(code);
        assert_eq!(reply.status(), "validation_error", "{}", reply.result);
        assert!(reply.is_error());
        assert!(reply.text().contains("code"), "{}", reply.text());
    }
    bridge.close();
}

#[test]
fn arguments_of_a_wrong_kind_are_refused_by_name() {
    let bridge = bridge();
    for (arguments, name) in [
        (json!({}), "code"),
        (json!({ "code": 5 }), "code"),
        (json!({ "code": "1", "timeout": "soon" }), "timeout"),
        (json!({ "code": "1", "servers": "stub" }), "servers"),
    ] {
        match bridge.client().send_run(arguments.clone()).reply() {
            Ok(reply) => {
                assert_eq!(
                    reply.status(),
                    "validation_error",
                    "{arguments}: {}",
                    reply.result
                );
                assert!(reply.is_error());
                assert!(reply.text().contains(name), "{arguments}: {}", reply.text());
            }
            Err(RequestError::Rpc { code, message, .. }) => {
                assert_eq!(code, -32602, "{arguments}: {message}");
                assert!(message.contains(name), "{arguments}: {message}");
            }
            Err(other) => panic!("{arguments}: {other}"),
        }
    }
    bridge.assert_goes_on();
    bridge.close();
}

#[test]
fn a_timeout_outside_its_range_is_a_validation_error_that_names_the_range() {
    let bridge = bridge();
    for timeout in [0, -3, 121, 1_000_000] {
        let reply = bridge.run_with(json!({ "code": "print(1)", "timeout": timeout }));
        assert_eq!(
            reply.status(),
            "validation_error",
            "{timeout}: {}",
            reply.result
        );
        assert!(reply.text().contains("120"), "{timeout}: {}", reply.text());
    }
    bridge.close();
}

#[test]
fn an_unknown_tool_and_an_unknown_method_are_protocol_errors() {
    let bridge = bridge();
    let call = bridge
        .client()
        .request("tools/call", json!({ "name": "run_ruby", "arguments": {} }));
    assert!(
        matches!(
            call,
            Err(RequestError::Rpc {
                code: -32602 | -32601,
                ..
            })
        ),
        "{call:?}"
    );
    let method = bridge.client().request("nonsense/list", json!({}));
    assert!(
        matches!(method, Err(RequestError::Rpc { code: -32601, .. })),
        "{method:?}"
    );
    bridge.close();
}

#[test]
fn a_line_that_is_not_json_does_not_end_the_connection() {
    let bridge = bridge();
    bridge.client().write_line("this is not JSON");
    bridge
        .client()
        .write_line("{\"jsonrpc\":\"2.0\",\"method\":42}");
    bridge.client().write_line("");
    bridge.assert_goes_on();
    bridge.close();
}

#[test]
fn servers_narrows_what_a_run_may_call() {
    let home = TempHome::new();
    let (one, two) = (home.stub(&[]), home.stub(&["--tools", "1"]));
    let bridge = on(engine())
        .server("one", one)
        .server("two", two)
        .start(home);
    let code = "
print(sorted(await runtime.list_servers()))
try:
    print(await runtime.call_tool('two', 'echo', {'text': 'hi'}))
except runtime.MCPError as error:
    print('refused', error.server)
";
    let all = bridge.run(code);
    assert_eq!(all.stdout(), "['one', 'two']\nhi\n", "{}", all.result);
    let narrowed = bridge.run_with(json!({ "code": code, "servers": ["one"] }));
    assert_eq!(
        narrowed.stdout(),
        "['one']\nrefused two\n",
        "{}",
        narrowed.result
    );
    let none =
        bridge.run_with(json!({ "code": "print(await runtime.list_servers())", "servers": [] }));
    assert_eq!(none.stdout(), "[]\n", "{}", none.result);
    let unknown = bridge.run_with(json!({ "code": "1", "servers": ["tow"] }));
    assert_eq!(unknown.status(), "validation_error", "{}", unknown.result);
    assert!(
        unknown.text().contains("tow") && unknown.text().contains("two"),
        "{}",
        unknown.text()
    );
    bridge.close();
}

#[test]
fn a_session_has_its_own_variables() {
    let bridge = bridge();
    bridge.prints("who = 'default'");
    let run =
        |session: &str, code: &str| bridge.run_with(json!({ "code": code, "session": session }));
    assert_eq!(
        run("a", "print('who' in globals())\nwho = 'a'").stdout(),
        "False\n"
    );
    assert_eq!(
        run("b", "print('who' in globals())\nwho = 'b'").stdout(),
        "False\n"
    );
    assert_eq!(run("a", "print(who)").stdout(), "a\n");
    assert_eq!(bridge.prints("print(who)"), "default\n");
    bridge.close();
}

#[test]
fn the_manual_is_the_one_resource_and_what_python_shows() {
    let bridge = with_stub(engine());
    let list = bridge
        .client()
        .request("resources/list", json!({}))
        .unwrap();
    let resources = list["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 1, "{list}");
    assert_eq!(resources[0]["uri"], CAPABILITIES);
    assert_eq!(resources[0]["mimeType"], "text/markdown");
    let read = bridge
        .client()
        .request("resources/read", json!({ "uri": CAPABILITIES }))
        .unwrap();
    assert_eq!(read["contents"][0]["mimeType"], "text/markdown");
    let manual = read["contents"][0]["text"].as_str().unwrap();
    assert!(manual.len() > 500, "{manual}");
    let shown = bridge.json("import json\nprint(json.dumps(runtime.capability_summary()))");
    assert_eq!(shown, manual);
    let absent = bridge
        .client()
        .request("resources/read", json!({ "uri": "resource://absent" }));
    assert!(
        matches!(absent, Err(RequestError::Rpc { .. })),
        "{absent:?}"
    );
    bridge.close();
}

#[test]
fn the_greeting_waits_for_no_engine_and_no_server() {
    // An engine that accepts and never says a word, and a server that does the same.
    let home = TempHome::new();
    let _silent = std::os::unix::net::UnixListener::bind(home.join("e.sock")).unwrap();
    let hanging = home.stub(&["--hang"]);
    home.write_servers(&[("hanging".to_owned(), hanging)].into_iter().collect());
    let variables = [
        ("MCP_BRIDGE_RUNTIME".to_owned(), "docker".to_owned()),
        (
            "DOCKER_HOST".to_owned(),
            format!("unix://{}", home.join("e.sock").display()),
        ),
        (
            "RUNBRIDGE_HOME".to_owned(),
            home.join(".runbridge").to_string_lossy().into_owned(),
        ),
    ];
    let begun = Instant::now();
    let (client, _) = McpClient::start(
        crate::SIDECAR.as_ref(),
        &[],
        home.path(),
        &variables,
        Era::Initialize("2025-11-25"),
    )
    .unwrap();
    client.request("tools/list", json!({})).unwrap();
    // Generous: debug builds on a busy machine. An engine's own deadline is longer.
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert!(!client.close().killed);
}
