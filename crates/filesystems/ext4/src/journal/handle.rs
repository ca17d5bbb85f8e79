//! Handles: an update of metadata takes effect as a whole, or not at all.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_plant::{Bug, is};

use super::{Changed, FREED_LEAST, LoggedKind};
use crate::alloc::Claim;
use crate::cache::Buffer;
use crate::error::Result;
use crate::lock::WriteGuard;
use crate::metadata::Metadata;
use crate::ondisk::jbd2::Tid;
use crate::units::{BlockNo, Ino, Run};

/// Runs of freed blocks after which a handle ends: it frees only blocks that belong to the last
/// step.
const FREED_MOST: usize = FREED_LEAST - 16;

/// The right to change metadata, which one task has at a time. See [`super`].
pub(crate) struct Handle<'c> {
    metadata: &'c Metadata,
    _alone: WriteGuard,
    credits: usize,
    /// Blocks that must stay free: the reserved ones, if the caller may not use them.
    pub(crate) kept: u64,
    undo: BTreeMap<BlockNo, Undo>,
    effects: Effects,
    finished: bool,
}

/// A changed buffer, and its bytes before; `None` if the handle created it.
struct Undo {
    buffer: Rc<Buffer>,
    before: Option<Bytes>,
    kind: LoggedKind,
    /// Whether the content is as it was.
    is_renewed: bool,
}

/// Changes of the state in memory that take effect when the handle is finished.
#[derive(Default)]
struct Effects {
    free_blocks: i64,
    free_inodes: i64,
    claims: Vec<Claim>,
    freed: Vec<Run>,
    forgotten: Vec<BlockNo>,
    orphans: Option<Vec<Ino>>,
}

impl Metadata {
    /// Begins an update: waits for the caller's turn, and for room for `credits` blocks in the
    /// journal.
    ///
    /// # Errors
    /// [`crate::Error::Aborted`] if the journal cannot be written any more, and
    /// [`crate::Error::ReadOnly`].
    pub(crate) async fn begin(&self, credits: usize) -> Result<Handle<'_>> {
        self.check_writable()?;
        debug_assert!(credits <= self.journal.sink.largest(), "no transaction takes as many");
        loop {
            let alone = self.journal.tree.write().await;
            self.journal.check()?;
            match self.journal.room_for(credits, self.journal.sink.kept_free()) {
                Room::Enough => return Ok(self.handle(alone, credits)),
                Room::AfterCommit(tid) => {
                    drop(alone);
                    self.journal.commit(tid).await?;
                }
                // When the file system closes there is no cleaner any more.
                Room::AfterCheckpoint
                    if self.journal.sink.stays() && !self.journal.closing.get() =>
                {
                    drop(alone);
                    self.journal.wait_for_room().await;
                }
                Room::AfterCheckpoint => {
                    drop(alone);
                    let made = self.healing(|sink| sink.make_room()).await;
                    made.inspect_err(|error| self.journal.abort(error.clone()))?;
                }
            }
        }
    }

    /// A handle that may change so many blocks. There is room for them.
    pub(super) fn handle(&self, alone: WriteGuard, credits: usize) -> Handle<'_> {
        let (undo, effects) = (BTreeMap::new(), Effects::default());
        let finished = false;
        Handle { metadata: self, _alone: alone, credits, kept: 0, undo, effects, finished }
    }
}

/// What must happen before a handle has room.
pub(super) enum Room {
    Enough,
    AfterCommit(Tid),
    AfterCheckpoint,
}

impl super::Journal {
    /// Whether there is room for `credits` blocks, and `kept` more.
    pub(super) fn room_for(&self, credits: usize, kept: usize) -> Room {
        let state = self.state.borrow();
        let running = state.running.blocks.len();
        let committing = state.committing.as_ref();
        let freed = state.running.freed.len();
        let many_freed = freed > 0 && freed + FREED_LEAST > self.sink.most_freed();
        let many_inodes = state.running.inodes > self.inodes_most && !state.running.is_empty();
        if many_freed || many_inodes || running > 0 && running + credits > self.largest {
            return Room::AfterCommit(state.running.tid);
        }
        let ahead = committing.map_or(0, |closed| closed.blocks.len());
        match committing {
            _ if self.sink.has_room(ahead + running + credits + kept) => Room::Enough,
            Some(closed) => Room::AfterCommit(closed.tid),
            None if self.sink.is_empty() => Room::AfterCommit(state.running.tid),
            None => Room::AfterCheckpoint,
        }
    }
}

