//! Bringing blocks home.

use bytes::Bytes;
use manylogs_block::{IoResult, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use super::Jbd2Sink;
use super::place::write_blocks;
use crate::memory::Part;
use crate::ondisk::jbd2::Tid;
use crate::units::BLOCK_BYTES;

/// Blocks that are on their way home at a time, as the device copies them: 2 MiB.
const AT_ONCE: usize = 512;

impl Jbd2Sink {
    /// Brings home all that is durable in the log, and gives the log's room back.
    ///
    /// What is written is what was committed: a buffer may have changed since.
    pub(super) async fn checkpoint(&self) -> IoResult<()> {
        let _alone = self.checkpointing.take().await;
        self.bring_home().await
    }

    /// As [`Jbd2Sink::checkpoint`], for the last time: the log needs no replay then. Whoever has
    /// waited for the room finds nothing to do, and leaves the superblock as it is.
    pub(super) async fn checkpoint_last(&self) -> IoResult<()> {
        let _alone = self.checkpointing.take().await;
        self.bring_home().await?;
        let next = {
            let mut state = self.state.borrow_mut();
            state.durable = None;
            state.next
        };
        self.write_superblock(next, None).await
    }

    /// See [`Jbd2Sink::checkpoint`]. The caller is the only one who does so.
    async fn bring_home(&self) -> IoResult<()> {
        let (newest, pending) = {
            let state = self.state.borrow();
            let Some(newest) = state.durable else { return Ok(()) };
            (newest, state.pending.clone())
        };
        let blocks: Vec<_> = pending.iter().map(|(block, (_, bytes))| (*block, bytes)).collect();
        for some in blocks.chunks(AT_ONCE) {
            let _copies = self.memory.hold(Part::Journal, (some.len() * BLOCK_BYTES) as u64);
            let some = some.iter().map(|(block, bytes)| (*block, Bytes::clone(bytes)));
            all_done(write_blocks(&self.device, some)).await?;
        }
        let mut stats = self.stats.get();
        stats.home_bytes += (pending.len() * BLOCK_BYTES) as u64;
        self.stats.set(stats);
        if !is(Bug::Ext4TailBeforeHome) {
            self.device.submit(Request::Flush).await?;
        }
        let (tid, start) = self.tail_behind(newest);
        self.write_superblock(tid, Some(start)).await?;
        // Only now nobody looks for them any more.
        let mut state = self.state.borrow_mut();
        state.transactions.retain(|transaction| !newest.is_at_least(transaction.tid));
        state.logged.retain(|_, tid| !newest.is_at_least(*tid));
        state
            .pending
            .retain(|block, (tid, _)| pending.get(block).is_none_or(|(written, _)| written != tid));
        state.count();
        Ok(())
    }

    /// Where a replay begins that needs nothing up to `newest`.
    fn tail_behind(&self, newest: Tid) -> (Tid, u32) {
        let state = self.state.borrow();
        let rest = state.transactions.iter().find(|t| !newest.is_at_least(t.tid));
        rest.map_or((state.next, state.head), |oldest| (oldest.tid, oldest.start))
    }

    /// Writes the journal's superblock: a replay begins with `tid` at block `start`, or nowhere.
    pub(super) async fn write_superblock(&self, tid: Tid, start: Option<u32>) -> IoResult<()> {
        self.state.borrow_mut().superblock.set_tail(tid, start);
        self.put_superblock().await
    }

    /// Writes that the file system is damaged, with the log as it is.
    pub(super) async fn write_damage(&self) -> IoResult<()> {
        // A checkpoint writes the superblock, too.
        let _alone = self.checkpointing.take().await;
        self.state.borrow_mut().superblock.set_damaged();
        self.put_superblock().await
    }

    async fn put_superblock(&self) -> IoResult<()> {
        let mut block = vec![0; BLOCK_BYTES];
        self.state.borrow_mut().superblock.encode(&mut block);
        let request = Request::write_fua(self.place.home(0).sectors(), Payload::bytes(block));
        self.device.submit(request).await.map(drop)
    }
}
