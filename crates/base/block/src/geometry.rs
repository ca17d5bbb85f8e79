//! Where an address of an array lies: on which column, and at which place there.

use crate::{Extent, Lba, Payload, Sectors};

/// A page of 4 KiB: the part of a row of parity on one drive.
pub const PAGE: Sectors = Sectors(8);
/// Chunks are whole pages, hence at least that long.
const CHUNK_LEAST: Sectors = PAGE;
/// No array has longer chunks, or more columns.
const CHUNK_MOST: Sectors = Sectors(1 << 21);
const COLUMNS_MOST: u16 = 256;

/// How a device deals its addresses out to columns, chunk by chunk. A column is a drive, or several
/// drives with the same content. Places on a column are counted from the start of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Sectors in a row on one column, before the next column follows.
    pub chunk: Sectors,
    /// Number of columns, at least two.
    pub columns: u16,
    /// Drives with the same content in each column; 1 if there is no copy.
    pub copies: u16,
    /// Drives with parity in each stripe, beside the columns: 0, or 1 or 2 as in RAID-5 and 6. If
    /// there are any, they change from stripe to stripe, so that a column is not always the same
    /// drive.
    pub parity: u16,
    /// Sectors of the array in front of the device's address 0, for a partition that begins there.
    pub first: Sectors,
}

/// A part of an extent that is contiguous on one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The column.
    pub column: u16,
    /// First sector on the column.
    pub at: Lba,
    /// The addresses of the device.
    pub extent: Extent,
}

/// A part of a request that is contiguous on one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The column.
    pub column: u16,
    /// The sectors of the column.
    pub extent: Extent,
}

/// A request dealt out to columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// What each column reads or writes.
    pub shares: Vec<Share>,
    /// The parts of the request, from its first sector to its last; each lies in a share.
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    share: usize,
    /// Where the part begins in its share.
    skip: Sectors,
    len: Sectors,
}

impl Geometry {
    /// Checks that the values make sense.
    ///
    /// # Errors
    /// A description of the first value that makes no sense.
    pub fn check(&self) -> Result<(), &'static str> {
        let chunk = self.chunk;
        if !(CHUNK_LEAST..=CHUNK_MOST).contains(&chunk) || !chunk.0.is_multiple_of(CHUNK_LEAST.0) {
            return Err("a chunk that is not of 4 KiB to 1 GiB, in steps of 4 KiB");
        }
        if !(2..=COLUMNS_MOST).contains(&self.columns) || !(1..=16).contains(&self.copies) {
            return Err("an array that is not of 2 to 256 columns with 1 to 16 copies");
        }
        if self.parity > 2 || (self.parity > 0 && self.copies > 1) {
            return Err("an array with more than two parities, or with parity of copies");
        }
        if self.first >= self.stripe() || !self.first.0.is_multiple_of(CHUNK_LEAST.0) {
            return Err("a first stripe that does not begin within a stripe, at 4 KiB");
        }
        Ok(())
    }

    /// Length of a stripe: one chunk of each column.
    #[must_use]
    pub const fn stripe(&self) -> Sectors {
        Sectors(self.chunk.0 * self.columns as u64)
    }

    /// Length of a row of an array with parity: the pages of 4 KiB at one place of every column.
    /// Parity is computed row by row. `None` if the array has no parity.
    #[must_use]
    pub fn row(&self) -> Option<Sectors> {
        (self.parity > 0).then(|| Sectors(PAGE.0 * u64::from(self.columns)))
    }

    /// The first address at or behind `at` at which a stripe begins.
    #[must_use]
    pub const fn stripe_from(&self, at: Lba) -> Lba {
        Lba((at.0 + self.first.0).next_multiple_of(self.stripe().0) - self.first.0)
    }

    /// Whether an extent is whole stripes.
    #[must_use]
    pub const fn is_whole(&self, extent: Extent) -> bool {
        self.stripe_from(extent.start).0 == extent.start.0
            && !extent.is_empty()
            && extent.len.0.is_multiple_of(self.stripe().0)
    }

    /// The largest run of whole stripes within an extent; empty if there is none.
    #[must_use]
    pub fn whole_within(&self, extent: Extent) -> Extent {
        let start = self.stripe_from(extent.start);
        let end = self.stripe_from(extent.end());
        let beyond = if end > extent.end() { self.stripe() } else { Sectors(0) };
        Extent::between(start, Lba(end.0.saturating_sub(beyond.0)).max(start))
    }

    /// Column and place of an address.
    #[must_use]
    pub fn locate(&self, at: Lba) -> (u16, Lba) {
        let at = at.0 + self.first.0;
        let (chunk, within) = (at / self.chunk.0, at % self.chunk.0);
        let columns = u64::from(self.columns);
        (crate::narrow(chunk % columns), Lba(chunk / columns * self.chunk.0 + within))
    }

    /// The address of a place on a column; `None` if it lies in front of the device.
    #[must_use]
    pub fn address(&self, column: u16, at: Lba) -> Option<Lba> {
        let (row, within) = (at.0 / self.chunk.0, at.0 % self.chunk.0);
        let chunk = row * u64::from(self.columns) + u64::from(column);
        (chunk * self.chunk.0 + within).checked_sub(self.first.0).map(Lba)
    }

    /// The chunks of an extent of the device, by address.
    pub fn chunks(&self, extent: Extent) -> impl Iterator<Item = Chunk> + use<> {
        let (geometry, mut left) = (*self, extent);
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let (column, at) = geometry.locate(left.start);
            let len = left.len.min(Sectors(geometry.chunk.0 - at.0 % geometry.chunk.0));
            let extent = Extent { len, ..left };
            left = Extent { start: left.start + len, len: left.len - len };
            Some(Chunk { column, at, extent })
        })
    }

    /// The addresses of the device that lie in an extent of a column, chunk by chunk. Sectors in
    /// front of the device are left out.
    pub fn addresses(&self, column: u16, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        let (geometry, mut left) = (*self, extent);
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let within = left.start.0 % geometry.chunk.0;
            let len = left.len.min(Sectors(geometry.chunk.0 - within));
            let start = geometry.address(column, left.start);
            left = Extent { start: left.start + len, len: left.len - len };
            Some(start.map(|start| Extent { start, len }))
        })
        .flatten()
    }
}

