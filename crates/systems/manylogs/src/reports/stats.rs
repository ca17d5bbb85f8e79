//! Statistics of a volume.

use manylogs_block::{Extent, Sectors};
use manylogs_schedule::ScheduleStats;

use crate::volume::Volume;
use manylogs_logstore::store::apart::NvTable;

/// A volume's counters and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Client writes that went into a log.
    pub logged_writes: u64,
    /// Length of these writes.
    pub logged_bytes: u64,
    /// Client writes that went home.
    pub bypassed_writes: u64,
    /// Records appended.
    pub records: u64,
    /// Length of the records, headers and padding included.
    pub record_bytes: u64,
    /// Records that the device has answered to since the volume was opened.
    pub records_ended: u64,
    /// Total time of these from command to answer, in nanoseconds.
    pub record_ns: u64,
    /// Supersede entries appended for bypassing writes.
    pub supersedes: u64,
    /// Full logs whose content was moved to an empty one.
    pub log_swaps: u64,
    /// Bytes that were moved.
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
    /// The longest write that is logged now: the setting, or less if the logs fill too fast.
    pub threshold_bytes: u64,
    /// Writes up to the setting's length that went home because the threshold had fallen.
    pub sent_home_writes: u64,
    /// Extents in the mapping table.
    pub mapped_extents: u64,
    /// Memory of the map of extents.
    pub map_bytes: u64,
    /// Memory of the mapping table: the map and the checksums of the logs' content.
    pub mapping_table_bytes: u64,
    /// Largest memory of the mapping table so far.
    pub mapping_table_bytes_max: u64,
    /// Acknowledged bytes that are only in memory.
    pub volatile_bytes: u64,
    /// Bytes of the volume whose newest version is in a log. A reader of the plain disk sees older
    /// data there.
    pub logged_at_risk_bytes: u64,
    /// Logs out of use after an I/O error.
    pub retired_logs: u64,
    /// Extents that stayed logged because their home could not be written.
    pub kept_extents: u64,
    /// Extents whose logged copy was found damaged.
    pub lost_extents: u64,
    /// Extents whose logged copy the last checkpoint could not read: they stay logged, and the
    /// next one tries again.
    pub unread_extents: u64,
    /// Checkpoints that ended with an error.
    pub failed_checkpoints: u64,
    /// Address of the volume that the present checkpoint has reached; zero if there is none.
    pub checkpoint_at: u64,
    /// Bytes whose newest version is kept in the logs, because it needs durability but no place.
    pub o_dur_live_bytes: u64,
    /// Bytes of such versions that went home nevertheless: beyond the budget, in a drain, or for
    /// lack of room.
    pub o_dur_home_bytes: u64,
    /// Bytes of such versions that moved from log to log.
    pub o_dur_moved_bytes: u64,
    /// Bytes appended to the logs that hold such versions, or entries that say that older ones are
    /// dead.
    pub o_dur_pinned_bytes: u64,
    /// Bytes of metadata that stays in the logs. It lies in the logs that `o_dur_pinned_bytes`
    /// counts.
    pub kept_metadata_bytes: u64,
    /// Bytes of such metadata that went home nevertheless.
    pub kept_metadata_home_bytes: u64,
    /// Bytes of such metadata that moved from log to log.
    pub kept_metadata_moved_bytes: u64,
    /// Bytes of non-volatile RAM that the table may take, and bytes that it takes. Zero if the
    /// table is in the logs.
    pub nvram_bytes: u64,
    /// See `nvram_bytes`.
    pub nvram_bytes_used: u64,
    /// Number of times that the table was rewritten in non-volatile RAM.
    pub nvram_rewrites: u64,
}

/// State of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing is wrong.
    Good,
    /// Something failed, and the volume still takes reads and writes: logs are out of use, homes
    /// cannot be written, or logged copies are lost or cannot be read. See [`VolumeStats`].
    Degraded,
    /// Writes are refused, for this reason. Reads are served, and acknowledged writes are still
    /// there.
    ReadOnly(&'static str),
}

/// Numbers of requests by the way that they took. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WritePaths {
    /// Writes, or parts of writes, that are logged.
    pub logged: u64,
    /// Writes, or parts of writes, that go home.
    pub home: u64,
    /// Writes that found the logs full.
    pub starved: u64,
    /// Small writes that wait in memory to go home with their neighbours, or to be logged.
    pub gathered: u64,
    /// Reads of which at least a part is in the logs.
    pub redirected: u64,
}

