//! The state in memory of an inode in use.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::TaskLock;

use super::losses::Losses;
use crate::core::Core;
use crate::lock::SharedLock;
use crate::memory::Permit;
use crate::ondisk::inode::RawInode;
use crate::ondisk::jbd2::Tid;
use crate::pages_lock::PagesLock;
use crate::units::{BLOCK_BYTES, Ino, Timestamp};

/// Bytes of memory of a node, with its locks and its place in the table.
pub(super) const NODE_COST: u64 = 768;
/// Bytes of memory of a page, with its place in the file.
pub(crate) const PAGE_COST: u64 = BLOCK_BYTES as u64 + 256;

/// The state of an inode: see the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) ino: Ino,
    /// Its size, once it was needed. It differs from the inode's while data waits to be written.
    pub(crate) size: Cell<Option<u64>>,
    /// Whether the inode has another size.
    pub(crate) size_is_new: Cell<bool>,
    /// Held while a task writes into memory.
    pub(crate) writers: TaskLock,
    /// When it was last written, if the inode does not say so yet.
    pub(crate) written_at: Cell<Option<Timestamp>>,
    /// When it was last read, if the inode does not say so yet.
    pub(crate) accessed_at: Cell<Option<Timestamp>>,
    /// Dirty pages, by number.
    pub(crate) pages: RefCell<BTreeMap<u32, Page>>,
    /// Held shared by tasks that read or write, and alone by those that take blocks away.
    pub(crate) content: SharedLock,
    /// Lock on pages for write-back: one task at a time writes a page to the device.
    pub(crate) writing: PagesLock,
    /// The newest transaction that changed it.
    pub(crate) tid: Cell<Option<Tid>>,
    /// How often the device has answered writes of data.
    pub(crate) written: Cell<u64>,
    /// The value of `written` that the last flush covers.
    pub(crate) flushed: Cell<u64>,
    /// Whether it is being deleted, so that its content will not be read again.
    pub(crate) is_ending: Cell<bool>,
    /// Whether it was created without a name, and may get one as long as it has users.
    pub(crate) linkable: Cell<bool>,
    /// Whether it is known to have no file capabilities.
    pub(crate) incapable: Cell<bool>,
    /// Whether it needs durability and no place, once this was looked up.
    pub(crate) durable: Cell<Option<bool>>,
    /// Whether it was cut to nothing and not closed since.
    pub(crate) emptied: Cell<bool>,
    /// How often its size could not be written to its inode.
    pub(crate) size_failures: Cell<u8>,
    pub(crate) losses: Losses,
    _held: Permit,
}

/// A page that is not on the device.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    /// Whether a block is reserved for it.
    pub(crate) reserved: bool,
    /// Grows with each change.
    pub(crate) version: u64,
    /// How often this version could not be written.
    pub(crate) failures: u8,
    /// Its memory.
    pub(crate) _held: Permit,
}

impl Node {
    pub(super) fn new(ino: Ino, held: Permit) -> Self {
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

    /// The size that programs see; the size in `raw` may be older.
    pub(crate) fn size_of(&self, raw: &RawInode) -> u64 {
        self.size.get().unwrap_or_else(|| raw.size())
    }

    /// As [`Node::size_of`]; the node remembers it. The caller has not waited since it read `raw`.
    pub(crate) fn load_size(&self, raw: &RawInode) -> u64 {
        let size = self.size_of(raw);
        self.size.set(Some(size));
        size
    }

    /// Sets another size. The inode gets it when the data is on the device.
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

impl Core {
    /// The node of an inode, made if there is none.
    pub(crate) fn node(&self, ino: Ino) -> Rc<Node> {
        if let Some(node) = self.nodes.get(ino) {
            return node;
        }
        if self.nodes.are_many() {
            self.forget_idle_nodes();
        }
        self.nodes.make(ino)
    }

    /// Notes that transaction `tid` changed an inode.
    pub(crate) fn note_change(&self, ino: Ino, tid: Tid) {
        self.note_change_of(&self.node(ino), tid);
    }

    /// As [`Core::note_change`].
    pub(crate) fn note_change_of(&self, node: &Node, tid: Tid) {
        if node.tid.replace(Some(tid)) != Some(tid) {
            self.journal.note_inode(tid);
        }
    }

    /// Drops the nodes that nobody needs.
    pub(crate) fn forget_idle_nodes(&self) {
        let is_durable = |tid: Tid| self.journal.is_durable(tid);
        self.nodes.forget_idle(|node| node.tid.get().is_some_and(|tid| !is_durable(tid)));
    }

    /// Notes that data waits to be written, so that the interval of write-back begins.
    pub(crate) fn note_dirty(&self) {
        self.backlog.note_dirty();
        self.journal.note_work();
    }

    /// Drops pages and their reserved blocks.
    pub(crate) fn drop_pages(&self, node: &Node, range: std::ops::Range<u32>) {
        let dropped = {
            let mut pages = node.pages.borrow_mut();
            let mut dropped = pages.split_off(&range.start);
            pages.append(&mut dropped.split_off(&range.end));
            dropped
        };
        self.backlog.remove(dropped.len());
        let reserved = dropped.values().filter(|page| page.reserved).count();
        self.space.unreserve(reserved as u64);
    }
}
