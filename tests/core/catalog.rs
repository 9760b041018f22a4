//! Many servers: names, lists, search, changes of the entries.

use std::time::{Duration, Instant};

use runbridge_core::catalog::CatalogEvent;
use runbridge_core::clients::entry::{Entry, EntryTransport};
use runbridge_core::upstream::UpstreamState;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::upstream::{Bench, PATIENCE, cached, entry, lives, text, until};

async fn names(bench: &Bench) -> Vec<String> {
    let tools = timeout(PATIENCE, bench.catalog.tools("fake"))
        .await
        .unwrap()
        .unwrap();
    tools.iter().map(|tool| tool.tool().name.clone()).collect()
}

async fn next_event(bench: &mut Bench, wanted: CatalogEvent) {
    let found = async { while bench.events.recv().await.unwrap() != wanted {} };
    timeout(PATIENCE, found)
        .await
        .unwrap_or_else(|_| panic!("{wanted:?}"));
}

#[tokio::test]
async fn all_pages_are_listed() {
    let bench = Bench::one(json!({"tool_count": 600, "page_size": 7})).await;
    let names = names(&bench).await;
    assert_eq!(names.len(), 616);
    assert_eq!(names.last().map(String::as_str), Some("t599"));
    assert_eq!(
        bench.structured("t599", json!({"q": 1})).await,
        json!({"q": 1})
    );
}

#[tokio::test]
async fn a_list_without_end_ends() {
    let bench = Bench::one(json!({"cursor_loop": true})).await;
    assert_eq!(names(&bench).await.len(), 16);
    assert!(
        bench
            .status()
            .notes
            .iter()
            .any(|note| note.starts_with("repeats the cursor of page"))
    );
    let bench = Bench::one(json!({"tool_count": 10_500, "page_size": 600})).await;
    assert_eq!(names(&bench).await.len(), 10_000);
    assert_eq!(
        bench.status().notes,
        ["lists more than 10000 tools; the rest is left out"]
    );
}

#[tokio::test]
async fn a_server_that_cannot_list_can_be_called() {
    let bench = Bench::one(json!({"list": "error"})).await;
    assert_eq!(bench.text("echo", json!({"text": "fine"})).await, "fine");
    let error = bench.catalog.tools("fake").await.err().unwrap();
    insta::assert_snapshot!(error, @"server `fake`: tools/list failed on page 1: no network");
    let bench = Bench::one(json!({"list": "unknown"})).await;
    assert_eq!(names(&bench).await.len(), 0);
    assert_eq!(bench.status().notes, ["offers no tools"]);
}

#[tokio::test]
async fn a_server_that_dies_while_it_lists_did_not_start() {
    let bench = Bench::one(json!({"list": "exit", "stderr": ["licence expired"]})).await;
    insta::assert_snapshot!(bench.error("echo", json!({})).await, @"server `fake` did not start: it exited with code 3 before it had listed its tools; its last line on stderr: licence expired");
}

#[tokio::test]
async fn broken_tools_cost_only_themselves_and_are_named() {
    let bench = Bench::one(json!({"tools": [{"inputSchema": {}}, {"name": 5}, {"name": "strschema", "inputSchema": "object"}, "just text", null]})).await;
    assert_eq!(
        names(&bench).await.last().map(String::as_str),
        Some("strschema")
    );
    assert_eq!(
        bench.structured("strschema", json!({"any": 1})).await,
        json!({"any": 1})
    );
    assert_eq!(bench.status().notes.len(), 5);
}

#[tokio::test]
async fn schemas_of_any_shape_are_listed_and_called() {
    let bench = Bench::one(json!({"tools": [
        {"name": "anyof", "inputSchema": {"anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "integer"}}}]}},
        {"name": "empty", "inputSchema": {}},
        {"name": "map", "inputSchema": {"type": "object", "additionalProperties": {"type": "integer"}}},
        {"name": "nullable", "inputSchema": {"type": "object", "properties": {"d": {"type": ["string", "null"], "enum": ["x", null]}}}},
        {"name": "old", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"q": {"type": "string"}}, "properties": {"q": {"$ref": "#/definitions/q"}}}},
        {"name": "afar", "inputSchema": {"$ref": "https://example.com/schema.json"}},
        {"name": "closed", "inputSchema": {"type": "object", "additionalProperties": false}},
    ]})).await;
    for (tool, arguments) in [
        ("anyof", json!({"b": 1})),
        ("empty", json!({"z": 1})),
        ("map", json!({"q": 2})),
        ("nullable", json!({"d": null})),
        ("old", json!({"q": "x"})),
        ("afar", json!({"r": [1]})),
        ("closed", json!({})),
    ] {
        assert_eq!(
            bench.structured(tool, arguments.clone()).await,
            arguments,
            "{tool}"
        );
        let tool = bench.catalog.tool("fake", tool).await.unwrap();
        assert!(!tool.signature().is_empty());
    }
    let docs = bench.catalog.tool("fake", "nullable").await.unwrap().docs();
    assert!(docs.contains("d: Literal['x', None]"), "{docs}");
}

