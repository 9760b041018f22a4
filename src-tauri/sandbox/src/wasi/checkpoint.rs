//! A copy of a guest between two turns: the memory that differs from the snapshot, and the files.
//!
//! Between turns nothing of the guest is on a stack or in a register, so that these two are all of
//! it. Which pages differ is asked of the kernel where it tells; elsewhere every page that is not
//! zero is kept.

use super::files::Files;

pub(super) const PAGE_BYTES: usize = 4096;

const ZEROS: &[u8] = &[0; PAGE_BYTES];

/// A copy of a page, at the place of a page: where the two are a few bytes off each other, seen from the
/// beginning of their pages, AMD's processors take nine times as long to copy one.
#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; PAGE_BYTES]);

pub(super) struct Checkpoint {
    memory_bytes: usize,
    /// Pages that are not kept are zero; else they are the snapshot's.
    rest_is_zero: bool,
    /// Numbers of the pages kept, ascending; their copies are in `kept`, one behind the other.
    numbers: Vec<u32>,
    kept: Vec<Page>,
    /// Numbers of pages that differ and are zero, which take no bytes: a guest holds megabytes of
    /// them in reserve.
    zeros: Vec<u32>,
    files: Files,
}

impl Checkpoint {
    /// Copy a guest; `old` lends its buffers. Nothing if there are more than `bytes_max` to copy:
    /// the copy takes the host's memory beside the guest's own, and its time after every run.
    pub(super) fn take(
        memory: &[u8],
        files: &Files,
        pages: &mut Pages,
        old: Option<Self>,
        bytes_max: usize,
    ) -> Option<Self> {
        let (mut numbers, mut kept, mut zeros) =
            old.map_or_else(Default::default, |old| (old.numbers, old.kept, old.zeros));
        numbers.clear();
        zeros.clear();
        let rest_is_zero = pages.changed(memory, &mut numbers);
        let page = |number: u32| {
            let at = number as usize * PAGE_BYTES;
            &memory[at..at + PAGE_BYTES]
        };
        numbers.retain(|number| {
            let is_zero = page(*number) == ZEROS;
            if is_zero {
                zeros.push(*number);
            }
            !is_zero
        });
        if numbers.len() * PAGE_BYTES > bytes_max {
            return None;
        }
        // With room for what later runs write: memory that is not used costs nothing, and making a larger
        // buffer costs a fault for each of its pages.
        kept.resize(numbers.len(), Page([0; PAGE_BYTES]));
        for (number, copy) in numbers.iter().zip(&mut kept) {
            copy.0.copy_from_slice(page(*number));
        }
        Some(Self {
            memory_bytes: memory.len(),
            rest_is_zero,
            numbers,
            kept,
            zeros,
            files: files.clone(),
        })
    }

    /// Put the pages into the memory of a guest that was just started.
    pub(super) fn put(&self, memory: &mut [u8]) {
        if self.rest_is_zero {
            memory.fill(0);
        }
        for (number, page) in self.numbers.iter().zip(&self.kept) {
            let at = *number as usize * PAGE_BYTES;
            if let Some(place) = memory.get_mut(at..at + PAGE_BYTES) {
                place.copy_from_slice(&page.0);
            }
        }
        for number in &self.zeros {
            let at = *number as usize * PAGE_BYTES;
            // A page that is zero already stays shared when it is only read.
            if let Some(place) = memory.get_mut(at..at + PAGE_BYTES)
                && *place != *ZEROS
            {
                place.fill(0);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }
}

/// Tells which pages of a guest's memory are not the snapshot's.
pub(super) struct Pages {
    #[cfg(target_os = "linux")]
    map: Option<std::fs::File>,
    #[cfg(target_os = "linux")]
    entries: Vec<u8>,
}

impl Pages {
    /// Opens what the kernel tells, before the worker gives up the right to open anything.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            map: std::fs::File::open("/proc/self/pagemap")
                .ok()
                .filter(|_| rustix::param::page_size() == PAGE_BYTES),
            #[cfg(target_os = "linux")]
            entries: Vec::new(),
        }
    }

    /// Find the pages to keep; whether all others are zero.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(
            clippy::unused_self,
            reason = "no other system tells which were written"
        )
    )]
    fn changed(&mut self, memory: &[u8], numbers: &mut Vec<u32>) -> bool {
        #[cfg(target_os = "linux")]
        {
            if self.changed_by_kernel(memory, numbers).is_some() {
                return false;
            }
            numbers.clear();
        }
        numbers.extend(
            (0_u32..)
                .zip(memory.chunks_exact(PAGE_BYTES))
                .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
                .map(|(number, _)| number),
        );
        true
    }

    /// A page that was written is no page of the snapshot's file any more, but memory of this
    /// process alone.
    #[cfg(target_os = "linux")]
    fn changed_by_kernel(&mut self, memory: &[u8], numbers: &mut Vec<u32>) -> Option<()> {
        use std::os::unix::fs::FileExt as _;

        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_FILE: u64 = 1 << 61;
        const ENTRY_BYTES: usize = 8;
        let first = memory.as_ptr().addr() / PAGE_BYTES;
        self.entries
            .resize(memory.len() / PAGE_BYTES * ENTRY_BYTES, 0);
        let map = self.map.as_ref()?;
        map.read_exact_at(&mut self.entries, (first * ENTRY_BYTES) as u64)
            .ok()?;
        for (number, entry) in (0_u32..).zip(self.entries.chunks_exact(ENTRY_BYTES)) {
            let entry = u64::from_ne_bytes(entry.try_into().ok()?);
            if entry & SWAPPED != 0 || (entry & PRESENT != 0 && entry & OF_FILE == 0) {
                numbers.push(number);
            }
        }
        Some(())
    }
}
