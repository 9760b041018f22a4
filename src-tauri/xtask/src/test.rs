//! `cargo xtask test`: prepare everything, run every test there is, and count honestly. What was
//! skipped is told with its reason; in CI nothing may be skipped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::engine::{self, Engines};
use crate::shell::{build_sidecar, cargo, root, say, target, which};
use crate::{app, bindings, check, guest, licences, setup, tidy, ui};

/// Most tests wait for a container, so there are more of them at once than cores.
const TEST_THREADS: &str = "4";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave out formatting and clippy.
    #[arg(long)]
    fast: bool,
    /// Fail if anything was skipped; set by `CI=true` too.
    #[arg(long)]
    ci: bool,
    /// Test the embedded sandbox by itself and nothing else.
    #[arg(long, conflicts_with = "filter")]
    embedded: bool,
    /// Test the desktop app and nothing else.
    #[arg(long)]
    app: bool,
    /// Run only the Rust tests whose name has this text, and nothing else.
    filter: Option<String>,
}

/// Tests of one kind, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// All counts of a run, with what went wrong and what was left out.
#[derive(Default)]
struct Tally {
    total: Count,
    failures: Vec<String>,
    skips: Vec<String>,
    times: Vec<(String, Duration)>,
}

impl Tally {
    /// A step that gives its own count.
    fn counted(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<Count>) {
        say(format_args!("== {name}"));
        let begun = Instant::now();
        match step() {
            Ok(count) => {
                if count.skipped > 0 {
                    self.skips.push(format!(
                        "{name}: {} that say so in their code",
                        count.skipped
                    ));
                }
                if count.failed > 0 {
                    self.failures
                        .push(format!("{name}: {} failed", count.failed));
                }
                self.total.add(count);
            }
            Err(error) => {
                say(format_args!("{name}: {error:#}"));
                self.failures.push(format!("{name}: {error:#}"));
                self.total.failed += 1;
            }
        }
        self.times.push((name.to_owned(), begun.elapsed()));
    }

    /// A step that passes or fails as a whole.
    fn whole(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<()>) {
        self.counted(name, || {
            step().map(|()| Count {
                passed: 1,
                ..Count::default()
            })
        });
    }

    fn skip(&mut self, what: &str, why: &str) {
        self.total.skipped += 1;
        self.skips.push(format!("{what}: {why}"));
    }
}

/// `cargo xtask test`.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let strict =
        arguments.ci || std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    if arguments.embedded {
        return embedded(strict);
    }
    let begun = Instant::now();
    let components = setup::run_beside(|| {
        guest::run(&guest::Arguments::default())?;
        app::set_up_tests()
    })?;
    let (engines, why_missing) = match engine::for_tests(&target().join("engines")) {
        Ok(engines) => (
            engines,
            "RUNBRIDGE_TEST_ENGINES does not name it".to_owned(),
        ),
        Err(error) if strict => return Err(error),
        // The built-in sandbox needs none.
        Err(error) => (Engines::none(), format!("{error:#}")),
    };
    say(format_args!(
        "ready after {} s: the built-in sandbox, and {}",
        begun.elapsed().as_secs(),
        match engines.list() {
            list if list.is_empty() => "no container engine".to_owned(),
            list => list,
        }
    ));

    let mut tally = Tally::default();
    for name in engines.missing() {
        tally.skip(&format!("tests on {name}"), &why_missing);
    }
    tally.times.push(("set up".to_owned(), begun.elapsed()));
    let skips = target().join("skipped-tests");
    let _ = std::fs::remove_file(&skips);

    let environment = Environment {
        engines: &engines,
        components: &components,
        skips: &skips,
    };
    let (name, only) = if arguments.app {
        ("desktop app", Some(THE_APP))
    } else {
        ("Rust tests", None)
    };
    tally.counted(name, || {
        run_tests(only, arguments.filter.as_deref(), |command| {
            environment.give(command);
        })
    });
    for line in std::fs::read_to_string(&skips).unwrap_or_default().lines() {
        // The runner counted it among those that passed.
        tally.total.passed = tally.total.passed.saturating_sub(1);
        tally.total.skipped += 1;
        tally.skips.push(line.to_owned());
    }
    if arguments.filter.is_none() && !arguments.app {
        tally.counted("guest tests on every Python here", all_guest_tests);
        client_tests(&environment, &mut tally);
        tally.whole("window: types of the core", bindings::check);
        tally.whole("window: formatting and types", ui::check);
        tally.whole("window: units", ui::units);
        tally.whole("window: screens", ui::screens);
        tally.whole("tidy", tidy::run_all);
        tally.whole("licences of all parts", licences::check);
        if !arguments.fast {
            tally.whole("format", check::format);
            tally.whole("clippy", check::clippy);
        }
    }
    drop(engines);
    report(&tally, strict)
}

