//! Giving back the oldest part of a log that keeps its content, while nobody waits.
//!
//! What is live there is written anew if it will presumably be written again soon, and else goes
//! home. The paper renews all of it (*Evolving Ext4 for Shingled Disks*, section 3.2); then blocks
//! that nobody writes any more are copied once in each lap. Here a block is renewed at most twice
//! since it was written, and goes home then.
//!
//! A renewal is a change like others, of the content that it finds, in the running transaction. So
//! whatever happens to it, nothing is lost: the room is given back when all that is live in it is
//! durable elsewhere, at home or in a newer transaction, and what was not renewed goes home.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::IoResult;
use manylogs_plant::{Bug, is};

use super::handle::Room;
use super::{Handle, Journal, LogCopy};
use crate::error::Result;
use crate::metadata::Metadata;
use crate::ondisk::jbd2::Tid;
use crate::ops::Ext4;
use crate::units::{BlockNo, Run};

/// Blocks of a transaction of what is renewed: a sync that comes meanwhile waits for no more.
pub(super) const AT_ONCE: usize = 240;

/// Which live blocks of the oldest part of a log are written anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleaner {
    /// Those that will presumably be written again.
    #[default]
    Own,
    /// All of them, as in the paper. They go home only if the log would have no more room.
    Paper,
}

/// The oldest part of a log, of which the room is to be given back.
#[derive(Clone, Debug)]
pub struct OldPart {
    /// Its newest transaction.
    pub newest: Tid,
    /// The live blocks that should be written anew, in the order of the log.
    pub renew: Vec<(BlockNo, LogCopy)>,
}

impl Ext4 {
    /// Sets what is renewed in a journal that keeps its content ([`crate::Mode::Lazy`]).
    pub fn clean_by(&self, cleaner: Cleaner) {
        self.core.journal.sink.clean_by(cleaner);
    }
}

impl Journal {
    /// Whether the cleaner has something to do.
    fn is_cleaning_due(&self) -> bool {
        self.room_wanted.get() || self.sink.is_filling(self.largest)
    }

    /// Asks the cleaner for room, and waits until it made some, or something else has changed.
    pub(super) async fn wait_for_room(&self) {
        let settled = self.settled.wait();
        self.room_wanted.set(true);
        self.filling.notify();
        settled.await;
    }

    /// Whether a block is as it was in this copy, in memory too: then a handle may write it anew.
    /// The caller holds the tree lock alone.
    pub(super) fn is_unchanged(&self, block: BlockNo, copy: &LogCopy) -> bool {
        let is_newest = self.sink.is_newest(block, copy);
        let is_held = self.holding(Run { start: block, blocks: 1 }).is_some();
        let is_freed = self.frees(block) && !is(Bug::LazyRenewsFreed);
        is_newest && !is_held && !is_freed
    }

    /// Whether a transaction that is not durable frees a block.
    fn frees(&self, block: BlockNo) -> bool {
        let state = self.state.borrow();
        let closed = state.committing.as_ref();
        state.running.freed.contains(&block.0)
            || closed.is_some_and(|it| it.freed.iter().any(|run| run.range().contains(&block.0)))
    }
}

impl Metadata {
    /// Gives back the oldest part of the log whenever there is little room, as long as the file
    /// system is mounted.
    pub(super) async fn clean_forever(self: Rc<Self>) {
        let journal = &self.journal;
        loop {
            let change = journal.filling.wait();
            if journal.closing.get() || !journal.is_sound() {
                return;
            }
            if !journal.is_cleaning_due() {
                change.await;
                continue;
            }
            journal.room_wanted.set(false);
            match self.clean().await {
                Ok(true) => journal.settled.notify(),
                Ok(false) => change.await,
                Err(error) => journal.abort(error),
            }
        }
    }

    /// Gives back the oldest part of the log. Returns whether there was one.
    async fn clean(&self) -> IoResult<bool> {
        let sink = &self.journal.sink;
        let Some(part) = sink.oldest_part() else { return Ok(false) };
        // If a renewal fails, the journal has failed too.
        drop(self.renew(&part).await);
        if !self.journal.is_sound() || self.journal.closing.get() {
            return Ok(true);
        }
        // What was not renewed goes home.
        self.healing(|sink| sink.give_back(part.newest)).await?;
        Ok(true)
    }

    /// Writes live blocks of the oldest part anew, durably; those that were changed or freed
    /// meanwhile are left out, and all if there is no room for them.
    async fn renew(&self, part: &OldPart) -> Result<()> {
        let mut last = None;
        for some in part.renew.chunks(AT_ONCE) {
            let is_missing = |block| self.cache.get(block).is_none() || is(Bug::LazyRenewsOld);
            let missing: Vec<_> =
                some.iter().filter(|(block, _)| is_missing(*block)).copied().collect();
            let read = self.journal.sink.read_copies(&missing).await;
            let Some(mut handle) = self.begin_meanwhile(some.len()).await? else { break };
            self.renew_some(&mut handle, some, read);
            last = Some(handle.finish());
        }
        match last {
            Some(tid) if !is(Bug::LazyTailBeforeRenewed) => self.journal.settle(tid).await,
            _ => Ok(()),
        }
    }

    fn renew_some(
        &self,
        handle: &mut Handle<'_>,
        some: &[(BlockNo, LogCopy)],
        read: Vec<(BlockNo, Bytes)>,
    ) {
        let mut read = BTreeMap::from_iter(read);
        for (block, copy) in some {
            let content = read.remove(block);
            if is(Bug::LazyRenewsOld)
                && let (Some(old), Some(buffer)) = (&content, self.cache.get(*block))
            {
                handle.change(&buffer, |bytes| bytes.copy_from_slice(old));
            }
            if !self.journal.is_unchanged(*block, copy) {
                continue;
            }
            let known = self.cache.get(*block);
            let buffer = known.or_else(|| content.map(|bytes| self.cache.insert(*block, bytes)));
            if let Some(buffer) = buffer {
                handle.renew(&buffer);
            }
        }
    }

    /// As [`Metadata::begin`], for work that nobody waits for: `None` if the log has no room for
    /// it, or the file system closes.
    pub(crate) async fn begin_meanwhile(&self, credits: usize) -> Result<Option<Handle<'_>>> {
        while !self.journal.closing.get() {
            let alone = self.journal.tree.write().await;
            self.journal.check()?;
            match self.journal.room_for(credits, 0) {
                Room::Enough => return Ok(Some(self.handle(alone, credits))),
                Room::AfterCommit(tid) => {
                    drop(alone);
                    self.journal.settle(tid).await?;
                }
                Room::AfterCheckpoint => return Ok(None),
            }
        }
        Ok(None)
    }
}
