//! Writing transactions to the log.

use bytes::{Bytes, BytesMut};
use manylogs_block::{Extent, IoResult, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use super::copies::{Copy, Past};
use super::place::write_blocks;
use super::{InLog, Jbd2Sink};
use crate::journal::sink::{Closed, LoggedKind};
use crate::ondisk::jbd2::{self, Tag, Tid};
use crate::units::{BLOCK_BYTES, BlockNo};

impl Jbd2Sink {
    /// Writes a transaction and waits until it is durable.
    pub(super) async fn write(&self, transaction: &Closed) -> IoResult<()> {
        let (tid, start) = (transaction.tid, self.state.borrow().head);
        debug_assert_eq!(tid, self.state.borrow().next);
        let body = self.body(transaction);
        let mut at = start;
        let mut placed = Vec::with_capacity(body.len());
        let mut copies = Vec::with_capacity(transaction.blocks.len());
        for Piece { bytes, of } in body {
            placed.push((self.place.home(at), bytes));
            copies.extend(of.map(|Tag { home, escaped, checksum }| {
                let past = Past::default();
                (home, Copy { tid, at, checksum, escaped, is_live: true, past })
            }));
            at = self.place.after(at);
        }
        let blocks: u32 = manylogs_block::narrow(placed.len() as u64 + 1);
        let metadata =
            !transaction.blocks.values().any(|logged| logged.kind != LoggedKind::Metadata);
        let commit = self.format.commit_block(tid, transaction.closed_at, metadata);
        let commit_at = self.place.home(at);
        {
            let mut state = self.state.borrow_mut();
            state.head = self.place.after(at);
            state.next = tid.next();
            let closed_at = transaction.closed_at;
            let closed_s = InLog::seconds(transaction.closed_by_runtime);
            state.transactions.push_back(InLog { tid, start, blocks, closed_at, closed_s });
            state.used += blocks;
            state.unsaved = state.unsaved.saturating_add(blocks);
        }
        // Blocks of a map may be under way to these places. No more of them follow, because the
        // head is behind these places now.
        if !is(Bug::LazyMapOverCommits) {
            drop(self.mapping.take().await);
        }
        if is(Bug::Ext4CommitBeforeBody) {
            self.write_commit(commit_at, commit.clone()).await?;
        }
        all_done(write_blocks(&self.device, placed)).await?;
        if !is(Bug::Ext4CommitWithoutFlush) {
            self.device.submit(Request::Flush).await?;
        }
        self.write_commit(commit_at, commit).await?;
        let mut stats = self.stats.get();
        stats.transactions += 1;
        stats.records += 1;
        stats.flushes += 1;
        stats.log_bytes += u64::from(blocks) * BLOCK_BYTES as u64;
        let renewed = transaction.blocks.values().filter(|logged| logged.is_renewed).count();
        stats.renewed_bytes += (renewed * BLOCK_BYTES) as u64;
        stats.changed_bytes += ((transaction.blocks.len() - renewed) * BLOCK_BYTES) as u64;
        self.stats.set(stats);
        self.settle(transaction, copies);
        Ok(())
    }

    async fn write_commit(&self, at: BlockNo, block: Vec<u8>) -> IoResult<()> {
        let request = Request::write_fua(at.sectors(), Payload::bytes(block));
        self.device.submit(request).await.map(drop)
    }

    /// All blocks of a transaction but the last.
    fn body(&self, transaction: &Closed) -> Vec<Piece> {
        let tid = transaction.tid;
        let own = |block: Vec<u8>| Piece { bytes: block.into(), of: None };
        let mut revoked = transaction.revoked.clone();
        revoked.sort_unstable();
        revoked.dedup();
        let revokes = revoked.chunks(self.format.revokes());
        let mut body: Vec<Piece> =
            revokes.map(|blocks| own(self.format.revoke_block(tid, blocks))).collect();
        let blocks: Vec<_> = transaction.blocks.iter().collect();
        for announced in blocks.chunks(self.format.tags()) {
            let logged =
                announced.iter().map(|(home, logged)| self.in_log(tid, **home, &logged.bytes));
            let (tags, contents): (Vec<Tag>, Vec<Piece>) = logged.unzip();
            body.push(own(self.format.descriptor(tid, &tags)));
            body.extend(contents);
        }
        body
    }

    /// A block as it is written to the log, and its tag.
    fn in_log(&self, tid: Tid, home: BlockNo, bytes: &Bytes) -> (Tag, Piece) {
        let escaped = jbd2::must_escape(bytes);
        let content = if escaped {
            let mut content = BytesMut::from(&bytes[..]);
            jbd2::escape(&mut content, true);
            content.freeze()
        } else {
            bytes.clone()
        };
        let checksum = self.format.checksum(tid, &content).unwrap_or(0);
        let tag = Tag { home, escaped, checksum };
        (tag, Piece { bytes: content, of: Some(tag) })
    }

    /// See [`CommitSink::heal`]. The content must have the checksum that the copy had.
    ///
    /// [`CommitSink::heal`]: crate::CommitSink::heal
    pub(super) fn heal_copy(
        &self,
        extent: Extent,
        committed: &dyn Fn(BlockNo) -> Option<Bytes>,
    ) -> bool {
        let is_it = |copy: &Copy| self.place.home(copy.at).sectors() == extent;
        let found = self.state.borrow().copies.find_live(is_it);
        // A newer copy has come meanwhile, or the block was freed.
        let Some((home, copy)) = found else { return true };
        let Some(bytes) = committed(home) else { return false };
        let (tag, Piece { bytes: in_log, .. }) = self.in_log(copy.tid, home, &bytes);
        if !self.is_as_logged(copy.tid, copy.checksum, &in_log) || tag.escaped != copy.escaped {
            return false;
        }
        let state = &mut *self.state.borrow_mut();
        state.copies.give_content(home, bytes);
        state.count();
        true
    }

    /// Notes that the transaction is durable, with its copies.
    fn settle(&self, transaction: &Closed, copies: Vec<(BlockNo, Copy)>) {
        let mut state = self.state.borrow_mut();
        if !is(Bug::LazyFreedStaysLive) {
            transaction.freed.iter().for_each(|run| state.copies.free(*run));
        }
        state.durable = Some(transaction.tid);
        for (home, copy) in copies {
            let logged = transaction.blocks.get(&home);
            let keeps = self.has_memory(&state);
            let bytes = logged.map(|logged| logged.bytes.clone()).filter(|_| keeps);
            let past = state.copies.past(home, logged.is_some_and(|logged| logged.is_renewed));
            state.copies.insert(home, Copy { past, ..copy }, bytes);
        }
        state.count();
    }
}

/// A block of the log as it is written.
struct Piece {
    bytes: Bytes,
    /// How its descriptor names it; `None` for the journal's own blocks.
    of: Option<Tag>,
}
