//! Counters since the mount.

use super::Ext4;
use crate::journal::SinkStats;
use crate::memory::Memory;

impl Ext4 {
    /// How often [`Ext4::sync`] and [`Ext4::sync_content`] were called since the mount.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.core.syncs.get()
    }

    /// How often data of a file was lost since the mount, because it could not be written.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.core.losses.count()
    }

    /// Pages of files in memory that wait to be written.
    #[must_use]
    pub fn dirty_pages(&self) -> usize {
        self.core.backlog.pages()
    }

    /// The account of its memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.core.memory
    }

    /// Counters of the journal since the mount.
    #[must_use]
    pub fn journal_stats(&self) -> SinkStats {
        self.core.journal.sink.stats()
    }
}
