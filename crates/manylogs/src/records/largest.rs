//! The room that the largest record needs.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::store::Room;
use manylogs_logstore::{EntryKind, MAX_ENTRIES, RecordShape};

use crate::ondisk::layout::Layout;
use crate::settings::config::VolumeConfig;

/// The room that the largest entry under `config` needs for a record of its own; or the largest
/// batch, where an owner gave the places of the logs and appends batches of his own.
pub(crate) fn largest_record(config: &VolumeConfig, layout: &Layout, shape: RecordShape) -> Room {
    if layout.anchors().is_some() {
        return largest_batch(config, shape);
    }
    // The edges of an unaligned bypass are logged too, whatever the threshold.
    let longest = Sectors(config.threshold.0.max(shape.physical.0));
    Room::of_one(EntryKind::Data, Extent { len: longest, ..Extent::default() }, shape)
}

/// The room of a batch of [`MAX_ENTRIES`] entries with as much payload as records may have.
fn largest_batch(config: &VolumeConfig, shape: RecordShape) -> Room {
    batch_room(MAX_ENTRIES, config.record, shape)
}

/// The most room that a record of so many entries with so much payload takes, however the payload
/// is divided among the entries.
pub(crate) fn batch_room(entries: usize, payload: Sectors, shape: RecordShape) -> Room {
    let units = payload.0.div_ceil(8) + entries as u64;
    Room { log: shape.len_of(entries, units, payload).1, apart_bytes: 0 }
}
