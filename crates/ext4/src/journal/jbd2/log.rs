//! Writing transactions to the log.

use bytes::{Bytes, BytesMut};
use manylogs_block::{IoResult, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use super::place::write_blocks;
use super::{InLog, Jbd2Sink};
use crate::journal::sink::Closed;
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
        for block in body {
            placed.push((self.place.home(at), block));
            at = self.place.after(at);
        }
        let blocks: u32 = manylogs_block::narrow(placed.len() as u64 + 1);
        let commit = self.format.commit_block(tid, transaction.closed_at);
        let commit_at = self.place.home(at);
        {
            let mut state = self.state.borrow_mut();
            state.head = self.place.after(at);
            state.next = tid.next();
            state.transactions.push_back(InLog { tid, start, blocks });
            state.logged.extend(transaction.blocks.keys().map(|block| (*block, tid)));
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
        self.stats.set(stats);
        self.settle(transaction);
        Ok(())
    }

    async fn write_commit(&self, at: BlockNo, block: Vec<u8>) -> IoResult<()> {
        let request = Request::write_fua(at.sectors(), Payload::bytes(block));
        self.device.submit(request).await.map(drop)
    }

    /// All blocks of a transaction but the last.
    fn body(&self, transaction: &Closed) -> Vec<Bytes> {
        let tid = transaction.tid;
        let mut revoked = transaction.revoked.clone();
        revoked.sort_unstable();
        revoked.dedup();
        let revokes = revoked.chunks(self.format.revokes());
        let mut body: Vec<Bytes> =
            revokes.map(|blocks| self.format.revoke_block(tid, blocks).into()).collect();
        let blocks: Vec<_> = transaction.blocks.iter().collect();
        for announced in blocks.chunks(self.format.tags()) {
            let logged =
                announced.iter().map(|(home, logged)| self.in_log(tid, **home, &logged.bytes));
            let (tags, contents): (Vec<Tag>, Vec<Bytes>) = logged.unzip();
            body.push(self.format.descriptor(tid, &tags).into());
            body.extend(contents);
        }
        body
    }

    /// A block as it stands in the log, and its tag.
    fn in_log(&self, tid: Tid, home: BlockNo, bytes: &Bytes) -> (Tag, Bytes) {
        let escaped = jbd2::must_escape(bytes);
        let content = if escaped {
            let mut content = BytesMut::from(&bytes[..]);
            jbd2::escape(&mut content, true);
            content.freeze()
        } else {
            bytes.clone()
        };
        let checksum = self.format.checksum(tid, &content).unwrap_or(0);
        (Tag { home, escaped, checksum }, content)
    }

    /// The transaction is durable.
    fn settle(&self, transaction: &Closed) {
        let mut state = self.state.borrow_mut();
        for run in &transaction.freed {
            let range = BlockNo(run.range().start)..BlockNo(run.range().end);
            let gone: Vec<BlockNo> = state.pending.range(range).map(|(block, _)| *block).collect();
            for block in gone {
                state.pending.remove(&block);
            }
        }
        let tid = transaction.tid;
        state.durable = Some(tid);
        let blocks = transaction.blocks.iter();
        state.pending.extend(blocks.map(|(block, logged)| (*block, (tid, logged.bytes.clone()))));
        state.count();
    }
}
