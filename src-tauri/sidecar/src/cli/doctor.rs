//! `runbridge doctor`: each thing that must work, with a verdict and what to do.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use runbridge_core::api::SandboxKind;
use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::paths::Environment;
use runbridge_core::sandboxes::{ContainerFacts, Sandbox, SandboxFacts};
use runbridge_core::secrets::Place;
use runbridge_core::settings::limits::TABLE;
use runbridge_core::settings::units::Unit;
use runbridge_core::settings::{Backend, PackagesPolicy};
use runbridge_core::{packages, request, run};
use serde_json::{Map, Value, json};

use crate::cli::servers;
use crate::style::{self, Tone, paint};

#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Do not start the servers
    #[arg(long)]
    no_servers: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Good,
    Warning,
    Bad,
}

/// One thing that was looked at.
struct Check {
    what: String,
    verdict: Verdict,
    found: String,
    fix: Option<String>,
}

impl Check {
    fn good(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            verdict: Verdict::Good,
            found: found.into(),
            fix: None,
        }
    }

    fn warning(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self {
            what: what.into(),
            verdict: Verdict::Warning,
            found: found.into(),
            fix,
        }
    }

    fn bad(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self {
            what: what.into(),
            verdict: Verdict::Bad,
            found: found.into(),
            fix,
        }
    }
}

