//! Group commit: small writes that wait together share a record, in the log near the head.

use std::rc::Rc;

use manylogs_block::{Hint, IoError, Nanos, Payload, Request, Sectors};
use manylogs_logstore::{
    AppendOf, AppendSlot, EntryKind, Log, LogId, MAX_ENTRIES, RecordSequence, RecordShape,
};

use crate::nvram::NvTable;
use crate::phase::Phase;
use crate::state::{Inner, State};
use crate::store::{InFlightRecord, SlotId};
use manylogs_plant::{self as plant, Bug};

/// Interval at which records follow one another while the drive is busy: about a revolution.
const STAGGER: Nanos = Nanos::from_millis(10);
/// Records in flight at most, whatever happens.
const IN_FLIGHT_MAX: usize = 64;

/// What one turn of the committer came to.
enum Turned {
    /// A record is on its way.
    Submitted,
    /// Nothing to do, or nothing that may be done now.
    Nothing,
}

impl Inner {
    /// Writes records for as long as the volume is open.
    pub(crate) async fn run_committer(self: Rc<Self>) {
        loop {
            let signal = self.commit.wait();
            while let Turned::Submitted = self.commit_one() {}
            self.look_again();
            if self.state.borrow().closed {
                return;
            }
            signal.await;
        }
    }

    fn commit_one(self: &Rc<Self>) -> Turned {
        let mut state = self.state.borrow_mut();
        if !self.commit_is_due(&state) {
            return Turned::Nothing;
        }
        let Some(log) = self.choose_log(&mut state) else { return Turned::Nothing };
        let slots = self.gather(&mut state, log);
        let (sequence, slot) = self.append(&mut state, log, slots);
        self.note_full(&mut state, log);
        state.last_append = self.runtime.now();
        drop(state);
        self.submit_record(Phase::Append, log, sequence, slot);
        Turned::Submitted
    }

    fn commit_is_due(&self, state: &State) -> bool {
        let Some(&first) = state.store.pending.front() else { return false };
        let forced =
            state.store.force.is_some_and(|force| state.store.slots.get(first).ticket <= force);
        let aged = state.store.volatile_until.is_some_and(|until| self.runtime.now() >= until);
        let large = state.store.volatile >= self.config().buffer.0 / 2;
        state.store.read_only.is_none()
            && self.may_append(state)
            && (state.store.pending_waiters > 0 || forced || aged || large)
    }

    /// A log above the swap threshold, or logs above the watermark, are work for idle time.
    fn note_full(&self, state: &mut State, id: LogId) {
        let Some(log) = state.store.logs.get(id) else { return };
        let full = log.used().0 as f64 > self.config().swap * log.region().len.0 as f64;
        let crowded = state.store.nvram.as_ref().is_some_and(NvTable::is_crowded);
        let full = full && state.store.noted.insert(id);
        if full || crowded || state.store.logs.occupancy() >= self.config().watermark {
            self.wanted.notify();
        }
    }

    /// Holding a record back is worth it while the drive is about to finish another. When it is
    /// busy for longer than that with other requests, records follow one another at intervals: in
    /// the queue each is only one request among many.
    fn may_append(&self, state: &State) -> bool {
        let in_flight = state.store.records.len();
        in_flight < self.config().appends
            || (in_flight < IN_FLIGHT_MAX && self.runtime.now().since(state.last_append) >= STAGGER)
    }

    /// Looks again when the next record need not be held back any longer.
    fn look_again(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        let held_back =
            !state.store.pending.is_empty() && state.store.records.len() < IN_FLIGHT_MAX;
        if held_back && !self.may_append(&state) && !state.stagger_armed {
            state.stagger_armed = true;
            let (inner, sleep) =
                (Rc::clone(self), self.runtime.sleep_until(state.last_append + STAGGER));
            self.runtime.spawn(async move {
                sleep.await;
                inner.state.borrow_mut().stagger_armed = false;
                inner.commit.notify();
            });
        }
    }

    /// While a record is on its way, the next goes behind it: the drive writes both in one pass,
    /// wherever its queue takes the head in between.
    fn log_in_use(state: &State) -> Option<LogId> {
        let (_, record) = state.store.records.last_key_value()?;
        let first = state.store.slots.get(*state.store.pending.front()?);
        let log = state.store.logs.get(record.log)?;
        (state.store.logs.is_open(record.log)
            && log.accepts(first.reserved.log)
            && state.store.is_ready(record.log))
        .then_some(record.log)
    }

