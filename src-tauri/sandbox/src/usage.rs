//! What a guest uses, measured when somebody asks.

use std::sync::Arc;

use futures_util::future::BoxFuture;

/// What a guest uses at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Memory, without what the system would give back at once.
    pub memory_bytes: u64,
    /// Processor time since the guest was started, in nanoseconds, where that can be told.
    pub cpu_ns: Option<u64>,
}

/// Measures one guest; `None` when it is gone or its backend cannot tell.
pub type Gauge = Arc<dyn Fn() -> BoxFuture<'static, Option<Usage>> + Send + Sync>;

/// A gauge of a guest that is one process of this machine.
#[cfg(feature = "wasi")]
pub(crate) fn of_process(pid: u32) -> Gauge {
    Arc::new(move || Box::pin(std::future::ready(read(pid))))
}

#[cfg(all(feature = "wasi", target_os = "linux"))]
fn read(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields come behind the last one.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Of all fields the 14th and 15th are ticks, the 24th resident pages.
    let ticks = field(11)? + field(12)?;
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Usage {
        memory_bytes: field(21)? * rustix::param::page_size() as u64,
        cpu_ns: Some(ticks * (1_000_000_000 / ticks_per_second)),
    })
}

#[cfg(all(feature = "wasi", not(target_os = "linux")))]
fn read(_pid: u32) -> Option<Usage> {
    None
}
