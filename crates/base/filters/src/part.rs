//! A part of a device.

use manylogs_block::{BlockDevice, Capabilities, Completion, Extent, Request, Sectors};

/// A device that is a part of the one below. Errors name places of the device below, and requests
/// have no priorities.
#[derive(Debug)]
pub struct Part<B> {
    below: B,
    extent: Extent,
}

impl<B> Part<B> {
    /// The part of `below` at `extent`.
    pub const fn new(below: B, extent: Extent) -> Self {
        Self { below, extent }
    }

    /// The device below.
    pub const fn below(&self) -> &B {
        &self.below
    }

    /// The place below of an extent of this part.
    fn moved(&self, extent: Extent) -> Extent {
        Extent { start: self.extent.start + Sectors(extent.start.0), ..extent }
    }
}

impl<B: BlockDevice> BlockDevice for Part<B> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { capacity: self.extent.len, ..self.below.capabilities() }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        self.below.submit(match request {
            Request::Read { extent } => Request::Read { extent: self.moved(extent) },
            Request::Write { extent, payload, fua, hint } => {
                Request::Write { extent: self.moved(extent), payload, fua, hint }
            }
            Request::Discard { extent, fua } => {
                Request::Discard { extent: self.moved(extent), fua }
            }
            Request::WriteZeroes { extent, fua, if_fast } => {
                Request::WriteZeroes { extent: self.moved(extent), fua, if_fast }
            }
            Request::Flush => Request::Flush,
        })
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{MemoryDevice, Payload};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    #[test]
    fn a_part_reaches_its_own_sectors_alone() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        sim.block_on(sim.node(), async move {
            let part = Part::new(MemoryDevice::new(Sectors(32)), Extent::new(8, 16));
            assert_eq!(part.capabilities().capacity, Sectors(16));
            let write = |start| Request::Write {
                extent: Extent::new(start, 8),
                payload: Payload::tags(1, Sectors(8)),
                fua: false,
                hint: manylogs_block::Hint::default(),
            };
            assert!(part.submit(write(8)).await.is_ok());
            assert!(part.submit(write(9)).await.is_err());
            let below = part.below().submit(Request::Read { extent: Extent::new(16, 8) });
            assert_eq!(below.await, Ok(Payload::tags(1, Sectors(8))));
        });
    }
}
