//! The tray through D-Bus, as a panel shows it: what it says, what a click does, which icon is shown.

use std::io::Cursor;

use runbridge_testkit::Engine;
use serde_json::json;

use crate::app::{Desk, until};

const GIB: u64 = 1024 * 1024 * 1024;

/// Which of our pictures the panel was given.
fn look(desk: &Desk) -> &'static str {
    let given = desk.screen.icon_file();
    // It is drawn anew between two questions.
    let Some(given) = pixels(&given) else {
        return "none";
    };
    macro_rules! picture {
        ($name:literal) => {
            (
                $name,
                include_bytes!(concat!("../../icons/tray-", $name, ".png")).as_slice(),
            )
        };
    }
    [
        picture!("idle"),
        picture!("active"),
        picture!("attention"),
        picture!("idle-dark"),
        picture!("active-dark"),
        picture!("attention-dark"),
    ]
    .into_iter()
    .find(|(_, picture)| pixels(picture).as_ref() == Some(&given))
    .map_or("another", |(name, _)| name)
}

fn pixels(picture: &[u8]) -> Option<Vec<u8>> {
    let mut reader = png::Decoder::new(Cursor::new(picture)).read_info().ok()?;
    let mut pixels = vec![0; reader.output_buffer_size()?];
    reader.next_frame(&mut pixels).ok()?;
    Some(pixels)
}

fn status(desk: &Desk) -> String {
    desk.screen.menu()[0]["label"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn limits_servers_and_the_start_at_login_are_changed_in_the_tray() {
    let mut desk = Desk::new(json!({}));
    desk.start_hidden();
    let screen = &desk.screen;

    // The present value is checked, and it alone.
    let checked = |name: &str| -> Vec<String> {
        let menu = screen.line(&[name]);
        let lines = menu["items"].as_array().unwrap();
        lines
            .iter()
            .filter(|line| line["checked"] == true)
            .map(|line| line["label"].as_str().unwrap().to_owned())
            .collect()
    };
    screen.line(&["Memory per sandbox: 512 MiB"]);
    assert_eq!(checked("Memory"), ["512 MiB"]);
    screen.click(&["Memory", "1 GiB"]);
    screen.line(&["Memory per sandbox: 1 GiB"]);
    assert_eq!(checked("Memory"), ["1 GiB"]);
    assert_eq!(desk.settings()["limits"]["memory_bytes_max"], GIB);
    screen.click(&["Time per run", "1 min"]);
    screen.line(&["Time per run: 1 min"]);
    screen.click(&["CPU per sandbox", "2 cores"]);
    screen.line(&["CPU per sandbox: 2 cores"]);
    assert_eq!(desk.settings()["limits"]["run_ms_default"], 60_000);
    assert_eq!(desk.settings()["limits"]["cpu_thousandths_max"], 2000);

    assert_eq!(
        screen.line(&["Servers (1 of 1 on)", "stub"])["checked"],
        true
    );
    screen.click(&["Servers", "stub"]);
    assert_eq!(
        screen.line(&["Servers (0 of 1 on)", "stub"])["checked"],
        false
    );

    let entry = desk.home.join(".config/autostart/Runbridge.desktop");
    screen.click(&["Start at login"]);
    until("the app is started at login", || {
        std::fs::read_to_string(&entry).is_ok_and(|text| text.contains("--hidden"))
    });
    screen.click(&["Start at login"]);
    until("the app is no longer started at login", || !entry.exists());

    screen.click(&["Quit"]);
    desk.ended();
    desk.close();
}

#[test]
fn the_icon_follows_the_runs_and_a_run_is_stopped_in_the_tray() {
    if Engine::all().is_empty() {
        return runbridge_testkit::skip("the icon follows the runs", "no engine is ready");
    }
    let mut desk = Desk::new(json!({}));
    desk.start_hidden();
    until("the icon is idle", || look(&desk) == "idle");
    let client = desk.client();
    desk.screen.line(&["Ready, 1 client connected"]);
    desk.screen.line(&["Clients (1)", "runbridge-testkit"]);

    // A preset counts for the next interpreter.
    let greedy = "print(len(b'x' * (300 * 1024 * 1024)))";
    assert_eq!(client.run(greedy).status(), "success");
    desk.screen.click(&["Memory", "256 MiB"]);
    desk.screen.line(&["Memory per sandbox: 256 MiB"]);
    // What is live keeps the limit that it was started with.
    let reply = client.run_with(json!({ "code": greedy, "session": "new" }));
    assert_eq!(reply.status(), "out_of_memory", "{}", reply.result);

    let run = client.send_run(json!({
        "code": "import asyncio\nawait asyncio.sleep(100)",
        "timeout": 100,
    }));
    desk.screen.line(&["1 run under way"]);
    until("the icon is active", || look(&desk) == "active");
    desk.screen.click(&[
        "Runs (1)",
        "Stop “await asyncio.sleep(100)” of runbridge-testkit",
    ]);
    assert_eq!(run.reply().unwrap().status(), "cancelled");
    until("the icon is idle again", || look(&desk) == "idle");

    desk.screen.click(&["Pause all"]);
    desk.screen.line(&["Paused"]);
    assert_ne!(client.run("print(1)").status(), "success");
    desk.screen.click(&["Pause all"]);
    desk.screen.line(&["Ready"]);
    let reply = client.run("print(1)");
    assert_eq!(reply.status(), "success", "{}", reply.result);
    client.close();
    desk.screen.line(&["Ready, no client connected"]);
    desk.close();
}

#[test]
fn what_needs_the_user_is_told_once() {
    let mut desk = Desk::new(json!({}));
    desk.start_hidden();
    desk.screen.line(&["Servers (1 of 1 on)"]);
    desk.home
        .write(".runbridge/config/settings.json", "{ broken");
    until("the icon asks for attention", || look(&desk) == "attention");
    until("the user is told", || {
        !desk.screen.notifications().is_empty()
    });
    let told = desk.screen.notifications();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(!status(&desk).starts_with("Ready"), "{}", status(&desk));
    desk.home.write(".runbridge/config/settings.json", "{}");
    until("the icon is idle again", || look(&desk) == "idle");
    desk.close();
}

#[test]
fn quitting_asks_once_while_a_client_is_connected() {
    let mut desk = Desk::new(json!({}));
    desk.start_hidden();
    let client = desk.client();
    desk.screen.line(&["Clients (1)", "runbridge-testkit"]);
    desk.screen.click(&["Quit"]);
    let question = || desk.windows("Quit Runbridge");
    until("the question is asked", || question().len() == 1);
    desk.screen.click(&["Quit"]);
    // It answers clients all the while, and a second click adds no second question.
    assert!(client.request("tools/list", json!({})).is_ok());
    assert_eq!(question().len(), 1);
    press(&desk, &question()[0], "Escape");
    until("the question is gone", || question().is_empty());
    assert!(client.request("tools/list", json!({})).is_ok());

    desk.screen.click(&["Quit"]);
    until("the question is asked again", || question().len() == 1);
    press(&desk, &question()[0], "Return");
    desk.ended();
    client.close();
    desk.close();
}

fn press(desk: &Desk, window: &str, keys: &str) {
    desk.xdotool(&["windowactivate", "--sync", window, "key", keys]);
}
