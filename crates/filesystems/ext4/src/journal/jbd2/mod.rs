//! ext4's own journal as a [`CommitSink`]: a ring of blocks in a file.
//!
//! A transaction in the log has revoke blocks, then descriptors with the blocks that they announce,
//! then a commit block. The commit block is written when all blocks before it and the transaction's
//! data are durable. Later a checkpoint brings all durable blocks home, and the journal's
//! superblock then names the next transaction as the first to replay. A log that keeps its content
//! ([`crate::Mode::Lazy`]) brings only its oldest part home, when it is nearly full, and the next
//! mount opens it as it is.

mod behind;
mod checkpoint;
mod clean;
mod copies;
mod log;
mod open;
mod place;
mod replay;
mod restore;
mod save;
mod scan;
mod scrub;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, Extent, IoResult, Nanos, TaskLock, Time, to_usize};
use manylogs_plant::{Bug, is};

use crate::core::Mode;
use crate::memory::{Memory, Part, Permit};
use crate::ondisk::jbd2::{Format, JournalSuperblock, Tid};
use crate::units::{BLOCK_BYTES, BlockNo, Run, Timestamp};

use super::age::Moment;
use super::clean::{Cleaner, OldPart};
use super::sink::{Closed, CommitSink, Contents, KeptInLog, LogCopy, Look, Newest, Step};
use super::stats::SinkStats;
pub(crate) use checkpoint::unescaped;
use copies::{Copies, Copy};
pub(crate) use open::open;
pub(crate) use place::LogPlace;
pub(crate) use replay::{Journalled, OnLoss, read_superblock, replay, reset};
pub(crate) use restore::replay_whole;

/// The longest run of content that goes into a transaction in [`crate::Mode::Runs`]: 32 KiB, as for
/// the file systems of the Manylogs paper (section V-A).
const CONTENT_BLOCKS: u32 = 8;
/// The shortest journal that mkfs makes. The largest transaction is a quarter of the log.
pub(crate) const BLOCKS_LEAST: u32 = 1024;

/// Bytes of memory of a waiting block's content.
const PENDING_COST: u64 = BLOCK_BYTES as u64 + 256;
/// Most bytes of memory of any block's entry, if there are many.
const COPY_COST: u64 = 16;
/// Most blocks of a transaction, whatever the memory and the log allow. An opening looks so far for
/// what lies behind a transaction that is not whole.
pub(super) const LARGEST_MOST: usize = 4096;
/// Most runs of blocks that a transaction may free: they are in memory until it is durable.
const FREED_MOST: usize = 1 << 16;

/// How many blocks that wait to go home may have their content in memory.
fn pending_in(memory: &Memory) -> usize {
    to_usize(memory.most(Part::Journal) / 2 / (PENDING_COST + COPY_COST))
}

impl State {
    /// The memory of the copies now.
    fn cost(&self) -> u64 {
        let in_memory = self.copies.in_memory() as u64 * PENDING_COST;
        in_memory + self.copies.len() as u64 * COPY_COST
    }

    /// Holds the memory that [`State::cost`] says.
    fn count(&mut self) {
        self.held.set(self.cost());
    }
}

/// ext4's own journal: see the module.
pub(crate) struct Jbd2Sink {
    device: Rc<dyn BlockDevice>,
    place: LogPlace,
    format: Format,
    state: RefCell<State>,
    /// Held by a checkpoint, so that only one runs.
    checkpointing: TaskLock,
    /// Held while blocks of a map are written: no transaction is written over them meanwhile.
    mapping: TaskLock,
    stats: Cell<SinkStats>,
    /// Which blocks the log holds, and whether they stay there. If it holds content of files, all
    /// waiting blocks are in memory, because reads of content look there.
    mode: Mode,
    /// Most waiting blocks in memory: half of the journal's share.
    pending_most: usize,
    memory: Memory,
    cleaner: Cell<Cleaner>,
}

struct State {
    superblock: JournalSuperblock,
    /// The next block of the log to be written.
    head: u32,
    /// Transactions that a replay would find, oldest first.
    transactions: VecDeque<InLog>,
    /// Blocks of the log that these take.
    used: u32,
    /// The number of the next transaction.
    next: Tid,
    /// Blocks that were logged since the map was saved.
    unsaved: u32,
    /// The generation of the last saved map that is known.
    generation: u32,
    /// Whether the log was opened with what another program may have left there.
    is_opened: bool,
    /// The newest transaction that is durable; `None` if the log has none.
    durable: Option<Tid>,
    /// The copies in durable transactions of the log.
    copies: Copies,
    /// The memory of the copies.
    held: Permit,
}

