//! What is in memory of an inode that is in use.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{TaskLock, to_usize};

use super::losses::Losses;
use crate::core::Core;
use crate::lock::SharedLock;
use crate::memory::{Memory, Part, Permit};
use crate::ondisk::inode::RawInode;
use crate::ondisk::jbd2::Tid;
use crate::pages_lock::PagesLock;
use crate::units::{BLOCK_BYTES, Ino, Timestamp};

/// Inodes that stay in memory although nobody works with them, if memory is for so many.
const IDLE_MOST: usize = 4096;
/// Memory of a node, with its locks and its place in the table.
const NODE_COST: u64 = 768;
/// Memory of a page, with its place in the file.
pub(crate) const PAGE_COST: u64 = BLOCK_BYTES as u64 + 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) ino: Ino,
    /// Its size, once somebody needed it: that of the inode, or data waits to be written.
    pub(crate) size: Cell<Option<u64>>,
    /// The inode says another size.
    pub(crate) size_is_new: Cell<bool>,
    /// One writes into memory at a time.
    pub(crate) writers: TaskLock,
    /// When it was last written, where that is not in the inode yet.
    pub(crate) written_at: Cell<Option<Timestamp>>,
    /// When it was last read, where that is not in the inode yet.
    pub(crate) accessed_at: Cell<Option<Timestamp>>,
    /// Pages that are not on the device, by number.
    pub(crate) pages: RefCell<BTreeMap<u32, Page>>,
    /// Shared by whoever reads or writes, alone for whoever takes blocks away.
    pub(crate) content: SharedLock,
    /// One at a time brings a page to the device.
    pub(crate) writing: PagesLock,
    /// The newest transaction that changed it.
    pub(crate) tid: Cell<Option<Tid>>,
    /// How often the device has answered that data is written.
    pub(crate) written: Cell<u64>,
    /// How much of that a flush has covered.
    pub(crate) flushed: Cell<u64>,
    /// Nobody will see its content again.
    pub(crate) is_ending: Cell<bool>,
    /// It was born without a name, and may get one, for as long as it has users.
    pub(crate) linkable: Cell<bool>,
    /// It is known to have no capabilities.
    pub(crate) incapable: Cell<bool>,
    /// Whether it needs durability and no place, once that is known.
    pub(crate) durable: Cell<Option<bool>>,
    /// It was cut to nothing, and whoever wrote to it since has not closed it.
    pub(crate) emptied: Cell<bool>,
    /// How often its size could not be brought to its inode.
    pub(crate) size_failures: Cell<u8>,
    pub(crate) losses: Losses,
    _held: Permit,
}

/// A page that is not on the device.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    /// A block is reserved for it.
    pub(crate) reserved: bool,
    /// Grows with each change.
    pub(crate) version: u64,
    /// How often this version could not be written.
    pub(crate) failures: u8,
    /// Its memory.
    pub(crate) _held: Permit,
}

impl Node {
    fn new(ino: Ino, held: Permit) -> Self {
        Self {
            ino,
            size: Cell::default(),
            size_is_new: Cell::default(),
            writers: TaskLock::default(),
            written_at: Cell::default(),
            accessed_at: Cell::default(),
            pages: RefCell::default(),
            content: SharedLock::default(),
            writing: PagesLock::default(),
            tid: Cell::default(),
            written: Cell::default(),
            flushed: Cell::default(),
            is_ending: Cell::default(),
            linkable: Cell::default(),
            incapable: Cell::default(),
            durable: Cell::default(),
            emptied: Cell::default(),
            size_failures: Cell::default(),
            losses: Losses::default(),
            _held: held,
        }
    }

    /// The size that programs see. What `raw` says may be old, if it was known before.
    pub(crate) fn size_of(&self, raw: &RawInode) -> u64 {
        self.size.get().unwrap_or_else(|| raw.size())
    }

    /// As [`Node::size_of`]; from now on the node knows. Nobody has waited since `raw` was read.
    pub(crate) fn load_size(&self, raw: &RawInode) -> u64 {
        let size = self.size_of(raw);
        self.size.set(Some(size));
        size
    }

