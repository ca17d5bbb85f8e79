//! Lost ranges: their newest versions were only in a store that was forgotten, or that came back
//! with less than it had. They read as errors until they are written.

use manylogs_block::{Extent, IoError, narrow};
use manylogs_plant::{self as plant, Bug};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::call::StoreId;
use crate::header::{Content, Header, RawVoid, VOIDS_MAX};
use crate::offload::Client;
use crate::versions::{Range, Version};

/// Bytes that lost ranges may take besides those that void ranges leave.
pub(crate) const LOST_BYTES_LEAST: usize = 7200;
/// Most bytes of the void and lost ranges of a header.
const BYTES_MAX: usize = VOIDS_MAX * size_of::<RawVoid>() + LOST_BYTES_LEAST;
/// Most lost ranges in a header.
const LOST_MAX: usize = BYTES_MAX / size_of::<RawLost>();

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLost {
    start: U64,
    sectors: U64,
    version: U64,
}

/// Appends the list: a count, and the ranges.
pub(crate) fn encode(lost: &[Range], out: &mut Vec<u8>) {
    out.extend_from_slice(&narrow::<_, u32>(lost.len()).to_le_bytes());
    for Range { extent, version } in lost {
        let (start, sectors) = (U64::new(extent.start.0), U64::new(extent.len.0));
        let raw = RawLost { start, sectors, version: U64::new(version.0) };
        out.extend_from_slice(raw.as_bytes());
    }
}

/// The list at the start of `bytes`, and its length; `None` if it makes no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Vec<Range>, usize)> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let used = count.checked_mul(size_of::<RawLost>()).filter(|_| count <= LOST_MAX)?;
    let range = |raw: &RawLost| Range {
        extent: Extent::new(raw.start.get(), raw.sectors.get()),
        version: Version(raw.version.get()),
    };
    let lost = <[RawLost]>::ref_from_bytes(rest.get(..used)?).ok()?.iter().map(range).collect();
    Some((lost, 4 + used))
}

impl Content {
    /// Whether the void and the lost ranges fit into a header.
    pub(crate) fn has_room(&self) -> bool {
        self.voids.len() <= VOIDS_MAX && self.used() <= BYTES_MAX
    }

    /// Bytes of the void and the lost ranges, and of the notes, which share their room.
    fn used(&self) -> usize {
        let voids = self.voids.len() * size_of::<RawVoid>();
        voids + self.lost.len() * size_of::<RawLost>() + self.note_bytes()
    }

    /// Bytes that are left of their room.
    pub(crate) fn room(&self) -> usize {
        BYTES_MAX.saturating_sub(self.used())
    }

    /// Number of ranges that may be lost with a store. Half of the room stays for the pieces that
    /// are left when parts of them are written.
    pub(crate) fn room_for_losses(&self, store: StoreId) -> usize {
        let voids = self.voids.iter().filter(|(of, _)| *of != store).count();
        let room = (BYTES_MAX - voids * size_of::<RawVoid>()) / size_of::<RawLost>();
        room.saturating_sub(self.lost.len()) / 2
    }

    /// Number of ranges that may be noted as lost when a store came back with less than it had.
    /// They take at most half of the room, as those that go with a store.
    pub(crate) fn room_for_missing(&self) -> usize {
        let voids = self.voids.len() * size_of::<RawVoid>();
        let most = (BYTES_MAX - voids) / size_of::<RawLost>() / 2;
        most.saturating_sub(self.lost.len())
    }

    /// Notes that `lost` is lost: versions up to those of the ranges count no more, wherever they
    /// are.
    pub(crate) fn lose(&mut self, lost: &[Range]) {
        lost.iter().for_each(|range| self.find_again(range.extent));
        self.lost.extend_from_slice(lost);
    }

    /// Drops a store, with all that is noted about it. False if it was not there.
    pub(crate) fn drop_store(&mut self, store: StoreId) -> bool {
        let was_listed = self.stores.contains(&store);
        self.stores.retain(|listed| *listed != store);
        let was_kept = self.forget(store);
        self.voids.retain(|(of, _)| *of != store);
        // What others shared with it they have alone now.
        self.notes.clear();
        was_listed || was_kept
    }

