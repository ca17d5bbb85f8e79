//! Seeing to it that no summary counts of what a segment held before, before the segment is
//! written again.

use manylogs_block::{IoError, Request};
use manylogs_logstore::LogId;
use manylogs_plant::{self as plant, Bug};

use super::area::{Area, Mark};
use super::{Floor, Kept, Tables};
use crate::links::device;
use crate::state::Inner;

impl Inner {
    /// See [`manylogs_engine::System::releases`]: no summary of what the segment held before counts
    /// when this returns true. Its table's part tells of other segments that wait for the same, and
    /// they are released with it.
    pub(crate) async fn takes_back(&self, segment: LogId) -> bool {
        let Some(tables) = self.tables.as_ref() else { return true };
        let _turn = tables.turn.take().await;
        if self.engine.is_closed() {
            return false;
        }
        let waiting = self.waiting(tables, segment);
        if !waiting.contains(&segment) {
            // It was released with another one.
            return true;
        }
        if let Err(error) = self.raise(tables, segment, &waiting).await {
            self.cannot_release(tables, segment, &error);
            return false;
        }
        let mut state = self.engine.state.borrow_mut();
        waiting.into_iter().for_each(|id| state.store.let_begin(id));
        true
    }

    /// The segments that should begin their epochs now that `segment` was emptied: it, and those
    /// that can be released with it, or were with another. If they are on the tail's drive, it
    /// alone begins: each begin costs that drive seeks. None waits for others, also if the write of
    /// the table goes to the tail's drive: in a chain that is nearly full the one that waits may be
    /// the only one that cleaning could go on with.
    pub(crate) fn released_with(&self, segment: LogId) -> Vec<LogId> {
        let Some(tables) = self.tables.as_ref() else { return vec![segment] };
        let (place, _) = tables.place_of(segment);
        let state = self.engine.state.borrow();
        let (store, tail) = (&state.store, state.tail_drive());
        let is_due = |id: &LogId| {
            (*id == segment || device(place) != tail)
                && store.logs().is_blank(*id)
                && !store.has_begun(*id)
        };
        told_with(tables, segment).filter(is_due).collect()
    }

    /// The segments that hold nothing, wait, and stand in the same part of a table.
    fn waiting(&self, tables: &Tables, segment: LogId) -> Vec<LogId> {
        let state = self.engine.state.borrow();
        told_with(tables, segment).filter(|id| state.store.is_held(*id)).collect()
    }

    /// Makes all summaries of these segments of a link void that may be on the disk.
    async fn raise(
        &self,
        tables: &Tables,
        segment: LogId,
        waiting: &[LogId],
    ) -> Result<(), IoError> {
        if plant::is(Bug::SummaryNotVoided) {
            return Ok(());
        }
        let (place, index) = tables.place_of(segment);
        let keeper = self.keeps_summaries_of(place);
        let raised = || {
            let used = self.engine.state.borrow().store.last_record();
            let is_alone = plant::is(Bug::BatchFloorKept);
            let raised = waiting.iter().filter(|id| !is_alone || **id == segment);
            raised.for_each(|id| tables.set_floor(*id, Floor::Above(used)));
        };
        if let (Kept::On(on), Some(keeper)) = (tables.kept(place), keeper)
            && on == keeper
        {
            raised();
            let part = tables.table(place, Some(Area::part(index, tables.physical)));
            if self.writes(keeper, part).await {
                return Ok(());
            }
            self.renew_mark(tables, place).await?;
            tables.set_kept(place, Kept::Nowhere(Some(keeper)));
            return Ok(());
        }
        if self.may_keep(tables, place).await? {
            raised();
            self.write_table(tables, place).await;
        }
        Ok(())
    }

    /// Sees to it that no table has the link's mark. Whether a table may be written then.
    pub(super) async fn may_keep(&self, tables: &Tables, place: usize) -> Result<bool, IoError> {
        let keeper = self.keeps_summaries_of(place);
        let tried = match tables.kept(place) {
            Kept::Nowhere(tried) => tried,
            Kept::Unsure | Kept::On(_) => {
                self.renew_mark(tables, place).await?;
                None
            }
        };
        Ok(keeper.is_some() && tried != keeper)
    }

    /// Writes the first table with a link's mark.
    pub(super) async fn write_table(&self, tables: &Tables, place: usize) {
        let Some(keeper) = self.keeps_summaries_of(place) else { return };
        // A write that failed may be on the disk.
        tables.set_kept(place, Kept::Unsure);
        if self.writes(keeper, tables.table(place, None)).await {
            tables.set_kept(place, Kept::On(keeper));
        } else if self.renew_mark(tables, place).await.is_ok() {
            tables.set_kept(place, Kept::Nowhere(Some(keeper)));
        }
    }

    /// Gives a link a mark that no table has.
    async fn renew_mark(&self, tables: &Tables, place: usize) -> Result<(), IoError> {
        if tables.mark_of(place).is_some() && plant::is(Bug::MarkNotRenewed) {
            return Ok(());
        }
        tables.forget(place);
        let mark = Mark::new(|| self.engine.runtime.random());
        if let Some(of) = tables.links.borrow_mut().get_mut(place) {
            of.mark = Some(mark);
        }
        let Some((extent, payload)) = tables.mark_of(place) else { return Ok(()) };
        self.submit_to(place, Request::write_fua(extent, payload)).await?;
        tables.set_kept(place, Kept::Nowhere(None));
        Ok(())
    }

    fn cannot_release(&self, tables: &Tables, segment: LogId, error: &IoError) {
        let (place, _) = tables.place_of(segment);
        let is_gone = self.engine.members.of(device(place)).is_gone();
        let mut state = self.engine.state.borrow_mut();
        match error {
            // It cannot be written again: as if its own sectors were bad.
            error if error.is_local() => state.store.retire(segment),
            // The chain goes on without the link, whose segments are out of use.
            IoError::Gone if is_gone => {}
            error => state.store.fail_for(error, "the mark of a link cannot be written"),
        }
        drop(state);
        self.engine.log_wanted.notify();
        self.engine.notify_progress();
    }

    /// Makes marks and tables of the halves of each pair the same, durably: a crash may have left
    /// them different. Nothing counts of the segment at the tail any more that only one half may
    /// have.
    ///
    /// # Errors
    /// If a link cannot be written.
    pub(crate) async fn settle_tables(&self, tail: LogId) -> Result<(), IoError> {
        let Some(tables) = self.tables.as_ref() else { return Ok(()) };
        if tables.is_known(tail) && !plant::is(Bug::TailFloorKept) {
            let used = self.engine.state.borrow().store.last_record();
            tables.set_floor(tail, Floor::Above(used));
        }
        for link in self.keeper.roster().in_use() {
            let Kept::On(keeper) = tables.kept(link) else { continue };
            if !plant::is(Bug::TablesNotSettled) {
                for (link, write) in
                    [(link, tables.mark_of(link)), (keeper, tables.table(link, None))]
                {
                    let Some((extent, payload)) = write else { continue };
                    self.submit_to(link, Request::write_fua(extent, payload)).await?;
                }
            }
        }
        Ok(())
    }
}

/// The segments that the same part of a table tells of.
fn told_with(tables: &Tables, segment: LogId) -> impl Iterator<Item = LogId> {
    let (place, index) = tables.place_of(segment);
    let told = Area::told_by(Area::part(index, tables.physical));
    let first = place as u64 * tables.area.segments;
    let told = told.start..told.end.min(tables.area.segments);
    told.map(move |index| LogId(manylogs_block::narrow(first + index)))
}
