//! Delays answers.

use std::cell::Cell;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Handle, Nanos, Request, completion,
};

/// A device that answers each request after a minimum time. The device below gets each request at
/// once, and an answer never comes before that of the device below.
#[derive(Debug)]
pub struct Delay<B> {
    below: B,
    runtime: Handle,
    span: Cell<Nanos>,
}

impl<B> Delay<B> {
    /// Delays each answer to at least `span` after its request.
    pub const fn new(runtime: Handle, below: B, span: Nanos) -> Self {
        Self { below, runtime, span: Cell::new(span) }
    }

    /// Sets the minimum time for requests from now on.
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
        let sleep = self.runtime.sleep(self.span.get());
        let (completer, later) = completion();
        self.runtime.spawn(async move {
            sleep.await;
            completer.complete(answer.await);
        });
        later
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.below.extents(within)
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{MemoryDevice, Sectors};
    use manylogs_sim::{Order, Sim};

    use super::*;

    #[test]
    fn an_answer_takes_the_span_that_was_set_when_it_was_asked_for() {
        let sim = Sim::new(1, Order::Fifo);
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
