//! A user's home folder with clients in it.

use std::path::{Path, PathBuf};

use runbridge_core::clients::connect::{
    Action, ConnectError, Connector, Plan, Running, Standing, State,
};
use runbridge_core::clients::{Discovery, Search, discover};
use runbridge_core::paths::{Environment, Os, Paths};
use runbridge_core::settings::Settings;
use tempfile::TempDir;

/// What clients are to start.
pub(crate) const PROGRAM: &str = "/opt/run bridge/bin/runbridge";

pub(crate) struct Home {
    folder: TempDir,
    pub(crate) environment: Environment,
    settings: Settings,
}

impl Home {
    pub(crate) fn new(os: Os) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |path: &str| folder.path().join(path).to_str().unwrap().to_owned();
        let mut environment = Environment::new(os, [("PATH", "/nowhere")]);
        match os {
            Os::Linux | Os::Macos => environment.set("HOME", &at("")),
            Os::Windows => {
                environment.set("USERPROFILE", &at(""));
                environment.set("APPDATA", &at("AppData/Roaming"));
                environment.set("LOCALAPPDATA", &at("AppData/Local"));
            }
        }
        environment.set("RUNBRIDGE_HOME", &at(".ours"));
        Self {
            folder,
            environment,
            settings: Settings::default(),
        }
    }

    /// A home folder with the files of a fixture, in which `<home>` stands for it.
    pub(crate) fn of(fixture: &Path) -> Self {
        let os = match fixture.file_name().unwrap().to_str().unwrap() {
            "windows" => Os::Windows,
            "macos" => Os::Macos,
            _ => Os::Linux,
        };
        let home = Self::new(os);
        home.add(fixture);
        home
    }

    /// Adds the files of a fixture.
    pub(crate) fn add(&self, fixture: &Path) {
        copy(fixture, self.path(), self.path());
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap()
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::for_user(&self.environment).unwrap()
    }

    pub(crate) fn search<T>(&self, act: impl FnOnce(&Search<'_>) -> T) -> T {
        let paths = self.paths();
        let mut search = Search::new(&paths, &self.environment, &self.settings);
        self.path().clone_into(&mut search.system_root);
        act(&search)
    }

    /// Lends a connector.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Connector<'_>) -> T) -> T {
        self.search(|search| {
            act(&Connector::new(
                search,
                Path::new(PROGRAM),
                Some(Running::default()),
            ))
        })
    }

    pub(crate) fn discover(&self) -> Discovery {
        self.search(discover)
    }

    pub(crate) fn act(&self, client: &str, action: Action) -> Result<Plan, ConnectError> {
        self.with(|connector| connector.carry_out(client, action, None, false))
    }

    pub(crate) fn connect(&self, client: &str) {
        self.act(client, Action::Connect).unwrap();
    }

    pub(crate) fn disconnect(&self, client: &str) {
        self.act(client, Action::Disconnect).unwrap();
    }

    #[allow(
        clippy::redundant_closure_for_method_calls,
        reason = "the method's own path is not general enough over the connector's lifetime"
    )]
    pub(crate) fn standings(&self) -> Vec<Standing> {
        self.with(|connector| connector.standings())
    }

    pub(crate) fn standing(&self, client: &str) -> Option<Standing> {
        self.standings()
            .into_iter()
            .find(|standing| standing.id == client)
    }

    pub(crate) fn state(&self, client: &str) -> State {
        self.standing(client).unwrap().state
    }
}

fn copy(from: &Path, to: &Path, home: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to, home);
        } else {
            let bytes = match String::from_utf8(std::fs::read(entry.path()).unwrap()) {
                Ok(text) => text.replace("<home>", home.to_str().unwrap()).into_bytes(),
                Err(binary) => binary.into_bytes(),
            };
            std::fs::write(to, bytes).unwrap();
        }
    }
}

/// Every fixture of every client.
pub(crate) fn fixtures() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/clients");
    let folders = |path: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        paths.sort();
        paths
    };
    folders(&all)
        .iter()
        .flat_map(|client| folders(client))
        .collect()
}
