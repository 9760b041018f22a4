//! The settings file and the variables over it.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::path::Path;

use runbridge_core::clients::entry::{Entry, EntryTransport, Lent, Source};
use runbridge_core::paths::{Environment, Os, Paths};
use runbridge_core::settings::{
    Backend, Engine, LogLevel, OutputMode, Sampling, ServerSettings, Settings, SettingsError,
    SettingsFile, SettingsProblem,
};
use serde_json::json;
use tempfile::TempDir;

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::new(Os::Linux, variables.iter().copied())
}

fn load(text: &str, variables: &[(&str, &str)]) -> (Settings, Vec<SettingsProblem>) {
    let home = TempDir::new().unwrap();
    let paths = Paths::under(home.path());
    write(&paths.settings(), text);
    Settings::load(&paths, &environment(variables))
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn without_a_file_or_variables_the_defaults_are_in_force() {
    let home = TempDir::new().unwrap();
    let (settings, problems) = Settings::load(&Paths::under(home.path()), &environment(&[]));
    assert_eq!(settings, Settings::default());
    assert_eq!(problems, []);
    assert_eq!(settings.limits.run_ms_default, 30_000);
    assert_eq!(settings.limits.memory_bytes_max, 512 << 20);
    assert_eq!(settings.sandbox.image, "python:3.14-slim");
}

#[test]
fn each_layer_lies_over_the_one_below() {
    let text = r#"{
        // mine
        "version": 1,
        "limits": {"run_ms_default": 10000, "memory_bytes_max": "1g", "calls_max": 50,},
        "sandbox": {"image": "mine:1", "engine": "docker", "backend": "wasi", "spares": 0},
        "output_mode": "json",
        "servers": {
            "cursor/git": {"enabled": false, "tools": {"allow": ["log"], "deny": ["push"]}, "limits": {"call_ms_max": "5m"}},
            "time": {"enabled": true, "roots": [], "sampling": "off"},
        },
        "roots": ["~/work", "/srv"],
        "sampling": "client",
        "own_servers": {"own": {"command": "x"}},
        "projects": ["~/work"],
        "colour_of_the_sky": "blue",
    }"#;
    let (settings, problems) = load(
        text,
        &[
            ("MCP_BRIDGE_TIMEOUT", "20s"),
            ("MCP_BRIDGE_IMAGE", "theirs:2"),
            ("MCP_BRIDGE_RUNTIME", "/usr/bin/podman"),
            ("MCP_BRIDGE_LOG_LEVEL", "WARNING"),
            ("MCP_BRIDGE_CPUS", "1.5"),
            ("MCP_BRIDGE_CONTAINER_USER", "1000"),
            ("MCP_SERVERS_CONFIG", "/etc/servers.json"),
            ("MCP_BRIDGE_ALLOW_SELF_SERVER", "yes"),
            ("MCP_BRIDGE_PIDS", " "),
        ],
    );
    assert_eq!(problems, []);
    assert_eq!(settings.limits.run_ms_default, 20_000, "the variable wins");
    assert_eq!(settings.limits.memory_bytes_max, 1 << 30);
    assert_eq!(settings.limits.calls_max, 50);
    assert_eq!(
        settings.limits.processes_max, 128,
        "a blank variable is none"
    );
    assert_eq!(settings.limits.sandbox().cpus_max, Some(1.5));
    assert_eq!(settings.sandbox.image, "theirs:2");
    assert_eq!(
        (settings.sandbox.engine, settings.sandbox.backend),
        (Engine::Podman, Backend::Container)
    );
    assert_eq!(
        (
            settings.sandbox.container_user.as_str(),
            settings.sandbox.spares
        ),
        ("1000:1000", 0)
    );
    assert_eq!(
        (settings.output_mode, settings.log_level),
        (OutputMode::Json, LogLevel::Warn)
    );
    assert!(settings.allow_self_server);
    assert_eq!(
        settings.servers_config.as_deref(),
        Some("/etc/servers.json")
    );
    assert_eq!(settings.own_servers["own"], json!({"command": "x"}));
    assert!(settings.projects[0].ends_with("work"));
    assert_eq!(settings.roots[1], Path::new("/srv"));
    assert!(settings.roots[0].is_absolute() && settings.roots[0].ends_with("work"));
    assert_eq!(settings.sampling, Sampling::Client);
    let time = decided(&settings, "cursor", "time");
    assert_eq!(
        (time.roots, time.sampling),
        (Some(Vec::new()), Some(Sampling::Off))
    );
    let git = decided(&settings, "cursor", "git");
    assert_eq!((&git.roots, git.sampling), (&None, None));
    assert_eq!(
        (git.enabled, git.tools_allowed, git.tools_denied),
        (Some(false), Some(vec!["log".into()]), vec!["push".into()])
    );
    assert_eq!(git.limits["call_ms_max"], 300_000);
    assert_eq!(
        decided(&settings, "cursor", "time").enabled,
        Some(true),
        "a plain name means every source"
    );
    assert_eq!(decided(&settings, "vscode", "git").enabled, None);
}