    fn choose_log(&self, state: &mut State) -> Option<LogId> {
        if let Some(log) = Self::log_in_use(state) {
            return Some(log);
        }
        let needed = state.store.slots.get(*state.store.pending.front()?).reserved.log;
        let nearest = state.store.logs.nearest_for(state.head, needed, |_| true);
        let ready = match nearest {
            Some(log) if state.store.is_ready(log) => nearest,
            _ => state.store.logs.nearest_for(state.head, needed, |log| state.store.is_ready(log)),
        };
        if nearest.is_none() {
            // Room is reserved before an entry is queued, so only failed logs lead here.
            state.store.fail("no log accepts records any more");
            self.progress.notify();
            return None;
        }
        if nearest != ready {
            state.store.unopened = nearest;
            self.log_wanted.notify();
        }
        ready
    }

    /// Takes as many pending slots as fit in one record of `log`.
    fn gather(&self, state: &mut State, log: LogId) -> Vec<SlotId> {
        let free =
            state.store.logs.get(log).map_or(state.store.logs.region(log).len, |log| log.free());
        let longest = self.config().record.0;
        let mut size = RecordSize::default();
        let mut slots = Vec::new();
        while let Some(&id) = state.store.pending.front() {
            let slot = state.store.slots.get(id);
            let (reserved, waits) = (slot.reserved, slot.waiter.is_some());
            let next = size.with(slot.entry.payload_sectors());
            let fits = next.record_len(self.shape) <= free
                && next.payload <= longest
                && slots.len() < MAX_ENTRIES;
            if !fits && !slots.is_empty() {
                break;
            }
            size = next;
            state.store.pending.pop_front();
            // The record takes the room that was set aside.
            state.store.reserved -= reserved;
            state.store.pending_waiters -= usize::from(waits);
            slots.push(id);
        }
        if state.store.pending.is_empty() {
            state.store.volatile_until = None;
        }
        slots
    }

    /// Puts the slots' entries behind the last record of `log`.
    pub(crate) fn append(
        &self,
        state: &mut State,
        log: LogId,
        slots: Vec<SlotId>,
    ) -> (RecordSequence, AppendSlot) {
        let of = self.next_record(state, log);
        let sequence = of.sequence;
        let entries = slots.iter().map(|id| state.store.slots.get(*id).entry).collect();
        let payloads: Vec<Payload> =
            slots.iter().filter_map(|id| state.store.slots.get(*id).payload.clone()).collect();
        let slot = state.store.logs.with(log, |log| log.append(&of, entries, payloads));
        let supersedes =
            slot.record.entries.iter().filter(|e| e.kind == EntryKind::Supersede).count();
        state.store.counters.supersedes += supersedes as u64;
        state.store.counters.records += 1;
        state.store.counters.record_sectors += slot.target.len.0;
        let offsets = slot.offsets.clone();
        let header = state.store.header_apart(&slot.record);
        state.store.records.insert(sequence, InFlightRecord { log, slots, offsets, header });
        if plant::is(Bug::NvramBeforePayload) {
            state.store.journal(&[sequence]);
        }
        (sequence, slot)
    }

    /// What the next record, to `log`, says of itself; a snapshot under way learns of the log.
    fn next_record(&self, state: &mut State, log: LogId) -> AppendOf {
        if let Some(touched) = &mut state.store.capturing
            && !plant::is(Bug::SnapshotMissesLog)
        {
            touched.add(log);
        }
        let sequence = state.store.next_record;
        state.store.next_record = sequence.next();
        let (floor, next_data) = (state.store.root.floor, state.store.next_data);
        AppendOf { volume: self.volume, sequence, floor, next_data }
    }

