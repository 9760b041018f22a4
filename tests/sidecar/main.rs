//! The real binary over real stdio, in real containers and the built-in sandbox. It knows the promise made to the model and
//! its client, and nothing of the code that keeps it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test ends where its set-up fails, and each owns its engine"
)]

mod builtin;
mod clients;
mod face;
mod failures_of_clients;
mod failures_of_code;
mod failures_of_engines;
mod failures_of_servers;
mod http_face;
mod limits;
mod memory;
mod packages;
mod patience;
mod pulling;
mod python;
mod questions;
mod real_clients;
mod real_peers;
mod real_servers;
#[cfg(unix)]
mod relay;
mod reply;
mod revisions;
mod sandbox;
#[cfg(target_os = "linux")]
mod secrets;
mod servers;
mod sign_in;
mod tokens;

use runbridge_testkit::{Bridge, BridgeOptions, Engine, TempHome};
use serde_json::{Value, json};

/// The binary under test.
const SIDECAR: &str = env!("CARGO_BIN_EXE_runbridge");

/// The engine for a test that needs just one; without any, the built-in sandbox.
fn engine() -> Engine {
    engines().into_iter().next().unwrap_or_else(Engine::builtin)
}

fn engines() -> Vec<Engine> {
    assert_prepared();
    Engine::all()
}

fn assert_prepared() {
    assert!(
        std::env::var_os("RUNBRIDGE_TEST_ENGINES").is_some(),
        "these tests need sandboxes, an image and servers: run `cargo xtask test`",
    );
}

/// Options of a bridge on `engine`.
fn on(engine: Engine) -> BridgeOptions {
    BridgeOptions::new(SIDECAR, engine)
}

/// A bridge on any engine with no servers.
fn bridge() -> Bridge {
    bridge_on(engine())
}

/// A bridge on `engine` with no servers.
fn bridge_on(engine: Engine) -> Bridge {
    on(engine).start(TempHome::new())
}

/// A bridge on `engine` with the scripted server, as `stub`.
fn with_stub(engine: Engine) -> Bridge {
    with_stub_and(engine, &[], json!({}))
}

/// A bridge whose scripted server has options, with a settings file.
fn with_stub_and(engine: Engine, arguments: &[&str], settings: Value) -> Bridge {
    let home = TempHome::new();
    let entry = home.stub(arguments);
    on(engine)
        .server("stub", entry)
        .settings(settings)
        .start(home)
}

/// Run a case on the engine called `name`, or say that it was skipped.
fn run_case(name: &str, test: &str, case: fn(Engine)) {
    assert_prepared();
    match Engine::named(name) {
        Some(engine) => case(engine),
        None => runbridge_testkit::skip(&format!("{test} on {name}"), "the engine is not there"),
    }
}

/// Make a test of a function in each of these sandboxes.
macro_rules! in_sandboxes {
    ($case:ident: $($test:ident = $sandbox:literal),*) => { $(
        #[test]
        fn $test() {
            crate::run_case($sandbox, stringify!($case), super::$case);
        }
    )* };
}
use in_sandboxes;

/// Make a test of each function on each kind of engine.
macro_rules! on_every_engine {
    ($($case:ident),* $(,)?) => { $(
        mod $case {
            crate::in_sandboxes!($case: podman = "podman", docker = "docker",
                podman_rootless = "podman-rootless");
        }
    )* };
}
use on_every_engine;

/// As [`on_every_engine`], and in the built-in sandbox too: what both kinds promise.
macro_rules! on_every_sandbox {
    ($($case:ident),* $(,)?) => { $(
        mod $case {
            crate::in_sandboxes!($case: podman = "podman", docker = "docker",
                podman_rootless = "podman-rootless", builtin = "builtin");
        }
    )* };
}
use on_every_sandbox;

/// Make two tests of each function: in a container of the first engine, and in the built-in sandbox.
/// For what differs between the kinds, and not between engines.
macro_rules! on_both_kinds {
    ($($case:ident),* $(,)?) => { $(
        mod $case {
            #[test]
            fn container() {
                match crate::engines().into_iter().next() {
                    Some(engine) => super::$case(engine),
                    None => runbridge_testkit::skip(
                        concat!(stringify!($case), " in a container"),
                        "no engine is there",
                    ),
                }
            }

            crate::in_sandboxes!($case: builtin = "builtin");
        }
    )* };
}
use on_both_kinds;
