//! When and where a record goes: small writes that wait together share one, in the log near the
//! head. The engine writes it.

use std::rc::Rc;

use manylogs_block::{Nanos, Sectors, Time};
use manylogs_logstore::LogId;

use crate::records::hold::ENOUGH;
use crate::records::own::Own;
use crate::records::placement::{Filling, NearHead, OnColumns, Records};
use crate::settings::config::VolumeConfig;
use crate::state::{Inner, State};
use manylogs_plant::{self as plant, Bug};

/// Interval between records while the drive is busy: about a revolution.
const STAGGER: Nanos = Nanos::from_millis(10);
/// While records rest, this is the pause between two checks whether they still must.
pub(crate) const LOOK: Nanos = Nanos::from_millis(2);
/// Least time between two openings of logs while other logs serve: each opening moves the head
/// across the disk and back.
const OPENINGS_APART: Nanos = Nanos::from_secs(2);
/// Upper bound of the number of records in flight.
const IN_FLIGHT_MAX: usize = 64;

impl Inner {
    /// Whether the next record goes now.
    pub(crate) fn record_goes(self: &Rc<Self>, state: &mut State) -> bool {
        self.commit_is_due(state) && !self.holds(state)
    }

    /// Notes that a record goes to `log`.
    pub(crate) fn record_went(&self, state: &mut State, log: LogId) {
        self.note_full(state, log);
        let (column, now) = (self.column_of(state, log), self.engine.runtime.now());
        state.columns.record_went(column, now);
        state.pacing.last_append = now;
        state.pacing.last_log = Some(log);
        state.pacing.hold.goes();
    }

    fn commit_is_due(&self, state: &State) -> bool {
        let Some(&first) = state.store.entries().pending.front() else { return false };
        let forced = state
            .store
            .entries()
            .force
            .is_some_and(|force| state.store.entries().slots.get(first).ticket <= force);
        let aged = state
            .store
            .entries()
            .volatile_until
            .is_some_and(|until| self.engine.runtime.now() >= until);
        let large = state.store.entries().volatile_sectors >= self.config().buffer.0 / 2;
        state.store.read_only().is_none()
            && self.may_append(state)
            && (state.store.entries().waiters > 0 || forced || aged || large)
    }

    /// Whether the record that is due waits for other writes to share it.
    fn holds(self: &Rc<Self>, state: &mut State) -> bool {
        let VolumeConfig { hold, buffer, .. } = self.config();
        if state.entries_press(buffer) {
            return false;
        }
        let entries = state.store.entries();
        let waiters = entries.waiters + state.flushes.len();
        let Some(until) = state.pacing.hold.until(self.engine.runtime.now(), hold, waiters) else {
            return false;
        };
        if state.pacing.hold_armed != Some(until) {
            state.pacing.hold_armed = Some(until);
            let (inner, sleep) = (Rc::clone(self), self.engine.runtime.sleep_until(until));
            self.engine.runtime.spawn(async move {
                sleep.await;
                inner.engine.commit.notify();
            });
        }
        true
    }

    /// Notes work for idle time: a log above the swap threshold, or logs above the watermark. If
    /// logs are filled one after the other, independent of the head, a swap gains nothing.
    fn note_full(&self, state: &mut State, id: LogId) {
        let Some(log) = state.store.logs().get(id) else { return };
        let full = log.used().0 as f64 > self.config().swap * log.region().len.0 as f64
            && self.config().band == Sectors(0);
        let crowded = state.store.is_table_crowded();
        let full = full && state.full.insert(log);
        if full || crowded || state.store.logs().occupancy() >= self.config().watermark {
            self.engine.wanted.notify();
        }
    }

    /// Whether another record may be appended now. Holding it back pays while the drive is about to
    /// finish the last one. If the drive is busy for longer than that with other requests, records
    /// go at intervals: in the queue each is only one request among many.
    fn may_append(&self, state: &State) -> bool {
        if state.pacing.held_by_band {
            return false;
        }
        if self.rests(state).is_some() {
            return false;
        }
        let in_flight = state.store.entries().records.len();
        in_flight < self.config().appends * state.columns.count()
            || (in_flight < IN_FLIGHT_MAX
                && self.engine.runtime.now().since(state.pacing.last_append) >= STAGGER)
    }

