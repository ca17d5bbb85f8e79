//! Where the addresses of a volume on an array lie.

use manylogs_block::{Chunk, Extent, Geometry, Lba, PAGE, Sectors, Split};
use manylogs_plant::{self as plant, Bug};

/// The address space of a volume on an array. Homes have the array's own addresses. A log region
/// differs: it is whole stripes, and holds one log for each column, one behind the other. So a log
/// is one run of addresses here and one run of sectors on its column.
///
/// On an array with parity a region is one log, numbered row by row: a run of addresses that is a
/// multiple of [`Geometry::row`] fills rows, and shares none with what lies beside it. Structures
/// that are written in place have rows of their own: see [`ColumnMap::with_structures`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMap {
    geometry: Geometry,
    /// Sorted by address.
    regions: Vec<Extent>,
    /// Stripes in which one column has structures, and the others are padding.
    padded: [Extent; 2],
}

impl ColumnMap {
    /// The map of an array with logs in `regions`, which are in order of address.
    ///
    /// # Panics
    /// If a region is not whole stripes. Regions that come from a disk are checked before.
    #[must_use]
    pub fn new(geometry: Geometry, regions: Vec<Extent>) -> Self {
        let whole = |region: &Extent| geometry.is_whole(*region);
        assert!(regions.iter().all(whole), "log regions are whole stripes");
        Self { geometry, regions, padded: [Extent::default(); 2] }
    }

    /// This map of an array with parity, with structures in `padded`: a write there fills its rows,
    /// because no other column has anything in them.
    #[must_use]
    pub fn with_structures(self, padded: [Extent; 2]) -> Self {
        Self { padded, ..self }
    }

    /// The places on all other columns in the rows of a write to structures. None if the write goes
    /// elsewhere, or is not whole pages of one column.
    #[must_use]
    pub fn padding(&self, write: Extent) -> Vec<Chunk> {
        let in_padded = self.padded.iter().any(|stripe| stripe.contains(write));
        let mut chunks = self.geometry.chunks(write);
        let (Some(own), None, true) = (chunks.next(), chunks.next(), in_padded) else {
            return Vec::new();
        };
        let whole = |at: u64| at.is_multiple_of(PAGE.0);
        let planted = plant::is(Bug::RootsShareRow);
        if !whole(own.at.0) || !whole(own.extent.len.0) || planted {
            return Vec::new();
        }
        let others = (0..self.geometry.columns).filter(|column| *column != own.column);
        let beside = |column| {
            let start = self.geometry.address(column, own.at)?;
            Some(Chunk { column, at: own.at, extent: Extent { start, ..own.extent } })
        };
        others.filter_map(beside).collect()
    }

    /// The array.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The logs of a region, one for each column; one alone on an array with parity.
    pub fn logs(geometry: &Geometry, region: Extent) -> impl Iterator<Item = Extent> + use<> {
        let logs = Self::logs_in_region(geometry);
        let len = Sectors(region.len.0 / u64::from(logs));
        let start = move |log: u16| region.start + Sectors(len.0 * u64::from(log));
        (0..logs).map(move |log| Extent { start: start(log), len })
    }

    /// Number of logs in each region.
    #[must_use]
    pub const fn logs_in_region(geometry: &Geometry) -> u16 {
        if geometry.parity > 0 { 1 } else { geometry.columns }
    }

    /// Splits an extent of the volume's address space by column.
    #[must_use]
    pub fn split(&self, extent: Extent) -> Split {
        Split::of(self.chunks(extent))
    }

    /// The column of an address of the volume's space, and its place there.
    #[must_use]
    pub fn locate(&self, at: Lba) -> (u16, Lba) {
        match self.region_at(at) {
            Some(region) => {
                let part = self.in_log(region, Extent { start: at, len: Sectors(1) });
                (part.column, part.at)
            }
            None => self.geometry.locate(at),
        }
    }

    /// Whether the extent touches no log region, so that the array's own addresses apply to all of
    /// it.
    #[must_use]
    pub fn is_plain(&self, extent: Extent) -> bool {
        let next = self.regions.partition_point(|region| region.end() <= extent.start);
        self.regions.get(next).is_none_or(|region| !region.overlaps(extent))
    }

    fn region_at(&self, at: Lba) -> Option<Extent> {
        let next = self.regions.partition_point(|region| region.end() <= at);
        self.regions.get(next).copied().filter(|region| region.start <= at)
    }

