//! Holds requests back, or takes the device away.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Extent, Extents, Geometry, IoError, Request,
    RequestKind, completion,
};

/// Which requests are held.
type Which = Box<dyn Fn(&Request) -> bool>;

/// A device that can be stopped in two ways: *held*, it takes requests and answers none of them
/// until they are released; *cut*, it fails every change with [`IoError::Gone`].
pub struct Stop<B> {
    below: B,
    holds: RefCell<Option<Which>>,
    held: RefCell<VecDeque<(Request, Completer)>>,
    changes_left: Cell<u64>,
}

impl<B> Stop<B> {
    /// A device that is neither held nor cut: all requests pass.
    pub const fn new(below: B) -> Self {
        Self {
            below,
            holds: RefCell::new(None),
            held: RefCell::new(VecDeque::new()),
            changes_left: Cell::new(u64::MAX),
        }
    }

    /// Holds requests of these kinds from now on, and no others. Requests that are held already
    /// stay held.
    pub fn hold(&self, kinds: &'static [RequestKind]) {
        self.hold_those(|request| kinds.contains(&request.kind()));
    }

    /// As [`Stop::hold`], for requests for which `which` returns true.
    pub fn hold_those(&self, which: impl Fn(&Request) -> bool + 'static) {
        *self.holds.borrow_mut() = Some(Box::new(which));
    }

    /// Number of held requests.
    pub fn held(&self) -> usize {
        self.held.borrow().len()
    }

    /// Lets this number of writes, zeroings and discards pass, then fails each further one.
    /// [`u64::MAX`] means that all pass.
    pub fn cut_after(&self, changes: u64) {
        self.changes_left.set(changes);
    }

    /// The device below.
    pub const fn below(&self) -> &B {
        &self.below
    }

    fn is_cut_for(&self, request: &Request) -> bool {
        if !request.kind().is_change() || self.changes_left.get() == u64::MAX {
            return false;
        }
        let left = self.changes_left.get();
        self.changes_left.set(left.saturating_sub(1));
        left == 0
    }
}

impl<B: BlockDevice> Stop<B> {
    /// Hands the held requests to the device below in their order, and passes its answers on.
    pub async fn release(&self) {
        let started = self.held.take().into_iter().map(|(request, completer)| {
            // All requests start before the first answer is awaited.
            (self.submit_now(request), completer)
        });
        for (answer, completer) in started.collect::<Vec<_>>() {
            completer.complete(answer.await);
        }
    }

    fn submit_now(&self, request: Request) -> Completion {
        if self.is_cut_for(&request) {
            return Completion::ready(Err(IoError::Gone));
        }
        self.below.submit(request)
    }
}

impl<B: BlockDevice> BlockDevice for Stop<B> {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        if !self.holds.borrow().as_ref().is_some_and(|holds| holds(&request)) {
            return self.submit_now(request);
        }
        let (completer, answer) = completion();
        self.held.borrow_mut().push_back((request, completer));
        answer
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

impl<B: std::fmt::Debug> std::fmt::Debug for Stop<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stop")
            .field("below", &self.below)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::future::{Future, poll_fn};
    use std::pin::Pin;
    use std::task::Poll;

    use manylogs_block::{MemoryDevice, Payload, Sectors};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    fn with_device<F: Future<Output = ()> + 'static>(test: impl FnOnce(Stop<MemoryDevice>) -> F) {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        let device = Stop::new(MemoryDevice::new(Sectors(8)));
        sim.block_on(node, test(device));
    }

    fn write(tag: u64) -> Request {
        Request::write_fua(Extent::new(0, 1), Payload::tags(tag, Sectors(1)))
    }

    #[test]
    fn what_is_held_is_done_in_its_order_once_it_is_released() {
        with_device(|device| async move {
            let read = || device.submit(Request::Read { extent: Extent::new(0, 1) });
            device.hold(&[RequestKind::Write]);
            let (mut first, second) = (device.submit(write(1)), device.submit(write(2)));
            assert!(read().await.unwrap().is_zero(), "reads pass");
            let early = poll_fn(|cx| Poll::Ready(Pin::new(&mut first).poll(cx).is_ready())).await;
            assert!(!early && device.held() == 2);
            device.hold(&[]);
            device.release().await;
            assert!(first.await.is_ok() && second.await.is_ok());
            assert_eq!(read().await.unwrap(), Payload::tags(2, Sectors(1)));
        });
    }

    #[test]
    fn a_device_that_was_cut_changes_no_more() {
        with_device(|device| async move {
            device.cut_after(1);
            assert!(device.submit(Request::Flush).await.is_ok(), "a flush changes nothing");
            assert!(device.submit(write(1)).await.is_ok());
            for _ in 0..2 {
                assert_eq!(device.submit(write(2)).await, Err(IoError::Gone));
            }
            let extent = Extent::new(0, 1);
            assert_eq!(
                device.submit(Request::Discard { extent, fua: false }).await,
                Err(IoError::Gone)
            );
            let found = device.submit(Request::Read { extent }).await.unwrap();
            assert_eq!(found, Payload::tags(1, Sectors(1)));
            device.cut_after(u64::MAX);
            assert!(device.submit(write(3)).await.is_ok());
        });
    }
}
