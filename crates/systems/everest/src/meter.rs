//! How busy a disk is, measured where its requests pass.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, Nanos, Request, Time,
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
        let (state, now) = (&self.0, self.0.runtime.now());
        let took = now.since(state.last.get()).0;
        let mean = state.each.get().0;
        state.each.set(Nanos(mean - mean / MEAN_OF + took / MEAN_OF));
        state.last.set(now);
        state.in_flight.set(state.in_flight.get() - 1);
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

    fn watched(&self, send: impl FnOnce(&dyn BlockDevice) -> Completion) -> Completion {
        if self.0.in_flight.replace(self.0.in_flight.get() + 1) == 0 {
            self.0.last.set(self.0.runtime.now());
        }
        let (passing, answer) = (Passing(Rc::clone(&self.0)), send(&*self.0.device));
        Completion::of_others(async move {
            let result = answer.await;
            drop(passing);
            result
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
        self.watched(|device| device.submit(request))
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.watched(|device| device.submit_urgent(request))
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
