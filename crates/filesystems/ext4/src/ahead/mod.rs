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
//! are read ahead: a window must not cost a positioning for each of its blocks that lies in some
//! log. If the one that is wanted lies in a log near the head, the window is a part of that log,
//! whose blocks belong anywhere ([`CommitSink::read_around`]). Else it is a part of the homes, up
//! to what lies in logs ([`CommitSink::in_one_piece`]).
//!
//! **It has to pay.** Blocks are read ahead while blocks that lie near one that was read are asked
//! for soon, and not while each lies anywhere. The more of them are asked for, the more are read at
//! a time: see [`worth`].

mod changes;
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
use crate::journal::{CommitSink, Together};
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
    /// Requests so far, reads of metadata among them.
    requests: Cell<u64>,
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
        Self {
            below,
            state: Rc::new(RefCell::new(state)),
            policy,
            memory: memory.clone(),
            requests: Cell::new(0),
        }
    }

    /// Bytes that blocks may take that were read ahead: a quarter of those for metadata.
    pub(crate) fn share(memory: &Memory) -> u64 {
        memory.most(Part::Metadata) / 4
    }

    /// How many requests there were for the device, and reads of metadata that was not in memory.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.get()
    }

    fn note_request(&self) {
        self.requests.set(self.requests.get() + 1);
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
        self.note_request();
        if let Some(bytes) = self.take(block, table.is_some()) {
            return Ok(bytes);
        }
        if let Some(plan) = self.plan(block, sink.lies_at(block), table)
            && let Some(Ok(bytes)) = self.read_ahead(sink, plan, block, table.is_some()).await
        {
            return Ok(bytes);
        }
        read_block(&*self.below, block).await
    }

    /// Reads a block with others. `None` if there are none, or others wait already.
    async fn read_ahead(
        &self,
        sink: &dyn CommitSink,
        plan: Plan,
        block: BlockNo,
        of_table: bool,
    ) -> Option<IoResult<Bytes>> {
        let free = self.state.borrow().windows.free_part(plan.homes, block)?;
        if self.policy.get() == ReadAhead::All
            && let Some(together) = sink.read_around(block, plan.blocks)
        {
            return Some(self.read_together(together, block, of_table).await);
        }
        let run = sink.in_one_piece(block, free);
        if run.blocks == 1 {
            return None;
        }
        let content = self.below.submit(Request::Read { extent: run.sectors() });
        let together = Together { blocks: run.range().map(BlockNo).collect(), content };
        Some(self.read_together(together, block, of_table).await)
    }

    /// Takes a block that was read ahead; the caller keeps it.
    fn take(&self, block: BlockNo, of_table: bool) -> Option<Bytes> {
        let mut state = self.state.borrow_mut();
        let found = state.windows.take(block)?;
        state.worth(of_table).note_hit();
        Some(found)
    }

    /// What to read with a block that was not read ahead, and that lies at `at` on the device;
    /// `None` if nothing is.
    fn plan(&self, block: BlockNo, at: BlockNo, table: Option<Run>) -> Option<Plan> {
        let state = &mut *self.state.borrow_mut();
        let worth = state.worth(table.is_some());
        let pays = worth.note_miss(at);
        let table = table.filter(|table| table.range().contains(&block.0));
        let blocks = match (self.policy.get(), table) {
            (ReadAhead::All, _) if !pays => return None,
            (ReadAhead::Off, _) | (ReadAhead::Tables, None) => return None,
            (ReadAhead::Tables, Some(_)) => SHORTEST_BLOCKS,
            (ReadAhead::All, _) => worth.next_window(),
        };
        let all = || 0..self.below.capabilities().capacity.0 / BLOCK_SECTORS;
        let homes = part_of(table.map_or_else(all, |table| table.range()), block, blocks);
        Some(Plan { homes, blocks })
    }

    /// Waits for a read, of which `wanted` is asked for, and keeps the rest: blocks that belong
    /// side by side are a window.
    async fn read_together(
        &self,
        together: Together,
        wanted: BlockNo,
        of_table: bool,
    ) -> IoResult<Bytes> {
        let Together { blocks, content } = together;
        let runs = self.state.borrow().windows.free_runs(&blocks);
        let reading: Vec<_> = runs.iter().map(|run| self.state.borrow_mut().begin(*run)).collect();
        let bytes = content.await?.to_bytes().ok_or(IoError::Unsupported)?;
        let part = |run: Run| {
            let at = blocks.partition_point(|block| *block < run.start) * BLOCK_BYTES;
            let part = &bytes[at..at + run.blocks as usize * BLOCK_BYTES];
            // A part that shared the read's memory would keep all of it.
            if part.len() == bytes.len() { bytes.clone() } else { Bytes::copy_from_slice(part) }
        };
        let own = Run { start: wanted, blocks: 1 };
        let mut state = self.state.borrow_mut();
        for (run, reading) in runs.into_iter().zip(reading) {
            let mut not = reading.changed.borrow().clone();
            not.add(&own.range());
            state.windows.insert(Window::of(run, part(run), &not, &self.memory));
        }
        state.worth(of_table).note_window(manylogs_block::narrow(blocks.len() as u64));
        Ok(part(own))
    }
}

/// What is read with a block that was not read ahead.
struct Plan {
    /// The blocks around it at home.
    homes: Range<u64>,
    /// How many blocks of a log around it.
    blocks: u32,
}

/// The part of `whole` that is read with `block`: parts of `each` blocks lie one behind the other.
/// Neighbours on both sides are in it, because those who walk a tree in another order than that in
/// which it was made ask for either.
fn part_of(whole: Range<u64>, block: BlockNo, each: u32) -> Range<u64> {
    let each = u64::from(each);
    let start = whole.start + (block.0 - whole.start) / each * each;
    start..whole.end.min(start + each)
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
