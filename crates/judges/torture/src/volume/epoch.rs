//! The content of a log according to the disk's own memory: which writes are there, and which of
//! them were durable when later ones were sent. The volume and the durable tails in its records are
//! not used, because they are under test.

use std::collections::BTreeSet;

use manylogs_block::{Extent, Lba, Sectors};
use manylogs_logstore::Record;
use manylogs_sim::{DiskImage, SentWrite};

/// The writes of the present epoch of the log at `region`, by address: the last write to the log's
/// start and the later ones, as far as they are still there as written. The cache of `image` must
/// be empty.
pub(crate) fn epoch_of(image: &DiskImage, region: Extent) -> Vec<&SentWrite> {
    let is_there = |write: &&SentWrite| {
        let mut written = write.extent.range().zip(write.payload.sectors());
        written.all(|(lba, sector)| image.durable(Lba(lba)) == sector.unwrap_or_default())
    };
    let within = |write: &&SentWrite| region.contains(write.extent);
    let writes: Vec<&SentWrite> = image.ledger().writes().filter(within).filter(is_there).collect();
    let begin = writes.iter().rposition(|write| write.extent.start == region.start);
    let mut epoch = begin.map_or(Vec::new(), |begin| writes[begin..].to_vec());
    epoch.sort_by_key(|write| write.extent.start);
    epoch
}

/// The sectors of the volume that may silently become older when the sectors at `offsets` of a log
/// are damaged. They are those of the first damaged write that no other write proves missing, and
/// of all writes behind it.
///
/// A later write proves an earlier one missing if the later one is whole and was sent when
/// everything up to the end of the earlier one was durable. Its header must then say so.
pub(crate) fn lost_without_a_trace(epoch: &[&SentWrite], offsets: &[u64]) -> BTreeSet<u64> {
    let Some(start) = epoch.first().map(|first| first.extent.start) else {
        return BTreeSet::new();
    };
    let is_hit = |write: &SentWrite| {
        offsets.iter().any(|offset| write.extent.range().contains(&(start.0 + offset)))
    };
    let shows = |later: &SentWrite, up_to: usize| {
        !is_hit(later) && epoch[..=up_to].iter().all(|write| write.is_durable_before(later))
    };
    let unproved = |index: &usize| {
        is_hit(epoch[*index]) && !epoch[index + 1..].iter().any(|later| shows(later, *index))
    };
    let first = (0..epoch.len()).find(unproved).unwrap_or(epoch.len());
    epoch[first..].iter().flat_map(|write| logged_by(write)).collect()
}

/// The sectors of the volume of which the record in `write` has versions.
fn logged_by(write: &SentWrite) -> BTreeSet<u64> {
    let mut header = write.payload.slice(Sectors(0), Sectors(1)).to_bytes();
    if let Some(first) = &header
        && let Ok(len) = Record::announced_header(first)
        && len <= write.payload.len()
    {
        header = write.payload.slice(Sectors(0), len).to_bytes();
    }
    let record = header.and_then(|header| Record::decode(&header).ok());
    let entries = record.map(|record| record.entries).unwrap_or_default();
    entries.iter().flat_map(|entry| entry.extent.range()).collect()
}
