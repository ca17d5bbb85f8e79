//! A longer journal for a file system that nobody uses.
//!
//! First its file grows, by transactions of the journal as it is: each leaves a whole file, and a
//! log that does not use what is new. A replay finds the log through the file's inode and tree as
//! they are at home, where a crash can leave any part of what was on its way. So no node of the
//! tree is changed where it lies: each transaction gives the nodes on the way to the new blocks
//! other places, and writes them there durably before it is committed. A transaction goes home
//! before the next one begins. So the inode at home, which lies in one sector, names a whole tree
//! at any time, the old one or the new one.
//!
//! Programs of ext4 take the length of the log from the journal's superblock, and ignore what its
//! file has behind that. When the journal is empty again, what is new is zeroed, so that no replay
//! finds an old transaction there; then one sector of the journal's superblock gives the log its
//! new length. So a crash leaves the old log or the new one, and a second call goes on with the
//! file as the first one left it.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle as Executor, Payload, Request};
use manylogs_plant::{Bug, is};

use super::{Ext4, Options};
use crate::alloc::{Claim, ClaimedFor};
use crate::core::Core;
use crate::error::{Corruption, Error, Location, Refusal, Result};
use crate::extents::MAP_CREDITS;
use crate::journal::Handle;
use crate::journal::jbd2::{self, Journalled};
use crate::ondisk::inode::flags;
use crate::units::{BlockNo, GroupNo, Run};

/// The longest journal, which is also the longest that mkfs makes: 39 GiB.
pub const JOURNAL_BLOCKS_MOST: u32 = 10_240_000;
/// Shortest free runs that are taken, one after the other: 32 MiB, 1 MiB, and any.
const LEAST: [u32; 3] = [1 << 13, 1 << 8, 1];
/// Blocks that stay free for the nodes of the file's tree.
const SPARE: u64 = 64;
/// Blocks that are zeroed at a time: 64 MiB.
const ZEROED_AT_ONCE: u32 = 1 << 14;

/// What [`Ext4::lengthen_journal`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengthened {
    /// Blocks of the journal before.
    pub before: u32,
    /// Blocks of the journal now.
    pub blocks: u32,
    /// Pieces of the device in which they lie.
    pub pieces: usize,
}

impl Ext4 {
    /// Gives the journal of a file system that nobody uses this length, in blocks. What it holds
    /// goes home first. Durable when it returns; a crash before leaves the old length or the new
    /// one, and all content.
    ///
    /// # Errors
    /// [`Refusal::JournalIsLong`] if it has more blocks, [`Error::NoSpace`] without so many free
    /// blocks, after neither of which the journal is changed, [`Error::TooLarge`] above
    /// [`JOURNAL_BLOCKS_MOST`], and as [`Ext4::mount`].
    pub async fn lengthen_journal(
        device: Rc<dyn BlockDevice>,
        runtime: Executor,
        options: Options,
        blocks: u32,
    ) -> Result<Lengthened> {
        if blocks > JOURNAL_BLOCKS_MOST {
            return Err(Error::TooLarge);
        }
        let fs = Self::mount(Rc::clone(&device), runtime.clone(), options.clone()).await?;
        fs.core.geometry.changes_journal.set(true);
        let grown = fs.grow_journal_file(blocks).await;
        let unmounted = fs.unmount().await;
        let before = grown?;
        unmounted?;
        let superblock = Self::superblock_of(&device).await?;
        let fs = Self::load_whatever(&superblock, &device, &runtime, &options).await?;
        let journal = jbd2::read_superblock(&device, fs.core.journal_runs().await?).await?;
        let pieces = use_all(&device, journal, blocks).await?;
        Ok(Lengthened { before, blocks, pieces })
    }