#[test]
fn what_cannot_be_used_is_named_and_the_default_stays() {
    let text = "{\n \"version\": 1,\n \"limits\": {\"calls_max\": \"many\",\n  \"call_ms_max\": 1},\n \"output_mode\": \"loud\",\n \"servers\": {\"a\": {\"enabled\": \"no\"}}\n}";
    let (settings, problems) = load(
        text,
        &[
            ("MCP_BRIDGE_MEMORY", "512"),
            ("MCP_BRIDGE_PIDS", "1000000"),
            ("MCP_BRIDGE_TIMEOUT", "soon"),
            ("MCP_BRIDGE_CPUS", "two"),
            ("MCP_BRIDGE_RUNTIME", "lxc"),
            ("MCP_BRIDGE_CONTAINER_USER", "root"),
        ],
    );
    assert_eq!(settings.limits, Settings::default().limits);
    assert_eq!(settings.sandbox, Settings::default().sandbox);
    let shown: Vec<_> = problems
        .iter()
        .map(|problem| {
            (
                problem.place.rsplit('/').next().unwrap(),
                problem.position.map(|at| (at.line, at.column)),
                problem.message.as_str(),
            )
        })
        .collect();
    insta::assert_debug_snapshot!(shown);
}

#[test]
fn a_run_never_outlasts_the_ceiling_and_only_who_asked_is_told() {
    let (settings, problems) = load("{}", &[("MCP_BRIDGE_MAX_TIMEOUT", "10")]);
    assert_eq!(
        (settings.limits.run_ms_default, problems.len()),
        (10_000, 0)
    );
    let (settings, problems) = load("{}", &[("MCP_BRIDGE_TIMEOUT", "300")]);
    assert_eq!(settings.limits.run_ms_default, 120_000);
    assert!(
        problems[0]
            .to_string()
            .starts_with("MCP_BRIDGE_TIMEOUT: 300 s is above"),
        "{}",
        problems[0]
    );
}

#[test]
fn a_broken_file_is_named_with_its_line_and_never_overwritten() {
    let home = TempDir::new().unwrap();
    let paths = Paths::under(home.path());
    let text = "{\n \"limits\": {\"calls_max\": 7}\n \"sandbox\": {}\n}";
    write(&paths.settings(), text);
    let (settings, problems) = Settings::load(&paths, &environment(&[("MCP_BRIDGE_PIDS", "64")]));
    assert_eq!(settings.limits.processes_max, 64);
    assert_eq!(problems[0].position.unwrap().line, 2, "{}", problems[0]);
    let error = SettingsFile::open(&paths.settings())
        .set(&["output_mode"], Some(&json!("toon")))
        .unwrap_err();
    assert!(matches!(error, SettingsError::Broken { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(paths.settings()).unwrap(), text);
}

#[test]
fn a_newer_file_is_used_as_far_as_known_and_not_written() {
    let home = TempDir::new().unwrap();
    let paths = Paths::under(home.path());
    let text = r#"{"version": 99, "output_mode": "toon", "limits": {"calls_max": 7}}"#;
    write(&paths.settings(), text);
    let (settings, problems) = Settings::load(&paths, &environment(&[]));
    assert_eq!(
        (settings.output_mode, settings.limits.calls_max),
        (OutputMode::Toon, 7)
    );
    assert!(problems[0].message.contains("newer"), "{}", problems[0]);
    let error = SettingsFile::open(&paths.settings())
        .set(&["output_mode"], None)
        .unwrap_err();
    assert!(
        matches!(error, SettingsError::Newer { version: 99, .. }),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(paths.settings()).unwrap(), text);
}

#[test]
fn a_change_keeps_comments_order_and_unknown_keys() {
    let home = TempDir::new().unwrap();
    let path = Paths::under(home.path()).settings();
    let text = "{\n  \"version\": 1,\n  // keep me\n  \"zebra\": [1, 2],\n  \"servers\": {\n    \"a\": { \"enabled\": true, \"later\": 1 }\n  }\n}\n";
    write(&path, text);
    let mut file = SettingsFile::open(&path);
    file.set(&["servers", "a", "enabled"], Some(&json!(false)))
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        text.replace("true", "false")
    );
    assert_eq!(
        std::fs::read_to_string(path.with_extension("json.bak")).unwrap(),
        text,
        "one backup"
    );
    file.set(&["servers", "a", "enabled"], Some(&json!(true)))
        .unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    file.set(&["limits", "calls_max"], Some(&json!(5))).unwrap();
    file.set(&["limits", "calls_max"], None).unwrap();
    file.set(&["never", "there"], None).unwrap();
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .contains("// keep me")
    );
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "no temporary file stays: {left:?}");
}

