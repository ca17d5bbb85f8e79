//! Commits of transactions, and waiting for them.

use std::ops::Range;
use std::rc::Rc;

use manylogs_block::{Time, first_of, narrow, to_usize};
use manylogs_plant::{Bug, is};

use super::{Changed, Closed, Journal, Logged, Running};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::PAGE_COST;
use crate::memory::Part;
use crate::metadata::Metadata;
use crate::ondisk::jbd2::Tid;
use crate::units::{BlockNo, Run, Timestamp};

/// Dirty pages above which write-back does not wait for its interval where short content goes into
/// transactions: 4 MiB. More would make syncs wait for larger ones.
const DIRTY_MUCH: usize = 1024;

impl Journal {
    /// Waits until transaction `tid` is durable. All waiting tasks share one commit.
    ///
    /// # Errors
    /// That of the device if it could not be committed. All waiting and all later calls get it.
    pub(crate) async fn commit(&self, tid: Tid) -> Result<()> {
        loop {
            let settled = self.settled.wait();
            {
                let mut state = self.state.borrow_mut();
                if state.durable.is_at_least(tid) {
                    return Ok(());
                }
                if let Some(error) = &state.failed {
                    return Err(Error::Io(error.clone()));
                }
                if state.running.tid == tid
                    && state.running.is_empty()
                    && (state.committing.is_none() || is(Bug::Ext4CommittingNotAwaited))
                {
                    return Ok(());
                }
                if tid.is_at_least(state.requested) {
                    state.requested = tid;
                }
            }
            self.wanted.notify();
            settled.await;
        }
    }

    /// As [`Journal::commit`], for work that nobody waits for: when the file system closes, it
    /// returns though nothing may have been committed.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub(crate) async fn settle(&self, tid: Tid) -> Result<()> {
        let committed = async { self.commit(tid).await };
        let closed = async {
            loop {
                let change = self.settled.wait();
                if self.closing.get() {
                    return Ok(());
                }
                change.await;
            }
        };
        first_of(committed, closed).await
    }

    /// Closes the running transaction, unless it is empty. The caller holds the tree lock alone.
    fn close(&self, now: Timestamp, by_runtime: Time) -> Option<Rc<Closed>> {
        let mut state = self.state.borrow_mut();
        if state.running.is_empty() {
            return None;
        }
        let next = Running::new(state.running.tid.next(), &self.memory);
        let running = std::mem::replace(&mut state.running, next);
        let logged = |changed: Changed| Logged {
            bytes: changed.buffer.bytes(),
            before: changed.before,
            kind: changed.kind,
            is_renewed: changed.is_renewed,
        };
        let blocks = running.blocks.into_iter().map(|(block, changed)| (block, logged(changed)));
        let run = |freed: &Range<u64>| {
            let blocks = narrow(freed.end - freed.start);
            Run { start: BlockNo(freed.start), blocks }
        };
        let closed = Rc::new(Closed {
            tid: running.tid,
            blocks: blocks.collect(),
            revoked: running.revoked,
            freed: running.freed.iter().map(run).collect(),
            data_written: self.data_written.take(),
            closed_at: now,
            closed_by_runtime: by_runtime,
            held: running.held,
        });
        state.committing = Some(Rc::clone(&closed));
        Some(closed)
    }

    fn is_wanted(&self) -> bool {
        let state = self.state.borrow();
        let asked = state.requested.is_at_least(state.running.tid);
        state.failed.is_none() && asked && !state.running.is_empty()
    }

    fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.running.is_empty() || state.failed.is_some()
    }

    /// Ends the tasks of the file system, and waits for those that write in the background. Nothing
    /// more is committed.
    pub(crate) async fn end(&self) {
        self.closing.set(true);
        self.aging.notify();
        self.filling.notify();
        self.settled.notify();
        while self.tasks.get() > 0 {
            let settled = self.settled.wait();
            self.wanted.notify();
            settled.await;
        }
    }
}

impl Metadata {
    /// Starts the task that commits transactions.
    fn start_commits(self: &Rc<Self>) {
        self.start_task(Rc::clone(self).commit_forever());
        if self.journal.sink.stays() {
            self.start_task(Rc::clone(self).age_forever());
            self.start_task(Rc::clone(self).arrange_forever());
            self.start_task(Rc::clone(self).clean_forever());
        } else if self.journal.sink.expires() {
            self.start_task(Rc::clone(self).expire_forever());
        }
    }

    /// Starts a task that [`Journal::end`] waits for.
    fn start_task(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        self.journal.tasks.set(self.journal.tasks.get() + 1);
        let metadata = Rc::clone(self);
        self.runtime.spawn(async move {
            task.await;
            metadata.journal.tasks.set(metadata.journal.tasks.get() - 1);
            metadata.journal.settled.notify();
        });
    }

