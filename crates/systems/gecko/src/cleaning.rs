//! Cleaning: the live content of a segment is appended elsewhere, and the segment is emptied. See
//! `docs/gecko.md` for the policies.

use std::rc::Rc;

use manylogs_block::{IoError, Sectors};
use manylogs_engine::{Moved, Unmoved, begin_epoch, move_log, renew_log};
use manylogs_logstore::store::{Room, Store};
use manylogs_logstore::{Log, LogId};
use manylogs_plant::{self as plant, Bug};

use crate::state::{Inner, State};

/// Heaps that the content of a segment is offered: others, who are cleaned too, may fill one first.
const HEAPS_MOST: usize = 4;
/// Segments of other links that stay empty while a link is emptied: one for the tail, one that is
/// spared for cleaning, and one more for clients.
const BLANK_WHILE_EMPTIED: u64 = 3;

/// A segment to be emptied, and how.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// Live content is appended at the tail, as the newest versions.
    Renew(LogId),
    /// Live records move unchanged to segments of the body.
    Move(LogId),
}

impl Job {
    const fn segment(self) -> LogId {
        match self {
            Self::Renew(segment) | Self::Move(segment) => segment,
        }
    }
}

impl Inner {
    /// Segments that are cleaned at the same time. On each drive of the body one segment is read,
    /// because one drive alone reads less than the tail writes, and another one is being written.
    fn cleaners_wanted(&self) -> usize {
        let links = self.keeper.roster().in_use().count();
        if self.settings.cleaning.is_by_segment() { 2 * (links - 1) } else { 2 }
    }

    /// Starts tasks that clean, if there are fewer than the links need.
    pub(crate) fn start_cleaners(self: &Rc<Self>) {
        while self.cleaners.get() < self.cleaners_wanted() {
            self.cleaners.set(self.cleaners.get() + 1);
            self.engine.runtime.spawn(Rc::clone(self).run_cleaner());
        }
    }