#[test]
fn the_first_change_makes_the_file() {
    let home = TempDir::new().unwrap();
    let paths = Paths::under(home.path());
    SettingsFile::open(&paths.settings())
        .set(&["servers", "cursor/a.b", "enabled"], Some(&json!(false)))
        .unwrap();
    let (settings, problems) = Settings::load(&paths, &environment(&[]));
    assert_eq!(problems, []);
    assert_eq!(decided(&settings, "cursor", "a.b").enabled, Some(false));
}

#[test]
fn a_change_by_someone_else_is_not_lost() {
    let home = TempDir::new().unwrap();
    let path = Paths::under(home.path()).settings();
    write(&path, "{\"version\": 1}");
    let mut file = SettingsFile::open(&path);
    write(&path, "{\"version\": 1, \"theirs\": 1}");
    let error = file.set(&["mine"], Some(&json!(1))).unwrap_err();
    assert!(matches!(error, SettingsError::Changed(_)), "{error}");
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "{\"version\": 1, \"theirs\": 1}"
    );
    SettingsFile::open(&path)
        .set(&["mine"], Some(&json!(1)))
        .unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("theirs"));
}

#[test]
fn a_pasted_snippet_without_a_version_becomes_own_servers() {
    let (settings, problems) = load(
        r#"{"mcpServers": {"t": {"command": "uvx", "args": ["t"]}}}"#,
        &[],
    );
    assert_eq!(problems, []);
    assert_eq!(
        settings.own_servers["t"],
        json!({"command": "uvx", "args": ["t"]})
    );
}

#[cfg(unix)]
#[test]
fn a_linked_settings_file_stays_a_link_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let home = TempDir::new().unwrap();
    let path = Paths::under(home.path()).settings();
    let real = home.path().join("dotfiles/settings.json");
    write(&real, "{\"version\": 1}");
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    SettingsFile::open(&path)
        .set(&["output_mode"], Some(&json!("toon")))
        .unwrap();
    assert!(path.is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains("toon"));
    assert_eq!(
        std::fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// What was decided on a server that one client's file names.
fn decided(settings: &Settings, client: &str, name: &str) -> ServerSettings {
    settings.decided(&Entry {
        name: name.to_owned(),
        transport: EntryTransport::Http {
            url: String::new(),
            headers: [].into(),
            sse: false,
        },
        description: None,
        off: None,
        needs: Vec::new(),
        tools_allowed: None,
        tools_denied: Vec::new(),
        start_ms_max: None,
        call_ms_max: None,
        lent: Lent::default(),
        sources: vec![Source {
            client: client.to_owned(),
            path: "x".into(),
            name: name.to_owned(),
        }],
    })
}

#[test]
fn the_readme_lists_every_limit_with_its_variable_and_default() {
    let readme = include_str!("../../../README.md");
    for limit in runbridge_core::settings::limits::TABLE {
        let row = format!(
            "`limits.{}` | {} |",
            limit.name,
            limit.unit.show(limit.default)
        );
        let line = readme
            .lines()
            .find(|line| line.contains(&row))
            .unwrap_or_else(|| panic!("no row of the README has {row}"));
        if let Some(variable) = limit.variable {
            assert!(line.contains(&format!("`{variable}`")), "{line}");
        }
    }
}
