//! Reading the transactions of a log that this crate or the kernel left.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, IoError, Request};
use manylogs_plant::{Bug, is};

use super::place::LogPlace;
use crate::cache::read_block;
use crate::error::{Corruption, Error, Location, Refusal, Result};
use crate::ondisk::jbd2::{self, BlockKind, Format, JournalSuperblock, Tag, Tid, incompat};
use crate::units::{BLOCK_BYTES, BlockNo, Run, Timestamp};

/// Most blocks of the log that are read at a time: 1 MiB.
pub(super) const READ_MOST: u32 = 256;

/// The journal's own blocks are read with what lies behind them, if so many blocks lie between two
/// of them at most. To skip more takes less time than to read it.
const NEAR_MOST: u32 = 64;

/// Blocks of the log that were read at a time, for the journal's own blocks among them. Nobody
/// writes the log meanwhile.
#[derive(Debug, Default)]
pub(super) struct Window {
    start: u32,
    bytes: Bytes,
    /// The block that was asked for last.
    last: u32,
}

impl Window {
    fn get(&self, at: u32) -> Option<Bytes> {
        let from = at.checked_sub(self.start)? as usize * BLOCK_BYTES;
        let is_there = from < self.bytes.len();
        is_there.then(|| self.bytes.slice(from..from + BLOCK_BYTES))
    }
}

/// A log to be read.
pub(super) struct Scan<'a> {
    pub(super) device: &'a Rc<dyn BlockDevice>,
    pub(super) place: &'a LogPlace,
    pub(super) format: Format,
    /// Blocks of the file system.
    pub(super) blocks: u64,
    /// Whether commit blocks may be durable before the blocks that they commit: some kernels write
    /// them together (`journal_async_commit`).
    pub(super) commits_early: bool,
    /// Whether a block that the medium does not give counts as damaged. Else reads of it fail.
    pub(super) gives_up: bool,
    pub(super) window: RefCell<Window>,
}

/// A copy that a descriptor announces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) tag: Tag,
    /// Its place in the journal.
    pub(super) at: u32,
    /// Whether its checksum does not match, if contents were compared.
    pub(super) is_bad: bool,
}

