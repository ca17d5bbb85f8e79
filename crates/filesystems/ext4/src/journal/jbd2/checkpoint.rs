//! Checkpoints: writing blocks of the log home.

use bytes::{Bytes, BytesMut};
use manylogs_block::{IoError, IoResult, Request, all_done};
use manylogs_plant::{Bug, is};

use super::copies::Waiting;
use super::place::write_blocks;
use super::scan::READ_MOST;
use super::{InLog, Jbd2Sink};
use crate::journal::age::Moment;
use crate::journal::sink::CommitSink;
use crate::memory::Part;
use crate::ondisk::jbd2::{self, Tid};
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// Blocks written home at a time, because the device copies them: 2 MiB.
const AT_ONCE: usize = 512;
/// Blocks of the log that give what is old in it home at a time: 4 MiB.
const OLD_MOST: u32 = 1024;

impl Jbd2Sink {
    /// Brings the durable content of the log home, and gives its room back: all of it, or only the
    /// oldest part if the log keeps its content.
    ///
    /// The committed content is written: a buffer may have changed since.
    pub(super) async fn checkpoint(&self) -> IoResult<()> {
        let _alone = self.checkpointing.take().await;
        let Some(newest) = self.due() else { return Ok(()) };
        self.bring_up_to(newest).await
    }

    /// As [`Jbd2Sink::checkpoint`], of what transactions closed before `before` have, and later
    /// ones do not; of a little of it, if the log keeps its content.
    pub(super) async fn checkpoint_old(&self, before: Moment) -> IoResult<()> {
        let _alone = self.checkpointing.take().await;
        let most = if self.stays() { OLD_MOST } else { u32::MAX };
        let is_all = !self.stays() && is(Bug::Ext4TimerTakesAll);
        let due = self.oldest(most, |transaction| transaction.is_older(before) || is_all);
        let Some(newest) = due else { return Ok(()) };
        self.bring_up_to(newest).await
    }

    /// As [`Jbd2Sink::checkpoint`], of transactions up to `newest`, if they are still there.
    pub(super) async fn checkpoint_part(&self, newest: Tid) -> IoResult<()> {
        let _alone = self.checkpointing.take().await;
        let oldest = self.state.borrow().transactions.front().map(|it| it.tid);
        match oldest {
            Some(oldest) if newest.is_at_least(oldest) => self.bring_up_to(newest).await,
            _ => Ok(()),
        }
    }

    /// As [`Jbd2Sink::checkpoint`], always of all durable content.
    pub(super) async fn checkpoint_all(&self) -> IoResult<()> {
        let _alone = self.checkpointing.take().await;
        self.bring_all().await
    }

    /// The last checkpoint, after which the log needs no replay. A checkpoint that waited meanwhile
    /// finds nothing to do, and leaves the superblock as it is.
    pub(super) async fn checkpoint_last(&self) -> IoResult<()> {
        let _alone = self.checkpointing.take().await;
        self.bring_all().await?;
        let next = {
            let mut state = self.state.borrow_mut();
            state.durable = None;
            // Another program may have left later numbers in a log that was opened.
            if state.is_opened { self.place.beyond(state.next) } else { state.next }
        };
        self.write_superblock(next, None).await
    }

    /// The newest transaction that the next checkpoint brings home.
    fn due(&self) -> Option<Tid> {
        if !self.stays() {
            return self.state.borrow().durable;
        }
        self.oldest(self.part_blocks(), |_| true)
    }

    /// The newest of the oldest durable transactions of which `is_due` holds, as many as have
    /// `least` blocks together.
    pub(super) fn oldest(&self, least: u32, is_due: impl Fn(&InLog) -> bool) -> Option<Tid> {
        let state = self.state.borrow();
        let durable = state.durable?;
        let (mut due, mut blocks) = (None, 0);
        let mut old =
            state.transactions.iter().take_while(|t| durable.is_at_least(t.tid) && is_due(t));
        while blocks < least
            && let Some(transaction) = old.next()
        {
            blocks += transaction.blocks;
            due = Some(transaction.tid);
        }
        due
    }

    /// Brings all durable content home. The caller holds [`Jbd2Sink::checkpointing`].
    async fn bring_all(&self) -> IoResult<()> {
        let Some(newest) = self.state.borrow().durable else { return Ok(()) };
        self.bring_up_to(newest).await
    }

    /// Brings home the content of transactions up to `newest`. The caller holds
    /// [`Jbd2Sink::checkpointing`].
    async fn bring_up_to(&self, newest: Tid) -> IoResult<()> {
        self.write_up_to(newest).await?;
        let newest = if is(Bug::LazyTailTooFar) { newest.next() } else { newest };
        let (tid, mut start) = self.tail_behind(newest);
        if is(Bug::LazyTailStartStays) {
            start = self.state.borrow().superblock.start().unwrap_or(start);
        }
        self.write_superblock(tid, Some(start)).await?;
        // Only now a replay does not look for these transactions any more.
        let mut state = self.state.borrow_mut();
        while let Some(oldest) = state.transactions.front()
            && newest.is_at_least(oldest.tid)
        {
            state.used -= oldest.blocks;
            state.transactions.pop_front();
        }
        let is_more = is(Bug::LazyForgetsNewer);
        state.copies.forget(if is_more { newest.next() } else { newest });
        state.count();
        Ok(())
    }

    /// Writes all durable content home, durably. The log keeps it.
    pub(super) async fn write_all_home(&self) -> IoResult<()> {
        let Some(newest) = self.state.borrow().durable else { return Ok(()) };
        self.write_up_to(newest).await
    }

