//! The environment that servers get, asked of real shells.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runbridge_core::launch_env::LoginEnvironment;
use runbridge_core::paths::{Environment, Os};
use tempfile::TempDir;

struct User {
    home: TempDir,
    environment: Environment,
}

impl User {
    /// A user of bash with a start-up file, as a dock would start a program for him.
    fn new(profile: &str) -> Self {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join(".bash_profile"), profile).unwrap();
        let at_home = home.path().to_str().unwrap();
        let environment = Environment::new(
            Os::Linux,
            [
                ("HOME", at_home),
                ("PATH", "/usr/bin:/bin"),
                ("SHELL", "/bin/bash"),
                ("MCP_BRIDGE_IMAGE", "secret"),
            ],
        );
        Self { home, environment }
    }

    async fn variables(&self, within: Duration) -> Arc<BTreeMap<String, String>> {
        LoginEnvironment::new(self.environment.clone())
            .within(within)
            .variables()
            .await
    }

    fn program(&self, path: &str, text: &str) {
        let path = self.home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Bash starts in milliseconds; a busy machine gets more.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_shells_path_and_variables_arrive_whatever_it_prints() {
    let user = User::new(
        "echo hello; printf 'A=forged\\0'\nexport PATH=\"$HOME/mine:$PATH\" T_TOKEN=abc LINES_IN=$'x\\ny'\n[ -t 0 ] && exec tmux\nexport SEEN=$MCP_BRIDGE_IMAGE\n",
    );
    let variables = user.variables(LONG).await;
    let path: Vec<_> = variables["PATH"].split(':').map(Path::new).collect();
    assert_eq!(path[0], user.home.path().join("mine"));
    assert!(path.contains(&Path::new("/usr/bin")), "{path:?}");
    assert_eq!(
        (
            variables["T_TOKEN"].as_str(),
            variables["LINES_IN"].as_str()
        ),
        ("abc", "x\ny")
    );
    assert_eq!(variables["SEEN"], "", "the shell is not told what is ours");
    assert!(
        !variables.contains_key("A")
            && !variables
                .keys()
                .any(|name| name.starts_with("MCP_BRIDGE_") || name.starts_with("RUNBRIDGE_"))
    );
}

#[tokio::test]
async fn npx_under_nvm_runs_with_its_own_node() {
    let user = User::new("");
    fs::create_dir_all(user.home.path().join(".nvm/alias")).unwrap();
    fs::write(user.home.path().join(".nvm/alias/default"), "22\n").unwrap();
    user.program(
        ".nvm/versions/node/v22.11.0/bin/node",
        "#!/bin/sh\necho right\n",
    );
    user.program(
        ".nvm/versions/node/v22.11.0/bin/npx",
        "#!/bin/sh\nexec node\n",
    );
    user.program(
        ".nvm/versions/node/v18.20.4/bin/node",
        "#!/bin/sh\necho wrong\n",
    );
    user.program(
        ".nvm/versions/node/v18.20.4/bin/npx",
        "#!/bin/sh\nexec node\n",
    );
    let variables = user.variables(LONG).await;
    let output = std::process::Command::new("/bin/sh")
        .args(["-c", "npx"])
        .env_clear()
        .envs(variables.iter())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "right\n");
}

#[tokio::test]
async fn a_shell_that_hangs_floods_or_is_missing_costs_only_its_deadline() {
    for (profile, shell) in [
        ("sleep 1000 & sleep 1000", "/bin/bash"),
        ("while :; do echo y; done", "/bin/bash"),
        ("exit 1", "/bin/bash"),
        ("", "/nowhere/shell"),
    ] {
        let mut user = User::new(profile);
        user.environment.set("SHELL", shell);
        user.environment.set("KEPT", "1");
        let started = Instant::now();
        let variables = user.variables(Duration::from_millis(500)).await;
        assert!(started.elapsed() < LONG, "{profile}");
        assert_eq!(variables["KEPT"], "1", "{profile}");
        assert!(variables["PATH"].starts_with("/usr/bin:/bin"), "{profile}");
    }
}

#[tokio::test]
async fn a_process_that_the_shell_leaves_behind_does_not_hold_us_up() {
    let user = User::new("sleep 1000 &\necho $! > ~/left\nexport MARK=1\n");
    let started = Instant::now();
    let variables = user.variables(LONG).await;
    assert!(started.elapsed() < LONG);
    assert_eq!(variables["MARK"], "1");
    let left = fs::read_to_string(user.home.path().join("left")).unwrap();
    let alive = || {
        // A killed process stays listed until whoever adopted it has reaped it.
        fs::read_to_string(format!("/proc/{}/stat", left.trim()))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    let deadline = Instant::now() + LONG;
    while alive() {
        assert!(Instant::now() < deadline, "process {left} was left behind");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn it_is_asked_once() {
    let user = User::new("echo x >> ~/asked\n");
    let login = LoginEnvironment::new(user.environment.clone()).within(LONG);
    assert!(!user.home.path().join("asked").exists());
    let (first, second) = tokio::join!(login.variables(), login.variables());
    assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &login.variables().await));
    assert_eq!(
        fs::read_to_string(user.home.path().join("asked")).unwrap(),
        "x\n"
    );
}
