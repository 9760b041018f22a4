//! Every bound a user can set: one table, from which [`Limits`] is made and which a window can show.
//!
//! It does not know where a value came from, nor who enforces it.

use runbridge_sandbox::SandboxLimits;
use serde::Serialize;

use super::units::Unit;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Name in `Limits` and in the settings file.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// What the number counts.
    pub unit: Unit,
    /// In force unless a user says otherwise.
    pub default: u64,
    /// Smallest value that still lets the bridge work.
    pub min: u64,
    /// Largest value a slider offers.
    pub usual_max: u64,
    /// Largest value that is taken from a file or a variable; beyond it this machine suffers.
    pub ceiling: u64,
    /// The variable that sets it, if there is one.
    pub variable: Option<&'static str>,
}

impl Limit {
    /// Whether `value` may be in force.
    pub fn accepts(&self, value: u64) -> bool {
        (self.min..=self.ceiling).contains(&value)
            || (value == 0 && self.unit == Unit::CpuThousandths)
    }

    /// The range in words.
    pub fn range(&self) -> String {
        format!(
            "{} to {}",
            self.unit.show(self.min),
            self.unit.show(self.ceiling)
        )
    }
}

macro_rules! limits {
    ($($name:ident $unit:ident $default:expr, $min:expr, $usual_max:expr, $ceiling:expr, $variable:expr, $about:literal;)*) => {
        /// The bounds in force.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        pub struct Limits {
            $(#[doc = $about] pub $name: u64,)*
        }

        /// Default, range and ceiling of each bound.
        pub const TABLE: &[Limit] = &[$(Limit {
            name: stringify!($name), about: $about, unit: Unit::$unit, default: $default,
            min: $min, usual_max: $usual_max, ceiling: $ceiling, variable: $variable,
        },)*];

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Limits {
            /// The value of the row called `name`.
            pub fn get(&self, name: &str) -> Option<u64> {
                match name { $(stringify!($name) => Some(self.$name),)* _ => None }
            }

            /// Sets the row called `name`; the caller has asked [`Limit::accepts`].
            pub(super) fn set(&mut self, name: &str, value: u64) {
                match name { $(stringify!($name) => self.$name = value,)* _ => {} }
            }
        }
    };
}

const S: u64 = 1_000;
const H: u64 = 3_600 * S;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

// name, unit, default, smallest, largest on a slider, ceiling, variable, what it is
limits! {
    run_ms_default Milliseconds 30 * S, S, 120 * S, 24 * H, Some("MCP_BRIDGE_TIMEOUT"), "Wall clock of a run that does not name its own.";
    run_ms_max Milliseconds 120 * S, S, 600 * S, 24 * H, Some("MCP_BRIDGE_MAX_TIMEOUT"), "Longest wall clock that a run may ask for.";
    memory_bytes_max Bytes 512 * MIB, 32 * MIB, 8 * GIB, 1024 * GIB, Some("MCP_BRIDGE_MEMORY"), "Memory of a sandbox, swap included.";
    processes_max Count 128, 16, 1024, 32_768, Some("MCP_BRIDGE_PIDS"), "Processes and threads of a sandbox.";
    cpu_thousandths_max CpuThousandths 0, 10, 16 * 1000, 1_024_000, Some("MCP_BRIDGE_CPUS"), "CPUs of a sandbox, in thousandths; 0 sets no limit.";
    tmp_bytes_max Bytes 64 * MIB, MIB, 4 * GIB, 256 * GIB, None, "Size of /tmp in a sandbox.";
    workspace_bytes_max Bytes 128 * MIB, MIB, 4 * GIB, 256 * GIB, None, "Size of /workspace in a sandbox.";
    open_files_max Count 1024, 64, 4096, 1_048_576, None, "Open files of one process in a sandbox.";
    idle_ms_max Milliseconds 300 * S, S, 2 * H, 24 * 7 * H, Some("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT"), "An interpreter that has done nothing for so long is stopped.";
    interpreters_max Count 8, 1, 32, 256, None, "Interpreters alive at once; beyond it the longest idle one is stopped.";
    calls_max Count 1_000, 1, 10_000, 1_000_000, None, "Tool calls of one run.";
    calls_at_once_max Count 16, 1, 128, 1_024, None, "Tool calls of one run that are under way at once.";
    call_ms_max Milliseconds 60 * S, S, 600 * S, 24 * H, None, "Wall clock of one tool call.";
    server_start_ms_max Milliseconds 30 * S, S, 300 * S, H, None, "A server that is not ready after so long has failed to start.";
    server_idle_ms_max Milliseconds 600 * S, S, 6 * H, 24 * 7 * H, None, "A server that nobody has called for so long is stopped.";
    reply_chars_max Characters 20_000, 1_000, 200_000, 10_000_000, None, "Characters of a reply; the rest can be read by range.";
frame_bytes_max Bytes 64 * MIB, 64 * MIB, 64 * MIB, 64 * MIB, None, "One frame or tool result that crosses the sandbox wall; it cannot be changed.";
    package_bytes_max Bytes 16 * MIB, 64 * KIB, 60 * MIB, 60 * MIB, None, "One package that is installed for Python, as it is downloaded.";
    memory_value_bytes_max Bytes MIB, KIB, 16 * MIB, 64 * MIB, None, "One remembered value.";
    memory_keys_max Count 10_000, 1, 100_000, 1_000_000, None, "Remembered values.";
}

impl Limits {
    /// The part that a sandbox enforces.
    pub fn sandbox(&self) -> SandboxLimits {
        SandboxLimits {
            memory_bytes_max: self.memory_bytes_max,
            processes_max: u32::try_from(self.processes_max).unwrap_or(u32::MAX),
            cpus_max: (self.cpu_thousandths_max > 0)
                .then(|| self.cpu_thousandths_max as f64 / 1000.0),
            tmp_bytes_max: self.tmp_bytes_max,
            workspace_bytes_max: self.workspace_bytes_max,
            open_files_max: u32::try_from(self.open_files_max).unwrap_or(u32::MAX),
        }
    }
}

/// The row called `name`.
pub fn row(name: &str) -> Option<&'static Limit> {
    TABLE.iter().find(|limit| limit.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_lies_in_its_own_range() {
        for limit in TABLE {
            assert!(limit.accepts(limit.default), "{}", limit.name);
            assert!(
                limit.min <= limit.usual_max && limit.usual_max <= limit.ceiling,
                "{}",
                limit.name
            );
            assert!(limit.default <= limit.usual_max, "{}", limit.name);
        }
    }

    #[test]
    fn the_sandbox_defaults_are_the_same_in_both_crates() {
        assert_eq!(Limits::default().sandbox(), SandboxLimits::default());
    }
}
