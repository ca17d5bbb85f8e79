//! What the engine counts.

use manylogs_block::{Extent, Sectors};

use crate::volume::Volume;

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) logged_writes: u64,
    pub(crate) logged_sectors: u64,
    pub(crate) bypassed_writes: u64,
    pub(crate) records: u64,
    pub(crate) record_sectors: u64,
    pub(crate) supersedes: u64,
    pub(crate) log_swaps: u64,
    pub(crate) swapped_sectors: u64,
    pub(crate) log_resets: u64,
    pub(crate) checkpoints: u64,
    pub(crate) snapshots: u64,
    pub(crate) redirected_reads: u64,
    pub(crate) starved_writes: u64,
    pub(crate) logged_since_checkpoint: u64,
    pub(crate) logged_sectors_since_checkpoint: u64,
    pub(crate) table_bytes_max: u64,
}

/// A volume's counters and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Client writes that went into a log.
    pub logged_writes: u64,
    /// Their length.
    pub logged_bytes: u64,
    /// Client writes that went home.
    pub bypassed_writes: u64,
    /// Records appended.
    pub records: u64,
    /// Their length, headers and padding included.
    pub record_bytes: u64,
    /// Supersede entries appended for bypassing writes.
    pub supersedes: u64,
    /// Full logs whose content was moved to an empty one.
    pub log_swaps: u64,
    /// What was moved.
    pub swapped_bytes: u64,
    /// Logs that began a new epoch.
    pub log_resets: u64,
    /// Checkpoints that ran to the end.
    pub checkpoints: u64,
    /// Table snapshots written.
    pub snapshots: u64,
    /// Client reads with a part in a log or in memory.
    pub redirected_reads: u64,
    /// Writes that found the logs full.
    pub starved_writes: u64,
    /// Extents in the mapping table.
    pub mapped_extents: u64,
    /// Memory of the mapping table and the checksums of what it points to.
    pub mapping_table_bytes: u64,
    /// The largest that ever was.
    pub mapping_table_bytes_max: u64,
    /// Acknowledged bytes that are only in memory.
    pub volatile_bytes: u64,
}

/// How full one log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOccupancy {
    /// Its place on the device.
    pub region: Extent,
    /// Appended in its present epoch.
    pub used: Sectors,
    /// Home sectors whose newest version is there.
    pub live: Sectors,
}

impl Volume {
    /// Counters and sizes now.
    #[must_use]
    pub fn stats(&self) -> VolumeStats {
        let state = self.inner().state.borrow();
        let counters = &state.counters;
        let table = state.table_bytes();
        VolumeStats {
            logged_writes: counters.logged_writes,
            logged_bytes: Sectors(counters.logged_sectors).bytes(),
            bypassed_writes: counters.bypassed_writes,
            records: counters.records,
            record_bytes: Sectors(counters.record_sectors).bytes(),
            supersedes: counters.supersedes,
            log_swaps: counters.log_swaps,
            swapped_bytes: Sectors(counters.swapped_sectors).bytes(),
            log_resets: counters.log_resets,
            checkpoints: counters.checkpoints,
            snapshots: counters.snapshots,
            redirected_reads: counters.redirected_reads,
            starved_writes: counters.starved_writes,
            mapped_extents: state.map.len() as u64,
            mapping_table_bytes: table,
            mapping_table_bytes_max: counters.table_bytes_max.max(table),
            volatile_bytes: Sectors(state.volatile).bytes(),
        }
    }

    /// How full each log that was used is, by address.
    #[must_use]
    pub fn log_occupancy(&self) -> Vec<LogOccupancy> {
        let state = self.inner().state.borrow();
        let occupancy = |log: &manylogs_logstore::Log| LogOccupancy {
            region: log.region(),
            used: log.used(),
            live: Sectors(log.live()),
        };
        state.logs.iter().map(occupancy).collect()
    }
}

impl crate::state::State {
    /// Memory of the table: the map itself and eight bytes of checksum for each logged unit.
    pub(crate) fn table_bytes(&self) -> u64 {
        (self.map.bytes() + 8 * self.map.len()) as u64
    }

    /// Notes the table's size if it is the largest so far; called where it shrinks.
    pub(crate) fn note_table_size(&mut self) {
        self.counters.table_bytes_max = self.counters.table_bytes_max.max(self.table_bytes());
    }
}