/// `cargo xtask engines`: all that tests need, for as long as somebody wants it.
pub(crate) fn keep_ready() -> anyhow::Result<()> {
    let components = setup::run_all()?;
    let engines = engine::for_tests(&target().join("engines"))?;
    println!("export RUNBRIDGE_TEST_ENGINES={}", engines.list());
    println!("export RUNBRIDGE_TEST_IMAGE={}", engine::image());
    println!("export RUNBRIDGE_TEST_COMPONENTS={}", components.display());
    say("the engines run until you press Enter");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn report(tally: &Tally, strict: bool) -> anyhow::Result<()> {
    for (name, time) in &tally.times {
        say(format_args!("{:>6.1} s  {name}", time.as_secs_f64()));
    }
    for skip in &tally.skips {
        say(format_args!("skipped {skip}"));
    }
    for failure in &tally.failures {
        say(format_args!("FAILED {failure}"));
    }
    let Count {
        passed,
        failed,
        skipped,
    } = tally.total;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        bail!("{failed} failed");
    }
    if strict && skipped > 0 {
        bail!("{skipped} skipped, and in CI nothing may be");
    }
    Ok(())
}

/// What every test process is told.
struct Environment<'a> {
    engines: &'a Engines,
    components: &'a Path,
    skips: &'a Path,
}

impl Environment<'_> {
    fn give(&self, command: &mut Command) {
        command
            .env("RUNBRIDGE_TEST_ENGINES", self.engines.list())
            .env("RUNBRIDGE_TEST_IMAGE", engine::image())
            .env("RUNBRIDGE_TEST_COMPONENTS", self.components)
            .env(runbridge_testkit::SKIPS_FILE, self.skips);
    }
}

/// A part of the Rust tests. All packages are built whatever is run, with the same features.
#[derive(Clone, Copy)]
struct Part {
    /// For nextest.
    expression: &'static str,
    /// For `cargo test`, which cannot tell tests apart by an expression.
    packages: &'static [&'static str],
}

/// The desktop app: its units, and itself in a window.
const THE_APP: Part = Part {
    expression: "package(runbridge-app) + package(runbridge-app-tests)",
    packages: &[
        "--package",
        "runbridge-app",
        "--package",
        "runbridge-app-tests",
    ],
};

/// The tests of the embedded sandbox, which need what `cargo xtask guest` builds.
const EMBEDDED: Part = Part {
    expression: "binary_id(runbridge-sandbox::wasi)",
    packages: &["--workspace", "--test", "wasi"],
};

/// `cargo xtask test --embedded`: the quick way while working on it.
fn embedded(strict: bool) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    tally.counted("embedded sandbox", embedded_tests);
    tally.whole("clippy", check::clippy_embedded);
    report(&tally, strict)
}

fn embedded_tests() -> anyhow::Result<Count> {
    guest::run(&guest::Arguments::default())?;
    app::set_up_tests()?;
    run_tests(Some(EMBEDDED), None, |_| ())
}

