//! Measure the release build from outside, as a client sees it, on every engine there is. The
//! repetitions of all measures are interleaved, so that a busy minute of the machine hits all alike,
//! and a fixed piece of work is timed among them to tell how busy it was.

mod app;
mod results;
mod screen;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use runbridge_testkit::{Engine, Era, Leftovers, McpClient, TempHome, wait_for};
use serde_json::{Map, json};
use sha2::{Digest as _, Sha256};

use self::results::{AppResults, Results, Spread, app_table, put_between, table};
use crate::engine;
use crate::setup;
use crate::shell::{self, build_sidecar, cargo, root, say, target};

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Few repetitions: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Measure this binary, such as an older one, instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measure nothing; write the table of the last result into the README.
    #[arg(long)]
    readme: bool,
    /// Measure the desktop app instead, on the first engine.
    #[arg(long)]
    app: bool,
}

/// `cargo xtask bench`.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.readme {
        return write_readme();
    }
    setup::run_all()?;
    if arguments.app {
        return measure_app(arguments);
    }
    let program = match &arguments.program {
        Some(program) => program
            .canonicalize()
            .with_context(|| format!("no {}", program.display()))?,
        None => build_sidecar(true)?,
    };
    let http = build_http()?;
    let engines = engine::for_tests(&target().join("engines"))?;
    let builtin = Engine::builtin();
    let repetitions = if arguments.quick { 3 } else { 9 };
    let mut values: BTreeMap<(String, &'static str), Vec<f64>> = BTreeMap::new();
    let mut noise = Vec::new();
    for repetition in 1..=repetitions {
        say(format_args!("repetition {repetition} of {repetitions}"));
        for engine in engines.all().iter().chain([&builtin]) {
            noise.push(fixed_work());
            let mut add = |key, value| {
                values
                    .entry((engine.name.clone(), key))
                    .or_default()
                    .push(value);
            };
            session(&program, engine, &mut add).with_context(|| format!("on {}", engine.name))?;
            if engine.is_builtin() && repetition <= COMPILATIONS {
                add("first_ever", first_ever(&program, engine)?);
            }
            let [above_bare, above_rmcp, together] = over_http(&http)?;
            add("http_call", above_bare);
            add("http_call_rmcp", above_rmcp);
            add("http_together", together);
        }
    }
    let mut results = Results {
        machine: machine(),
        repetitions,
        noise_ms: Spread::of(noise),
        engines: BTreeMap::new(),
        app: read_results().ok().and_then(|before| before.app),
    };
    for ((engine, key), values) in values {
        results
            .engines
            .entry(engine)
            .or_default()
            .insert(key.to_owned(), Spread::of(values));
    }
    println!("{}", table(&results));
    if arguments.quick || arguments.program.is_some() {
        say(NOT_KEPT);
        return Ok(());
    }
    keep(&results)
}

/// `cargo xtask bench --app`; `--program` names an app with its sidecar beside it.
fn measure_app(arguments: &Arguments) -> anyhow::Result<()> {
    crate::app::set_up_screen()?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => crate::app::build(true)?,
    };
    let engines = engine::for_tests(&target().join("engines"))?;
    let repetitions = if arguments.quick { 2 } else { 7 };
    let measured = AppResults {
        machine: machine(),
        repetitions,
        values: app::measure(&program, &engines.first_or_builtin(), repetitions)?,
    };
    println!("{}", app_table(&measured));
    if arguments.quick || arguments.program.is_some() {
        say(NOT_KEPT);
        return Ok(());
    }
    let mut results = read_results()?;
    results.app = Some(measured);
    keep(&results)
}

const NOT_KEPT: &str = "not kept: only a whole run of the release build is";

/// Repetitions in which the built-in Python is compiled anew, which takes seconds.
const COMPILATIONS: usize = 3;

/// Prints what each of two pieces of plain computation takes, in milliseconds.
const COMPUTE: &str = "\
import time
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def timed(work):
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000
print(min(timed(lambda: fib(24)) for _ in range(5)))
print(min(timed(lambda: sum(i * i for i in range(300_000))) for _ in range(5)))
";

