//! Replay of a journal that this crate or the kernel left, also after a crash in an earlier replay.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use manylogs_block::{BlockDevice, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use super::behind::{Proof, Spot};
use super::checkpoint::unescaped;
use super::place::{LogPlace, write_blocks};
use super::scan::{Announced, Contents, Found, Scan};
use crate::cache::read_block;
use crate::error::{Corruption, Error, JournalLoss, Location, Refusal, Result};
use crate::geometry::Geometry;
use crate::ondisk::jbd2::{JournalSuperblock, Tid, incompat};
use crate::ondisk::superblock::Superblock;
use crate::ops::ReplayProgress;
use crate::units::{BlockNo, Run};

/// Blocks that are written home in parallel.
const BATCH: usize = 256;

/// The place in the log of the newest content of a block.
struct Copy {
    at: u32,
    escaped: bool,
    is_bad: bool,
}

struct Replay<'a> {
    scan: Scan<'a>,
    copies: BTreeMap<BlockNo, Copy>,
    loss: JournalLoss,
}

/// What is done about a damaged log of which something is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnLoss {
    /// Nothing is written.
    Refuse,
    /// What is whole goes home, and the superblock says that there are errors.
    GoOn,
}

/// The result of a replay.
pub(crate) struct Replayed {
    /// The number of the next transaction.
    pub(crate) next: Tid,
    /// What is lost; `None` if nothing is.
    pub(crate) loss: Option<JournalLoss>,
}

/// Brings home the blocks of the log that `journal` describes. Its superblock is left as it is:
/// after a crash in between, the replay is done again.
///
/// Behind a transaction that is not whole it looks for later ones: these prove that the transaction
/// was durable, and is damaged. Nothing is lost if later transactions have newer copies of the
/// damaged blocks or revoke them, or if only a commit block is damaged.
///
/// # Errors
/// Those of the device, [`crate::Error::JournalLost`] if something is lost and `on_loss` says so,
/// and [`crate::Error::Corrupt`] if a transaction that was durable is not sound.
pub(crate) async fn replay(
    device: &Rc<dyn BlockDevice>,
    journal: &Journalled,
    geometry: &Geometry,
    on_loss: OnLoss,
) -> Result<Replayed> {
    let Journalled { place, superblock, progress } = journal;
    let tid = superblock.sequence();
    let Some((mut scan, at)) = Scan::of(device, place, superblock, geometry.blocks)? else {
        return Ok(Replayed { next: tid, loss: None });
    };
    scan.gives_up = on_loss == OnLoss::GoOn;
    let mut replay = Replay { scan, copies: BTreeMap::new(), loss: JournalLoss::default() };
    progress.begin_reading(place.blocks().into());
    let next = replay.read(Spot { tid, at, left: place.blocks() }, progress).await?;
    replay.find_lost();
    let is_lossy = !replay.loss.is_empty() && !is(Bug::LazyLossNotTold);
    if is_lossy && on_loss == OnLoss::Refuse {
        return Err(Error::JournalLost(Box::new(replay.loss)));
    }
    if is_lossy && !is(Bug::LazyRepairNotNoted) {
        replay.note_errors().await?;
    }
    replay.bring_home(is_lossy, progress).await?;
    Ok(Replayed { next, loss: Some(replay.loss).filter(|_| is_lossy) })
}