    /// The time before which no record goes, so that other requests get their share. Clients that
    /// wait meanwhile share the next record.
    ///
    /// Beside lasting streams, records for few clients take at most about a third of the time.
    /// Other devices flush for each record and drain their queue for that, including streams.
    /// Beside a database records go one by one there, and its reads then get as much time as the
    /// last record took.
    pub(crate) fn rests(&self, state: &State) -> Option<Time> {
        if state.entries_press(self.config().buffer) {
            return None;
        }
        let now = self.engine.runtime.now();
        let drains = self.below.volatile_cache && !self.below.native_fua;
        if !drains {
            let waiters = state.store.entries().waiters + state.flushes.len();
            let few = waiters < ENOUGH && !plant::is(Bug::RecordsStarveStreams);
            let streams = few && self.device.serves_stream();
            let rests = || match state.columns.count() {
                1 => state.pacing.share.until(now),
                _ => state.columns.rests_until(now),
            };
            return streams.then(rests).flatten();
        }
        if !self.device.serves_database() {
            return None;
        }
        if state.store.entries().records.is_empty() {
            state.pacing.rest.until(now)
        } else {
            Some(now + STAGGER)
        }
    }

    /// Wakes the committer if it has work: submitting a record, or setting the timer for the next.
    /// Most entries arrive, and most records end, when it has none.
    pub(crate) fn wake_committer(&self, state: &State) {
        let has_work = if self.may_append(state) {
            self.commit_is_due(state)
        } else {
            self.is_held_back(state) && !state.pacing.stagger_armed
        };
        if has_work {
            self.engine.commit.notify();
        }
    }

    /// Whether entries wait for a record only because records are in flight.
    fn is_held_back(&self, state: &State) -> bool {
        !state.pacing.held_by_band
            && !state.store.entries().pending.is_empty()
            && state.store.entries().records.len() < IN_FLIGHT_MAX
            && !self.may_append(state)
    }

    /// Sets a timer to look again, if records are held back.
    pub(crate) fn look_again(self: &Rc<Self>) {
        let mut state = self.engine.state.borrow_mut();
        if self.is_held_back(&state) && !state.pacing.stagger_armed {
            state.pacing.stagger_armed = true;
            let rested = state.pacing.last_append + STAGGER;
            // The requests for which records rest may end before that.
            let look = self.engine.runtime.now() + LOOK;
            let until = self.rests(&state).map_or(rested, |until| until.min(look));
            let (inner, sleep) = (Rc::clone(self), self.engine.runtime.sleep_until(until));
            self.engine.runtime.spawn(async move {
                sleep.await;
                inner.engine.state.borrow_mut().pacing.stagger_armed = false;
                inner.engine.commit.notify();
            });
        }
    }

    /// The placement policy by the settings, with the present head.
    pub(crate) fn placement(&self, state: &State) -> Records {
        let head = self.logs_near.get().unwrap_or_else(|| self.device.head());
        if let Some(policy) = self.own.get() {
            Records::Own(Own { policy: Rc::clone(policy), head })
        } else if self.config().band > Sectors(0) {
            Records::Filling(Filling { last: state.pacing.last_log, head })
        } else if state.columns.count() > 1 {
            let (order, fast) = state.columns.by_disturbance(self.engine.runtime.now());
            let near = self.logs_near.get();
            let head = |column: usize| near.unwrap_or_else(|| self.device.head_of(column));
            let order = order.into_iter().map(|column| (column, head(column))).collect();
            Records::OnColumns(OnColumns { order, fast })
        } else {
            Records::NearHead(NearHead { head })
        }
    }

    /// The column of a log; 0 if the device is one drive. Each region holds one log for each
    /// column.
    pub(crate) fn column_of(&self, state: &State, log: LogId) -> usize {
        log.0 as usize % state.columns.count()
    }

    /// Whether a log may be opened now. If another log serves meanwhile, a write of the root for
    /// one opening is not worth while too often.
    pub(crate) fn may_open_now(&self, state: &mut State, serves: bool) -> bool {
        let now = self.engine.runtime.now();
        let soon = self.config().latency > Nanos(0)
            && serves
            && now.since(state.pacing.last_opening) < OPENINGS_APART;
        if !soon {
            state.pacing.last_opening = now;
        }
        !soon
    }
}