    /// Writes the content of transactions up to `newest` home, durably.
    async fn write_up_to(&self, newest: Tid) -> IoResult<()> {
        let mut start = BlockNo(0);
        loop {
            let mut due = self.state.borrow().copies.waiting(start, newest, self.pending_most / 4);
            let Some(last) = due.last() else { break };
            start = BlockNo(last.home.0 + 1);
            if is(Bug::LazyTailBeforeRenewed) {
                due.retain(|waiting| !waiting.copy.past.is_hot());
            }
            self.write_home(due).await?;
        }
        if !is(Bug::Ext4TailBeforeHome) {
            self.device.submit(Request::Flush).await?;
        }
        Ok(())
    }

    /// Writes blocks home, in the order of their homes. Contents that are not in memory are read
    /// from the log, in the log's order.
    async fn write_home(&self, due: Vec<Waiting>) -> IoResult<()> {
        let blocks = due.len();
        let in_log = due.iter().filter(|waiting| waiting.bytes.is_none()).count();
        let _read = self.memory.hold(Part::Journal, (in_log * BLOCK_BYTES) as u64);
        let contents = self.contents(due).await?;
        let mut writes = 0;
        for some in contents.chunks(AT_ONCE) {
            let _copies = self.memory.hold(Part::Journal, (some.len() * BLOCK_BYTES) as u64);
            let written = write_blocks(&self.device, some.iter().cloned());
            writes += written.len() as u64;
            all_done(written).await?;
        }
        let mut stats = self.stats.get();
        stats.home_bytes += (blocks * BLOCK_BYTES) as u64;
        stats.home_writes += writes;
        self.stats.set(stats);
        Ok(())
    }

    /// The contents of waiting blocks, in the order of their homes. Their places in the log are not
    /// reused meanwhile, because only the caller gives room back.
    async fn contents(&self, due: Vec<Waiting>) -> IoResult<Vec<(BlockNo, Bytes)>> {
        let (held, mut in_log): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|waiting| waiting.bytes.is_some());
        let held = held.into_iter().filter_map(|waiting| Some((waiting.home, waiting.bytes?)));
        let mut contents: Vec<_> = held.collect();
        in_log.sort_unstable_by_key(|waiting| waiting.copy.at);
        let mut rest = &in_log[..];
        while let Some(first) = rest.first() {
            let start = self.place.home(first.copy.at);
            let follows = |number: u32, waiting: &Waiting| {
                number < READ_MOST
                    && self.place.home(waiting.copy.at).0 == start.0 + u64::from(number)
            };
            let run = (0..).zip(rest).take_while(|(number, it)| follows(*number, it)).count();
            let (now, later) = rest.split_at(run);
            let blocks = manylogs_block::narrow(run as u64);
            let bytes = self.read_logged(now, Run { start, blocks }).await?;
            for (number, waiting) in now.iter().enumerate() {
                let block = bytes.slice(number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES);
                if !self.is_as_logged(waiting.copy.tid, waiting.copy.checksum, &block) {
                    return Err(self.damaged(waiting));
                }
                let escaped = waiting.copy.escaped && !is(Bug::LazyEscapedGoesHome);
                contents.push((waiting.home, unescaped(block, escaped)));
            }
            rest = later;
        }
        contents.sort_unstable_by_key(|(home, _)| *home);
        Ok(contents)
    }

    /// Reads copies that lie side by side in `run`.
    ///
    /// # Errors
    /// Those of the device. If its medium is bad, [`IoError::Checksum`] of the first copy that it
    /// does not give: a copy can be healed, and a longer read does not say which one.
    async fn read_logged(&self, copies: &[Waiting], run: Run) -> IoResult<Bytes> {
        match self.read_blocks(run).await {
            Err(IoError::Medium { .. }) => {}
            read => return read,
        }
        let mut bytes = BytesMut::with_capacity(copies.len() * BLOCK_BYTES);
        for waiting in copies {
            let one = Run { start: self.place.home(waiting.copy.at), blocks: 1 };
            match self.read_blocks(one).await {
                Err(IoError::Medium { .. }) => return Err(self.damaged(waiting)),
                read => bytes.extend_from_slice(&read?),
            }
        }
        Ok(bytes.freeze())
    }

    async fn read_blocks(&self, run: Run) -> IoResult<Bytes> {
        let payload = self.device.submit(Request::Read { extent: run.sectors() }).await?;
        payload.to_bytes().ok_or(IoError::Unsupported)
    }

    /// The error that says which copy is damaged.
    fn damaged(&self, waiting: &Waiting) -> IoError {
        IoError::Checksum { extent: self.place.home(waiting.copy.at).sectors() }
    }

    /// Where a replay begins when transactions up to `newest` are home.
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

    /// Notes in the journal's superblock that the file system is damaged. The log stays as it is.
    pub(super) async fn write_damage(&self) -> IoResult<()> {
        // A checkpoint writes the superblock too.
        let _alone = self.checkpointing.take().await;
        self.state.borrow_mut().superblock.set_damaged();
        self.put_superblock().await
    }

    pub(super) async fn put_superblock(&self) -> IoResult<()> {
        let request = self.place.write_of(&mut self.state.borrow_mut().superblock);
        self.device.submit(request).await.map(drop)
    }
}

/// A block of the log as it is at home.
pub(crate) fn unescaped(block: Bytes, escaped: bool) -> Bytes {
    if !escaped || is(Bug::LazyNotUnescaped) {
        return block;
    }
    let mut own = BytesMut::from(&block[..]);
    jbd2::escape(&mut own, false);
    own.freeze()
}