pub(crate) async fn run(arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let bridge = Bridge::open(Environment::of_process(), Role::Ask)?;
    bridge.discovered().await;
    let mut checks = settings(&bridge);
    checks.push(secrets(&bridge).await);
    checks.extend(sandbox(&bridge).await);
    checks.push(installed(&bridge).await);
    checks.extend(files(&bridge));
    if !arguments.no_servers {
        servers::start_all(&bridge).await;
        let servers = bridge.catalog().servers();
        checks.extend(servers.iter().map(server));
        if servers.is_empty() {
            checks.push(Check::warning(
                "servers",
                "none are named in the files of any client",
                "name one where your client has its own, or in ~/MCPs; `runbridge servers` lists them",
            ));
        }
    }
    bridge.shut_down().await;
    if arguments.json {
        let document: Vec<Value> = checks.iter().map(as_json).collect();
        style::line(&serde_json::to_string_pretty(&document)?);
    } else {
        checks.iter().for_each(print);
    }
    let worst = checks.iter().map(|check| check.verdict).max();
    Ok(if worst == Some(Verdict::Bad) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn settings(bridge: &Bridge) -> Vec<Check> {
    let mut checks = vec![Check::good(
        "settings",
        bridge.paths().settings().display().to_string(),
    )];
    checks.extend(bridge.settings_problems().iter().map(|problem| {
        Check::warning(
            "settings",
            problem.to_string(),
            "correct it; the default is in force",
        )
    }));
    checks
}

async fn secrets(bridge: &Bridge) -> Check {
    match bridge.secrets().place().await {
        Place::Keyring => Check::good("secrets", "encrypted, with the key in the system's keyring"),
        Place::File { reason } => Check::warning(
            "secrets",
            format!("encrypted, with the key in a file of yours: {reason}"),
            "with a keyring that opens, other programs that read your files could not read them",
        ),
        Place::Memory => Check::good("secrets", "in memory"),
    }
}

/// The sandbox that a session gets, what it enforces, and a run that proves it.
async fn sandbox(bridge: &Arc<Bridge>) -> Vec<Check> {
    let settings = bridge.settings();
    let sandboxes = bridge.sandboxes();
    let report = progress();
    let opened = match settings.sandbox.backend {
        Backend::Container | Backend::Wasi => sandboxes.choose(&settings, None, &report).await,
        // A session does not wait for an engine; whoever asks what is there does.
        Backend::Auto => match sandboxes.ready_container(&settings).await {
            Ok(container) => Ok(Sandbox::Container(container)),
            Err(_) => sandboxes.choose(&settings, None, &report).await,
        },
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let message = run::sandbox_message(&error);
            let (found, fix) = message.split_once("; ").unwrap_or((&message, ""));
            return vec![Check::bad("sandbox", found, fix)];
        }
    };
    let facts = opened.facts(&settings.limits.sandbox());
    let mut checks = match &facts {
        SandboxFacts::Container(facts) => container(facts),
        SandboxFacts::Wasi(facts) => {
            let why = match settings.sandbox.backend {
                Backend::Auto => sandboxes.ready_container(&settings).await.err(),
                Backend::Container | Backend::Wasi => None,
            };
            let mut checks = vec![Check::good(
                "sandbox",
                format!("built-in, Python {}", facts.python),
            )];
            checks.extend(why.map(|why| Check::good("engine", format!("none in use: {why}"))));
            checks
        }
    };
    for (name, limit) in facts.limits() {
        let Some(asked) = limit.asked.map(|asked| amount(name, asked)) else {
            continue;
        };
        let text = format!(
            "{name} {asked}, by {}",
            json!(limit.how).as_str().unwrap_or("nothing")
        );
        checks.push(if limit.enforced {
            Check::good("limit", text)
        } else {
            Check::warning(
                "limit",
                format!("{name} {asked} is not enforced"),
                match facts.kind() {
                    SandboxKind::Container => {
                        "this engine dropped it; cgroup v2 or a rootful engine enforces it"
                    }
                    SandboxKind::Wasi => "Container in Sandbox settings enforces it",
                },
            )
        });
    }
    checks.extend(facts.warnings().iter().map(|warning| {
        Check::warning(
            "sandbox",
            warning.clone(),
            "see `limit` for what is in force",
        )
    }));
    checks.push(trial(bridge).await);
    checks
}

/// As people write it, and as the settings take it.
fn amount(limit: &str, asked: f64) -> String {
    match TABLE
        .iter()
        .find(|row| row.name == limit)
        .map(|row| row.unit)
    {
        Some(Unit::CpuThousandths) | None => asked.to_string(),
        Some(unit) => unit.show(asked as u64),
    }
}

fn container(facts: &ContainerFacts) -> Vec<Check> {
    let rights = if facts.rootless {
        "rootless"
    } else {
        "with root's rights"
    };
    let engine = format!(
        "{} {} at {}, {rights}",
        facts.engine, facts.version, facts.socket
    );
    vec![
        if facts.rootless {
            Check::good("engine", engine)
        } else {
            Check::warning(
                "engine",
                engine,
                "a rootless engine adds a wall between a sandbox and this machine",
            )
        },
        Check::good(
            "image",
            format!("{} ({})", facts.image, short(&facts.image_id)),
        ),
    ]
}

/// What is waited for, once each, to whoever looks at the terminal.
fn progress() -> impl Fn(&str) + Send + Sync {
    let told = Mutex::new(String::new());
    move |step: &str| {
        let what = step.split(':').next().unwrap_or(step);
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != what {
            what.clone_into(&mut told);
            style::note(what);
        }
    }
}

async fn trial(bridge: &Arc<Bridge>) -> Check {
    let mut call = Map::new();
    let code = "import sys; print('%d.%d.%d' % sys.version_info[:3])";
    call.insert("code".to_owned(), json!(code));
    let request = match request::parse(call, 30, 30) {
        Ok(request) => request,
        Err(problem) => return Check::bad("run", problem, "report this"),
    };
    let connection = bridge.connect();
    let cancel = connection.cancel_token().child_token();
    let began = Instant::now();
    let client = Some("doctor");
    let reply = run::run_python(
        bridge,
        &connection,
        client,
        request,
        cancel,
        run::Audience::default(),
        None,
    )
    .await;
    let took = began.elapsed().as_millis();
    bridge.disconnect(&connection).await;
    if reply.is_error {
        Check::bad(
            "run",
            reply.text,
            "the sandbox starts but Python does not; try another image",
        )
    } else {
        let sandbox = match reply.structured.get("sandbox").and_then(Value::as_str) {
            Some("wasi") => "the built-in sandbox",
            _ => "a container",
        };
        Check::good(
            "run",
            format!("Python {} in {sandbox}, in {took} ms", reply.text.trim()),
        )
    }
}

async fn installed(bridge: &Bridge) -> Check {
    let code = match bridge.settings().packages.policy {
        PackagesPolicy::Off => "code sees none and may not install any",
        PackagesPolicy::Ask => "code may install some once you agree",
        PackagesPolicy::Allow => "code may install some",
    };
    let count = packages::installed(bridge).await.len();
    Check::good("packages", format!("{count} installed; {code}"))
}

fn files(bridge: &Bridge) -> Vec<Check> {
    let mut checks = Vec::new();
    match bridge.memory().and_then(|memory| memory.list()) {
        Ok(listing) => {
            let folder = bridge.paths().memory();
            checks.push(Check::good(
                "memory",
                format!("{} keys in {}", listing.items.len(), folder.display()),
            ));
            checks.extend(listing.damaged.iter().map(|damaged| {
                Check::warning(
                    "memory",
                    format!("{}: {}", damaged.path.display(), damaged.reason),
                    "repair the file, or delete it; it is not touched otherwise",
                )
            }));
        }
        Err(error) => checks.push(Check::bad(
            "memory",
            error.to_string(),
            "make the folder writable, or set MCP_BRIDGE_STATE_DIR to one that is",
        )),
    }
    if let Some(problem) = bridge.activity().problem() {
        checks.push(Check::warning(
            "activity",
            problem,
            "runs work; only their record is affected",
        ));
    }
    if let Some(found) = bridge.discovery() {
        checks.extend(found.problems.iter().map(|problem| {
            Check::warning(
                "config file",
                problem.to_string(),
                "correct it; the other entries count",
            )
        }));
        checks.extend(found.skipped.iter().map(|skipped| {
            let place = skipped.source.path.display();
            Check::good(
                "skipped",
                format!("{} ({place}): {}", skipped.name, skipped.reason),
            )
        }));
    }
    checks
}

fn server(server: &runbridge_core::catalog::ServerStatus) -> Check {
    let what = format!("server {}", server.name);
    let (state, error) = servers::state(server);
    match (state, error) {
        ("failed", Some(error)) => Check::bad(
            what,
            error,
            "start the same command in a terminal to see what it says",
        ),
        ("needs a value", Some(error)) => Check::warning(what, "it lacks a value", error),
        ("off", reason) => Check::good(what, format!("off: {}", reason.unwrap_or_default())),
        _ => {
            let revision = server.revision.as_deref().unwrap_or("unknown");
            let tools = server.tools.unwrap_or_default();
            let mut found = format!("{state}, {tools} tools, revision {revision}");
            for note in &server.notes {
                found.push_str("; ");
                found.push_str(note);
            }
            Check::good(what, found)
        }
    }
}

/// Twelve digits of an image's id, as engines show them.
fn short(id: &str) -> &str {
    let id = id.strip_prefix("sha256:").unwrap_or(id);
    id.get(..12).unwrap_or(id)
}

fn print(check: &Check) {
    let (tone, mark) = match check.verdict {
        Verdict::Good => (Tone::Good, "ok     "),
        Verdict::Warning => (Tone::Warn, "warning"),
        Verdict::Bad => (Tone::Bad, "problem"),
    };
    let mark = paint(tone, mark);
    style::line(&format!(
        "{mark}  {}: {}",
        paint(Tone::Strong, &check.what),
        check.found.trim_end()
    ));
    if let Some(fix) = check.fix.as_deref().filter(|fix| !fix.is_empty()) {
        style::line(&format!("         {fix}"));
    }
}

fn as_json(check: &Check) -> Value {
    let verdict = match check.verdict {
        Verdict::Good => "ok",
        Verdict::Warning => "warning",
        Verdict::Bad => "problem",
    };
    json!({"what": check.what, "verdict": verdict, "found": check.found, "fix": check.fix})
}
