//! Clients that others wrote, against the sidecar over stdio and over HTTP: the protocol's inspector,
//! and the client libraries of both generations.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runbridge_testkit::{Components, TempHome, image};
use serde_json::Value;

use crate::http_face::Face;
use crate::{SIDECAR, engine};

fn components() -> Components {
    Components::from_env().expect("RUNBRIDGE_TEST_COMPONENTS: run `cargo xtask test`")
}

/// Whether what this test needs was installed; else it counts as skipped.
fn ready(test: &str) -> bool {
    let there = components().node().is_file();
    if !there {
        runbridge_testkit::skip(test, "`cargo xtask setup` has not installed Node 22");
    }
    there
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/clients")
        .join(name)
}

/// What the inspector says, which must be content; its output as JSON.
fn inspects(home: &TempHome, arguments: &[&str]) -> Value {
    let components = components();
    let output = Command::new(components.node())
        .arg(components.inspector())
        .arg("--cli")
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .output()
        .unwrap();
    let text = succeeded(&output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{}\n{stdout}{stderr}",
        output.status
    );
    stdout
}

/// A library's script, in a home of its own, with what it needs to reach the sidecar.
fn drives(interpreter: &Path, name: &str, reach: &[(&str, &str)]) {
    let (home, engine) = (TempHome::new(), engine());
    let output = Command::new(interpreter)
        .arg(script(name))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("TMPDIR", home.temp_dir())
        .env("SHELL", "/bin/sh")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RUNBRIDGE_HOME", home.join(".runbridge"))
        .env("MCP_BRIDGE_IMAGE", image())
        .envs(engine.variables())
        .env("COMPONENTS", components().dir())
        .envs(reach.iter().copied())
        .output()
        .unwrap();
    succeeded(&output);
}

#[test]
fn the_inspector_finds_nothing_to_object_to() {
    if !ready("the_inspector_finds_nothing_to_object_to") {
        return;
    }
    let home = TempHome::new();
    let ours = format!("RUNBRIDGE_HOME={}", home.join(".runbridge").display());
    let stdio = [
        SIDECAR,
        "-e",
        &ours,
        "-e",
        "MCP_BRIDGE_RUNTIME=docker",
        "-e",
        "DOCKER_HOST=unix:///nonexistent",
    ];
    let strict = ["--method", "tools/list", "--strict"];
    let list = inspects(&home, &[&stdio[..], &strict].concat());
    assert_eq!(list["tools"][0]["name"], "run_python", "{list}");
    let face = Face::start();
    let (url, bearer) = (
        face.url(),
        format!("Authorization: Bearer {}", face.token()),
    );
    let http = [url.as_str(), "--transport", "http", "--header", &bearer];
    let list = inspects(&home, &[&http[..], &strict].concat());
    assert_eq!(list["tools"][0]["name"], "run_python", "{list}");
    let call = [
        "--method",
        "tools/call",
        "--tool-name",
        "run_python",
        "--tool-arg",
        "code=print(6 * 7)",
    ];
    let reply = inspects(&home, &[&http[..], &call].concat());
    assert_eq!(reply["structuredContent"]["stdout"], "42\n", "{reply}");
    face.end();
}

#[test]
fn the_newer_typescript_library_speaks_both_eras_over_stdio() {
    if !ready("the_newer_typescript_library_speaks_both_eras_over_stdio") {
        return;
    }
    let node = components().node();
    drives(&node, "typescript_client.mjs", &[("SIDECAR", SIDECAR)]);
}

#[test]
fn the_newer_typescript_library_speaks_both_eras_over_http() {
    if !ready("the_newer_typescript_library_speaks_both_eras_over_http") {
        return;
    }
    let face = Face::start();
    let node = components().node();
    let reach = [("URL", face.url()), ("TOKEN", face.token().to_owned())];
    let reach: Vec<_> = reach
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    drives(&node, "typescript_client.mjs", &reach);
    face.end();
}

#[test]
fn the_python_library_speaks_both_eras_over_http() {
    if !ready("the_python_library_speaks_both_eras_over_http") {
        return;
    }
    let face = Face::start();
    let python = components().clients_python();
    let reach = [("URL", face.url()), ("TOKEN", face.token().to_owned())];
    let reach: Vec<_> = reach
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    drives(&python, "python_http.py", &reach);
    face.end();
}
