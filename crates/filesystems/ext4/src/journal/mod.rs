//! Transactions: one that runs, one that is being committed, and the tasks that wait for them.
//!
//! An update of metadata has a [`Handle`], which reserves credits: the blocks that it may change.
//! An update excludes other updates and all readers of metadata, so that a handle sees the metadata
//! whole. So does a commit, because a transaction is closed only when no handle is open. A handle
//! that is dropped unfinished leaves no trace: its changes are undone.

mod age;
mod clean;
mod commit;
mod handle;
mod heal;
mod idle_arrange;
pub(crate) mod jbd2;
mod no_sink;
mod scrub;
mod sink;
mod stats;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, IoError, Nanos, Signal, to_usize};
use manylogs_plant::{Bug, is};
use rangemap::RangeSet;

pub use age::Moment;
pub use clean::{Cleaner, OldPart};
pub(crate) use handle::Handle;
pub use idle_arrange::IdleArranged;
pub(crate) use no_sink::NoSink;
pub use scrub::{LastScrub, Looked, Scrubbed};
pub use sink::{
    Closed, CommitSink, Contents, FREED_LEAST, KeptInLog, LARGEST_LEAST, LogCopy, Logged,
    LoggedKind, Look, Newest, Step, Together,
};
pub use stats::SinkStats;

use crate::cache::{Buffer, read_block, read_blocks};
use crate::error::{Error, Result};
use crate::inode::nodes_most;
use crate::lock::SharedLock;
use crate::memory::{Memory, Part, Permit};
use crate::ondisk::jbd2::Tid;
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// Time after which a transaction is committed though nobody waits for it, as in ext4.
const INTERVAL: Nanos = Nanos::from_secs(5);

/// The transactions of a file system: see the module.
pub(crate) struct Journal {
    pub(crate) sink: Rc<dyn CommitSink>,
    /// The tree lock: held shared to read metadata, and alone to change it.
    pub(crate) tree: SharedLock,
    state: RefCell<State>,
    /// Notified when a transaction should be committed, there is work, or the file system closes.
    wanted: Signal,
    /// Notified when a transaction became durable, or the journal was aborted.
    settled: Signal,
    /// Whether a background task brings the log's content home.
    making_room: Cell<bool>,
    /// Notified when there is little room in a log that keeps its content, or the file system
    /// closes.
    filling: Signal,
    /// Whether somebody waits for room there.
    room_wanted: Cell<bool>,
    /// Whether a background task saves the map of the log.
    saving: Cell<bool>,
    closing: Cell<bool>,
    /// Most time from a transaction's first handle to its commit.
    pub(crate) interval: Cell<Nanos>,
    /// How old metadata may become before it goes home: in idle time, in a log that keeps it; at
    /// any time, in a log whose content goes home anyway. No bound if there is none.
    max_age: Cell<Option<Nanos>>,
    /// See [`crate::Ext4::too_old_stays`].
    too_old_stays: RefCell<Option<IoError>>,
    /// How often metadata is arranged in idle time, in a log that keeps it for good.
    arranges_every: Cell<Option<Nanos>>,
    /// How many requests that made.
    arranging_requests: Cell<u64>,
    /// What that did.
    idle_arranged: Cell<idle_arrange::IdleArranged>,
    /// Whether the map of a log that keeps its content is saved.
    pub(crate) saves_map: Cell<bool>,
    /// Notified when that bound changes, or the file system closes.
    aging: Signal,
    /// The scrubs since the mount.
    scrubs: RefCell<scrub::Scrubs>,
    /// Whether damage was found after which nothing is changed.
    pub(crate) damaged: Cell<bool>,
    /// Tasks of the file system that have not ended.
    tasks: Cell<u32>,
    /// See [`Closed::data_written`].
    data_written: Cell<bool>,
    /// Blocks of the largest transaction.
    largest: usize,
    /// The most inodes that a transaction changes: their nodes stay in memory until it is durable.
    inodes_most: usize,
    pub(crate) memory: Memory,
}

struct State {
    running: Running,
    committing: Option<Rc<Closed>>,
    /// The newest transaction that is durable.
    durable: Tid,
    /// The newest transaction that a task waits for.
    requested: Tid,
    failed: Option<IoError>,
}

/// The transaction that handles add to.
struct Running {
    tid: Tid,
    blocks: BTreeMap<BlockNo, Changed>,
    revoked: Vec<BlockNo>,
    /// The blocks that it frees. Neighbours are one run, whoever freed them: a sink may take few.
    freed: RangeSet<u64>,
    /// How many inodes it changes.
    inodes: usize,
    held: Permit,
}