    /// Commits when a task waits for it, and otherwise in intervals.
    async fn commit_forever(self: Rc<Self>) {
        while !self.journal.closing.get() {
            self.pause(|| self.journal.is_wanted(), || self.journal.is_idle()).await;
            self.journal.sink.turn().await;
            if let Err(error) = self.commit_running().await {
                self.journal.abort(error);
            }
        }
    }

    /// Resolves when `wanted` holds, when the file system closes, or an interval after work began.
    async fn pause(&self, wanted: impl Fn() -> bool, idle: impl Fn() -> bool) {
        let mut timer = None;
        loop {
            let change = self.journal.wanted.wait();
            if wanted() || self.journal.closing.get() {
                return;
            }
            if idle() {
                timer = None;
                change.await;
                continue;
            }
            let timer =
                timer.get_or_insert_with(|| self.runtime.sleep(self.journal.interval.get()));
            let changed = async {
                change.await;
                false
            };
            let expired = async {
                timer.await;
                true
            };
            if first_of(changed, expired).await {
                return;
            }
        }
    }

    async fn commit_running(self: &Rc<Self>) -> Result<(), manylogs_block::IoError> {
        let alone = self.journal.tree.write().await;
        let closed = self.journal.close((self.clock)(), self.runtime.now());
        drop(alone);
        let Some(closed) = closed else { return Ok(()) };
        match self.ahead.get() {
            Some(ahead) => ahead.commit(&*self.journal.sink, &closed).await?,
            None => self.journal.sink.commit(&closed).await?,
        }
        {
            let mut state = self.journal.state.borrow_mut();
            state.durable = closed.tid;
            state.committing = None;
        }
        self.journal.settled.notify();
        if self.journal.sink.is_filling(self.journal.largest) {
            if self.journal.sink.stays() {
                self.journal.filling.notify();
            } else if !self.journal.making_room.replace(true) {
                self.make_room_meanwhile();
            }
        }
        if self.journal.saves_map.get()
            && self.journal.sink.is_map_old()
            && !self.journal.saving.replace(true)
        {
            self.save_map_meanwhile();
        }
        if !closed.freed.is_empty() {
            let metadata = Rc::clone(self);
            self.runtime.spawn(async move {
                if metadata.journal.sink.quiet().await.is_ok() {
                    closed.freed.iter().for_each(|run| metadata.space.give_back(*run));
                    metadata.space.changed.notify();
                }
            });
        }
        Ok(())
    }

    /// Brings the log's content home in the background, so that no task has to wait for room.
    fn make_room_meanwhile(self: &Rc<Self>) {
        let metadata = Rc::clone(self);
        self.start_task(async move {
            if let Err(error) = metadata.healing(|sink| sink.make_room()).await {
                metadata.journal.abort(error);
            }
            metadata.journal.making_room.set(false);
        });
    }

    /// Saves the map of the log in the background. If that fails nothing is lost: the next opening
    /// takes longer.
    fn save_map_meanwhile(self: &Rc<Self>) {
        let metadata = Rc::clone(self);
        self.start_task(async move {
            drop(metadata.journal.sink.save_map(false).await);
            metadata.journal.saving.set(false);
        });
    }
}

impl Core {
    /// Starts the task that commits transactions, and the one that writes data back.
    pub(crate) fn start_tasks(self: &Rc<Self>) {
        self.metadata.start_commits();
        self.metadata.start_task(Rc::clone(self).write_back_forever());
    }

    /// Writes data back in intervals, and at once when there is much of it, so that the device
    /// works while a stream comes in. Small files may be overwritten or removed before they are
    /// written, so that they wait as they do in the kernel: for the interval, or until half of the
    /// memory for pages is in use. A failure is reported to the next sync of the file.
    async fn write_back_forever(self: Rc<Self>) {
        self.backlog.note_written(true);
        let half = to_usize(self.memory.most(Part::Pages) / 2 / PAGE_COST);
        let most = if self.mode.journals_content() { DIRTY_MUCH } else { half };
        while !self.journal.closing.get() {
            // After a failure the next attempt waits for an interval.
            let backlog = &self.backlog;
            let wanted = || self.memory.is_wanted(Part::Pages) && backlog.pages() > 0;
            let is_much = || backlog.is_written() && (backlog.is_much(most) || wanted());
            self.pause(is_much, || backlog.is_clean() || !self.journal.is_sound()).await;
            backlog.note_written(self.write_back_all().await.is_ok());
        }
        self.backlog.note_written(false);
    }
}
