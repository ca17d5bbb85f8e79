//! A device whose requests are measured as they end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, Nanos, Request, Time,
    completion,
};
use manylogs_disk::device::ModelledDrive;

use super::{SmrFigures, SmrMeter};

/// The device above a modelled drive, with a meter of its requests. Clones share the meter.
#[derive(Clone)]
pub(crate) struct Metered {
    runtime: Handle,
    below: Rc<dyn BlockDevice>,
    drive: ModelledDrive,
    state: Rc<RefCell<State>>,
}

struct State {
    meter: SmrMeter,
    /// Arrival and number of the requests that wait.
    waiting: BTreeSet<(Time, u64)>,
    next: u64,
}

impl Metered {
    /// Measures the requests to `below`, which lies over `drive`, for about `span`.
    pub(crate) fn new(
        runtime: Handle,
        below: Rc<dyn BlockDevice>,
        drive: ModelledDrive,
        span: Nanos,
    ) -> Self {
        let meter = SmrMeter::new(runtime.now(), span);
        let state = State { meter, waiting: BTreeSet::new(), next: 0 };
        Self { runtime, below, drive, state: Rc::new(RefCell::new(state)) }
    }

    /// The figures up to now.
    pub(crate) fn figures(&self) -> SmrFigures {
        let state = self.state.borrow();
        let oldest = state.waiting.first().map(|(arrived, _)| *arrived);
        state.meter.clone().finish(self.runtime.now(), oldest, self.drive.shingled().as_ref())
    }

    fn measured(&self, request: Request, submit: impl FnOnce(Request) -> Completion) -> Completion {
        let bytes = match &request {
            Request::Read { extent }
            | Request::Write { extent, .. }
            | Request::WriteZeroes { extent, .. } => extent.len.bytes(),
            Request::Flush | Request::Discard { .. } => 0,
        };
        let arrived = self.runtime.now();
        let number = {
            let mut state = self.state.borrow_mut();
            state.next += 1;
            let number = state.next;
            state.waiting.insert((arrived, number));
            number
        };
        let below = submit(request);
        let (completer, completion) = completion();
        let own = self.clone();
        self.runtime.spawn(async move {
            let result = below.await;
            own.ended(arrived, number, bytes);
            completer.complete(result);
        });
        completion
    }

    fn ended(&self, arrived: Time, number: u64, bytes: u64) {
        let now = self.runtime.now();
        let state = &mut *self.state.borrow_mut();
        state.waiting.remove(&(arrived, number));
        state.meter.ended(now, bytes, now.since(arrived), || self.drive.shingled());
    }
}

impl BlockDevice for Metered {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.measured(request, |request| self.below.submit(request))
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.measured(request, |request| self.below.submit_urgent(request))
    }

    fn has_priorities(&self) -> bool {
        self.below.has_priorities()
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