/// A transaction in the log.
#[derive(Clone, Copy, Debug)]
struct InLog {
    tid: Tid,
    start: u32,
    blocks: u32,
    closed_at: Timestamp,
    /// The same by the runtime's clock, in seconds, rounded up: few bytes, because a long log has
    /// many transactions.
    closed_s: u32,
}

impl InLog {
    /// [`InLog::closed_s`] of transactions that were there before the mount: it never comes.
    const BEFORE_MOUNT: u32 = u32::MAX;

    fn seconds(time: Time) -> u32 {
        u32::try_from(time.0.div_ceil(Nanos::from_secs(1).0)).unwrap_or(Self::BEFORE_MOUNT)
    }

    /// Whether it was closed before that, by one of the clocks. By the wall clock alone, what was
    /// closed before that was set back would stay young for so long.
    fn is_older(&self, before: Moment) -> bool {
        let closed = Nanos::from_secs(self.closed_s.into());
        self.closed_at < before.wall || closed.0 < before.runtime.0
    }
}

impl Jbd2Sink {
    /// A sink that writes to an empty log, from its beginning. Nothing may be left to replay.
    pub(crate) fn new(
        mode: Mode,
        device: Rc<dyn BlockDevice>,
        place: LogPlace,
        superblock: JournalSuperblock,
        memory: &Memory,
    ) -> Self {
        let state = State {
            head: place.first(),
            transactions: VecDeque::new(),
            used: 0,
            unsaved: 0,
            generation: 0,
            next: superblock.sequence(),
            is_opened: false,
            durable: None,
            copies: Copies::default(),
            held: memory.hold(Part::Journal, 0),
            superblock,
        };
        let pending_most = pending_in(memory);
        Self {
            device,
            place,
            format: state.superblock.format(),
            state: RefCell::new(state),
            checkpointing: TaskLock::default(),
            mapping: TaskLock::default(),
            stats: Cell::default(),
            mode,
            pending_most,
            memory: memory.clone(),
            cleaner: Cell::default(),
        }
    }

    /// Marks the log as in use: from now on a replay looks for transactions in it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn begin(&self) -> IoResult<()> {
        let (next, head) = (self.state.borrow().next, self.state.borrow().head);
        self.write_superblock(next, Some(head)).await
    }

    /// Whether there is memory for the content of one more block that waits to go home.
    fn has_memory(&self, state: &State) -> bool {
        let each = PENDING_COST + COPY_COST;
        self.mode.journals_content()
            || !self.stays() && state.cost() + each <= self.pending_most as u64 * each
    }

    /// Blocks of the log that transactions take.
    fn used(&self) -> u32 {
        self.state.borrow().used
    }

    /// See [`needed`].
    fn needed(&self, blocks: usize) -> u64 {
        needed(&self.place, self.format, blocks)
    }

    /// A copy as others know it.
    fn log_copy(&self, copy: &Copy) -> LogCopy {
        let Copy { tid, escaped, checksum, .. } = *copy;
        LogCopy { at: self.place.home(copy.at), tid, escaped, checksum }
    }

    /// Whether a copy in the log has the checksum that its descriptor has.
    fn is_as_logged(&self, tid: Tid, checksum: u32, bytes: &[u8]) -> bool {
        let sum = self.format.checksum(tid, bytes);
        sum.is_none_or(|sum| sum == checksum) || is(Bug::LazyCopyNotCompared)
    }
}

/// The most blocks of the log that a transaction of `blocks` blocks may take. Revoke blocks name
/// only blocks that have copies in the log, and the commit block takes one more.
fn needed(place: &LogPlace, format: Format, blocks: usize) -> u64 {
    let revokes = (place.blocks() as usize).div_ceil(format.revokes()) + 1;
    (blocks + blocks.div_ceil(format.tags()) + 2 * revokes + 4) as u64
}

impl CommitSink for Jbd2Sink {
    fn largest(&self) -> usize {
        (self.place.blocks() as usize / 4).min(LARGEST_MOST)
    }

    fn most_freed(&self) -> usize {
        FREED_MOST
    }

    fn takes_content(&self, blocks: u32) -> bool {
        blocks <= CONTENT_BLOCKS && blocks as usize <= self.largest() / 4
    }

    fn has_room(&self, blocks: usize) -> bool {
        let pending = self.state.borrow().copies.live_len();
        let fits_memory = !self.mode.journals_content() || pending + blocks <= self.pending_most;
        u64::from(self.used()) + self.needed(blocks) <= u64::from(self.place.blocks())
            && (pending == 0 || fits_memory)
    }

