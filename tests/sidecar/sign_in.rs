//! `runbridge login` and `logout` with the sign-in example of the TypeScript SDK.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use runbridge_testkit::{TempHome, wait_for};
use serde_json::json;

use crate::SIDECAR;

const EXAMPLE: &str =
    "npm/node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js";

struct Example {
    port: u16,
    process: Child,
}

impl Example {
    /// Its provider approves of everybody who opens the page.
    fn start(components: &Path) -> Self {
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let (port, provider) = (free(), free());
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        let process = Command::new("node")
            .arg("--require")
            .arg(fixtures.join("node/port_from_env.cjs"))
            .arg(components.join(EXAMPLE))
            .arg("--oauth")
            .env_remove("PORT")
            .env("MCP_PORT", port.to_string())
            .env("MCP_AUTH_PORT", provider.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let example = Self { port, process };
        wait_for(Duration::from_secs(30), || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        })
        .expect("the example listens");
        example
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn runbridge(home: &TempHome, arguments: &[&str]) -> Command {
    let mut command = Command::new(SIDECAR);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home.path())
        .stdin(Stdio::null());
    command
}

fn said(home: &TempHome, arguments: &[&str]) -> String {
    let done = runbridge(home, arguments).output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    String::from_utf8(text).unwrap()
}

/// Open a page as a browser does, following where it leads.
fn browse(url: &str) -> String {
    let mut url = url.to_owned();
    for _ in 0..5 {
        let (host, rest) = url
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once('/'))
            .unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "GET /{rest} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let location = answer.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("location").then_some(value)
        });
        match location {
            Some(location) => location.clone_into(&mut url),
            None => return answer,
        }
    }
    panic!("it leads nowhere: {url}");
}

#[test]
fn a_person_without_the_app_signs_in_and_out() {
    let Some(components) = std::env::var_os("RUNBRIDGE_TEST_COMPONENTS") else {
        runbridge_testkit::skip("login", "the TypeScript SDK is not installed");
        return;
    };
    let example = Example::start(Path::new(&components));
    let home = TempHome::new();
    let url = format!("http://localhost:{}/mcp", example.port);
    let entry = json!({ "greeter": { "url": url } });
    home.write_servers(entry.as_object().unwrap());
    let before = said(&home, &["servers", "--start"]);
    assert!(before.contains("runbridge login greeter"), "{before}");

    let mut login = runbridge(&home, &["login", "greeter", "--no-browser"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(login.stdout.take().unwrap()).lines();
    let page = lines
        .find_map(|line| line.ok().filter(|line| line.starts_with("http")))
        .expect("the address is printed");
    let shown = browse(&page);
    assert!(shown.contains("You are signed in."), "{shown}");
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    assert!(login.wait().unwrap().success());
    assert_eq!(rest.last().unwrap(), "signed in to greeter");

    let after = said(&home, &["servers", "--start"]);
    assert!(
        after.contains("greeter") && !after.contains("sign in"),
        "{after}"
    );
    let names = said(&home, &["secret", "list"]);
    assert!(names.contains("sign-in to localhost"), "{names}");

    let out = said(&home, &["logout", "greeter"]);
    assert!(out.contains("signed out of greeter"), "{out}");
    let out = said(&home, &["logout", "greeter"]);
    assert!(out.contains("nobody was signed in to greeter"), "{out}");
    let again = said(&home, &["servers", "--start"]);
    assert!(again.contains("runbridge login greeter"), "{again}");
    let wrong = said(&home, &["login", "greter"]);
    assert!(wrong.contains("no server is named `greter`"), "{wrong}");
}
