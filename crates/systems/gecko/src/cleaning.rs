//! Cleaning: the live content of a segment is appended elsewhere, and the segment is emptied. See
//! `docs/gecko.md` for the policies.

use std::rc::Rc;

use manylogs_block::{IoError, Sectors};
use manylogs_engine::{Moved, begin_epoch, move_log, renew_log, wait_durable};
use manylogs_logstore::store::Store;
use manylogs_logstore::{Log, LogId};

use crate::state::Inner;

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
    /// Segments that are cleaned at the same time: one on each drive of the body, because one drive
    /// alone reads less than the tail writes.
    pub(crate) fn cleaners(&self) -> usize {
        if self.settings.cleaning.is_by_segment() { self.geometry.drives - 1 } else { 1 }
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
            if !matches!(self.clean(job).await, Ok(true)) {
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
        let job = if self.settings.cleaning.is_by_segment() {
            let is_due = self.cleaning_is_due(state);
            let best = if is_due { self.best_victim(state) } else { None };
            let is_alone = state.pace.victims().next().is_none();
            state.pace.is_stuck = is_due && is_alone && best.is_none();
            best.map(Job::Move)
        } else {
            self.victim_in_turn(state).map(Job::Renew)
        };
        let alone = state.pace.victims().next().is_none();
        let in_need = || self.victim_in_need(state).filter(|_| alone).map(Job::Renew);
        let job = job.or_else(in_need)?;
        let live = state.store.logs().get(job.segment()).map_or(0, Log::live);
        state.pace.begin(job.segment(), Sectors(live.min(self.geometry.segment.0)));
        Some(job)
    }

    /// Empties a segment; false if it is still needed, or cannot be emptied now.
    async fn clean(self: &Rc<Self>, job: Job) -> Result<bool, IoError> {
        let emptied = self.empty(job).await;
        self.engine.state.borrow_mut().pace.end(job.segment());
        if let Ok(true) = emptied {
            // Only after a change: otherwise waiting cleaners would wake one another for ever.
            self.engine.notify_progress();
            self.offer_room_to_clients();
        }
        emptied
    }

    async fn empty(self: &Rc<Self>, job: Job) -> Result<bool, IoError> {
        let victim = job.segment();
        let is_moved = match job {
            Job::Renew(_) => renew_log(&**self, victim).await?,
            Job::Move(_) => self.move_away(victim).await?,
        };
        if !is_moved {
            return Ok(false);
        }
        // The segment is needed until what displaced its content is durable.
        let last = self.engine.state.borrow_mut().store.force_all();
        self.engine.commit.notify();
        if let Some(last) = last {
            wait_durable(&**self, last).await?;
        }
        let freed = free(&mut self.engine.state.borrow_mut().store, victim);
        if freed {
            // Begun now, while the drive is not the tail's, so that the segment's first record need
            // not wait for it.
            let _ = begin_epoch(&**self, victim).await;
        }
        Ok(freed)
    }

    /// Moves the live content of `victim` to heaps, one after the other. Content that finds no room
    /// there is renewed at the tail. False if there is no room anywhere.
    async fn move_away(self: &Rc<Self>, victim: LogId) -> Result<bool, IoError> {
        loop {
            let heap = self.heap_for(&mut self.engine.state.borrow_mut(), victim);
            let Some((heap, was_blank)) = heap else {
                return renew_log(&**self, victim).await;
            };
            if !self.engine.state.borrow().store.is_ready(heap) {
                let _ = begin_epoch(&**self, heap).await;
            }
            if !matches!(move_log(self, victim, heap).await?, Moved::InPart) {
                return Ok(true);
            }
            if self.engine.is_closed() {
                return Ok(false);
            }
            self.leave_heap(&mut self.engine.state.borrow_mut(), heap);
            if was_blank {
                return renew_log(&**self, victim).await;
            }
        }
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
                self.is_in_need(&state) || self.cleaning_is_due(&mut state)
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
    store.logs().is_blank(segment)
}
