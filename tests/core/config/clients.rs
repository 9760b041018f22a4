//! What each client's files say, read as that client reads them.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::path::{Path, PathBuf};

use runbridge_core::clients::entry::EntryTransport;
use runbridge_core::clients::{Discovery, Search, discover};
use runbridge_core::paths::{Environment, Os, Paths};
use runbridge_core::settings::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A user's home folder, and what is set around it.
struct Home {
    folder: TempDir,
    environment: Environment,
    settings: Settings,
}

impl Home {
    fn new(os: Os) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |path: &str| folder.path().join(path).to_str().unwrap().to_owned();
        let mut environment = Environment::new(
            os,
            [
                ("TOKEN", "s3cret"),
                ("HOST", "host"),
                ("HOME_BIN", "/opt/bin"),
                ("PATH", "/nowhere"),
            ],
        );
        match os {
            Os::Linux | Os::Macos => environment.set("HOME", &at("")),
            Os::Windows => {
                environment.set("USERPROFILE", &at(""));
                environment.set("APPDATA", &at("AppData/Roaming"));
                environment.set("LOCALAPPDATA", &at("AppData/Local"));
            }
        }
        Self {
            folder,
            environment,
            settings: Settings::default(),
        }
    }

    /// A home folder with the files of a fixture, in which `<home>` stands for it.
    fn of(fixture: &str) -> Self {
        let os = match fixture.rsplit('/').next().unwrap() {
            "windows" => Os::Windows,
            "macos" => Os::Macos,
            _ => Os::Linux,
        };
        let home = Self::new(os);
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/clients")
            .join(fixture);
        home.copy(&from, home.path());
        home
    }

    fn copy(&self, from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                self.copy(&entry.path(), &to);
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                let bytes = match String::from_utf8(bytes) {
                    Ok(text) => text
                        .replace("<home>", self.path().to_str().unwrap())
                        .into_bytes(),
                    Err(binary) => binary.into_bytes(),
                };
                std::fs::write(to, bytes).unwrap();
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn discover(&self) -> Discovery {
        let paths = Paths::for_user(&self.environment).unwrap();
        let mut search = Search::new(&paths, &self.environment, &self.settings);
        self.path().clone_into(&mut search.system_root);
        discover(&search)
    }

    /// What was found, short and without what differs from machine to machine.
    fn shown(&self) -> Value {
        let found = self.discover();
        let at = |path: &Path| {
            path.to_str()
                .unwrap()
                .replace(self.path().to_str().unwrap(), "<home>")
                .replace('\\', "/")
        };
        let mut shown = serde_json::to_value(&found).unwrap();
        shown.as_object_mut().unwrap().remove("watched");
        for entry in shown["entries"].as_array_mut().unwrap() {
            let entry = entry.as_object_mut().unwrap();
            entry.retain(|_, value| !value.is_null() && *value != json!([]));
            entry["transport"]
                .as_object_mut()
                .unwrap()
                .retain(|_, value| !value.is_null() && *value != json!([]) && *value != json!({}));
        }
        let text = serde_json::to_string(&shown)
            .unwrap()
            .replace(&at(self.path()), "<home>");
        serde_json::from_str(
            &text
                .replace(self.path().to_str().unwrap(), "<home>")
                .replace("<home>/\"", "<home>\"")
                .replace("<home>//", "<home>/"),
        )
        .unwrap()
    }
}

fn names(found: &Discovery) -> Vec<&str> {
    found
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect()
}

macro_rules! reads {
    ($($test:ident: $fixture:literal;)*) => {
        $(#[test]
        fn $test() {
            insta::assert_json_snapshot!(Home::of($fixture).shown());
        })*
    };
}

