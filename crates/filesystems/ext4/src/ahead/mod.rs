//! Reading metadata ahead: one mechanism, in the order in which blocks lie on the device.
//!
//! A layer below all that the file system does. Whoever looks for metadata asks it for a block of
//! the device: a copy in the journal where the journal keeps what it holds, else the block's home.
//! So the order is that of the journal in [`crate::Mode::Lazy`], and that of the homes in other
//! modes (*Evolving Ext4 for Shingled Disks*, section 4.2). With the block come some that lie
//! around it, and wait in memory until somebody asks for them.
//!
//! # What always holds
//!
//! **What waits is what the device holds.** A block's copy goes when a write, a discard or zeroes
//! for any of it are submitted. A block is not taken from a read during which such a request was
//! under way, whichever began first. So it does not matter what the block is, nor what it becomes:
//! the journal says where the newest copy of a block of metadata is, before and after it is read.
//!
//! **A commit may change what the device holds,** though no request for these blocks is seen: with
//! logs near the head the device below is the volume, whose table leads to the record from then on.
//! Such a commit passes through here, and its blocks, and those that it frees, count as being
//! changed for as long as it is under way ([`CommitSink::changes_device`]).
//!
//! **Content is not served.** Only metadata is asked for here: content of files is read from the
//! device past what waits.
//!
//! **Nobody fails for a neighbour.** If blocks cannot be read together, the one that is wanted is
//! read alone.
//!
//! **It is one read.** Only blocks that the device reads in one piece with the one that is wanted
//! are read ahead ([`CommitSink::in_one_piece`]): a window must not cost a positioning for each of
//! its blocks that lies in some log.
//!
//! **It has to pay.** Blocks are read ahead while blocks that lie near one that was read are asked
//! for soon, and not while each lies anywhere. The more of them are asked for, the more are read at
//! a time: see [`worth`].

mod chosen;
mod windows;
mod worth;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, IoError, IoResult, Request,
    to_usize,
};
use manylogs_plant::{Bug, is};

use crate::cache::read_block;
use crate::core::Core;
use crate::journal::{Closed, CommitSink};
use crate::memory::{Memory, Part};
use crate::ops::Ext4;
use crate::units::{BLOCK, BLOCK_BYTES, BLOCK_SECTORS, BlockNo, Run};
use chosen::Chosen;
use windows::{Window, Windows};
use worth::Worth;

/// Blocks of the shortest window: 128 KiB, as kernels read ahead at first.
const SHORTEST_BLOCKS: u32 = 32;
/// Most blocks of a window: 1 MiB, or a sixteenth of the memory for all if that is less.
const LONGEST_BLOCKS: u32 = 256;

/// Which metadata is read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// None.
    Off,
    /// Tables of inodes at home, by 32 blocks, as Linux does for ext4.
    Tables,
    /// All of it, where it pays.
    #[default]
    All,
}

impl ReadAhead {
    /// All values.
    pub const EACH: [Self; 3] = [Self::Off, Self::Tables, Self::All];

    /// The value of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|it| it.name() == name)
    }

    /// Its name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tables => "tables",
            Self::All => "all",
        }
    }
}

/// The layer of the device that reads metadata ahead.
pub(crate) struct Ahead {
    below: Rc<dyn BlockDevice>,
    state: Rc<RefCell<State>>,
    policy: Cell<ReadAhead>,
    memory: Memory,
}

struct State {
    windows: Windows,
    /// Whether to read ahead with blocks of tables of inodes, wherever they lie, and with others:
    /// tables are dense, and directories of a tree often are not.
    tables: Worth,
    others: Worth,
    /// The blocks of each request under way that changes some, by its number.
    changing: BTreeMap<u64, Range<u64>>,
    /// Number of the next request that changes blocks.
    next: u64,
    /// Reads under way.
    reading: Vec<Weak<Reading>>,
}

/// A read of several blocks under way.
struct Reading {
    /// The blocks that were changed meanwhile.
    changed: RefCell<Chosen>,
}