    /// Begins an epoch in `log`, where that must be durable before entries follow: resolves when
    /// they may.
    pub(crate) async fn begin_epoch(self: &Rc<Self>, log: LogId) {
        let (sequence, slot) = {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            let floor = state.store.root.floor;
            let begun = |log: &Log| log.used().0 > 0 || log.is_begun(floor) || log.is_retired();
            if state.store.logs.get(log).is_none_or(begun) {
                return;
            }
            let of = self.next_record(state, log);
            (of.sequence, state.store.logs.with(log, |log| log.begin(&of)))
        };
        let write = Request::write_fua(slot.target, slot.payload);
        match self.device.submit(Phase::Reset, write).await {
            Ok(_) => self.record_written(log, sequence),
            Err(error) => self.record_failed(log, sequence, &error),
        }
    }

    /// Writes the record; its entries take effect when it and all before it in the log are durable.
    pub(crate) fn submit_record(
        self: &Rc<Self>,
        usually: Phase,
        log: LogId,
        sequence: RecordSequence,
        slot: AppendSlot,
    ) {
        if slot.target.is_empty() {
            // Its header is all there is.
            self.record_written(log, sequence);
            self.notify_progress();
            return;
        }
        let phase = self.phase_of(usually, &slot);
        let write = Request::Write {
            extent: slot.target,
            payload: slot.payload,
            fua: true,
            hint: Hint::None,
        };
        let written = self.device.submit(phase, write);
        let inner = Rc::clone(self);
        self.runtime.spawn(async move {
            match written.await {
                Ok(_) => inner.record_written(log, sequence),
                Err(error) => inner.record_failed(log, sequence, &error),
            }
            inner.notify_progress();
        });
    }

    /// What a record is for, if it is not what records `usually` are for.
    fn phase_of(&self, usually: Phase, slot: &AppendSlot) -> Phase {
        let header = &slot.record.header;
        let begins = header.offset.0 == 0;
        if begins && self.state.borrow().store.logs.get(header.log).is_some_and(Log::was_reset) {
            return Phase::Reset;
        }
        let special = slot.record.entries.iter().find(|entry| entry.kind != EntryKind::Data);
        match (usually, special.map(|entry| entry.kind)) {
            (Phase::Append, Some(EntryKind::Supersede)) => Phase::Supersede,
            (Phase::Append, Some(_)) => Phase::Discard,
            (usually, _) => usually,
        }
    }

    fn record_written(&self, log: LogId, sequence: RecordSequence) {
        let mut state = self.state.borrow_mut();
        let durable = state.store.logs.with(log, |log| log.finish_append(sequence));
        if plant::is(Bug::AckPastHole) {
            state.store.settle_record(sequence);
        }
        if state.store.journal(&durable) {
            for sequence in durable {
                state.store.settle_record(sequence);
            }
        }
        state.store.reset_what_can_be();
    }

    /// The log is out of use; what was on its way there is appended elsewhere.
    fn record_failed(&self, log: LogId, sequence: RecordSequence, error: &IoError) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let void = state.store.logs.with(log, |log| log.fail_append(sequence));
        for sequence in void {
            if plant::is(Bug::FailedRecordSettled) {
                state.store.settle_record(sequence);
                continue;
            }
            let Some(record) = state.store.records.remove(&sequence) else { continue };
            state.store.drop_header(&record.header);
            for id in record.slots {
                let slot = state.store.slots.get(id);
                state.store.reserved += slot.reserved;
                // Whether or not somebody waits, this was due once.
                state.store.force = state.store.force.max(Some(slot.ticket));
                state.store.line_up(id);
            }
        }
        match error {
            // One log's sectors: others will do. The root is told in the background.
            error if error.is_local() => self.log_wanted.notify(),
            error => state.store.fail_for(error, "records cannot be written"),
        }
        if let Some(reason) = state.store.read_only {
            // What came back from this record has nowhere to go.
            state.store.fail(reason);
        }
    }
}

/// The length of a record as it grows entry by entry.
#[derive(Clone, Copy, Debug, Default)]
struct RecordSize {
    entries: usize,
    units: u64,
    payload: u64,
}

impl RecordSize {
    fn with(self, payload: Sectors) -> Self {
        Self {
            entries: self.entries + 1,
            units: self.units + payload.0.div_ceil(8),
            payload: self.payload + payload.0,
        }
    }

    fn record_len(self, shape: RecordShape) -> Sectors {
        shape.len_of(self.entries, self.units, Sectors(self.payload)).1
    }
}
