//! Counters since the mount.

use super::Ext4;
use crate::journal::{KeptInLog, SinkStats};
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

    /// What the journal holds, if it keeps its metadata, and for how many seconds homes may be old.
    #[must_use]
    pub fn kept_in_journal(&self) -> Option<(KeptInLog, u64)> {
        let kept = self.core.journal.sink.kept_in_log()?;
        let now = (self.core.clock)().seconds;
        let age = kept.oldest.map_or(0, |oldest| now.saturating_sub(oldest.seconds));
        Some((kept, u64::try_from(age).unwrap_or(0)))
    }

    /// Counters of the journal since the mount.
    #[must_use]
    pub fn journal_stats(&self) -> SinkStats {
        self.core.journal.sink.stats()
    }
}
