//! Large writes under way to homes of an array with parity.
//!
//! With a closed write hole a crash and missing members cost nothing that nobody was writing. What
//! a client was writing at the crash may be lost: whole stripes of a large write that is not
//! durable. Those alone are brought in step before members go.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Capabilities, Completion, Extent, Geometry, Request, Sectors};

/// Large writes that are not durable. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct LargeWrites(Rc<RefCell<Vec<Large>>>);

#[derive(Clone, Copy)]
struct Large {
    stripes: Extent,
    answered: bool,
}

impl LargeWrites {
    /// The stripes that they write within `homes`.
    pub(crate) fn within(&self, homes: &[Extent]) -> Rc<[Extent]> {
        let all = self.0.borrow();
        let stripes =
            all.iter().flat_map(|large| homes.iter().map(|home| home.intersection(large.stripes)));
        stripes.filter(|extent| !extent.is_empty()).collect()
    }
}

/// An array that notes the whole stripes of writes until they are durable.
pub(crate) struct Noting {
    pub(crate) below: Rc<dyn BlockDevice>,
    pub(crate) array: Geometry,
    pub(crate) large: LargeWrites,
}

impl Noting {
    fn write(&self, extent: Extent, fua: bool, request: Request) -> Completion {
        let stripes = self.array.whole_within(extent);
        if stripes.is_empty() {
            return self.below.submit(request);
        }
        let (large, at) = (self.large.clone(), {
            let mut all = self.large.0.borrow_mut();
            all.push(Large { stripes, answered: false });
            all.len() - 1
        });
        let answer = self.below.submit(request);
        Completion::of_others(async move {
            let result = answer.await;
            let mut all = large.0.borrow_mut();
            match (result.is_ok(), fua) {
                (true, true) => all[at].stripes.len = Sectors(0),
                (ok, _) => all[at].answered = ok,
            }
            drop(all);
            result
        })
    }

    fn flush(&self) -> Completion {
        let covered: Vec<usize> = {
            let all = self.large.0.borrow();
            (0..all.len()).filter(|at| all[*at].answered).collect()
        };
        let (large, answer) = (self.large.clone(), self.below.submit(Request::Flush));
        Completion::of_others(async move {
            let result = answer.await;
            if result.is_ok() {
                let mut all = large.0.borrow_mut();
                covered.into_iter().for_each(|at| all[at].stripes.len = Sectors(0));
            }
            result
        })
    }
}

impl BlockDevice for Noting {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        match request {
            Request::Write { extent, fua, .. } => self.write(extent, fua, request),
            Request::Flush => self.flush(),
            _ => self.below.submit(request),
        }
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies()
    }

    fn geometry(&self) -> Option<Geometry> {
        self.below.geometry()
    }
}
