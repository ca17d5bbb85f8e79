//! What each sector of the device is for, by the layout of `docs/format.md`.

use manylogs::Layout;
use manylogs_block::{Extent, Lba};
use manylogs_logstore::LogId;

const ROOTS: std::ops::Range<u64> = 16..48;
const ROOT_SECTORS: u64 = 16;

/// What a sector is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Of one of the two superblocks.
    Superblock,
    /// Of a root slot.
    Root(u64),
    Snapshot,
    /// The sector at this offset of a log.
    Log(LogId, u64),
    /// The home of an exported sector.
    Home(Lba),
    Unused,
}

/// The zones of a device.
#[derive(Debug)]
pub(crate) struct Zones(Vec<Zone>);

impl Zones {
    pub(crate) fn of(layout: &Layout) -> Self {
        let device = layout.device().0;
        let last = device.saturating_sub(8) / 8 * 8;
        let snapshots_end = layout
            .home(Extent::new(0, 1))
            .chain(layout.regions().iter().copied())
            .map(|extent| extent.start.0)
            .min()
            .unwrap_or(ROOTS.end);
        let structure = |lba| match lba {
            0..8 => Zone::Superblock,
            lba if (last..last + 8).contains(&lba) => Zone::Superblock,
            lba if ROOTS.contains(&lba) => Zone::Root((lba - ROOTS.start) / ROOT_SECTORS),
            lba if (ROOTS.end..snapshots_end).contains(&lba) => Zone::Snapshot,
            _ => Zone::Unused,
        };
        let mut zones = Self((0..device).map(structure).collect());
        for (id, region) in (0..).zip(layout.regions()) {
            for (offset, lba) in (0..).zip(region.range()) {
                zones.set(lba, Zone::Log(LogId(id), offset));
            }
        }
        let mut exported = (0..layout.capacity().0).map(Lba);
        for home in layout.home(Extent::new(0, layout.capacity().0)) {
            for (lba, exported) in home.range().zip(&mut exported) {
                zones.set(lba, Zone::Home(exported));
            }
        }
        zones
    }

    fn set(&mut self, lba: u64, zone: Zone) {
        self.0[manylogs_block::to_usize(lba)] = zone;
    }

    pub(crate) fn at(&self, lba: u64) -> Zone {
        self.0.get(manylogs_block::to_usize(lba)).copied().unwrap_or(Zone::Unused)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}
