//! Where secrets are kept: with a real keyring in a D-Bus session of the test's own, with one that
//! is locked, with one that hangs and with none.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runbridge_testkit::{TempHome, wait_for};
use serde_json::{Value, json};

use crate::SIDECAR;

/// Asking a keyring takes at most 2 s; the rest is a slow machine's.
const BOUNDED: Duration = Duration::from_secs(8);

/// Its name on the bus.
const SECRETS: &str = "org.freedesktop.secrets";

/// A session bus with a keyring on it.
struct Session {
    home: TempHome,
    address: String,
    processes: Vec<Child>,
}

impl Session {
    /// `None` where the programs are not installed.
    fn start(test: &str) -> Option<Self> {
        let home = TempHome::new();
        std::fs::create_dir(home.join("run")).unwrap();
        let bus = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--print-address=1"])
            .arg(format!(
                "--address=unix:path={}",
                home.join("bus").display()
            ))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut bus) = bus else {
            runbridge_testkit::skip(test, "dbus-daemon is not installed");
            return None;
        };
        let mut address = String::new();
        BufReader::new(bus.stdout.take().unwrap())
            .read_line(&mut address)
            .unwrap();
        let mut session = Self {
            home,
            address: address.trim().to_owned(),
            processes: vec![bus],
        };
        if !session.start_keyring() {
            runbridge_testkit::skip(test, "gnome-keyring-daemon is not installed");
            return None;
        }
        Some(session)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.join("run"))
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        command
    }

    fn send(&self, to: &str, path: &str, method: &str, arguments: &[&str]) -> Option<String> {
        let sent = self
            .command("dbus-send")
            .args(["--session", "--print-reply", "--reply-timeout=5000"])
            .args([&format!("--dest={to}"), path, method])
            .args(arguments)
            .output()
            .unwrap();
        sent.status
            .success()
            .then(|| String::from_utf8_lossy(&sent.stdout).into_owned())
    }

    fn is_locked(&self) -> Option<bool> {
        let answer = self.send(
            SECRETS,
            "/org/freedesktop/secrets/collection/login",
            "org.freedesktop.DBus.Properties.Get",
            &["string:org.freedesktop.Secret.Collection", "string:Locked"],
        )?;
        Some(answer.contains("boolean true"))
    }

    fn lock(&self) {
        let collection = "array:objpath:/org/freedesktop/secrets/collection/login";
        let path = "/org/freedesktop/secrets";
        let method = "org.freedesktop.Secret.Service.Lock";
        self.send(SECRETS, path, method, &[collection]).unwrap();
        assert_eq!(self.is_locked(), Some(true));
    }

    /// As when the user signs in: the keyring is told the password and nobody is asked.
    fn start_keyring(&mut self) -> bool {
        let daemon = self
            .command("gnome-keyring-daemon")
            .args(["--foreground", "--unlock", "--components=secrets"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut daemon) = daemon else { return false };
        daemon.stdin.take().unwrap().write_all(b"pw").unwrap();
        self.processes.push(daemon);
        // A call of the service itself would have the bus start a second one.
        let is_up = || {
            let owned = self.send(
                "org.freedesktop.DBus",
                "/",
                "org.freedesktop.DBus.NameHasOwner",
                &["string:org.freedesktop.secrets"],
            );
            owned?.contains("boolean true").then_some(())
        };
        wait_for(Duration::from_secs(20), is_up).expect("the keyring never came up");
        assert_eq!(self.is_locked(), Some(false));
        true
    }

    fn sign_in_anew(&mut self) {
        let mut keyring = self.processes.pop().unwrap();
        keyring.kill().unwrap();
        keyring.wait().unwrap();
        assert!(self.start_keyring());
    }

    fn secret(&self, arguments: &[&str], value: &str) -> String {
        secret(self.command(SIDECAR), arguments, value)
    }

    fn list(&self) -> Value {
        serde_json::from_str(&self.secret(&["list", "--json"], "")).unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// `runbridge secret …`, within the bound.
fn secret(mut command: Command, arguments: &[&str], value: &str) -> String {
    let begun = Instant::now();
    let mut child = command
        .arg("secret")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(value.as_bytes())
        .unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < BOUNDED, "{:?}", begun.elapsed());
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}

fn without_keyring(home: &TempHome, bus: Option<&Path>) -> Command {
    let mut command = Command::new(SIDECAR);
    command.env_clear().env("HOME", home.path());
    if let Some(bus) = bus {
        command.env(
            "DBUS_SESSION_BUS_ADDRESS",
            format!("unix:path={}", bus.display()),
        );
    }
    command
}

#[test]
fn a_locked_keyring_asks_nobody_and_what_is_kept_meanwhile_moves_over() {
    let Some(mut session) = Session::start("a locked keyring") else {
        return;
    };
    let said = session.secret(&["set", "FIRST"], "value-one\n");
    assert!(said.contains("with the system's keyring"), "{said}");
    assert_eq!(
        session.list(),
        json!({ "place": "keyring", "reason": null, "names": ["FIRST"] })
    );

    session.lock();
    let said = session.secret(&["set", "SECOND"], "value-two");
    assert!(said.contains("it is locked"), "{said}");
    let listed = session.list();
    assert_eq!(
        (&listed["place"], &listed["names"]),
        (&json!("encrypted_file"), &json!(["SECOND"]))
    );
    assert_eq!(
        session.is_locked(),
        Some(true),
        "it was not to be asked for"
    );

    session.sign_in_anew();
    assert_eq!(
        session.list(),
        json!({ "place": "keyring", "reason": null, "names": ["FIRST", "SECOND"] })
    );
    session.secret(&["forget", "FIRST"], "");
    assert_eq!(session.list()["names"], json!(["SECOND"]));
    let folder = session.home.join(".local/share/runbridge/secrets");
    assert!(folder.join("keyring.json").exists() && !folder.join("file.json").exists());
}

#[test]
fn without_a_keyring_an_encrypted_file_is_used_and_says_why() {
    let home = TempHome::new();
    let said = secret(without_keyring(&home, None), &["set", "A"], "value-a");
    assert!(said.contains("there is no session bus"), "{said}");
    let listed = secret(without_keyring(&home, None), &["list", "--json"], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["names"], json!(["A"]));
    let file = home.join(".local/share/runbridge/secrets/file.json");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.contains("value-a"), "{text}");
}

#[test]
fn a_keyring_that_never_answers_is_not_waited_for() {
    let home = TempHome::new();
    // A bus that takes the connection and says nothing.
    let bus = home.join("bus");
    let _silent = UnixListener::bind(&bus).unwrap();
    let said = secret(without_keyring(&home, Some(&bus)), &["set", "A"], "value-a");
    assert!(said.contains("did not answer within 2 s"), "{said}");
}