/// Let the runner run the Rust tests, or some, in the environment that `give` makes.
fn run_tests(
    only: Option<Part>,
    filter: Option<&str>,
    give: impl FnOnce(&mut Command),
) -> anyhow::Result<Count> {
    let mut command = cargo();
    let count_line = if which("cargo-nextest").is_some() {
        command.args([
            "nextest",
            "run",
            "--no-fail-fast",
            "--color",
            "never",
            "--workspace",
        ]);
        if let Some(part) = only {
            command.args(["--filterset", part.expression]);
        }
        command.args(["--status-level", "slow", "--final-status-level", "fail"]);
        command.args(["--test-threads", TEST_THREADS]).args(filter);
        nextest_count
    } else {
        command.args(["test", "--no-fail-fast", "--color", "never"]);
        command
            .args(only.map_or(&["--workspace"][..], |part| part.packages))
            .args(filter)
            .args(["--", "--test-threads", TEST_THREADS]);
        cargo_test_count
    };
    give(&mut command);
    let mut count = Count::default();
    let succeeded = watch(&mut command, |line| count.add(count_line(line)))?;
    if filter.is_some() || only.is_some() {
        // The runner calls everything that was not asked for skipped.
        count.skipped = 0;
    }
    if !succeeded && count.failed == 0 {
        bail!("the runner failed before or beside its tests; see above");
    }
    if count == Count::default() {
        bail!("there was no test to run");
    }
    Ok(count)
}

/// The guest's own tests, which wait more than they work: on two interpreters at a time.
fn all_guest_tests() -> anyhow::Result<Count> {
    let mut total = Count::default();
    for pair in pythons().chunks(2) {
        let results = std::thread::scope(|scope| {
            let tests: Vec<_> = pair
                .iter()
                .map(|python| scope.spawn(|| guest_tests(python)))
                .collect();
            tests
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect::<Vec<_>>()
        });
        for (python, result) in pair.iter().zip(results) {
            let Ok(result) = result else {
                bail!("the tests on {} panicked", python.display());
            };
            let (said, count) = result.with_context(|| python.display().to_string())?;
            say(format_args!("guest tests on {}\n{said}", python.display()));
            total.add(count);
        }
    }
    Ok(total)
}

/// The same on one interpreter, with what it said.
fn guest_tests(python: &Path) -> anyhow::Result<(String, Count)> {
    let output = Command::new(python)
        .current_dir(root())
        .args(["-B", "-m", "unittest", "discover", "-s", "tests/guest"])
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut count = Count::default();
    let mut ran = 0;
    for line in said.lines() {
        if let Some(number) = number_before(line, " test").filter(|_| line.starts_with("Ran ")) {
            ran = number;
        } else if line.starts_with("FAILED (") || line.starts_with("OK") {
            count.failed = number_after(line, "failures=") + number_after(line, "errors=");
            count.skipped = number_after(line, "skipped=");
        }
    }
    count.passed = ran.saturating_sub(count.failed + count.skipped);
    if ran == 0 || (!output.status.success() && count.failed == 0) {
        bail!("unittest did not finish\n{said}");
    }
    Ok((said, count))
}

/// Every Python 3 that the guest must run on: one of each minor version.
fn pythons() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for minor in 9..=14 {
        let name = format!("python3.{minor}");
        let mut places: Vec<PathBuf> = which(&name).into_iter().collect();
        if let Some(home) = std::env::var_os("HOME") {
            let versions = std::fs::read_dir(Path::new(&home).join(".pyenv/versions"));
            places.extend(
                versions
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|dir| dir.path().join("bin").join(&name)),
            );
        }
        // A pyenv shim is there for versions that are not switched on too, so it is asked.
        let works = |python: &PathBuf| {
            Command::new(python)
                .arg("--version")
                .output()
                .is_ok_and(|output| output.status.success())
        };
        found.extend(places.into_iter().find(works));
    }
    found
}