reads! {
    drop_folders: "drop-folder/linux";
    claude_desktop_on_linux: "claude-desktop/linux";
    claude_desktop_on_macos: "claude-desktop/macos";
    claude_desktop_on_windows: "claude-desktop/windows";
    claude_code_outside_projects: "claude-code/scopes";
    claude_code_managed: "claude-code/managed";
    windsurf: "windsurf/linux";
    vscode_on_linux: "vscode/linux";
    vscode_on_macos: "vscode/macos";
    vscode_on_windows: "vscode/windows";
    cline: "cline/linux";
    roo_code: "roo-code/linux";
    kilo_code: "kilo-code/linux";
    continue_dev: "continue/linux";
    zed_on_linux: "zed/linux";
    zed_on_windows: "zed/windows";
    gemini_cli: "gemini-cli/linux";
    qwen_code: "qwen-code/linux";
    antigravity: "antigravity/linux";
    codex: "codex/linux";
    codex_inline: "codex/inline";
    opencode_first_generation: "opencode/first";
    opencode_second_generation: "opencode/second";
    goose_on_linux: "goose/linux";
    goose_on_windows: "goose/windows";
    amazon_q: "amazon-q/linux";
    kiro_in_utf16: "kiro/linux";
    lm_studio: "lm-studio/linux";
    jan_on_linux: "jan/linux";
    jan_on_macos: "jan/macos";
    copilot: "copilot-cli/linux";
    other_clients: "others/linux";
}

fn with_project(fixture: &str) -> Home {
    let mut home = Home::of(fixture);
    home.settings.projects = vec![home.path().join("code/app")];
    home
}

#[test]
fn claude_code_inside_a_registered_project() {
    let home = with_project("claude-code/scopes");
    let shown = home.shown();
    assert!(!shown.to_string().contains("person@example.com"));
    insta::assert_json_snapshot!(shown);
}

#[test]
fn a_project_file_starts_nothing_and_takes_no_name() {
    let home = with_project("cursor/linux");
    insta::assert_json_snapshot!(home.shown());
}

#[test]
fn a_project_that_nobody_registered_is_not_read() {
    assert!(!names(&Home::of("cursor/linux").discover()).contains(&"in-project"));
}

#[test]
fn the_user_has_the_last_word() {
    let mut home = with_project("cursor/linux");
    home.write(
        ".config/runbridge/settings.json",
        r#"{"version": 1, "projects": ["~/code/app"], "servers": {
            "cursor/in-project": {"enabled": true, "tools": {"allow": ["a"]}, "limits": {"call_ms_max": "90s"}},
            "project": {"enabled": false}
        }}"#,
    );
    let (settings, problems) = Settings::load(
        &Paths::for_user(&home.environment).unwrap(),
        &home.environment,
    );
    assert_eq!(problems, []);
    home.settings = settings;
    let found = home.discover();
    let entry = |name: &str| {
        found
            .entries
            .iter()
            .find(|entry| entry.name == name)
            .unwrap()
    };
    assert_eq!(entry("in-project").off, None);
    assert_eq!(
        entry("in-project").tools_allowed,
        Some(vec!["a".to_owned()])
    );
    assert_eq!(entry("in-project").call_ms_max, Some(90_000));
    assert!(entry("project").off.is_some());
}

#[test]
fn the_explicit_config_comes_first_as_a_path_or_as_json_itself() {
    let mut home = Home::of("drop-folder/linux");
    let toml = home.write("mine.toml", "[mcp_servers.w1]\ncommand = \"mine\"\n");
    home.settings.own_servers =
        serde_json::from_str(r#"{"own": {"command": "own"}, "w1": {"command": "mine"}}"#).unwrap();
    for config in [
        toml.to_str().unwrap(),
        "~/mine.toml",
        r#" {"mcpServers": {"w1": {"command": "mine"}}} "#,
        r#"{"w1": {"command": "mine"}}"#,
    ] {
        home.settings.servers_config = Some(config.to_owned());
        let found = home.discover();
        assert_eq!(names(&found)[..2], ["w1", "own"], "{config}");
        assert_eq!(
            found.entries[0].sources.len(),
            2,
            "the same definition in our own settings is one server"
        );
        assert!(names(&found).contains(&"w1@drop-folder"), "{config}");
    }
    home.settings.servers_config = Some("/nowhere/x.json".to_owned());
    assert!(home.discover().problems.iter().any(|problem| {
        problem
            .to_string()
            .starts_with("/nowhere/x.json: MCP_SERVERS_CONFIG names this file")
    }));
    home.settings.servers_config = Some("{\"w1\": {\"command\": }}".to_owned());
    let problem = home.discover().problems.remove(0);
    assert!(
        problem.to_string().starts_with("MCP_SERVERS_CONFIG:1:"),
        "{problem}"
    );
}

#[test]
fn a_broken_file_or_entry_costs_only_itself() {
    let home = Home::new(Os::Linux);
    home.write(
        "MCPs/a.json",
        "{\n  \"mcpServers\": {\n    \"lost\": {\"command\": \"x\"\n  }\n",
    );
    home.write(
        "MCPs/b.json",
        r#"{"mcpServers": {
            "good": {"command": "good"},
            "args": {"command": "x", "args": "-y pkg"},
            "nested": {"command": "x", "args": [["y"]]},
            "env": {"command": "x", "env": {"A": ["b"]}},
            "name": {"command": "x", "env": {"A=B": "c"}},
            "switch": {"command": "x", "disabled": "yes"},
            "empty": {},
            "blank": {"command": " "},
            "text": "npx x",
            "kind": {"type": "carrier-pigeon", "command": "x"},
            "no-url": {"type": "http", "command": "x"},
            "twice": {"command": "first"},
            "twice": {"command": "second"},
            "": {"command": "x"},
            "both": {"command": "both", "url": "https://example.com"}
        }}"#,
    );
    home.write("MCPs/c.json", "[1]");
    home.write("MCPs/latin1.json", "");
    std::fs::write(home.path().join("MCPs/latin1.json"), b"{\"\xE4\": 1}").unwrap();
    std::fs::create_dir(home.path().join("MCPs/folder.json")).unwrap();
    home.write("MCPs/z.json", "{\"last\": {\"command\": \"last\"}}");
    insta::assert_json_snapshot!(home.shown());
}

