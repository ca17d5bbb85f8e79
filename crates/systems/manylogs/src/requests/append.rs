//! Batches that an owner of the volume appends: each goes into one record, as a whole.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, IoError, Payload, Sectors, completion};
use manylogs_logstore::store::{Batch, Place};

use crate::records::commit::LOOK;
use crate::records::largest::{batch_room, longest_batch};
use crate::state::{Inner, State};
use crate::volume::Volume;
use manylogs_plant::{self as plant, Bug};

impl Volume {
    /// Appends the batch's entries, all of them in one record, to the log nearest the head. The
    /// batch is answered when they are durable; reads see them at once. After a crash, batches of
    /// one [`manylogs_logstore::store::Stream`] are found in the order of their calls, without a
    /// gap. A batch without room waits until a checkpoint has made some.
    ///
    /// Zeroes and supersede entries are taken unchecked: a caller that supersedes a range must not
    /// need its older versions any more.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] if no record can take the batch, [`IoError::OutOfRange`], and
    /// [`IoError::ReadOnly`] after a failure: then all of the entries may survive a crash, or none.
    pub fn append(&self, batch: Batch) -> Completion {
        let inner = self.shared();
        let reaches_out =
            |extent: Extent| extent.is_empty() || extent.end().0 > inner.layout.capacity().0;
        if let Some(entry) = batch.entries.iter().find(|entry| reaches_out(entry.extent)) {
            let (extent, capacity) = (entry.extent, inner.layout.capacity());
            return Completion::ready(Err(IoError::OutOfRange { extent, capacity }));
        }
        let in_hole = batch.entries.iter().any(|entry| inner.layout.is_hole(entry.extent));
        // Independent of the present settings, because a batch may have grown under other ones.
        let longest = match plant::is(Bug::NearLongerBatchRefused) {
            true => inner.config().record,
            false => longest_batch(&inner.config(), &inner.layout, inner.shape),
        };
        let too_long = batch.payload_sectors() > longest;
        if in_hole || too_long || !batch.is_possible() {
            return Completion::ready(Err(IoError::Unsupported));
        }
        inner.append(batch)
    }

    /// Resolves when records need not wait for other requests on the device: see
    /// [`VolumeConfig::latency`](crate::VolumeConfig::latency). A caller that could add to its
    /// batch meanwhile should await this first.
    pub async fn record_turn(&self) {
        let inner = self.shared();
        loop {
            let rests = inner.rests(&inner.engine.state.borrow());
            let Some(until) = rests else { return };
            let now = inner.engine.runtime.now();
            inner.engine.runtime.sleep_until(until.min(now + LOOK)).await;
        }
    }

    /// Resolves when there is room for a batch with this many entries and this much payload.
    /// [`Volume::has_room`] is then true unless another caller took the room.
    ///
    /// # Errors
    /// [`IoError::ReadOnly`] if there will never be room.
    pub async fn make_room(&self, entries: usize, payload: Sectors) -> Result<(), IoError> {
        let needed = batch_room(entries, payload, self.shared().shape);
        self.shared().wait_for_room(needed).await
    }

    /// Whether batches with this many entries and this much payload in total fit the logs now.
    /// Requests that wait for more room do not count: else two callers that wait and ask again
    /// would wait for each other.
    #[must_use]
    pub fn has_room(&self, entries: usize, payload: Sectors) -> bool {
        let needed = batch_room(entries, payload, self.shared().shape);
        self.shared().engine.state.borrow_mut().store.fits(needed)
    }

    /// The parts of `extent` whose newest version is logged, or on its way into a log, and not at
    /// home.
    #[must_use]
    pub fn logged(&self, extent: Extent) -> Vec<Extent> {
        let state = self.shared().engine.state.borrow();
        let parts = state.store.map().lookup(extent);
        parts.filter(|(_, mapped)| mapped.is_some()).map(|(part, _)| part).collect()
    }

    /// The parts of `extent` whose newest version is kept in the logs, and durable there: see
    /// [`Volume::keep_versions`]. Metadata that is kept for its own sake does not count.
    #[must_use]
    pub fn kept(&self, extent: Extent) -> Vec<Extent> {
        let state = self.shared().engine.state.borrow();
        let parts = state.store.map().lookup(extent);
        let is_kept = |place: Place| place.is_kept() && !place.is_kept_metadata();
        let kept = parts.filter(|(_, mapped)| mapped.is_some_and(|found| is_kept(found.value)));
        kept.map(|(part, _)| part).collect()
    }
}

impl Inner {
    fn append(self: &Rc<Self>, batch: Batch) -> Completion {
        let mut state = self.engine.state.borrow_mut();
        if state.closing {
            return Completion::ready(Err(IoError::Gone));
        }
        if let Err(error) = state.admit_write(self.engine.runtime.now()) {
            return Completion::ready(Err(error));
        }
        let reserved = state.store.room_of(&batch);
        if state.starved.is_empty() && state.fits(reserved, self.engine.runtime.now()) {
            return self.put(&mut state, batch);
        }
        state.counters.starved_writes += 1;
        drop(state);
        self.engine.wanted.notify();
        let (completer, completion) = completion();
        let inner = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            let result = match inner.wait_for_room(reserved).await {
                Ok(()) => {
                    let put = inner.put(&mut inner.engine.state.borrow_mut(), batch);
                    put.await
                }
                Err(error) => Err(error),
            };
            completer.complete(result);
        });
        completion
    }

    /// Queues a batch for which there is room.
    fn put(self: &Rc<Self>, state: &mut State, batch: Batch) -> Completion {
        let (completer, completion) = completion();
        state.note_logged(batch.payload_sectors());
        if !state.store.waits_for_home() {
            // There is work for idle time again.
            self.engine.wanted.notify();
        }
        let reserved = state.store.room_of(&batch);
        let early = plant::is(Bug::AckBeforeRecord);
        let waiter = if early { None } else { Some(completer) };
        state.store.put(batch, reserved, waiter);
        self.wake_committer(state);
        if early { Completion::ready(Ok(Payload::default())) } else { completion }
    }
}
