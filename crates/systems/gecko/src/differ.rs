//! Which segments may differ between the halves of a pair after a crash: the root names them.
//!
//! 1. Nothing is written to a segment of a pair before a durable root names the segment. While a
//!    root is being written, only segments take records that the old root and the new one name.
//! 2. A root leaves a segment out only if no write to it is under way, and none has failed. All
//!    its writes were answered then, and each is durable on every current half when it is answered.
//! 3. An opening after a crash settles all segments that the root names, durably, before a root
//!    leaves one out.
//!
//! So the halves hold the same in all other segments, and an orderly close leaves a root that names
//! none. Chains of single drives need none of this: their roots do not say that they name segments.

use std::rc::Rc;

use manylogs_block::IoError;
use manylogs_engine::{Phase, begin_epoch, update_root};
use manylogs_logstore::ondisk::log_bitmap::LogBitmap;
use manylogs_logstore::{Log, LogId};
use manylogs_plant::{self as plant, Bug};

use crate::limit::DRIVES_MOST;
use crate::state::{Inner, State};

/// Empty segments of each link that are named ahead, so that the root is seldom written.
const AHEAD: usize = 32;
/// Empty segments of the tail's link that should always be named, and of each other link.
const LEAST_AT_TAIL: usize = 2;
const LEAST_IN_BODY: usize = 1;

/// What decides which segments are used next: the tail, how often segments were emptied, and how
/// often segments were taken for moved content.
pub(crate) type Looked = (LogId, u64, u64);

impl Inner {
    /// Names segments ahead of their use, as long as the chain is open.
    pub(crate) async fn run_namer(self: Rc<Self>) {
        while !self.engine.is_closed() {
            let progress = self.engine.progress.wait();
            if self.is_naming_due() {
                // If the root cannot be written, the chain takes no more writes.
                let _ = self.make_ready().await;
            } else {
                progress.await;
            }
        }
    }

    /// Whether a segment that is used next is not ready. Each state is looked at once.
    fn is_naming_due(&self) -> bool {
        let state = self.engine.state.borrow();
        let resets = state.store.counters().log_resets;
        let now = (state.tail, resets, state.heaps.changes());
        if state.store.read_only().is_some() || self.looked.replace(Some(now)) == Some(now) {
            return false;
        }
        let next = self.next_segments(&state, LEAST_AT_TAIL, LEAST_IN_BODY);
        !state.store.root().notes_copies || next.iter().any(|id| !state.store.is_ready(*id))
    }

    /// Names the segments that are used next, and begins their epochs while they are not needed.
    async fn make_ready(&self) -> Result<(), IoError> {
        let next = |tail, body| self.next_segments(&self.engine.state.borrow(), tail, body);
        let is_named = |id: &LogId| self.engine.state.borrow().store.is_opened(*id);
        let is_noted = self.engine.state.borrow().store.root().notes_copies;
        if !is_noted || !next(LEAST_AT_TAIL, LEAST_IN_BODY).iter().all(is_named) {
            self.name_segments().await?;
        }
        for segment in next(LEAST_AT_TAIL, AHEAD) {
            if self.engine.is_closed() {
                break;
            }
            // That would wake a half: it waits until the tail comes, and the half is awake.
            let link = self.engine.state.borrow().store.logs().device(segment);
            if is_named(&segment) && !self.is_resting(link.0.into()) {
                begin_epoch(self, segment).await;
            }
        }
        self.engine.notify_progress();
        Ok(())
    }

    /// Waits until the root names `segment`, which is about to be written; false if it does not.
    pub(crate) async fn is_named(&self, segment: LogId) -> bool {
        let is_named = || self.engine.state.borrow().store.is_opened(segment);
        is_named() || self.name_segments().await.is_ok() && is_named()
    }

    /// Writes a root that names the segments that are in use, or used next, and no others.
    async fn name_segments(&self) -> Result<(), IoError> {
        if plant::is(Bug::CleanMarkKept) {
            return Ok(());
        }
        let of_state = |state: &State| {
            let victims = state.pace.under_way();
            self.next_segments(state, AHEAD, AHEAD).into_iter().chain(victims).collect()
        };
        self.name(of_state, false).await
    }

    /// Notes that the halves of all pairs are the same: the chain was closed in order.
    ///
    /// # Errors
    /// If the root cannot be written. The next opening then settles what the last root names.
    pub(crate) async fn note_clean(&self) -> Result<(), IoError> {
        if self.engine.state.borrow().store.read_only().is_some() {
            return Ok(());
        }
        self.name(|_| Vec::new(), true).await
    }

    /// Waits for the records that are under way when the chain is closed: whoever opens it again in
    /// this process may write their segments.
    pub(crate) async fn at_rest(&self) {
        loop {
            let progress = self.engine.progress.wait();
            if self.is_at_rest() || plant::is(Bug::BegunWhenClosed) {
                return;
            }
            progress.await;
        }
    }

    /// Whether no record is under way. Whatever is written later keeps its segment named.
    fn is_at_rest(&self) -> bool {
        let state = self.engine.state.borrow();
        !self.engine.is_opening() && !state.store.logs().iter().any(Log::is_busy)
    }

    async fn name(
        &self,
        wanted: impl FnOnce(&State) -> Vec<LogId>,
        is_last: bool,
    ) -> Result<(), IoError> {
        let _turn = self.naming.take().await;
        if self.engine.is_closed() && !is_last {
            return Ok(());
        }
        let (named, logs) = {
            let mut state = self.engine.state.borrow_mut();
            let logs = state.store.logs().count();
            let failed = state.store.logs().iter().filter(|log| log.is_retired()).map(Log::id);
            let named: Vec<LogId> = failed.chain(wanted(&state)).collect();
            // Begun and closed at once: the set begins with the segments that are being written.
            state.store.begin_capture();
            let add = |set: &mut LogBitmap| named.into_iter().for_each(|id| set.add(id));
            (state.store.close_capture(|_, set| add(set)), logs)
        };
        let written = update_root(self, Phase::OpenedSet, |root| {
            root.notes_copies = true;
            // Links were added: both sets have as many bits.
            if root.used.logs_per_bit() != named.logs_per_bit() {
                root.used = root.used.resized(logs);
            }
            root.opened = named;
        });
        let written = written.await;
        self.engine.state.borrow_mut().store.end_capture();
        self.engine.notify_progress();
        written
    }

    /// The segment at the tail, those that take moved content, and the empty ones that are used
    /// next: as many of the tail's link and of each other link.
    fn next_segments(&self, state: &State, at_tail: usize, in_body: usize) -> Vec<LogId> {
        let logs = state.store.logs();
        let mut left = [in_body; DRIVES_MOST];
        if let Some(left) = left.get_mut(usize::from(state.tail_drive().0)) {
            *left = at_tail;
        }
        let mut is_next = |id: &LogId| {
            if state.heaps.contains(*id) {
                return true;
            }
            let Some(left) = left.get_mut(usize::from(logs.device(*id).0)) else { return false };
            let leaves = state.leaving == Some(logs.device(*id));
            let counts = *left > 0 && logs.is_blank(*id) && !leaves;
            *left -= usize::from(counts);
            counts
        };
        let others = self.tail(state).around(logs.count()).filter(|id| is_next(id));
        [state.tail].into_iter().chain(others).collect()
    }
}