/// A block that the running transaction changes.
struct Changed {
    buffer: Rc<Buffer>,
    /// See [`Logged::before`].
    before: Option<Bytes>,
    kind: LoggedKind,
    /// See [`Logged::is_renewed`].
    is_renewed: bool,
}

/// Bytes of memory of a block that a transaction changes, besides the cache's: its content before,
/// its content in the transaction if the cache has a newer one, and a copy on its way to the
/// device.
const LOGGED_COST: u64 = 3 * BLOCK_BYTES as u64 + 256;

/// Blocks of the largest transaction for which there is memory. One transaction runs and one is
/// committed, and half of the share is for blocks that wait to go home.
fn largest_in(memory: &Memory) -> usize {
    to_usize(memory.most(Part::Journal) / 2 / (2 * LOGGED_COST)).max(LARGEST_LEAST)
}

impl Running {
    fn new(tid: Tid, memory: &Memory) -> Self {
        let held = memory.hold(Part::Journal, 0);
        let (blocks, revoked, freed) = (BTreeMap::new(), Vec::new(), RangeSet::new());
        Self { tid, blocks, revoked, freed, inodes: 0, held }
    }

    /// Holds memory for the blocks that it has now.
    fn count(&mut self) {
        self.held.set(self.blocks.len() as u64 * LOGGED_COST);
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revoked.is_empty() && self.freed.is_empty()
    }
}

impl Journal {
    /// A journal whose first transaction is `first`.
    pub(crate) fn new(sink: Rc<dyn CommitSink>, first: Tid, memory: &Memory) -> Self {
        let durable = Tid(first.0.wrapping_sub(1));
        let state = State {
            running: Running::new(first, memory),
            committing: None,
            durable,
            requested: durable,
            failed: None,
        };
        let largest = sink.largest().min(largest_in(memory));
        let inodes_most = nodes_most(memory) / 2;
        let most_age = if sink.stays() { age::USUAL } else { age::EXPIRES };
        Self {
            sink,
            tree: SharedLock::default(),
            state: RefCell::new(state),
            wanted: Signal::default(),
            settled: Signal::default(),
            making_room: Cell::new(false),
            filling: Signal::default(),
            room_wanted: Cell::new(false),
            saving: Cell::new(false),
            closing: Cell::new(false),
            interval: Cell::new(INTERVAL),
            max_age: Cell::new(Some(most_age)),
            too_old_stays: RefCell::default(),
            arranges_every: Cell::new(Some(idle_arrange::USUAL)),
            arranging_requests: Cell::default(),
            idle_arranged: Cell::default(),
            saves_map: Cell::new(true),
            aging: Signal::default(),
            scrubs: RefCell::default(),
            damaged: Cell::new(false),
            tasks: Cell::new(0),
            data_written: Cell::new(false),
            largest,
            inodes_most,
            memory: memory.clone(),
        }
    }

    /// No journal: nothing is written.
    pub(crate) fn none(memory: &Memory) -> Self {
        Self::new(Rc::new(NoSink), Tid::default(), memory)
    }

    /// The transaction that the next handle adds to.
    pub(crate) fn running(&self) -> Tid {
        self.state.borrow().running.tid
    }

    /// # Errors
    /// [`Error::Aborted`] if a transaction could not be committed.
    pub(crate) fn check(&self) -> Result<()> {
        self.state.borrow().failed.clone().map_or(Ok(()), |error| Err(Error::Aborted(error)))
    }

    /// Wakes the tasks that wait for work.
    pub(crate) fn note_work(&self) {
        self.wanted.notify();
    }

    /// Counts an inode that transaction `tid` changes.
    pub(crate) fn note_inode(&self, tid: Tid) {
        let mut state = self.state.borrow_mut();
        state.running.inodes += usize::from(state.running.tid == tid);
    }

    /// Notes that data was written past the journal, and the device has answered. The transaction
    /// that refers to it is not closed yet.
    pub(crate) fn note_data(&self) {
        self.data_written.set(true);
    }

    /// Whether all data written so far is durable once the running transaction and those before it
    /// are. An empty transaction is not committed, so it flushes nothing.
    pub(crate) fn covers_data(&self) -> bool {
        !self.data_written.get() || !self.state.borrow().running.is_empty()
    }

    /// The newest transaction that is not durable and has content of one of these blocks.
    pub(crate) fn holding(&self, run: Run) -> Option<Tid> {
        let state = self.state.borrow();
        let range = BlockNo(run.range().start)..BlockNo(run.range().end);
        if state.running.blocks.range(range.clone()).next().is_some() {
            return Some(state.running.tid);
        }
        let committing = state.committing.as_ref();
        let closed = committing.filter(|_| !is(Bug::NearHomeUnderCommit))?;
        closed.blocks.range(range).next().map(|_| closed.tid)
    }