/// Occupancy of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOccupancy {
    /// Place of the log on the device.
    pub region: Extent,
    /// Sectors appended in its present epoch.
    pub used: Sectors,
    /// Sectors whose newest version is in this log.
    pub live: Sectors,
}

impl Volume {
    /// Statistics of the device's scheduler, or the sum over an array's columns: waiting and
    /// held-back requests by class.
    #[must_use]
    pub fn schedule(&self) -> ScheduleStats {
        self.inner().device.schedule_stats()
    }

    /// Counts that say which way requests took, at little cost: [`Volume::stats`] has these, too.
    #[must_use]
    pub fn write_paths(&self) -> WritePaths {
        let state = self.inner().engine.state.borrow();
        WritePaths {
            logged: state.counters.logged_writes,
            home: state.counters.bypassed_writes,
            starved: state.counters.starved_writes,
            gathered: state.counters.gathered_writes,
            redirected: state.counters.redirected_reads,
        }
    }

    /// The present counters and sizes.
    #[must_use]
    pub fn stats(&self) -> VolumeStats {
        let state = self.inner().engine.state.borrow();
        let threshold = self.inner().threshold_now(&state);
        let (store, counters) = (&state.store, &state.counters);
        let table = store.table_bytes();
        VolumeStats {
            logged_writes: counters.logged_writes,
            logged_bytes: Sectors(counters.logged_sectors).bytes(),
            bypassed_writes: counters.bypassed_writes,
            records: store.counters().records,
            record_bytes: Sectors(store.counters().record_sectors).bytes(),
            records_ended: state.pacing.ended,
            record_ns: state.pacing.took_ns,
            supersedes: store.counters().supersedes,
            log_swaps: counters.log_swaps,
            swapped_bytes: Sectors(counters.swapped_sectors).bytes(),
            log_resets: store.counters().log_resets,
            checkpoints: counters.checkpoints,
            snapshots: counters.snapshots,
            redirected_reads: counters.redirected_reads,
            starved_writes: counters.starved_writes,
            threshold_bytes: threshold.bytes(),
            sent_home_writes: counters.sent_home_writes,
            mapped_extents: store.map().len() as u64,
            map_bytes: store.map().bytes() as u64,
            mapping_table_bytes: table,
            mapping_table_bytes_max: store.counters().table_bytes_max.max(table),
            volatile_bytes: Sectors(state.volatile_sectors()).bytes(),
            logged_at_risk_bytes: store.logs().iter().map(|log| Sectors(log.live()).bytes()).sum(),
            retired_logs: store.logs().iter().filter(|log| log.is_retired()).count() as u64,
            kept_extents: counters.kept_extents,
            lost_extents: counters.lost_extents,
            unread_extents: counters.unread_extents,
            failed_checkpoints: counters.failed_checkpoints,
            checkpoint_at: state.pass_at.0,
            o_dur_live_bytes: store.kept_sectors().bytes(),
            o_dur_home_bytes: Sectors(store.counters().kept_home_sectors).bytes(),
            o_dur_moved_bytes: Sectors(store.counters().kept_moved_sectors).bytes(),
            o_dur_pinned_bytes: state.pinned().used.bytes(),
            kept_metadata_bytes: store.kept_metadata_sectors().bytes(),
            kept_metadata_home_bytes: Sectors(store.counters().kept_metadata_home_sectors).bytes(),
            kept_metadata_moved_bytes: Sectors(store.counters().kept_metadata_moved_sectors)
                .bytes(),
            nvram_bytes: store.table_apart().map_or(0, NvTable::half_len),
            nvram_bytes_used: store.table_apart().map_or(0, NvTable::used),
            nvram_rewrites: store.table_apart().map_or(0, NvTable::rewrites),
        }
    }

    /// The present state of the volume.
    #[must_use]
    pub fn health(&self) -> Health {
        let stats = self.stats();
        let read_only = self.inner().engine.state.borrow().store.read_only();
        let extents = stats.kept_extents + stats.lost_extents + stats.unread_extents;
        let troubles = stats.retired_logs + extents;
        match read_only {
            Some(reason) => Health::ReadOnly(reason),
            None if troubles + stats.failed_checkpoints > 0 => Health::Degraded,
            None => Health::Good,
        }
    }

    /// Occupancy of each used log, by address.
    #[must_use]
    pub fn log_occupancy(&self) -> Vec<LogOccupancy> {
        let state = self.inner().engine.state.borrow();
        let occupancy = |log: &manylogs_logstore::Log| LogOccupancy {
            region: log.region(),
            used: log.used(),
            live: Sectors(log.live()),
        };
        state.store.logs().iter().map(occupancy).collect()
    }
}
