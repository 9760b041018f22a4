//! An image that the engine does not have yet, from a registry of the test's own.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use runbridge_testkit::{Engine, Gives, Registry, RegistryImage, TempHome, image, wait_for};
use serde_json::json;

use crate::{SIDECAR, on, on_every_engine};

on_every_engine!(
    the_first_run_tells_how_far_the_image_is,
    a_run_that_its_client_cancels_does_not_wait_for_the_image,
    a_run_that_is_interrupted_at_a_terminal_does_not_wait_for_the_image,
    a_run_without_its_image_says_why_and_what_to_do,
);

/// Enough for any engine to ask for the layer, on a machine that has other work.
const ASKED_WITHIN: Duration = Duration::from_secs(30);

/// What no wait for an image could be taken for.
const AT_ONCE: Duration = Duration::from_secs(5);

fn the_first_run_tells_how_far_the_image_is(engine: Engine) {
    let image = RegistryImage::upon(&engine, &image(), 6 << 20);
    let registry = Registry::serve(image, Gives::Slowly);
    let reference = registry.reference("here");
    let bridge = on(engine.clone())
        .variable("MCP_BRIDGE_IMAGE", &reference)
        .start(TempHome::new());
    let params = json!({
        "name": "run_python",
        "arguments": { "code": "import os\nprint(os.path.getsize('/noise'))" },
        "_meta": { "progressToken": "pull" },
    });
    let pending = bridge.client().send_request("tools/call", params);
    let start = format!("pulling {reference}: ");
    let told_of = || -> Vec<u64> {
        let told = bridge.client().notifications("notifications/progress");
        told.iter()
            .filter_map(|one| one["params"]["message"].as_str()?.strip_prefix(&start))
            .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
            .collect()
    };
    let different = || told_of().into_iter().collect::<BTreeSet<_>>().len();
    let enough = wait_for(ASKED_WITHIN, || (different() >= 3).then_some(()));
    registry.hurry();
    assert!(enough.is_some(), "{:?}", told_of());
    let result = pending.wait(Duration::from_mins(2)).unwrap();
    assert_eq!(
        result["structuredContent"]["stdout"],
        format!("{}\n", 6 << 20),
        "{result}"
    );

    let told = bridge.client().notifications("notifications/progress");
    let counts: Vec<f64> = told
        .iter()
        .map(|one| one["params"]["progress"].as_f64().unwrap())
        .collect();
    assert!(counts.is_sorted_by(|one, next| one < next), "{counts:?}");
    let done = told_of();
    assert!(done.is_sorted(), "{done:?}");
    let log = std::fs::read_to_string(bridge.home().join("stderr.log")).unwrap();
    let steps = log.lines().filter(|line| line.contains(&start)).count();
    assert!(steps >= 3, "{log}");
    bridge.assert_goes_on();
    bridge.close();
    engine.remove_image(&reference);
}

fn a_run_that_its_client_cancels_does_not_wait_for_the_image(engine: Engine) {
    let registry = Registry::serve(RegistryImage::new(1 << 20), Gives::Little);
    let reference = registry.reference("here");
    let bridge = on(engine.clone())
        .variable("MCP_BRIDGE_IMAGE", &reference)
        .start(TempHome::new());
    let run = bridge.client().send_run(json!({ "code": "print(1)" }));
    let asked = wait_for(ASKED_WITHIN, || registry.is_asked().then_some(()));
    assert!(asked.is_some(), "{}", bridge.client().stderr());
    bridge.client().cancel(run.id);
    let cancelled = Instant::now();
    // A cancelled request has no answer; what comes after it has.
    bridge.client().request("tools/list", json!({})).unwrap();
    let closed = bridge.close();
    let took = cancelled.elapsed();
    assert!(took < AT_ONCE, "{took:?}, {:?} of it to end", closed.took);
    no_pull_is_left(&engine, &registry);
}

fn a_run_that_is_interrupted_at_a_terminal_does_not_wait_for_the_image(engine: Engine) {
    let registry = Registry::serve(RegistryImage::new(1 << 20), Gives::Little);
    let home = TempHome::new();
    let child = Command::new(SIDECAR)
        .args(["run", "-c", "print(1)"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("TMPDIR", home.temp_dir())
        .env("MCP_BRIDGE_IMAGE", registry.reference("here"))
        .envs(engine.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = wait_for(ASKED_WITHIN, || registry.is_asked().then_some(()));
    assert!(asked.is_some());
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    let interrupted = Instant::now();
    let output = child.wait_with_output().unwrap();
    let took = interrupted.elapsed();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(took < AT_ONCE, "{took:?}");
    no_pull_is_left(&engine, &registry);
}

/// The engine has given up the image of a registry that takes its time.
#[track_caller]
fn no_pull_is_left(engine: &Engine, registry: &Registry) {
    let given_up = wait_for(ASKED_WITHIN, || registry.is_given_up().then_some(()));
    assert!(given_up.is_some(), "the pull goes on without its bridge");
    assert!(!engine.has_image(&registry.reference("here")));
}

fn a_run_without_its_image_says_why_and_what_to_do(engine: Engine) {
    for (gives, tag, said) in [
        (Gives::All, "absent", &["manifest unknown"][..]),
        (
            Gives::Nothing,
            "here",
            &["no basic auth", "unauthorized", "authentication required"],
        ),
        (Gives::Half, "here", &["EOF", "connection reset"]),
    ] {
        let registry = Registry::serve(RegistryImage::new(1 << 20), gives);
        let reference = registry.reference(tag);
        let bridge = on(engine.clone())
            .variable("MCP_BRIDGE_IMAGE", &reference)
            .start(TempHome::new());
        let reply = bridge.run("print(1)");
        assert_eq!(reply.status(), "error", "{}", reply.result);
        let text = reply.text();
        assert!(
            text.contains("image_missing") && text.contains(&reference),
            "{text}"
        );
        assert!(
            said.iter().any(|part| text.contains(part)),
            "{gives:?}: {text}"
        );
        assert!(text.contains("pull it by hand"), "{text}");
        bridge.close();
        assert!(!engine.has_image(&reference), "{gives:?}");
    }
}
