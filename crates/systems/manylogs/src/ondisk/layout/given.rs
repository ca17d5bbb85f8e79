//! Layouts whose places are all given by another owner, for example a file system that keeps the
//! logs in a file of its own (MLFS).
//!
//! Every block's home is at its own address. So the exported device has the addresses of the device
//! below, and a drained volume is the plain device. Logs and anchors are holes in it: the owner
//! keeps its own data out of them.

use manylogs_block::{Extent, Geometry, Lba, Sectors};
use manylogs_logstore::ondisk::root::ROOT_SECTORS;

use super::regions::{check_each, runs_of, superblock_for};
use super::{ALIGN, Layout, LayoutError, Parts, SNAPSHOT_LEAST};

/// The two places of a volume's own structures: a copy of the superblock, a root and a slot for a
/// snapshot, in this order from the start of each.
///
/// A volume with such a layout cannot find itself: its owner stores the anchors, and gives them
/// whenever the volume is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchors {
    /// Sectors of the device that hold the first copies.
    pub first: Extent,
    /// Sectors of the device that hold the second copies. They may lie before the first.
    pub last: Extent,
}

impl Anchors {
    /// Least length of an anchor if the logs form a few runs: superblock, root, and the shortest
    /// snapshot.
    pub const LEAST: Sectors =
        Sectors(super::SUPERBLOCK_LEAST.0 + ROOT_SECTORS.0 + SNAPSHOT_LEAST.0);

    /// The first and the last anchor.
    #[must_use]
    pub const fn both(self) -> [Extent; 2] {
        [self.first, self.last]
    }
}

impl Layout {
    /// A layout on a device of `device` sectors with physical sectors of length `physical`. The
    /// logs are at `regions`, in any order, the structures at `anchors`, and every block's home is
    /// at its own address. The capacity is that of the device in whole 4096 bytes. With `columns`
    /// each region holds a log for each column of an array, and must be whole stripes.
    ///
    /// Longer anchors have room for longer snapshots, from which large volumes open faster.
    ///
    /// # Errors
    /// [`LayoutError`] names the place that does not fit, and why.
    pub fn given(
        regions: &[Extent],
        anchors: Anchors,
        device: Sectors,
        physical: Sectors,
        columns: Option<Geometry>,
    ) -> Result<Self, LayoutError> {
        let mut regions = regions.to_vec();
        regions.sort_unstable();
        check_each(&regions, physical)?;
        if let Some(columns) = columns
            && let Some(region) = regions.iter().find(|region| !columns.is_whole(**region))
        {
            return Err(LayoutError::PartOfStripe { region: *region, stripe: columns.stripe() });
        }
        let mut places = [regions.as_slice(), &anchors.both()].concat();
        places.sort_unstable();
        let aligned = Sectors(physical.0.max(ALIGN));
        check_each(&anchors_by_address(anchors), aligned)?;
        check_each(&places, physical)?;
        let space = Extent { start: Lba(0), len: Sectors(device.0 / ALIGN * ALIGN) };
        if let Some(region) = places.iter().find(|place| place.end() > space.end()) {
            return Err(LayoutError::Outside { region: *region, space });
        }
        let runs = runs_of(&regions);
        let superblock = superblock_for(runs.len() + 2 + usize::from(columns.is_some()))?;
        let need = superblock + ROOT_SECTORS + SNAPSHOT_LEAST;
        if let Some(anchor) = anchors.both().into_iter().find(|anchor| anchor.len < need) {
            return Err(LayoutError::AnchorTooShort { anchor, need });
        }
        let shorter = anchors.first.len.min(anchors.last.len);
        let snapshot = Sectors((shorter - superblock - ROOT_SECTORS).0 / ALIGN * ALIGN);
        let anchors = Some(anchors);
        let frame = Parts { device, superblock, snapshot, space, ..Parts::default() };
        let parts = Parts { runs, anchors, columns, ..frame };
        debug_assert_eq!(parts.check(physical), Ok(()));
        Ok(Self::from_parts(parts))
    }

    /// The places of the structures, if the owner gave this layout's places.
    #[must_use]
    pub const fn anchors(&self) -> Option<Anchors> {
        self.parts.anchors
    }

    /// Whether part of `extent` belongs to the volume itself, in a layout with given places. Other
    /// layouts export no such address.
    #[must_use]
    pub fn is_hole(&self, extent: Extent) -> bool {
        self.holes_in(extent).next().is_some()
    }

    /// Whether a device address lies in a log.
    #[must_use]
    pub fn is_log(&self, at: Lba) -> bool {
        let index = self.logs.partition_point(|log| log.start <= at);
        index > 0 && at < self.logs[index - 1].end()
    }

    /// The logs and anchors that overlap `extent`, in a layout with given places: see
    /// [`Layout::is_hole`].
    pub(crate) fn holes_in(&self, extent: Extent) -> impl Iterator<Item = Extent> {
        let index = self.logs.partition_point(|log| log.end() <= extent.start);
        let logs = self.logs[index..].iter().take_while(move |log| log.overlaps(extent)).copied();
        let holes = move |anchors: Anchors| logs.clone().chain(anchors.both());
        let holes = self.parts.anchors.into_iter().flat_map(holes);
        holes.filter(move |hole| hole.overlaps(extent))
    }
}

