//! Reading the transactions of a log that this crate or the kernel left.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::BlockDevice;
use manylogs_plant::{Bug, is};

use super::place::LogPlace;
use crate::cache::read_block;
use crate::error::{Corruption, Location, Refusal, Result};
use crate::ondisk::jbd2::{self, BlockKind, Format, JournalSuperblock, Tag, Tid, incompat};
use crate::units::BlockNo;

/// A log to be read.
pub(super) struct Scan<'a> {
    pub(super) device: &'a Rc<dyn BlockDevice>,
    pub(super) place: &'a LogPlace,
    pub(super) format: Format,
    /// Blocks of the file system.
    pub(super) blocks: u64,
}

/// A transaction that was found in the log.
#[derive(Default)]
pub(super) struct Found {
    /// Its copies, each with its place in the journal.
    pub(super) copies: Vec<(Tag, u32)>,
    pub(super) revoked: Vec<BlockNo>,
    /// The block behind it.
    pub(super) behind: u32,
    /// How many blocks of the log it takes.
    pub(super) blocks: u32,
    /// Whether it says that it holds no content of files.
    pub(super) is_metadata: bool,
    /// A copy whose checksum does not match, if contents were compared.
    mismatch: Option<u32>,
}

/// How much is read of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    /// All; copies are compared with their checksums.
    Compared,
    /// Only its own blocks: copies were durable before its commit block was written.
    Skipped,
}

impl<'a> Scan<'a> {
    /// The scan of a log, and the block at which it begins; `None` if the log is empty.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`], and [`crate::Error::Refused`] if another program must look at it.
    pub(super) fn of(
        device: &'a Rc<dyn BlockDevice>,
        place: &'a LogPlace,
        superblock: &JournalSuperblock,
        blocks: u64,
    ) -> Result<Option<(Self, u32)>> {
        let Some(start) = superblock.start() else { return Ok(None) };
        if superblock.incompat() & incompat::FAST_COMMIT != 0 {
            return Err(Refusal::NeedsCheck("the journal may hold fast commits").into());
        }
        if !place.contains(start) {
            return Err(Corruption::of(Location::Journal(0), "the log begins outside").into());
        }
        Ok(Some((Self { device, place, format: superblock.format(), blocks }, start)))
    }

    pub(super) async fn read(&self, at: u32) -> Result<Bytes> {
        Ok(read_block(&**self.device, self.place.home(at)).await?)
    }

    /// The transaction `tid` at block `at`; `None` if it is not whole. `left` blocks of the log
    /// were not looked at yet.
    ///
    /// # Errors
    /// Those of the device, and [`crate::Error::Corrupt`] if one that was durable is not sound.
    pub(super) async fn transaction(
        &self,
        tid: Tid,
        at: u32,
        left: u32,
        contents: Contents,
    ) -> Result<Option<Found>> {
        let mut found = Found { behind: at, ..Found::default() };
        while found.blocks < left {
            let here = found.behind;
            let block = self.read(here).await?;
            self.step(&mut found);
            let kind = jbd2::header(&block).filter(|(_, of)| *of == tid).map(|(kind, _)| kind);
            match kind {
                Some(BlockKind::Descriptor) if self.format.is_whole(&block) => {
                    let tags = self.format.tags_of(&block);
                    if tags.len() > (left - found.blocks) as usize {
                        return Ok(None);
                    }
                    self.announced(tid, tags, contents, &mut found).await?;
                }
                Some(BlockKind::Revoke) if self.format.is_whole(&block) => {
                    let revoked = self.format.revoked(&block);
                    let bad = || Corruption::of(Location::Journal(here), "impossible revokes");
                    found.revoked.extend(revoked.ok_or_else(bad)?);
                }
                Some(BlockKind::Commit) if self.format.is_whole_commit(&block) => {
                    found.is_metadata = Format::is_metadata_alone(&block);
                    self.check(&found)?;
                    return Ok(Some(found));
                }
                _ if is(Bug::LazyMapAheadOfCommit) && contents == Contents::Skipped => {
                    found.is_metadata = true;
                    return Ok(Some(found).filter(|found| !found.copies.is_empty()));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    const fn step(&self, found: &mut Found) {
        found.behind = self.place.after(found.behind);
        found.blocks += 1;
    }

    /// Notes the copies that a descriptor announces.
    async fn announced(
        &self,
        tid: Tid,
        tags: Vec<Tag>,
        contents: Contents,
        found: &mut Found,
    ) -> Result<()> {
        for tag in tags {
            let at = found.behind;
            if contents == Contents::Compared {
                let sum = self.format.checksum(tid, &self.read(at).await?);
                if sum.is_some_and(|sum| sum != tag.checksum) {
                    found.mismatch = Some(at);
                }
            }
            found.copies.push((tag, at));
            self.step(found);
        }
        Ok(())
    }

    /// Checks a transaction with a commit block: all of it was durable before that was written.
    fn check(&self, found: &Found) -> Result<()> {
        if let Some(at) = found.mismatch {
            return Err(Corruption::of(Location::Journal(at), "wrong checksum").into());
        }
        match found.copies.iter().find(|(tag, _)| tag.home.0 >= self.blocks) {
            Some((_, at)) => {
                Err(Corruption::of(Location::Journal(*at), "a block beyond the end").into())
            }
            None => Ok(()),
        }
    }
}
