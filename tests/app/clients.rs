//! Many clients, one app: what they share, what is each one's own, and that they leave nothing.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use runbridge_testkit::{Components, Engine, wait_for};
use serde_json::json;

use crate::app::{Desk, until};
use crate::screen::PATIENCE;

const CLIENTS: usize = 50;

/// Those that run Python; a container each is what takes time.
const RUNNING: usize = 10;

/// The copy of the sidecar that clients' files name.
fn registered(desk: &Desk) -> PathBuf {
    let copy = desk.home.join(".runbridge/data/bin/runbridge");
    assert!(copy.is_file(), "there is no {}", copy.display());
    copy
}

#[test]
fn real_clients_at_the_registered_path_share_one_process_per_server() {
    let name = "real clients at the registered path";
    let (false, Some(components)) = (Engine::all().is_empty(), Components::from_env()) else {
        return runbridge_testkit::skip(name, "no engine or no components are ready");
    };
    let mut desk = Desk::new(json!({}));
    desk.home.write("files/hello.txt", "hello from a file\n");
    let servers = components.entries(&["filesystem", "time"], &desk.home);
    desk.home.write_servers(&servers);
    desk.start_hidden();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("clients");
    let folder = std::env::var_os("RUNBRIDGE_TEST_COMPONENTS").unwrap();
    let python = Path::new(&folder).join("py/clients/bin/python");
    let started = [
        (python.as_path(), "python_sdk_session.py"),
        (Path::new("node"), "typescript_sdk.mjs"),
    ]
    .map(|(interpreter, script)| {
        let log = std::fs::File::create(desk.home.join(script)).unwrap();
        let mut client = desk.command(&interpreter.to_string_lossy());
        client
            .arg(scripts.join(script))
            .env("SIDECAR", registered(&desk))
            .env("COMPONENTS", &folder)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        (script, client.spawn().unwrap())
    });
    for (script, mut client) in started {
        let status = wait_for(2 * PATIENCE, || client.try_wait().unwrap());
        assert!(
            status.is_some_and(|status| status.success()),
            "{script} ended with {status:?}\n{}\n{}",
            std::fs::read_to_string(desk.home.join(script)).unwrap(),
            desk.log()
        );
    }
    // Servers stay for the next call, so they can be counted now.
    for server in ["mcp-server-filesystem", "mcp-server-time"] {
        let processes = desk.processes_named(server);
        assert_eq!(processes.len(), 1, "{processes:#?}");
    }
    desk.close();
}

#[test]
fn fifty_clients_come_and_go_and_nothing_is_left() {
    if Engine::all().is_empty() {
        return runbridge_testkit::skip("fifty clients", "no engine is ready");
    }
    let mut desk = Desk::new(json!({}));
    desk.start_hidden();
    let sidecar = registered(&desk);
    let clients: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| desk.client_of(&sidecar)))
            .collect();
        starting
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect()
    });
    desk.screen
        .line(&["Clients (50)", "runbridge-testkit (50)"]);
    for client in &clients {
        assert!(client.request("tools/list", json!({})).is_ok());
    }
    let runs: Vec<_> = clients[..RUNNING]
        .iter()
        .enumerate()
        .map(|(number, client)| {
            let code = format!("own = {number}\nprint(await mcp_stub.echo(text=str(own)))");
            client.send_run(json!({ "code": code, "timeout": 100 }))
        })
        .collect();
    for (number, run) in runs.into_iter().enumerate() {
        let reply = run.reply().unwrap();
        assert_eq!(reply.status(), "success", "{}", reply.result);
        assert!(
            reply.stdout().contains(&number.to_string()),
            "{}",
            reply.result
        );
    }
    assert_eq!(desk.server_starts(), 1);
    // Half of them close in order, half are gone at once.
    for (number, client) in clients.into_iter().enumerate() {
        if number % 2 == 0 {
            client.close();
        } else {
            client.kill();
        }
    }
    desk.screen.line(&["Ready, no client connected"]);
    until("the containers of all clients are gone", || {
        // The app's own spare stays.
        desk.leftovers.note_owner();
        desk.leftovers.running_containers() <= 1
    });
    desk.close();
}
