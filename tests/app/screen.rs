//! A desktop without a screen: an X server, a session bus and a panel, all of one test's own.

use std::io::{BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use runbridge_testkit::{TempHome, wait_for};
use serde_json::{Value, json};

/// Longest wait for anything on this machine, which may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The desktop. Dropping it ends all of it.
pub(crate) struct Screen {
    display: String,
    bus: String,
    panel: Mutex<Panel>,
    /// The folder of the bus's socket, which a killed bus leaves behind.
    run: PathBuf,
    children: Vec<Ending>,
}

/// A program that ends with the test, however that ends.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Panel {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Screen {
    /// Start one whose files are in `home`.
    pub(crate) fn start(home: &TempHome) -> Self {
        let (server, display) = Self::x_server();
        let (daemon, bus) = Self::session_bus(home);
        // The system's own, which has the bindings.
        let panel = command("/usr/bin/python3", home)
            .args(["-B", "-c", include_str!("tray_host.py")])
            .env("DBUS_SESSION_BUS_ADDRESS", &bus)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut panel = Ending(panel);
        let mut stdout = BufReader::new(panel.0.stdout.take().unwrap());
        assert!(
            line_of(&mut stdout).contains("ready"),
            "the panel did not start; python3-gi may be missing"
        );
        let pipes = Panel {
            stdin: panel.0.stdin.take().unwrap(),
            stdout,
        };
        let screen = Self {
            display,
            bus,
            panel: Mutex::new(pipes),
            run: home.join("run"),
            children: vec![panel, daemon, server],
        };
        screen.window_manager(home)
    }

    fn x_server() -> (Ending, String) {
        let server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-nolisten", "tcp", "-noreset"])
            .args(["-screen", "0", "1280x900x24"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb is missing: run `cargo xtask setup`");
        let mut server = Ending(server);
        let number = line_of(&mut BufReader::new(server.0.stdout.take().unwrap()));
        assert!(!number.trim().is_empty(), "Xvfb found no free display");
        (server, format!(":{}", number.trim()))
    }

    /// It starts no services, so that nothing outlives the test.
    fn session_bus(home: &TempHome) -> (Ending, String) {
        let config = format!(
            "<busconfig><type>session</type><listen>unix:dir={}</listen>\
             <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
             <allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>",
            home.join("run").display()
        );
        home.write("bus.conf", &config);
        let daemon = Command::new("dbus-daemon")
            .args(["--nofork", "--print-address=1", "--config-file"])
            .arg(home.join("bus.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("dbus-daemon is missing: run `cargo xtask setup`");
        let mut daemon = Ending(daemon);
        let address = line_of(&mut BufReader::new(daemon.0.stdout.take().unwrap()));
        (daemon, address.trim().to_owned())
    }

    /// Windows get the keyboard only from one.
    fn window_manager(mut self, home: &TempHome) -> Self {
        let manager = command("openbox", home)
            .envs(self.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openbox is missing: run `cargo xtask setup`");
        self.children.insert(0, Ending(manager));
        self
    }

    /// What a program on this desktop is started with.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        [
            ("DISPLAY", self.display.as_str()),
            ("DBUS_SESSION_BUS_ADDRESS", &self.bus),
            ("GDK_BACKEND", "x11"),
            // There is neither an accelerator nor a bus for screen readers.
            ("LIBGL_ALWAYS_SOFTWARE", "1"),
            ("WEBKIT_DISABLE_DMABUF_RENDERER", "1"),
            ("NO_AT_BRIDGE", "1"),
            ("GTK_A11Y", "none"),
            ("GSETTINGS_BACKEND", "memory"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Ask the panel.
    pub(crate) fn ask(&self, question: &Value) -> Result<Value, String> {
        let mut panel = self.panel.lock().unwrap();
        writeln!(panel.stdin, "{question}").unwrap();
        let mut reply: Value = serde_json::from_str(&line_of(&mut panel.stdout)).unwrap();
        match reply.get("error") {
            Some(error) => Err(error.as_str().unwrap().to_owned()),
            None => Ok(reply["answer"].take()),
        }
    }

    /// Which picture the icon is, by the file that the panel is given.
    pub(crate) fn icon_file(&self) -> Vec<u8> {
        let path = self.ask(&json!({ "ask": "icon" })).unwrap();
        std::fs::read(path.as_str().unwrap()).unwrap_or_default()
    }

    /// The lines of the tray's menu.
    pub(crate) fn menu(&self) -> Vec<Value> {
        let menu = self.ask(&json!({ "ask": "menu" })).unwrap();
        menu["items"].as_array().unwrap().clone()
    }

    /// Wait for a line, named by the beginnings of its label and of those above it.
    #[track_caller]
    pub(crate) fn line(&self, path: &[&str]) -> Value {
        let mut last = Vec::new();
        let found = wait_for(PATIENCE, || {
            last = self.menu();
            find(&last, path).cloned()
        });
        found.unwrap_or_else(|| panic!("the tray has no {path:?}: {last:#?}"))
    }

    /// Click a line.
    #[track_caller]
    pub(crate) fn click(&self, path: &[&str]) {
        let line = self.line(path);
        assert_eq!(line["enabled"], true, "{line}");
        self.ask(&json!({ "ask": "click", "id": line["id"] }))
            .unwrap();
    }

    /// What the user was told.
    pub(crate) fn notifications(&self) -> Vec<Value> {
        let shown = self.ask(&json!({ "ask": "notifications" })).unwrap();
        shown.as_array().unwrap().clone()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.children.clear();
        for entry in std::fs::read_dir(&self.run).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("dbus-") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn find<'a>(lines: &'a [Value], path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let line = lines.iter().find(|line| {
        line["label"]
            .as_str()
            .is_some_and(|label| label.starts_with(first))
    })?;
    if rest.is_empty() {
        Some(line)
    } else {
        find(line["items"].as_array()?, rest)
    }
}

/// A program with the home of the test and nothing of ours but the path.
pub(crate) fn command(program: &str, home: &TempHome) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("TMPDIR", home.temp_dir())
        .env("LANG", "C.UTF-8")
        .env("SHELL", "/bin/sh")
        .env("XDG_RUNTIME_DIR", home.join("run"))
        .current_dir(home.path());
    command
}

fn line_of(from: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line
}