#[test]
fn broken_toml_and_yaml_say_where() {
    let home = Home::new(Os::Linux);
    home.write(".codex/config.toml", "[mcp_servers.x]\ncommand = \n");
    home.write(
        ".config/goose/config.yaml",
        "extensions:\n  a: [1\n  b: 2\n",
    );
    let found = home.discover();
    let shown: Vec<_> = found
        .problems
        .iter()
        .map(|problem| (problem.client.as_str(), problem.position.unwrap().line))
        .collect();
    assert_eq!(shown, [("codex", 2), ("goose", 3)]);
}

#[test]
fn the_same_server_in_several_clients_is_one() {
    let home = Home::new(Os::Linux);
    let git = r#"{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}, "web": {"url": "https://example.com/mcp"}}}"#;
    home.write(".cursor/mcp.json", git);
    home.write(
        ".codeium/windsurf/mcp_config.json",
        &git.replace("\"url\"", "\"serverUrl\""),
    );
    home.write(
        ".config/Claude/claude_desktop_config.json",
        &git.replace("mcp-server-git", "other-git"),
    );
    home.write(
        ".kiro/settings/mcp.json",
        &git.replace("\"git\"", "\"my-git\""),
    );
    // The folder of its project is not a part of what an entry says.
    std::fs::create_dir(home.path().join("p")).unwrap();
    let local = git.replace("mcp-server-git", "other-git");
    home.write(
        ".claude.json",
        &format!(
            r#"{{"projects": {{"{}/p": {local}}}}}"#,
            home.path().display()
        ),
    );
    let found = home.discover();
    let shown: Vec<_> = found
        .entries
        .iter()
        .map(|entry| {
            (
                entry.name.as_str(),
                entry
                    .sources
                    .iter()
                    .map(|source| source.client.as_str())
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("git", vec!["claude-desktop", "claude-code"]),
            (
                "web",
                vec![
                    "claude-desktop",
                    "claude-code",
                    "cursor",
                    "windsurf",
                    "kiro"
                ]
            ),
            ("git@cursor", vec!["cursor", "windsurf", "kiro"]),
        ]
    );
    assert_eq!(
        found.aliases,
        [("my-git".to_owned(), "git@cursor".to_owned())].into()
    );
}

#[test]
fn who_writes_one_definition_twice_into_one_file_wants_two_servers() {
    let home = Home::new(Os::Linux);
    let twice = r#"{"mcpServers": {"work": {"command": "memory"}, "home": {"command": "memory"}}}"#;
    home.write(".cursor/mcp.json", twice);
    home.write(
        ".kiro/settings/mcp.json",
        &twice.replace("\"work\"", "\"other\""),
    );
    let found = home.discover();
    assert_eq!(names(&found), ["work", "home"]);
    assert_eq!(
        found.aliases,
        [("other".to_owned(), "work".to_owned())].into()
    );
}

#[test]
fn the_user_may_put_clients_into_another_order() {
    let mut home = Home::new(Os::Linux);
    let entry = |program: &str| format!(r#"{{"mcpServers": {{"a": {{"command": "{program}"}}}}}}"#);
    home.write("MCPs/a.json", &entry("dropped"));
    home.write(
        ".config/Claude/claude_desktop_config.json",
        &entry("desktop"),
    );
    home.write(".kiro/settings/mcp.json", &entry("kiro"));
    assert_eq!(names(&home.discover()), ["a", "a@claude-desktop", "a@kiro"]);
    home.settings.client_order = ["kiro", "nobody", "kiro", "runbridge"]
        .map(str::to_owned)
        .into();
    let found = home.discover();
    assert_eq!(names(&found), ["a", "a@drop-folder", "a@claude-desktop"]);
    assert_eq!(found.entries[0].sources[0].client, "kiro");
    assert!(found.problems[0].message.contains("`nobody`"));
}

#[test]
fn plugins_of_claude_code_bring_servers_while_they_are_on() {
    let home = Home::new(Os::Linux);
    let at = |path: &str| home.path().join(path).to_str().unwrap().to_owned();
    home.write(
        ".claude/plugins/installed_plugins.json",
        &format!(
            r#"{{"version": 2, "plugins": {{
                "files@shop": [{{"scope": "user", "installPath": "{}"}}],
                "manifest@shop": [{{"scope": "user", "installPath": "{}"}}],
                "off@shop": [{{"scope": "user", "installPath": "{}"}}],
                "elsewhere@shop": [{{"scope": "project", "projectPath": "/other", "installPath": "{}"}}],
                "relative@shop": [{{"scope": "user", "installPath": "plugins"}}]
            }}}}"#,
            at("p/files"), at("p/manifest"), at("p/off"), at("p/elsewhere")
        ),
    );
    home.write(
        ".claude/settings.json",
        r#"{"enabledPlugins": {"files@shop": true, "manifest@shop": true, "off@shop": false}}"#,
    );
    home.write(
        "p/files/.mcp.json",
        r#"{"bare": {"command": "${CLAUDE_PLUGIN_ROOT}/run", "env": {"T": "${TOKEN}"}}}"#,
    );
    home.write(
        "p/manifest/.claude-plugin/plugin.json",
        r#"{"name": "manifest", "mcpServers": ["./more.json", "../files/.mcp.json"]}"#,
    );
    home.write(
        "p/manifest/more.json",
        r#"{"mcpServers": {"named": {"command": "x"}}}"#,
    );
    home.write(
        "p/off/.claude-plugin/plugin.json",
        r#"{"mcpServers": {"inline": {"command": "y"}}}"#,
    );
    home.write("p/elsewhere/.mcp.json", r#"{"never": {"command": "z"}}"#);
    let found = home.discover();
    assert_eq!(names(&found), ["bare", "named", "inline"]);
    let EntryTransport::Stdio { command, env, .. } = &found.entries[0].transport else {
        panic!("{found:?}");
    };
    assert_eq!(*command, at("p/files/run"));
    assert_eq!(env["T"].as_deref(), Some("s3cret"));
    assert_eq!(
        found.entries[2].off.as_deref(),
        Some("its plugin `off@shop` is off in Claude Code")
    );
    assert_eq!(found.problems, []);
}

