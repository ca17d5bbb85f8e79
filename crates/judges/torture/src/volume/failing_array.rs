//! An array with parity that fails requests: it lacks more members than its parity makes up for, or
//! a cable or a controller fails between it and all of them.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Geometry, IoError, Request, Rng, Sectors,
};
use manylogs_sim::FailRequest;

/// Seed of what arrives of failed writes.
const PARTS: u64 = 0xfa11;

/// Decides which requests of an array fail. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Faults(Rc<RefCell<Option<FailRequest>>>);

impl Faults {
    /// From now on `fail` is asked about every request.
    pub(crate) fn set(&self, fail: FailRequest) {
        *self.0.borrow_mut() = Some(fail);
    }

    fn of(&self, request: &Request) -> Option<IoError> {
        self.0.borrow_mut().as_mut()?(request)
    }
}

/// An array whose requests fail as [`Faults`] says. Unlike those of `manylogs_filters::Faults`,
/// failed requests may reach the device in part.
pub(crate) struct FailingArray {
    below: Rc<dyn BlockDevice>,
    faults: Faults,
    /// The atomic unit of the members: a failed write arrives up to one of its borders.
    physical_sector: Sectors,
    rng: RefCell<Rng>,
}

impl FailingArray {
    /// This array, which fails requests as `faults` says.
    pub(crate) fn new(
        below: Rc<dyn BlockDevice>,
        faults: Faults,
        physical_sector: Sectors,
    ) -> Self {
        // A draw of the runtime's would change histories without faults.
        let rng = RefCell::new(Rng::new(PARTS));
        Self { below, faults, physical_sector, rng }
    }

    /// What of a failed request reaches the members: all of it, nothing, or the beginning of a
    /// write.
    fn arrives(&self, request: Request) -> Option<Request> {
        let mut rng = self.rng.borrow_mut();
        if rng.one_in(2) {
            return Some(request);
        }
        let Request::Write { extent, payload, fua, hint } = request else { return None };
        let unit = self.physical_sector.0;
        let len = Sectors(rng.below(extent.len.0 / unit + 1) * unit);
        let begun = || {
            let extent = Extent { len, ..extent };
            Request::Write { extent, payload: payload.slice(Sectors(0), len), fua, hint }
        };
        (len > Sectors(0)).then(begun)
    }
}

impl BlockDevice for FailingArray {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let Some(error) = self.faults.of(&request) else { return self.below.submit(request) };
        let arrives = if error == IoError::Gone { None } else { self.arrives(request) };
        let answer = arrives.map(|request| self.below.submit(request));
        Completion::of_others(async move {
            if let Some(answer) = answer {
                let _carried_out = answer.await;
            }
            Err(error)
        })
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies()
    }

    fn geometry(&self) -> Option<Geometry> {
        self.below.geometry()
    }
}
