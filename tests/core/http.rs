//! Remote servers, over both HTTP transports: how they answer, misbehave and are told apart.

mod peer;
mod proxy;
mod real;
mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use runbridge_core::catalog::{CatalogEvent, Offer};
use runbridge_core::clients::entry::{Entry, EntryTransport};
use runbridge_core::upstream::{Caller, Progress, UpstreamError, UpstreamLimits, UpstreamState};
use serde_json::json;
use tokio::time::timeout;

use self::peer::{Peer, Script};
use self::proxy::{FaultProxy, Harm};
use crate::upstream::{Bench, PATIENCE, cached, entry, text, until};

pub(crate) fn remote(url: &str) -> Entry {
    let mut remote = entry("fake", "", &[]);
    remote.transport = EntryTransport::Http {
        url: url.to_owned(),
        headers: BTreeMap::from([("Authorization".to_owned(), "Bearer t0ken".to_owned())]),
        sse: false,
    };
    remote
}

fn flagged_sse(mut entry: Entry) -> Entry {
    let EntryTransport::Http { sse, .. } = &mut entry.transport else {
        panic!()
    };
    *sse = true;
    entry
}

pub(crate) fn without_token(mut entry: Entry) -> Entry {
    let EntryTransport::Http { headers, .. } = &mut entry.transport else {
        panic!()
    };
    headers.clear();
    entry
}

pub(crate) async fn bench(entry: Entry) -> Bench {
    let bench = Bench::new();
    bench.catalog.set_entries(vec![entry]).await;
    bench
}

async fn talking_to(script: Script) -> (Peer, Bench) {
    let peer = Peer::new(script).await;
    let bench = bench(remote(&peer.url())).await;
    (peer, bench)
}

async fn echo(bench: &Bench, words: &str) -> String {
    bench.text("echo", json!({ "text": words })).await
}

fn message(error: &UpstreamError, peer: &Peer) -> String {
    error.to_string().replace(&peer.address.to_string(), "PEER")
}

#[tokio::test]
async fn a_server_with_a_handshake_is_spoken_to_in_one_session() {
    for streams in [false, true] {
        let script = Script {
            streams,
            sessions: true,
            ..Script::default()
        };
        let (peer, bench) = talking_to(script).await;
        assert_eq!(echo(&bench, "ünï").await, "ünï");
        let status = bench.status();
        assert!(matches!(status.state, UpstreamState::Ready));
        assert_eq!(status.revision.as_deref(), Some("2025-06-18"));
        assert_eq!(status.pid, None);
        until("the stream of news is open", || peer.listeners() == 1).await;
        let seen = peer.seen();
        let methods: Vec<_> = seen
            .iter()
            .filter(|seen| seen.method == "POST")
            .map(peer::Seen::rpc)
            .collect();
        assert_eq!(
            methods,
            [
                "server/discover",
                "initialize",
                "notifications/initialized",
                "tools/list",
                "tools/call"
            ]
        );
        for request in &seen {
            assert_eq!(request.header("authorization"), Some("Bearer t0ken"));
            let greeting = ["server/discover", "initialize"].contains(&request.rpc());
            let (session, revision) = if greeting {
                (None, None)
            } else {
                (Some("session-1"), Some("2025-06-18"))
            };
            assert_eq!(request.header("mcp-session-id"), session, "{request:?}");
            if request.rpc() != "server/discover" {
                assert_eq!(request.header("mcp-protocol-version"), revision);
            }
        }
        bench.catalog.shut_down().await;
        until("the session is given back", || {
            peer.seen().iter().any(|seen| {
                seen.method == "DELETE" && seen.header("mcp-session-id") == Some("session-1")
            })
        })
        .await;
        until("nobody listens any more", || peer.listeners() == 0).await;
    }
}