impl Parts {
    /// Checks that the structures fit the anchors, and that anchors and logs do not overlap.
    pub(super) fn check_anchors(
        &self,
        anchors: Anchors,
        physical: Sectors,
    ) -> Result<(), &'static str> {
        let need = self.superblock.0 + ROOT_SECTORS.0 + self.snapshot.0;
        let whole = self.space.start == Lba(0)
            && self.space.len.0.is_multiple_of(ALIGN)
            && self.space.len <= self.device;
        let fits = |anchor: Extent| {
            let end = anchor.start.0.checked_add(anchor.len.0);
            anchor.len.0 >= need
                && anchor.start.0.is_multiple_of(physical.0.max(ALIGN))
                && end.is_some_and(|end| end <= self.space.len.0)
        };
        if !whole || !anchors.both().into_iter().all(fits) {
            return Err("anchors that do not fit the device");
        }
        let mut logs = self.runs.iter().flat_map(|run| run.regions());
        let taken = |log: Extent| anchors.both().iter().any(|anchor| anchor.overlaps(log));
        if anchors.first.overlaps(anchors.last) || logs.any(taken) {
            return Err("anchors that overlap");
        }
        Ok(())
    }
}

fn anchors_by_address(anchors: Anchors) -> [Extent; 2] {
    let mut both = anchors.both();
    both.sort_unstable();
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Sectors = Sectors(20_003);
    const ONE: Sectors = Sectors(1);
    const ANCHORS: Anchors = Anchors { first: Extent::new(9000, 200), last: Extent::new(1200, 96) };

    fn of(regions: &[(u64, u64)], anchors: Anchors) -> Result<Layout, LayoutError> {
        let regions: Vec<Extent> = regions.iter().map(|(at, len)| Extent::new(*at, *len)).collect();
        Layout::given(&regions, anchors, DEVICE, ONE, None)
    }

    #[test]
    fn every_block_is_at_home_at_its_own_address() {
        let layout = of(&[(3000, 400), (100, 64)], ANCHORS).unwrap();
        assert_eq!(layout.capacity(), Sectors(20_000));
        let whole = Extent::new(0, 20_000);
        assert_eq!(layout.home(whole).collect::<Vec<_>>(), [whole]);
        assert_eq!(layout.regions(), [Extent::new(100, 64), Extent::new(3000, 400)]);
        assert_eq!(layout.superblocks().map(|place| place.start.0), [9000, 1200]);
        assert_eq!(layout.roots().map(|place| place.start.0), [9008, 1208]);
        assert_eq!(layout.snapshots(), [Extent::new(9032, 64), Extent::new(1232, 64)]);
    }

    #[test]
    fn holes_are_what_the_volume_keeps_for_itself() {
        let layout = of(&[(3000, 400), (100, 64)], ANCHORS).unwrap();
        for (at, len, hole) in [
            (0, 100, false),
            (0, 101, true),
            (163, 1, true),
            (164, 8, false),
            (1295, 8, true),
            (2999, 1, false),
            (3399, 1, true),
            (3400, 5600, false),
            (3400, 5601, true),
        ] {
            assert_eq!(layout.is_hole(Extent::new(at, len)), hole, "{at}, {len}");
        }
    }

    #[test]
    fn on_an_array_each_region_holds_a_log_for_each_column() {
        let columns =
            Geometry { chunk: Sectors(8), columns: 4, copies: 1, parity: 0, first: Sectors(0) };
        let on = |regions: &[Extent]| Layout::given(regions, ANCHORS, DEVICE, ONE, Some(columns));
        let layout = on(&[Extent::new(64, 64), Extent::new(3008, 96)]).unwrap();
        let lens: Vec<u64> = layout.regions().iter().map(|log| log.len.0).collect();
        assert_eq!(lens, [16, 16, 16, 16, 24, 24, 24, 24]);
        assert!(layout.is_hole(Extent::new(127, 1)) && !layout.is_hole(Extent::new(128, 8)));
        let part = Extent::new(100, 64);
        let stripe = columns.stripe();
        assert_eq!(on(&[part]), Err(LayoutError::PartOfStripe { region: part, stripe }));
    }

    #[test]
    fn places_that_do_not_fit_are_refused_with_their_reason() {
        assert_eq!(of(&[], ANCHORS), Err(LayoutError::NoLogs));
        let overlaps = of(&[(9100, 400)], ANCHORS);
        assert!(matches!(overlaps, Err(LayoutError::Overlap { .. })), "{overlaps:?}");
        let same = Anchors { first: ANCHORS.last, ..ANCHORS };
        assert!(matches!(of(&[(100, 64)], same), Err(LayoutError::Overlap { .. })));
        let anchor = Extent::new(9000, 88);
        let short = of(&[(100, 64)], Anchors { first: anchor, ..ANCHORS });
        assert_eq!(short, Err(LayoutError::AnchorTooShort { anchor, need: Anchors::LEAST }));
        let unaligned = Anchors { first: Extent::new(9001, 200), ..ANCHORS };
        assert!(matches!(of(&[(100, 64)], unaligned), Err(LayoutError::Unaligned { .. })));
        let outside = Anchors { first: Extent::new(19_920, 96), ..ANCHORS };
        assert!(matches!(of(&[(100, 64)], outside), Err(LayoutError::Outside { .. })));
    }
}
