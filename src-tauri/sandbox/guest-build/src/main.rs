//! Freeze the embedded Python: start it, import the guest, write its memory down as a new module.
//!
//! `runbridge-guest-build PYTHON-FOLDER GUEST-FOLDER OUT.WASM`, called by `cargo xtask guest`. A program of its own because it needs wasmtime, which xtask does not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use runbridge_sandbox::wasi::{Initialized, initialize};
use wasmtime_wizer::{InstanceState, SnapshotVal, ValType, Wizer};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [python, guest, out] = arguments.as_slice() else {
        bail!("usage: PYTHON-FOLDER GUEST-FOLDER OUT.WASM");
    };
    let python = Path::new(python);
    let module = fs::read(python.join("python.wasm")).context("cannot read the module")?;
    let zips = ["python.zip", "packages.zip"].map(|name| python.join(name));
    // The embedded guest's own files replace those of a guest that is a process.
    let mut guest_files = sources(Path::new(guest))?;
    guest_files.append(&mut sources(&Path::new(guest).join("wasi"))?);

    let wizer = Wizer::new();
    let (context, instrumented) = wizer
        .instrument(&module)
        .map_err(|error| anyhow!("{error:#}"))?;
    let mut started = Started {
        python: initialize(&instrumented, &zips, guest_files.into_iter().collect())
            .map_err(|error| anyhow!(error))?,
        missing: Vec::new(),
    };
    let frozen = ready(wizer.snapshot(&context, &mut started))
        .context("the snapshot waited for something")?
        .map_err(|error| anyhow!("{error:#}"))?;
    if !started.missing.is_empty() {
        bail!(
            "the snapshot asked for {:?}, which the module lacks",
            started.missing
        );
    }
    fs::write(out, frozen).context("cannot write the result")
}

/// The guest's Python files, by name.
fn sources(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut sources = BTreeMap::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.extension().is_some_and(|extension| extension == "py") {
            sources.insert(name, fs::read(&path)?);
        }
    }
    Ok(sources)
}

/// The started Python as wizer asks for it.
struct Started {
    python: Initialized,
    missing: Vec<String>,
}

impl InstanceState for Started {
    async fn global_get(&mut self, name: &str, ty: ValType) -> SnapshotVal {
        match (self.python.global(name), ty) {
            (Some(value), ValType::I64) => SnapshotVal::I64(value),
            (Some(value), ValType::I32) => SnapshotVal::I32(value as i32),
            _ => {
                self.missing.push(name.to_owned());
                SnapshotVal::I32(0)
            }
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        match self.python.memory(name) {
            Some(memory) => contents(memory),
            None => self.missing.push(name.to_owned()),
        }
    }
}

/// The value of a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