impl Ahead {
    /// A layer over `below` that has read nothing.
    pub(crate) fn new(below: Rc<dyn BlockDevice>, memory: &Memory) -> Self {
        let share = Self::share(memory);
        let longest = (share / 16 / BLOCK).clamp(SHORTEST_BLOCKS.into(), LONGEST_BLOCKS.into());
        let longest = 1 << longest.ilog2();
        // A new window is there before others go.
        let most = share.saturating_sub(Window::cost(longest));
        let windows = to_usize(most / Window::cost(SHORTEST_BLOCKS));
        let state = State {
            windows: Windows::new(most),
            tables: Worth::new(windows, longest),
            others: Worth::new(windows, longest),
            changing: BTreeMap::new(),
            next: 0,
            reading: Vec::new(),
        };
        let policy = Cell::new(ReadAhead::default());
        Self { below, state: Rc::new(RefCell::new(state)), policy, memory: memory.clone() }
    }

    /// Bytes that blocks may take that were read ahead: a quarter of those for metadata.
    pub(crate) fn share(memory: &Memory) -> u64 {
        memory.most(Part::Metadata) / 4
    }

    /// Sets which metadata is read ahead from now on.
    pub(crate) fn set(&self, policy: ReadAhead) {
        self.policy.set(policy);
    }

    /// Reads a block of metadata, and others ahead. `table` is the table of inodes that it is in,
    /// if it is in one; `sink` is that of the mount.
    ///
    /// # Errors
    /// Those of the device, for this block.
    pub(crate) async fn read(
        &self,
        sink: &dyn CommitSink,
        block: BlockNo,
        table: Option<Run>,
    ) -> IoResult<Bytes> {
        if let Some(bytes) = self.take(block, table.is_some()) {
            return Ok(bytes);
        }
        let run = self.plan(block, table);
        let run = if run.blocks > 1 { sink.in_one_piece(block, run) } else { run };
        if run.blocks > 1
            && let Ok(bytes) = self.read_window(run, block, table.is_some()).await
        {
            return Ok(bytes);
        }
        read_block(&*self.below, block).await
    }

    /// Takes a block that was read ahead; the caller keeps it.
    fn take(&self, block: BlockNo, of_table: bool) -> Option<Bytes> {
        let mut state = self.state.borrow_mut();
        let found = state.windows.take(block)?;
        state.worth(of_table).note_hit();
        Some(found)
    }

    /// The blocks to read together with a block that was not read ahead.
    fn plan(&self, block: BlockNo, table: Option<Run>) -> Run {
        let one = Run { start: block, blocks: 1 };
        let state = &mut *self.state.borrow_mut();
        let worth = state.worth(table.is_some());
        let pays = worth.note_miss(block);
        let table = table.filter(|table| table.range().contains(&block.0));
        let wanted = match (self.policy.get(), table) {
            (ReadAhead::All, _) if !pays => return one,
            (ReadAhead::Off, _) | (ReadAhead::Tables, None) => return one,
            (ReadAhead::Tables, Some(table)) => part_of(table.range(), block, SHORTEST_BLOCKS),
            (ReadAhead::All, Some(table)) => part_of(table.range(), block, worth.next_window()),
            (ReadAhead::All, None) => {
                let end = self.below.capabilities().capacity.0 / BLOCK_SECTORS;
                part_of(0..end, block, worth.next_window())
            }
        };
        state.windows.free_part(wanted, block).unwrap_or(one)
    }

    /// Reads `run`, of which `wanted` is asked for, and keeps the rest.
    async fn read_window(&self, run: Run, wanted: BlockNo, of_table: bool) -> IoResult<Bytes> {
        let reading = self.state.borrow_mut().begin(run);
        let payload = self.below.submit(Request::Read { extent: run.sectors() }).await?;
        let bytes = payload.to_bytes().ok_or(IoError::Unsupported)?;
        let at = to_usize(wanted.0 - run.start.0) * BLOCK_BYTES;
        let found = Bytes::copy_from_slice(&bytes[at..at + BLOCK_BYTES]);
        let mut not = reading.changed.borrow().clone();
        not.add(&(wanted.0..wanted.0 + 1));
        let window = Window::of(run, bytes, &not, &self.memory);
        let mut state = self.state.borrow_mut();
        state.worth(of_table).note_window(run.blocks);
        state.windows.insert(window);
        Ok(found)
    }
}

