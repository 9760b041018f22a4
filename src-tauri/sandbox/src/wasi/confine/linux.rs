//! Landlock, resource limits, and a filter of system calls.

use std::collections::BTreeMap;

use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

use super::DATA_BYTES_BESIDE;
use crate::SandboxLimits;

#[expect(unsafe_code, reason = "descriptors of unknown owners are closed")]
pub(super) fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor yet, so that nobody holds one of those
    // closed here. Fails on kernels before 5.9, where they stay open and the filter below keeps the
    // worker from most of what could be done with them.
    unsafe { libc::close_range(3, u32::MAX, 0) };
}

pub(super) fn before_threads(limits: &SandboxLimits) -> Result<(), String> {
    let told = |what: &'static str| move |error| format!("cannot {what}: {error}");
    rustix::thread::set_no_new_privs(true).map_err(told("give up new privileges"))?;
    no_files_and_ports()?;
    // No other program of the user may look into it, and none gets its memory by a dump.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(told("become undumpable"))?;
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Memlock, 0),
        // None beyond those that are open.
        (Resource::Nofile, 0),
        (
            Resource::Data,
            limits.memory_bytes_max / 2 * 3 + DATA_BYTES_BESIDE,
        ),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        rustix::process::setrlimit(resource, limit).map_err(told("set a resource limit"))?;
    }
    Ok(())
}

/// As far as this kernel has Landlock; what it lacks is refused below too.
fn no_files_and_ports() -> Result<(), String> {
    let abi = ABI::V5;
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map(|_| ())
        .map_err(|error| format!("cannot give up the file system: {error}"))
}

pub(super) fn before_guest() -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("cannot give up system calls: {error}");
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [
        // The descriptors that are open.
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        // Memory.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        // Waiting and the clock.
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_sched_yield,
        libc::SYS_restart_syscall,
        libc::SYS_getrandom,
        // The engine catches faults of the guest.
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        // The end.
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_gettid,
        libc::SYS_getpid,
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect();
    // All code is mapped by now.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let exec = libc::PROT_EXEC as u64;
        let no_exec =
            SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(exec), 0)
                .and_then(|condition| SeccompRule::new(vec![condition]))
                .map_err(|error| told(&error))?;
        rules.insert(call, vec![no_exec]);
    }
    let arch = std::env::consts::ARCH
        .try_into()
        .map_err(|error| told(&error))?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        arch,
    );
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(|error| told(&error))?;
    apply_filter_all_threads(&program).map_err(|error| told(&error))
}