const LOOP: &str = "\
import time
begun = time.perf_counter()
for _ in range(1000):
    await mcp_stub.echo(text='x')
print((time.perf_counter() - begun) * 1000 / 1000)
";

const GATHER: &str = "\
import asyncio, time
begun = time.perf_counter()
await asyncio.gather(*[mcp_stub.sleep_ms(ms=50) for _ in range(100)])
print((time.perf_counter() - begun) * 1000)
";

/// One life of the sidecar with a spare that is not ready, one with a spare that is, and what can be
/// measured within them.
fn session(
    program: &Path,
    engine: &Engine,
    add: &mut impl FnMut(&'static str, f64),
) -> anyhow::Result<()> {
    add("discovery", discovery(program)?);
    // As soon as a client may: the first container is on its way, as it would be for a user.
    let life = Life::start(program, engine, 16)?;
    add("initialize", life.initialized);
    add("first_cold", life.run("print(1)")?.1);
    life.end()?;

    let mut life = Life::start(program, engine, 16)?;
    add("initialize", life.initialized);
    life.spare_ready(engine, 0)?;
    add("idle", life.client.memory_kib("VmRSS") as f64 / 1000.0);
    add("first_warm", life.run("print(1)")?.1);
    let mut warm = Vec::new();
    for _ in 0..20 {
        warm.push(life.run("print(1)")?.1);
    }
    add("warm", Spread::of(warm).median);
    if engine.is_builtin() {
        add("session_memory", life.session_memory()?);
    }
    // A new spare is being started, which takes a core for a moment.
    life.spare_ready(engine, 1)?;
    add("session", life.first_of("another")?);
    life.spare_ready(engine, 2)?;
    life.run("await mcp_stub.echo(text='x')")?;
    add("call", life.number(LOOP)?);
    add("gather_16", life.number(GATHER)?);
    life.run("s = 'z' * 999\nfor _ in range(50_000):\n    print(s)")?;
    add("peak", life.client.memory_kib("VmHWM") as f64 / 1000.0);
    let (own, inside) = (computed(&native()?)?, computed(&life.run(COMPUTE)?.0)?);
    add("fib", inside.0 / own.0);
    add("squares", inside.1 / own.1);
    life.end()?;

    let mut life = Life::start(program, engine, 128)?;
    life.run("await mcp_stub.echo(text='x')")?;
    life.spare_ready(engine, 1)?;
    add("gather_128", life.number(GATHER)?);
    life.end()
}

/// What the built-in sandbox takes for its first run on a machine that has never had it.
fn first_ever(program: &Path, engine: &Engine) -> anyhow::Result<f64> {
    let life = Life::start_in(TempHome::new(), program, engine, 16)?;
    let took = life.run("print(1)")?.1;
    life.end()?;
    Ok(took)
}

/// The same computation by the machine's own Python.
fn native() -> anyhow::Result<String> {
    let mut python = std::process::Command::new("python3");
    shell::run_quietly(python.args(["-c", COMPUTE]))
}

fn computed(text: &str) -> anyhow::Result<(f64, f64)> {
    let numbers = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<f64>, _>>();
    match numbers.as_deref() {
        Ok([fib, squares]) => Ok((*fib, *squares)),
        _ => bail!("two numbers expected, got {text:?}"),
    }
}

/// The program that measures calls over HTTP, which needs no engine.
fn build_http() -> anyhow::Result<PathBuf> {
    let mut command = cargo();
    command.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "runbridge-http-overhead",
    ]);
    shell::run(&mut command)?;
    Ok(target().join("release/http_overhead"))
}

/// What a call over HTTP costs above the bare exchange and above rmcp's own client, and what many of
/// them take together.
fn over_http(program: &Path) -> anyhow::Result<[f64; 3]> {
    let output = std::process::Command::new(program).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "measuring HTTP failed: {said}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| {
        found[name]
            .as_f64()
            .with_context(|| format!("no {name} in {found}"))
    };
    Ok([
        number("above_bare")?,
        number("above_rmcp")?,
        number("together")?,
    ])
}