    /// The file has another size, which the inode learns when the data is on the device.
    pub(crate) fn set_new_size(&self, size: u64) {
        self.size.set(Some(size));
        self.size_is_new.set(true);
    }

    /// Whether data was written to the device that no flush has covered.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.written.get() > self.flushed.get()
    }

    /// Whether something waits to be written.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.pages.borrow().is_empty() || self.size_is_new.get() || self.written_at.get().is_some()
    }
}

/// How many nodes there may be before somebody looks for idle ones, if `left` are in use, and
/// `idle` are no matter.
const fn next_look(left: usize, idle: usize) -> usize {
    left + if left > idle { left } else { idle }
}

/// How many nodes there may be, of those that wait for two transactions to become durable: the half
/// of the share that [`super::Known`] leaves.
pub(crate) fn nodes_most(memory: &Memory) -> usize {
    to_usize(memory.most(Part::Inodes) / 2 / NODE_COST)
}

impl Core {
    /// What is in memory of an inode, from now on.
    pub(crate) fn node(&self, ino: Ino) -> Rc<Node> {
        if let Some(node) = self.nodes.borrow().get(&ino) {
            return Rc::clone(node);
        }
        self.forget_some_nodes();
        let node = Rc::new(Node::new(ino, self.memory.hold(Part::Inodes, NODE_COST)));
        self.nodes.borrow_mut().insert(ino, Rc::clone(&node));
        node
    }

    /// An inode was changed by transaction `tid`.
    pub(crate) fn note_change(&self, ino: Ino, tid: Tid) {
        self.note_change_of(&self.node(ino), tid);
    }

    /// As [`Core::note_change`].
    pub(crate) fn note_change_of(&self, node: &Node, tid: Tid) {
        if node.tid.replace(Some(tid)) != Some(tid) {
            self.journal.note_inode(tid);
        }
    }

    /// Forgets what nobody needs to know.
    pub(crate) fn forget_idle_nodes(&self) {
        let is_durable = |tid: Tid| self.journal.is_durable(tid);
        self.nodes.borrow_mut().retain(|_, node| {
            Rc::strong_count(node) > 1
                || (node.linkable.get() && self.known.is_used(node.ino))
                || node.is_dirty()
                || node.is_unflushed()
                || node.losses.are_unknown()
                || node.tid.get().is_some_and(|tid| !is_durable(tid))
        });
        let idle = IDLE_MOST.min(nodes_most(&self.memory) / 4);
        self.look_for_idle_at.set(next_look(self.nodes.borrow().len(), idle));
    }

    /// Forgets what nobody needs to know, if there may be much of it. To look costs as much as
    /// there are nodes: so a look waits until as many have come as the last one left.
    pub(crate) fn forget_some_nodes(&self) {
        if self.nodes.borrow().len() > self.look_for_idle_at.get() {
            self.forget_idle_nodes();
        }
    }

    /// Data waits to be written: the interval to when that is done may begin.
    pub(crate) fn note_dirty(&self) {
        self.may_be_dirty.set(true);
        self.journal.note_work();
    }

    /// Drops pages, with what is reserved for them.
    pub(crate) fn drop_pages(&self, node: &Node, range: std::ops::Range<u32>) {
        let dropped = {
            let mut pages = node.pages.borrow_mut();
            let mut dropped = pages.split_off(&range.start);
            pages.append(&mut dropped.split_off(&range.end));
            dropped
        };
        self.dirty_pages.set(self.dirty_pages.get() - dropped.len());
        let reserved = dropped.values().filter(|page| page.reserved).count();
        self.space.unreserve(reserved as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_MOST, next_look};

    /// Nodes that come one by one, all in use, are looked at a few times each, however many come.
    #[test]
    fn looks_for_idle_nodes_cost_a_few_each() {
        let (mut look_at, mut looked_at) = (next_look(0, IDLE_MOST), 0);
        for nodes in 1..=1_000_000 {
            if nodes > look_at {
                looked_at += nodes;
                look_at = next_look(nodes, IDLE_MOST);
            }
        }
        assert!(looked_at < 2_000_000, "{looked_at}");
    }
}