#[tokio::test]
async fn a_server_without_a_handshake_is_told_everything_with_each_request() {
    for streams in [false, true] {
        let script = Script {
            modern: true,
            streams,
            ..Script::default()
        };
        let (peer, bench) = talking_to(script).await;
        assert_eq!(echo(&bench, "fine").await, "fine");
        bench
            .text("regional", json!({"region": " Zürich", "count": 3}))
            .await;
        assert_eq!(bench.status().revision.as_deref(), Some("2026-07-28"));
        assert_eq!(peer.count("initialize"), 0);
        for request in peer.seen() {
            assert_eq!(request.header("mcp-protocol-version"), Some("2026-07-28"));
            assert_eq!(request.header("mcp-method"), Some(request.rpc()));
            let meta = &request.body["params"]["_meta"];
            assert_eq!(
                meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28",
                "{request:?}"
            );
        }
        let calls: Vec<_> = peer.seen();
        let calls: Vec<_> = calls.iter().filter(|c| c.rpc() == "tools/call").collect();
        assert_eq!(calls[0].header("mcp-name"), Some("echo"));
        assert_eq!(calls[1].header("mcp-name"), Some("regional"));
        assert_eq!(
            calls[1].header("mcp-param-region"),
            Some("=?base64?IFrDvHJpY2g=?=")
        );
        assert_eq!(calls[1].header("mcp-param-count"), Some("3"));
        assert_eq!(calls[0].header("mcp-param-region"), None);
    }
}

#[tokio::test]
async fn the_era_is_found_once_and_remembered() {
    let silent = Script {
        silent_on_discover: true,
        ..Script::default()
    };
    let (peer, bench) = talking_to(silent).await;
    assert_eq!(echo(&bench, "fine").await, "fine");
    until("the era is kept", || {
        cached(bench.dir.path()).contains("\"era\":\"initialize\"")
    })
    .await;
    let bench = bench.again(vec![remote(&peer.url())]).await;
    let begun = Instant::now();
    assert_eq!(echo(&bench, "fine").await, "fine");
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(peer.count("server/discover"), 1);
    assert_eq!(peer.count("initialize"), 2);
}

