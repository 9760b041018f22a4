//! CPython's own tests, inside the embedded Python: which of them pass is written down beside the
//! sandbox, and what fails without a known reason is an error.

use std::path::Path;
use std::process::Command;

use super::stage;
use crate::shell;

/// Folders that no module of tests needs which is run.
const LEFT_OUT: [&str; 7] = [
    "leakers",
    "libregrtest",
    "test_capi",
    "test_ctypes",
    "test_tkinter",
    "test_tools",
    "wheeldata",
];

/// Run the tests of `source`, all or `only` some, with what was built in `root`.
pub(super) fn run(root: &Path, source: &Path, only: &[String]) -> anyhow::Result<()> {
    let archive = root.join("tests.tar.gz");
    stage::remove(&archive)?;
    let mut pack = Command::new("tar");
    pack.args(["--create", "--gzip", "--exclude=__pycache__"]);
    pack.args(LEFT_OUT.map(|name| format!("--exclude=./{name}")));
    pack.arg("--file").arg(&archive);
    pack.arg("--directory").arg(source.join("Lib/test"));
    shell::run_quietly(pack.arg("."))?;

    let mut build = shell::cargo();
    build.args(["build", "--quiet", "--workspace"]);
    shell::run(build.args(["--example", "wasi_worker", "--example", "wasi_cpython"]))?;
    let results = shell::root().join("src-tauri/sandbox/cpython-tests.json");
    shell::say("running CPython's own tests in the embedded sandbox; this takes some minutes");
    let mut tests = Command::new(shell::target().join("debug/examples/wasi_cpython"));
    shell::run(tests.arg(&archive).arg(&results).args(only))?;
    shell::say(format!("the results are in {}", results.display()));
    Ok(())
}
