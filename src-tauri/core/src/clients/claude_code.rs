//! Claude Code: the managed file, `~/.claude.json` with its scopes, and the `.mcp.json` of known projects.
//!
//! The scopes depend on where Claude Code runs, and we run everywhere. So a project that the user registered
//! with us counts as the place: its servers come first, and what is off in every registered project is off.
//! Servers of other projects come last, then those of plugins. A checked-in file can turn a server off but
//! never on. Of `~/.claude.json` nothing is read but servers and lists of names; it holds an account, too.

mod plugins;
mod policy;

use serde_json::json;

use std::path::{Path, PathBuf};

use policy::Policy;

use super::Search;
use super::client::{Client, Place, Reading};
use super::entry::EntryTransport;
use super::expand::Syntax;
use super::fields::{Dialect, Timeout};
use super::own_command::OwnCommand;
use super::parse::{Document, Format, Member, Value};
use super::target::{Reads, Target, TargetFile};
use crate::paths::Os;

/// Claude Code.
pub(super) const CLIENT: Client = Client {
    id: "claude-code",
    name: "Claude Code",
    dialect: Dialect {
        syntax: Syntax::Shell,
        timeout: Timeout::CallMilliseconds,
        bare_url_is_sse: false,
    },
    target: Some(Target {
        entry: |program, _| json!({"type": "stdio", "command": program, "args": [], "env": {}}),
        reads: Reads::PlainJson,
        restart: "start a new session",
        processes: &["claude"],
        // Every session of it saves the whole file now and then.
        own_command: Some(OwnCommand {
            program: "claude",
            folders: &[".local/bin", ".claude/local"],
            arguments: &["mcp", "add-json"],
            last: &["--scope", "user"],
        }),
        forbidden,
        ..Target::plain(|search| {
            vec![TargetFile {
                path: user_file(search),
                installed: settings_folder(search),
            }]
        })
    }),
    places: |search| {
        let mut places = vec![
            Place::user(managed_servers(search)),
            Place::user(user_file(search)),
        ];
        places.extend(
            search
                .projects
                .iter()
                .map(|project| Place::project(project, ".mcp.json")),
        );
        places.extend(plugins::places(search));
        places
    },
    read: |reading| {
        let first = reading.found.candidates.len();
        if reading.project.is_some() {
            project_file(reading);
        } else if reading.path.ends_with("managed-mcp.json") {
            reading.section(&["mcpServers"]);
        } else if reading.path == user_file(reading.search) || !plugins::read(reading) {
            user(reading);
        }
        let policy = Policy::of(reading.search);
        for candidate in &mut reading.found.candidates[first..] {
            let entry = &mut candidate.entry;
            if let Some(reason) = policy.refusal(&entry.name, &entry.transport) {
                entry.off = Some(reason);
            }
        }
    },
};

/// Where the organisation's files are.
fn managed_folder(search: &Search<'_>) -> PathBuf {
    search.system(match search.environment.os() {
        Os::Linux => "etc/claude-code",
        Os::Macos => "Library/Application Support/ClaudeCode",
        Os::Windows => "Program Files/ClaudeCode",
    })
}

fn managed_servers(search: &Search<'_>) -> PathBuf {
    managed_folder(search).join("managed-mcp.json")
}

/// Why Claude Code would not start us, whatever its file says.
fn forbidden(search: &Search<'_>, name: &str, program: &str) -> Option<String> {
    let managed = managed_servers(search);
    if managed.is_file() {
        return Some(format!(
            "your organisation decides alone which servers it uses, in {}",
            managed.display()
        ));
    }
    let us = EntryTransport::Stdio {
        command: program.to_owned(),
        args: Vec::new(),
        env: std::collections::BTreeMap::new(),
        cwd: None,
    };
    Policy::of(search).refusal(name, &us)
}

fn user_file(search: &Search<'_>) -> PathBuf {
    let moved = search.environment.folder("CLAUDE_CONFIG_DIR");
    moved
        .unwrap_or_else(|| search.paths.home.clone())
        .join(".claude.json")
}

fn settings_folder(search: &Search<'_>) -> PathBuf {
    search
        .environment
        .folder("CLAUDE_CONFIG_DIR")
        .unwrap_or_else(|| search.paths.home.join(".claude"))
}