impl Handle<'_> {
    /// Changes a block of metadata.
    pub(crate) fn change<R>(
        &mut self,
        buffer: &Rc<Buffer>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.hold(buffer).is_renewed = false;
        buffer.change(change)
    }

    /// Writes a block of metadata anew, as it is.
    pub(crate) fn renew(&mut self, buffer: &Rc<Buffer>) {
        self.hold(buffer);
    }

    /// The note of a block as it was before the update. A new one is of a block that is written
    /// anew.
    fn hold(&mut self, buffer: &Rc<Buffer>) -> &mut Undo {
        let held = self.undo.len() + usize::from(!self.undo.contains_key(&buffer.block()));
        debug_assert!(held <= self.credits, "more blocks changed than reserved");
        self.undo.entry(buffer.block()).or_insert_with(|| {
            let (buffer, before) = (Rc::clone(buffer), Some(buffer.bytes()));
            Undo { buffer, before, kind: LoggedKind::Metadata, is_renewed: true }
        })
    }

    /// Makes a block of zeroes that becomes metadata.
    pub(crate) fn create(&mut self, block: BlockNo) -> Rc<Buffer> {
        let buffer = self.metadata.cache.create(block);
        let (own, before, kind) = (Rc::clone(&buffer), None, LoggedKind::Metadata);
        self.undo.insert(block, Undo { buffer: own, before, kind, is_renewed: false });
        debug_assert!(self.undo.len() <= self.credits, "more blocks changed than reserved");
        buffer
    }

    /// Puts a block of a file's content into the transaction.
    pub(crate) fn log_content(&mut self, block: BlockNo, bytes: &[u8], kind: LoggedKind) {
        let buffer = self.create(block);
        self.change(&buffer, |block| block.copy_from_slice(bytes));
        if let Some(undo) = self.undo.get_mut(&block) {
            undo.kind = kind;
        }
    }

    /// Whether the update changes a block so far.
    pub(crate) fn changes(&self, block: BlockNo) -> bool {
        self.undo.contains_key(&block)
    }

    /// The blocks that the update made: nothing at home refers to their content yet.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Rc<Buffer>> {
        self.undo.values().filter(|undo| undo.before.is_none()).map(|undo| &undo.buffer)
    }

    /// How many blocks may still be changed; 0 when no more runs can be freed.
    pub(crate) fn credits_left(&self) -> usize {
        if self.effects.freed.len() >= FREED_MOST { 0 } else { self.credits - self.undo.len() }
    }

    /// Notes that blocks are in use now.
    pub(crate) fn note_used(&mut self, blocks: u32) {
        self.effects.free_blocks -= i64::from(blocks);
    }

    /// Notes that claimed blocks are in use now.
    pub(crate) fn note_claimed(&mut self, claim: Claim) {
        self.note_used(claim.run().blocks);
        self.effects.claims.push(claim);
    }

    /// Notes that blocks are freed: they can be reused when the transaction is durable. With
    /// `metadata` they may be in the cache.
    pub(crate) fn note_freed(&mut self, run: Run, metadata: bool) {
        self.effects.free_blocks += i64::from(run.blocks);
        if !is(Bug::Ext4ReuseBeforeDurable) {
            self.metadata.space.hold_back(run);
        }
        self.effects.freed.push(run);
        if metadata {
            self.effects.forgotten.extend(run.range().map(BlockNo));
        }
    }

    /// Adds to the number of free inodes.
    pub(crate) fn note_free_inodes(&mut self, more: i64) {
        self.effects.free_inodes += more;
    }

    /// The list of orphans, oldest first, as this update leaves it.
    pub(crate) fn orphans(&self) -> Vec<Ino> {
        self.effects.orphans.clone().unwrap_or_else(|| self.metadata.orphans.borrow().clone())
    }

    /// Sets the list of orphans.
    pub(crate) fn set_orphans(&mut self, orphans: Vec<Ino>) {
        self.effects.orphans = Some(orphans);
    }

    /// Makes the update part of the running transaction, whose number it returns.
    pub(crate) fn finish(mut self) -> Tid {
        self.finished = true;
        let effects = std::mem::take(&mut self.effects);
        let core = self.metadata;
        let mut revoked: Vec<BlockNo> = Vec::new();
        if !is(Bug::Ext4RevokeForgotten) {
            revoked.extend(effects.freed.iter().flat_map(|run| core.journal.logged(*run)));
        }
        core.space.settle(effects.free_blocks, effects.free_inodes);
        // The bitmaps mark the claimed blocks now.
        drop(effects.claims);
        if let Some(orphans) = effects.orphans {
            *core.orphans.borrow_mut() = orphans;
        }
        let mut state = core.journal.state.borrow_mut();
        let running = &mut state.running;
        let undo = std::mem::take(&mut self.undo);
        for (block, Undo { buffer, before, kind, is_renewed }) in undo {
            match running.blocks.entry(block) {
                Entry::Occupied(mut held) if is(Bug::NearBeforeOfLastHandle) => {
                    held.insert(Changed { buffer, before, kind, is_renewed });
                }
                Entry::Occupied(mut held) => {
                    // The bytes before the first handle count, unless the block was created anew.
                    let before = before.and(held.get_mut().before.take());
                    let is_renewed = is_renewed && held.get().is_renewed;
                    held.insert(Changed { buffer, before, kind, is_renewed });
                }
                Entry::Vacant(free) => {
                    free.insert(Changed { buffer, before, kind, is_renewed });
                }
            }
        }
        for block in effects.forgotten {
            running.blocks.remove(&block);
            core.cache.forget(block);
        }
        running.revoked.extend(revoked);
        let freed = effects.freed.iter().map(|run| run.range());
        running.freed.extend(freed.filter(|run| !run.is_empty()));
        running.count();
        core.journal.wanted.notify();
        running.tid
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        for (block, undo) in std::mem::take(&mut self.undo) {
            match undo.before {
                Some(bytes) => undo.buffer.restore(bytes),
                None => self.metadata.cache.forget(block),
            }
        }
        for run in &self.effects.freed {
            self.metadata.space.give_back(*run);
        }
    }
}

impl std::fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("credits", &self.credits)
            .field("changed", &self.undo.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
