//! The room that the largest record needs.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::store::{Logs, Room};
use manylogs_logstore::{EntryKind, MAX_ENTRIES, RecordShape};

use crate::ondisk::layout::Layout;
use crate::settings::config::VolumeConfig;
use crate::settings::config_error::ConfigError;

/// The room that the largest entry under `config` needs for a record of its own. If an owner gave
/// the places of the logs, he appends batches of his own, so it is the room for the largest batch.
/// A batch may come from a time with another `record=`, so the longest that can be set counts.
pub(crate) fn largest_record(config: &VolumeConfig, layout: &Layout, shape: RecordShape) -> Room {
    if layout.anchors().is_some() {
        return batch_room(MAX_ENTRIES, longest_batch(config, layout, shape), shape);
    }
    // The edges of an unaligned bypass are logged too, even if they exceed the threshold.
    let longest = Sectors(config.threshold.0.max(shape.physical.0));
    Room::of_one(EntryKind::Data, Extent { len: longest, ..Extent::default() }, shape)
}

/// The longest payload of a batch. If an owner appends batches, the logs must take a batch with
/// this payload and [`MAX_ENTRIES`] entries again and again, even if some logs fail.
pub(crate) fn longest_batch(config: &VolumeConfig, layout: &Layout, shape: RecordShape) -> Sectors {
    if layout.anchors().is_none() {
        return config.record;
    }
    let (mut payload, most) = (config.longest_record(), Logs::longest_record(config.log));
    loop {
        let record = batch_room(MAX_ENTRIES, payload, shape).log;
        if record <= most || payload == Sectors(0) {
            return payload;
        }
        payload = Sectors(payload.0.saturating_sub((record - most).0));
    }
}

/// Checks that the logs can take the largest record again and again, even if some logs fail.
///
/// # Errors
/// [`ConfigError::LogTooShortForRecords`].
pub(crate) fn check_room(
    config: &VolumeConfig,
    layout: &Layout,
    shape: RecordShape,
) -> Result<(), ConfigError> {
    let log = config.log;
    let record = match layout.anchors() {
        Some(_) if config.record <= longest_batch(config, layout, shape) => return Ok(()),
        Some(_) => batch_room(MAX_ENTRIES, config.record, shape),
        None => largest_record(config, layout, shape),
    };
    if record.log > Logs::longest_record(log) {
        return Err(ConfigError::LogTooShortForRecords { log, record: record.log });
    }
    Ok(())
}

/// The most room for a record with this many entries and this much payload, however the payload is
/// divided among the entries.
pub(crate) fn batch_room(entries: usize, payload: Sectors, shape: RecordShape) -> Room {
    let units = payload.0.div_ceil(8) + entries as u64;
    Room { log: shape.len_of(entries, units, payload).1, apart_bytes: 0 }
}
