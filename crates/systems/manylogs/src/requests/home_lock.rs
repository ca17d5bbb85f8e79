//! Keeps home writes that overlap apart. If two of them are in flight together, the device may
//! apply them in either order, and each copy of an array may take an order of its own: then the
//! copies differ for good, and a read gives either content.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{Extent, Signal};
use manylogs_plant::{self as plant, Bug};

/// Owner of a home lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A client's large write.
    Client,
    /// The checkpoint. There is one at a time, and its own writes never overlap, though its locks
    /// may: they are widened to physical sectors, or to stripes.
    Checkpoint,
    /// The volume, for clients' small writes that go home together.
    Run,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HomeLocks(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Locks that are held or waited for, in the order in which they were asked for.
    turns: RefCell<Vec<Turn>>,
    next: Cell<u64>,
    released: Signal,
}

#[derive(Debug)]
struct Turn {
    id: u64,
    writer: Writer,
    extent: Extent,
    is_held: bool,
}

/// Held while a home write is in flight. While its owner still waits for the lock it is a place in
/// the queue, which a dropped future gives up.
#[derive(Debug)]
pub(crate) struct HomeGuard {
    locks: HomeLocks,
    id: u64,
}

impl Turn {
    /// Whether this turn, which came first, keeps `writer` from locking `extent`.
    ///
    /// A client waits for all turns before its own. The checkpoint waits only for locks that are
    /// held: a client that waits may wait for another lock of the same checkpoint. No client waits
    /// for anything while it holds a lock, except for the device.
    fn bars(&self, writer: Writer, extent: Extent) -> bool {
        let alike = self.writer == writer
            && (writer == Writer::Checkpoint || plant::is(Bug::HomeWritesOverlap));
        let counts = self.is_held || writer != Writer::Checkpoint;
        counts && !alike && self.extent.overlaps(extent)
    }
}

impl HomeLocks {
    /// Number of locked extents.
    pub(crate) fn len(&self) -> usize {
        self.0.turns.borrow().iter().filter(|turn| turn.is_held).count()
    }

    /// Whether `writer` holds a lock that overlaps `extent`.
    pub(crate) fn is_held(&self, writer: Writer, extent: Extent) -> bool {
        let turns = self.0.turns.borrow();
        turns
            .iter()
            .any(|turn| turn.is_held && turn.writer == writer && turn.extent.overlaps(extent))
    }

    /// Locks `extent`; `None` if another home write holds part of it, or waits for it.
    pub(crate) fn try_lock(&self, writer: Writer, extent: Extent) -> Option<HomeGuard> {
        if self.0.turns.borrow().iter().any(|turn| turn.bars(writer, extent)) {
            return None;
        }
        Some(self.ask(writer, extent, true))
    }

    /// Locks `extent` once no other home write holds part of it. Clients' writes that overlap take
    /// turns in the order of their calls.
    pub(crate) async fn lock(&self, writer: Writer, extent: Extent) -> HomeGuard {
        let is_held = !self.0.turns.borrow().iter().any(|turn| turn.bars(writer, extent));
        let guard = self.ask(writer, extent, is_held);
        loop {
            let released = self.0.released.wait();
            if self.is_granted(guard.id) {
                return guard;
            }
            released.await;
        }
    }

    fn ask(&self, writer: Writer, extent: Extent, is_held: bool) -> HomeGuard {
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        self.0.turns.borrow_mut().push(Turn { id, writer, extent, is_held });
        HomeGuard { locks: self.clone(), id }
    }

    /// Whether the turn holds its lock; it takes the lock if nothing bars it any more.
    fn is_granted(&self, id: u64) -> bool {
        let mut turns = self.0.turns.borrow_mut();
        let Some(at) = turns.iter().position(|turn| turn.id == id) else { return false };
        let (writer, extent) = (turns[at].writer, turns[at].extent);
        // Of later turns only those count that hold their locks: the checkpoint's pass by.
        let bars = |(place, turn): (usize, &Turn)| {
            place != at && (place < at || turn.is_held) && turn.bars(writer, extent)
        };
        turns[at].is_held = turns[at].is_held || !turns.iter().enumerate().any(bars);
        turns[at].is_held
    }
}

impl Drop for HomeGuard {
    fn drop(&mut self) {
        self.locks.0.turns.borrow_mut().retain(|turn| turn.id != self.id);
        self.locks.0.released.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn at(start: u64) -> Extent {
        Extent::new(start, 10)
    }

    #[test]
    fn clients_that_overlap_take_turns_and_others_do_not_wait() {
        let locks = HomeLocks::default();
        let first = locks.try_lock(Writer::Client, at(0)).unwrap();
        let mut second = pin!(locks.lock(Writer::Client, at(5)));
        assert!(poll(second.as_mut()).is_none());
        // The third overlaps only the second, which waits.
        let mut third = pin!(locks.lock(Writer::Client, at(14)));
        assert!(poll(third.as_mut()).is_none());
        assert!(locks.try_lock(Writer::Run, at(14)).is_none());
        let far = locks.try_lock(Writer::Client, at(30));
        assert_eq!((far.is_some(), locks.len()), (true, 2));
        drop(first);
        assert!(poll(third.as_mut()).is_none());
        let second = poll(second.as_mut()).unwrap();
        assert!(poll(third.as_mut()).is_none());
        drop(second);
        assert!(poll(third.as_mut()).is_some());
    }

    #[test]
    fn a_client_that_gives_up_leaves_the_queue() {
        let locks = HomeLocks::default();
        let first = locks.try_lock(Writer::Client, at(0)).unwrap();
        let mut second = Box::pin(locks.lock(Writer::Client, at(5)));
        assert!(poll(second.as_mut()).is_none());
        let mut third = pin!(locks.lock(Writer::Client, at(14)));
        assert!(poll(third.as_mut()).is_none());
        drop(second);
        assert!(poll(third.as_mut()).is_some());
        drop(first);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn a_checkpoint_never_waits_for_a_client_that_waits_for_it() {
        let locks = HomeLocks::default();
        let one = locks.try_lock(Writer::Checkpoint, at(0)).unwrap();
        let mut client = pin!(locks.lock(Writer::Client, Extent::new(0, 100)));
        assert!(poll(client.as_mut()).is_none());
        let two = poll(pin!(locks.lock(Writer::Checkpoint, at(50)))).unwrap();
        let again = locks.try_lock(Writer::Checkpoint, at(55)).unwrap();
        drop(one);
        assert!(poll(client.as_mut()).is_none());
        drop((two, again));
        let client = poll(client.as_mut()).unwrap();
        let mut behind = pin!(locks.lock(Writer::Checkpoint, at(50)));
        assert!(poll(behind.as_mut()).is_none());
        drop(client);
        assert!(poll(behind.as_mut()).is_some());
    }
}
