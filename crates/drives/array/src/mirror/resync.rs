//! Resynchronisation of a mirror that is in use.

use std::cell::{Cell, RefCell};

use manylogs_block::{Extent, Hint, IoResult, Request, Sectors, Signal, all_done};
use manylogs_plant::{self as plant, Bug};

use super::Mirror;
use crate::members::Pace;

/// The writes in flight, and the place that the resynchronisation keeps for itself.
#[derive(Default)]
pub(super) struct Traffic {
    writes: RefCell<Vec<Extent>>,
    taken: Cell<Option<Extent>>,
    changed: Signal,
}

impl Traffic {
    /// Whether a write must wait for the resynchronisation.
    pub(super) fn is_taken(&self, extent: Extent) -> bool {
        self.taken.get().is_some_and(|taken| taken.overlaps(extent))
    }

    /// Waits until the resynchronisation has left this place.
    pub(super) async fn until_free(&self, extent: Extent) {
        loop {
            let changed = self.changed.wait();
            if !self.is_taken(extent) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn begin(&self, extent: Extent) {
        self.writes.borrow_mut().push(extent);
    }

    pub(super) fn end(&self, extent: Extent) {
        let mut writes = self.writes.borrow_mut();
        if let Some(at) = writes.iter().position(|write| *write == extent) {
            writes.swap_remove(at);
        }
        drop(writes);
        self.changed.notify();
    }

    /// Keeps later writes out of a place, and waits for those in flight there.
    async fn take(&self, place: Extent) {
        self.taken.set(Some(place));
        loop {
            let changed = self.changed.wait();
            if !self.writes.borrow().iter().any(|write| write.overlaps(place)) {
                return;
            }
            changed.await;
        }
    }

    fn give_back(&self) {
        self.taken.set(None);
        self.changed.notify();
    }
}

impl Mirror {
    /// Brings members that may differ in step while the array is used, as md does: the content of
    /// the first member goes to the others, window by window. Writes to the window wait, and reads
    /// behind it go to the first member. If that is lost while a window is read from it, the window
    /// begins anew with the next. New members are filled in the same way. Ends when all is in step,
    /// when only one member is left, or when the content cannot be read or written.
    pub async fn resync(&self, pace: Pace) {
        let end = self.0.capabilities.capacity;
        while let Some(from) = self.0.members.behind() {
            let len = pace.window.min(Sectors(end.0.saturating_sub(from.0)));
            if len == Sectors(0) {
                // A power cut must not take what a member holds that counts as filled.
                let new = self.0.members.unfilled();
                let live = self.0.live().filter(|at| new[*at]);
                let flushed = live.map(|at| self.send(at, Request::Flush, false));
                if all_done(flushed.collect::<Vec<_>>()).await.is_ok() {
                    self.0.members.resynced(None);
                }
                return;
            }
            if let [last] = self.0.live().collect::<Vec<_>>()[..] {
                // A new member that is the last has nothing to be filled with.
                if !self.0.members.unfilled()[last] {
                    self.0.members.resynced(None);
                }
                return;
            }
            let place = Extent { start: from, len };
            let takes = !plant::is(Bug::ResyncOvertakesWrite);
            if takes {
                self.0.traffic.take(place).await;
            }
            let copied = self.copy_to_others(place).await;
            if copied == Ok(true) {
                self.0.members.resynced(Some(place.end()));
            }
            if takes {
                self.0.traffic.give_back();
            }
            if copied.is_err() {
                return;
            }
            self.0.runtime.sleep(pace.pause).await;
        }
    }

    /// Copies a place from the first member to the others. False if the member that was read is no
    /// longer the first: it was lost meanwhile, and the next one counts with its own content, which
    /// must go to all. Then nothing is written.
    async fn copy_to_others(&self, place: Extent) -> IoResult<bool> {
        let first = self.0.holding(place).next().unwrap_or_default();
        let (source, read) = self.read_first_on(first, place, false).await;
        let payload = read?;
        if self.0.holding(place).next() != Some(source) {
            return Ok(false);
        }
        let write = || {
            let (payload, hint) = (payload.clone(), Hint::None);
            Request::Write { extent: place, payload, fua: false, hint }
        };
        let others = self.0.live().filter(|at| *at != source);
        all_done(others.map(|at| self.send(at, write(), false)).collect::<Vec<_>>()).await?;
        Ok(true)
    }
}
