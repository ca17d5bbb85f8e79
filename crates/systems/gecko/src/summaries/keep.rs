//! Writing summaries of segments that are closed, and taking them back before a segment is written
//! again.

use std::rc::Rc;

use manylogs_block::{IoError, Payload, Request, SECTOR_BYTES, Sectors, to_usize};
use manylogs_engine::{Phase, lose_member, write_twice};
use manylogs_logstore::{Log, LogId, RecordSequence};
use manylogs_plant::{self as plant, Bug};

use super::{Named, Tables};
use crate::links::device;
use crate::roster::LINKS;
use crate::state::{Inner, State};

/// Segments whose summaries may wait until their link is not at the tail any more. Each that waits
/// costs an opening a read of the segment.
const WAITING_MOST: usize = 8;

impl Inner {
    /// The link that has the summaries of a link's segments: the next one that is not lost.
    pub(crate) fn keeps_summaries_of(&self, link: usize) -> Option<usize> {
        next_link(&self.keeper.roster(), self.keeper.lost(), link)
    }

    /// Writes summaries as long as the chain is open.
    pub(crate) async fn run_summarizer(self: Rc<Self>) {
        let Some(tables) = self.tables.as_ref() else { return };
        while !self.engine.is_closed() {
            let progress = self.engine.progress.wait();
            let next = self.next_closed(tables, WAITING_MOST);
            match next {
                Some((segment, last)) => self.summarize(tables, segment, last).await,
                None => progress.await,
            }
        }
    }

    /// Writes the summaries of all segments that are closed, wherever the tail is.
    pub(crate) async fn summarize_all(&self) {
        let Some(tables) = self.tables.as_ref() else { return };
        while let Some((segment, last)) = self.next_closed(tables, 0) {
            self.summarize(tables, segment, last).await;
        }
    }

    /// Takes the next segment out of those that wait for their summary, and the sequence of its
    /// last record. At most `waiting` are left to wait for the tail to go elsewhere.
    fn next_closed(&self, tables: &Tables, waiting: usize) -> Option<(LogId, RecordSequence)> {
        let mut state = self.engine.state.borrow_mut();
        let state = &mut *state;
        let store = &state.store;
        state.closing.retain(|id| {
            let log = store.logs().get(*id).filter(|log| !log.is_retired() && !log.is_empty());
            let whole = log.and_then(Log::summary).filter(|summary| summary.is_whole());
            // An opening may have read a segment although its table names a summary: the summary
            // is lost, and is written anew.
            let is_other = |last| matches!(tables.of(*id), Named::Last(named) if named != last);
            whole.is_some_and(|summary| !is_other(summary.last().0))
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

    /// Writes the summary of a segment, and then names it. If that fails, the next opening reads
    /// the segment.
    async fn summarize(&self, tables: &Tables, segment: LogId, last: RecordSequence) {
        let (place, index) = tables.place_of(segment);
        let Some(keeper) = self.keeps_summaries_of(place) else { return };
        let bytes = self.engine.state.borrow().store.summary_of(segment);
        let Some(mut bytes) = bytes else { return };
        let unit = to_usize(tables.physical.0 * SECTOR_BYTES);
        bytes.resize(bytes.len().next_multiple_of(unit), 0);
        let slot = tables.area.slot(index);
        let extent =
            manylogs_block::Extent { len: Sectors::from_bytes_ceil(bytes.len() as u64), ..slot };
        let payload = Payload::bytes(bytes);
        if extent.len <= slot.len && self.writes(keeper, Request::write_fua(extent, payload)).await
        {
            let _turn = tables.turn.take().await;
            let is_as_before = || self.engine.state.borrow().store.closed_at(segment);
            let is_same = is_as_before() == Some(last) && !self.engine.is_closed();
            if is_same && tables.of(segment) != Named::Last(last.0) {
                // From now on it may be on the disk, even if the write fails.
                tables.set(segment, Named::Last(last.0));
                let (extent, payload) = tables.part(segment);
                self.writes(place, Request::write_fua(extent, payload)).await;
            }
        }
        let mut state = self.engine.state.borrow_mut();
        // Else it has begun anew, and so has its summary.
        if state.store.closed_at(segment) == Some(last) {
            state.store.drop_summary(segment);
        }
    }

    /// Waits for the write of a table that is under way. None follows when the engine is closed.
    pub(crate) async fn tables_at_rest(&self) {
        if let Some(tables) = &self.tables {
            drop(tables.turn.take().await);
        }
    }

    /// Writes to a link; false if that failed.
    async fn writes(&self, link: usize, write: Request) -> bool {
        self.submit_to(link, write).await.is_ok()
    }

    async fn submit_to(&self, link: usize, write: Request) -> Result<(), IoError> {
        let member = self.engine.members.of(device(link));
        let written = write_twice(member, Phase::Snapshot, write).await;
        if written == Err(IoError::Gone) {
            lose_member(self, device(link));
        }
        written
    }

    /// See [`manylogs_engine::System::releases`]: the table of the segment's link names no summary
    /// of it, durably, before the segment is written again.
    pub(crate) async fn takes_back(&self, segment: LogId) -> bool {
        let Some(tables) = self.tables.as_ref() else { return true };
        let _turn = tables.turn.take().await;
        let is_named = tables.of(segment) != Named::None && !plant::is(Bug::SummaryNotVoided);
        if self.engine.is_closed() || is_named && !self.names_none(tables, segment).await {
            return false;
        }
        self.engine.state.borrow_mut().store.let_begin(segment);
        true
    }

    async fn names_none(&self, tables: &Tables, segment: LogId) -> bool {
        let before = tables.of(segment);
        tables.set(segment, Named::None);
        let (extent, payload) = tables.part(segment);
        let (place, _) = tables.place_of(segment);
        let written = self.submit_to(place, Request::write_fua(extent, payload)).await;
        let Err(error) = written else { return true };
        tables.set(segment, before);
        let is_gone = self.engine.members.of(device(place)).is_gone();
        let mut state = self.engine.state.borrow_mut();
        match error {
            // It cannot be written again: as if its own sectors were bad.
            error if error.is_local() => state.store.retire(segment),
            // The chain goes on without the link, whose segments are out of use.
            IoError::Gone if is_gone => {}
            error => state.store.fail_for(&error, "a table of summaries cannot be written"),
        }
        drop(state);
        self.engine.log_wanted.notify();
        self.engine.notify_progress();
        false
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

impl Inner {
    /// Makes the tables of the halves of each pair the same, durably: a crash may have left them
    /// different. Parts that could not be read name no summary from then on.
    pub(crate) async fn settle_tables(&self) -> Result<(), IoError> {
        let Some(tables) = self.tables.as_ref() else { return Ok(()) };
        for link in self.keeper.roster().in_use() {
            if !plant::is(Bug::TablesNotSettled) {
                let (extent, payload) = tables.whole(link);
                self.submit_to(link, Request::write_fua(extent, payload)).await?;
                tables.forget_unknown(link);
            }
        }
        Ok(())
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
