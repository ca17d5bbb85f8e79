//! Large writes, which go home past the logs.

use std::rc::Rc;

use manylogs_block::{
    Completion, Extent, Hint, IoError, Payload, Request, Sectors, all_done, completion,
};
use manylogs_logstore::store::{Room, SlotId};
use manylogs_logstore::{DataSequence, EntryKind};

use crate::requests::home_lock::{HomeGuard, Writer};
use crate::state::{Inner, State};
use manylogs_engine::{Phase, System};
use manylogs_plant::{self as plant, Bug};

impl Inner {
    /// Sends a large write home. The order of durability is: home, then the supersede entry if
    /// older versions are logged, then the acknowledgement.
    pub(crate) fn bypass(
        self: &Rc<Self>,
        extent: Extent,
        payload: Payload,
        fua: bool,
    ) -> Completion {
        let mut state = self.engine.state.borrow_mut();
        if let Err(error) = state.admit_write(self.engine.runtime.now()) {
            return Completion::ready(Err(error));
        }
        state.counters.bypassed_writes += 1;
        drop(state);
        let (completer, completion) = completion();
        let inner = Rc::clone(self);
        let activity = Rc::clone(&self.activity);
        self.engine.runtime.spawn(async move {
            let result = inner.write_home(extent, payload, fua).await;
            drop(activity);
            completer.complete(result);
        });
        completion
    }

    async fn write_home(
        self: &Rc<Self>,
        extent: Extent,
        payload: Payload,
        fua: bool,
    ) -> Result<Payload, IoError> {
        let (guard, reserved) = self.lock_and_reserve(extent, fua).await?;
        // The sequence is taken under the lock, because the checkpoint renews versions under its
        // locks.
        let sequence = self.engine.state.borrow_mut().store.take_data_sequence();
        if plant::is(Bug::SupersedeBeforeHome) {
            let early = self.forget_superseded(extent, sequence, reserved, true);
            if let Some(early) = early {
                early.await?;
            }
        }
        let written = self.submit_home(Phase::Bypass, extent, &payload, fua);
        if let Err(error) = all_done(written).await {
            if !plant::is(Bug::FailedWriteKeepsRoom) {
                self.engine.state.borrow_mut().store.release(reserved);
            }
            self.engine.notify_progress();
            return Err(error);
        }
        let durable = if plant::is(Bug::SupersedeBeforeHome) {
            None
        } else {
            self.forget_superseded(extent, sequence, reserved, fua)
        };
        drop(guard);
        match durable {
            Some(durable) => durable.await,
            None => {
                // The room that was set aside is free again.
                self.offer_room();
                Ok(Payload::default())
            }
        }
    }

    /// Locks the home of `extent` and, if versions of it are logged, sets room aside for the entry
    /// that supersedes them. All older versions are in the map by then, or never will be. Or an
    /// earlier large write took them out of the map, and its supersede entry is not durable yet: a
    /// durable write must not rely on that entry.
    async fn lock_and_reserve(
        &self,
        extent: Extent,
        fua: bool,
    ) -> Result<(HomeGuard, Room), IoError> {
        let needed = self.record_room(EntryKind::Supersede, extent);
        loop {
            let guard = match self.locks.try_lock(Writer::Client, extent) {
                Some(guard) => guard,
                None => self.locks.lock(Writer::Client, extent).await,
            };
            {
                let mut state = self.engine.state.borrow_mut();
                if !self.layout.images().is_empty() {
                    // The image of these rows may count still, if it could not be ended.
                    state.store.writable()?;
                }
                let logged = state.store.map().overlaps(extent);
                let trusting = plant::is(Bug::TrustUnsettledSupersede);
                let unsettled = fua && !trusting && state.home.is_unsettled(&state.store, extent);
                if !logged && !unsettled {
                    return Ok((guard, Room::default()));
                }
                if state.store.fits(needed) {
                    state.store.reserve(needed);
                    return Ok((guard, needed));
                }
            }
            // A checkpoint must make room, and it may need this lock.
            drop(guard);
            self.wait_for_room(needed).await?;
        }
    }

    /// Writes `extent` to its home, and notes where the head will be.
    pub(crate) fn submit_home(
        &self,
        phase: Phase,
        extent: Extent,
        payload: &Payload,
        fua: bool,
    ) -> Vec<Completion> {
        let mut done = Sectors(0);
        let mut parts = Vec::with_capacity(1);
        for home in self.layout.home(extent) {
            let part = if home.len == extent.len {
                payload.clone()
            } else {
                payload.slice(done, home.len)
            };
            done += home.len;
            self.device.set_asked(home.end());
            let write = Request::Write { extent: home, payload: part, fua, hint: Hint::None };
            parts.push(self.device.submit(phase, write));
        }
        parts
    }

    /// Drops the older versions from the map. Their logs keep them until the supersede entry is
    /// durable. Under FUA that is at once, else with the next flush, which waits for the entry.
    fn forget_superseded(
        self: &Rc<Self>,
        extent: Extent,
        sequence: DataSequence,
        reserved: Room,
        fua: bool,
    ) -> Option<Completion> {
        let mut state = self.engine.state.borrow_mut();
        let state = &mut *state;
        state.store.release(reserved);
        let dirty = !fua && self.below.volatile_cache;
        state.home.is_dirty |= dirty && !plant::is(Bug::DirtyHomeNotSet);
        let displaced = state.store.displace_older(extent, sequence);
        state.kept_left |= displaced.kept > 0;
        // A durable write needs its own entry even if a newer version has displaced the older ones
        // in the map meanwhile, because the newer one may not be durable yet.
        if displaced.is_empty() && !(fua && reserved != Room::default()) {
            return None;
        }
        if plant::is(Bug::NoSupersede) {
            return None;
        }
        let fua = fua && !plant::is(Bug::SupersedeNotDurable);
        let (waiter, answer) = if fua {
            let (completer, completion) = completion();
            (Some(completer), Some(completion))
        } else {
            (None, None)
        };
        let answered = (waiter, reserved);
        let id = state.store.queue_supersede(extent, sequence, displaced, answered);
        let ticket = state.store.entries().slots.get(id).ticket;
        state.home.add(&state.store, ticket, extent);
        self.make_due(state, id, fua);
        answer
    }

    fn make_due(&self, state: &mut State, id: SlotId, fua: bool) {
        if fua {
            state.store.make_pending(id);
            self.engine.commit.notify();
        } else {
            state.home.deferred.push(id);
        }
    }
}
