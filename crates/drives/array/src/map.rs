//! Where the addresses of a volume on an array lie.

use manylogs_block::{Chunk, Extent, Geometry, Lba, Sectors, Split};
use manylogs_plant::{self as plant, Bug};

/// The address space of a volume on an array. Homes have the array's own addresses. A log region
/// differs: it is whole stripes, and holds one log for each column, one behind the other. So a log
/// is one run of addresses here and one run of sectors on its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMap {
    geometry: Geometry,
    /// Sorted by address.
    regions: Vec<Extent>,
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
        Self { geometry, regions }
    }

    /// The array.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The logs of a region, one for each column.
    pub fn logs(geometry: &Geometry, region: Extent) -> impl Iterator<Item = Extent> + use<> {
        let len = Sectors(region.len.0 / u64::from(geometry.columns));
        let start = move |column: u16| region.start + Sectors(len.0 * u64::from(column));
        (0..geometry.columns).map(move |column| Extent { start: start(column), len })
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Geometry =
        Geometry { chunk: Sectors(16), columns: 4, copies: 1, first: Sectors(24) };

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