#[test]
fn an_organisation_says_what_claude_code_may_start() {
    let home = Home::new(Os::Linux);
    home.write(
        ".claude.json",
        r#"{"mcpServers": {
            "named": {"command": "n"},
            "exact": {"command": "uvx", "args": ["time"]},
            "longer": {"command": "uvx", "args": ["time", "--now"]},
            "near": {"type": "http", "url": "https://mcp.corp.example/a"},
            "far": {"type": "http", "url": "https://elsewhere.example/a"}
        }}"#,
    );
    let off = |home: &Home| -> Vec<String> {
        let entries = home.discover().entries;
        let off = entries.into_iter().filter(|entry| entry.off.is_some());
        off.map(|entry| entry.name).collect()
    };
    assert_eq!(off(&home), [""; 0]);
    let managed = "etc/claude-code/managed-settings.json";
    home.write(
        managed,
        r#"{"allowedMcpServers": [{"serverName": "named"}, {"serverName": "near"}]}"#,
    );
    assert_eq!(off(&home), ["exact", "longer", "far"]);
    home.write(
        managed,
        r#"{"allowedMcpServers": [{"serverName": "named"}, {"serverCommand": ["uvx", "time"]}, {"serverUrl": "https://*.corp.example/*"}],
            "deniedMcpServers": [{"serverName": "near"}]}"#,
    );
    assert_eq!(off(&home), ["named", "longer", "near", "far"]);
    home.write(managed, r#"{"allowedMcpServers": []}"#);
    assert_eq!(off(&home).len(), 5);
    home.write(managed, "{}");
    home.write(
        "etc/claude-code/managed-settings.d/10.json",
        r#"{"deniedMcpServers": [{"serverCommand": ["n"]}]}"#,
    );
    home.write(
        ".claude/settings.json",
        r#"{"deniedMcpServers": [{"serverUrl": "https://*elsewhere*"}]}"#,
    );
    assert_eq!(off(&home), ["named", "far"]);
}

