//! A package tried as its user meets it: installed into a Debian that has nothing else, started on a
//! screen, asked by a client, removed again. Knows the package only from outside.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use runbridge_testkit::wait_for;

use crate::machine;
use crate::shell::{run_quietly, say, target};

/// The oldest Debian that has the webview.
const SUITE: &str = "bookworm";

/// Every wait for a program that starts.
const PATIENCE: Duration = Duration::from_mins(1);

const HOME: &str = "home/user";

/// Where the app may have left something of its own.
const WATCHED: [&str; 4] = ["etc", "opt", "usr", "var/lib"];

/// What a client says first, and what it asks.
const QUESTIONS: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"trial","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_python","#,
    r#""arguments":{"code":"print(6 * 7)","timeout":100}}}"#,
    "\n",
);

/// Try the newest `.deb` below `bundle`; of one for users, that nobody drives its window, too.
pub(super) fn try_newest(bundle: &Path, for_users: bool) -> anyhow::Result<()> {
    for (program, package) in [
        ("mmdebstrap", "mmdebstrap"),
        ("Xvfb", "xvfb"),
        ("xdotool", "xdotool"),
    ] {
        if !machine::on_path(program) {
            machine::install(&[package])?;
        }
    }
    let package = newest(&bundle.join("deb"))?;
    say(format_args!(
        "trying {} in a clean {SUITE}",
        package.display()
    ));
    let root = tempfile::Builder::new()
        .prefix("clean-root-")
        .tempdir_in(target())?;
    let root = root.path();
    run_quietly(
        Command::new("mmdebstrap")
            .args(["--quiet", "--variant=apt", "--mode=root", SUITE])
            .arg(root),
    )?;
    std::fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).ok();
    std::fs::copy(&package, root.join("tmp/package.deb"))?;
    let home = root.join(HOME);
    std::fs::create_dir_all(home.join("run"))?;
    std::os::unix::fs::chown(&home, Some(1000), Some(1000))?;
    std::os::unix::fs::chown(home.join("run"), Some(1000), Some(1000))?;

    let install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends \
                   /tmp/package.deb xauth fonts-dejavu-core";
    inside(root, "0:0", install)?;
    say("installed");
    if for_users {
        refuses_automation(root)?;
    }
    started(root)?;
    inside(
        root,
        "0:0",
        "apt-get purge -y -qq runbridge && rm /tmp/package.deb",
    )?;
    let left = named_ours(root);
    ensure!(left.is_empty(), "left after removal: {left:#?}");
    ensure!(
        root.join(HOME).join(".local/share/runbridge").is_dir(),
        "the user's data went with the package"
    );
    say("removed without residue but the user's data");
    Ok(())
}

fn newest(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "deb"))
        .max_by_key(|path| path.metadata().and_then(|it| it.modified()).ok())
        .with_context(|| format!("there is no .deb in {}", folder.display()))
}

/// A shell command in the root, as this user. Mounts go with it.
fn command(root: &Path, user: &str, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"])
        .arg(
            "mount --rbind /dev \"$1/dev\" && mount -t proc proc \"$1/proc\" && \
             mkdir -p \"$1/tmp/.X11-unix\" && mount --bind /tmp/.X11-unix \"$1/tmp/.X11-unix\" && \
             exec chroot --userspec=\"$2\" \"$1\" sh -c \"$3\"",
        )
        .args(["sh"])
        .arg(root)
        .args([user, script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LANG", "C.UTF-8")
        .env("HOME", format!("/{HOME}"))
        .env("XDG_RUNTIME_DIR", format!("/{HOME}/run"));
    for proxy in ["http_proxy", "https_proxy", "no_proxy"] {
        if let Some(value) = std::env::var_os(proxy) {
            command.env(proxy, value);
        }
    }
    command
}

fn inside(root: &Path, user: &str, script: &str) -> anyhow::Result<String> {
    run_quietly(&mut command(root, user, script))
}

/// A program that ends when this does.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that wants to drive the window of what users have is turned away.
fn refuses_automation(root: &Path) -> anyhow::Result<()> {
    let mut app = command(root, "1000:1000", "cd && exec timeout 60 runbridge-app");
    let output = app.env("TAURI_WEBVIEW_AUTOMATION", "1").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("does not let other programs drive"),
        "the app lets its window be driven: it ended with {} and said {said:?}",
        output.status
    );
    say("nobody may drive its window");
    Ok(())
}

/// The app shows its window, and a client at the registered path is served by it.
fn started(root: &Path) -> anyhow::Result<()> {
    let screen = Command::new("Xvfb")
        .args([
            "-displayfd",
            "1",
            "-nolisten",
            "tcp",
            "-ac",
            "-screen",
            "0",
            "1280x900x24",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start Xvfb")?;
    let mut screen = Ending(screen);
    let mut number = String::new();
    let says = screen.0.stdout.take().context("Xvfb says nothing")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(says), &mut number)?;
    let display = format!(":{}", number.trim());

    let app = command(root, "1000:1000", "cd && exec runbridge-app")
        .env("DISPLAY", &display)
        .env("NO_AT_BRIDGE", "1")
        .env("WEBKIT_DISABLE_DMABUF_RENDERER", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the app")?;
    let mut app = Ending(app);
    let window = wait_for(PATIENCE, || {
        let mut search = Command::new("xdotool");
        search.env("DISPLAY", &display);
        search.args(["search", "--onlyvisible", "--name", "^Runbridge"]);
        run_quietly(&mut search)
            .ok()
            .filter(|found| !found.is_empty())
    });
    if window.is_none() {
        let log = root
            .join(HOME)
            .join(".local/state/runbridge/logs/runbridge.log");
        bail!(
            "the app shows no window; it {}\n{}",
            match app.0.try_wait()? {
                Some(status) => format!("ended with {status}"),
                None => "still runs".to_owned(),
            },
            std::fs::read_to_string(log).unwrap_or_default()
        );
    }
    say("it shows its window");

    let mut client = command(
        root,
        "1000:1000",
        // The first run waits until the built-in Python is compiled for this machine.
        "exec timeout 300 \"$HOME/.local/share/runbridge/bin/runbridge\"",
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()?;
    let mut questions = client.stdin.take().context("the client has no stdin")?;
    questions.write_all(QUESTIONS.as_bytes())?;
    let answers = client.stdout.take().context("the client has no stdout")?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(answers));
    // A sidecar that hangs is ended; that ends its stdout, as its failure does.
    let answered = lines.any(|line| line.is_ok_and(|line| line.contains("run_python")));
    let ran = lines
        .map_while(Result::ok)
        .find(|line| line.contains(r#""id":3"#));
    drop(questions);
    let output = client.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        answered,
        "the sidecar at the registered path does not answer: {said}"
    );
    ensure!(
        said.contains("served by the Runbridge app"),
        "the sidecar did not find the app: {said}"
    );
    say("a client at the registered path is served by it");
    let ran = ran.unwrap_or_default();
    ensure!(
        ran.contains("42") && ran.contains("wasi"),
        "no Python ran in the built-in sandbox: {ran}"
    );
    say("its Python runs in the built-in sandbox");
    Ok(())
}

/// Files that carry our name, outside the user's home and the lists of packages.
fn named_ours(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders: Vec<PathBuf> = WATCHED.iter().map(|name| root.join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry
                .file_name()
                .to_string_lossy()
                .to_lowercase()
                .contains("runbridge")
            {
                found.insert(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
    found
}
