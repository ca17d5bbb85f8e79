//! The state of a mounted file system: its files in memory, above its metadata.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use crate::file::Backlog;
use crate::inode::{Ends, Losses, Nodes};
use crate::memory::Memory;
use crate::metadata::Metadata;
use crate::ops::{Durability, Listener};
use crate::xattr::Judge;

/// Which blocks the journal holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Metadata. Content is on the device before metadata refers to it.
    #[default]
    Ordered,
    /// Metadata, which stays there: it goes home only when the journal needs the room, and an
    /// unmount leaves it in the journal. A replay, ours or another program's, brings it home
    /// (*Evolving Ext4 for Shingled Disks*, section 3).
    Lazy,
    /// Metadata and the content of files: one commit makes both durable. After a crash each
    /// overwritten page is wholly old or wholly new.
    Data,
    /// Metadata, and content in short runs ([`crate::CommitSink::takes_content`]): these are
    /// durable with the transaction that maps them. Longer runs are on the device before that
    /// transaction (the Manylogs paper, section IV).
    Runs,
}

impl Mode {
    /// Whether the journal may hold content.
    pub(crate) const fn journals_content(self) -> bool {
        matches!(self, Self::Data | Self::Runs)
    }

    /// Whether metadata stays in the journal as long as there is room.
    pub(crate) const fn stays_in_journal(self) -> bool {
        matches!(self, Self::Lazy)
    }
}

/// The files in memory, and the metadata that they stand on.
pub(crate) struct Core {
    /// What lies on the disk, on which the files stand.
    pub(crate) metadata: Rc<Metadata>,
    /// Inodes in memory, and those that the kernel knows.
    pub(crate) nodes: Nodes,
    /// What waits to be written back.
    pub(crate) backlog: Backlog,
    pub(crate) ends: Ends,
    /// How often an inode was synced.
    pub(crate) syncs: Cell<u64>,
    pub(crate) durability: Durability,
    /// Number of descriptors that were given out.
    pub(crate) descriptors: Cell<u64>,
    /// Losses of all files: data that could not be written.
    pub(crate) losses: Losses,
    /// See [`crate::Ext4::tell_changes`].
    pub(crate) listener: RefCell<Option<Listener>>,
    /// Names of files that need durability and no place.
    pub(crate) judge: Judge,
    /// Whether synchronous writes are treated as content that needs no place.
    pub(crate) keeps_synced: Cell<bool>,
    pub(crate) memory: Memory,
}

impl Deref for Core {
    type Target = Metadata;

    fn deref(&self) -> &Metadata {
        &self.metadata
    }
}

impl Core {
    /// The metadata of a file system whose tasks do not run yet.
    pub(crate) fn metadata_mut(&mut self) -> &mut Metadata {
        let Some(metadata) = Rc::get_mut(&mut self.metadata) else {
            unreachable!("no task shares it yet");
        };
        metadata
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("journal", &self.journal)
            .field("free_blocks", &self.space.free_blocks())
            .field("dirty_pages", &self.backlog.pages())
            .finish_non_exhaustive()
    }
}
