//! Counts requests and keeps the last ones.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Request, RequestKind, Sectors,
};

/// Number of requests that a [`Trace`] keeps by default.
const KEPT: usize = 1 << 16;

/// Counters of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Total length of these requests.
    pub sectors: Sectors,
}

/// A device that counts requests and keeps the last ones with their content.
#[derive(Debug)]
pub struct Trace<B> {
    below: B,
    counts: Cell<[Count; RequestKind::ALL.len()]>,
    kept: RefCell<VecDeque<Request>>,
    most: usize,
}

impl<B> Trace<B> {
    /// Keeps the last 65,536 requests.
    pub fn new(below: B) -> Self {
        Self::keeping(below, KEPT)
    }

    /// Keeps the last `most` requests. With zero it only counts.
    pub fn keeping(below: B, most: usize) -> Self {
        Self { below, counts: Cell::default(), kept: RefCell::default(), most }
    }

    /// Counters of `kind` since the beginning.
    pub fn count(&self, kind: RequestKind) -> Count {
        self.counts.get()[kind as usize]
    }

    /// The kept requests, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.kept.borrow().iter().cloned().collect()
    }

    /// Extents of the kept requests of these kinds.
    pub fn extents_of(&self, kinds: &[RequestKind]) -> Vec<Extent> {
        let kept = self.kept.borrow();
        let of_kind = kept.iter().filter(|request| kinds.contains(&request.kind()));
        of_kind.filter_map(Request::extent).collect()
    }

    /// Extents of the kept writes. Zeroing and discards do not count as writes.
    pub fn writes(&self) -> Vec<Extent> {
        self.extents_of(&[RequestKind::Write])
    }

    /// Drops the kept requests. The counters stay.
    pub fn forget(&self) {
        self.kept.borrow_mut().clear();
    }

    /// The device below.
    pub const fn below(&self) -> &B {
        &self.below
    }

    fn note(&self, request: &Request) {
        let mut counts = self.counts.get();
        let count = &mut counts[request.kind() as usize];
        count.requests += 1;
        count.sectors += request.extent().unwrap_or_default().len;
        self.counts.set(counts);
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= self.most {
            kept.pop_front();
        }
        if self.most > 0 {
            kept.push_back(request.clone());
        }
    }
}

impl<B: BlockDevice> BlockDevice for Trace<B> {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.note(&request);
        self.below.submit(request)
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.below.extents(within)
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
    use manylogs_block::MemoryDevice;
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    #[test]
    fn all_are_counted_and_the_last_ones_kept() {
        let device = Trace::keeping(MemoryDevice::new(Sectors(64)), 2);
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        sim.block_on(node, async move {
            for start in 0..5 {
                let extent = Extent::new(start, 1 + start);
                assert!(device.submit(Request::Read { extent }).await.is_ok());
            }
            assert!(device.submit(Request::Flush).await.is_ok());
            let reads = Count { requests: 5, sectors: Sectors(15) };
            assert_eq!(device.count(RequestKind::Read), reads);
            assert_eq!(device.count(RequestKind::Flush).requests, 1);
            let last = Request::Read { extent: Extent::new(4, 5) };
            assert_eq!(device.requests(), [last, Request::Flush]);
            assert_eq!(device.extents_of(&[RequestKind::Read]), [Extent::new(4, 5)]);
            device.forget();
            assert_eq!((device.requests().len(), device.count(RequestKind::Read)), (0, reads));
        });
    }
}