#[tokio::test]
async fn nothing_is_sent_when_the_arguments_do_not_fit() {
    let bench = Bench::one(json!({"tools": [{"name": "search", "inputSchema": {"type": "object",
        "properties": {"repo_name": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["repo_name"]}}]})).await;
    let error = bench
        .error("search", json!({"repoName": "x", "limit": "5"}))
        .await;
    assert_eq!(error.code(), "invalid_arguments");
    insta::assert_snapshot!(error, @"search: unexpected `repoName`, did you mean `repo_name`?; `limit` is str, expected int (expected: *, repo_name: str, limit: int = None)");
    assert!(!bench.methods("fake").contains(&"tools/call".to_owned()));
}

#[tokio::test]
async fn names_work_as_they_are_and_as_python_writes_them() {
    let real = [
        "get-profile",
        "admin.tools.list",
        "2fast",
        "ns/tool",
        "with space",
        "class",
        "get_profile",
    ];
    let alias = [
        "get_profile_2",
        "admin_tools_list",
        "_2fast",
        "ns_tool",
        "with_space",
        "class_",
        "get_profile",
    ];
    let bench = Bench::one(json!({"tools": real.map(|name| json!({"name": name}))})).await;
    for (real, alias) in real.into_iter().zip(alias) {
        let tool = bench.catalog.tool("fake", alias).await.unwrap();
        assert_eq!((tool.tool().name.as_str(), tool.alias()), (real, alias));
        assert_eq!(bench.call(real, json!({})).await.unwrap().tool, real);
        assert_eq!(bench.call(alias, json!({})).await.unwrap().tool, real);
    }
}

#[tokio::test]
async fn parameters_have_their_real_names_on_the_wire() {
    let parameters = [
        "from",
        "class",
        "lambda",
        "cik-A",
        "with space",
        "$top",
        "ünï",
        "1st",
        "a.b",
        "x[]",
    ];
    let properties: Map<String, Value> = parameters
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    let bench = Bench::one(json!({"tools": [{"name": "q", "inputSchema": {"type": "object", "properties": properties, "required": ["from"]}}]})).await;
    let real: Map<String, Value> = parameters
        .iter()
        .map(|name| ((*name).to_owned(), (*name).into()))
        .collect();
    assert_eq!(
        bench.structured("q", real.clone().into()).await,
        Value::from(real.clone())
    );
    let python = [
        "from_",
        "class_",
        "lambda_",
        "cik_A",
        "with_space",
        "_top",
        "ünï",
        "_1st",
        "a_b",
        "x__",
    ];
    let aliases: Map<String, Value> = python
        .iter()
        .zip(parameters)
        .map(|(alias, name)| ((*alias).to_owned(), name.into()))
        .collect();
    assert_eq!(
        bench.structured("q", aliases.into()).await,
        Value::from(real)
    );
}

#[tokio::test]
async fn an_unknown_tool_is_named_with_the_nearest_ones() {
    let bench = Bench::one(json!({})).await;
    let error = bench.error("ehco", json!({})).await;
    assert_eq!(error.code(), "tool_not_found");
    insta::assert_snapshot!(error, @"server `fake` has no tool `ehco`; the nearest names are `echo`");
    let error = bench.catalog.find("fkae").unwrap_err();
    assert_eq!(error.code(), "server_not_found");
    insta::assert_snapshot!(error, @"no server is named `fkae`; the nearest names are `fake`");
}

#[tokio::test]
async fn a_tool_that_was_added_is_there_at_once() {
    for script in [
        json!({"list_changed": true}),
        json!({"list_changed": true, "discover": "modern"}),
        // Not every server says that its tools changed.
        json!({"forget_list_changed": true}),
    ] {
        let told = script.get("forget_list_changed").is_none();
        let mut bench = Bench::one(script).await;
        bench.text("pid", json!({})).await;
        if bench.status().revision.as_deref() == Some("2026-07-28") {
            until("it listens", || {
                bench
                    .methods("fake")
                    .contains(&"subscriptions/listen".to_owned())
            })
            .await;
        }
        while bench.events.try_recv().is_ok() {}
        bench.text("add_tool", json!({"name": "fresh"})).await;
        if told {
            next_event(
                &mut bench,
                CatalogEvent::Tools {
                    server: "fake".to_owned(),
                },
            )
            .await;
            assert_eq!(bench.status().tools, Some(17));
        }
        assert_eq!(
            bench.structured("fresh", json!({"a": 1})).await,
            json!({"a": 1})
        );
    }
}

#[tokio::test]
async fn entries_make_only_the_difference() {
    let mut bench = Bench::new();
    let (a, b, c) = (
        bench.entry("a", json!({})),
        bench.entry("b", json!({})),
        bench.entry("c", json!({})),
    );
    bench.catalog.set_entries(vec![a.clone(), b.clone()]).await;
    let pid = async |bench: &Bench, server: &str| {
        text(
            &bench
                .catalog
                .call(server, "pid", Map::new(), None)
                .await
                .unwrap(),
        )
    };
    let (pid_a, pid_b) = (pid(&bench, "a").await, pid(&bench, "b").await);

    // Another description, another order: the process stays.
    let mut described = a.clone();
    described.description = Some("The first".to_owned());
    bench
        .catalog
        .set_entries(vec![c, b.clone(), described])
        .await;
    next_event(&mut bench, CatalogEvent::Servers).await;
    assert_eq!(pid(&bench, "a").await, pid_a);
    let status = bench.catalog.servers();
    assert_eq!(
        status
            .iter()
            .map(|server| server.name.as_str())
            .collect::<Vec<_>>(),
        ["c", "b", "a"]
    );
    assert_eq!(status[2].description.as_deref(), Some("The first"));

    // Another environment: stopped, and started by the next call. Removed: stopped.
    let mut changed = a;
    let EntryTransport::Stdio { env, .. } = &mut changed.transport else {
        panic!()
    };
    env.insert("NEW".to_owned(), Some("1".to_owned()));
    bench.catalog.set_entries(vec![changed.clone()]).await;
    assert!(!lives(pid_a.parse().unwrap()) && !lives(pid_b.parse().unwrap()));
    assert_eq!(bench.starts("a"), 1);
    let told = bench
        .catalog
        .call("a", "environment", Map::new(), None)
        .await
        .unwrap();
    assert!(told.result.get().contains("\"NEW\":\"1\""));
    assert_eq!(
        bench
            .catalog
            .call("b", "pid", Map::new(), None)
            .await
            .unwrap_err()
            .code(),
        "server_not_found"
    );

    // Off: stopped, shown, refused.
    changed.off = Some("disabled in its file".to_owned());
    bench.catalog.set_entries(vec![changed]).await;
    let status = bench.catalog.servers().remove(0);
    assert!(status.pid.is_none() && status.off.is_some());
    let error = bench
        .catalog
        .call("a", "pid", Map::new(), None)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "server_disabled");
    insta::assert_snapshot!(error, @"server `a` is off: disabled in its file");
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let bench = Bench::new();
    let mut needy = bench.entry("needy", json!({}));
    needy.needs = vec!["GITHUB_TOKEN".to_owned()];
    bench.catalog.set_entries(vec![needy]).await;
    let error = bench
        .catalog
        .call("needy", "echo", Map::new(), None)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "server_auth_required");
    insta::assert_snapshot!(error, @"server `needy` was not started because it needs a value for `GITHUB_TOKEN`; set it and try again");
    assert_eq!(bench.starts("needy"), 0);
    let states = bench
        .catalog
        .servers()
        .into_iter()
        .map(|server| server.state);
    assert!(
        states
            .into_iter()
            .all(|state| matches!(state, UpstreamState::Failed { .. }))
    );
    // The second call says the same: there is no new attempt to wait for.
    let again = bench
        .catalog
        .call("needy", "echo", Map::new(), None)
        .await
        .unwrap_err();
    assert_eq!(again.message(), error.message());
}