/// The blocks of which a commit may change what the device holds, in runs.
fn changed_by(transaction: &Closed) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = transaction.freed.iter().map(|run| run.range()).collect();
    for block in transaction.blocks.keys().map(|block| block.0) {
        match runs.last_mut() {
            Some(run) if run.end == block => run.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

/// The part of `whole` that is read with `block`: parts of `each` blocks lie one behind the other.
/// Neighbours on both sides are in it, because those who walk a tree in another order than that in
/// which it was made ask for either.
fn part_of(whole: Range<u64>, block: BlockNo, each: u32) -> Range<u64> {
    let each = u64::from(each);
    let start = whole.start + (block.0 - whole.start) / each * each;
    start..whole.end.min(start + each)
}

/// The blocks of which a request may change something.
fn changed(request: &Request) -> Option<Range<u64>> {
    let extent = request.extent().filter(|_| request.kind().is_change())?;
    let end = extent.start.0 + extent.len.0;
    Some(extent.start.0 / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS))
}

impl State {
    /// What judges blocks of tables of inodes, or others.
    const fn worth(&mut self, of_table: bool) -> &mut Worth {
        if of_table { &mut self.tables } else { &mut self.others }
    }

    /// Notes that a read of these blocks begins.
    fn begin(&mut self, run: Run) -> Rc<Reading> {
        let mut changed = Chosen::none(run);
        if !is(Bug::AheadOfWrites) {
            self.changing.values().for_each(|range| changed.add(range));
        }
        let reading = Rc::new(Reading { changed: RefCell::new(changed) });
        self.reading.retain(|reading| reading.strong_count() > 0);
        self.reading.push(Rc::downgrade(&reading));
        reading
    }

    /// Notes that a request begins that changes these blocks; returns its number.
    fn change(&mut self, range: Range<u64>) -> u64 {
        if !is(Bug::AheadKeepsOld) {
            self.windows.forget(&range);
        }
        for reading in self.reading.iter().filter_map(Weak::upgrade) {
            if !is(Bug::AheadUnderWay) {
                reading.changed.borrow_mut().add(&range);
            }
        }
        let number = self.next;
        self.next += 1;
        self.changing.insert(number, range);
        number
    }
}

impl Ahead {
    /// Passes a request on, and forgets the blocks that it changes. If the caller drops the answer,
    /// the blocks' content is not known, and they are not read ahead any more.
    fn pass(&self, request: Request, on: impl FnOnce(Request) -> Completion) -> Completion {
        let Some(range) = changed(&request) else { return on(request) };
        let number = self.state.borrow_mut().change(range);
        let (state, answer) = (Rc::clone(&self.state), on(request));
        Completion::of_others(async move {
            let answer = answer.await;
            state.borrow_mut().changing.remove(&number);
            answer
        })
    }
}

impl Ahead {
    /// Makes a transaction durable. If that changes what the device holds, its blocks are
    /// forgotten, and not kept from reads that go on meanwhile. If it fails, their content is not
    /// known, and they are not read ahead any more.
    ///
    /// # Errors
    /// Those of [`CommitSink::commit`].
    pub(crate) async fn commit(&self, sink: &dyn CommitSink, transaction: &Closed) -> IoResult<()> {
        if !sink.changes_device() || is(Bug::AheadCommitNotTold) {
            return sink.commit(transaction).await;
        }
        let numbers: Vec<u64> = {
            let mut state = self.state.borrow_mut();
            changed_by(transaction).into_iter().map(|run| state.change(run)).collect()
        };
        if is(Bug::AheadUnderCommit) {
            self.state.borrow_mut().changing.clear();
        }
        sink.commit(transaction).await?;
        let mut state = self.state.borrow_mut();
        for number in &numbers {
            state.changing.remove(number);
        }
        Ok(())
    }
}

impl Ext4 {
    /// Sets which metadata is read ahead from now on; all of it, where it pays, if this is not
    /// called.
    pub fn read_ahead(&self, what: ReadAhead) {
        if let Some(ahead) = self.core.ahead.get() {
            ahead.set(what);
        }
    }
}

impl Core {
    /// Makes `ahead`, which is a layer of the device, read metadata from now on.
    pub(crate) fn begin_to_read(&self, ahead: Rc<Ahead>) {
        self.cache.lend(Ahead::share(&self.memory));
        self.ahead.get_or_init(|| ahead);
    }
}

impl BlockDevice for Ahead {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.pass(request, |request| self.below.submit(request))
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.pass(request, |request| self.below.submit_urgent(request))
    }

    fn has_priorities(&self) -> bool {
        self.below.has_priorities()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.below.extents(within)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.below.geometry()
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
