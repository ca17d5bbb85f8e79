//! The place of the journal, and replaying a damaged one.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle as Executor, IoError, Payload, Request};

use super::mount::{Ext4, Options};
use crate::cache::read_block;
use crate::core::Mode;
use crate::error::{Corruption, Error, JournalLoss, Result};
use crate::extents::Mapping;
use crate::journal::Journal;
use crate::journal::jbd2::{self, OnLoss};
use crate::metadata::Metadata;
use crate::ondisk::superblock::Superblock;
use crate::units::{BLOCK, BlockNo, FileBlock, Run};

/// What a repair of a journal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalRepaired {
    /// No replay was needed.
    Empty,
    /// It was replayed; nothing is lost.
    Whole,
    /// Nothing is lost now, but errors were noted before: perhaps by a repair that was interrupted
    /// when it had lost something. Nothing mounts the file system until e2fsck has looked at it.
    ErrorsNoted,
    /// What was whole was replayed. The superblock says that there are errors: nothing mounts the
    /// file system until e2fsck has looked at it.
    Lossy(JournalLoss),
}

impl Ext4 {
    /// Replays what is whole in the journal of a file system that nobody uses, gives up the rest,
    /// and leaves an empty journal.
    ///
    /// If something is lost, the superblock says that there are errors before anything is given up.
    /// A crash leaves the journal as it was, or an empty one: a second call goes on.
    ///
    /// # Errors
    /// As [`Ext4::mount`], but for damage of the journal's transactions.
    pub async fn repair_journal(
        device: Rc<dyn BlockDevice>,
        runtime: Executor,
        options: Options,
    ) -> Result<JournalRepaired> {
        let superblock = Self::superblock_of(&device).await?;
        if !superblock.needs_recovery() {
            return Ok(match superblock.has_errors() {
                true => JournalRepaired::ErrorsNoted,
                false => JournalRepaired::Empty,
            });
        }
        device.submit(Request::Flush).await?;
        let fs = Self::load_whatever(&superblock, &device, &runtime, &options).await?;
        let runs = fs.core.journal_runs().await?;
        let mut journal = jbd2::read_superblock(&device, runs).await?;
        let geometry = &fs.core.geometry;
        let whole = jbd2::replay_whole(&device, &journal, geometry, &options.memory).await;
        let (next, loss) = match whole {
            Ok(next) => (next, None),
            Err(Error::JournalLost(_) | Error::Io(IoError::Medium { .. })) => {
                let replayed = jbd2::replay(&device, &journal, geometry, OnLoss::GoOn).await?;
                (replayed.next, replayed.loss)
            }
            Err(error) => return Err(error),
        };
        let mut superblock = Self::superblock_of(&device).await?;
        let fs = Self::load_whatever(&superblock, &device, &runtime, &options).await?;
        fs.check_journal(&journal.place).await?;
        let format = fs.core.geometry.journal_format();
        jbd2::reset(&device, &mut journal, next, format).await?;
        superblock.set_needs_recovery(false);
        let mut block = read_block(&*device, BlockNo(0)).await?.to_vec();
        superblock.encode(&mut block);
        let request = Request::write_fua(BlockNo(0).sectors(), Payload::bytes(block));
        device.submit(request).await?;
        Ok(match loss {
            Some(loss) => JournalRepaired::Lossy(loss),
            None if superblock.has_errors() => JournalRepaired::ErrorsNoted,
            None => JournalRepaired::Whole,
        })
    }

    /// Loads a file system even if errors were found in it, to read its journal.
    pub(super) async fn load_whatever(
        superblock: &Superblock,
        device: &Rc<dyn BlockDevice>,
        runtime: &Executor,
        options: &Options,
    ) -> Result<Self> {
        let (block, none) =
            (read_block(&**device, BlockNo(0)).await?, Journal::none(&options.memory));
        Self::load_as(superblock, block, Mode::Ordered, none, device, runtime, options).await
    }
}

impl Metadata {
    /// The blocks of the journal.
    pub(super) async fn journal_runs(&self) -> Result<Vec<Run>> {
        let ino = self.geometry.journal;
        let raw = self.inode(ino).await?;
        let (mut runs, mut at) = (Vec::new(), 0);
        let blocks = u32::try_from(raw.size() / BLOCK).unwrap_or(u32::MAX);
        while at < blocks {
            match self.map(ino, &raw, FileBlock(at)).await? {
                Mapping::Mapped(extent) if extent.written => {
                    let blocks = extent.blocks.min(blocks - at);
                    runs.push(Run { start: extent.block, blocks });
                    at += blocks;
                }
                _ => return Err(Error::from(Corruption::inode(ino, "the journal has a hole"))),
            }
        }
        Ok(runs)
    }
}
