//! Start a module once, so that its memory can be written down as a new module. For the build of
//! the embedded Python alone; the product starts the result.

use std::path::PathBuf;

use wasmtime::{Instance, Module, Store, Val};

use super::files::{Files, FilesLimits};
use super::machine::{self, State, Template};
use super::preview1::Clock;

/// A module whose Python has started.
pub struct Initialized {
    store: Store<State>,
    instance: Instance,
}

/// Start `module` with the files `zips` in `/lib` and the guest's sources in `/guest`. Clock and randomness stand still, so that the same inputs give the same memory.
///
/// # Errors
/// What Python printed when it did not start.
pub fn initialize(
    module: &[u8],
    zips: &[PathBuf],
    guest: Vec<(String, Vec<u8>)>,
) -> Result<Initialized, String> {
    const MEMORY_BYTES_MAX: u64 = 256 << 20;
    let mut files = Files::new(FilesLimits {
        tmp_bytes_max: 0,
        workspace_bytes_max: 0,
        descriptors_max: 64,
        memory_bytes_max: MEMORY_BYTES_MAX,
    });
    files.mount_all(zips)?;
    for (name, bytes) in guest {
        files.fixed("guest", &name, bytes);
    }
    let told = |error: wasmtime::Error| format!("{error:#}");
    let engine = machine::engine().map_err(told)?;
    let module = Module::new(&engine, module).map_err(told)?;
    let template = Template::new(&engine, &module).map_err(told)?;
    let state = State::new(files, Clock::Fixed, None, MEMORY_BYTES_MAX as usize);
    let (store, instance) = machine::initialize(&template, state)?;
    Ok(Initialized { store, instance })
}

impl Initialized {
    /// All of an exported memory.
    pub fn memory(&mut self, name: &str) -> Option<&[u8]> {
        let memory = self.instance.get_memory(&mut self.store, name)?;
        Some(memory.data(&self.store))
    }

    /// The value of an exported global that is an integer.
    pub fn global(&mut self, name: &str) -> Option<i64> {
        let global = self.instance.get_global(&mut self.store, name)?;
        match global.get(&mut self.store) {
            Val::I32(value) => Some(i64::from(value)),
            Val::I64(value) => Some(value),
            _ => None,
        }
    }

    /// What Python printed.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&self.store.data().printed).into_owned()
    }
}
