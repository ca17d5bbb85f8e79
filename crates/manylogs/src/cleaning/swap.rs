//! Log swapping (seed 000 section III-G): in idle time the content of a full hot log moves to an
//! empty cold one, so that small writes near the head go on finding room.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload};
use manylogs_logstore::store::{Cleaner, Job, Live, Relocated, Store, chunk_len, span_of};
use manylogs_logstore::{Headers, Log, LogId, ScanOf, scan};

use crate::phase::{Phase, Reader};
use crate::records::placement::farthest_empty;
use crate::state::{Inner, State};
use manylogs_plant::{self as plant, Bug};

/// Progress of moving a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    All,
    /// Clients needed the disk, or the target had no more room.
    InPart,
    /// The log holds no live version that can be moved.
    Nothing,
}

impl Inner {
    /// Moves the fullest log above the threshold, if there is one and a place for it; true if a
    /// log was moved.
    pub(crate) async fn swap_one(self: &Rc<Self>) -> bool {
        let _turn = self.cleaning.take().await;
        let Some((from, to)) = self.choose_swap() else { return false };
        self.state.borrow_mut().store.logs.set_aside(from);
        let moved = self.move_log(from, to).await;
        let mut state = self.state.borrow_mut();
        state.store.logs.put_back();
        state.store.overtakers.clear();
        if !matches!(moved, Ok(Moved::InPart)) {
            // The log is free, or waits for newer versions to become durable, or is damaged, which
            // a checkpoint will find. Trying again would not help.
            state.store.noted.remove(&from);
        }
        if let Ok(Moved::All) = moved {
            state.counters.log_swaps += 1;
            state.store.reset_candidates.push(from);
            state.store.reset_what_can_be();
        }
        drop(state);
        self.notify_progress();
        matches!(moved, Ok(Moved::All))
    }

    fn choose_swap(&self) -> Option<(LogId, LogId)> {
        let mut state = self.state.borrow_mut();
        if state.store.read_only.is_some() {
            return None;
        }
        let Some(Job::Move { from, to }) = SwapFullest.next(&state.store) else { return None };
        let used = state.store.logs.get(from).map_or(0, |log| log.used().0);
        if !state.store.is_ready(to) {
            // The target must be opened first. The next idle moment finds it again.
            state.store.unopened = Some(to);
            self.log_wanted.notify();
            return None;
        }
        // While the log moves, its content takes room twice.
        let enough = state.store.reserved.log.0 + 2 * used <= state.store.logs.room();
        enough.then_some((from, to))
    }

    /// Copies what recovery needs of `from` and points the table at the copies. Stops, without
    /// loss, when clients need the disk; what was copied by then stays copied.
    async fn move_log(self: &Rc<Self>, from: LogId, to: LogId) -> Result<Moved, IoError> {
        let live = self.live_in(from).await?;
        if live.is_empty() {
            return Ok(Moved::Nothing);
        }
        if !self.move_supersedes(from, to).await? {
            return Ok(Moved::InPart);
        }
        let mut rest = live.as_slice();
        while !rest.is_empty() {
            if !self.is_idle() {
                self.runtime.sleep(self.config().idle).await;
                if !self.is_idle() {
                    return Ok(Moved::InPart);
                }
            }
            let (chunk, others) = rest.split_at(chunk_len(rest));
            rest = others;
            if !self.move_chunk(from, to, chunk).await? {
                return Ok(Moved::InPart);
            }
        }
        Ok(Moved::All)
    }

    /// What the table still has in `log`, in the order of the log: its records tell where to look.
    async fn live_in(&self, log: LogId) -> Result<Vec<Live>, IoError> {
        if self.shape.headers == Headers::Apart {
            return Ok(self.state.borrow().store.live_by_table(log));
        }
        let of = ScanOf {
            volume: self.volume,
            log,
            region: self.layout.regions()[log.0 as usize],
            physical: self.below.physical_sector,
            floor: self.state.borrow().store.roots.on_disk.floor,
            capacity: self.layout.capacity(),
        };
        let scanned = scan(self.device.device(), of, Payload::default()).await?;
        Ok(self.state.borrow().store.live_in(log, &scanned.records))
    }

    async fn move_supersedes(self: &Rc<Self>, from: LogId, to: LogId) -> Result<bool, IoError> {
        let log =
            |state: &State| state.store.logs.get(from).map_or(0, |log| log.supersedes().len());
        let count = log(&self.state.borrow());
        let mut moved = 0;
        while moved < count && !plant::is(Bug::SwapDropsSupersedes) {
            let relocated = self.state.borrow_mut().store.relocate_supersedes(from, to, moved);
            let Some(relocated) = relocated else { return Ok(false) };
            moved += relocated.count;
            self.write_moved(to, relocated).await?;
        }
        self.state.borrow_mut().store.logs.adjust(from, Log::clear_supersedes);
        Ok(true)
    }

    async fn move_chunk(
        self: &Rc<Self>,
        from: LogId,
        to: LogId,
        chunk: &[Live],
    ) -> Result<bool, IoError> {
        let (mut within, mut content) = (Extent::default(), Payload::default());
        if let Some(span) = span_of(chunk) {
            let (read, found) =
                self.read_log(&mut self.state.borrow_mut(), from, span, Reader::Volume);
            within = read.within;
            content = self.check_logged(&read, found.await, chunk[0].extent)?;
        }
        let moved = self.state.borrow_mut().store.relocate((from, to), chunk, (within, &content));
        match moved {
            Some(moved) => self.write_moved(to, moved).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes a record of versions that keep their numbers, and waits until they are durable.
    async fn write_moved(self: &Rc<Self>, to: LogId, moved: Relocated) -> Result<(), IoError> {
        let Relocated { sequence, slot, last, .. } = moved;
        self.state.borrow_mut().counters.swapped_sectors += slot.target.len.0;
        self.submit_record(Phase::Swap, to, sequence, slot);
        self.wait_done(last).await
    }
}

/// The fullest log that clients filled moves to an empty one as far away as there is.
struct SwapFullest;

impl Cleaner for SwapFullest {
    fn next(&mut self, store: &Store) -> Option<Job> {
        let can_move = |log: &&Log| !log.is_busy() && !log.is_retired();
        let hot = store.noted.iter().filter_map(|id| store.logs.get(*id));
        let from = hot.filter(can_move).max_by_key(|log| log.used())?;
        let to = farthest_empty(&store.logs, from.region().start, from.id())?;
        Some(Job::Move { from: from.id(), to })
    }
}
