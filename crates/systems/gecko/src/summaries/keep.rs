//! Writing summaries of segments that are closed.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload, Request, SECTOR_BYTES, Sectors, to_usize};
use manylogs_engine::{Phase, lose_member, write_twice};
use manylogs_logstore::{Log, LogId, RecordSequence, Summary};
use manylogs_plant::{self as plant, Bug};

use super::{Area, Floor, Kept, Tables};
use crate::links::device;
use crate::roster::LINKS;
use crate::state::{Inner, State};

/// Length of the segments whose summaries may wait until their keeper is not at the tail any more:
/// an opening reads those segments.
const WAITING: Sectors = Sectors(2 << 21);
/// Number of such segments.
const WAITING_NUMBERS: std::ops::RangeInclusive<u64> = 8..=64;

impl Inner {
    /// The link that has the summaries of a link's segments: the next one that is not lost.
    pub(crate) fn keeps_summaries_of(&self, link: usize) -> Option<usize> {
        next_link(&self.keeper.roster(), self.keeper.lost(), link)
    }

    /// Writes summaries as long as the chain is open.
    pub(crate) async fn run_summarizer(self: Rc<Self>) {
        let Some(tables) = self.tables.as_ref() else { return };
        let waiting = WAITING.0 / self.geometry.segment.0;
        let waiting = waiting.clamp(*WAITING_NUMBERS.start(), *WAITING_NUMBERS.end());
        while !self.engine.is_closed() {
            let progress = self.engine.progress.wait();
            match self.next_closed(to_usize(waiting)) {
                Some((segment, last)) => self.summarize(tables, segment, last).await,
                None => progress.await,
            }
        }
    }

    /// Writes the summaries of all segments that are closed, wherever the tail is.
    pub(crate) async fn summarize_all(&self) {
        let Some(tables) = self.tables.as_ref() else { return };
        while let Some((segment, last)) = self.next_closed(0) {
            self.summarize(tables, segment, last).await;
        }
        written(tables).await;
    }

    /// Takes the next segment out of those that wait for their summary, and the sequence of its
    /// last record. At most `waiting` are left to wait for the tail to go elsewhere.
    fn next_closed(&self, waiting: usize) -> Option<(LogId, RecordSequence)> {
        let mut state = self.engine.state.borrow_mut();
        let state = &mut *state;
        let store = &state.store;
        state.closing.retain(|id| {
            let log = store.logs().get(*id).filter(|log| !log.is_retired() && !log.is_empty());
            log.and_then(Log::summary).is_some_and(Summary::is_whole)
        });
        let tail = state.tail_drive();
        let keeper = |id: &LogId| {
            let of = store.logs().device(*id);
            self.keeps_summaries_of(of.0.into()).map(device)
        };
        // Others need not wait, so they do not count.
        let waits = state.closing.iter().filter(|id| keeper(id) == Some(tail));
        let is_many = waits.count() > waiting;
        let is_due = |id: &LogId| {
            let may = keeper(id).is_some_and(|keeper| keeper != tail || is_many);
            may && !state.pace.contains(*id) && store.closed_at(*id).is_some()
        };
        let at = state.closing.iter().position(is_due)?;
        let segment = state.closing.remove(at)?;
        Some((segment, store.closed_at(segment)?))
    }

