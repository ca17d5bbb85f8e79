//! What a look at the table tells without I/O: how long a drain would take, what reads as zeroes.

use manylogs_block::{Extent, Lba, Nanos, Sectors};

use crate::store::Place;
use crate::volume::Volume;

/// Time for one home write at a random place, and bytes a second for long ones: what an estimate
/// of the time to drain assumes of a disk.
const SEEK: Nanos = Nanos::from_millis(8);
const BYTES_PER_S: f64 = 100e6;
/// Home writes closer than this count as one: the drive passes over the gap.
const NEAR: Sectors = Sectors(256);

/// About how long it takes to move `extents`, by address, home: a seek for each run of neighbours,
/// and transfer.
pub(crate) fn drain_estimate(extents: impl Iterator<Item = Extent>) -> Nanos {
    let (mut runs, mut end, mut bytes) = (0u64, Lba(0), 0);
    for extent in extents {
        if runs == 0 || extent.start.0 > end.0 + NEAR.0 {
            runs += 1;
        }
        end = extent.end();
        bytes += extent.len.bytes();
    }
    // Read from the logs, written home.
    let transfer = Nanos::from_secs_f64(2.0 * bytes as f64 / BYTES_PER_S);
    Nanos(transfer.0 + runs * SEEK.0)
}

const fn is_zeroes(place: &Place) -> bool {
    matches!(place, Place::Zeroes { .. })
}

impl Volume {
    /// About how long a drain would take on a disk with 8 ms a seek. Walks through the table.
    #[must_use]
    pub fn drain_estimate(&self) -> Nanos {
        let state = self.inner().state.borrow();
        let data = state.store.map.iter().filter(|(_, mapped)| !is_zeroes(&mapped.value));
        drain_estimate(data.map(|(extent, _)| extent))
    }

    /// Home bytes that the table says are zeroes. Walks through the table.
    #[must_use]
    pub fn zeroed_bytes(&self) -> u64 {
        let state = self.inner().state.borrow();
        let zeroed = state.store.map.iter().filter(|(_, mapped)| is_zeroes(&mapped.value));
        zeroed.map(|(extent, _)| extent.len.bytes()).sum()
    }

    /// The parts of `extent`, and whether the table says that they read as zeroes. What is home
    /// counts as data: nobody knows what it holds without reading it. Costs O(extents).
    #[must_use]
    pub fn zeroes(&self, extent: Extent) -> Vec<(Extent, bool)> {
        let state = self.inner().state.borrow();
        let mut parts: Vec<(Extent, bool)> = Vec::new();
        for (part, mapped) in state.store.map.lookup(extent) {
            let zeroes = mapped.is_some_and(|mapped| is_zeroes(&mapped.value));
            match parts.last_mut() {
                Some((last, same)) if *same == zeroes => {
                    *last = Extent::between(last.start, part.end());
                }
                _ => parts.push((part, zeroes)),
            }
        }
        parts
    }
}