    /// The transaction that will be durable next.
    pub(crate) fn next_durable(&self) -> Tid {
        self.state.borrow().durable.next()
    }

    /// Whether a transaction is durable.
    pub(crate) fn is_durable(&self, tid: Tid) -> bool {
        self.state.borrow().durable.is_at_least(tid)
    }

    /// As [`Journal::read`], for blocks that a mount reads before it is complete. Those that lie in
    /// one piece are read by one request, in the log as well as at home.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn read_early(
        &self,
        device: &dyn BlockDevice,
        blocks: &[BlockNo],
    ) -> Result<Vec<Bytes>, IoError> {
        if is(Bug::LazyMountReadsHome) {
            return read_blocks(device, blocks).await;
        }
        let place = |block: &BlockNo| match self.newest(*block) {
            Some(Newest::InLog(copy)) => copy.at,
            Some(Newest::Bytes(_)) | None => *block,
        };
        let places: BTreeSet<BlockNo> = blocks.iter().map(place).collect();
        let places = Vec::from_iter(places);
        // What cannot be read is tried again alone, and is the error of its block then.
        let contents = read_blocks(device, &places).await.unwrap_or_default();
        // Each is used once: another read of its place asks the device.
        let known = RefCell::new(BTreeMap::from_iter(places.into_iter().zip(contents)));
        let fetch = async |at: BlockNo| {
            let content = known.borrow_mut().remove(&at);
            match content {
                Some(content) => Ok(content),
                None => read_block(device, at).await,
            }
        };
        let mut found = Vec::with_capacity(blocks.len());
        for block in blocks {
            found.push(self.read(&fetch, *block).await?);
        }
        Ok(found)
    }

    /// Whether transactions can still be committed.
    pub(crate) fn is_sound(&self) -> bool {
        self.state.borrow().failed.is_none()
    }

    /// Stops all changes after a failure: memory and device differ from here on.
    pub(crate) fn abort(&self, error: IoError) {
        self.state.borrow_mut().failed.get_or_insert(error);
        self.settled.notify();
        self.wanted.notify();
        self.filling.notify();
    }

    /// The blocks of a run of which a replay could bring back older content.
    pub(crate) fn logged(&self, run: Run) -> Vec<BlockNo> {
        let mut found = self.sink.logged(run);
        // The sink may not know the blocks yet that it is committing.
        if let Some(closed) = &self.state.borrow().committing
            && !is(Bug::NearUnderWayNotSuperseded)
        {
            let range = BlockNo(run.range().start)..BlockNo(run.range().end);
            found.extend(closed.blocks.range(range).map(|(block, _)| *block));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The content of a block that is not in the cache, if it is newer than that at home.
    pub(crate) fn newest(&self, block: BlockNo) -> Option<Newest> {
        let committing = self.state.borrow().committing.clone();
        let bytes = committing
            .and_then(|closed| closed.blocks.get(&block).map(|logged| logged.bytes.clone()));
        bytes.map(Newest::Bytes).or_else(|| self.sink.newest(block))
    }

    /// Reads a block of metadata that is not in the cache, from the log or from home, by `fetch`,
    /// which finds what the device holds. No transaction is closed meanwhile.
    ///
    /// # Errors
    /// Those of the device, and [`IoError::Checksum`] for a damaged copy in the log.
    pub(crate) async fn read(
        &self,
        fetch: impl AsyncFn(BlockNo) -> Result<Bytes, IoError>,
        block: BlockNo,
    ) -> Result<Bytes, IoError> {
        loop {
            let newest = self.newest(block);
            let copy = match &newest {
                Some(Newest::Bytes(bytes)) => return Ok(bytes.clone()),
                Some(Newest::InLog(copy)) => copy,
                None => return fetch(block).await,
            };
            let bytes = fetch(copy.at).await?;
            // Meanwhile the block may have gone home, and its place in the log may have been
            // reused.
            if self.newest(block) == newest || is(Bug::LazyPlaceNotAsked) {
                return match self.sink.is_whole(copy, &bytes) {
                    true => Ok(jbd2::unescaped(bytes, copy.escaped)),
                    false => Err(IoError::Checksum { extent: copy.at.sectors() }),
                };
            }
        }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("Journal")
            .field("running", &state.running.tid)
            .field("blocks", &state.running.blocks.len())
            .field("durable", &state.durable)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
