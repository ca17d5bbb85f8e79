//! Replay of a journal that this crate or the kernel left, also after a crash in an earlier replay.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use super::checkpoint::unescaped;
use super::place::{LogPlace, write_blocks};
use super::scan::{Contents, Found, Scan};
use crate::cache::read_block;
use crate::error::{Corruption, Location, Refusal, Result};
use crate::geometry::Geometry;
use crate::ondisk::jbd2::{JournalSuperblock, Tid, incompat};
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// Blocks that are written home in parallel.
const BATCH: usize = 256;

/// The place in the log of the newest content of a block.
struct Copy {
    at: u32,
    tid: Tid,
    escaped: bool,
}

struct Replay<'a> {
    scan: Scan<'a>,
    copies: BTreeMap<BlockNo, Copy>,
    revoked: HashMap<BlockNo, Tid>,
}

/// Brings home the blocks of the log that `superblock` describes, and returns the number of the
/// next transaction. The superblock is left as it is: after a crash in between, the replay is done
/// again.
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
    let Some((scan, start)) = Scan::of(device, place, superblock, geometry.blocks)? else {
        return Ok(next);
    };
    let mut replay = Replay { scan, copies: BTreeMap::new(), revoked: HashMap::new() };
    let (mut at, mut left) = (start, place.blocks());
    while let Some(found) = replay.scan.transaction(next, at, left, Contents::Compared).await? {
        (at, left) = (found.behind, left - found.blocks);
        replay.take(next, found);
        next = next.next();
    }
    replay.bring_home().await?;
    // Blocks of a torn transaction in the log must not be taken for the next one.
    Ok(next.next())
}

impl Replay<'_> {
    /// Notes a whole transaction, which is newer than those before it.
    fn take(&mut self, tid: Tid, found: Found) {
        for (tag, at) in found.copies {
            self.copies.insert(tag.home, Copy { at, tid, escaped: tag.escaped });
        }
        self.revoked.extend(found.revoked.into_iter().map(|block| (block, tid)));
    }

    /// Writes the newest content of each block home, unless it was revoked since, and flushes.
    async fn bring_home(&self) -> Result<()> {
        let is_wanted = |block: &BlockNo, copy: &Copy| {
            let revoked = self.revoked.get(block).filter(|_| !is(Bug::Ext4ReplayIgnoresRevokes));
            revoked.is_none_or(|revoked| !revoked.is_at_least(copy.tid))
        };
        let wanted: Vec<_> = self.copies.iter().filter(|(b, copy)| is_wanted(b, copy)).collect();
        for batch in wanted.chunks(BATCH) {
            let mut blocks = Vec::with_capacity(batch.len());
            for (home, copy) in batch {
                let content = self.scan.read(copy.at).await?;
                blocks.push((**home, unescaped(content, copy.escaped)));
            }
            all_done(write_blocks(self.scan.device, blocks)).await?;
        }
        if !is(Bug::Ext4ReplayNotFlushed) {
            self.scan.device.submit(Request::Flush).await?;
        }
        Ok(())
    }
}

/// The journal, as a mount reads it.
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
    let bad = |what| Corruption::of(Location::Journal(0), what);
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

/// Writes a journal superblock that says that the log is empty, after a replay.
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
