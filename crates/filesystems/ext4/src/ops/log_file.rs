//! The log file: blocks for logs, taken from an ext4 that is mounted with its own journal.
//!
//! For every program of ext4 it is an ordinary file: a name in the root directory, extents, counted
//! blocks. Its extents are unwritten, so that it reads as zeroes whatever the logs hold. It is
//! immutable, so that nobody writes, moves or removes it by mistake. Each update adds one run, so
//! that each transaction leaves a whole file.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle as Executor};
use manylogs_plant::{Bug, is};

use super::{Ext4, Options};
use crate::alloc::{Claim, ClaimedFor};
use crate::core::Mode;
use crate::dir::{NAME_CREDITS, touch};
use crate::error::{Error, Result};
use crate::extents::{MAP_CREDITS, Mapping};
use crate::inode::{BIRTH_CREDITS, Newborn, ORPHAN_CREDITS};
use crate::journal::{Handle, Journal};
use crate::memory::Memory;
use crate::metadata::Metadata;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{FileKind, RawInode, TimeField, flags};
use crate::ondisk::superblock::{OFFSET, Superblock};
use crate::units::{BLOCK, BLOCK_SECTORS, BlockNo, FileBlock, GroupNo, Ino, Run};

/// The log file's name in the root directory.
pub const LOG_FILE_NAME: &[u8] = b".manylogs";

/// A log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its inode.
    pub ino: Ino,
    /// Its blocks in the order of the file, none across two groups.
    pub runs: Vec<Run>,
    /// Whether it is immutable (`chattr +i`), so that nobody changes it by mistake.
    pub is_immutable: bool,
}

/// The wanted length of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Most blocks of a log.
    pub most: u32,
    /// Least blocks: a shorter run becomes no log.
    pub least: u32,
}

impl Ext4 {
    /// The log file of this file system, if it has one.
    ///
    /// # Errors
    /// [`Error::Exists`] if another file has its name, and those of reading metadata.
    pub async fn log_file(&self) -> Result<Option<LogFile>> {
        let core = &self.core;
        let _tree = core.journal.tree.read().await;
        let root = core.directory(Ino::ROOT).await?;
        let Some(entry) = core.find(Ino::ROOT, &root, LOG_FILE_NAME).await? else {
            return Ok(None);
        };
        let raw = core.inode(entry.ino).await?;
        let runs = core.log_runs(entry.ino, &raw).await?.ok_or(Error::Exists)?;
        Ok(Some(LogFile::of(entry.ino, &raw, runs)))
    }

    /// The place of a log in a group: the end of the last free run with the most blocks wanted,
    /// else of the longest run. `None` if that is shorter than the least.
    ///
    /// # Errors
    /// Those of reading metadata.
    pub async fn place_for_log(&self, group: GroupNo, wanted: Wanted) -> Result<Option<Run>> {
        let _tree = self.core.journal.tree.read().await;
        self.core.last_free_run(group, wanted.most, wanted.least).await
    }

