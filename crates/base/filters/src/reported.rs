//! Capabilities that differ from the device's own.

use manylogs_block::{BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Request};

/// A device that claims other capabilities than the one below it: larger physical sectors, a
/// volatile cache, no fast zeroing, or a smaller capacity (the beginning of the device below).
#[derive(Debug)]
pub struct Reported<B> {
    below: B,
    capabilities: Capabilities,
}

impl<B: BlockDevice> Reported<B> {
    /// Claims the capabilities that `change` makes of the present ones of the device below.
    pub fn new(below: B, change: impl FnOnce(Capabilities) -> Capabilities) -> Self {
        let capabilities = change(below.capabilities());
        Self { below, capabilities }
    }

    /// The device below.
    pub const fn below(&self) -> &B {
        &self.below
    }
}

impl<B: BlockDevice> BlockDevice for Reported<B> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        match self.capabilities.check(&request) {
            Ok(()) => self.below.submit(request),
            Err(error) => Completion::ready(Err(error)),
        }
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        match self.capabilities.check(&Request::Read { extent: within }) {
            Ok(()) => self.below.extents(within),
            Err(error) => Completion::ready(Err(error)),
        }
    }

    fn geometry(&self) -> Option<Geometry> {
        self.below.geometry()
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies()
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{IoError, MemoryDevice, Sectors};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    #[test]
    fn what_it_claims_holds_for_requests_and_extents() {
        let below = MemoryDevice::new(Sectors(64));
        let device = Reported::new(below, |told| Capabilities {
            capacity: Sectors(32),
            physical_sector: Sectors(8),
            fast_zero: false,
            ..told
        });
        let told = device.capabilities();
        assert_eq!((told.capacity, told.physical_sector), (Sectors(32), Sectors(8)));
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        sim.block_on(node, async move {
            let beyond = Extent::new(31, 2);
            let refused = IoError::OutOfRange { extent: beyond, capacity: Sectors(32) };
            let read = Request::Read { extent: beyond };
            assert_eq!(device.submit(read).await, Err(refused.clone()));
            assert_eq!(device.extents(beyond).await, Err(refused));
            let extent = Extent::new(0, 32);
            let zeroes = Request::WriteZeroes { extent, fua: false, if_fast: true };
            assert_eq!(device.submit(zeroes).await, Err(IoError::Unsupported));
            assert!(device.submit(Request::Read { extent }).await.is_ok());
        });
    }
}
