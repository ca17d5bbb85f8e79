//! Small writes that continue a run, and for which no client waits, go home together. In a log they
//! would only fill it, and a checkpoint would write them a second time. The slides of the Manylogs
//! paper also leave sequential small writes alone.
//!
//! Like other writes without FUA, such a write is answered when it is in memory, and counts in the
//! same bound. It is a version bound for home. Reads see it; a flush makes it logged, and so does
//! an obstacle on its way home. Blocks with older logged versions cannot go this way, because the
//! older version would survive in its log.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, Lba, Payload, Sectors, Time, all_done, completion};
use manylogs_engine::Phase;
use manylogs_logstore::EntryKind;
use manylogs_logstore::store::SlotId;
use manylogs_plant::{self as plant, Bug};

use crate::requests::home_lock::{HomeGuard, Writer};
use crate::state::{Inner, State};

/// Number of runs that are followed at a time.
const FOLLOWED: usize = 8;
/// Home writes of runs that are under way together: with only one, the device would idle between
/// two.
const UNDER_WAY_MAX: usize = 2;

/// A run: writes one behind the other.
#[derive(Debug)]
struct Run {
    /// Address at which the next write must begin to continue the run.
    end: Lba,
    len: Sectors,
    /// Writes of the run that wait to go home, oldest first; they are neighbours.
    gathered: Vec<SlotId>,
    /// The extent that they cover together.
    extent: Extent,
    /// Arrival of the oldest of them.
    since: Time,
}

/// The runs that clients write.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The followed runs; the one continued last stands last.
    followed: Vec<Run>,
    /// Sectors that wait to go home or are on their way there.
    sectors: u64,
    /// Home writes under way, by number, in order.
    under_way: Vec<u64>,
    /// Number of home writes begun.
    begun: u64,
    /// Whether a timer is set for the oldest waiting write.
    is_timer_set: bool,
}

impl Runs {
    /// Notes that a client writes `extent`. Returns the length of the run that it continues.
    fn note(&mut self, extent: Extent) -> Sectors {
        if let Some(at) = self.followed.iter().position(|run| run.end == extent.start) {
            let mut run = self.followed.remove(at);
            let before = run.len;
            (run.end, run.len) = (extent.end(), run.len + extent.len);
            self.followed.push(run);
            return before;
        }
        if self.followed.len() == FOLLOWED {
            let Some(idle) = self.followed.iter().position(|run| run.gathered.is_empty()) else {
                return Sectors(0);
            };
            self.followed.remove(idle);
        }
        self.followed.push(Run {
            end: extent.end(),
            len: extent.len,
            gathered: Vec::new(),
            extent: Extent::between(extent.end(), extent.end()),
            since: Time::default(),
        });
        Sectors(0)
    }

    /// Adds the write noted last to those that wait to go home. Returns waiting writes of its run
    /// that do not border on it, because a write between them had to be logged.
    fn gather(&mut self, extent: Extent, id: SlotId, now: Time) -> Vec<SlotId> {
        let Some(run) = self.followed.last_mut() else { return vec![id] };
        let borders = run.extent.end() == extent.start;
        let apart = if borders { Vec::new() } else { std::mem::take(&mut run.gathered) };
        if run.gathered.is_empty() {
            (run.since, run.extent) = (now, extent);
        } else {
            run.extent = Extent::between(run.extent.start, extent.end());
        }
        run.gathered.push(id);
        self.sectors += extent.len.0;
        apart
    }

    /// Takes the writes that should go home now. A run goes if it is long enough, if its oldest
    /// write has waited for `age`, or if more than `bound` waits in total.
    fn take_due(&mut self, now: Time, limits: Limits) -> Option<(Vec<SlotId>, Extent)> {
        if self.under_way.len() >= UNDER_WAY_MAX {
            return None;
        }
        let alone = self.under_way.is_empty();
        let pressed = alone && self.sectors > limits.bound.0;
        let is_due = |run: &&mut Run| {
            let aged = alone && now.since(run.since) >= limits.age;
            !run.gathered.is_empty() && (run.extent.len >= limits.length || aged || pressed)
        };
        let run = self.followed.iter_mut().find(is_due)?;
        Some((std::mem::take(&mut run.gathered), run.extent))
    }

    /// Takes all waiting writes.
    fn take_all(&mut self) -> Vec<SlotId> {
        self.followed.iter_mut().flat_map(|run| std::mem::take(&mut run.gathered)).collect()
    }

    /// Whether one of the first `begun` home writes is still under way.
    pub(crate) fn any_under_way(&self, begun: u64) -> bool {
        self.under_way.first().is_some_and(|first| *first < begun)
    }

    /// Number of home writes begun so far.
    pub(crate) const fn begun(&self) -> u64 {
        self.begun
    }

    /// Sectors that are only in memory.
    pub(crate) const fn sectors(&self) -> u64 {
        self.sectors
    }
}

/// Limits that decide when the writes of a run go home.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Length from which they are worth a request.
    length: Sectors,
    age: manylogs_block::Nanos,
    bound: Sectors,
}