    pub(crate) async fn run_cleaner(self: Rc<Self>) {
        loop {
            let asked = self.engine.wanted.wait();
            if self.engine.is_closed() {
                return;
            }
            let was_stuck = self.engine.state.borrow().pace.is_stuck;
            let Some(job) = self.next_job() else {
                if !was_stuck && self.engine.state.borrow().pace.is_stuck {
                    self.offer_room_to_clients();
                }
                asked.await;
                continue;
            };
            let segment = job.segment();
            let appended = self.append_again(job).await;
            if let Err(error) = &appended {
                self.note_unreadable(segment, error);
            }
            let is_moved = matches!(appended, Ok(true));
            if is_moved || self.began_anew(segment) {
                self.engine.state.borrow_mut().pace.appended(segment);
                self.engine.runtime.spawn(Rc::clone(&self).finish(segment));
            } else {
                self.engine.state.borrow_mut().pace.end(segment);
                // Another segment is the oldest under cleaning now, and may use the spared room.
                self.engine.wanted.notify();
                // Clients that wait for room would ask again at once. Only the end of a record or
                // of a read can change anything.
                self.engine.progress.wait().await;
            }
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.engine.state.borrow_mut();
        if state.store.read_only().is_some() {
            return None;
        }
        let state = &mut *state;
        state.pace.look_for_new_epochs(state.store.logs());
        let is_alone = state.pace.under_way().next().is_none();
        let leaves = self.victim_that_leaves(state, BLANK_WHILE_EMPTIED).map(Job::Move);
        let job = if leaves.is_some() {
            leaves
        } else if self.is_by_segment(state) {
            let is_due = self.cleaning_is_due(state);
            let best = if is_due { self.best_in_turn(state) } else { None };
            state.pace.is_stuck = is_due && is_alone && best.is_none();
            // Where nothing else gives room, the link is emptied all the same.
            let last = || self.victim_that_leaves(state, 1).filter(|_| is_alone);
            best.or_else(last).map(Job::Move)
        } else {
            self.victim_in_turn(state).map(Job::Renew)
        };
        let in_need = || self.victim_in_need(state).filter(|_| is_alone).map(Job::Renew);
        let job = job.or_else(in_need)?;
        self.begin(state, job.segment());
        Some(job)
    }

    /// Cleaning of a segment begins.
    fn begin(&self, state: &mut State, segment: LogId) {
        let logs = state.store.logs();
        let live = logs.get(segment).map_or(0, Log::live);
        state.pace.begin(logs, segment, Sectors(live.min(self.geometry.segment.0)));
        // Else it would fill again while it is emptied.
        if !plant::is(Bug::EmptiedSegmentTakesRecords) {
            state.store.seal(segment);
        }
    }

    /// Whether the segment began anew while it was cleaned: then nothing is left to move.
    pub(crate) fn began_anew(&self, victim: LogId) -> bool {
        let mut state = self.engine.state.borrow_mut();
        let state = &mut *state;
        state.pace.look_for_new_epochs(state.store.logs());
        state.pace.is_over(victim)
    }

    /// Waits while the segment's drive is the tail's, because reads cost the tail a seek each. If
    /// hardly a segment is empty, the cleaning goes on all the same. False if the chain takes no
    /// records any more, or the segment began anew.
    pub(crate) async fn waits_until_in_body(&self, victim: LogId) -> bool {
        loop {
            let wanted = self.engine.wanted.wait();
            if self.engine.is_closed() || self.began_anew(victim) {
                return false;
            }
            {
                let mut state = self.engine.state.borrow_mut();
                if state.store.read_only().is_some() {
                    return false;
                }
                let is_at_tail = state.store.logs().device(victim) == state.tail_drive();
                let rests = is_at_tail && !self.is_short(&mut state);
                if !rests || plant::is(Bug::TailReadByCleaning) {
                    return true;
                }
            }
            wanted.await;
        }
    }

    /// Whether content of `victim` that needs `room` may be appended elsewhere now; waits for it.
    /// Only the segment that has been under cleaning longest may use the room that is spared for
    /// cleaning: if several shared that room, none might end. False if the chain takes no records
    /// any more, or the segment began anew.
    pub(crate) async fn waits_for_room(&self, victim: LogId, room: Room) -> bool {
        loop {
            let wanted = self.engine.wanted.wait();
            if self.engine.is_closed() || self.began_anew(victim) {
                return false;
            }
            {
                let mut state = self.engine.state.borrow_mut();
                if state.store.read_only().is_some() {
                    return false;
                }
                let is_oldest = state.pace.under_way().next() == Some(victim);
                let may = is_oldest || plant::is(Bug::SparedRoomShared);
                if may || state.store.fits(room + self.spared) {
                    return true;
                }
            }
            wanted.await;
        }
    }

    /// Appends the live content of a segment elsewhere; false if that is not possible now.
    async fn append_again(self: &Rc<Self>, job: Job) -> Result<bool, IoError> {
        match job {
            Job::Renew(victim) => renew_log(&**self, victim).await,
            Job::Move(victim) => self.move_away(victim).await,
        }
    }

    /// Frees a segment as soon as its content is durable elsewhere and no read points into it. The
    /// cleaner goes on meanwhile.
    async fn finish(self: Rc<Self>, victim: LogId) {
        self.engine.state.borrow_mut().store.force_all();
        self.engine.commit.notify();
        loop {
            let progress = self.engine.progress.wait();
            match self.free_if_unneeded(victim) {
                Some(true) => break,
                Some(false) => progress.await,
                None => return,
            }
        }
        self.offer_room_to_clients();
        // Begun now, while the drive is not the tail's, so that the segment's first record need not
        // wait for it. On pairs it begins later if no root names it yet, or a half sleeps.
        for segment in self.released_with(victim) {
            let (is_named, link, is_over) = {
                let state = self.engine.state.borrow();
                let store = &state.store;
                let is_over = self.engine.is_closed() || store.read_only().is_some();
                (store.is_opened(segment), store.logs().device(segment), is_over)
            };
            // The next opening may write these segments.
            if is_over && !plant::is(Bug::BegunWhenClosed) {
                break;
            }
            if is_named && !self.is_resting(link.0.into()) {
                let _ = begin_epoch(&*self, segment).await;
            }
        }
        self.engine.notify_progress();
        self.engine.wanted.notify();
        self.offer_room_to_clients();
    }

    /// Frees the segment if nothing needs it; false if something still does. `None` if it will not
    /// be freed: it failed, or the chain is closed or read-only.
    fn free_if_unneeded(&self, victim: LogId) -> Option<bool> {
        let mut state = self.engine.state.borrow_mut();
        if self.engine.is_closed() || state.store.read_only().is_some() {
            return None;
        }
        let state = &mut *state;
        state.pace.look_for_new_epochs(state.store.logs());
        if state.store.logs().get(victim).is_some_and(Log::is_retired) {
            // It failed, or its drive is gone: it begins no epoch any more.
            state.pace.end(victim);
            // It counted as clean.
            self.engine.wanted.notify();
            return None;
        }
        let freed = state.pace.is_over(victim) || free(&mut state.store, victim);
        if freed {
            state.pace.end(victim);
        }
        Some(freed)
    }

    /// Moves the live content of `victim` to heaps, one after the other. Content that finds no room
    /// there is renewed at the tail. False if there is no room anywhere.
    async fn move_away(self: &Rc<Self>, victim: LogId) -> Result<bool, IoError> {
        let mut unmoved = Unmoved::default();
        for _ in 0..HEAPS_MOST {
            let heap = self.heap_for(&mut self.engine.state.borrow_mut(), victim);
            let Some(heap) = heap else { break };
            let is_ready = self.engine.state.borrow().store.is_ready(heap);
            if !is_ready && self.is_named(heap).await {
                let _ = begin_epoch(&**self, heap).await;
            }
            if !matches!(move_log(self, (victim, heap), &mut unmoved).await?, Moved::InPart) {
                return Ok(true);
            }
            if self.engine.is_closed() || self.began_anew(victim) {
                return Ok(false);
            }
            self.leave_heap(&mut self.engine.state.borrow_mut(), heap);
        }
        renew_log(&**self, victim).await
    }

    /// Waits until the cleaner should append more at the tail: it runs only as fast as the tail
    /// needs room. False if the chain is closed.
    pub(crate) async fn waits_for_its_turn(&self) -> bool {
        loop {
            let wanted = self.engine.wanted.wait();
            if self.engine.is_closed() {
                return false;
            }
            let due = {
                let mut state = self.engine.state.borrow_mut();
                let is_needed = self.is_in_need(&state) || state.leaving.is_some();
                is_needed || self.cleaning_is_due(&mut state)
            };
            if due {
                return true;
            }
            wanted.await;
        }
    }
}

/// Empties a segment that nothing needs any more, even if little of it was used; false if it is
/// still needed.
fn free(store: &mut Store, segment: LogId) -> bool {
    store.reset_small(segment);
    store.logs().is_unused(segment)
}

#[cfg(test)]
mod tests;
