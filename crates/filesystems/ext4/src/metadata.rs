//! The metadata of a mounted file system: what its journal keeps whole. Groups, inodes, maps,
//! directories and attributes are blocks that a [`Handle`] changes; files in memory are not known
//! here.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle as Executor};

use crate::ahead::Ahead;
use crate::alloc::Space;
use crate::cache::{Buffer, Cache, read_block};
use crate::core::Mode;
use crate::error::{Corruption, Error, Result};
use crate::geometry::Geometry;
use crate::journal::{Handle, Journal};
use crate::ondisk::inode::{FileKind, RawInode, SHORT, flags};
use crate::ondisk::superblock::Superblock;
use crate::ops::Found;
use crate::units::{BLOCK_BYTES, BlockNo, Ino, Run, Timestamp};

/// Blocks of metadata, and how they become durable. One task changes them at a time.
pub(crate) struct Metadata {
    pub(crate) device: Rc<dyn BlockDevice>,
    pub(crate) runtime: Executor,
    pub(crate) clock: Rc<dyn Fn() -> Timestamp>,
    pub(crate) geometry: Geometry,
    pub(crate) cache: Cache,
    /// The table of group descriptors, which is always in memory.
    pub(crate) tables: Vec<Rc<Buffer>>,
    /// Block 0, with the superblock.
    pub(crate) superblock: Rc<Buffer>,
    pub(crate) journal: Journal,
    pub(crate) space: Space,
    /// Inodes without a name, and those that have blocks behind their size, oldest first.
    pub(crate) orphans: RefCell<Vec<Ino>>,
    /// See [`crate::Ext4::note_damage`].
    pub(crate) damage: RefCell<Option<Found>>,
    pub(crate) read_only: bool,
    pub(crate) mode: Mode,
    /// What reads metadata ahead; it is a layer of the device then.
    pub(crate) ahead: OnceCell<Rc<Ahead>>,
}

impl Metadata {
    /// The time: in whole seconds if inodes have no room for nanoseconds.
    pub(crate) fn now(&self) -> Timestamp {
        let now = (self.clock)();
        let is_exact = self.geometry.inode_bytes > SHORT;
        Timestamp { nanos: if is_exact { now.nanos } else { 0 }, ..now }
    }

    /// # Errors
    /// [`Error::ReadOnly`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Checks that an inode may be changed.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub(crate) fn check_mutable(raw: &RawInode) -> Result<()> {
        if raw.has_flag(flags::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Checks that an inode may lose content, or names.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub(crate) fn check_losable(raw: &RawInode) -> Result<()> {
        let kept = raw.has_flag(flags::IMMUTABLE | flags::APPEND);
        if kept { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Whether blocks of the inode's content may be in the cache and in transactions.
    pub(crate) fn journals_content(&self, raw: &RawInode) -> bool {
        self.mode.journals_content() || raw.kind() != Some(FileKind::File)
    }

    /// Reads a block of metadata. The caller holds the tree lock.
    pub(crate) async fn read(&self, block: BlockNo) -> Result<Rc<Buffer>> {
        self.read_in(None, block).await
    }

    /// As [`Metadata::read`], of a block in this table of inodes.
    async fn read_in(&self, table: Option<Run>, block: BlockNo) -> Result<Rc<Buffer>> {
        if let Some(buffer) = self.cache.get(block) {
            return Ok(buffer);
        }
        let fetch = async |at: BlockNo| match self.ahead.get() {
            Some(ahead) => ahead.read(&*self.journal.sink, at, table).await,
            None => read_block(&*self.device, at).await,
        };
        let bytes = self.journal.read(fetch, block).await?;
        Ok(self.cache.insert(block, bytes))
    }

    /// The block of the table that has an inode, and where the inode is in it.
    pub(crate) async fn inode_place(&self, ino: Ino) -> Result<(Rc<Buffer>, usize)> {
        let none = || Corruption::inode(ino, "there is no such inode");
        let (group, index) = self.geometry.group_of_inode(ino).ok_or_else(none)?;
        let at = index as usize * self.geometry.inode_bytes;
        let start = self.group(group, |group| group.inode_table());
        let table = Run { start, blocks: self.geometry.table_blocks() };
        let block = BlockNo(start.0 + (at / BLOCK_BYTES) as u64);
        Ok((self.read_in(Some(table), block).await?, at % BLOCK_BYTES))
    }

    /// Reads an inode that is in use. The caller holds the tree lock.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is not sound, and [`Error::Unsupported`] if it has flags that this
    /// crate cannot keep intact.
    pub(crate) async fn inode(&self, ino: Ino) -> Result<RawInode> {
        let (buffer, at) = self.inode_place(ino).await?;
        let bytes = buffer.bytes();
        let bad = |what| Error::from(Corruption::inode(ino, what));
        let raw = RawInode::decode(&bytes[at..at + self.geometry.inode_bytes]);
        let raw = raw.ok_or_else(|| bad("its second part is too long"))?;
        if self.geometry.seed.is_some_and(|seed| !raw.is_whole(seed, ino)) {
            return Err(bad("wrong checksum"));
        }
        if raw.kind().is_none() {
            return Err(bad("it is of no kind"));
        }
        if raw.has_flag(flags::FOREIGN) {
            return Err(Error::Unsupported("an inode with flags that are not known"));
        }
        Ok(raw)
    }

    /// The generation of the last inode that had this number; 0 if that is unreadable.
    pub(crate) async fn last_generation(&self, ino: Ino) -> Result<u32> {
        let (buffer, at) = self.inode_place(ino).await?;
        let bytes = buffer.bytes();
        let raw = RawInode::decode(&bytes[at..at + self.geometry.inode_bytes]);
        Ok(raw.map_or(0, |raw| raw.generation()))
    }

    /// Writes an inode.
    pub(crate) async fn put_inode(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
    ) -> Result<()> {
        if let Some(seed) = self.geometry.seed {
            raw.seal(seed, ino);
        }
        let (buffer, at) = self.inode_place(ino).await?;
        let end = at + self.geometry.inode_bytes;
        handle.change(&buffer, |block| block[at..end].copy_from_slice(raw.bytes()));
        Ok(())
    }

    /// The seed for checksums of the inode's blocks; `None` if there are no checksums.
    pub(crate) fn inode_seed(&self, ino: Ino, raw: &RawInode) -> Option<u32> {
        self.geometry.seed.map(|seed| raw.seed(seed, ino))
    }

    /// Changes the superblock.
    pub(crate) fn change_superblock(
        &self,
        handle: &mut Handle<'_>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let mut superblock = Superblock::decode(&self.superblock.bytes())?;
        change(&mut superblock);
        handle.change(&self.superblock, |block| superblock.encode(block));
        Ok(())
    }
}
