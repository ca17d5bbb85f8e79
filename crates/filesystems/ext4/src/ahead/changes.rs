//! Requests and commits that change what the device holds: what waits is forgotten in time.

use std::ops::Range;
use std::rc::{Rc, Weak};

use manylogs_block::{Completion, IoResult, Request};
use manylogs_plant::{Bug, is};

use super::{Ahead, State};
use crate::journal::{Closed, CommitSink};
use crate::units::BLOCK_SECTORS;

/// The blocks of which a commit may change what the device holds, in runs.
fn changed_by(transaction: &Closed) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = transaction.freed.iter().map(|run| run.range()).collect();
    for block in transaction.blocks.keys().map(|block| block.0) {
        match runs.last_mut() {
            Some(run) if run.end == block => run.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

/// The blocks of which a request may change something.
fn changed(request: &Request) -> Option<Range<u64>> {
    let extent = request.extent().filter(|_| request.kind().is_change())?;
    let end = extent.start.0 + extent.len.0;
    Some(extent.start.0 / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS))
}

impl State {
    /// Notes that a request begins that changes these blocks; returns its number.
    fn change(&mut self, range: Range<u64>) -> u64 {
        if !is(Bug::AheadKeepsOld) {
            self.windows.forget(&range);
        }
        for reading in self.reading.iter().filter_map(Weak::upgrade) {
            if !is(Bug::AheadUnderWay) {
                reading.changed.borrow_mut().add(&range);
            }
        }
        let number = self.next;
        self.next += 1;
        self.changing.insert(number, range);
        number
    }
}

impl Ahead {
    /// Passes a request on, and forgets the blocks that it changes. If the caller drops the answer,
    /// the blocks' content is not known, and they are not read ahead any more.
    pub(super) fn pass(
        &self,
        request: Request,
        on: impl FnOnce(Request) -> Completion,
    ) -> Completion {
        self.note_request();
        let Some(range) = changed(&request) else { return on(request) };
        let number = self.state.borrow_mut().change(range);
        let (state, answer) = (Rc::clone(&self.state), on(request));
        Completion::of_others(async move {
            let answer = answer.await;
            state.borrow_mut().changing.remove(&number);
            answer
        })
    }

    /// Makes a transaction durable. If that changes what the device holds, its blocks are
    /// forgotten, and not kept from reads that go on meanwhile. If it fails, their content is not
    /// known, and they are not read ahead any more.
    ///
    /// # Errors
    /// Those of [`CommitSink::commit`].
    pub(crate) async fn commit(&self, sink: &dyn CommitSink, transaction: &Closed) -> IoResult<()> {
        if !sink.changes_device() || is(Bug::AheadCommitNotTold) {
            return sink.commit(transaction).await;
        }
        let numbers: Vec<u64> = {
            let mut state = self.state.borrow_mut();
            changed_by(transaction).into_iter().map(|run| state.change(run)).collect()
        };
        if is(Bug::AheadUnderCommit) {
            self.state.borrow_mut().changing.clear();
        }
        sink.commit(transaction).await?;
        let mut state = self.state.borrow_mut();
        for number in &numbers {
            state.changing.remove(number);
        }
        Ok(())
    }
}
