//! A disk that hangs: nobody waits for it but who needs it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runbridge_core::bridge::{Bridge, Role};
use runbridge_core::paths::Os;

use crate::home::{Home, fixtures};

/// Holds a lease on a file: whoever opens it waits until the holder lets go, as on a disk that hangs.
struct Hanging(Child);

const HOLDER: &str = "\
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
";

impl Hanging {
    fn hold(file: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", HOLDER])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Self(child)
    }

    fn let_go(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_holds_up_the_first_run_for_moments_and_the_next_not_at_all() {
    let home = Home::new(Os::Linux);
    let file = home.write(
        ".cursor/mcp.json",
        "{\"mcpServers\": {\"late\": {\"command\": \"x\"}}}",
    );
    let hanging = Hanging::hold(&file);
    let bridge = Bridge::open(home.environment.clone(), Role::Ask).unwrap();
    let began = Instant::now();
    bridge.discovered().await;
    assert!(bridge.discovery().is_none(), "the file did not hang");
    // The system lets go of a lease by itself after 45 seconds.
    assert!(began.elapsed() < Duration::from_secs(30));
    let began = Instant::now();
    for _ in 0..20 {
        bridge.discovered().await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "it was waited for again: {:?}",
        began.elapsed()
    );
    assert!(bridge.catalog().servers().is_empty());
    // The next look finds what this one waits for.
    hanging.let_go();
    let deadline = Instant::now() + Duration::from_secs(40);
    while bridge.catalog().servers().is_empty() {
        assert!(Instant::now() < deadline, "it was never read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bridge.shut_down().await;
}

/// Without optimisation and beside other tests: the benchmark has the real bound.
#[test]
fn the_files_of_all_clients_are_read_in_no_time() {
    let home = Home::new(Os::Linux);
    for fixture in fixtures() {
        if fixture.file_name().is_some_and(|name| name == "linux") {
            home.add(&fixture);
        }
    }
    assert!(home.discover().entries.len() > 60);
    let fastest = (0..10).map(|_| {
        let began = Instant::now();
        home.discover();
        began.elapsed()
    });
    let fastest = fastest.min().unwrap();
    assert!(fastest < Duration::from_millis(250), "{fastest:?}");
}