    fn is_empty(&self) -> bool {
        self.state.borrow().transactions.is_empty()
    }

    fn make_room(&self) -> Step<'_> {
        Box::pin(self.checkpoint())
    }

    fn is_filling(&self, largest: usize) -> bool {
        let most = if self.stays() { self.place.blocks() as usize / 4 } else { usize::MAX };
        !self.has_room((2 * largest).min(most) + self.kept_free())
    }

    fn oldest_part(&self) -> Option<OldPart> {
        self.stays().then(|| self.part()).flatten()
    }

    fn read_copies<'a>(&'a self, copies: &'a [(BlockNo, LogCopy)]) -> Contents<'a> {
        Box::pin(self.read_newest(copies))
    }

    fn look(&self, after: Option<Tid>) -> Look<'_> {
        Box::pin(self.look_at(after))
    }

    fn give_back(&self, newest: Tid) -> Step<'_> {
        Box::pin(self.checkpoint_part(newest))
    }

    fn kept_free(&self) -> usize {
        if self.stays() { self.renewed_most() } else { 0 }
    }

    fn clean_by(&self, cleaner: Cleaner) {
        self.cleaner.set(cleaner);
    }

    fn bring_home(&self) -> Step<'_> {
        Box::pin(self.checkpoint_all())
    }

    fn has_older(&self, before: Moment) -> bool {
        self.oldest(1, |transaction| transaction.is_older(before)).is_some()
    }

    fn expires(&self) -> bool {
        !self.stays()
    }

    fn bring_old_home(&self, before: Moment) -> Step<'_> {
        Box::pin(self.checkpoint_old(before))
    }

    fn commit<'a>(&'a self, transaction: &'a Closed) -> Step<'a> {
        Box::pin(self.write(transaction))
    }

    fn quiet(&self) -> Step<'_> {
        Box::pin(async {
            if !is(Bug::Ext4QuietNotAwaited) {
                drop(self.checkpointing.take().await);
            }
            Ok(())
        })
    }

    fn newest(&self, block: BlockNo) -> Option<Newest> {
        let waiting = self.state.borrow().copies.live(block)?;
        let in_log = || Newest::InLog(self.log_copy(&waiting.copy));
        Some(waiting.bytes.map_or_else(in_log, Newest::Bytes))
    }

    fn is_newest(&self, block: BlockNo, copy: &LogCopy) -> bool {
        let live = self.state.borrow().copies.live(block);
        live.is_some_and(|waiting| self.log_copy(&waiting.copy) == *copy)
    }

    fn is_whole(&self, copy: &LogCopy, bytes: &[u8]) -> bool {
        self.is_as_logged(copy.tid, copy.checksum, bytes)
    }

    fn heal(&self, extent: Extent, committed: &dyn Fn(BlockNo) -> Option<Bytes>) -> bool {
        self.heal_copy(extent, committed)
    }

    fn logged(&self, run: Run) -> Vec<BlockNo> {
        self.state.borrow().copies.logged(run)
    }

    fn stats(&self) -> SinkStats {
        let live = self.state.borrow().copies.live_len() as u64;
        SinkStats { at_risk_bytes: live * BLOCK_BYTES as u64, ..self.stats.get() }
    }

    fn give_up(&self) -> Pin<Box<dyn Future<Output = IoResult<bool>> + '_>> {
        Box::pin(async { self.write_damage().await.map(|()| true) })
    }

    fn stays(&self) -> bool {
        self.mode.stays_in_journal()
    }

    fn arranges(&self) -> Option<u64> {
        self.stays().then(|| u64::from(self.place.blocks() / 2))
    }

    fn kept_in_log(&self) -> Option<KeptInLog> {
        let state = self.state.borrow();
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        self.stays().then(|| KeptInLog {
            size_bytes: bytes(self.place.blocks().into()),
            used_bytes: bytes(state.used.into()),
            live_bytes: bytes(state.copies.live_len() as u64),
            oldest: state.transactions.front().map(|oldest| oldest.closed_at),
        })
    }

    fn is_map_old(&self) -> bool {
        self.has_much_unsaved()
    }

    fn save_map(&self, is_left: bool) -> Step<'_> {
        Box::pin(async move {
            match self.stays() {
                true => self.save(is_left, save::AT_ONCE).await,
                false => Ok(()),
            }
        })
    }

    fn drain(&self) -> Step<'_> {
        Box::pin(self.checkpoint_last())
    }
}

impl std::fmt::Debug for Jbd2Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jbd2Sink")
            .field("format", &self.format)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}