    /// Takes `extent` out of the lost ranges.
    fn find_again(&mut self, extent: Extent) {
        self.lost = self.lost.iter().flat_map(|range| range.outside(extent)).collect();
    }
}

impl Header {
    /// Whether a part of `extent` is lost.
    pub(crate) fn is_lost(&self, extent: Extent) -> bool {
        self.content().lost.iter().any(|lost| lost.extent.overlaps(extent))
    }

    /// Whether the header says of all of `range` that its version is lost. A note of an older loss
    /// does not: a newer version was written since, and hides the note from an opening.
    pub(crate) fn is_all_lost(&self, Range { extent, version }: Range) -> bool {
        // The lost ranges do not overlap.
        let content = self.content();
        let lost = content.lost.iter().filter(|lost| lost.version >= version);
        lost.map(|lost| lost.extent.intersection(extent).len.0).sum::<u64>() == extent.len.0
    }
}

impl Client {
    /// Notes durably that the parts of `extent` that are home are lost no more: they were written
    /// since. Comes after the stores have forgotten older versions, which the note hides from an
    /// opening, and before they forget the newest, which the note does not hide. False if the
    /// header has no room for the pieces that are left.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub(crate) async fn found_again(&self, extent: Extent) -> Result<bool, IoError> {
        if !self.header.is_lost(extent) || plant::is(Bug::LossKept) {
            return Ok(true);
        }
        let mut parts = self.table.borrow().lookup(extent);
        parts.retain(|(_, known)| known.is_none_or(|(_, copies)| copies.clean));
        parts.retain(|(part, _)| self.header.is_lost(*part));
        if parts.is_empty() {
            return Ok(true);
        }
        let change = |content: &mut Content| {
            parts.iter().for_each(|(part, _)| content.find_again(*part));
            content.make_room()
        };
        self.header.update(change).await
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Sectors;

    use super::*;

    fn content(lost: &[(u64, u64)]) -> Content {
        let mut content = Content::new(*b"fedcba9876543210", Sectors(4096));
        let lost = lost.iter().map(|&(start, len)| range(start, len, 7));
        content.lose(&lost.collect::<Vec<_>>());
        content
    }

    const fn range(start: u64, len: u64, version: u64) -> Range {
        Range { extent: Extent::new(start, len), version: Version(version) }
    }

    fn lost(content: &Content) -> Vec<(u64, u64)> {
        content.lost.iter().map(|lost| (lost.extent.start.0, lost.extent.len.0)).collect()
    }

    #[test]
    fn what_is_written_is_lost_no_more() {
        let mut content = content(&[(10, 10), (40, 10)]);
        content.find_again(Extent::new(0, 10));
        content.find_again(Extent::new(20, 20));
        assert_eq!(lost(&content), [(10, 10), (40, 10)]);
        content.find_again(Extent::new(12, 3));
        assert_eq!(lost(&content), [(10, 2), (15, 5), (40, 10)]);
        content.find_again(Extent::new(18, 25));
        assert_eq!(lost(&content), [(10, 2), (15, 3), (43, 7)]);
        content.find_again(Extent::new(0, 100));
        assert_eq!(lost(&content), []);
    }

    #[test]
    fn a_range_that_is_lost_again_has_the_newer_version() {
        let mut content = content(&[(10, 10)]);
        content.lose(&[range(15, 10, 9)]);
        let versions = content.lost.iter().map(|lost| (lost.extent.start.0, lost.version.0));
        assert_eq!(versions.collect::<Vec<_>>(), [(10, 7), (15, 9)]);
    }

    #[test]
    fn void_and_lost_ranges_share_their_room() {
        let mut content = content(&[]);
        let most = content.room_for_losses(StoreId::default());
        assert_eq!(most, LOST_MAX / 2);
        let range = Range { extent: Extent::new(8, 8), version: Version(7) };
        content.lost = vec![range; LOST_MAX];
        assert!(content.has_room());
        content.voids = vec![(StoreId::default(), range)];
        assert!(!content.has_room());
        content.lost.clear();
        content.voids = vec![(StoreId::default(), range); VOIDS_MAX];
        assert!(content.has_room() && content.room_for_losses([1; 16]) == 150);
    }
}
