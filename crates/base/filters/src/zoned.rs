//! Zones that must be written from their beginning, and reset before they are written again.

use std::cell::Cell;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, IoError, Lba, Payload,
    Request,
};

/// A device with zones like those of a host-managed shingled drive (ZBC, ZAC: *sequential write
/// required*). A write in a zone must begin at the zone's write pointer and end within the zone.
/// Zeroing and discards are refused in zones. Sectors outside of zones are written as on any
/// device.
///
/// The write pointers are unknown when this device is made, as after a crash: a zone must be reset
/// before it is written. A reset zone keeps its old content, readable, until it is written.
#[derive(Debug)]
pub struct Zoned<B> {
    below: B,
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    extent: Extent,
    /// The write pointer; `None` if it is not known.
    pointer: Cell<Option<Lba>>,
}

impl<B> Zoned<B> {
    /// A device with `zones`, which do not overlap.
    pub fn new(below: B, zones: impl IntoIterator<Item = Extent>) -> Self {
        let zone = |extent| Zone { extent, pointer: Cell::default() };
        Self { below, zones: zones.into_iter().map(zone).collect() }
    }

    /// Whether `extent` may be written now. If so, the write pointer advances to its end.
    fn advances(&self, extent: Extent) -> bool {
        let mut touched = self.zones.iter().filter(|zone| zone.extent.overlaps(extent));
        let Some(zone) = touched.next() else { return true };
        let fits = zone.extent.contains(extent) && zone.pointer.get() == Some(extent.start);
        if fits {
            zone.pointer.set(Some(extent.end()));
        }
        fits
    }
}

impl<B: BlockDevice> BlockDevice for Zoned<B> {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let allowed = match &request {
            Request::Read { .. } | Request::Flush => true,
            Request::Write { extent, .. } => self.advances(*extent),
            Request::Discard { extent, .. } | Request::WriteZeroes { extent, .. } => {
                !self.zones.iter().any(|zone| zone.extent.overlaps(*extent))
            }
        };
        if allowed { self.below.submit(request) } else { refused() }
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.below.extents(within)
    }

    fn is_reset_first(&self) -> bool {
        true
    }

    fn reset(&self, extent: Extent) -> Completion {
        let Some(zone) = self.zones.iter().find(|zone| zone.extent == extent) else {
            return refused();
        };
        zone.pointer.set(Some(extent.start));
        Completion::ready(Ok(Payload::default()))
    }

    fn geometry(&self) -> Option<Geometry> {
        self.below.geometry()
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies()
    }
}

fn refused() -> Completion {
    Completion::ready(Err(IoError::Unsupported))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use manylogs_block::{MemoryDevice, Sectors};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    #[test]
    fn a_zone_is_written_in_order_and_again_after_a_reset() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let zones = [Extent::new(8, 8), Extent::new(16, 8)];
        let device = Zoned::new(MemoryDevice::new(Sectors(32)), zones);
        sim.block_on(sim.node(), async move {
            let write = |start, len| {
                let payload = Payload::tags(start, Sectors(len));
                device.submit(Request::write_fua(Extent::new(start, len), payload))
            };
            assert!(write(0, 8).await.is_ok() && write(0, 8).await.is_ok(), "in no zone");
            assert_eq!(write(8, 4).await, Err(IoError::Unsupported), "not reset yet");
            assert_eq!(device.reset(Extent::new(8, 4)).await, Err(IoError::Unsupported));
            device.reset(zones[0]).await.unwrap();
            assert!(write(8, 4).await.is_ok() && write(12, 2).await.is_ok());
            for (start, len) in [(8, 4), (15, 1), (14, 4), (16, 1)] {
                assert_eq!(write(start, len).await, Err(IoError::Unsupported), "{start}, {len}");
            }
            let zeroes = Request::write_zeroes(Extent::new(8, 2), false);
            assert_eq!(device.submit(zeroes).await, Err(IoError::Unsupported));
            device.reset(zones[0]).await.unwrap();
            assert!(write(8, 8).await.is_ok());
        });
    }
}
