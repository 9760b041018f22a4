//! One app under test: its home, its desktop, its clients, and what it may not leave behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use runbridge_testkit::{Engine, Era, Leftovers, McpClient, TempHome, image, wait_for};
use serde_json::{Map, Value, json};

use crate::screen::{PATIENCE, Screen, command};

/// The app under test, which `cargo xtask test` builds before.
pub(crate) fn app() -> PathBuf {
    built("runbridge-app")
}

/// The sidecar, as above.
pub(crate) fn sidecar() -> PathBuf {
    built("runbridge")
}

/// A program beside the folder of this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join(name);
    assert!(
        path.is_file(),
        "there is no {}: run `cargo build -p runbridge -p runbridge-app`",
        path.display()
    );
    path
}

/// A home in which the app runs, or may.
pub(crate) struct Desk {
    pub(crate) home: TempHome,
    pub(crate) screen: Screen,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) leftovers: Leftovers,
    app: Option<Child>,
}

impl Desk {
    /// With no app yet, the scripted server, and the first engine if there is one to run Python.
    pub(crate) fn new(settings: Value) -> Self {
        let home = TempHome::new();
        let run = home.join("run");
        std::fs::create_dir(&run).unwrap();
        std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let starts = home.join("starts");
        let entry = home.stub(&["--asks", "--starts", &starts.to_string_lossy()]);
        home.write_servers(&Map::from_iter([("stub".to_owned(), entry)]));
        home.write(".runbridge/config/settings.json", &settings.to_string());
        let screen = Screen::start(&home);
        let engine = Engine::all().first().cloned();
        let mut variables = screen.variables();
        variables.extend(engine.iter().flat_map(Engine::variables));
        let ours = home.join(".runbridge").to_string_lossy().into_owned();
        variables.push(("RUNBRIDGE_HOME".to_owned(), ours));
        variables.push(("MCP_BRIDGE_IMAGE".to_owned(), image()));
        Self {
            leftovers: Leftovers::of(home.path(), engine),
            home,
            screen,
            variables,
            app: None,
        }
    }

    /// The app as the system starts it at login.
    pub(crate) fn start_hidden(&mut self) {
        self.app = Some(self.spawn(&["--hidden"]));
        self.wait_until_served();
    }

    /// Another start.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let log = std::fs::File::create(self.home.join("app.log")).unwrap();
        self.command(&app().to_string_lossy())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// A program on this desktop.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = command(program, &self.home);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Until clients can come in.
    pub(crate) fn wait_until_served(&self) {
        let socket = self.home.join(".runbridge/run/app.sock");
        let there = wait_for(PATIENCE, || {
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
        assert!(there.is_some(), "the app let nobody in\n{}", self.log());
    }

    /// An MCP client through the sidecar.
    pub(crate) fn client(&self) -> McpClient {
        self.client_of(&sidecar())
    }

    /// An MCP client through this sidecar.
    pub(crate) fn client_of(&self, sidecar: &Path) -> McpClient {
        // A client of the real world knows nothing of the app's screen.
        let variables: Vec<_> = self
            .variables
            .iter()
            .filter(|(name, _)| name != "DISPLAY" && name != "DBUS_SESSION_BUS_ADDRESS")
            .cloned()
            .collect();
        let era = Era::Initialize("2025-11-25");
        let started = McpClient::start(sidecar, &[], self.home.path(), &variables, era);
        let (client, _) =
            started.unwrap_or_else(|error| panic!("no greeting: {error}\n{}", self.log()));
        client
    }

    /// The settings file as it is now.
    pub(crate) fn settings(&self) -> Value {
        let text = std::fs::read_to_string(self.home.join(".runbridge/config/settings.json"));
        serde_json::from_str(&text.unwrap_or_default()).unwrap_or(json!({}))
    }

    /// How often the scripted server was started.
    pub(crate) fn server_starts(&self) -> usize {
        let starts = std::fs::read_to_string(self.home.join("starts")).unwrap_or_default();
        starts.lines().count()
    }

    /// What the app wrote.
    pub(crate) fn log(&self) -> String {
        let read = |path: &str| std::fs::read_to_string(self.home.join(path)).unwrap_or_default();
        read(".runbridge/logs/runbridge.log") + &read("app.log") + &read("stderr.log")
    }

    /// Wait until the app has ended by itself.
    #[track_caller]
    pub(crate) fn ended(&mut self) {
        let app = self.app.as_mut().unwrap();
        let status = wait_for(PATIENCE, || app.try_wait().unwrap());
        assert!(
            status.is_some_and(|status| status.success()),
            "the app ended with {status:?}\n{}",
            self.log()
        );
        self.app = None;
    }

    /// SIGKILL: a crash.
    pub(crate) fn kill(&mut self) {
        self.leftovers.note_owner();
        let mut app = self.app.take().unwrap();
        app.kill().unwrap();
        app.wait().unwrap();
    }

    /// Windows with this title.
    pub(crate) fn windows(&self, title: &str) -> Vec<String> {
        let pattern = format!("^{title}");
        self.xdotool(&["search", "--onlyvisible", "--name", &pattern])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// What a person does with mouse and keyboard.
    pub(crate) fn xdotool(&self, arguments: &[&str]) -> String {
        let output = self.command("xdotool").args(arguments).output();
        let output = output.expect("xdotool is missing: run `cargo xtask setup`");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Processes of this home whose program is called so.
    pub(crate) fn processes_named(&self, name: &str) -> Vec<String> {
        let mut processes = self.leftovers.processes();
        processes.retain(|process| process.contains(name));
        processes
    }

    /// End the app as the system does when its user logs out; nothing may be left.
    pub(crate) fn close(mut self) {
        self.leftovers.note_owner();
        if let Some(app) = &self.app {
            terminate(app.id());
            self.ended();
        }
        // What belongs to the screen is no leftover of the app.
        let Self {
            screen, leftovers, ..
        } = self;
        drop(screen);
        leftovers.assert_none();
    }
}

/// Ask a process to end.
pub(crate) fn terminate(pid: u32) {
    let status = Command::new("kill").arg(pid.to_string()).status().unwrap();
    assert!(status.success());
}

/// Wait until `probe` holds.
#[track_caller]
pub(crate) fn until(what: &str, mut probe: impl FnMut() -> bool) -> Duration {
    let begun = std::time::Instant::now();
    let done = wait_for(PATIENCE, || probe().then_some(()));
    assert!(done.is_some(), "{what}: not within {PATIENCE:?}");
    begun.elapsed()
}
