//! What was just forgotten, for whoever did not mean it.

use std::collections::VecDeque;

use crate::api;
use crate::memory::Record;
use crate::saved_tools::SavedTool;

/// Things that can be had back; one more, and the oldest is gone for good.
const KEPT_MAX: usize = 20;

/// One forgotten thing.
pub(super) enum Undo {
    /// A memory item.
    Item(Box<Record>),
    /// A saved tool.
    Tool(Box<SavedTool>),
    /// A memory item that could not be read, by its key.
    Damaged(String),
}

#[derive(Default)]
pub(super) struct Forgotten {
    kept: VecDeque<(String, Undo)>,
    last: u64,
}

impl Forgotten {
    pub(super) fn keep(&mut self, undo: Undo) -> api::Forgotten {
        self.last += 1;
        let undo_id = self.last.to_string();
        self.put_back(undo_id.clone(), undo);
        api::Forgotten { undo_id }
    }

    pub(super) fn put_back(&mut self, undo_id: String, undo: Undo) {
        self.kept.push_back((undo_id, undo));
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }

    pub(super) fn take(&mut self, undo_id: &str) -> Option<Undo> {
        let at = self.kept.iter().position(|(id, _)| id == undo_id)?;
        self.kept.remove(at).map(|(_, undo)| undo)
    }
}
