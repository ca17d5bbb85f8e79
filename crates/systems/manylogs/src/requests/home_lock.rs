//! Keeps home writes of the checkpoint, of clients and of runs apart. If two writes to one home
//! block are in flight together, the device may apply them in either order.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{Extent, Signal};

/// Owner of a home lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A client's large write. Clients' writes may overlap one another: clients must order them.
    Client,
    /// The checkpoint.
    Checkpoint,
    /// The volume, for clients' small writes that go home together.
    Run,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HomeLocks(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    held: RefCell<Vec<(u64, Writer, Extent)>>,
    next: std::cell::Cell<u64>,
    released: Signal,
}

/// Held while a home write is in flight.
#[derive(Debug)]
pub(crate) struct HomeGuard {
    locks: HomeLocks,
    id: u64,
}

impl HomeLocks {
    /// Number of locked extents.
    pub(crate) fn len(&self) -> usize {
        self.0.held.borrow().len()
    }

    /// Whether `writer` holds a lock that overlaps `extent`.
    pub(crate) fn is_held(&self, writer: Writer, extent: Extent) -> bool {
        let held = self.0.held.borrow();
        held.iter().any(|(_, by, range)| *by == writer && range.overlaps(extent))
    }

    /// Locks `extent`; `None` if another kind of writer holds part of it.
    pub(crate) fn try_lock(&self, writer: Writer, extent: Extent) -> Option<HomeGuard> {
        let mut held = self.0.held.borrow_mut();
        if held.iter().any(|(_, other, range)| *other != writer && range.overlaps(extent)) {
            return None;
        }
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        held.push((id, writer, extent));
        Some(HomeGuard { locks: self.clone(), id })
    }

    /// Locks `extent` once no other kind of writer holds part of it.
    pub(crate) async fn lock(&self, writer: Writer, extent: Extent) -> HomeGuard {
        loop {
            let released = self.0.released.wait();
            if let Some(guard) = self.try_lock(writer, extent) {
                return guard;
            }
            released.await;
        }
    }
}

impl Drop for HomeGuard {
    fn drop(&mut self) {
        self.locks.0.held.borrow_mut().retain(|(id, ..)| *id != self.id);
        self.locks.0.released.notify();
    }
}