impl Inner {
    /// Takes a small write without FUA that continues a run, unless it has to be logged.
    pub(crate) fn continue_run(
        self: &Rc<Self>,
        extent: Extent,
        payload: &Payload,
    ) -> Option<Completion> {
        let config = self.config();
        let now = self.engine.runtime.now();
        let reserved = self.record_room(EntryKind::Data, extent);
        let mut guard = self.engine.state.borrow_mut();
        let state = &mut *guard;
        let run = state.runs.note(extent);
        let goes_on = config.run > Sectors(0) && run >= config.run && config.run <= config.buffer;
        let older = state.store.map().overlaps(extent) && !plant::is(Bug::RunOverOlderVersion);
        let takes = goes_on
            && !older
            && self.whole_physical(extent) == extent
            && state.starved.is_empty()
            && state.admit_write(now).is_ok()
            && state.fits(reserved, now);
        if !takes {
            return None;
        }
        let id = state.store.put_homebound(extent, payload.clone(), reserved);
        state.counters.gathered_writes += 1;
        let apart = state.runs.gather(extent, id, now);
        self.log_gathered(state, apart);
        let full = state.volatile_sectors() > config.buffer.0;
        drop(guard);
        self.send_runs_home();
        if !full {
            return Some(Completion::ready(Ok(Payload::default())));
        }
        let (completer, completion) = completion();
        let inner = Rc::clone(self);
        let activity = Rc::clone(&self.activity);
        self.engine.runtime.spawn(async move {
            let result = inner.buffer_has_room().await;
            drop(activity);
            completer.complete(result.map(|()| Payload::default()));
        });
        Some(completion)
    }

    /// Notes a large write, or one with FUA, because it may be part of a run as well.
    pub(crate) fn note_in_run(&self, extent: Extent) {
        self.engine.state.borrow_mut().runs.note(extent);
    }

    async fn buffer_has_room(&self) -> Result<(), manylogs_block::IoError> {
        loop {
            let progress = self.engine.progress.wait();
            {
                let state = self.engine.state.borrow();
                state.store.writable()?;
                if state.volatile_sectors() <= self.config().buffer.0 {
                    return Ok(());
                }
            }
            progress.await;
        }
    }

    /// Logs the writes that wait to go home, because they must be durable.
    pub(crate) fn log_runs(&self, state: &mut State) {
        let gathered = state.runs.take_all();
        self.log_gathered(state, gathered);
    }

    fn log_gathered(&self, state: &mut State, gathered: Vec<SlotId>) {
        for id in gathered {
            let len = state.store.entries().slots.get(id).entry.extent.len;
            state.runs.sectors -= len.0;
            state.note_logged(len);
            state.store.log_after_all(id);
        }
        self.engine.commit.notify();
    }

    /// Begins the home writes that are due, and sets a timer for the others.
    fn send_runs_home(self: &Rc<Self>) {
        let config = self.config();
        let limits = Limits { length: config.run, age: config.buffer_age, bound: config.buffer };
        let now = self.engine.runtime.now();
        let mut guard = self.engine.state.borrow_mut();
        let state = &mut *guard;
        while let Some((ids, extent)) = state.runs.take_due(now, limits) {
            let newest = ids.iter().all(|id| state.store.is_newest(*id));
            match self.locks.try_lock(Writer::Run, extent) {
                Some(lock) if newest || plant::is(Bug::RunOverNewerVersion) => {
                    self.send_run_home(state, ids, extent, lock);
                }
                _ => self.log_gathered(state, ids),
            }
        }
        self.arm_run_age(state, limits);
    }

    fn send_run_home(
        self: &Rc<Self>,
        state: &mut State,
        ids: Vec<SlotId>,
        extent: Extent,
        lock: HomeGuard,
    ) {
        let mut payload = Payload::default();
        for id in &ids {
            let slot = state.store.entries().slots.get(*id);
            payload.append(slot.payload.clone().unwrap_or_default());
        }
        let begun = state.runs.begun;
        state.runs.begun += 1;
        state.runs.under_way.push(begun);
        state.counters.bypassed_writes += ids.len() as u64;
        let written = self.submit_home(Phase::Bypass, extent, &payload, false);
        let inner = Rc::clone(self);
        let activity = Rc::clone(&self.activity);
        self.engine.runtime.spawn(async move {
            let failed = all_done(written).await.is_err();
            inner.run_ended(begun, ids, failed);
            drop(lock);
            drop(activity);
            inner.engine.notify_progress();
            inner.send_runs_home();
        });
    }

    fn run_ended(&self, begun: u64, ids: Vec<SlotId>, failed: bool) {
        let mut guard = self.engine.state.borrow_mut();
        let state = &mut *guard;
        state.runs.under_way.retain(|other| *other != begun);
        if failed && !plant::is(Bug::FailedRunForgotten) {
            // Writes that cannot go home can be logged.
            return self.log_gathered(state, ids);
        }
        state.home.is_dirty |= self.below.volatile_cache;
        for id in ids {
            state.runs.sectors -= state.store.entries().slots.get(id).entry.extent.len.0;
            state.store.settle_home(id);
        }
    }

    /// Sets a timer for the time at which the oldest waiting write is too old.
    fn arm_run_age(self: &Rc<Self>, state: &mut State, limits: Limits) {
        let waiting = state.runs.followed.iter().filter(|run| !run.gathered.is_empty());
        let Some(oldest) = waiting.map(|run| run.since).min() else { return };
        let until = oldest + limits.age;
        if until <= self.engine.runtime.now() {
            // It goes when a home write under way has ended.
            return;
        }
        if std::mem::replace(&mut state.runs.is_timer_set, true) {
            return;
        }
        let inner = Rc::clone(self);
        let sleep = self.engine.runtime.sleep_until(until);
        self.engine.runtime.spawn(async move {
            sleep.await;
            inner.engine.state.borrow_mut().runs.is_timer_set = false;
            inner.send_runs_home();
        });
    }
}
