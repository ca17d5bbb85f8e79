//! Writes: small ones to a log, large ones home.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, Hint, IoError, Payload, Sectors, all_done, completion};
use manylogs_logstore::store::{Batch, Room};
use manylogs_logstore::{Class, EntryKind};

use crate::cleaning::checkpoint::ration::LOOK;
use crate::requests::home_lock::Writer;
use crate::state::{Inner, State};
use manylogs_plant::{self as plant, Bug};

/// Kind and class of a client's entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What {
    kind: EntryKind,
    class: Class,
}

impl What {
    /// Content that stays in the logs.
    const KEPT: Self = Self { kind: EntryKind::Data, class: Class::DurabilityOnly };

    /// An entry of this kind and class.
    pub(crate) const fn of(kind: EntryKind, class: Class) -> Self {
        Self { kind, class }
    }

    /// Its kind.
    pub(crate) const fn kind(self) -> EntryKind {
        self.kind
    }
}

impl From<EntryKind> for What {
    fn from(kind: EntryKind) -> Self {
        Self { kind, class: Class::Data }
    }
}

impl Inner {
    /// Entry point of client writes.
    pub(crate) fn write(
        self: &Rc<Self>,
        extent: Extent,
        payload: Payload,
        fua: bool,
        hint: Hint,
    ) -> Completion {
        // Without logging every write counts as large, but physical sectors must not be torn even
        // then.
        let logging = self.config().logging;
        if logging && self.is_durable_only(extent, hint) {
            return self.keep_write(extent, &payload, fua);
        }
        if logging && !self.is_over_kept(extent) && self.is_logged(extent, fua) {
            if fua {
                self.device.sync_asked();
                self.note_in_run(extent);
            } else if hint == Hint::None
                && let Some(answer) = self.continue_run(extent, &payload)
            {
                return answer;
            }
            return self.log_write(EntryKind::Data, extent, Some(payload), fua);
        }
        self.note_in_run(extent);
        // The checkpoint locks a band for longer than a client should wait.
        let locked = self.band() > Sectors(0) && self.locks.is_held(Writer::Checkpoint, extent);
        if logging && (hint == Hint::DurabilityOnly || locked) {
            return self.log_in_parts(EntryKind::Data.into(), extent, &payload, fua);
        }
        let whole = self.whole_physical(extent);
        if whole == extent {
            return self.bypass(extent, payload, fua);
        }
        self.bypass_with_edges(extent, whole, &payload, fua)
    }

    /// The whole physical sectors of `extent`. The medium would write other parts together with
    /// neighbours, and a torn write would damage those. If the write hole of an array with parity
    /// is closed, the whole stripes: a torn write of others would damage what shares their rows.
    pub(crate) fn whole_physical(&self, extent: Extent) -> Extent {
        let rows = self.rows_of_homes().filter(|_| !plant::is(Bug::RowEdgesNotLogged));
        let all = plant::is(Bug::EdgesNotLogged);
        let physical = if all { Sectors(1) } else { self.below.physical_sector };
        extent.narrowed_to(rows.map_or(physical, |array| array.stripe()))
    }

    fn bypass_with_edges(
        self: &Rc<Self>,
        extent: Extent,
        whole: Extent,
        payload: &Payload,
        fua: bool,
    ) -> Completion {
        let part = |part: Extent| payload.slice(Sectors(part.start.0 - extent.start.0), part.len);
        let mut parts = Vec::new();
        for edge in
            [Extent::between(extent.start, whole.start), Extent::between(whole.end(), extent.end())]
        {
            if !edge.is_empty() {
                // The rest of a stripe may be longer than a record.
                parts.push(match self.rows_of_homes() {
                    Some(_) => self.log_in_parts(EntryKind::Data.into(), edge, &part(edge), fua),
                    None => self.log_write(EntryKind::Data, edge, Some(part(edge)), fua),
                });
            }
        }
        if !whole.is_empty() {
            parts.push(self.bypass(whole, part(whole), fua));
        }
        self.join(parts)
    }

    /// Whether the write needs durability but no place.
    fn is_durable_only(&self, extent: Extent, hint: Hint) -> bool {
        let asked = hint == Hint::DurabilityOnly || self.config().durable_only.contains(extent);
        asked && self.engine.state.borrow().store.keeps()
    }

    /// Whether the write is over kept content: what replaces it goes home, whatever its length, so
    /// that metadata that leads there may follow.
    fn is_over_kept(&self, extent: Extent) -> bool {
        let state = self.engine.state.borrow();
        state.store.keeps() && {
            let mut parts = state.store.map().lookup(extent);
            parts.any(|(_, mapped)| mapped.is_some_and(|mapped| mapped.value.is_kept()))
        }
    }

    /// Logs a write of any length, which then stays in the logs.
    fn keep_write(self: &Rc<Self>, extent: Extent, payload: &Payload, fua: bool) -> Completion {
        if fua {
            self.device.sync_asked();
        }
        self.note_in_run(extent);
        self.log_in_parts(What::KEPT, extent, payload, fua)
    }

    fn log_in_parts(
        self: &Rc<Self>,
        what: What,
        extent: Extent,
        payload: &Payload,
        fua: bool,
    ) -> Completion {
        let step = self.config().threshold.0;
        let parts = (0..extent.len.0.div_ceil(step)).map(|i| {
            let start = Sectors(i * step);
            let len = Sectors(step.min(extent.len.0 - start.0));
            let part = Extent { start: extent.start + start, len };
            self.log_write(what, part, Some(payload.slice(start, len)), fua)
        });
        let parts = parts.collect();
        self.join(parts)
    }

