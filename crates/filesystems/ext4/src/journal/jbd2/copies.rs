//! The blocks of which the log has copies, and the place of the newest copy.

use std::collections::BTreeMap;

use bytes::Bytes;
use manylogs_block::{Extent, Lba, Sectors, narrow};
use manylogs_logstore::{DataSequence, ExtentMap, MapValue, Mapped};
use manylogs_plant::{Bug, is};

use crate::ondisk::jbd2::{Record, Tid};
use crate::units::{BlockNo, Run};

/// The newest copy of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    /// The transaction that has it.
    pub(super) tid: Tid,
    /// The block of the journal where it is.
    pub(super) at: u32,
    /// Its checksum there, as its descriptor has it.
    pub(super) checksum: u32,
    /// Whether its first word is replaced by zero there.
    pub(super) escaped: bool,
    /// Whether it is newer than the home content, and the block was not freed since.
    pub(super) is_live: bool,
    /// How it came to be in the log.
    pub(super) past: Past,
}

/// What tells whether a block will be written again soon. It is advice: a saved map does not have
/// it, and an opening counts renewals as changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// Whether the log had an older copy when the block was changed: it was written twice within a
    /// lap.
    pub(super) again: bool,
    /// How often it was written anew since it was changed.
    pub(super) renewals: u8,
}

impl Past {
    /// Most renewals that are counted.
    const RENEWALS_MOST: u8 = 3;

    /// Whether a block that was written twice within a lap should be written anew.
    pub(super) const fn is_hot(self) -> bool {
        self.again && self.renewals < 2
    }

    /// Whether another block should, where there is room for it.
    pub(super) const fn is_warm(self) -> bool {
        !self.again && self.renewals == 0
    }
}

/// A block that waits to go home.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) home: BlockNo,
    pub(super) copy: Copy,
    /// Its content, if that is in memory.
    pub(super) bytes: Option<Bytes>,
}

/// A copy as the map has it: its transaction is the sequence there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InMap {
    at: u32,
    checksum: u32,
    escaped: bool,
    is_live: bool,
    past: Past,
}

impl MapValue for InMap {
    fn advance(self, by: Sectors) -> Self {
        debug_assert!(by.0 == 0, "each block has a copy of its own");
        self
    }

    fn pack(self) -> [u64; 2] {
        let Past { again, renewals } = self.past;
        let past = u64::from(renewals) << 1 | u64::from(again);
        let marks = past << 2 | u64::from(self.escaped) << 1 | u64::from(self.is_live);
        [u64::from(self.at) << 5 | marks, self.checksum.into()]
    }

    fn unpack([place, checksum]: [u64; 2]) -> Self {
        let (escaped, is_live) = (place & 2 != 0, place & 1 != 0);
        let past = Past { again: place & 4 != 0, renewals: narrow(place >> 3 & 3) };
        Self { at: narrow(place >> 5), checksum: narrow(checksum), escaped, is_live, past }
    }
}

impl Copy {
    fn of(Mapped { sequence, value }: Mapped<InMap>) -> Self {
        let InMap { at, checksum, escaped, is_live, past } = value;
        Self { tid: Tid(narrow(sequence.0)), at, checksum, escaped, is_live, past }
    }

    fn mapped(self) -> Mapped<InMap> {
        let Self { tid, at, checksum, escaped, is_live, past } = self;
        let value = InMap { at, checksum, escaped, is_live, past };
        Mapped { sequence: DataSequence(tid.0.into()), value }
    }

    /// The copy of a block, as a saved map has it. Its place says what its transaction is.
    pub(super) fn record(self, home: BlockNo) -> Record {
        let marks = u64::from(self.escaped) << 1 | u64::from(self.is_live);
        [home.0 << 2 | marks, u64::from(self.at) << 32 | u64::from(self.checksum)]
    }

    /// The block and its copy, of a record; the transaction is left out.
    pub(super) fn of_record([home, place]: Record) -> (BlockNo, Self) {
        let (escaped, is_live) = (home & 2 != 0, home & 1 != 0);
        let (at, checksum) = (narrow(place >> 32), narrow(place & u64::from(u32::MAX)));
        let (tid, past) = (Tid::default(), Past::default());
        (BlockNo(home >> 2), Self { tid, at, checksum, escaped, is_live, past })
    }
}

/// The blocks of a run, by their numbers, as an extent of the map.
fn extent(run: Run) -> Extent {
    Extent::new(run.start.0, run.blocks.into())
}

/// One block.
const fn one(block: BlockNo) -> Extent {
    Extent::new(block.0, 1)
}

