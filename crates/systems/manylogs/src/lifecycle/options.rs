//! Options of formatting and opening, and the report of a recovery.

use std::rc::Rc;

use manylogs_block::{Extent, Lba, Nanos, Nvram, Sectors};
use manylogs_logstore::{LogId, VolumeId};

use crate::ondisk::layout::{Anchors, Layout};
use crate::reports::home_pace::HomePace;
use crate::settings::config::{TablePlace, VolumeConfig};
use manylogs_engine::PhaseProbe;

/// Options of an opening.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The parameters that may change; the layout is the volume's own. `None` takes the settings
    /// that the volume keeps.
    pub config: Option<VolumeConfig>,
    /// Rebuild the table from the logs alone.
    pub ignore_snapshot: bool,
    /// Open although records are damaged or cannot be read, and nobody knows what they held.
    /// Acknowledged writes are given up; the report lists the places.
    pub accept_damage: bool,
    /// Open to drain. That is allowed even when too few sequences are left for other work.
    pub to_drain: bool,
    /// Open to read, over a device whose changes are forgotten: the volume begins no work of its
    /// own, and takes nothing but reads.
    pub to_read: bool,
    /// Memory that holds the table, if the volume keeps it in non-volatile RAM.
    pub nvram: Option<Rc<dyn Nvram>>,
    /// Open with an empty table in `nvram`, whatever is there: what was only logged is lost, home
    /// data is as the last checkpoint, large write or drain left it.
    pub give_up_nvram: bool,
    /// Where the volume's structures are, if its layout was given ([`Layout::given`]).
    pub anchors: Option<Anchors>,
    /// The owner's batches have up to so much payload, whatever `record=` says.
    pub record_least: Sectors,
    /// Records go to the log nearest this address, wherever the head is.
    pub logs_near: Option<Lba>,
    /// How fast the device takes what goes home, as far as that is known before any checkpoint;
    /// else that of devices of the kind.
    pub pace: Option<HomePace>,
    /// Told what each write of the volume is for.
    pub probe: PhaseProbe,
}

/// Options of formatting.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// A name for people, up to 32 bytes.
    pub label: String,
    /// The volume's id; drawn from the runtime's random numbers when not given.
    pub volume: Option<VolumeId>,
    /// Regions of the logs, if they are not those of the parameters.
    pub layout: Option<Layout>,
    /// Keep the mapping table there rather than in the logs. What it held is lost.
    pub nvram: Option<Rc<dyn Nvram>>,
    /// Write zeroes to all that is for data: blocks read as zeroes until they are written, rather
    /// than as what the device held before. This writes the whole device where it cannot zero
    /// faster. Not done where the layout was given: the homes hold somebody's data then.
    pub zero: bool,
    /// Told what each write of the volume is for.
    pub probe: PhaseProbe,
}

/// Damage that a scan found in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// The log.
    pub log: LogId,
    /// Where, how far, and whether it is known what was there.
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
    /// Whether the root names a snapshot that is damaged; the logs have the same.
    pub snapshot_damaged: bool,
    /// Whether the first superblock was damaged and the last one used.
    pub from_backup_superblock: bool,
    /// Whether the last superblock is damaged.
    pub backup_superblock_damaged: bool,
    /// Whether a crash interrupted a change of the superblock, which an opening finishes.
    pub superblock_change_unfinished: bool,
    /// Root slots that are damaged. One may be after a crash, and is rewritten.
    pub roots_damaged: u32,
    /// Whether the volume was made for an array of another shape than the device has now. Nothing
    /// is lost by that; records are placed as on a single drive.
    pub reshaped: bool,
    /// Logs that were read.
    pub scanned_logs: u64,
    /// Records found in them.
    pub records: u64,
    /// Bytes read from logs and snapshot.
    pub read_bytes: u64,
    /// Places in the logs that were durable once and are damaged.
    pub damage: Vec<LogDamage>,
    /// Sectors of the logs that the medium does not give back, whether anything was there or not.
    pub unreadable: Vec<Extent>,
    /// Extents in the rebuilt table.
    pub mapped_extents: u64,
    /// Time it took.
    pub duration: Nanos,
}

/// Sets the place of the table: `nvram` if it is given, else the logs.
pub(crate) fn table_place(nvram: Option<&Rc<dyn Nvram>>) -> TablePlace {
    nvram.map_or(TablePlace::Logs, |nvram| TablePlace::Nvram(nvram.size()))
}
