//! The memory of the table that finds logged blocks.

use std::cell::{Cell, RefCell};

use manylogs::Volume;
use manylogs_block::TaskLock;
use manylogs_ext4::{Memory, Part, Permit};

/// Most bytes of memory for an entry of the table.
const ENTRY_BYTES: u64 = 64;

/// The share of the table in a mount's memory. The table grows with the logged extents. When it
/// reaches its share, a checkpoint is needed as if the logs were full.
pub(crate) struct Table {
    held: RefCell<Permit>,
    memory: Memory,
    share: u64,
    /// The bytes allowed now: more than the share, if a checkpoint left nearly as much.
    most: Cell<u64>,
    /// Held while a task makes the table smaller.
    shrinking: TaskLock,
}

impl Table {
    pub(crate) fn new(memory: &Memory) -> Self {
        let share = memory.most(Part::Table);
        let held = RefCell::new(memory.hold(Part::Table, 0));
        let (most, shrinking) = (Cell::new(share), TaskLock::default());
        Self { held, memory: memory.clone(), share, most, shrinking }
    }

    /// Counts the table as it is now, in time that grows with the number of logs.
    pub(crate) fn count(&self, volume: &Volume) {
        self.held.borrow_mut().set(volume.table_bytes());
    }

    /// Whether `entries` more fit.
    pub(crate) fn has_room(&self, entries: usize) -> bool {
        self.memory.used(Part::Table) + entries as u64 * ENTRY_BYTES <= self.most.get()
    }

    /// Brings logged versions home, if `entries` more do not fit. The rest of the table is then
    /// allowed: policies keep some versions in logs, some homes cannot be written, and the
    /// checksums of logs take memory too.
    pub(crate) async fn make_room(&self, volume: &Volume, entries: usize) {
        let _alone = self.shrinking.take().await;
        if self.has_room(entries) {
            return;
        }
        // A failure shows in the volume's state, and versions that were not moved stay logged.
        let _ = volume.checkpoint().await;
        self.count(volume);
        let left = self.memory.used(Part::Table) + entries as u64 * ENTRY_BYTES;
        self.most.set(self.share.max(left + self.share / 2));
    }
}
