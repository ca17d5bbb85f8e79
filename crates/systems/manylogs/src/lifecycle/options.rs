//! Options of formatting and opening, and the report of a recovery.

use std::rc::Rc;

use manylogs_block::{Extent, Geometry, Lba, Nanos, Nvram, Sectors};
use manylogs_logstore::{LogId, VolumeId};

use crate::ondisk::layout::{Anchors, Layout};
use crate::reports::home_pace::HomePace;
use crate::settings::config::{TablePlace, VolumeConfig};
use manylogs_engine::PhaseProbe;

/// Options of an opening.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Parameters for this opening; the layout stays the volume's own. `None` takes the settings
    /// that the volume keeps.
    pub config: Option<VolumeConfig>,
    /// Rebuild the table from the logs alone.
    pub ignore_snapshot: bool,
    /// Open although records are damaged or unreadable and it is unknown what they held. Their
    /// acknowledged writes are given up; the report lists the places.
    pub accept_damage: bool,
    /// Open to drain. That is allowed even when too few sequences are left for other work.
    pub to_drain: bool,
    /// Open to read, over a device whose changes are dropped later: the volume begins no work of
    /// its own, and accepts only reads.
    pub to_read: bool,
    /// Memory that holds the table, if the volume keeps it in non-volatile RAM.
    pub nvram: Option<Rc<dyn Nvram>>,
    /// Open with an empty table in `nvram`, even if the memory holds one. Data that was only logged
    /// is lost; home data is as the last checkpoint, large write or drain left it.
    pub give_up_nvram: bool,
    /// Places of the volume's structures, if its layout was given ([`Layout::given`]).
    pub anchors: Option<Anchors>,
    /// Longest payload of the owner's batches, even if `record=` is less.
    pub record_least: Sectors,
    /// Records go to the log nearest this address, not to the log nearest the head.
    pub logs_near: Option<Lba>,
    /// New metadata ([`manylogs_logstore::Class::KeptMetadata`]) stays in the logs: see
    /// [`crate::Volume::keep_metadata`].
    pub keep_metadata: bool,
    /// Pace at which the device takes home writes, if known from earlier use. If `None`, the usual
    /// pace of such a device counts until a checkpoint has been measured.
    pub pace: Option<HomePace>,
    /// Learns the purpose of each write of the volume.
    pub probe: PhaseProbe,
}

/// Options of formatting.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// A name for people, up to 32 bytes.
    pub label: String,
    /// The volume's id; `None` draws one from the runtime's random numbers.
    pub volume: Option<VolumeId>,
    /// Layout with its regions of logs, if the parameters should not decide it.
    pub layout: Option<Layout>,
    /// Keep the mapping table in this memory rather than in the logs. Its old content is lost.
    pub nvram: Option<Rc<dyn Nvram>>,
    /// Write zeroes to all homes, so that blocks read as zeroes until they are written, and not as
    /// the device's old content. This writes the whole device if it cannot zero faster. Ignored if
    /// the layout was given, because the homes then hold the owner's data.
    pub zero: bool,
    /// The array that the device is by its user's word. It counts if the device says none itself.
    pub said: Option<Geometry>,
    /// Learns the purpose of each write of the volume.
    pub probe: PhaseProbe,
}

/// Damage that a scan found in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// The log.
    pub log: LogId,
    /// Place and length of the damage, and whether the lost blocks are known.
    pub damage: manylogs_logstore::Damage,
}

/// Report of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the volume was closed in order, and nothing had to be recovered.
    pub was_closed: bool,
    /// Whether a snapshot was used.
    pub from_snapshot: bool,
    /// Whether the table came from non-volatile RAM.
    pub from_nvram: bool,
    /// Whether the root names a snapshot that is damaged; the logs hold the same entries.
    pub snapshot_damaged: bool,
    /// Whether the first superblock was damaged and the last one used.
    pub from_backup_superblock: bool,
    /// Whether the last superblock is damaged.
    pub backup_superblock_damaged: bool,
    /// Whether a crash interrupted a change of the superblock, which an opening finishes.
    pub superblock_change_unfinished: bool,
    /// Number of damaged root slots. After a crash one may be; it is rewritten.
    pub roots_damaged: u32,
    /// Whether the volume was made for an array of another shape than the device has now. No data
    /// is lost by that; records are placed as on a single drive.
    pub reshaped: bool,
    /// Rows of an array with parity that were on their way home at the crash, and were written
    /// once more.
    pub mended_rows: u64,
    /// Logs that were read.
    pub scanned_logs: u64,
    /// Records found in them.
    pub records: u64,
    /// Bytes read from logs and snapshot.
    pub read_bytes: u64,
    /// Places in the logs that had been durable and are damaged.
    pub damage: Vec<LogDamage>,
    /// Sectors of the logs that the medium cannot return, in use or not.
    pub unreadable: Vec<Extent>,
    /// Extents in the rebuilt table.
    pub mapped_extents: u64,
    /// Time that the opening took.
    pub duration: Nanos,
}

/// The place of the table: `nvram` if it is given, else the logs.
pub(crate) fn table_place(nvram: Option<&Rc<dyn Nvram>>) -> TablePlace {
    nvram.map_or(TablePlace::Logs, |nvram| TablePlace::Nvram(nvram.size()))
}
