//! How busy a disk is, measured where its requests pass.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, Nanos, Request, Time,
    Watcher,
};

use crate::lender::{DiskLoad, Load};

/// Weight of the mean: each new interval between answers counts for one part in this number.
const MEAN_OF: u64 = 16;

/// A device that estimates how long a request would wait for those in flight. Clones are the same
/// device.
#[derive(Clone)]
pub struct Meter(Rc<State>);

struct State {
    device: Rc<dyn BlockDevice>,
    runtime: Handle,
    in_flight: Cell<u64>,
    /// When the last request was answered, or the device became busy.
    last: Cell<Time>,
    /// Mean time between two answers of a busy device.
    each: Cell<Nanos>,
}

/// A request in flight, until this is dropped.
struct Passing(Rc<State>);

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.passed();
    }
}

impl State {
    /// A request is about to be sent.
    fn began(&self) {
        if self.in_flight.replace(self.in_flight.get() + 1) == 0 {
            self.last.set(self.runtime.now());
        }
    }

    /// A request is answered.
    fn passed(&self) {
        let now = self.runtime.now();
        let took = now.since(self.last.get()).0;
        let mean = self.each.get().0;
        self.each.set(Nanos(mean - mean / MEAN_OF + took / MEAN_OF));
        self.last.set(now);
        self.in_flight.set(self.in_flight.get() - 1);
    }
}

impl Watcher for State {
    fn answered(&self, _: u64) {
        self.passed();
    }
}

impl Meter {
    /// Measures the requests to `device` that pass here.
    #[must_use]
    pub fn new(runtime: Handle, device: Rc<dyn BlockDevice>) -> Self {
        let (in_flight, last, each) = (Cell::default(), Cell::default(), Cell::default());
        Self(Rc::new(State { device, runtime, in_flight, last, each }))
    }

    /// How busy the device is.
    #[must_use]
    pub fn load(&self) -> Load {
        let in_flight = self.0.in_flight.get();
        Load { in_flight, wait: Nanos(in_flight.saturating_mul(self.0.each.get().0)) }
    }

    /// Counts a request that is sent to the device by another way, until [`Meter::passed`].
    pub(crate) fn began(&self) {
        self.0.began();
    }

    /// A request that was counted by [`Meter::began`] is answered.
    pub(crate) fn passed(&self) {
        self.0.passed();
    }

    fn metered(&self, send: impl FnOnce(&dyn BlockDevice) -> Completion) -> Completion {
        self.0.began();
        send(&*self.0.device).watched(&self.0, 0).unwrap_or_else(|answer| {
            let passing = Passing(Rc::clone(&self.0));
            Completion::of_others(async move {
                let result = answer.await;
                drop(passing);
                result
            })
        })
    }
}

impl DiskLoad for Meter {
    fn load(&self) -> Load {
        Self::load(self)
    }
}

impl BlockDevice for Meter {
    fn capabilities(&self) -> Capabilities {
        self.0.device.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.metered(|device| device.submit(request))
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.metered(|device| device.submit_urgent(request))
    }

    fn has_priorities(&self) -> bool {
        self.0.device.has_priorities()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.device.extents(within)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.0.device.geometry()
    }

    fn has_copies(&self) -> bool {
        self.0.device.has_copies()
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("load", &self.load()).finish_non_exhaustive()
    }
}