/// The copies in the log: see the module.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// By the blocks' numbers. The map of a store's logs, because it takes so little memory.
    newest: ExtentMap<InMap>,
    /// Contents of live copies that are in memory.
    bytes: BTreeMap<BlockNo, Bytes>,
    /// How many copies are live.
    live: usize,
}

impl Copies {
    /// Notes a copy of a durable transaction, with its content if there is memory for it.
    pub(super) fn insert(&mut self, home: BlockNo, copy: Copy, bytes: Option<Bytes>) {
        self.bytes.remove(&home);
        let live = &mut self.live;
        *live += usize::from(copy.is_live);
        let gone = |_, old: Mapped<InMap>| *live -= usize::from(old.value.is_live);
        self.newest.insert_where(one(home), copy.mapped(), |_| !is(Bug::LazyOldCopyWins), gone);
        if let Some(bytes) = bytes {
            self.bytes.insert(home, bytes);
        }
    }

    /// The past of a copy that comes now: of a block that is written anew, or is changed.
    pub(super) fn past(&self, home: BlockNo, is_renewed: bool) -> Past {
        let before = self.newest.lookup(one(home)).next().and_then(|(_, found)| found);
        match before.map(|found| found.value.past) {
            Some(past) if is_renewed => {
                Past { renewals: Past::RENEWALS_MOST.min(past.renewals + 1), ..past }
            }
            before => Past { again: before.is_some() && !is_renewed, renewals: 0 },
        }
    }

    /// The live copies in transactions up to `newest`, with their blocks.
    pub(super) fn live_up_to(&self, newest: Tid) -> impl Iterator<Item = (BlockNo, Copy)> {
        let all =
            self.newest.iter().map(|(block, found)| (BlockNo(block.start.0), Copy::of(found)));
        all.filter(move |(_, copy)| copy.is_live && newest.is_at_least(copy.tid))
    }

    /// Notes that the blocks of a run were freed: their copies are not live, but a replay may still
    /// find them.
    pub(super) fn free(&mut self, run: Run) {
        let Self { newest, bytes, live } = self;
        newest.update(extent(run), |block, Mapped { value, .. }| {
            bytes.remove(&BlockNo(block.start.0));
            *live -= usize::from(value.is_live);
            value.is_live.then_some(InMap { is_live: false, ..value })
        });
    }

    /// The blocks of a run of which there are copies, live or not.
    pub(super) fn logged(&self, run: Run) -> Vec<BlockNo> {
        let after = self.newest.iter_from(Lba(run.start.0)).map(|(block, _)| block.start.0);
        after.take_while(|block| *block < run.range().end).map(BlockNo).collect()
    }

    /// The first `most` copies, live or not, of blocks from `start` on.
    pub(super) fn some_from(&self, start: BlockNo, most: usize) -> Vec<(BlockNo, Copy)> {
        let after = self.newest.iter_from(Lba(start.0)).take(most);
        after.map(|(block, found)| (BlockNo(block.start.0), Copy::of(found))).collect()
    }

    /// The live copy of a block.
    pub(super) fn live(&self, home: BlockNo) -> Option<Waiting> {
        let (_, found) = self.newest.lookup(one(home)).next()?;
        let copy = Copy::of(found.filter(|found| found.value.is_live)?);
        Some(Waiting { home, copy, bytes: self.bytes.get(&home).cloned() })
    }

    /// The first live copy of which `is_it` holds, and its block.
    pub(super) fn find_live(&self, is_it: impl Fn(&Copy) -> bool) -> Option<(BlockNo, Copy)> {
        let all =
            self.newest.iter().map(|(block, found)| (BlockNo(block.start.0), Copy::of(found)));
        all.filter(|(_, copy)| copy.is_live).find(|(_, copy)| is_it(copy))
    }

    /// Keeps the content of a live copy in memory.
    pub(super) fn give_content(&mut self, home: BlockNo, bytes: Bytes) {
        self.bytes.insert(home, bytes);
    }

    /// The first `most` live copies in transactions up to `newest`, of blocks from `start` on, in
    /// the order of their homes.
    pub(super) fn waiting(&self, start: BlockNo, newest: Tid, most: usize) -> Vec<Waiting> {
        let after = self.newest.iter_from(Lba(start.0));
        let waiting = after.filter_map(|(block, found)| {
            let (home, copy) = (BlockNo(block.start.0), Copy::of(found));
            let is_due = copy.is_live && newest.is_at_least(copy.tid);
            is_due.then(|| Waiting { home, copy, bytes: self.bytes.get(&home).cloned() })
        });
        waiting.take(most).collect()
    }