    /// Lets the journal's file have so many blocks. Returns how many the log has with its
    /// superblock.
    async fn grow_journal_file(&self, blocks: u32) -> Result<u32> {
        let core = &self.core;
        if !core.inode(core.geometry.journal).await?.has_flag(flags::EXTENTS) {
            return Err(Refusal::JournalWithoutExtents.into());
        }
        let runs = core.journal_runs().await?;
        let before = jbd2::read_superblock(&core.device, runs.clone()).await?.superblock.blocks();
        if blocks < before {
            return Err(Refusal::JournalIsLong { blocks: before, asked: blocks }.into());
        }
        let file: u32 = runs.iter().map(|run| run.blocks).sum();
        let goal = runs.last().map_or(BlockNo(0), |run| run.start);
        // The mount may have deleted orphans, whose blocks count as free and are held back.
        while core.space.holds_back() {
            core.free_held_back().await?;
        }
        let found = core.room_for_journal(goal, blocks.saturating_sub(file)).await?;
        if is(Bug::LengthenLogEarly) {
            let longer = runs.iter().copied().chain(found.iter().map(Claim::run)).collect();
            let journal = jbd2::read_superblock(&core.device, longer).await?;
            use_all(&core.device, journal, blocks).await?;
        }
        for claim in found {
            core.add_to_journal(claim).await?;
            self.bring_home().await?;
        }
        Ok(before)
    }
}

impl Core {
    /// Free runs of so many blocks together, those of the group of `goal` and of the groups behind
    /// it first, and long ones before short ones. The runs are claimed, so that no node
    /// of the file's tree takes a block of them.
    async fn room_for_journal(&self, goal: BlockNo, blocks: u32) -> Result<Vec<Claim>> {
        let _tree = self.journal.tree.read().await;
        self.space.check_room(blocks.into(), SPARE)?;
        let (first, groups) = (self.geometry.group_of(goal).0, self.geometry.groups);
        let (mut left, mut found) = (blocks, Vec::new());
        for least in LEAST {
            let mut rest = (0..groups).map(|step| GroupNo((first.0 + step) % groups));
            while left > 0
                && let Some(group) = rest.next()
            {
                for run in self.free_runs(group, least.min(left)).await? {
                    if left == 0 {
                        break;
                    }
                    let run = Run { blocks: run.blocks.min(left), ..run };
                    left -= run.blocks;
                    found.push(self.space.claim(run, ClaimedFor::Others));
                }
            }
        }
        if left > 0 { Err(Error::NoSpace) } else { Ok(found) }
    }

    /// Adds claimed blocks at the end of the journal's file. New nodes of its tree are durable when
    /// this returns. The caller brings the update home before the next one: old nodes are free
    /// then, and the inode at home still names them.
    async fn add_to_journal(&self, claim: Claim) -> Result<()> {
        let mut handle = self.begin(2 * MAP_CREDITS).await?;
        let raw = self.append_run(&mut handle, self.geometry.journal, claim, true).await?;
        if !is(Bug::LengthenBackupForgotten) {
            self.change_superblock(&mut handle, |held| held.back_up_journal(&raw))?;
        }
        self.write_made(&handle).await?;
        handle.finish();
        Ok(())
    }

    /// Writes blocks that the update made home, durably: new nodes of the journal's tree, and
    /// bitmaps of groups that had none, which nobody reads before the descriptor says so.
    async fn write_made(&self, handle: &Handle<'_>) -> Result<()> {
        for made in handle.made().filter(|_| !is(Bug::LengthenNodesLater)) {
            let content = Payload::bytes(made.bytes());
            self.device.submit(Request::write_fua(made.block().sectors(), content)).await?;
        }
        Ok(())
    }
}

/// Gives the log of an empty journal the first `blocks` blocks of its file, durably. Returns in how
/// many pieces they lie.
async fn use_all(
    device: &Rc<dyn BlockDevice>,
    mut journal: Journalled,
    blocks: u32,
) -> Result<usize> {
    let old = journal.place.end();
    let long = journal.place.with_end(blocks);
    let short = || Corruption::of(Location::Journal(0), "its file is shorter than its log");
    let place = long.ok_or_else(short)?;
    let mut at = old;
    while at < blocks && !is(Bug::LengthenNotZeroed) {
        let run = place.run(at, ZEROED_AT_ONCE.min(blocks - at));
        let zeroes = Request::WriteZeroes { extent: run.sectors(), fua: false, if_fast: false };
        device.submit(zeroes).await?;
        at += run.blocks;
    }
    device.submit(Request::Flush).await?;
    journal.superblock.set_blocks(blocks);
    device.submit(place.write_of(&mut journal.superblock)).await?;
    Ok(place.pieces())
}
