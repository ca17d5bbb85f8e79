//! Layouts with logs at given places, as a file system or the zones of a drive require.

use manylogs_block::{Extent, Lba, Sectors, to_usize};
use manylogs_logstore::UnitTable;
use manylogs_logstore::ondisk::root::ROOT_SECTORS;
use thiserror::Error;

use super::{
    ALIGN, Layout, LogRun, Parts, SNAPSHOT_LEAST, SNAPSHOT_SHARE, SUPERBLOCK_LEAST, SUPERBLOCK_MOST,
};
use crate::ondisk::superblock::runs_that_fit;

/// Why log regions cannot form a layout.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// There are no regions.
    #[error("a layout needs at least one log region")]
    NoLogs,
    /// A region is empty, or not made of whole physical sectors.
    #[error(
        "the log region {region} is not made of whole physical sectors of {} bytes",
        physical.bytes()
    )]
    Unaligned {
        /// The region.
        region: Extent,
        /// Physical sector size of the device.
        physical: Sectors,
    },
    /// On an array a region is not whole stripes.
    #[error("the log region {region} is not whole stripes of {} bytes of the array",
            stripe.bytes())]
    PartOfStripe {
        /// The region.
        region: Extent,
        /// Length of a stripe.
        stripe: Sectors,
    },
    /// A region is longer than a log can be.
    #[error("the log region {region} is too long: split it")]
    TooLong {
        /// The region.
        region: Extent,
    },
    /// Two regions share sectors.
    #[error("the log regions {first} and {second} overlap")]
    Overlap {
        /// The region that begins first.
        first: Extent,
        /// The second region.
        second: Extent,
    },
    /// A region lies where superblocks, roots and snapshots must be, or beyond the device.
    #[error(
        "the log region {region} is not within {space}, which the volume's structures leave free"
    )]
    Outside {
        /// The region.
        region: Extent,
        /// Range in which logs may lie.
        space: Extent,
    },
    /// A place for the volume's structures is too short.
    #[error("the anchor {anchor} is too short for superblock, root and snapshot: {} sectors are \
             needed", need.0)]
    AnchorTooShort {
        /// The place.
        anchor: Extent,
        /// Sectors that are needed.
        need: Sectors,
    },
    /// The superblock cannot list this many runs of regions.
    #[error("the log regions form {runs} runs, a superblock lists {most}: place them regularly")]
    TooManyRuns {
        /// Runs of regions with one length and one distance.
        runs: usize,
        /// The most that a superblock lists.
        most: u64,
    },
    /// The device has no room for the volume's own structures.
    #[error("a device of {} sectors has no room for a volume with these logs", device.0)]
    TooSmall {
        /// Size of the device.
        device: Sectors,
    },
    /// The logs leave nothing for data.
    #[error("the log regions leave no room for data")]
    NoData,
}

impl Layout {
    /// A layout with the logs at `regions`, in any order, on a device of `device` sectors with
    /// physical sectors of length `physical`. The space that logs and structures leave is for data,
    /// which clients address without gaps.
    ///
    /// # Errors
    /// [`LayoutError`] names the region that does not fit, and why.
    pub fn with_logs(
        regions: &[Extent],
        device: Sectors,
        physical: Sectors,
    ) -> Result<Self, LayoutError> {
        let mut regions = regions.to_vec();
        regions.sort_unstable();
        check_each(&regions, physical)?;
        let runs = runs_of(&regions);
        let logs: u64 = regions.iter().map(|region| region.len.0).sum();
        let (superblock, space, snapshot) = frame(runs.len(), logs, device)?;
        let outside = |r: &&Extent| r.start < space.start || r.end() > space.end();
        if let Some(region) = regions.iter().find(outside) {
            return Err(LayoutError::Outside { region: *region, space });
        }
        if logs == space.len.0 {
            return Err(LayoutError::NoData);
        }
        let parts = Parts {
            device,
            superblock,
            snapshot,
            images: Sectors(0),
            space,
            runs,
            anchors: None,
            columns: None,
            said: false,
        };
        debug_assert_eq!(parts.check(physical), Ok(()));
        Ok(Self::from_parts(parts))
    }
}

pub(super) fn check_each(regions: &[Extent], physical: Sectors) -> Result<(), LayoutError> {
    let (mut last, Some(_)) = (None::<Extent>, regions.first()) else {
        return Err(LayoutError::NoLogs);
    };
    for region in regions.iter().copied() {
        let whole = |at: u64| at.is_multiple_of(physical.0);
        if region.is_empty() || !whole(region.start.0) || !whole(region.len.0) {
            return Err(LayoutError::Unaligned { region, physical });
        }
        if !UnitTable::fits(region.len) || region.start.0.checked_add(region.len.0).is_none() {
            return Err(LayoutError::TooLong { region });
        }
        if let Some(first) = last.filter(|last| last.end() > region.start) {
            return Err(LayoutError::Overlap { first, second: region });
        }
        last = Some(region);
    }
    Ok(())
}

