//! The room that the largest entry needs.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::store::Room;
use manylogs_logstore::{EntryKind, RecordShape};

use crate::settings::config::VolumeConfig;

/// The room that the largest entry under `config` needs for a record of its own.
pub(crate) fn largest_record(config: &VolumeConfig, shape: RecordShape) -> Room {
    // The edges of an unaligned bypass are logged too, whatever the threshold.
    let longest = Sectors(config.threshold.0.max(shape.physical.0));
    Room::of_one(EntryKind::Data, Extent { len: longest, ..Extent::default() }, shape)
}
