//! Contract 6: the servers.

use std::time::Duration;

use runbridge_testkit::{TempHome, wait_for};
use serde_json::json;

use crate::{engine, on, with_stub, with_stub_and};

#[test]
fn a_server_starts_on_first_use_and_is_one_for_all_sessions() {
    let home = TempHome::new();
    let starts = home.join("starts");
    let entry = home.stub(&["--starts", &starts.to_string_lossy()]);
    let bridge = on(engine()).server("stub", entry).start(home);
    let pid = "print((await mcp_stub.whoami())['pid'])";
    let run = |session: &str| bridge.run_with(json!({ "code": pid, "session": session }));
    let (first, second) = (run("a"), run("b"));
    assert_eq!(
        (first.status(), first.stdout()),
        ("success", second.stdout()),
        "{}",
        first.result
    );
    let starts = std::fs::read_to_string(starts).unwrap();
    // One more start is allowed: the one that finds out which revision the server speaks.
    assert!(starts.lines().count() <= 2, "{starts}");
    assert_eq!(starts.lines().last(), Some(first.stdout().trim()));
    bridge.close();
}

#[test]
fn all_pages_of_six_hundred_tools_are_listed() {
    let bridge = with_stub_and(
        engine(),
        &["--tools", "600", "--page", "37"],
        json!({ "version": 1 }),
    );
    let printed = bridge.prints(
        "print(len(await runtime.list_tools('stub')), await mcp_stub.tool_0599(a='x'))\n\
         print([d['name'] for d in await runtime.search_tool_docs('extra tool number 417', limit=1)])",
    );
    assert_eq!(printed, "620 called tool_0599\n['tool_0417']\n");
    bridge.close();
}

#[test]
fn a_tool_that_comes_later_is_found() {
    let bridge = with_stub(engine());
    bridge.prints("await mcp_stub.grow()");
    let found = wait_for(Duration::from_secs(3), || {
        let printed = bridge.prints(
            "print([d['name'] for d in await runtime.search_tool_docs('zebra census', limit=1)])",
        );
        (printed == "['grown_0']\n").then_some(())
    });
    assert!(found.is_some(), "list_changed did not refresh the catalog");
    assert_eq!(
        bridge.prints("print(await mcp_stub.grown_0())"),
        "called grown_0\n"
    );
    bridge.close();
}

#[test]
fn garbage_and_floods_of_a_server_do_no_harm() {
    let bridge = with_stub_and(
        engine(),
        &["--noise", "3000000", "--stderr", "3000000"],
        json!({ "version": 1 }),
    );
    assert_eq!(
        bridge.prints("print(await mcp_stub.echo(text='in spite of it'))"),
        "in spite of it\n"
    );
    assert_eq!(
        bridge.prints("print(await mcp_stub.garbage())"),
        "after garbage\n"
    );
    bridge.close();
}

#[test]
fn a_server_gets_its_own_variables_and_none_of_the_bridges() {
    let bridge = on(engine());
    let home = TempHome::new();
    let entry = home.stub(&[]);
    let bridge = bridge
        .server("stub", entry)
        .variable("SOME_TOKEN", "of-the-client")
        .start(home);
    let seen = bridge.json("import json\nprint(json.dumps((await mcp_stub.whoami())['env']))");
    let seen = seen.as_object().unwrap();
    assert!(
        seen.contains_key("PATH") && seen.contains_key("HOME"),
        "{seen:?}"
    );
    assert!(seen.contains_key("STUB_SECRET"), "{seen:?}");
    // It is told that it runs under a bridge, so that a bridge among the servers can refuse to.
    let settings = seen.keys().filter(|name| {
        (name.starts_with("MCP_BRIDGE_") || name.starts_with("RUNBRIDGE_"))
            && *name != "RUNBRIDGE_NESTED"
    });
    assert_eq!(settings.collect::<Vec<_>>(), Vec::<&String>::new());
    bridge.close();
}

#[test]
fn a_secret_of_a_server_does_not_reach_the_model() {
    let bridge = with_stub(engine());
    let reply = bridge.run("print((await mcp_stub.whoami())['env']['STUB_SECRET'])");
    assert_eq!(reply.status(), "success", "{}", reply.result);
    assert!(
        !reply.result.to_string().contains("s3cr3t-value-of-stub"),
        "{}",
        reply.result
    );
    bridge.close();
}

#[test]
fn servers_die_with_the_bridge_and_so_do_their_children() {
    let bridge = with_stub_and(engine(), &["--child"], json!({ "version": 1 }));
    bridge.prints("await mcp_stub.echo(text='started')");
    // Closing asserts that no process names this home, and the child's command line does.
    bridge.close();
}

#[test]
fn a_server_added_on_disk_is_live_and_a_removed_one_is_gone() {
    let home = TempHome::new();
    let (first, late) = (home.stub(&[]), home.stub(&["--tools", "2"]));
    let bridge = on(engine()).server("stub", first.clone()).start(home);
    assert_eq!(
        bridge.prints("print(list(await runtime.list_servers()))"),
        "['stub']\n"
    );
    let servers = |names: &[(&str, &serde_json::Value)]| {
        names
            .iter()
            .map(|(name, entry)| ((*name).to_owned(), (*entry).clone()))
            .collect()
    };
    bridge
        .home()
        .write_servers(&servers(&[("stub", &first), ("late", &late)]));
    // One second is the promise; the rest is for a busy machine.
    let live = wait_for(Duration::from_secs(3), || {
        let printed = bridge.run("print(await mcp_late.echo(text='late'))");
        (printed.stdout() == "late\n").then_some(())
    });
    assert!(live.is_some(), "the added server is not live");
    bridge.home().write_servers(&servers(&[("late", &late)]));
    let gone = wait_for(Duration::from_secs(3), || {
        let printed =
            bridge.prints("print(list(await runtime.list_servers()), 'mcp_stub' in globals())");
        (printed == "['late'] False\n").then_some(())
    });
    assert!(gone.is_some(), "the removed server is still there");
    bridge.close();
}

#[test]
fn a_broken_file_costs_only_itself() {
    let home = TempHome::new();
    home.write("MCPs/broken.json", "{\"mcpServers\": {\"x\": ");
    home.write("MCPs/odd.json", "\u{feff}{\r\n // a comment\r\n \"mcpServers\": {\"off\": {\"command\": \"x\", \"disabled\": true},},\r\n}");
    let entry = home.stub(&[]);
    let bridge = on(engine()).server("stub", entry).start(home);
    assert_eq!(
        bridge.prints("print(list(await runtime.list_servers()))"),
        "['stub']\n"
    );
    bridge.close();
}

#[test]
fn the_bridge_does_not_start_itself() {
    let home = TempHome::new();
    let entry = home.stub(&[]);
    let bridge = on(engine())
        .server("stub", entry)
        .server("myself", json!({ "command": crate::SIDECAR }))
        .server(
            "wrapped",
            json!({ "command": "sh", "args": ["-c", format!("exec {}", crate::SIDECAR)] }),
        )
        .start(home);
    assert_eq!(
        bridge.prints("print(list(await runtime.list_servers()))"),
        "['stub']\n"
    );
    bridge.close();
}