    fn chunks(&self, extent: Extent) -> impl Iterator<Item = Chunk> {
        let mut left = extent;
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let next = self.regions.partition_point(|region| region.end() <= left.start);
            let chunk = match self.regions.get(next) {
                Some(region) if region.start <= left.start => self.in_log(*region, left),
                Some(region) => self
                    .geometry
                    .chunks(Extent::between(left.start, left.end().min(region.start)))
                    .next()?,
                None => self.geometry.chunks(left).next()?,
            };
            left = Extent::between(chunk.extent.end(), left.end());
            Some(chunk)
        })
    }

    /// The part of `extent` in one log. `extent` must begin in `region`.
    fn in_log(&self, region: Extent, extent: Extent) -> Chunk {
        if let Some(row) = self.geometry.row() {
            return self.in_row(row, region, extent);
        }
        let columns = u64::from(self.geometry.columns);
        let log = region.len.0 / columns;
        let offset = extent.start.0 - region.start.0;
        let (column, within) = (offset / log, offset % log);
        let mut row = (region.start.0 + self.geometry.first.0) / columns;
        if plant::is(Bug::LogBehindItsPlace) {
            row += self.geometry.chunk.0;
        }
        let len = extent.len.min(Sectors(log - within));
        Chunk {
            column: manylogs_block::narrow(column),
            at: Lba(row + within),
            extent: Extent { len, ..extent },
        }
    }

    /// The part of `extent` in one page of a row. `extent` must begin in `region`.
    fn in_row(&self, row: Sectors, region: Extent, extent: Extent) -> Chunk {
        let offset = extent.start.0 - region.start.0;
        let (page, from) = (offset % row.0 / PAGE.0, offset % PAGE.0);
        let first = (region.start.0 + self.geometry.first.0) / u64::from(self.geometry.columns);
        let at = Lba(first + offset / row.0 * PAGE.0 + from);
        let len = extent.len.min(Sectors(PAGE.0 - from));
        Chunk { column: manylogs_block::narrow(page), at, extent: Extent { len, ..extent } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Geometry =
        Geometry { chunk: Sectors(16), columns: 4, copies: 1, parity: 0, first: Sectors(24) };

    fn map() -> ColumnMap {
        ColumnMap::new(FOUR, vec![Extent::new(40, 128), Extent::new(424, 64)])
    }

    #[test]
    fn a_log_is_one_run_on_its_column_and_homes_stay_where_they_are() {
        let map = map();
        let logs: Vec<Extent> = ColumnMap::logs(&FOUR, Extent::new(40, 128)).collect();
        for (log, column) in logs.iter().zip(0..) {
            let split = map.split(*log);
            assert_eq!(split.shares.len(), 1, "{split:?}");
            assert_eq!(split.shares[0].column, column);
            assert_eq!(map.locate(log.start), (column, split.shares[0].extent.start));
            let on_array: Vec<Extent> = FOUR.addresses(column, split.shares[0].extent).collect();
            assert!(
                on_array.iter().all(|part| Extent::new(40, 128).contains(*part)),
                "{on_array:?}"
            );
        }
        for at in (0..40).chain(168..424).chain(488..600) {
            assert_eq!(map.locate(Lba(at)), FOUR.locate(Lba(at)), "{at}");
            assert!(map.is_plain(Extent::new(at, 1)));
        }
        assert!(!map.is_plain(Extent::new(0, 600)));
    }

    #[test]
    fn a_log_on_an_array_with_parity_fills_row_after_row() {
        let rows = Geometry { chunk: Sectors(32), columns: 3, parity: 1, ..FOUR };
        let rows = Geometry { first: Sectors(0), ..rows };
        let region = Extent::new(96, 192);
        assert_eq!(ColumnMap::logs(&rows, region).collect::<Vec<_>>(), [region]);
        let map = ColumnMap::new(rows, vec![region]);
        // Two rows are 16 sectors at one place of each column.
        let split = map.split(Extent::new(96 + 24, 48));
        let place = Extent::new(32 + 8, 16);
        let shares = split.shares.iter().map(|share| (share.column, share.extent));
        assert_eq!(shares.collect::<Vec<_>>(), [(0, place), (1, place), (2, place)]);
        let mut seen = std::collections::BTreeSet::new();
        for at in 0..400 {
            assert!(seen.insert(map.locate(Lba(at))), "{at}");
        }
    }

    #[test]
    fn structures_have_their_rows_alone() {
        let rows = Geometry { chunk: Sectors(32), columns: 3, parity: 1, ..FOUR };
        let rows = Geometry { first: Sectors(0), ..rows };
        let map = ColumnMap::new(rows, Vec::new());
        let map = map.with_structures([Extent::new(0, 96), Extent::new(960, 96)]);
        let beside =
            |write| map.padding(write).into_iter().map(|chunk| chunk.extent).collect::<Vec<_>>();
        assert_eq!(beside(Extent::new(8, 24)), [Extent::new(40, 24), Extent::new(72, 24)]);
        assert_eq!(beside(Extent::new(1048, 8)), [Extent::new(984, 8), Extent::new(1016, 8)]);
        assert_eq!(beside(Extent::new(96, 8)), [], "homes");
        assert_eq!(beside(Extent::new(8, 4)), [], "a part of a page");
    }

    #[test]
    fn no_place_has_two_addresses() {
        let map = map();
        let mut seen = std::collections::BTreeSet::new();
        let split = map.split(Extent::new(0, 600));
        for share in split.shares {
            for at in share.extent.range() {
                assert!(seen.insert((share.column, at)), "{share:?} {at}");
            }
        }
        assert_eq!(seen.len(), 600);
    }
}
