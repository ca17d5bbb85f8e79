//! The memory of the table that finds logged blocks.

use std::cell::{Cell, RefCell};

use manylogs::Volume;
use manylogs_block::TaskLock;
use manylogs_ext4::{Memory, Part, Permit};

/// Memory of an entry of the table, at most.
const ENTRY_BYTES: u64 = 64;

/// The share of the table in a mount's memory. The table grows with what is logged: where it
/// reaches its share, a checkpoint is needed as if the logs were full.
pub(crate) struct Table {
    held: RefCell<Permit>,
    memory: Memory,
    share: u64,
    /// What is allowed now: more than the share, where a checkpoint left nearly as much.
    most: Cell<u64>,
    /// One at a time makes it smaller.
    shrinking: TaskLock,
}

impl Table {
    pub(crate) fn new(memory: &Memory) -> Self {
        let share = memory.most(Part::Table);
        let held = RefCell::new(memory.hold(Part::Table, 0));
        let (most, shrinking) = (Cell::new(share), TaskLock::default());
        Self { held, memory: memory.clone(), share, most, shrinking }
    }

    /// Counts the table as it is now. It costs as much as there are logs.
    pub(crate) fn count(&self, volume: &Volume) {
        self.held.borrow_mut().set(volume.table_bytes());
    }

    /// Whether so many entries more fit.
    pub(crate) fn has_room(&self, entries: usize) -> bool {
        self.memory.used(Part::Table) + entries as u64 * ENTRY_BYTES <= self.most.get()
    }

    /// Brings home what is logged, if so many entries more do not fit. What stays logged is allowed
    /// to: policies keep some, homes cannot be written, and the checksums of logs have a size.
    pub(crate) async fn make_room(&self, volume: &Volume, entries: usize) {
        let _alone = self.shrinking.take().await;
        if self.has_room(entries) {
            return;
        }
        // A failure is in the volume's state, and what was not moved stays logged.
        let _ = volume.checkpoint().await;
        self.count(volume);
        let left = self.memory.used(Part::Table) + entries as u64 * ENTRY_BYTES;
        self.most.set(self.share.max(left + self.share / 2));
    }
}