/// Scripts that drive the sidecar with the real client libraries.
fn client_tests(environment: &Environment<'_>, tally: &mut Tally) {
    let engine = environment.engines.first_or_builtin();
    let sidecar = match build_sidecar(false) {
        Ok(sidecar) => sidecar,
        Err(error) => return tally.whole("real clients", || Err(error)),
    };
    let python = environment.components.join("py/clients/bin/python");
    let node = PathBuf::from("node");
    let scripts = [
        (&python, "python_sdk_session.py"),
        (&python, "python_sdk_client.py"),
        (&python, "fastmcp_client.py"),
        (&node, "typescript_sdk.mjs"),
    ];
    for (interpreter, script) in scripts {
        tally.whole(&format!("client {script}"), || {
            let home = runbridge_testkit::TempHome::new();
            let components = runbridge_testkit::Components::at(environment.components);
            home.share_compiled_python(&sidecar);
            home.write("files/hello.txt", "hello from a file\n");
            home.write_servers(&components.entries(&["filesystem", "time"], &home));
            let mut command = Command::new(interpreter);
            command
                .arg(root().join("tests/clients").join(script))
                .env("SIDECAR", &sidecar)
                .env("COMPONENTS", environment.components)
                .env("HOME", home.path())
                .env("TMPDIR", home.temp_dir())
                .env("MCP_BRIDGE_IMAGE", engine::image())
                .envs(engine.variables());
            let mut leftovers = runbridge_testkit::Leftovers::of(home.path(), Some(engine.clone()));
            let mut child = command
                .stdin(Stdio::null())
                .spawn()
                .with_context(|| format!("cannot start {script}"))?;
            let end = Instant::now() + Duration::from_mins(2);
            let status = loop {
                leftovers.note_owner();
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                if Instant::now() > end {
                    child.kill()?;
                    child.wait()?;
                    bail!("no end within 120 s");
                }
                std::thread::sleep(Duration::from_millis(50));
            };
            if !status.success() {
                bail!("ended with {status}");
            }
            leftovers.assert_none();
            Ok(())
        });
    }
}

/// Run a command, showing each line of its output and handing it on.
fn watch(command: &mut Command, mut line: impl FnMut(&str)) -> anyhow::Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    let (reader, writer) = std::io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    // The command keeps the writing end for as long as it is held here.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for text in BufReader::new(reader).split(b'\n') {
        let text = text?;
        let text = String::from_utf8_lossy(&text);
        let _ = writeln!(std::io::stderr(), "{text}");
        line(&text);
    }
    Ok(child.wait()?.success())
}

/// What a closing line of nextest counts. The closing lines of single tests that failed are shown
/// further in, as `cargo test` writes them.
fn nextest_count(line: &str) -> Count {
    if line.trim().starts_with("Summary [") {
        // Those that time out or crash are counted apart from those that fail.
        let failed = ["failed", "timed out", "exec failed"]
            .iter()
            .map(|word| word_count(line, word))
            .sum();
        return Count {
            passed: word_count(line, "passed"),
            failed,
            skipped: word_count(line, "skipped"),
        };
    }
    Count::default()
}

/// What a closing line of one test program under `cargo test` counts.
fn cargo_test_count(line: &str) -> Count {
    if line.starts_with("test result:") {
        return Count {
            passed: word_count(line, "passed"),
            failed: word_count(line, "failed"),
            skipped: word_count(line, "ignored"),
        };
    }
    Count::default()
}

/// The number before `word` in a list such as `12 passed, 1 failed`.
fn word_count(line: &str, word: &str) -> usize {
    let item = line.split([',', ';', ':', '.']).find_map(|item| {
        let (number, rest) = item.trim().split_once(' ')?;
        let rest = rest.split(" (").next()?;
        (rest == word).then(|| number.parse().ok()).flatten()
    });
    item.unwrap_or(0)
}

fn number_before(line: &str, word: &str) -> Option<usize> {
    line.split(word).next()?.rsplit(' ').next()?.parse().ok()
}

fn number_after(line: &str, word: &str) -> usize {
    let rest = line.split_once(word).map_or("", |(_, rest)| rest);
    rest.split(|letter: char| !letter.is_ascii_digit())
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_are_counted() {
        let nextest = "     Summary [   3.456s] 120 tests run: 117 passed (2 slow), 2 failed, 1 timed out, 4 skipped";
        assert_eq!(
            nextest_count(nextest),
            Count {
                passed: 117,
                failed: 3,
                skipped: 4
            }
        );
        let cargo = "test result: FAILED. 5 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.02s";
        assert_eq!(
            cargo_test_count(cargo),
            Count {
                passed: 5,
                failed: 1,
                skipped: 2
            }
        );
        // nextest shows the output of a failed test, in which `cargo test` counts it once more.
        assert_eq!(nextest_count(cargo), Count::default());
        assert_eq!(cargo_test_count("test passed ... ok"), Count::default());
    }

    #[test]
    fn unittest_lines_are_counted() {
        assert_eq!(number_before("Ran 41 tests in 2.310s", " test"), Some(41));
        assert_eq!(
            number_after("FAILED (failures=1, errors=12, skipped=3)", "errors="),
            12
        );
        assert_eq!(number_after("OK", "skipped="), 0);
    }
}