#[test]
fn what_was_told_for_an_input_is_filled_in_and_not_for_another_project() {
    let mut home = Home::new(Os::Linux);
    let asks = |name: &str| {
        format!(
            r#"{{"servers": {{"{name}": {{"command": "x", "args": ["--key=${{input:key}}"]}}}}}}"#
        )
    };
    home.write(".config/Code/User/mcp.json", &asks("own"));
    home.write("w/.vscode/mcp.json", &asks("theirs"));
    let project = home.path().join("w");
    home.settings.projects = vec![project.clone()];
    let paths = Paths::for_user(&home.environment).unwrap();
    let mut search = Search::new(&paths, &home.environment, &home.settings);
    let needs = |search: &Search<'_>| -> Vec<(String, Vec<String>)> {
        let entries = discover(search).entries.into_iter();
        entries.map(|entry| (entry.name, entry.needs)).collect()
    };
    let theirs = format!("input:key in {}", project.display());
    assert_eq!(
        needs(&search),
        [
            ("own".to_owned(), vec!["input:key".to_owned()]),
            ("theirs".to_owned(), vec![theirs.clone()])
        ]
    );
    search.answers = [("input:key".to_owned(), "told".to_owned())].into();
    assert_eq!(
        needs(&search),
        [
            ("own".to_owned(), vec![]),
            ("theirs".to_owned(), vec![theirs])
        ]
    );
    let EntryTransport::Stdio { args, .. } = &discover(&search).entries[0].transport else {
        panic!("it is remote");
    };
    assert_eq!(args, &["--key=told"]);
}

#[test]
fn a_workspace_and_a_container_of_a_project_name_servers_that_wait_for_approval() {
    let mut home = Home::new(Os::Linux);
    home.write(
        "w/team.code-workspace",
        r#"{
  "folders": [{"path": "."}], // two
  "settings": {"mcp": {"servers": {"a": {"command": "${workspaceFolder}/a"}}}}
}"#,
    );
    home.write(
        "w/.devcontainer/devcontainer.json",
        r#"{"customizations": {"vscode": {"mcp": {"servers": {"b": {"type": "http", "url": "https://b.example/mcp"}}}}}}"#,
    );
    assert_eq!(names(&home.discover()), [""; 0]);
    home.settings.projects = vec![home.path().join("w")];
    let found = home.discover();
    assert_eq!(names(&found), ["b", "a"]);
    assert!(found.entries.iter().all(|entry| entry.off.is_some()));
}

#[test]
fn ourselves_are_skipped_and_named_unless_allowed() {
    let mut home = Home::new(Os::Linux);
    home.write(
        ".cursor/mcp.json",
        r#"{"mcpServers": {
            "bridge": {"command": "sh", "args": ["-c", "exec runbridge"]},
            "earlier": {"command": "uvx", "args": ["--from", "git+https://github.com/elusznik/mcp-server-code-execution-mode", "mcp-server-code-execution-mode", "run"]},
            "other": {"command": "other"}
        }}"#,
    );
    let found = home.discover();
    assert_eq!(names(&found), ["other"]);
    let skipped: Vec<_> = found
        .skipped
        .iter()
        .map(|skipped| (skipped.name.as_str(), skipped.reason.as_str()))
        .collect();
    assert_eq!(skipped[0], ("bridge", "`runbridge` is Runbridge itself"));
    assert!(skipped[1].1.contains("earlier bridge"), "{skipped:?}");
    home.settings.allow_self_server = true;
    assert_eq!(names(&home.discover()), ["bridge", "earlier", "other"]);
}