impl Replay<'_> {
    /// Reads the log from `spot` on. Returns the number of the next transaction. It is beyond those
    /// of the log: blocks of a torn transaction, and of later ones that somebody else's replay did
    /// not reach, must not be taken for what is written from now on.
    async fn read(&mut self, mut spot: Spot, progress: &ReplayProgress) -> Result<Tid> {
        let (mut last, mut is_ours, mut is_damaged) = (None, false, false);
        let all = spot.left;
        loop {
            progress.set_read((all - spot.left).into());
            let whole = self.scan.transaction(spot.tid, spot.at, spot.left, Contents::Compared);
            if let Some(found) = whole.await? {
                (last, is_ours) = (Some(found.closed_at), found.is_metadata);
                self.loss.later += u32::from(is_damaged);
                spot = spot.behind(&found, spot.tid.next());
                self.take(found).await?;
                continue;
            }
            match self.scan.proof_for(spot, last, is_ours).await? {
                None => return Ok(self.scan.place.beyond(spot.tid)),
                Some(Proof::Older) if !is(Bug::LazyOlderReplayed) => {
                    self.loss.is_older = true;
                    self.loss.unknown.push(spot.at);
                    return Ok(self.scan.place.beyond(spot.tid));
                }
                Some(_) => is_damaged = true,
            }
            let Some(damaged) = self.scan.damaged(spot).await? else {
                self.loss.unknown.push(spot.at);
                return Ok(self.scan.place.beyond(spot.tid));
            };
            self.loss.unknown.extend(damaged.unknown);
            spot = spot.behind(&damaged.found, damaged.next);
            self.take(damaged.found).await?;
        }
    }

    /// Notes a transaction, which is newer than those before it. What it revokes is taken out at
    /// once, so that memory is bounded by the length of the log.
    async fn take(&mut self, found: Found) -> Result<()> {
        for Announced { tag, at, is_bad } in found.copies {
            let is_bad = is_bad && !is(Bug::LazyBadCopyReplayed);
            self.copies.insert(tag.home, Copy { at, escaped: tag.escaped, is_bad });
        }
        for at in found.revokes {
            for block in self.scan.revoked_at(at).await? {
                if !is(Bug::Ext4ReplayIgnoresRevokes) {
                    self.copies.remove(&block);
                }
            }
        }
        Ok(())
    }

    /// Takes out the copies that are damaged, and notes them as lost. Their homes prove nothing:
    /// blocks that end with a CRC of their own, as superblocks do, have the same CRC in the log
    /// whatever they hold.
    fn find_lost(&mut self) {
        let bad = self.copies.iter().filter(|(_, copy)| copy.is_bad).map(|(home, _)| *home);
        self.loss.homes = bad.collect();
        self.copies.retain(|_, copy| !copy.is_bad);
    }

    /// Notes in the superblock that there are errors, durably, before anything is given up.
    async fn note_errors(&self) -> Result<()> {
        let block = read_block(&**self.scan.device, BlockNo(0)).await?;
        let request = Request::write_fua(BlockNo(0).sectors(), Payload::bytes(with_errors(block)?));
        self.scan.device.submit(request).await?;
        Ok(())
    }

    /// Writes the newest content of each block home, and flushes. If something is lost, the
    /// superblock goes home with a note of it.
    async fn bring_home(&self, is_lossy: bool, progress: &ReplayProgress) -> Result<()> {
        let wanted: Vec<_> = self.copies.iter().collect();
        progress.begin(wanted.len() as u64);
        for batch in wanted.chunks(BATCH) {
            let mut blocks = Vec::with_capacity(batch.len());
            for (home, copy) in batch {
                let content = unescaped(self.scan.read(copy.at).await?, copy.escaped);
                let is_noted = is_lossy && home.0 == 0 && !is(Bug::LazyRepairNotNoted);
                let content = if is_noted { with_errors(content)? } else { content };
                blocks.push((**home, content));
            }
            all_done(write_blocks(self.scan.device, blocks)).await?;
            progress.add(batch.len() as u64);
        }
        if !is(Bug::Ext4ReplayNotFlushed) {
            self.scan.device.submit(Request::Flush).await?;
        }
        Ok(())
    }
}

/// Block 0 with a superblock that says that there are errors.
fn with_errors(block: Bytes) -> Result<Bytes> {
    let mut superblock = Superblock::decode(&block)?;
    superblock.set_errors();
    let mut content = BytesMut::from(&block[..]);
    superblock.encode(&mut content);
    Ok(content.freeze())
}

/// The journal, as a mount reads it.
pub(crate) struct Journalled {
    pub(crate) place: LogPlace,
    pub(crate) superblock: JournalSuperblock,
    /// Where a replay notes how far it is.
    pub(crate) progress: ReplayProgress,
}

impl Journalled {
    /// This journal, whose replay notes there how far it is.
    pub(crate) fn telling(self, progress: &ReplayProgress) -> Self {
        Self { progress: progress.clone(), ..self }
    }
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
    let (blocks, least) = (superblock.blocks(), super::BLOCKS_LEAST);
    if blocks < least && runs.iter().map(|run| run.blocks).sum::<u32>() == blocks {
        return Err(Refusal::ShortJournal { blocks, least }.into());
    }
    let end = superblock.blocks().checked_sub(superblock.fast_commit_blocks());
    let place = end.and_then(|end| LogPlace::new(runs, superblock.first(), end));
    let place = place.ok_or_else(|| bad("the log does not fit the journal's file"))?;
    if place.blocks() + place.first() < super::BLOCKS_LEAST {
        return Err(bad("shorter than 1024 blocks").into());
    }
    Ok(Journalled { place, superblock, progress: ReplayProgress::default() })
}

/// Writes a journal superblock that says that the log is empty, after a replay. Blocks at the end
/// of the journal that were meant for fast commits belong to the log from then on: what is written
/// says nothing of fast commits, so any replay wraps around at the journal's end.
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
    if !is(Bug::FastCommitsKeepRoom) {
        let whole = journal.place.with_end(journal.superblock.blocks());
        let bad = || Corruption::of(Location::Journal(0), "the log does not fit its file");
        journal.place = whole.ok_or_else(bad)?;
    }
    device.submit(journal.place.write_of(&mut journal.superblock)).await?;
    Ok(())
}
