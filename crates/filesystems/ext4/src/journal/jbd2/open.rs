//! Opening a log that keeps its content, without a replay.

use std::rc::Rc;

use manylogs_block::{BlockDevice, IoResult};
use manylogs_plant::{Bug, is};

use super::behind::Spot;
use super::copies::Copy;
use super::replay::Journalled;
use super::scan::{Announced, Contents, Found, Scan};
use super::{InLog, Jbd2Sink};
use crate::core::Mode;
use crate::error::Result;
use crate::memory::Memory;
use crate::ondisk::jbd2::Tid;
use crate::units::Run;

/// A sink that goes on in the log that `journal` describes, with the copies that are in it. `None`
/// if the log must be replayed instead: a transaction may hold content of files, for which reads
/// would not look there, the log has another format than ours (`format`: wide numbers, checksums),
/// or it is damaged. Nothing is written.
///
/// Copies are found by the saved map ([`super::restore`]), and by the descriptors behind what that
/// has. They were durable before their commit block was written. Only the copies of the newest
/// transaction are compared with their checksums, because another program may have written them
/// together with the commit block.
///
/// # Errors
/// Those of the device, and [`crate::Error::Corrupt`] if a transaction that was durable is not
/// whole.
pub(crate) async fn open(
    device: &Rc<dyn BlockDevice>,
    journal: &Journalled,
    format: (bool, bool),
    blocks: u64,
    memory: &Memory,
) -> Result<Option<Jbd2Sink>> {
    let Journalled { place, superblock, .. } = journal;
    if !superblock.is_of_format(format.0, format.1) {
        return Ok(None);
    }
    let Some((scan, start)) = Scan::of(device, place, superblock, blocks)? else {
        return Ok(None);
    };
    let sink =
        Jbd2Sink::new(Mode::Lazy, Rc::clone(device), place.clone(), superblock.clone(), memory);
    {
        let mut state = sink.state.borrow_mut();
        (state.head, state.is_opened) = (start, true);
    }
    let saved = sink.restore(&scan, start).await?;
    let mut is_left = saved.is_some_and(|saved| saved.is_left);
    while let Some(found) = sink.next_in(&scan, Contents::Skipped).await? {
        if !found.is_metadata && !is(Bug::LazyOpensContent) {
            return Ok(None);
        }
        is_left = false;
        sink.append(&scan, found).await?;
    }
    let is_sound = is_left
        || sink.newest_is_whole(&scan).await? && !sink.is_damaged(&scan, saved.is_some()).await?;
    if !is_sound {
        return Ok(None);
    }
    if is(Bug::LazyHeadForgotten) {
        sink.state.borrow_mut().head = place.first();
    }
    Ok(Some(sink))
}

impl Jbd2Sink {
    /// The transaction behind the ones found so far.
    async fn next_in(&self, scan: &Scan<'_>, contents: Contents) -> Result<Option<Found>> {
        let (tid, at, left) = {
            let state = self.state.borrow();
            (state.next, state.head, self.place.blocks() - state.used)
        };
        scan.transaction(tid, at, left, contents).await
    }

    /// Notes a whole transaction, which is newer than those before it.
    async fn append(&self, scan: &Scan<'_>, found: Found) -> Result<()> {
        for at in &found.revokes {
            let revoked = scan.revoked_at(*at).await?;
            let revoked = revoked.into_iter().filter(|_| !is(Bug::LazyOpensRevoked));
            let state = &mut *self.state.borrow_mut();
            revoked.for_each(|block| state.copies.free(Run { start: block, blocks: 1 }));
        }
        let mut state = self.state.borrow_mut();
        let tid = state.next;
        for Announced { tag, at, .. } in found.copies {
            let (escaped, checksum) = (tag.escaped, tag.checksum);
            // Who wrote it is not known: it counts as changed.
            let past = state.copies.past(tag.home, false);
            let copy = Copy { tid, at, escaped, checksum, is_live: true, past };
            state.copies.insert(tag.home, copy, None);
        }
        let (start, blocks, closed_at) = (state.head, found.blocks, found.closed_at);
        let closed_s = InLog::BEFORE_MOUNT;
        state.transactions.push_back(InLog { tid, start, blocks, closed_at, closed_s });
        state.used += blocks;
        state.unsaved = state.unsaved.saturating_add(blocks);
        state.head = found.behind;
        state.durable = Some(tid);
        state.next = tid.next();
        state.count();
        Ok(())
    }

    /// Compares the copies of the newest transaction with their checksums.
    async fn newest_is_whole(&self, scan: &Scan<'_>) -> Result<bool> {
        let newest = self.state.borrow().transactions.back().copied();
        let Some(InLog { tid, start, blocks, .. }) = newest else { return Ok(true) };
        if is(Bug::LazyMapAheadOfCommit) {
            return Ok(true);
        }
        let found = scan.transaction(tid, start, blocks, Contents::Compared).await?;
        Ok(found.is_some_and(|found| !found.copies.iter().any(|copy| copy.is_bad)))
    }

    /// Whether the transaction behind those that were found was durable and is not whole. If none
    /// was found, and the map was not saved (`is_ours`), any program may have written the log: else
    /// it was this crate alone.
    async fn is_damaged(&self, scan: &Scan<'_>, is_ours: bool) -> Result<bool> {
        let (spot, last) = {
            let state = self.state.borrow();
            let left = self.place.blocks() - state.used;
            let last = state.transactions.back().map(|newest| newest.closed_at);
            (Spot { tid: state.next, at: state.head, left }, last)
        };
        let proof = scan.proof_for(spot, last, is_ours || last.is_some()).await?;
        Ok(proof.is_some())
    }

    /// Notes durably that there will be commits, before the first of them, unless it is opened to
    /// read only. Returns the number of the next transaction.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn go_on(&self, read_only: bool) -> IoResult<Tid> {
        if !read_only && !is(Bug::LazyLeftStays) {
            self.note_left(false).await?;
        }
        Ok(self.next())
    }

    /// The number of the next transaction.
    pub(super) fn next(&self) -> Tid {
        self.state.borrow().next
    }
}