    /// Writes the summary of a segment. If that fails, the next opening reads the segment.
    async fn summarize(&self, tables: &Tables, segment: LogId, last: RecordSequence) {
        let (place, index) = tables.place_of(segment);
        let _writing = tables.writing.take().await;
        // Another chain may be open on the drives by now, and write the segment again.
        if self.engine.is_closed() && !plant::is(Bug::SummarizedWhenClosed) {
            return;
        }
        // It may have begun anew meanwhile.
        if self.engine.state.borrow().store.closed_at(segment) != Some(last) {
            return;
        }
        let Some(keeper) = self.keeps_summaries_of(place) else { return };
        let bytes = self.engine.state.borrow().store.summary_of(segment);
        let Some(mut bytes) = bytes else { return };
        let unit = to_usize(tables.physical.0 * SECTOR_BYTES);
        bytes.resize(bytes.len().next_multiple_of(unit), 0);
        let slot = tables.area.slot(index);
        let extent = Extent { len: Sectors::from_bytes_ceil(bytes.len() as u64), ..slot };
        // One could not count on a keeper that takes no table.
        let is_kept = tables.kept(place) != Kept::Nowhere(Some(keeper));
        let fits = extent.len <= slot.len && is_kept;
        if fits && self.writes(keeper, Some((extent, Payload::bytes(bytes)))).await {
            self.let_count(tables, segment, last).await;
        }
        let mut state = self.engine.state.borrow_mut();
        // Else it has begun anew, and so has its summary.
        if state.store.closed_at(segment) == Some(last) {
            state.store.drop_summary(segment);
        }
    }

    /// The segment's summary is durable on its keeper. It counts already if the segment's floor was
    /// written before the segment began. It was not if the keeper is another one now, or if an
    /// opening found no floor.
    async fn let_count(&self, tables: &Tables, segment: LogId, last: RecordSequence) {
        let (place, index) = tables.place_of(segment);
        let _turn = tables.turn.take().await;
        let is_same = self.engine.state.borrow().store.closed_at(segment) == Some(last);
        let Some(keeper) = self.keeps_summaries_of(place) else { return };
        let is_kept = tables.kept(place) == Kept::On(keeper);
        if !is_same || self.engine.is_closed() || is_kept && tables.counts(segment, last) {
            return;
        }
        let below = Floor::Above(RecordSequence(last.0.saturating_sub(1)));
        if is_kept {
            tables.set_floor(segment, below);
            // If that fails, the table says either: the summary counts, or it does not.
            self.writes(keeper, tables.table(place, Some(Area::part(index, tables.physical))))
                .await;
        } else if self.may_keep(tables, place).await == Ok(true) {
            tables.set_floor(segment, below);
            self.write_table(tables, place).await;
        }
    }

    /// Waits for the writes of a summary and of a table that are under way. None follow when the
    /// engine is closed.
    pub(crate) async fn tables_at_rest(&self) {
        if let Some(tables) = &self.tables {
            written(tables).await;
            drop(tables.turn.take().await);
        }
    }

    /// Writes to a link, durably; false if that failed, or if there is nothing to write.
    pub(super) async fn writes(&self, link: usize, write: Option<(Extent, Payload)>) -> bool {
        let Some((extent, payload)) = write else { return false };
        self.submit_to(link, Request::write_fua(extent, payload)).await.is_ok()
    }

    pub(super) async fn submit_to(&self, link: usize, write: Request) -> Result<(), IoError> {
        let member = self.engine.members.of(device(link));
        let written = write_twice(member, Phase::Snapshot, write).await;
        if written == Err(IoError::Gone) {
            lose_member(self, device(link));
        }
        written
    }
}

/// Waits for the summary that is being written.
async fn written(tables: &Tables) {
    if !plant::is(Bug::SummarizedWhenClosed) {
        drop(tables.writing.take().await);
    }
}

impl State {
    /// A segment takes no more records: its summary is due.
    pub(crate) fn close(&mut self, segment: LogId) {
        if self.store.logs().keep_summaries() {
            self.closing.push_back(segment);
        }
    }

    /// As [`State::close`], for all segments that an opening found full, and read.
    pub(crate) fn close_all(&mut self) {
        let is_closed = |log: &&Log| log.is_sealed() && !log.is_empty();
        let closed: Vec<LogId> = self.store.logs().iter().filter(is_closed).map(Log::id).collect();
        closed.into_iter().for_each(|id| self.close(id));
    }
}

/// The link that has the summaries of the segments of `link`: the next one in use that is not lost.
pub(crate) fn next_link(
    roster: &crate::roster::Roster,
    lost: Option<usize>,
    link: usize,
) -> Option<usize> {
    let around = (1..LINKS).map(|i| (link + i) % LINKS);
    around.into_iter().find(|next| roster.has(*next) && lost != Some(*next))
}
