//! Figures of the desktop app: how soon its window is there, what it costs in the tray and open, what
//! a sidecar that relays to it adds.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use runbridge_testkit::{Engine, Era, McpClient, TempHome, image, wait_for};

use serde_json::json;

use super::results::Spread;
use super::screen::Screen;
use crate::shell::say;

const PATIENCE: Duration = Duration::from_mins(1);

/// Runs of one kind in a row; the first of them start what the others use.
const RUNS: usize = 200;

/// Runs that the window shows one after the other.
const SHOWN: usize = 20;

/// How long the app is left alone before its CPU time is looked at.
const IDLE: Duration = Duration::from_secs(10);

/// Measure the app `program` with the sidecar beside it.
pub(super) fn measure(
    program: &Path,
    engine: &Engine,
    repetitions: usize,
) -> anyhow::Result<BTreeMap<String, Spread>> {
    let mut screen = Screen::start()?;
    let mut values: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for repetition in 1..=repetitions {
        say(format_args!(
            "app, repetition {repetition} of {repetitions}"
        ));
        let mut add = |key, value| values.entry(key).or_default().push(value);
        let life = Life::start(program, engine, &screen, &[])?;
        add("window", life.window()?);
        // A page that was just drawn still lays out and collects.
        std::thread::sleep(Duration::from_secs(2));
        add("open", life.pss_mb());
        let client = life.client(&program.with_file_name("runbridge"))?;
        add("shown", shown_after(&client, &mut screen)?);
        client.close();
        drop(life);

        let life = Life::start(program, engine, &screen, &["--hidden"])?;
        let client = life.client(&program.with_file_name("runbridge"))?;
        let relayed = warm_run_ms(&client)?;
        add("relay_memory", client.memory_kib("VmRSS") as f64 / 1000.0);
        client.close();
        std::thread::sleep(Duration::from_secs(2));
        add("closed", life.pss_mb());
        let before = life.cpu_ms()?;
        std::thread::sleep(IDLE);
        add("cpu", (life.cpu_ms()? - before) as f64);
        drop(life);

        let home = TempHome::new();
        let client = client_in(&home, &program.with_file_name("runbridge"), engine)?;
        add("relay", relayed - warm_run_ms(&client)?);
        client.close();
    }
    Ok(values
        .into_iter()
        .map(|(key, values)| (key.to_owned(), Spread::of(values)))
        .collect())
}

/// What it takes from a client's request until the window shows anything of it: the median.
fn shown_after(client: &McpClient, screen: &mut Screen) -> anyhow::Result<f64> {
    client.run("import time");
    let mut times = Vec::with_capacity(SHOWN);
    for _ in 0..SHOWN {
        screen.wait_until_still()?;
        let begun = Instant::now();
        let run = client.send_run(json!({ "code": "time.sleep(0.5)" }));
        times.push(screen.changes_after(begun)?);
        run.reply()?;
    }
    Ok(Spread::of(times).median)
}

/// The median of runs that do nothing.
fn warm_run_ms(client: &McpClient) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let reply = client.run("pass");
        ensure!(reply.status() == "success", "{}", reply.result);
        times.push(reply.took.as_secs_f64() * 1000.0);
    }
    Ok(Spread::of(times.split_off(RUNS / 10)).median)
}

fn loaded_after(log: &str) -> Option<f64> {
    let (_, rest) = log.split_once("the page is loaded, ")?;
    rest.split(' ').next()?.parse().ok()
}

/// One life of the app.
struct Life {
    app: Child,
    home: TempHome,
    variables: Vec<(String, String)>,
}

impl Life {
    fn start(
        program: &Path,
        engine: &Engine,
        screen: &Screen,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let home = TempHome::new();
        let variables = variables(&home, engine);
        let app = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("TMPDIR", home.temp_dir())
            .env("XDG_RUNTIME_DIR", home.path())
            .env("DISPLAY", screen.display())
            .env("NO_AT_BRIDGE", "1")
            .envs(variables.clone())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let life = Self {
            app,
            home,
            variables,
        };
        let socket = life.home.join(".runbridge/run/app.sock");
        let served = wait_for(PATIENCE, || {
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
        ensure!(served.is_some(), "the app lets nobody in:\n{}", life.log());
        Ok(life)
    }

    /// When its page was loaded, in milliseconds after its start.
    fn window(&self) -> anyhow::Result<f64> {
        let page = wait_for(PATIENCE, || loaded_after(&self.log()));
        page.with_context(|| format!("no window:\n{}", self.log()))
    }

    fn client(&self, sidecar: &Path) -> anyhow::Result<McpClient> {
        greeted(&self.home, sidecar, &self.variables)
    }

    fn log(&self) -> String {
        let path = self.home.join(".runbridge/logs/runbridge.log");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Memory of the app and its webview, each shared page counted once.
    fn pss_mb(&self) -> f64 {
        let kib: u64 = self.family().into_iter().map(pss_kib).sum();
        kib as f64 / 1000.0
    }

    /// CPU time of the app and its webview so far.
    fn cpu_ms(&self) -> anyhow::Result<u64> {
        self.family().into_iter().map(cpu_ms).sum()
    }

    /// The app and every process it has started, but for its servers there are none.
    fn family(&self) -> Vec<u32> {
        let mut family = vec![self.app.id()];
        let mut at = 0;
        while let Some(parent) = family.get(at).copied() {
            let path = format!("/proc/{parent}/task/{parent}/children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            family.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
            at += 1;
        }
        family
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.app.id().to_string()).status();
        let ended = wait_for(PATIENCE, || self.app.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = self.app.kill();
            let _ = self.app.wait();
        }
    }
}

fn variables(home: &TempHome, engine: &Engine) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = engine.variables();
    let ours = home.join(".runbridge").to_string_lossy().into_owned();
    variables.push(("RUNBRIDGE_HOME".to_owned(), ours));
    variables.push(("MCP_BRIDGE_IMAGE".to_owned(), image()));
    variables
}

fn client_in(home: &TempHome, sidecar: &Path, engine: &Engine) -> anyhow::Result<McpClient> {
    greeted(home, sidecar, &variables(home, engine))
}

fn greeted(
    home: &TempHome,
    sidecar: &Path,
    variables: &[(String, String)],
) -> anyhow::Result<McpClient> {
    let era = Era::Initialize("2025-11-25");
    let begun = Instant::now();
    match McpClient::start(sidecar, &[], home.path(), variables, era) {
        Ok((client, _)) => Ok(client),
        Err(error) => anyhow::bail!("no greeting after {:?}: {error}", begun.elapsed()),
    }
}

fn pss_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

fn cpu_ms(pid: u32) -> anyhow::Result<u64> {
    // Hundredths of a second on every Linux that we know.
    const TICK_MS: u64 = 10;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").context("an odd /proc")?.1;
    let mut fields = after_name.split(' ').skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let (user, system) = (next().context("no time")?, next().context("no time")?);
    Ok((user + system) * TICK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_page_is_read_from_the_log() {
        let log = "INFO a\n INFO the page is loaded, 412 ms after the start of the app\n";
        assert_eq!(loaded_after(log), Some(412.0));
        assert_eq!(loaded_after("INFO a\n"), None);
    }

    #[test]
    fn own_figures_can_be_read() {
        assert!(pss_kib(std::process::id()) > 100);
        assert!(cpu_ms(std::process::id()).is_ok());
    }
}
