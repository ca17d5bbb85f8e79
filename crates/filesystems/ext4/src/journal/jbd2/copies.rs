//! The blocks of which the log has copies, and the place of the newest copy.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ondisk::jbd2::Tid;
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
}

/// A block that waits to go home.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) home: BlockNo,
    pub(super) copy: Copy,
    /// Its content, if that is in memory.
    pub(super) bytes: Option<Bytes>,
}

/// The copies in the log: see the module.
#[derive(Debug, Default)]
pub(super) struct Copies {
    newest: BTreeMap<BlockNo, Copy>,
    /// Contents of live copies that are in memory.
    bytes: BTreeMap<BlockNo, Bytes>,
    /// How many copies are live.
    live: usize,
}

impl Copies {
    /// Notes a copy of a durable transaction, with its content if there is memory for it.
    pub(super) fn insert(&mut self, home: BlockNo, copy: Copy, bytes: Option<Bytes>) {
        self.bury(home);
        self.live += usize::from(copy.is_live);
        self.newest.insert(home, copy);
        if let Some(bytes) = bytes {
            self.bytes.insert(home, bytes);
        }
    }

    /// Makes a block's copy not live. A replay may still find it.
    fn bury(&mut self, home: BlockNo) {
        self.bytes.remove(&home);
        if let Some(copy) = self.newest.get_mut(&home)
            && std::mem::take(&mut copy.is_live)
        {
            self.live -= 1;
        }
    }

    /// Notes that the blocks of a run were freed.
    pub(super) fn free(&mut self, run: Run) {
        for block in self.logged(run) {
            self.bury(block);
        }
    }

    /// The blocks of a run of which there are copies, live or not.
    pub(super) fn logged(&self, run: Run) -> Vec<BlockNo> {
        let range = BlockNo(run.range().start)..BlockNo(run.range().end);
        self.newest.range(range).map(|(block, _)| *block).collect()
    }

    /// The live copy of a block.
    pub(super) fn live(&self, home: BlockNo) -> Option<Waiting> {
        let copy = *self.newest.get(&home).filter(|copy| copy.is_live)?;
        Some(Waiting { home, copy, bytes: self.bytes.get(&home).cloned() })
    }

    /// The first live copy of which `is_it` holds, and its block.
    pub(super) fn find_live(&self, is_it: impl Fn(&Copy) -> bool) -> Option<(BlockNo, Copy)> {
        let found = self.newest.iter().find(|(_, copy)| copy.is_live && is_it(copy));
        found.map(|(home, copy)| (*home, *copy))
    }

    /// Keeps the content of a live copy in memory.
    pub(super) fn give_content(&mut self, home: BlockNo, bytes: Bytes) {
        self.bytes.insert(home, bytes);
    }

    /// The first `most` live copies in transactions up to `newest`, of blocks from `start` on, in
    /// the order of their homes.
    pub(super) fn waiting(&self, start: BlockNo, newest: Tid, most: usize) -> Vec<Waiting> {
        let after = self.newest.range(start..);
        let is_due = |copy: &Copy| copy.is_live && newest.is_at_least(copy.tid);
        let due = after.filter(|(_, copy)| is_due(copy)).take(most);
        let waiting = due.map(|(home, copy)| {
            let bytes = self.bytes.get(home).cloned();
            Waiting { home: *home, copy: *copy, bytes }
        });
        waiting.collect()
    }

    /// Forgets the copies of transactions up to `newest`: they are home, and no replay finds them.
    pub(super) fn forget(&mut self, newest: Tid) {
        let Self { newest: copies, bytes, live } = self;
        copies.retain(|home, copy| {
            let goes = newest.is_at_least(copy.tid);
            if goes {
                bytes.remove(home);
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
    pub(super) fn len(&self) -> usize {
        self.newest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(tid: u32, at: u32) -> Copy {
        Copy { tid: Tid(tid), at, checksum: 0, escaped: false, is_live: true }
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
}