/// A transaction that was found in the log.
#[derive(Default)]
pub(super) struct Found {
    pub(super) copies: Vec<Announced>,
    /// Its revoke blocks, by their places. What they revoke is read when it is needed: a log can
    /// name far more blocks than it has.
    pub(super) revokes: Vec<u32>,
    /// The block behind it.
    pub(super) behind: u32,
    /// How many blocks of the log it takes.
    pub(super) blocks: u32,
    /// Whether it says that it holds no content of files.
    pub(super) is_metadata: bool,
    /// When it was closed.
    pub(super) closed_at: Timestamp,
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
        let (format, commits_early) = (superblock.format(), superblock.commits_early());
        let window = RefCell::default();
        let scan = Self { device, place, format, blocks, commits_early, gives_up: false, window };
        Ok(Some((scan, start)))
    }

    pub(super) async fn read(&self, at: u32) -> Result<Bytes> {
        Ok(read_block(&**self.device, self.place.home(at)).await?)
    }

    /// As [`Scan::read`]; `None` if the medium does not give the block.
    pub(super) async fn read_if_medium(&self, at: u32) -> Result<Option<Bytes>> {
        match self.read(at).await {
            Err(Error::Io(IoError::Medium { .. })) => Ok(None),
            read => read.map(Some),
        }
    }

    /// The blocks from `at` on that lie together, `most` at most; `None` in place of their content
    /// if the medium does not give it.
    pub(super) async fn read_run(&self, at: u32, most: u32) -> Result<(Run, Option<Bytes>)> {
        let run = self.place.run(at, most.min(READ_MOST));
        let content = match self.device.submit(Request::Read { extent: run.sectors() }).await {
            Ok(payload) => Some(payload.to_bytes().ok_or(IoError::Unsupported)?),
            Err(IoError::Medium { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok((run, content))
    }

    /// As [`Scan::read`]; `None` for a block that is given up.
    pub(super) async fn read_if_readable(&self, at: u32) -> Result<Option<Bytes>> {
        match self.read(at).await {
            Err(Error::Io(IoError::Medium { .. })) if self.gives_up => Ok(None),
            read => read.map(Some),
        }
    }

    /// As [`Scan::read_if_readable`], of a block that is presumably the journal's own: with many of
    /// them close together, one read brings several.
    async fn read_own(&self, at: u32) -> Result<Option<Bytes>> {
        let (found, last) = {
            let mut window = self.window.borrow_mut();
            (window.get(at), std::mem::replace(&mut window.last, at))
        };
        if found.is_some() {
            return Ok(found);
        }
        let is_near = self.place.contains(last) && self.place.distance(last, at) <= NEAR_MOST;
        if is_near && let (_, Some(bytes)) = self.read_run(at, READ_MOST).await? {
            let mut window = self.window.borrow_mut();
            (window.start, window.bytes) = (at, bytes);
            return Ok(window.get(at));
        }
        self.read_if_readable(at).await
    }

    /// What a block of the journal's own is, if it is whole: its kind and its transaction.
    pub(super) fn own(&self, block: &[u8]) -> Option<(BlockKind, Tid)> {
        let (kind, tid) = jbd2::header(block)?;
        let is_whole = match kind {
            BlockKind::Commit => self.format.is_whole_commit(block),
            BlockKind::Descriptor | BlockKind::Revoke => self.format.is_whole(block),
        };
        is_whole.then_some((kind, tid))
    }

    /// The blocks that the revoke block at `at` names.
    ///
    /// # Errors
    /// Those of the device, and [`crate::Error::Corrupt`].
    pub(super) async fn revoked_at(&self, at: u32) -> Result<Vec<BlockNo>> {
        let revoked = self.format.revoked(&self.read(at).await?);
        let bad = || Corruption::of(Location::Journal(at), "impossible revokes");
        Ok(revoked.ok_or_else(bad)?)
    }

    /// The transaction `tid` at block `at`; `None` if it is not whole, but for contents of copies.
    /// `left` blocks of the log were not looked at yet.
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
            let read = match contents {
                Contents::Skipped => self.read_own(found.behind).await?,
                // Its neighbours are read with the copies.
                Contents::Compared => self.read_if_readable(found.behind).await?,
            };
            let Some(block) = read else { return Ok(None) };
            match self.own(&block).filter(|(_, of)| *of == tid) {
                Some((kind, _)) => {
                    if !self.take(kind, &block, left, contents, &mut found).await? {
                        return Ok(None);
                    }
                    if kind == BlockKind::Commit {
                        self.check(&found)?;
                        let is_torn = self.commits_early && found.copies.iter().any(|it| it.is_bad);
                        return Ok(Some(found).filter(|_| !is_torn));
                    }
                }
                _ if is(Bug::LazyMapAheadOfCommit) && contents == Contents::Skipped => {
                    self.step(&mut found);
                    found.is_metadata = true;
                    return Ok(Some(found).filter(|found| !found.copies.is_empty()));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Notes a whole block of the journal's own, and the copies that it announces. Returns whether
    /// these fit into the log.
    pub(super) async fn take(
        &self,
        kind: BlockKind,
        block: &[u8],
        left: u32,
        contents: Contents,
        found: &mut Found,
    ) -> Result<bool> {
        let here = found.behind;
        self.step(found);
        match kind {
            BlockKind::Descriptor => {
                let tags = self.format.tags_of(block);
                if tags.len() > (left - found.blocks) as usize {
                    return Ok(false);
                }
                let tid = jbd2::header(block).map_or(Tid::default(), |(_, tid)| tid);
                self.announced(tid, tags, contents, found).await?;
            }
            BlockKind::Revoke => found.revokes.push(here),
            BlockKind::Commit => {
                found.is_metadata = Format::is_metadata_alone(block);
                found.closed_at = Format::closed_at(block);
            }
        }
        Ok(true)
    }

    pub(super) const fn step(&self, found: &mut Found) {
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
        let bad = match contents {
            Contents::Compared => self.bad(tid, &tags, found.behind).await?,
            Contents::Skipped => vec![false; tags.len()],
        };
        for (tag, is_bad) in tags.into_iter().zip(bad) {
            found.copies.push(Announced { tag, at: found.behind, is_bad });
            self.step(found);
        }
        Ok(())
    }

    /// Which copies from block `at` on do not have the checksums that their tags say. Neighbours
    /// are read together: a transaction may have 4096 copies, and each read of one costs a turn of
    /// the disk.
    async fn bad(&self, tid: Tid, tags: &[Tag], mut at: u32) -> Result<Vec<bool>> {
        let mut bad = Vec::with_capacity(tags.len());
        while bad.len() < tags.len() {
            let left = &tags[bad.len()..];
            let most = manylogs_block::narrow(left.len() as u64);
            let (run, content) = self.read_run(at, most).await?;
            for (number, tag) in (0..run.blocks).zip(left) {
                let from = number as usize * BLOCK_BYTES;
                let block = match &content {
                    Some(all) => Some(all.slice(from..from + BLOCK_BYTES)),
                    None => self.read_if_readable(at + number).await?,
                };
                let is_bad = |block: Bytes| {
                    self.format.checksum(tid, &block).is_some_and(|sum| sum != tag.checksum)
                };
                bad.push(block.is_none_or(is_bad));
            }
            at = self.place.after(at + run.blocks - 1);
        }
        Ok(bad)
    }

    /// Checks the tags of a transaction with a commit block.
    pub(super) fn check(&self, found: &Found) -> Result<()> {
        match found.copies.iter().find(|copy| copy.tag.home.0 >= self.blocks) {
            Some(copy) => {
                Err(Corruption::of(Location::Journal(copy.at), "a block beyond the end").into())
            }
            None => Ok(()),
        }
    }
}