#[cfg(unix)]
#[test]
fn links_to_copies_of_and_scripts_around_ourselves_are_ourselves() {
    let mut home = Home::new(Os::Linux);
    let me = std::env::current_exe().unwrap();
    let folder = home.path().join("bin");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(&me, folder.join("link")).unwrap();
    std::fs::copy(&me, folder.join("copy")).unwrap();
    std::fs::copy("/bin/true", folder.join("other")).unwrap();
    home.write(
        "bin/script",
        "#!/bin/sh\n# the bridge\nexport A=1\nexec /opt/runbridge \"$@\"\n",
    );
    home.write("bin/innocent", "#!/bin/sh\necho runbridge\n");
    home.environment.set("PATH", folder.to_str().unwrap());
    let entries: Vec<String> = ["link", "copy", "script", "other", "innocent"]
        .iter()
        .flat_map(|name| {
            [
                format!(r#""{name}": {{"command": "{}/{name}"}}"#, folder.display()),
                format!(r#""bare-{name}": {{"command": "{name}"}}"#),
            ]
        })
        .collect();
    home.write("MCPs/all.json", &format!("{{{}}}", entries.join(",")));
    assert_eq!(
        names(&home.discover()),
        ["other", "bare-other", "innocent", "bare-innocent"]
    );
}

#[test]
fn a_pipe_is_never_waited_for() {
    let home = Home::new(Os::Linux);
    std::fs::create_dir_all(home.path().join(".cursor")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(home.path().join(".cursor/mcp.json"))
        .status()
        .unwrap();
    assert!(made.success());
    let found = home.discover();
    assert_eq!(found.problems[0].message, "it is not a file");
}

#[test]
fn everything_that_has_a_say_is_watched_whether_it_exists_or_not() {
    for (fixture, paths) in [
        (
            "drop-folder/linux",
            &[
                "MCPs",
                ".config/mcp/servers",
                "MCPs/bare.json",
                ".cursor/mcp.json",
                ".claude.json",
            ] as &[&str],
        ),
        (
            "claude-code/scopes",
            &["code/app/.mcp.json", "code/app/.claude/settings.local.json"],
        ),
        (
            "cursor/linux",
            &[".cursor/secrets.env", "code/app/.cursor/mcp.json"],
        ),
        ("opencode/first", &[".config/opencode/key.txt"]),
        (
            "continue/linux",
            &[".continue/.env", ".continue/mcpServers"],
        ),
        (
            "gemini-cli/linux",
            &[".gemini/mcp-server-enablement.json", ".gemini/extensions"],
        ),
        ("vscode/linux", &[".config/Code/User/profiles"]),
        (
            "lm-studio/linux",
            &[".lmstudio-home-pointer", "models/lm/mcp.json"],
        ),
    ] {
        let home = with_project(fixture);
        let watched = home.discover().watched;
        for path in paths {
            assert!(
                watched.contains(&home.path().join(path)),
                "{fixture}: {path}"
            );
        }
    }
}

#[test]
fn a_large_history_is_read_and_a_huge_one_refused() {
    let home = Home::new(Os::Linux);
    let filler = |bytes: usize| {
        format!(
            r#"{{"history": "{}", "mcpServers": {{"x": {{"command": "x"}}}}}}"#,
            "h".repeat(bytes)
        )
    };
    home.write(".claude.json", &filler(9 << 20));
    assert_eq!(names(&home.discover()), ["x"]);
    home.write(".claude.json", &filler(17 << 20));
    assert!(
        home.discover().problems[0]
            .message
            .contains("larger than 16 MiB")
    );
}

#[test]
fn forty_files_are_read_at_once() {
    let home = Home::of("others/linux");
    for client in [
        "drop-folder/linux",
        "vscode/linux",
        "cline/linux",
        "codex/linux",
        "goose/linux",
        "zed/linux",
        "gemini-cli/linux",
        "continue/linux",
    ] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/clients")
            .join(client);
        home.copy(&from, home.path());
    }
    assert!(home.discover().entries.len() > 40);
    assert!(
        home.discover()
            .entries
            .iter()
            .all(|entry| match &entry.transport {
                EntryTransport::Stdio { command, .. } => !command.is_empty(),
                EntryTransport::Http { url, .. } => !url.is_empty(),
            })
    );
}
