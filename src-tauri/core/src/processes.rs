//! What processes of this machine use, where the system tells it without asking each one.

/// Memory of all processes of the group that `pid` leads, in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn group_memory_bytes(pid: u32) -> Option<u64> {
    let page = rustix::param::page_size() as u64;
    let mut pages = 0;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let is_process = name
            .to_str()
            .is_some_and(|name| name.parse::<u32>().is_ok());
        if !is_process {
            continue;
        }
        // One that has ended meanwhile uses nothing.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name in parentheses may hold anything; the fields come behind the last one.
        let Some((_, fields)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // State, parent, group; resident pages are the 24th of all fields.
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        if field(2) == Some(u64::from(pid)) {
            pages += field(21).unwrap_or_default();
        }
    }
    (pages > 0).then_some(pages * page)
}

/// Other systems need a call per process, which is not made.
#[cfg(not(target_os = "linux"))]
pub(crate) fn group_memory_bytes(_pid: u32) -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn this_process_uses_some_memory() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let used = super::group_memory_bytes(group as u32);
        assert!(used.is_some_and(|bytes| bytes > 1 << 20), "{used:?}");
    }
}
