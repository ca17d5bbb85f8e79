//! Flush: makes all earlier acknowledged writes durable.

use std::rc::Rc;

use manylogs_block::{Completion, IoError, Payload, Request, completion};

use crate::state::Inner;
use manylogs_engine::{Phase, wait_durable};
use manylogs_plant::{self as plant, Bug};

impl Inner {
    /// Entry point of client flushes.
    pub(crate) fn flush(&self) -> Completion {
        let (completer, completion) = completion();
        self.device.sync_asked();
        self.engine.state.borrow_mut().flushes.push(completer);
        self.flush_asked.notify();
        completion
    }

    /// Answers flushes; those that arrive while one is under way share the next.
    pub(crate) async fn run_flusher(self: Rc<Self>) {
        loop {
            let asked = self.flush_asked.wait();
            let mut waiting = std::mem::take(&mut self.engine.state.borrow_mut().flushes);
            if waiting.is_empty() {
                if self.engine.is_closed() {
                    return;
                }
                asked.await;
                continue;
            }
            let result = self.make_durable(Phase::Bypass).await;
            if plant::is(Bug::FlushAnsweredByEarlier) {
                waiting.append(&mut self.engine.state.borrow_mut().flushes);
            }
            for completer in waiting {
                completer.complete(result.clone().map(|()| Payload::default()));
            }
        }
    }

    /// Makes durable all writes acknowledged before the call: buffered writes by a record, home
    /// writes by a flush of the device, and then the supersedes of those home writes.
    pub(crate) async fn make_durable(&self, phase: Phase) -> Result<(), IoError> {
        // A second flush must not overtake the device flush of the first.
        let _turn = self.flush_lock.take().await;
        self.end_runs().await;
        let (last, deferred, dirty) = {
            let mut state = self.engine.state.borrow_mut();
            let last = state.store.force_all();
            let dirty = std::mem::take(&mut state.home.is_dirty);
            (last, std::mem::take(&mut state.home.deferred), dirty)
        };
        if plant::is(Bug::DeferredBeforeFlush) {
            deferred.iter().for_each(|id| self.engine.state.borrow_mut().store.make_pending(*id));
        }
        self.engine.commit.notify();
        let dirty = dirty && !plant::is(Bug::FlushSkipsDevice);
        if dirty && let Err(error) = self.device.submit(phase, Request::Flush).await {
            // After a failed flush a later success proves nothing, so this data does not count as
            // durable.
            let mut state = self.engine.state.borrow_mut();
            state.home.deferred.extend(deferred);
            state.home.is_dirty = true;
            if !plant::is(Bug::FailedFlushTakesWrites) {
                state.store.fail("the device failed to flush");
            }
            drop(state);
            // Writes that wait for room would otherwise wait for ever.
            self.engine.notify_progress();
            return Err(error);
        }
        for id in deferred.into_iter().filter(|_| !plant::is(Bug::DeferredBeforeFlush)) {
            self.engine.state.borrow_mut().store.make_pending(id);
        }
        self.engine.commit.notify();
        match last {
            Some(last) => wait_durable(self, last).await,
            None => Ok(()),
        }
    }

    /// Logs the writes that wait in memory to go home in a run. Resolves when all runs under way
    /// are at home.
    async fn end_runs(&self) {
        let begun = {
            let mut state = self.engine.state.borrow_mut();
            self.log_runs(&mut state);
            state.runs.begun()
        };
        loop {
            let progress = self.engine.progress.wait();
            let under_way = self.engine.state.borrow().runs.any_under_way(begun);
            if !under_way || plant::is(Bug::RunNotAwaited) {
                return;
            }
            progress.await;
        }
    }
}