    /// Forgets the copies of transactions up to `newest`: they are home, and no replay finds them.
    pub(super) fn forget(&mut self, newest: Tid) {
        let Self { newest: copies, bytes, live } = self;
        copies.retain(|block, found| {
            let copy = Copy::of(found);
            let goes = newest.is_at_least(copy.tid);
            if goes {
                bytes.remove(&BlockNo(block.start.0));
                *live -= usize::from(copy.is_live);
            }
            !goes
        });
    }

    /// How many blocks are newer in the log than at home.
    pub(super) const fn live_len(&self) -> usize {
        self.live
    }

    /// How many contents are in memory.
    pub(super) fn in_memory(&self) -> usize {
        self.bytes.len()
    }

    /// How many blocks there are copies of.
    pub(super) const fn len(&self) -> usize {
        self.newest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COPY_COST, InLog};
    use super::*;

    fn copy(tid: u32, at: u32) -> Copy {
        let past = Past::default();
        Copy { tid: Tid(tid), at, checksum: 0, escaped: false, is_live: true, past }
    }

    #[test]
    fn what_is_freed_is_logged_until_its_transaction_goes() {
        let mut copies = Copies::default();
        copies.insert(BlockNo(7), copy(1, 20), Some(Bytes::from_static(b"old")));
        copies.insert(BlockNo(7), copy(2, 30), None);
        copies.insert(BlockNo(8), copy(2, 31), None);
        assert_eq!((copies.live_len(), copies.in_memory()), (2, 0));
        copies.free(Run { start: BlockNo(0), blocks: 8 });
        assert!(copies.live(BlockNo(7)).is_none(), "it may be content of a file now");
        assert_eq!(copies.logged(Run { start: BlockNo(7), blocks: 2 }).len(), 2);
        copies.forget(Tid(1));
        assert_eq!((copies.len(), copies.live_len()), (2, 1));
        copies.forget(Tid(2));
        assert_eq!((copies.len(), copies.live_len()), (0, 0));
    }

    #[test]
    fn only_what_old_transactions_have_is_due() {
        let mut copies = Copies::default();
        for (home, tid) in [(5, 1), (3, u32::MAX), (4, 2), (9, 1)] {
            copies.insert(BlockNo(home), copy(tid, 1), None);
        }
        let due = |start, most| {
            let waiting = copies.waiting(BlockNo(start), Tid(1), most);
            waiting.iter().map(|waiting| waiting.home.0).collect::<Vec<_>>()
        };
        assert_eq!(due(0, 9), [3, 5, 9], "numbers of transactions wrap around");
        assert_eq!(due(0, 2), [3, 5]);
        assert_eq!(due(6, 9), [9]);
    }

    /// Copies of blocks all over a disk of 32 TiB, in transactions of four blocks that fill a log
    /// of so many blocks.
    fn full_of_small(log: u32) -> Copies {
        let (mut copies, mut rng) = (Copies::default(), manylogs_block::Rng::new(34));
        // Each has a descriptor and a commit block.
        for tid in 0..log / 6 {
            for at in 6 * tid + 1..6 * tid + 5 {
                let checksum = narrow(rng.below(1 << 32));
                let copy = Copy { checksum, ..copy(u32::MAX.wrapping_add(tid), at) };
                copies.insert(BlockNo(rng.below(1 << 33)), copy, None);
            }
        }
        copies
    }

    #[test]
    fn each_of_a_million_blocks_anywhere_takes_sixteen_bytes_at_most() {
        let copies = full_of_small(1_500_000);
        assert!(copies.len() > 999_000, "{}", copies.len());
        let each = copies.newest.bytes() as f64 / copies.len() as f64;
        println!("{each:.2} bytes a block");
        assert!(each <= COPY_COST as f64, "{each}");
        let found = copies.newest.iter().all(|(block, found)| {
            copies.live(BlockNo(block.start.0)).is_some_and(|it| it.copy == Copy::of(found))
        });
        assert!(found);
    }

    #[test]
    fn a_long_log_of_small_transactions_takes_little_more_memory_than_a_short_one() {
        let cost = |log: u32| {
            let transactions = u64::from((log / 6).next_power_of_two()) * size_of::<InLog>() as u64;
            full_of_small(log).newest.bytes() as u64 + transactions
        };
        let (short, long) = (cost(128 << 8), cost(10 << 18));
        println!("{short} and {long} bytes");
        assert!(long - short <= 128 << 20, "{short} {long}");
    }
}