    /// Completes when all parts have, with the first error if there is one.
    fn join(&self, parts: Vec<Completion>) -> Completion {
        let (completer, completion) = completion();
        self.engine.runtime.spawn(async move {
            let waited_for = if plant::is(Bug::PartsAnsweredEarly) { 1 } else { parts.len() };
            let result = all_done(parts.into_iter().take(waited_for)).await;
            completer.complete(result.map(|()| Payload::default()));
        });
        completion
    }

    /// Logs a version: data, or zeroes. With FUA it is answered when its record is durable. Else it
    /// is answered as soon as it is buffered, within the bound on volatile bytes.
    pub(crate) fn log_write(
        self: &Rc<Self>,
        what: impl Into<What>,
        extent: Extent,
        payload: Option<Payload>,
        fua: bool,
    ) -> Completion {
        let what = what.into();
        let mut state = self.engine.state.borrow_mut();
        if let Err(error) = state.admit_write(self.engine.runtime.now()) {
            return Completion::ready(Err(error));
        }
        let reserved = self.record_room(what.kind, extent);
        if state.starved.is_empty() && state.fits(reserved, self.engine.runtime.now()) {
            return self.buffer(&mut state, what, extent, payload, fua, reserved);
        }
        state.counters.starved_writes += 1;
        let mapped = state.store.map().overlaps(extent);
        let goes_home =
            !mapped && self.band() == Sectors(0) && self.whole_physical(extent) == extent;
        if goes_home && what.class == Class::DurabilityOnly {
            state.store.note_kept_home(extent.len);
        }
        drop(state);
        self.engine.wanted.notify();
        match payload {
            // The logs are full. A block without a logged version can go home at once. Not so on a
            // shingled drive, to which it would be a random write.
            Some(payload) if goes_home => self.bypass(extent, payload, fua),
            payload => self.buffer_when_there_is_room(what, extent, payload, fua),
        }
    }

    fn buffer_when_there_is_room(
        self: &Rc<Self>,
        what: What,
        extent: Extent,
        payload: Option<Payload>,
        fua: bool,
    ) -> Completion {
        let (completer, completion) = completion();
        let inner = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            let reserved = inner.record_room(what.kind, extent);
            let result = match inner.wait_for_room(reserved).await {
                Ok(()) => inner.buffer_now(what, extent, payload, fua).await,
                Err(error) => Err(error),
            };
            completer.complete(result);
        });
        completion
    }

    fn buffer_now(
        self: &Rc<Self>,
        what: What,
        extent: Extent,
        payload: Option<Payload>,
        fua: bool,
    ) -> Completion {
        let reserved = self.record_room(what.kind, extent);
        self.buffer(&mut self.engine.state.borrow_mut(), what, extent, payload, fua, reserved)
    }

    /// Resolves when there is room for a record that needs `needed`. The caller must reserve the
    /// room before it awaits again.
    pub(crate) async fn wait_for_room(&self, needed: Room) -> Result<(), IoError> {
        if !self.engine.state.borrow().store.logs().may_ever_take(needed.log) {
            let reason = "the logs that are in use are too short for such a record";
            return Err(IoError::ReadOnly { reason });
        }
        let place = self.engine.state.borrow_mut().starved.add(needed);
        self.device.set_pressed(true);
        let result = loop {
            let progress = self.engine.progress.wait();
            let rationed = {
                let mut state = self.engine.state.borrow_mut();
                if let Some(reason) = state.store.read_only() {
                    break Err(IoError::ReadOnly { reason });
                }
                // The request that has waited longest is served first from a ration. Else short
                // requests would leave nothing for long ones.
                let turn = state.ration.is_none() || state.starved.is_first(place);
                if turn && state.fits(needed, self.engine.runtime.now()) {
                    break Ok(());
                }
                if state.store.logs().all_retired() {
                    // No checkpoint makes room in failed logs.
                    break Err(IoError::ReadOnly { reason: "every log has failed" });
                }
                state.ration.is_some()
            };
            self.engine.wanted.notify();
            if rationed {
                self.engine.runtime.within(LOOK, progress).await;
            } else {
                progress.await;
            }
        };
        let mut state = self.engine.state.borrow_mut();
        state.starved.remove(place);
        self.device.set_pressed(!state.starved.is_empty());
        result
    }

    /// Buffers an entry for which there is room in the logs. It takes over the room `reserved`.
    pub(crate) fn buffer(
        self: &Rc<Self>,
        state: &mut State,
        what: impl Into<What>,
        extent: Extent,
        payload: Option<Payload>,
        fua: bool,
        reserved: Room,
    ) -> Completion {
        let What { kind, class } = what.into();
        let full = state.volatile_sectors() + extent.len.0 > self.config().buffer.0
            && kind == EntryKind::Data;
        let (waiter, answer) = if (fua || full) && !plant::is(Bug::AckBeforeRecord) {
            let (completer, completion) = completion();
            (Some(completer), completion)
        } else {
            (None, Completion::ready(Ok(Payload::default())))
        };
        let mut batch = Batch::of(kind, extent, payload);
        batch.entries[0].class = class;
        state.note_logged(batch.payload_sectors());
        if waiter.is_none() {
            self.arm_buffer_age(state);
        }
        if !state.store.waits_for_home() {
            // There is work for idle time again.
            self.engine.wanted.notify();
        }
        state.store.put(batch, reserved, waiter);
        self.wake_committer(state);
        answer
    }

    fn arm_buffer_age(self: &Rc<Self>, state: &mut State) {
        if state.store.entries().volatile_until.is_none() {
            let until = self.engine.runtime.now() + self.config().buffer_age;
            state.store.keep_volatile_until(until);
            let inner = Rc::clone(self);
            let sleep = self.engine.runtime.sleep_until(until);
            self.engine.runtime.spawn(async move {
                sleep.await;
                inner.engine.commit.notify();
            });
        }
    }
}