    /// Checks that a log file can be created, except for its blocks. Nothing is written.
    ///
    /// # Errors
    /// [`Error::Unsupported`], and [`Error::NoSpace`] without a free inode.
    pub fn check_log_file(&self) -> Result<()> {
        if !self.core.geometry.has_extents() {
            return Err(Error::Unsupported("a log file without the feature extent"));
        }
        if self.core.space.free_inodes() == 0 {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Creates a log file without blocks.
    ///
    /// # Errors
    /// [`Error::Exists`] if its name is taken, [`Error::NoSpace`].
    pub async fn create_log_file(&self) -> Result<Ino> {
        let core = &self.core;
        let mut handle = core.begin(NAME_CREDITS + BIRTH_CREDITS + 2).await?;
        let mut root = core.directory(Ino::ROOT).await?;
        if core.find(Ino::ROOT, &root, LOG_FILE_NAME).await?.is_some() {
            return Err(Error::Exists);
        }
        if !core.geometry.has_extents() {
            return Err(Error::Unsupported("a log file without the feature extent"));
        }
        let now = core.now();
        let new = Newborn { kind: FileKind::File, permissions: 0o600, owner: (0, 0) };
        let (ino, mut raw) =
            core.bear(&mut handle, (Ino::ROOT, LOG_FILE_NAME), &root, new, now).await?;
        raw.set_owner(0, 0);
        raw.set_flag(flags::IMMUTABLE, true);
        core.put_inode(&mut handle, ino, &mut raw).await?;
        core.insert_name(&mut handle, Ino::ROOT, &mut root, LOG_FILE_NAME, (ino, new.kind)).await?;
        touch(&mut root, now);
        core.put_inode(&mut handle, Ino::ROOT, &mut root).await?;
        let tid = handle.finish();
        core.note_change(Ino::ROOT, tid);
        core.note_change(ino, tid);
        Ok(ino)
    }

    /// Adds a run of free blocks at the end of the log file, in one update.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if dirty data needs the blocks, [`Error::Corrupt`] if they are not free.
    pub async fn add_log(&self, ino: Ino, run: Run) -> Result<()> {
        let core = &self.core;
        let mut handle = core.begin(2 * MAP_CREDITS).await?;
        core.space.check_room(run.blocks.into(), 0)?;
        let claim = core.space.claim(run, ClaimedFor::Others);
        core.append_run(&mut handle, ino, claim, is(Bug::MlfsLogWritten)).await?;
        core.note_change(ino, handle.finish());
        Ok(())
    }

    /// Removes the log file, although it is immutable. A crash leaves it whole, or as an orphan
    /// that every mount and check deletes.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none.
    pub async fn remove_log_file(&self) -> Result<()> {
        let core = &self.core;
        let mut handle = core.begin(NAME_CREDITS + 4 + ORPHAN_CREDITS).await?;
        let mut root = core.directory(Ino::ROOT).await?;
        let entry = core.find(Ino::ROOT, &root, LOG_FILE_NAME).await?.ok_or(Error::NotFound)?;
        let mut raw = core.inode(entry.ino).await?;
        core.remove_name(&mut handle, Ino::ROOT, &root, &entry);
        let now = core.now();
        touch(&mut root, now);
        core.put_inode(&mut handle, Ino::ROOT, &mut root).await?;
        raw.set_flag(flags::IMMUTABLE, false);
        core.lose_name(&mut handle, entry.ino, &mut raw, now).await?;
        let tid = handle.finish();
        core.note_change(Ino::ROOT, tid);
        core.note_change(entry.ino, tid);
        core.end_if_unused(entry.ino).await
    }
}

impl LogFile {
    /// Reads the log file with inode `ino` of a file system that belongs to MLFS, without the logs:
    /// its metadata is at home as long as it belongs to MLFS. Nothing is written.
    ///
    /// # Errors
    /// [`Error::Exists`] if the inode is no log file; those of reading metadata.
    pub async fn read(device: &Rc<dyn BlockDevice>, runtime: &Executor, ino: Ino) -> Result<Self> {
        let block = crate::cache::read_block(&**device, BlockNo(0)).await?;
        let superblock = crate::marks::without_bit(&Superblock::decode_loosely(&block, OFFSET)?);
        superblock.check_size(device.capabilities().capacity)?;
        let options = Options {
            clock: Rc::new(Default::default),
            read_only: true,
            durability: Default::default(),
            replay: Default::default(),
            memory: Memory::default(),
        };
        let (mode, none) = (Mode::Ordered, Journal::none(&options.memory));
        let loaded = Ext4::load_as(&superblock, block, mode, none, device, runtime, &options);
        let loaded = loaded.await?;
        let core = &loaded.core;
        let raw = core.inode(ino).await?;
        let runs = core.log_runs(ino, &raw).await?.ok_or(Error::Exists)?;
        let found = Self::of(ino, &raw, runs);
        if raw.links() == 1 && found.is_immutable { Ok(found) } else { Err(Error::Exists) }
    }

    fn of(ino: Ino, raw: &RawInode, runs: Vec<Run>) -> Self {
        Self { ino, runs, is_immutable: raw.has_flag(flags::IMMUTABLE) }
    }

    /// Blocks of all runs.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.blocks)).sum()
    }
}

impl Metadata {
    /// Adds claimed blocks at the end of a file of whole blocks. Returns its inode, which is
    /// written.
    ///
    /// # Errors
    /// [`Error::TooLarge`], and [`Error::Corrupt`] if they are not free.
    pub(super) async fn append_run(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        claim: Claim,
        written: bool,
    ) -> Result<RawInode> {
        let mut raw = self.inode(ino).await?;
        let run = claim.run();
        let file = u32::try_from(raw.size() / BLOCK).map_err(|_| Error::TooLarge)?;
        let end = file.checked_add(run.blocks).ok_or(Error::TooLarge)?;
        self.use_claim(handle, claim).await?;
        let new = Extent { file: FileBlock(file), block: run.start, blocks: run.blocks, written };
        self.insert_extent(handle, ino, &mut raw, new).await?;
        raw.set_sectors(raw.sectors() + u64::from(run.blocks) * BLOCK_SECTORS);
        raw.set_size(u64::from(end) * BLOCK);
        raw.set_time(TimeField::Change, self.now());
        self.put_inode(handle, ino, &mut raw).await?;
        Ok(raw)
    }

    /// The runs of a log file; `None` if the inode is no log file.
    async fn log_runs(&self, ino: Ino, raw: &RawInode) -> Result<Option<Vec<Run>>> {
        let plain = raw.kind() == Some(FileKind::File)
            && raw.has_flag(flags::EXTENTS)
            && raw.links() <= 1
            && raw.owner() == (0, 0)
            && raw.mode() & 0o7777 == 0o600
            && raw.size().is_multiple_of(BLOCK);
        let Ok(blocks) = u32::try_from(raw.size() / BLOCK) else { return Ok(None) };
        let (mut runs, mut at) = (Vec::new(), 0);
        while plain && at < blocks {
            match self.map(ino, raw, FileBlock(at)).await? {
                Mapping::Mapped(extent) if !extent.written && extent.blocks <= blocks - at => {
                    self.split(Run { start: extent.block, blocks: extent.blocks }, &mut runs);
                    at += extent.blocks;
                }
                _ => return Ok(None),
            }
        }
        let nothing_behind =
            matches!(self.map(ino, raw, FileBlock(blocks)).await, Ok(Mapping::Hole(_)));
        Ok((plain && nothing_behind).then_some(runs))
    }

    /// Adds a run to `runs`, split at the ends of groups.
    fn split(&self, mut run: Run, runs: &mut Vec<Run>) {
        while run.blocks > 0 {
            let (group, first) = self.geometry.group_of(run.start);
            let blocks = run.blocks.min(self.geometry.blocks_in(group) - first);
            runs.push(Run { blocks, ..run });
            let start = BlockNo(run.start.0 + u64::from(blocks));
            run = Run { start, blocks: run.blocks - blocks };
        }
    }
}
