//! Delays answers.

use std::cell::Cell;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, Nanos, Request,
    completion,
};

/// A device that answers each request after a minimum time, or so much later than the device below.
/// The device below gets each request at once, and always answers first.
#[derive(Debug)]
pub struct Delay<B> {
    below: B,
    runtime: Handle,
    span: Cell<Nanos>,
    /// The span begins with the answer of the device below.
    late: bool,
}

impl<B> Delay<B> {
    /// Delays each answer to at least `span` after its request.
    pub const fn new(runtime: Handle, below: B, span: Nanos) -> Self {
        Self { below, runtime, span: Cell::new(span), late: false }
    }

    /// Delays each answer by `span`.
    pub const fn late(runtime: Handle, below: B, span: Nanos) -> Self {
        Self { below, runtime, span: Cell::new(span), late: true }
    }

    /// Sets the span for later requests.
    pub fn set(&self, span: Nanos) {
        self.span.set(span);
    }

    /// The device below.
    pub const fn below(&self) -> &B {
        &self.below
    }
}

impl<B: BlockDevice> BlockDevice for Delay<B> {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let answer = self.below.submit(request);
        let (span, late) = (self.span.get(), self.late);
        let (completer, later) = completion();
        let sleep = self.runtime.sleep(span);
        let runtime = self.runtime.clone();
        self.runtime.spawn(async move {
            if late {
                let result = answer.await;
                runtime.sleep(span).await;
                return completer.complete(result);
            }
            sleep.await;
            completer.complete(answer.await);
        });
        later
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
    use manylogs_block::{MemoryDevice, Sectors};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    #[test]
    fn an_answer_takes_the_span_that_was_set_when_it_was_asked_for() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        let runtime = sim.handle(node);
        let delay =
            Delay::new(runtime.clone(), MemoryDevice::new(Sectors(8)), Nanos::from_millis(5));
        sim.block_on(node, async move {
            let began = runtime.now();
            let first = delay.submit(Request::Flush);
            delay.set(Nanos::from_millis(1));
            assert!(delay.submit(Request::Flush).await.is_ok());
            assert_eq!(runtime.now().since(began), Nanos::from_millis(1));
            assert!(first.await.is_ok());
            assert_eq!(runtime.now().since(began), Nanos::from_millis(5));
        });
    }
}
