//! Group commit: small writes that wait together share a record, in the log near the head.

use std::rc::Rc;

use manylogs_block::{Handle, Hint, IoError, IoResult, Nanos, Request, Sectors, Time, Watchers};
use manylogs_logstore::store::Choice;
use manylogs_logstore::{AppendSlot, EntryKind, Log, LogId, RecordSequence};

use crate::phase::Phase;
use crate::records::placement::{Filling, NearHead, Records};
use crate::settings::config::VolumeConfig;
use crate::state::{Inner, State};
use manylogs_logstore::store::apart::NvTable;

/// Interval at which records follow one another while the drive is busy: about a revolution.
const STAGGER: Nanos = Nanos::from_millis(10);
/// Logs are opened in the root no more often than this while others serve: each opening takes the
/// head across the disk and back.
const OPENINGS_APART: Nanos = Nanos::from_secs(2);
/// Upper bound of the number of records in flight.
const IN_FLIGHT_MAX: usize = 64;

/// Tasks that are kept for the next records: most of the time no more are in flight.
const RECORD_WATCHERS_KEPT: usize = 2;

/// Result of one step of the committer.
enum Step {
    /// A record is on its way.
    Submitted,
    /// Nothing to do, or nothing that may be done now.
    Nothing,
}

/// A record that the device has, and whose it is.
pub(crate) struct RecordUnderWay {
    inner: Rc<Inner>,
    log: LogId,
    sequence: RecordSequence,
}

/// Sees to it that records take effect when the device has answered.
pub(crate) fn record_watchers(runtime: &Handle) -> Watchers<RecordUnderWay> {
    Watchers::new(runtime.clone(), RECORD_WATCHERS_KEPT, |record: RecordUnderWay, result| {
        record.inner.record_ended(record.log, record.sequence, result);
    })
}

impl Inner {
    /// Writes records for as long as the volume is open.
    pub(crate) async fn run_committer(self: Rc<Self>) {
        loop {
            let signal = self.commit.wait();
            while let Step::Submitted = self.commit_one() {}
            self.look_again();
            if self.state.borrow().closed {
                return;
            }
            signal.await;
        }
    }

    fn commit_one(self: &Rc<Self>) -> Step {
        let mut state = self.state.borrow_mut();
        if !self.commit_is_due(&state) || self.holds(&mut state) {
            return Step::Nothing;
        }
        let Some(log) = self.choose_log(&mut state) else { return Step::Nothing };
        let slots = state.store.gather(log, self.config().record);
        let (sequence, slot) = state.store.append(log, slots);
        self.note_full(&mut state, log);
        state.pacing.last_append = self.runtime.now();
        state.pacing.last_log = Some(log);
        state.pacing.hold.goes();
        drop(state);
        self.submit_record(Phase::Append, log, sequence, slot);
        Step::Submitted
    }

    fn commit_is_due(&self, state: &State) -> bool {
        let Some(&first) = state.store.entries.pending.front() else { return false };
        let forced = state
            .store
            .entries
            .force
            .is_some_and(|force| state.store.entries.slots.get(first).ticket <= force);
        let aged =
            state.store.entries.volatile_until.is_some_and(|until| self.runtime.now() >= until);
        let large = state.store.entries.volatile_sectors >= self.config().buffer.0 / 2;
        state.store.read_only.is_none()
            && self.may_append(state)
            && (state.store.entries.waiters > 0 || forced || aged || large)
    }

    /// Whether the record that is due waits for others to share it.
    fn holds(self: &Rc<Self>, state: &mut State) -> bool {
        let VolumeConfig { hold, buffer, .. } = self.config();
        if state.entries_press(buffer) {
            return false;
        }
        let entries = &state.store.entries;
        let waiters = entries.waiters + state.flushes.len();
        let Some(until) = state.pacing.hold.until(self.runtime.now(), hold, waiters) else {
            return false;
        };
        if state.pacing.hold_armed != Some(until) {
            state.pacing.hold_armed = Some(until);
            let (inner, sleep) = (Rc::clone(self), self.runtime.sleep_until(until));
            self.runtime.spawn(async move {
                sleep.await;
                inner.commit.notify();
            });
        }
        true
    }

    /// A log above the swap threshold, or logs above the watermark, are work for idle time. Where
    /// logs are filled one after the other, wherever the head is, nothing is gained by a swap.
    fn note_full(&self, state: &mut State, id: LogId) {
        let Some(log) = state.store.logs.get(id) else { return };
        let full = log.used().0 as f64 > self.config().swap * log.region().len.0 as f64
            && self.config().band == Sectors(0);
        let crowded = state.store.apart.as_ref().is_some_and(NvTable::is_crowded);
        let full = full && state.store.noted.insert(id);
        if full || crowded || state.store.logs.occupancy() >= self.config().watermark {
            self.wanted.notify();
        }
    }

    /// Holding a record back is worth it while the drive is about to finish another. When it is
    /// busy for longer than that with other requests, records follow one another at intervals: in
    /// the queue each is only one request among many.
    fn may_append(&self, state: &State) -> bool {
        if state.pacing.held_by_band {
            return false;
        }
        if self.rests(state).is_some() {
            return false;
        }
        let in_flight = state.store.entries.records.len();
        in_flight < self.config().appends
            || (in_flight < IN_FLIGHT_MAX
                && self.runtime.now().since(state.pacing.last_append) >= STAGGER)
    }