/// Groups the regions into runs with one length and one distance each.
pub(super) fn runs_of(regions: &[Extent]) -> Vec<LogRun> {
    let mut runs: Vec<LogRun> = Vec::new();
    for region in regions {
        if let Some(run) = runs.last_mut()
            && run.len == region.len
        {
            let last = run.first + Sectors(u64::from(run.count - 1) * run.stride.0);
            let stride = Sectors(region.start.0 - last.0);
            if run.count == 1 || run.stride == stride {
                (run.stride, run.count) = (stride, run.count + 1);
                continue;
            }
        }
        runs.push(LogRun { first: region.start, stride: region.len, len: region.len, count: 1 });
    }
    runs
}

/// The length of a superblock that lists `runs` runs.
pub(super) fn superblock_for(runs: usize) -> Result<Sectors, LayoutError> {
    let fitting = (SUPERBLOCK_LEAST.0..=SUPERBLOCK_MOST.0)
        .step_by(to_usize(ALIGN))
        .find(|len| runs_that_fit(Sectors(*len)) >= runs as u64);
    let most = runs_that_fit(SUPERBLOCK_MOST);
    fitting.map(Sectors).ok_or(LayoutError::TooManyRuns { runs, most })
}

/// The superblock's length, the space for logs and data, and the length of a snapshot slot.
fn frame(
    runs: usize,
    logs: u64,
    device: Sectors,
) -> Result<(Sectors, Extent, Sectors), LayoutError> {
    let superblock = superblock_for(runs)?.0;
    let snapshot = SNAPSHOT_LEAST.0.max(logs / SNAPSHOT_SHARE).next_multiple_of(ALIGN);
    let start = superblock + ROOT_SECTORS.0 + 2 * snapshot;
    let end = device.0.saturating_sub(ROOT_SECTORS.0 + superblock) / ALIGN * ALIGN;
    if end <= start {
        return Err(LayoutError::TooSmall { device });
    }
    Ok((Sectors(superblock), Extent::between(Lba(start), Lba(end)), Sectors(snapshot)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Sectors = Sectors(20_000);
    const ONE: Sectors = Sectors(1);

    fn of(regions: &[(u64, u64)]) -> Result<Layout, LayoutError> {
        let regions: Vec<Extent> = regions.iter().map(|(at, len)| Extent::new(*at, *len)).collect();
        Layout::with_logs(&regions, DEVICE, ONE)
    }

    #[test]
    fn logs_of_any_length_are_where_they_were_asked_for() {
        let asked = [(9000, 100), (400, 64), (1000, 64), (1600, 64), (12_000, 3000)];
        let layout = of(&asked).unwrap();
        let mut sorted: Vec<Extent> =
            asked.iter().map(|(at, len)| Extent::new(*at, *len)).collect();
        sorted.sort_unstable();
        assert_eq!(layout.regions(), sorted);
        assert_eq!(layout.parts().runs.len(), 3, "three equal ones are one run");
        assert_eq!(layout.parts().check(ONE), Ok(()));
        let homes: u64 = layout.homes().iter().map(|(_, home)| home.len.0).sum();
        assert_eq!(layout.capacity(), Sectors(homes));
        let logs: u64 = sorted.iter().map(|log| log.len.0).sum();
        assert_eq!(homes + logs, layout.parts().space.len.0);
    }

    #[test]
    fn many_irregular_logs_take_a_longer_superblock() {
        let regions: Vec<Extent> =
            (0..300).map(|i| Extent::new(2000 + i * 48 + i % 7, 8 + i % 5)).collect();
        let layout = Layout::with_logs(&regions, DEVICE, ONE).unwrap();
        assert_eq!(layout.regions(), regions);
        assert!(layout.superblocks()[0].len > SUPERBLOCK_LEAST);
        assert_eq!(layout.parts().check(ONE), Ok(()));
    }

    #[test]
    fn what_is_no_layout_is_refused_with_its_reason() {
        assert_eq!(of(&[]), Err(LayoutError::NoLogs));
        let (first, second) = (Extent::new(1000, 100), Extent::new(1099, 50));
        assert_eq!(of(&[(1099, 50), (1000, 100)]), Err(LayoutError::Overlap { first, second }));
        for (at, len) in [(0, 64), (19_990, 10), (19_000, 2000), (u64::MAX - 5, 3)] {
            let found = of(&[(at, len)]);
            assert!(matches!(found, Err(LayoutError::Outside { .. })), "{at}: {found:?}");
        }
        assert!(matches!(of(&[(1000, 0)]), Err(LayoutError::Unaligned { .. })));
        let large = Layout::with_logs(&[Extent::new(1001, 64)], DEVICE, Sectors(8));
        assert!(matches!(large, Err(LayoutError::Unaligned { .. })));
        assert!(matches!(of(&[(1000, 1 << 40)]), Err(LayoutError::TooLong { .. })));
        assert_eq!(of(&[(192, 10_000), (10_192, 9776)]), Err(LayoutError::NoData));
        let device = Sectors(100);
        let small = Layout::with_logs(&[Extent::new(8, 8)], device, ONE);
        assert_eq!(small, Err(LayoutError::TooSmall { device }));
    }
}