/// A managed file replaces all that users configured.
fn managed_elsewhere(reading: &mut Reading<'_, '_>) {
    let path = managed_servers(reading.search);
    if path.is_file() {
        reading.off.insert(
            "*".to_owned(),
            format!("Claude Code is managed by {}", path.display()),
        );
    }
}

/// Local scope of registered projects, user scope, local scope of other projects.
fn user(reading: &mut Reading<'_, '_>) {
    managed_elsewhere(reading);
    let document = reading.document;
    let projects = document
        .root
        .get("projects")
        .and_then(Value::members)
        .unwrap_or_default();
    let (registered, others): (Vec<_>, Vec<_>) = projects
        .iter()
        .partition(|project| reading.search.is_registered(&project.name));
    for project in &registered {
        local(reading, project);
    }
    if let Some(servers) = document.root.get("mcpServers") {
        let off = reading.off.clone();
        for name in off_in_all(&registered) {
            reading
                .off
                .insert(name, "Claude Code has it off in this project".to_owned());
        }
        reading.entries(servers, "mcpServers");
        reading.off = off;
    }
    for project in others {
        local(reading, project);
    }
}

fn local(reading: &mut Reading<'_, '_>, project: &Member) {
    let Some(servers) = project.value.get("mcpServers") else {
        return;
    };
    let off = reading.off.clone();
    reading.off_by_list(
        project.value.get("disabledMcpServers"),
        "Claude Code has it off in its project",
    );
    reading.project = Some(project.name.clone().into());
    reading.entries(servers, "mcpServers");
    reading.project = None;
    reading.off = off;
}

fn off_in_all(projects: &[&Member]) -> Vec<String> {
    let lists = |project: &&Member| names(project.value.get("disabledMcpServers"));
    let Some((first, rest)) = projects.split_first() else {
        return Vec::new();
    };
    lists(first)
        .into_iter()
        .filter(|name| rest.iter().all(|project| lists(project).contains(name)))
        .collect()
}

/// Servers of a checked-in file are off until the user has approved them in Claude Code or with us.
fn project_file(reading: &mut Reading<'_, '_>) {
    let Some(project) = reading.project.clone() else {
        return;
    };
    let search = reading.search;
    let document = |path: &Path| {
        search.consult(path);
        Document::read(path, Format::Json)
            .and_then(Result::ok)
            .map(|document| document.root)
    };
    let own = document(&user_file(search));
    let remembered = own
        .as_ref()
        .and_then(|root| root.get("projects"))
        .and_then(Value::members)
        .and_then(|projects| {
            projects
                .iter()
                .find(|member| same_folder(&member.name, &project))
        })
        .map(|member| &member.value);
    let settings = document(&settings_folder(search).join("settings.json"));
    let local = document(&project.join(".claude/settings.local.json"));
    let checked_in = document(&project.join(".claude/settings.json"));
    let trusted: Vec<&Value> = [remembered, settings.as_ref(), local.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    let approved: Vec<String> = trusted
        .iter()
        .flat_map(|value| names(value.get("enabledMcpjsonServers")))
        .collect();
    let all = trusted.iter().any(|value| {
        value
            .get("enableAllProjectMcpServers")
            .and_then(Value::bool)
            == Some(true)
    });
    let servers = reading
        .document
        .root
        .get("mcpServers")
        .and_then(Value::members)
        .unwrap_or_default();
    for Member { name, .. } in servers {
        if !all && !approved.contains(name) {
            reading.off.insert(
                name.clone(),
                "a project file names it; it waits for your approval".to_owned(),
            );
        }
    }
    reading.off.remove("*");
    for value in trusted.into_iter().chain(checked_in.as_ref()) {
        reading.off_by_list(
            value.get("disabledMcpjsonServers"),
            "it was denied in Claude Code",
        );
        reading.off_by_list(
            value.get("disabledMcpServers"),
            "Claude Code has it off in this project",
        );
    }
    managed_elsewhere(reading);
    reading.section(&["mcpServers"]);
}

fn names(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::items)
        .into_iter()
        .flatten()
        .filter_map(Value::text)
        .map(str::to_owned)
        .collect()
}

/// Windows writes these keys with forward slashes.
pub(super) fn same_folder(written: &str, folder: &Path) -> bool {
    let plain = |text: &str| text.replace('\\', "/").trim_end_matches('/').to_owned();
    plain(written) == plain(&folder.to_string_lossy())
}
