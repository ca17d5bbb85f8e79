//! The tail cache: what was appended last stays in memory, and then on an SSD if there is one, so
//! that reads of it do not move the head of the drive at the tail, which should only write (section
//! 3.3 of the paper).
//!
//! A version is kept under its data sequence, and a read asks with the one that the map has now. No
//! sequence is used twice, so the answer cannot be an older version, whatever was overwritten,
//! trimmed or moved meanwhile. Without the cache, everything is read from the drives.

mod attach;
mod flash;
mod label;
mod ondisk;

use std::collections::BTreeMap;

use manylogs_block::{Extent, Payload, Piece, Sectors};
use manylogs_logstore::store::Place;
use manylogs_logstore::{DataSequence, Entry, ExtentMap};
use manylogs_plant::{self as plant, Bug};

pub use attach::{CacheError, CacheOptions};
pub use flash::FlashFigures;
pub(crate) use flash::{ANSWERS_WITHIN, Flash, Hit};
pub use label::CacheLabel;

/// Bytes that a version takes beside its content.
const BESIDE: u64 = (size_of::<(DataSequence, Version)>() + size_of::<usize>()) as u64;

/// A version of an extent, as a client wrote it.
#[derive(Debug)]
struct Version {
    extent: Extent,
    content: Payload,
    /// Sectors that no newer version has displaced.
    live: u64,
}

/// How often reads by clients met content in logs, part by part: a part is what one write left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheCounts {
    /// Of the tail's drive, answered from the cache.
    pub(crate) tail_hits: u64,
    /// Of the tail's drive, answered by it.
    pub(crate) tail_misses: u64,
    /// Of other drives, answered from the cache.
    pub(crate) body_hits: u64,
}

/// Versions in the order in which they were written. The oldest goes first, and so does one that
/// was overwritten.
#[derive(Default)]
pub(crate) struct TailCache {
    /// Most bytes of memory; without any there is no cache.
    most: u64,
    bytes: u64,
    versions: BTreeMap<DataSequence, Version>,
    pub(crate) flash: Option<Flash>,
    pub(crate) counts: CacheCounts,
}

impl TailCache {
    /// An empty cache that takes `most` of memory, all counted.
    pub(crate) fn new(most: Sectors) -> Self {
        Self { most: most.bytes(), ..Self::default() }
    }

    /// Memory in use.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps the content of an entry that is about to be appended at the tail, unless newer
    /// versions have displaced all of it.
    pub(crate) fn keep(&mut self, map: &ExtentMap<Place>, entry: &Entry, content: &Payload) {
        let (extent, sequence) = (entry.extent, entry.data_sequence);
        if self.most == 0 && self.flash.is_none() {
            return;
        }
        let live = live_sectors(map, extent, sequence);
        // An entry is appended again if its record failed.
        self.forget(sequence);
        if live == 0 {
            return;
        }
        self.bytes += size_of_version(extent);
        self.versions.insert(sequence, Version { extent, content: own(content), live });
        while self.bytes > self.most && !plant::is(Bug::CacheNotBounded) {
            let Some((oldest, version)) = self.versions.pop_first() else { break };
            self.bytes -= size_of_version(version.extent);
            if let Some(flash) = &mut self.flash {
                flash.take(oldest, version);
            }
        }
    }

    /// A newer version of `extent` is about to displace what `map` has there: content of which
    /// nothing is left makes room for other content.
    pub(crate) fn displace(&mut self, map: &ExtentMap<Place>, extent: Extent) {
        if self.versions.is_empty() && self.flash.is_none() {
            return;
        }
        for (part, mapped) in map.lookup(extent) {
            let Some(sequence) = mapped.map(|mapped| mapped.sequence) else { continue };
            if let Some(flash) = &mut self.flash {
                flash.displace(sequence, part.len.0);
            }
            let Some(version) = self.versions.get_mut(&sequence) else { continue };
            version.live = version.live.saturating_sub(part.len.0);
            if version.live == 0 {
                self.forget(sequence);
            }
        }
    }

    fn forget(&mut self, sequence: DataSequence) {
        if let Some(version) = self.versions.remove(&sequence) {
            self.bytes -= size_of_version(version.extent);
        }
    }

    /// The content of `part`, which is of the version `sequence` as the map has it now.
    pub(crate) fn find(&self, part: Extent, sequence: DataSequence) -> Option<Payload> {
        if plant::is(Bug::CacheIgnoresVersions) {
            return self.find_any(part);
        }
        let here = self.versions.get(&sequence).and_then(|version| version.of(part));
        here.or_else(|| self.flash.as_ref()?.in_memory(part, sequence))
    }

    /// Whether a stripe of the SSD should be written now.
    pub(crate) fn is_due(&self) -> bool {
        self.flash.as_ref().is_some_and(Flash::is_due)
    }

    /// Whether the SSD has `part` of the version `sequence`.
    pub(crate) fn is_on_flash(&self, part: Extent, sequence: DataSequence) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.has(part, sequence))
    }

    /// Any version of `part`, as a cache that knows no versions would find it.
    pub(crate) fn find_any(&self, part: Extent) -> Option<Payload> {
        self.versions.values().find_map(|version| version.of(part))
    }
}

impl Version {
    /// The content of `part`, if that is of this version.
    fn of(&self, part: Extent) -> Option<Payload> {
        if !self.extent.contains(part) {
            return None;
        }
        let skip = if plant::is(Bug::CacheReadFromStart) { 0 } else { self.skip(part) };
        Some(self.content.slice(Sectors(skip), part.len))
    }

    const fn skip(&self, part: Extent) -> u64 {
        part.start.0 - self.extent.start.0
    }
}

impl CacheCounts {
    /// Notes a read of content in a log.
    pub(crate) const fn note(&mut self, is_at_tail: bool, is_hit: bool) {
        match (is_at_tail, is_hit) {
            (true, true) => self.tail_hits += 1,
            (true, false) => self.tail_misses += 1,
            (false, true) => self.body_hits += 1,
            (false, false) => {}
        }
    }
}

/// Sectors of `extent` of which the map has the version `sequence`.
fn live_sectors(map: &ExtentMap<Place>, extent: Extent, sequence: DataSequence) -> u64 {
    let parts = map.lookup(extent).filter_map(|(part, mapped)| Some((part, mapped?)));
    parts.filter(|(_, mapped)| mapped.sequence == sequence).map(|(part, _)| part.len.0).sum()
}

const fn size_of_version(extent: Extent) -> u64 {
    extent.len.bytes() + BESIDE
}

/// The content in memory of its own: a slice would keep all of a client's request, and buffers that
/// other requests wait for.
fn own(content: &Payload) -> Payload {
    let mut own = Payload::with_room_for(content.pieces().len());
    for piece in content.pieces() {
        own.append(match piece {
            Piece::Bytes(bytes) => Payload::bytes(bytes.to_vec()),
            other => Payload::from(other.clone()),
        });
    }
    own
}

#[cfg(test)]
mod tests;
