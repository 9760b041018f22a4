//! The window end to end: the built page in the system's webview, the real app, a real client through
//! the real sidecar, Python in a real container.

use std::time::Duration;

use fantoccini::key::Key;
use runbridge_testkit::{Engine, RequestError};
use serde_json::json;

use crate::app::{Desk, until};
use crate::driver::{Window, button, input};

/// Runs `test` where there is an engine to run Python.
fn with_engine(name: &str, test: impl Future<Output = ()>) {
    if Engine::all().is_empty() {
        return runbridge_testkit::skip(name, "no engine is ready");
    }
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

#[test]
fn a_first_run_is_proved_and_limits_servers_and_memory_are_changed_in_the_window() {
    with_engine("the window end to end", async {
        let desk = Desk::new(json!({}));
        let window = Window::open(&desk).await;
        // What the page may not do is told by its console and by this.
        window
            .script(
                "window.refused = []; addEventListener('securitypolicyviolation', \
                 (event) => window.refused.push(event.violatedDirective + ' ' + event.blockedURI))",
            )
            .await;

        first_run(&window).await;
        let client = desk.client();
        a_server_is_lost_and_regained(&window, &client).await;
        a_run_is_killed_at_the_new_limit(&desk, &window, &client).await;
        memory_is_edited(&window, &client).await;
        a_run_is_seen_and_stopped(&window, &client).await;

        let refused = window.script("return window.refused").await;
        assert_eq!(refused, json!([]));
        let secret = window.invoke("plugin:dialog|open", json!({})).await;
        assert!(
            secret.is_err(),
            "the window may open no dialog of its own: {secret:?}"
        );
        client.close();
        window.end(&desk).await;
        desk.close();
    });
}

async fn first_run(window: &Window) {
    window.says("First steps").await;
    window.says("Sandbox ready").await;
    let prove = format!("{}[not(@disabled)]", button("Run Python now"));
    window.click(&prove).await;
    window.says("Servers: stub").await;
}

async fn a_server_is_lost_and_regained(window: &Window, client: &runbridge_testkit::McpClient) {
    // One run that goes on all the while: it loses the server between two calls and gets it back.
    let run = client.send_run(json!({ "timeout": 100, "code": "\
import asyncio
seen = []
while seen[-3:] != ['lost', 'back', 'back']:
    try:
        await mcp_stub.echo(text='x')
        word = 'back' if 'lost' in seen else 'there'
    except Exception:
        word = 'lost'
    if word == 'back' or seen[-1:] != [word]:
        seen.append(word)
        print(word, flush=True)
    await asyncio.sleep(0.2)
" }));
    window.press("Servers").await;
    let switch = input("checkbox", "stub may be called");
    window.find(&format!("{switch}[@role='switch']")).await;
    // The switch shows only once the run has had an answer, so that it is known to have begun.
    window.says("Ready").await;
    window.click(&switch).await;
    window.says("Off").await;
    window.press("Activity").await;
    window.press("seen = []").await;
    window.says("lost").await;
    window.press("Servers").await;
    window.click(&switch).await;
    let reply = run.reply().unwrap();
    assert_eq!(reply.status(), "success", "{}", reply.result);
    assert_eq!(reply.stdout(), "there\nlost\nback\nback\n");
}

async fn a_run_is_killed_at_the_new_limit(
    desk: &Desk,
    window: &Window,
    client: &runbridge_testkit::McpClient,
) {
    let greedy = "print(len(b'x' * (300 * 1024 * 1024)))";
    let reply = client.run(greedy);
    assert_eq!(reply.status(), "success", "{}", reply.result);
    window.press("Sandbox").await;
    window.press("Limits").await;
    let slider = input("range", "Memory");
    window.find(&slider).await;
    let shown = |value: &str| format!("{}[@aria-valuetext=\"{value}\"]", input("range", "Memory"));
    window.find(&shown("512 MiB")).await;
    for _ in 0..8 {
        window.keys(&slider, Key::Left, 1).await;
        let value = window
            .find(&slider)
            .await
            .attr("aria-valuetext")
            .await
            .unwrap()
            .unwrap_or_default();
        if value == "128 MiB" {
            break;
        }
    }
    window.find(&shown("128 MiB")).await;
    until("the limit is in force", || {
        desk.settings()["limits"]["memory_bytes_max"] == 128 * 1024 * 1024
    });
    // What is live keeps the limit that it was started with.
    let reply = client.run_with(json!({ "code": greedy, "session": "new" }));
    assert_eq!(reply.status(), "out_of_memory", "{}", reply.result);
}

async fn memory_is_edited(window: &Window, client: &runbridge_testkit::McpClient) {
    let run = |code: &str| client.run_with(json!({ "code": code, "session": "memory" }));
    let reply = run("save_memory('colour', {'name': 'red'})");
    assert_eq!(reply.status(), "success", "{}", reply.result);
    window.press("Memory").await;
    window.press("colour").await;
    window.press("Edit").await;
    window.fill("//textarea", r#"{"name": "green"}"#).await;
    window.press("Save").await;
    window.gone("//textarea").await;
    let reply = run("print(load_memory('colour'))");
    assert!(reply.stdout().contains("green"), "{}", reply.result);
}

async fn a_run_is_seen_and_stopped(window: &Window, client: &runbridge_testkit::McpClient) {
    window.press("Activity").await;
    let run = client.send_run(json!({
        "code": "import time\nprint('under way', flush=True)\ntime.sleep(90)",
        "timeout": 100,
        "session": "memory",
    }));
    window.press("print('under way', flush=True)").await;
    window.says("under way").await;
    window.press("Stop").await;
    assert_eq!(run.reply().unwrap().status(), "cancelled");
    window.says("Stopped").await;
}

#[test]
fn a_server_asks_in_the_window_what_its_client_cannot() {
    with_engine("a server asks in the window", async {
        let desk = Desk::new(json!({}));
        let window = Window::open(&desk).await;
        let client = desk.client();
        let run = client.send_run(json!({
            "code": "print(await mcp_stub.ask_name())",
            "timeout": 100,
        }));
        window.says("stub asks you").await;
        window.says("What is your name?").await;
        desk.screen.line(&["stub asks you something"]);
        desk.screen.line(&["Open Runbridge to answer"]);
        until("the user is told", || {
            !desk.screen.notifications().is_empty()
        });
        let told = json!(desk.screen.notifications()).to_string();
        assert!(told.contains("stub asks you something"), "{told}");
        // A form that is not filled in is not sent.
        window.press("Send answer").await;
        window.says("It needs a value.").await;
        let name = "//label[normalize-space()='name']/following-sibling::input";
        window.fill(name, "Ada").await;
        window.press("Send answer").await;
        window.gone(name).await;
        let reply = run.reply().unwrap();
        let accepted = r#""action": "accept", "content": {"name": "Ada"}"#;
        assert!(reply.stdout().contains(accepted), "{}", reply.result);
        desk.screen.line(&["Ready, 1 client connected"]);
        client.close();
        window.end(&desk).await;
        desk.close();
    });
}

#[test]
fn a_client_is_answered_when_the_app_is_killed_and_served_when_it_is_back() {
    with_engine("the app is killed in mid-call", async {
        let mut desk = Desk::new(json!({}));
        desk.start_hidden();
        let client = desk.client();
        let run = client.send_run(json!({ "code": "await mcp_stub.never()", "timeout": 100 }));
        until("the run has reached its server", || {
            desk.server_starts() == 1
        });
        desk.kill();
        let error = run.wait(Duration::from_secs(30)).unwrap_err();
        let RequestError::Rpc { data, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(data["code"], "bridge_restarted");
        desk.start_hidden();
        let reply = client.run("print(await mcp_stub.echo(text='again'))");
        assert!(reply.stdout().contains("again"), "{}", reply.result);
        client.close();
        desk.close();
    });
}

#[test]
fn the_window_is_shown_by_a_second_start_and_its_end_keeps_the_app() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut desk = Desk::new(json!({}));
        desk.start_hidden();
        assert!(desk.windows("Runbridge").is_empty());
        let mut second = desk.spawn(&[]);
        assert!(second.wait().unwrap().success());
        until("the window is shown", || {
            desk.windows("Runbridge").len() == 1
        });
        let web = || desk.processes_named("WebKitWebProcess").len();
        until("the page is drawn", || web() == 1);
        // As a click on the cross.
        let window = desk.windows("Runbridge").remove(0);
        desk.xdotool(&["windowclose", &window]);
        until("the webview is gone", || web() == 0);
        desk.wait_until_served();
        desk.screen.click(&["Open"]);
        until("the window is shown again", || {
            desk.windows("Runbridge").len() == 1
        });
        desk.close();
    });
}