/// What it takes to read the files of all clients that there are, one of them with a long history in it.
fn discovery(program: &Path) -> anyhow::Result<f64> {
    let home = TempHome::new();
    let fixtures = root().join("tests/fixtures/clients");
    let mut files = 0;
    for client in std::fs::read_dir(&fixtures)? {
        let client = client?.path();
        for case in ["linux", "first", "scopes"] {
            files += copy(&client.join(case), home.path())?;
        }
    }
    ensure!(files >= 40, "only {files} files");
    let history: Vec<String> = (0..2_000)
        .map(|n| format!("{n}: {}", "x".repeat(500)))
        .collect();
    let account = json!({
        "history": history,
        "mcpServers": {"one": {"command": "one"}},
    });
    home.write(".claude.json", &account.to_string());
    let look = || -> anyhow::Result<f64> {
        let output = std::process::Command::new(program)
            .args(["servers", "--json"])
            .env_clear()
            .env("HOME", home.path())
            .env("PATH", "/usr/bin:/bin")
            .output()?;
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        listed["discovery_ms"]
            .as_f64()
            .context("the sidecar does not say how long it looked")
    };
    look()?;
    look()
}

/// Copies the files of a folder, if there is one, into another; says how many.
fn copy(from: &Path, to: &Path) -> anyhow::Result<usize> {
    if !from.is_dir() {
        return Ok(0);
    }
    std::fs::create_dir_all(to)?;
    let mut files = 0;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files += copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
            files += 1;
        }
    }
    Ok(files)
}

/// One run of the sidecar in a home of its own.
struct Life {
    client: McpClient,
    leftovers: Leftovers,
    initialized: f64,
    // Last: the folder goes when the process has gone.
    _home: TempHome,
}

impl Life {
    fn start(program: &Path, engine: &Engine, calls_at_once: u32) -> anyhow::Result<Self> {
        let home = TempHome::new();
        home.share_compiled_python(program);
        Self::start_in(home, program, engine, calls_at_once)
    }

    fn start_in(
        home: TempHome,
        program: &Path,
        engine: &Engine,
        calls_at_once: u32,
    ) -> anyhow::Result<Self> {
        home.write_servers(&Map::from_iter([("stub".to_owned(), home.quick_stub(&[]))]));
        let settings = json!({
            "version": 1,
            "limits": { "calls_at_once_max": calls_at_once },
        });
        home.write(".runbridge/config/settings.json", &settings.to_string());
        let mut variables = engine.variables();
        variables.push(("MCP_BRIDGE_IMAGE".to_owned(), engine::image().to_owned()));
        variables.push((
            "RUNBRIDGE_HOME".to_owned(),
            home.join(".runbridge").to_string_lossy().into_owned(),
        ));
        let leftovers = Leftovers::of(home.path(), Some(engine.clone()));
        let begun = Instant::now();
        let (client, _) = McpClient::start(
            program,
            &[],
            home.path(),
            &variables,
            Era::Initialize("2025-11-25"),
        )?;
        let initialized = milliseconds(begun.elapsed());
        Ok(Self {
            client,
            leftovers,
            initialized,
            _home: home,
        })
    }

    /// Wait until a spare waits beside `taken` other sandboxes, and a little longer for Python in it.
    fn spare_ready(&mut self, engine: &Engine, taken: usize) -> anyhow::Result<()> {
        if engine.is_builtin() {
            let ready = wait_for(Duration::from_secs(20), || {
                (self.workers().len() > taken).then_some(())
            });
            ensure!(ready.is_some(), "no spare worker within 20 s");
            std::thread::sleep(Duration::from_millis(300));
            return Ok(());
        }
        let ready = wait_for(Duration::from_secs(20), || {
            self.leftovers.note_owner();
            (self.leftovers.running_containers() > taken).then_some(())
        });
        ensure!(ready.is_some(), "no spare container within 20 s");
        std::thread::sleep(Duration::from_millis(700));
        Ok(())
    }