#[tokio::test]
async fn the_older_transport_is_found_whatever_the_entry_says() {
    let old = Script {
        sse: true,
        ..Script::default()
    };
    let peer = Peer::new(old).await;
    for entry in [remote(&peer.url()), flagged_sse(remote(&peer.url()))] {
        let bench = bench(entry).await;
        assert_eq!(echo(&bench, "fine").await, "fine");
        assert_eq!(bench.status().revision.as_deref(), Some("2025-06-18"));
        assert_eq!(peer.listeners(), 1);
        bench.catalog.shut_down().await;
        until("the stream is closed", || peer.listeners() == 0).await;
    }
    assert!(
        peer.seen()
            .iter()
            .all(|seen| seen.header("authorization") == Some("Bearer t0ken"))
    );
    // And the other way round.
    for sessions in [false, true] {
        let script = Script {
            sessions,
            ..Script::default()
        };
        let peer = Peer::new(script).await;
        let bench = bench(flagged_sse(remote(&peer.url()))).await;
        assert_eq!(echo(&bench, "fine").await, "fine");
    }
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again_by_the_next_call() {
    let old = Script {
        sse: true,
        ..Script::default()
    };
    let peer = Peer::new(old).await;
    let proxy = FaultProxy::before(peer.address).await;
    let bench = bench(remote(&format!("http://{}/sse", proxy.address))).await;
    assert_eq!(echo(&bench, "fine").await, "fine");
    proxy.set(Harm::CutAfter(0));
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_unreachable", "{error}");
    proxy.set(Harm::None);
    bench.catalog.restart("fake").await.unwrap();
    assert_eq!(echo(&bench, "again").await, "again");
}

#[tokio::test]
async fn news_of_tools_refreshes_the_list() {
    for script in [
        Script {
            modern: true,
            ..Script::default()
        },
        Script {
            sessions: true,
            ..Script::default()
        },
        Script {
            sse: true,
            ..Script::default()
        },
    ] {
        let (peer, mut bench) = talking_to(script).await;
        assert_eq!(echo(&bench, "fine").await, "fine");
        until("it listens", || peer.listeners() == 1).await;
        while bench.events.try_recv().is_ok() {}
        peer.add_tool("new");
        timeout(PATIENCE, async {
            loop {
                if let CatalogEvent::Tools { .. } = bench.events.recv().await.unwrap() {
                    break;
                }
            }
        })
        .await
        .expect("the list is renewed");
        assert_eq!(bench.text("new", json!({})).await, "fine");
    }
}

#[tokio::test]
async fn a_list_is_renewed_when_the_server_s_word_for_it_has_run_out() {
    let (peer, bench) = talking_to(Script {
        modern: true,
        ttl_ms: Some(200),
        ..Script::default()
    })
    .await;
    echo(&bench, "hello").await;
    let before = bench.status().tools.unwrap();
    peer.add_quietly("late");
    let renewed = async {
        while bench.status().tools != Some(before + 1) {
            echo(&bench, "hello").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, renewed).await.unwrap();
    let lists = peer.count("tools/list");
    for _ in 0..5 {
        echo(&bench, "hello").await;
    }
    assert!(peer.count("tools/list") <= lists + 1, "not for each call");
}

#[tokio::test]
async fn a_tool_whose_headers_cannot_be_made_is_left_out_where_they_are_needed() {
    for modern in [true, false] {
        let (peer, bench) = talking_to(Script {
            modern,
            ..Script::default()
        })
        .await;
        peer.add_quietly("crooked");
        echo(&bench, "hello").await;
        let status = bench.status();
        let left_out = "tool `crooked` asks for a header that cannot be and was left out";
        assert_eq!(
            status.notes.iter().any(|note| note.starts_with(left_out)),
            modern
        );
        assert_eq!(status.tools, Some(if modern { 16 } else { 17 }));
    }
}

#[tokio::test]
async fn a_forgotten_session_is_opened_anew_within_the_call() {
    let script = Script {
        sessions: true,
        ..Script::default()
    };
    let (peer, bench) = talking_to(script).await;
    assert_eq!(bench.text("forget", json!({})).await, "forgotten");
    assert_eq!(echo(&bench, "fine").await, "fine");
    assert_eq!(peer.count("initialize"), 2);
    let echoes = peer.seen();
    let echoes: Vec<_> = echoes
        .iter()
        .filter(|seen| seen.body["params"]["name"] == "echo")
        .map(|seen| seen.header("mcp-session-id").unwrap())
        .collect();
    assert_eq!(echoes, ["session-1", "session-2"]);
}

#[tokio::test]
async fn a_stream_that_breaks_is_taken_up_where_it_stopped() {
    let script = Script {
        sessions: true,
        ..Script::default()
    };
    let (peer, bench) = talking_to(script).await;
    assert_eq!(bench.text("resume", json!({})).await, "taken up again");
    let seen = peer.seen();
    let resumed = seen
        .iter()
        .find(|seen| seen.header("last-event-id").is_some());
    let resumed = resumed.unwrap();
    assert_eq!(resumed.method, "GET");
    assert_eq!(resumed.header("mcp-session-id"), Some("session-1"));
}

#[tokio::test]
async fn each_fault_costs_its_own_call_and_says_what_it_was() {
    for modern in [false, true] {
        let script = Script {
            modern,
            ..Script::default()
        };
        let (peer, bench) = talking_to(script).await;
        let mut told = Vec::new();
        for tool in ["expire", "cut", "reset", "page", "500", "empty", "huge"] {
            let error = bench.error(tool, json!({})).await;
            told.push(format!(
                "{tool}: {}: {}",
                error.code(),
                message(&error, &peer)
            ));
            assert_eq!(echo(&bench, "fine").await, "fine", "after {tool}");
        }
        for tool in ["stall", "endless"] {
            let begun = Instant::now();
            let limit = Some(Duration::from_millis(400));
            let error = bench.call_within(tool, json!({}), limit).await.unwrap_err();
            assert!(begun.elapsed() < Duration::from_secs(3), "{tool}");
            told.push(format!(
                "{tool}: {}: {}",
                error.code(),
                message(&error, &peer)
            ));
            assert_eq!(echo(&bench, "fine").await, "fine", "after {tool}");
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(told.join("\n"), @r#"
            expire: "server_auth_required": server `fake` needs you to sign in: http://PEER/mcp answered 401 Unauthorized: it does not accept the `Authorization` header of its configuration, which may have expired
            cut: "server_unreachable": server `fake` cannot be reached: the connection was cut before the answer was complete (end of file before message length reached)
            reset: "server_unreachable": server `fake` cannot be reached: http://PEER/mcp closed the connection without an answer (Connection reset by peer (os error 104))
            page: "server_protocol": server `fake`: http://PEER/mcp answered with a web page (text/html) instead of MCP; check the address, and whether a sign-in page or a proxy stands before it
            500: "server_unreachable": server `fake` cannot be reached: http://PEER/mcp answered 500 Internal Server Error: the database is down
            empty: "server_protocol": server `fake`: it answered 202 Accepted with nothing, where an answer belongs
            huge: "server_protocol": server `fake`: its answer is longer than the limit of 67108864 bytes (64 MiB)
            stall: "tool_timeout": tool `stall` of server `fake` timed out 0.4 s after the call; the server keeps running
            endless: "tool_timeout": tool `endless` of server `fake` timed out 0.4 s after the call; the server keeps running
            "#);
        }
        assert_eq!(peer.count("initialize"), usize::from(!modern));
        let repeated = peer.seen();
        let repeated = repeated
            .iter()
            .filter(|seen| seen.body["params"]["name"] == "reset")
            .count();
        assert_eq!(repeated, 1, "a call is never repeated");
    }
}

#[tokio::test]
async fn what_is_no_server_says_what_it_is() {
    let page = "<html>captive portal</html>";
    let mut told = Vec::new();
    for (status, kind, body, header) in [
        (
            401,
            "application/json",
            r#"{"error":"invalid_token"}"#,
            None,
        ),
        (
            403,
            "text/plain",
            "",
            Some(("WWW-Authenticate", "Bearer scope=\"x\"")),
        ),
        (403, "text/plain", "not from here", None),
        (200, "text/html", page, None),
        (404, "text/html", page, None),
        (200, "application/json", "{}", None),
        (503, "text/plain", "come back later", None),
        (
            302,
            "",
            "",
            Some(("Location", "http://127.0.0.1:9/mcp?token=s3cret")),
        ),
        (
            307,
            "",
            "",
            Some(("Location", "http://169.254.169.254/latest/meta-data/")),
        ),
        (308, "", "", Some(("Location", "/mcp"))),
        (307, "", "", None),
    ] {
        let peer = Peer::new(Script {
            always: Some((status, kind, body)),
            header: header.map(|(name, value)| (name, value.to_owned())),
            ..Script::default()
        })
        .await;
        let bench = bench(without_token(remote(&peer.url()))).await;
        let error = bench.error("echo", json!({})).await;
        let requests = peer.seen().len();
        told.push(format!(
            "{status} {kind}: {}: {} ({requests} requests)",
            error.code(),
            message(&error, &peer)
        ));
        assert!(matches!(bench.status().state, UpstreamState::Failed { .. }));
        // No tight loop: what is known to fail is not asked again at once.
        for _ in 0..5 {
            assert_eq!(bench.error("echo", json!({})).await.code(), error.code());
        }
        assert_eq!(peer.seen().len(), requests);
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    401 application/json: "server_auth_required": server `fake` needs you to sign in: http://PEER/mcp answered 401 Unauthorized; sign in in Runbridge: choose Sign in beside the server in its window, or run `runbridge login fake`; if it gave you a token, put that into its `headers`, as `Authorization` (1 requests)
    403 text/plain: "server_auth_required": server `fake` needs you to sign in: http://PEER/mcp answered 403 Forbidden; sign in in Runbridge: choose Sign in beside the server in its window, or run `runbridge login fake`; if it gave you a token, put that into its `headers`, as `Authorization` (1 requests)
    403 text/plain: "server_protocol": server `fake`: http://PEER/mcp answered 403 Forbidden: not from here (2 requests)
    200 text/html: "server_protocol": server `fake`: http://PEER/mcp answered with a web page (text/html) instead of MCP; check the address, and whether a sign-in page or a proxy stands before it (2 requests)
    404 text/html: "server_protocol": server `fake`: http://PEER/mcp answered 404 Not Found (3 requests)
    200 application/json: "server_protocol": server `fake`: it answered with JSON that is no answer to the request (2 requests)
    503 text/plain: "server_unreachable": server `fake` cannot be reached: http://PEER/mcp answered 503 Service Unavailable: come back later (2 requests)
    302 : "server_protocol": server `fake`: http://PEER/mcp redirects to http://127.0.0.1:9/mcp; redirects to another host are not followed: if you trust it, put that address into the configuration (2 requests)
    307 : "server_protocol": server `fake`: http://PEER/mcp redirects to http://169.254.169.254/latest/meta-data/; redirects to another host are not followed: if you trust it, put that address into the configuration (2 requests)
    308 : "server_protocol": server `fake`: http://PEER/mcp redirects more than 5 times (12 requests)
    307 : "server_protocol": server `fake`: http://PEER/mcp redirects to nowhere (2 requests)
    "#);
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_called_that_and_not_shown() {
    let peer = Peer::new(Script {
        always: Some((401, "", "")),
        ..Script::default()
    })
    .await;
    let bench = bench(remote(&format!("{}?key=s3cret", peer.url()))).await;
    let error = bench.error("echo", json!({})).await;
    insta::assert_snapshot!(message(&error, &peer), @"server `fake` needs you to sign in: http://PEER/mcp answered 401 Unauthorized: it does not accept the `Authorization` header of its configuration, which may have expired");
    assert_eq!(peer.seen().len(), 1);
    let UpstreamState::Failed { error, .. } = bench.status().state else {
        panic!("it has failed")
    };
    assert!(error.wants_sign_in());
}

#[tokio::test]
async fn where_nothing_listens_is_said_at_once() {
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for (url, part) in [
        (format!("http://{closed}/mcp"), "connection refused"),
        (
            "http://no-such-host.invalid/mcp".to_owned(),
            "no connection to",
        ),
        ("ftp://example.com/mcp".to_owned(), "http and https"),
        ("not a url".to_owned(), "not a URL"),
    ] {
        for entry in [remote(&url), flagged_sse(remote(&url))] {
            let bench = bench(entry).await;
            let begun = Instant::now();
            let error = bench.error("echo", json!({})).await;
            assert!(error.to_string().contains(part), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_at_the_limit() {
    let peer = Peer::new(Script::default()).await;
    let proxy = FaultProxy::before(peer.address).await;
    proxy.set(Harm::StallAfter(0));
    let bench = Bench::with(UpstreamLimits {
        start_ms_max: 500,
        ..UpstreamLimits::default()
    });
    let url = format!("http://{}/mcp", proxy.address);
    bench.catalog.set_entries(vec![remote(&url)]).await;
    let error = bench.error("echo", json!({})).await;
    insta::assert_snapshot!(error, @"server `fake` cannot be reached: it has not answered within 0.5 s");
}

#[tokio::test]
async fn harm_on_the_way_ends_within_the_limit_and_passes() {
    let peer = Peer::new(Script::default()).await;
    let proxy = FaultProxy::before(peer.address).await;
    let bench = bench(remote(&format!("http://{}/mcp", proxy.address))).await;
    assert_eq!(echo(&bench, "fine").await, "fine");
    for (harm, code) in [
        (Harm::CutAfter(0), "server_unreachable"),
        (Harm::CutAfter(150), "server_unreachable"),
        (Harm::ResetAfter(0), "server_unreachable"),
        (Harm::ResetAfter(150), "server_unreachable"),
        (Harm::StallAfter(0), "tool_timeout"),
        (Harm::StallAfter(150), "tool_timeout"),
        (Harm::Trickle(1, Duration::from_millis(20)), "tool_timeout"),
        (Harm::Latency(Duration::from_secs(30)), "tool_timeout"),
    ] {
        proxy.set(harm);
        let begun = Instant::now();
        let limit = Some(Duration::from_millis(500));
        let error = bench.call_within("echo", json!({}), limit).await;
        let error = error.unwrap_err();
        assert_eq!(error.code(), code, "{harm:?}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{harm:?}");
        proxy.set(Harm::None);
        assert_eq!(echo(&bench, "fine").await, "fine", "after {harm:?}");
    }
    for harm in [
        Harm::Latency(Duration::from_millis(100)),
        Harm::Trickle(64, Duration::from_millis(5)),
    ] {
        proxy.set(harm);
        assert_eq!(echo(&bench, "slow").await, "slow", "{harm:?}");
    }
    assert_eq!(peer.count("initialize"), 1);
}

#[tokio::test]
async fn resources_and_prompts_are_reached() {
    for modern in [false, true] {
        let script = Script {
            modern,
            sessions: !modern,
            ..Script::default()
        };
        let (peer, bench) = talking_to(script).await;
        let catalog = &bench.catalog;
        let listed = catalog.offers("fake", Offer::Resources).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|one| one.get()).collect();
        assert_eq!(listed, [r#"{"uri":"a:1"}"#, r#"{"uri":"a:2"}"#]);
        let none = catalog.offers("fake", Offer::Prompts).await.unwrap();
        assert!(none.is_empty(), "it knows no such list");
        // The session is gone; the request was not carried out and is made again.
        bench.text("forget", json!({})).await;
        let read = catalog.read_resource("fake", "a:b").await.unwrap();
        assert_eq!(read.get(), r#"{"contents":[{"uri":"a:b","text":"words"}]}"#);
        let arguments = serde_json::Map::from_iter([("a".to_owned(), json!("1"))]);
        let prompt = catalog.prompt("fake", "hello", arguments).await.unwrap();
        assert_eq!(prompt.get(), r#"{"messages":[],"description":"1"}"#);
        let seen = peer.seen();
        let read = seen.iter().rfind(|seen| seen.rpc() == "resources/read");
        let name = read.unwrap().header("mcp-name");
        assert_eq!(name, modern.then_some("a:b"));
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    for sse in [false, true] {
        let script = Script {
            sse,
            ..Script::default()
        };
        cancels(script).await;
    }
}

async fn cancels(script: Script) {
    let (peer, bench) = talking_to(script).await;
    let limit = Some(Duration::from_millis(100));
    let call = bench.call_within("sleep", json!({"ms": 20_000}), limit);
    assert_eq!(call.await.unwrap_err().code(), "tool_timeout");
    until("the server is told", || {
        peer.count("notifications/cancelled") == 1
    })
    .await;
    let seen = peer.seen();
    let id = |method: &str| {
        let seen = seen.iter().find(|seen| seen.rpc() == method).unwrap();
        let id = &seen.body["id"];
        if id.is_null() {
            seen.body["params"]["requestId"].clone()
        } else {
            id.clone()
        }
    };
    assert_eq!(id("notifications/cancelled"), id("tools/call"));
}

#[tokio::test]
async fn two_hundred_calls_at_once_run_at_once() {
    for script in [
        Script::default(),
        Script {
            modern: true,
            streams: true,
            ..Script::default()
        },
    ] {
        let (_peer, bench) = talking_to(script).await;
        assert_eq!(echo(&bench, "fine").await, "fine");
        let begun = Instant::now();
        let calls = (0..200).map(|_| bench.call("sleep", json!({"ms": 500})));
        for result in join_all(calls).await {
            assert_eq!(text(&result.unwrap()), "slept");
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test]
async fn a_result_of_ten_megabytes_arrives_whole() {
    for streams in [false, true] {
        let script = Script {
            streams,
            ..Script::default()
        };
        let (_peer, bench) = talking_to(script).await;
        let big = bench.text("big", json!({"bytes": 10_000_000})).await;
        assert_eq!(big.len(), 10_000_000);
    }
}

#[tokio::test]
async fn a_redirect_on_the_same_host_is_followed_with_the_credentials() {
    let script = Script {
        slash: true,
        sessions: true,
        ..Script::default()
    };
    let (peer, bench) = talking_to(script).await;
    assert_eq!(echo(&bench, "fine").await, "fine");
    let seen = peer.seen();
    assert!(seen.iter().any(|seen| seen.path == "/mcp/"));
    assert!(
        seen.iter()
            .all(|seen| seen.header("authorization") == Some("Bearer t0ken"))
    );
}

#[tokio::test]
async fn a_call_without_handshake_is_cancelled_by_hanging_up() {
    let script = Script {
        modern: true,
        streams: true,
        ..Script::default()
    };
    let (peer, bench) = talking_to(script).await;
    let limit = Some(Duration::from_millis(400));
    let call = bench.call_within("endless", json!({}), limit);
    assert_eq!(call.await.unwrap_err().code(), "tool_timeout");
    until("the peer sees the end", || peer.hung_up() == 1).await;
    assert_eq!(echo(&bench, "fine").await, "fine");
    assert_eq!(peer.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn the_proxy_of_the_user_s_environment_is_used_but_not_for_this_machine() {
    let proxy = Peer::new(Script::default()).await;
    let env = [("http_proxy", format!("http://{}", proxy.address))];
    let far = Bench::with_env(&env);
    let url = format!("http://{}/mcp", peer::FAR);
    far.catalog.set_entries(vec![remote(&url)]).await;
    assert_eq!(echo(&far, "fine").await, "fine");
    assert_eq!(proxy.seen()[0].path, url);

    let near = Peer::new(Script::default()).await;
    let bench = Bench::with_env(&env);
    let before = proxy.seen().len();
    bench.catalog.set_entries(vec![remote(&near.url())]).await;
    assert_eq!(echo(&bench, "fine").await, "fine");
    assert_eq!(proxy.seen().len(), before);
}

#[tokio::test]
async fn a_certificate_counts_when_the_user_s_environment_names_its_authority() {
    let peer = Peer::new(Script::default()).await;
    let tls = tls::Front::before(peer.address).await;
    let url = format!("https://localhost:{}/mcp", tls.address.port());
    let authority = tls.authority.path().to_str().unwrap().to_owned();
    let trusting = Bench::with_env(&[("SSL_CERT_FILE", authority)]);
    trusting.catalog.set_entries(vec![remote(&url)]).await;
    assert_eq!(echo(&trusting, "fine").await, "fine");

    let bench = bench(remote(&url)).await;
    let error = bench.error("echo", json!({})).await;
    assert_eq!(error.code(), "server_unreachable");
    let error = error.to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test]
async fn progress_of_a_call_reaches_its_caller_and_nobody_else() {
    for modern in [false, true] {
        let script = Script {
            modern,
            ..Script::default()
        };
        let (_peer, bench) = talking_to(script).await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = |name: &'static str| -> Progress {
            let heard = Arc::clone(&heard);
            Arc::new(move |words: &str| heard.lock().unwrap().push(format!("{name}: {words}")))
        };
        let call = |tool, progress| {
            let arguments = serde_json::Map::new();
            bench.catalog.call_for(
                "fake",
                tool,
                arguments,
                None,
                Caller {
                    progress: Some(progress),
                    ..Caller::default()
                },
            )
        };
        let (steps, echo) = tokio::join!(call("steps", listener("a")), call("echo", listener("b")));
        steps.unwrap();
        echo.unwrap();
        assert_eq!(*heard.lock().unwrap(), ["a: 1 of 2: reading", "a: 2 of 2"]);
    }
}

/// What a call costs above the bytes on the wire. The bound is for debug builds on a busy machine.
#[tokio::test]
#[allow(
    clippy::print_stderr,
    reason = "the figure is of use to who runs this test alone"
)]
async fn a_thousand_calls_cost_little_more_than_their_bytes() {
    const CALLS: usize = 1_000;
    let (peer, bench) = talking_to(Script::default()).await;
    assert_eq!(echo(&bench, "fine").await, "fine");
    let sent = peer.seen().pop().unwrap();
    let mut bare = peer::Bare::new(&peer, &sent).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // In turns, so that what else the machine does falls on both alike.
    for _ in 0..CALLS {
        let begun = Instant::now();
        echo(&bench, "fine").await;
        ours.push(begun.elapsed());
        let begun = Instant::now();
        bare.exchange().await;
        theirs.push(begun.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let cost = median(&mut ours).saturating_sub(median(&mut theirs));
    eprintln!("a call costs {cost:?} above a bare exchange (medians of {CALLS})");
    assert!(cost < Duration::from_millis(5), "{cost:?}");
}
