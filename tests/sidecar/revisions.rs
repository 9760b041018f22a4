//! Every protocol revision that a client may offer.

use runbridge_testkit::{Bridge, Era, RequestError, TempHome};
use serde_json::json;

use crate::{engine, on};

fn start(era: Era) -> Bridge {
    on(engine()).era(era).start(TempHome::new())
}

fn works(bridge: &Bridge) {
    let tools = bridge.client().request("tools/list", json!({})).unwrap();
    assert_eq!(tools["tools"][0]["name"], "run_python");
    let reply = bridge.run("print('works')\n6 * 7");
    assert_eq!(
        (reply.status(), reply.stdout(), reply.str("result")),
        ("success", "works\n", "42"),
        "{}",
        reply.result
    );
    let failed = bridge.run("1 / 0");
    assert!(failed.is_error());
    let resources = bridge
        .client()
        .request("resources/list", json!({}))
        .unwrap();
    assert_eq!(resources["resources"].as_array().unwrap().len(), 1);
}

#[test]
fn each_revision_that_greets_is_answered_with_itself() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let bridge = start(Era::Initialize(revision));
        assert_eq!(bridge.greeting()["protocolVersion"], revision);
        works(&bridge);
        bridge.client().request("ping", json!({})).unwrap();
        bridge.close();
    }
}

#[test]
fn an_unknown_revision_is_answered_with_one_that_is_known() {
    let bridge = start(Era::Initialize("2099-01-01"));
    let answered = bridge.greeting()["protocolVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"].contains(&&*answered),
        "{answered}"
    );
    works(&bridge);
    bridge.close();
}

#[test]
fn the_revision_without_greeting_works_from_its_first_request() {
    let bridge = start(Era::Stateless("2026-07-28"));
    let discovered = bridge.greeting();
    let versions = discovered["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{discovered}");
    assert!(
        discovered["capabilities"]["tools"].is_object(),
        "{discovered}"
    );
    assert!(
        discovered["ttlMs"].is_u64() && discovered["cacheScope"].is_string(),
        "{discovered}"
    );
    works(&bridge);
    let reply = bridge.run("1");
    assert_eq!(reply.result["resultType"], "complete", "{}", reply.result);
    bridge.close();
}

#[test]
fn a_stateless_request_of_an_unknown_revision_is_told_which_are_known() {
    let bridge = start(Era::Stateless("2026-07-28"));
    let params = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    // The client overwrites the revision of what it sends itself, so this line is written by hand.
    let line = json!({ "jsonrpc": "2.0", "id": 900_001, "method": "tools/list", "params": params });
    let pending = bridge.client().expect(900_001);
    bridge.client().write_line(&line.to_string());
    match pending.wait(std::time::Duration::from_secs(10)) {
        Err(RequestError::Rpc { code, data, .. }) => {
            assert_eq!(code, -32022);
            assert!(
                data["supported"]
                    .as_array()
                    .unwrap()
                    .contains(&json!("2026-07-28")),
                "{data}"
            );
        }
        other => panic!("an error was expected: {other:?}"),
    }
    bridge.close();
}

#[test]
fn variables_of_the_stateless_era_stay_with_the_connection() {
    let bridge = start(Era::Stateless("2026-07-28"));
    bridge.prints("x = 5");
    assert_eq!(bridge.prints("print(x)"), "5\n");
    bridge.close();
}
