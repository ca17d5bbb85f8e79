//! Replaying a journal that somebody left: we, the kernel, or a crash in an earlier replay.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use manylogs_block::{BlockDevice, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use super::place::{LogPlace, write_blocks};
use crate::cache::read_block;
use crate::error::{Corruption, Place, Refusal, Result};
use crate::geometry::Geometry;
use crate::ondisk::jbd2::{self, Format, JournalSuperblock, Kind, Tag, Tid, incompat};
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// Blocks that are brought home with one wait.
const BATCH: usize = 256;

/// Where in the log the newest content of a block is.
struct Copy {
    at: u32,
    tid: Tid,
    escaped: bool,
}

struct Replay<'a> {
    device: &'a Rc<dyn BlockDevice>,
    place: &'a LogPlace,
    format: Format,
    blocks: u64,
    copies: BTreeMap<BlockNo, Copy>,
    revoked: HashMap<BlockNo, Tid>,
}

/// What one transaction of the log says.
#[derive(Default)]
struct Found {
    copies: Vec<(Tag, u32)>,
    revoked: Vec<BlockNo>,
}

/// Brings home what is in the log that `superblock` describes, and returns the number that the
/// next transaction has. The superblock is left as it is: a
/// crash in between means that the replay is done again.
///
/// # Errors
/// Those of the device, and [`crate::Error::Corrupt`] if a transaction that was durable is not
/// whole.
pub(crate) async fn replay(
    device: &Rc<dyn BlockDevice>,
    place: &LogPlace,
    superblock: &JournalSuperblock,
    geometry: &Geometry,
) -> Result<Tid> {
    let mut next = superblock.sequence();
    let Some(start) = superblock.start() else {
        return Ok(next);
    };
    if superblock.incompat() & incompat::FAST_COMMIT != 0 {
        return Err(Refusal::NeedsCheck("the journal may hold fast commits").into());
    }
    if !place.contains(start) {
        return Err(Corruption::of(Place::Journal(0), "the log begins outside").into());
    }
    let mut replay = Replay {
        device,
        place,
        format: superblock.format(),
        blocks: geometry.blocks,
        copies: BTreeMap::new(),
        revoked: HashMap::new(),
    };
    let (mut at, mut left) = (start, place.blocks());
    while let Some((found, behind, taken)) = replay.transaction(next, at, left).await? {
        replay.take(next, found)?;
        (at, left, next) = (behind, left - taken, next.next());
    }
    replay.bring_home().await?;
    // What is left of a torn transaction must not be taken for the next one.
    Ok(next.next())
}