#[tokio::test]
async fn tools_that_the_file_keeps_away_are_neither_found_nor_called() {
    let bench = Bench::new();
    let mut fake = bench.entry("fake", json!({}));
    fake.tools_denied = vec!["crash".to_owned()];
    fake.tools_allowed = Some(vec!["echo".to_owned(), "crash".to_owned()]);
    bench.catalog.set_entries(vec![fake]).await;
    assert_eq!(names(&bench).await, ["echo"]);
    for tool in ["crash", "pid"] {
        assert_eq!(bench.error(tool, json!({})).await.code(), "tool_denied");
    }
    let found = bench.catalog.search("ends the process", 5, None).await;
    assert!(found.hits.is_empty());
}

#[tokio::test]
async fn a_search_covers_servers_that_were_never_started() {
    let bench = Bench::new();
    let issue = |name: &str, script: Value| bench.entry(name, script);
    let entries: Vec<Entry> = vec![
        issue(
            "my-hub.v2",
            json!({"tools": [
                {"name": "list-issues", "description": "List issues"},
                {"name": "create-issue", "description": "Open an issue", "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}},
            ]}),
        ),
        issue("plain", json!({})),
        entry("broken", "no-such-program", &[]),
    ];
    bench.catalog.set_entries(entries.clone()).await;
    let found = bench.catalog.search("create an issue", 3, None).await;
    let first = &found.hits[0];
    assert_eq!(
        (first.server.name.as_str(), first.server.alias.as_str()),
        ("my-hub.v2", "my_hub_v2")
    );
    assert_eq!(first.tool.signature(), "create_issue(*, title: str)");
    assert_eq!(found.failures.len(), 1);
    assert_eq!(found.failures[0].0, "broken");
    assert!(
        found.failures[0].1.contains("no-such-program"),
        "{:?}",
        found.failures
    );

    // After a restart of the bridge the same search starts nothing.
    until("the lists are kept", || {
        cached(bench.dir.path()).matches("create-issue").count() == 1
            && cached(bench.dir.path()).matches("\"era\"").count() == 2
    })
    .await;
    let starts = (bench.starts("my-hub.v2"), bench.starts("plain"));
    let bench = bench.again(entries).await;
    let found = bench.catalog.search("create an issue", 1, None).await;
    assert_eq!(found.hits[0].tool.tool().name, "create-issue");
    assert_eq!((bench.starts("my-hub.v2"), bench.starts("plain")), starts);
    assert_eq!(
        bench
            .catalog
            .tools_known("my_hub_v2")
            .unwrap()
            .unwrap()
            .len(),
        18
    );

    // Narrowed to a server, the others do not exist.
    let found = bench
        .catalog
        .search("issue", 9, Some(&["plain".to_owned()]))
        .await;
    assert!(found.hits.iter().all(|hit| hit.server.name == "plain"));
}

#[tokio::test]
async fn a_slow_server_delays_only_itself() {
    let bench = Bench::new();
    bench
        .catalog
        .set_entries(vec![
            bench.entry("slow", json!({"start_ms": 60_000})),
            bench.entry("quick", json!({})),
        ])
        .await;
    let slow = tokio::spawn({
        let catalog = bench.catalog.clone();
        async move { catalog.call("slow", "pid", Map::new(), None).await }
    });
    until("it starts", || {
        matches!(bench.catalog.servers()[0].state, UpstreamState::Starting)
    })
    .await;
    let begun = Instant::now();
    bench
        .catalog
        .call("quick", "pid", Map::new(), None)
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3));
    // A start that is under way is given up when the bridge goes.
    timeout(PATIENCE, bench.catalog.shut_down()).await.unwrap();
    assert!(slow.await.unwrap().is_err());
    let pid = bench.trace("slow")[0]["pid"].as_u64().unwrap();
    assert!(!lives(pid));
}

#[tokio::test]
async fn values_that_servers_wrap_are_told() {
    let wrapped = json!({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]});
    let bench = Bench::one(json!({"tools": [{"name": "wrapped", "outputSchema": wrapped}]})).await;
    assert!(
        bench
            .call("wrapped", json!({"result": 5}))
            .await
            .unwrap()
            .unwrap
    );
    assert!(
        !bench
            .call("echo", json!({"text": "x"}))
            .await
            .unwrap()
            .unwrap
    );
}
