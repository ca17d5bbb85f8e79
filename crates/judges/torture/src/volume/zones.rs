//! The purpose of each sector of the device.

use manylogs::Layout;
use manylogs_block::{Extent, Lba};
use manylogs_logstore::LogId;

/// Purpose of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// A sector of one of the two copies.
    Superblock(usize),
    /// A sector of one of the two slots.
    Root(usize),
    Snapshot,
    /// The sector at this offset of a log.
    Log(LogId, u64),
    /// The home of a sector of the volume.
    Home(Lba),
    Unused,
}

/// The zones of a device.
#[derive(Debug)]
pub(crate) struct Zones(Vec<Zone>);

impl Zones {
    pub(crate) fn of(layout: &Layout) -> Self {
        let mut zones = Self(vec![Zone::Unused; manylogs_block::to_usize(layout.device().0)]);
        for (copy, extent) in layout.superblocks().into_iter().enumerate() {
            zones.set(extent, |_| Zone::Superblock(copy));
        }
        for (slot, extent) in layout.roots().into_iter().enumerate() {
            zones.set(extent, |_| Zone::Root(slot));
        }
        for extent in layout.snapshots() {
            zones.set(extent, |_| Zone::Snapshot);
        }
        for (id, extent) in (0..).zip(layout.regions()) {
            zones.set(*extent, |offset| Zone::Log(LogId(id), offset));
        }
        for (exported, extent) in layout.homes() {
            zones.set(*extent, |offset| Zone::Home(Lba(exported.0 + offset)));
        }
        zones
    }

    fn set(&mut self, extent: Extent, zone: impl Fn(u64) -> Zone) {
        for (offset, lba) in (0..).zip(extent.range()) {
            self.0[manylogs_block::to_usize(lba)] = zone(offset);
        }
    }

    pub(crate) fn at(&self, lba: u64) -> Zone {
        self.0.get(manylogs_block::to_usize(lba)).copied().unwrap_or(Zone::Unused)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}