    /// Until when no record goes so that a database's reads have their time. Where the device
    /// flushes for each record, it drains its queue for that: records go one by one, and the others
    /// have as much time as the record before. Those who wait share the next one.
    fn rests(&self, state: &State) -> Option<Time> {
        let drains = self.below.volatile_cache && !self.below.native_fua;
        let pressed = state.entries_press(self.config().buffer);
        if !drains || pressed || !self.device.serves_database() {
            return None;
        }
        let now = self.runtime.now();
        if state.store.entries.records.is_empty() {
            state.pacing.rest.until(now)
        } else {
            Some(now + STAGGER)
        }
    }

    /// Wakes the committer if it would do anything: submit a record, or set the timer for the next.
    /// Most entries come, and most records end, while it cannot do either.
    pub(crate) fn wake_committer(&self, state: &State) {
        let has_work = if self.may_append(state) {
            self.commit_is_due(state)
        } else {
            self.is_held_back(state) && !state.pacing.stagger_armed
        };
        if has_work {
            self.commit.notify();
        }
    }

    /// Whether entries wait for a record only because records are in flight.
    fn is_held_back(&self, state: &State) -> bool {
        !state.pacing.held_by_band
            && !state.store.entries.pending.is_empty()
            && state.store.entries.records.len() < IN_FLIGHT_MAX
            && !self.may_append(state)
    }

    /// Looks again when the next record need not be held back any longer.
    fn look_again(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        if self.is_held_back(&state) && !state.pacing.stagger_armed {
            state.pacing.stagger_armed = true;
            let until = self.rests(&state).unwrap_or(state.pacing.last_append + STAGGER);
            let (inner, sleep) = (Rc::clone(self), self.runtime.sleep_until(until));
            self.runtime.spawn(async move {
                sleep.await;
                inner.state.borrow_mut().pacing.stagger_armed = false;
                inner.commit.notify();
            });
        }
    }

    /// The log for the next record. While a record is on its way, the next goes behind it: the
    /// drive writes both in one pass, wherever its queue takes the head in between.
    fn choose_log(&self, state: &mut State) -> Option<LogId> {
        let head = self.logs_near.get().unwrap_or_else(|| self.device.head(state.head));
        let records = if self.config().band > Sectors(0) {
            Records::Filling(Filling { last: state.pacing.last_log, head })
        } else {
            Records::NearHead(NearHead { head })
        };
        if let Some(log) = state.store.log_in_use() {
            return Some(log);
        }
        let (log, unopened) = match state.store.choose_log(&records)? {
            Choice::Log { log, unopened } => (Some(log), unopened),
            Choice::Open(log) => (None, Some(log)),
            Choice::Wait => (None, None),
            Choice::Nowhere => {
                // Room is reserved before an entry is queued, so only failed logs lead here.
                state.store.fail("no log accepts records any more");
                self.progress.notify();
                (None, None)
            }
        };
        // Another log serves meanwhile, as one opening alone is not worth a write of the root.
        let now = self.runtime.now();
        let soon = self.config().latency > Nanos(0)
            && log.is_some()
            && now.since(state.pacing.last_opening) < OPENINGS_APART;
        if unopened.is_some() && !soon {
            state.pacing.last_opening = now;
            state.store.unopened = unopened;
            self.log_wanted.notify();
        }
        log
    }

    /// Begins an epoch in `log`, where that must be durable before entries follow: resolves when
    /// they may.
    pub(crate) async fn begin_epoch(self: &Rc<Self>, log: LogId) {
        let begun = self.state.borrow_mut().store.begin_epoch(log);
        let Some((sequence, slot)) = begun else { return };
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
            // The record consists of its header.
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
        let record = RecordUnderWay { inner: Rc::clone(self), log, sequence };
        self.record_watchers.watch(written, record);
    }

    /// The device has answered to a record.
    fn record_ended(&self, log: LogId, sequence: RecordSequence, result: IoResult) {
        self.state.borrow_mut().pacing.record_ended(self.runtime.now());
        match result {
            Ok(_) => self.record_written(log, sequence),
            Err(error) => self.record_failed(log, sequence, &error),
        }
        self.progress.notify();
        self.wake_committer(&self.state.borrow());
    }

    /// Phase of a record, if it differs from that which records `usually` have.
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
        self.state.borrow_mut().store.record_written(log, sequence);
    }

    /// The log is out of use. Entries on their way to it are appended elsewhere.
    fn record_failed(&self, log: LogId, sequence: RecordSequence, error: &IoError) {
        let mut state = self.state.borrow_mut();
        let store = &mut state.store;
        store.record_failed(log, sequence);
        match error {
            // Only this log's sectors are bad, so other logs serve. The root is updated in the
            // background.
            error if error.is_local() => self.log_wanted.notify(),
            error => store.fail_for(error, "records cannot be written"),
        }
        if let Some(reason) = store.read_only {
            // The entries of this record have no log to go to.
            store.fail(reason);
        }
    }
}
