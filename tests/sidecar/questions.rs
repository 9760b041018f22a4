//! Questions of servers reach the user through the client, in both generations of the protocol.

use std::time::Duration;

use runbridge_testkit::{Era, McpClient, TempHome};
use serde_json::{Value, json};

use crate::{engine, on};

const CODE: &str = "print((await mcp_stub.ask_name()))";

/// A bridge whose one server asks, and a second client of it that offers this.
fn client(era: Era, offers: Value) -> (runbridge_testkit::Bridge, McpClient) {
    client_with(json!({ "version": 1 }), era, offers)
}

/// The same with these settings.
fn client_with(settings: Value, era: Era, offers: Value) -> (runbridge_testkit::Bridge, McpClient) {
    let home = TempHome::new();
    let entry = home.stub(&["--asks"]);
    let bridge = on(engine()).settings(settings);
    let bridge = bridge.server("stub", entry).start(home);
    let path = bridge.home().path().to_owned();
    let mut client = McpClient::spawn(bridge.program(), &[], &path, bridge.variables());
    client.offer(offers);
    client.greet(era).unwrap();
    (bridge, client)
}

#[test]
fn a_client_with_a_handshake_is_asked_while_its_call_is_open() {
    let (bridge, client) = client(Era::Initialize("2025-06-18"), json!({ "elicitation": {} }));
    let accepted = json!({ "action": "accept", "content": { "name": "Ada" } });
    client.answer("elicitation/create", accepted);
    let reply = client.run_with(json!({ "code": CODE, "timeout": 60 }));
    assert!(
        reply.stdout().contains(r#""name": "Ada""#),
        "{}",
        reply.result
    );
    let asked = client.asked().remove(0);
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "stub asks: What is your name?");
    client.answer("elicitation/create", json!({ "action": "decline" }));
    let reply = client.run_with(json!({ "code": CODE, "timeout": 60 }));
    assert!(
        reply.stdout().contains(r#""action": "decline""#),
        "{}",
        reply.result
    );
    client.close();
    bridge.close();
}

#[test]
fn a_client_of_the_newer_generation_makes_its_call_again_with_the_answer() {
    let offers = json!({ "elicitation": { "form": {} } });
    let (bridge, client) = client(Era::Stateless("2026-07-28"), offers);
    let call = json!({ "name": "run_python", "arguments": { "code": CODE, "timeout": 60 } });
    let wanted = client.request("tools/call", call.clone()).unwrap();
    assert_eq!(wanted["resultType"], "input_required", "{wanted}");
    let question = &wanted["inputRequests"]["question"];
    assert_eq!(
        question["params"]["message"],
        "stub asks: What is your name?"
    );
    let mut again = call;
    again["requestState"] = wanted["requestState"].clone();
    again["inputResponses"] =
        json!({ "question": { "action": "accept", "content": { "name": "Ada" } } });
    let reply = client
        .send_request("tools/call", again)
        .wait(Duration::from_mins(1))
        .unwrap();
    let printed = reply["structuredContent"]["stdout"].as_str();
    assert!(
        printed.unwrap_or_default().contains(r#""name": "Ada""#),
        "{reply}"
    );
    client.close();
    bridge.close();
}

#[test]
fn a_client_that_shows_nothing_is_named_to_the_server() {
    let (bridge, client) = client(Era::Initialize("2025-11-25"), json!({}));
    let reply = client.run_with(json!({ "code": CODE, "timeout": 60 }));
    assert!(
        reply
            .stdout()
            .contains("the client runbridge-testkit shows no questions of servers"),
        "{}",
        reply.result
    );
    client.close();
    bridge.close();
}

const MODEL: &str = "print((await mcp_stub.ask_model()))";

fn said() -> Value {
    let content = json!({ "type": "text", "text": "four" });
    json!({ "role": "assistant", "model": "of-the-client", "content": content })
}

#[test]
fn a_client_that_lends_its_model_is_asked_where_the_user_allowed_it() {
    let settings = json!({ "version": 1, "servers": { "stub": { "sampling": "client" } } });
    let offers = json!({ "sampling": {} });
    let (bridge, client) = client_with(settings, Era::Initialize("2025-06-18"), offers);
    client.answer("sampling/createMessage", said());
    let reply = client.run_with(json!({ "code": MODEL, "timeout": 60 }));
    assert!(reply.stdout().contains("four"), "{}", reply.result);
    let asked = client.asked().remove(0);
    assert_eq!(asked["method"], "sampling/createMessage");
    assert_eq!(asked["params"]["messages"][0]["content"]["text"], "2 + 2?");
    // The bridge's first client has none to lend, and the server hears whose fault that is.
    let reply = bridge.run(MODEL);
    assert!(
        reply.stdout().contains("lends servers no model"),
        "{}",
        reply.result
    );
    client.close();
    bridge.close();
}

#[test]
fn a_model_is_asked_by_a_result_in_the_newer_generation() {
    let settings = json!({ "version": 1, "sampling": "client" });
    let offers = json!({ "sampling": {} });
    let (bridge, client) = client_with(settings, Era::Stateless("2026-07-28"), offers);
    let call = json!({ "name": "run_python", "arguments": { "code": MODEL, "timeout": 60 } });
    let wanted = client.request("tools/call", call.clone()).unwrap();
    let question = &wanted["inputRequests"]["question"];
    assert_eq!(question["method"], "sampling/createMessage", "{wanted}");
    let mut again = call;
    again["requestState"] = wanted["requestState"].clone();
    again["inputResponses"] = json!({ "question": said() });
    let reply = client
        .send_request("tools/call", again)
        .wait(Duration::from_mins(1))
        .unwrap();
    let printed = reply["structuredContent"]["stdout"].as_str();
    assert!(printed.unwrap_or_default().contains("four"), "{reply}");
    client.close();
    bridge.close();
}

#[test]
fn without_the_users_word_no_model_is_asked() {
    let (bridge, client) = client(Era::Initialize("2025-11-25"), json!({ "sampling": {} }));
    let reply = client.run_with(json!({ "code": MODEL, "timeout": 60 }));
    assert!(
        reply.stdout().contains("its user has not allowed that"),
        "{}",
        reply.result
    );
    assert!(client.asked().is_empty());
    client.close();
    bridge.close();
}