impl Replay<'_> {
    async fn read(&self, at: u32) -> Result<Bytes> {
        Ok(read_block(&**self.device, self.place.home(at)).await?)
    }

    /// The transaction `tid` at block `at`, what follows it, and how many blocks it takes; `None`
    /// if it is not whole. `left` blocks of the log were not looked at yet.
    async fn transaction(&self, tid: Tid, at: u32, left: u32) -> Result<Option<(Found, u32, u32)>> {
        let (mut found, mut at, mut taken) = (Found::default(), at, 0);
        let mut mismatch = None;
        while taken < left {
            let block = self.read(at).await?;
            let here = at;
            (at, taken) = (self.place.after(at), taken + 1);
            match jbd2::header(&block) {
                Some((Kind::Descriptor, found_tid)) if found_tid == tid => {
                    if !self.format.is_whole(&block) {
                        return Ok(None);
                    }
                    for tag in self.format.tags_of(&block) {
                        if taken >= left {
                            return Ok(None);
                        }
                        let content = self.read(at).await?;
                        let sum = self.format.checksum(tid, &content);
                        if sum.is_some_and(|sum| sum != tag.checksum) {
                            mismatch = Some(at);
                        }
                        found.copies.push((tag, at));
                        (at, taken) = (self.place.after(at), taken + 1);
                    }
                }
                Some((Kind::Revoke, found_tid)) if found_tid == tid => {
                    if !self.format.is_whole(&block) {
                        return Ok(None);
                    }
                    let revoked = self.format.revoked(&block);
                    let bad = || Corruption::of(Place::Journal(here), "impossible revokes");
                    found.revoked.extend(revoked.ok_or_else(bad)?);
                }
                Some((Kind::Commit, found_tid)) if found_tid == tid => {
                    if !self.format.is_whole_commit(&block) {
                        return Ok(None);
                    }
                    // All of it was durable before its commit block was written.
                    return match mismatch {
                        None => Ok(Some((found, at, taken))),
                        Some(at) => {
                            Err(Corruption::of(Place::Journal(at), "wrong checksum").into())
                        }
                    };
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// A whole transaction is newer than those before it.
    fn take(&mut self, tid: Tid, found: Found) -> Result<()> {
        for (tag, at) in found.copies {
            let inside = tag.home.0 < self.blocks;
            if !inside {
                return Err(Corruption::of(Place::Journal(at), "a block beyond the end").into());
            }
            self.copies.insert(tag.home, Copy { at, tid, escaped: tag.escaped });
        }
        self.revoked.extend(found.revoked.into_iter().map(|block| (block, tid)));
        Ok(())
    }

    /// Writes the newest content of each block that was not revoked since, durably.
    async fn bring_home(&self) -> Result<()> {
        let is_wanted = |block: &BlockNo, copy: &Copy| {
            let revoked = self.revoked.get(block).filter(|_| !is(Bug::Ext4ReplayIgnoresRevokes));
            revoked.is_none_or(|revoked| !revoked.is_at_least(copy.tid))
        };
        let wanted: Vec<_> = self.copies.iter().filter(|(b, copy)| is_wanted(b, copy)).collect();
        for batch in wanted.chunks(BATCH) {
            let mut blocks = Vec::with_capacity(batch.len());
            for (home, copy) in batch {
                let mut content = self.read(copy.at).await?;
                if copy.escaped {
                    let mut own = BytesMut::from(&content[..]);
                    jbd2::escape(&mut own, false);
                    content = own.freeze();
                }
                blocks.push((**home, content));
            }
            all_done(write_blocks(self.device, blocks)).await?;
        }
        if !is(Bug::Ext4ReplayNotFlushed) {
            self.device.submit(Request::Flush).await?;
        }
        Ok(())
    }
}

/// What a mount learns of the journal.
pub(crate) struct Journalled {
    pub(crate) place: LogPlace,
    pub(crate) superblock: JournalSuperblock,
}

/// Reads the superblock of the journal in `runs`.
///
/// # Errors
/// Those of the device, [`crate::Error::Corrupt`], and [`crate::Error::Refused`] if another program
/// must look at the journal first.
pub(crate) async fn read_superblock(
    device: &Rc<dyn BlockDevice>,
    runs: Vec<Run>,
) -> Result<Journalled> {
    let bad = |what| Corruption::of(Place::Journal(0), what);
    let first = runs.first().ok_or_else(|| bad("no blocks"))?.start;
    let block = read_block(&**device, first).await?;
    let superblock = JournalSuperblock::decode(&block).ok_or_else(|| bad("no superblock"))?;
    if superblock.incompat() & !incompat::KNOWN != 0 {
        return Err(Refusal::NeedsCheck("the journal has unknown features").into());
    }
    if superblock.error() != 0 {
        return Err(Refusal::NeedsCheck("the journal was given up after an error").into());
    }
    let end = superblock.blocks().checked_sub(superblock.fast_commit_blocks());
    let place = end.and_then(|end| LogPlace::new(runs, superblock.first(), end));
    let place = place.ok_or_else(|| bad("the log does not fit the journal's file"))?;
    if place.blocks() + place.first() < super::BLOCKS_LEAST {
        return Err(bad("shorter than 1024 blocks").into());
    }
    Ok(Journalled { place, superblock })
}

/// Makes an empty log the device's truth: what was replayed is not looked for again.
///
/// # Errors
/// Those of the device.
pub(crate) async fn reset(
    device: &Rc<dyn BlockDevice>,
    journal: &mut Journalled,
    next: Tid,
    format: (bool, bool),
) -> Result<()> {
    let (wide, checksums) = format;
    journal.superblock.set_tail(next, None);
    journal.superblock.set_format(wide, checksums);
    let mut block = vec![0; BLOCK_BYTES];
    journal.superblock.encode(&mut block);
    let at = journal.place.home(0).sectors();
    device.submit(Request::write_fua(at, Payload::bytes(block))).await?;
    Ok(())
}
