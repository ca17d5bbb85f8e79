//! The content of a log by the disk's own memory: which writes are there, and which of them were
//! durable when later ones were sent. The volume and the durable tails in its records are not
//! asked: they are under test.

use std::collections::BTreeSet;

use manylogs_block::{Extent, Lba, Sectors};
use manylogs_logstore::Record;
use manylogs_sim::{DiskImage, SentWrite};

/// The writes that make up the present use of the log at `region`, by address: those behind the
/// last write to its start that are still there as they were written. The cache of `image` is
/// empty.
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

/// The sectors of the volume that may be older without anybody noticing once the sectors at
/// `offsets` of a log are damaged: those of the first write hit that no other shows to be missing,
/// and of all behind it.
///
/// A write shows that another is missing if it is whole, lies behind that one in the log, and was
/// sent when everything up to the end of that one was durable: then its header has to say so.
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

/// The sectors of the volume that the record in `write` has versions of.
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