    fn run(&self, code: &str) -> anyhow::Result<(String, f64)> {
        let reply = self
            .client
            .send_run(json!({ "code": code, "timeout": 110 }))
            .reply()?;
        if reply.status() != "success" {
            bail!(
                "`{}` ended with {}: {}",
                code.lines().next().unwrap_or_default(),
                reply.status(),
                reply.text()
            );
        }
        Ok((reply.stdout().to_owned(), milliseconds(reply.took)))
    }

    /// What the first run of another session takes.
    fn first_of(&self, session: &str) -> anyhow::Result<f64> {
        let run = json!({ "code": "print(1)", "session": session });
        let reply = self.client.send_run(run).reply()?;
        ensure!(reply.status() == "success", "{}", reply.text());
        Ok(milliseconds(reply.took))
    }

    /// Memory in MiB that the process of an idle session shares with no other: the most of those
    /// there are, a spare among them.
    fn session_memory(&self) -> anyhow::Result<f64> {
        let mut most = 0.0_f64;
        for worker in self.workers() {
            let memory = std::fs::read_to_string(worker.join("smaps_rollup")).unwrap_or_default();
            let kib = memory
                .lines()
                .find_map(|line| line.strip_prefix("Private_Dirty:"))
                .and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            most = most.max(kib.unwrap_or_default() / 1024.0);
        }
        ensure!(most > 0.0, "no session has a process");
        Ok(most)
    }

    /// The folders under `/proc` of the processes that hold its guests of the built-in sandbox.
    fn workers(&self) -> Vec<PathBuf> {
        let sidecar = format!("PPid:\t{}", self.client.pid());
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .map(|entry| entry.path())
            .filter(|process| {
                let read = |name: &str| std::fs::read_to_string(process.join(name));
                let status = read("status").unwrap_or_default();
                status.lines().any(|line| line == sidecar)
                    && read("cmdline").is_ok_and(|words| words.contains("__worker"))
            })
            .collect()
    }

    fn number(&self, code: &str) -> anyhow::Result<f64> {
        let text = self.run(code)?.0;
        text.trim()
            .parse()
            .with_context(|| format!("a number expected, got {text:?}"))
    }

    fn end(self) -> anyhow::Result<()> {
        let closed = self.client.close();
        ensure!(
            !closed.killed,
            "the sidecar did not end when its stdin closed"
        );
        Ok(())
    }
}

/// Work of a fixed amount: what it takes tells how busy the machine is.
fn fixed_work() -> f64 {
    let block = vec![7_u8; 1 << 20];
    let begun = Instant::now();
    let mut hash = Sha256::new();
    for _ in 0..8 {
        hash.update(&block);
    }
    std::hint::black_box(hash.finalize());
    milliseconds(begun.elapsed())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("?", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{model}, {cores} cores, Linux {}",
        read("/proc/sys/kernel/osrelease").trim()
    )
}

fn results_file() -> PathBuf {
    root().join("src-tauri/xtask/bench-results.json")
}

fn read_results() -> anyhow::Result<Results> {
    let path = results_file();
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "no results at {}; run `cargo xtask bench` first",
            path.display()
        )
    })?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

fn keep(results: &Results) -> anyhow::Result<()> {
    let path = results_file();
    std::fs::write(
        &path,
        format!("{}\n", serde_json::to_string_pretty(results)?),
    )
    .with_context(|| format!("cannot write {}", path.display()))?;
    say(format_args!(
        "written to {}; `cargo xtask bench --readme` puts it into the README",
        path.display()
    ));
    Ok(())
}

fn write_readme() -> anyhow::Result<()> {
    let results = read_results()?;
    let mut tables = vec![table(&results)];
    tables.extend(results.app.as_ref().map(app_table));
    let readme_path = root().join("README.md");
    let readme = std::fs::read_to_string(&readme_path)?;
    std::fs::write(&readme_path, put_between(&readme, &tables.join("\n\n"))?)?;
    say("README.md has the figures");
    Ok(())
}