impl Split {
    /// Deals out `chunks`, which follow one another in a request. Chunks that also follow one
    /// another on their column form one share.
    #[must_use]
    pub fn of(chunks: impl Iterator<Item = Chunk>) -> Self {
        let mut split = Self::default();
        for Chunk { column, at, extent } in chunks {
            let last = split.shares.iter().rposition(|share| share.column == column);
            let goes_on = last.filter(|index| split.shares[*index].extent.end() == at);
            let share = goes_on.unwrap_or_else(|| {
                let extent = Extent { start: at, len: Sectors(0) };
                split.shares.push(Share { column, extent });
                split.shares.len() - 1
            });
            let (skip, len) = (split.shares[share].extent.len, extent.len);
            split.shares[share].extent.len += len;
            split.parts.push(Part { share, skip, len });
        }
        split
    }

    /// A request made of `pieces`, one behind the other; each piece is a share.
    #[must_use]
    pub fn in_order(pieces: &[Extent]) -> Self {
        let mut split = Self::default();
        for (share, extent) in pieces.iter().enumerate() {
            split.shares.push(Share { column: 0, extent: *extent });
            split.parts.push(Part { share, skip: Sectors(0), len: extent.len });
        }
        split
    }

    /// The content of a share, taken from the request's `payload`.
    #[must_use]
    pub fn payload_of(&self, share: usize, payload: &Payload) -> Payload {
        if self.parts.len() == 1 {
            return payload.clone();
        }
        let (mut out, mut at) = (Payload::default(), Sectors(0));
        for part in &self.parts {
            if part.share == share {
                out.append(payload.slice(at, part.len));
            }
            at += part.len;
        }
        out
    }

    /// The content that the request read, put together from the content of its shares.
    #[must_use]
    pub fn assemble(&self, mut read: Vec<Payload>) -> Payload {
        if self.parts.len() == 1 {
            return read.pop().unwrap_or_default();
        }
        let mut out = Payload::default();
        for part in &self.parts {
            out.append(read[part.share].slice(part.skip, part.len));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Geometry =
        Geometry { chunk: Sectors(16), columns: 4, copies: 1, parity: 0, first: Sectors(0) };

    #[test]
    fn every_address_has_one_place_and_is_found_by_it() {
        for (columns, first) in [(2, 0), (3, 8), (4, 24), (5, 72)] {
            let geometry = Geometry { columns, first: Sectors(first), ..FOUR };
            geometry.check().unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for at in (0..1000).map(Lba) {
                let (column, place) = geometry.locate(at);
                assert!(column < columns && seen.insert((column, place)), "{at} {geometry:?}");
                assert_eq!(geometry.address(column, place), Some(at));
            }
        }
        assert_eq!(FOUR.locate(Lba(16 * 5 + 3)), (1, Lba(19)));
        let partition = Geometry { first: Sectors(24), ..FOUR };
        assert_eq!(partition.address(0, Lba(0)), None, "in front of the partition");
        assert_eq!(partition.stripe_from(Lba(0)), Lba(40));
        assert_eq!(partition.stripe_from(Lba(40)), Lba(40));
    }

    #[test]
    fn a_request_is_one_share_of_each_column_and_comes_together_again() {
        let extent = Extent::new(40, 200);
        let split = Split::of(FOUR.chunks(extent));
        assert_eq!(split.shares.len(), 4, "what follows on a column is one share");
        let payload = Payload::tags(1000, extent.len);
        let parts: Vec<Payload> = (0..4).map(|share| split.payload_of(share, &payload)).collect();
        for (share, part) in split.shares.iter().zip(&parts) {
            assert_eq!(share.extent.len, part.len());
            let first = FOUR.addresses(share.column, share.extent).next().unwrap();
            let at = Sectors(first.start.0 - extent.start.0);
            assert_eq!(part.slice(Sectors(0), first.len), payload.slice(at, first.len));
        }
        assert_eq!(split.assemble(parts), payload);
    }

    #[test]
    fn the_addresses_of_a_column_are_those_of_its_chunks() {
        let of_column: Vec<Extent> = FOUR.addresses(2, Extent::new(8, 30)).collect();
        let expected = [Extent::new(40, 8), Extent::new(96, 16), Extent::new(160, 6)];
        assert_eq!(of_column, expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            Geometry { chunk: Sectors(0), ..FOUR },
            Geometry { chunk: Sectors(12), ..FOUR },
            Geometry { chunk: Sectors(1 << 40), ..FOUR },
            Geometry { columns: 1, ..FOUR },
            Geometry { columns: 300, ..FOUR },
            Geometry { copies: 0, ..FOUR },
            Geometry { parity: 3, ..FOUR },
            Geometry { parity: 1, copies: 2, ..FOUR },
            Geometry { first: Sectors(64), ..FOUR },
            Geometry { first: Sectors(3), ..FOUR },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
