//! Picking blocks, and giving them back.

use std::ops::Range;

use manylogs_plant::{Bug, is};

use super::{Claim, ClaimedFor};
use crate::error::{Corruption, Error, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::bitmap;
use crate::ondisk::bytes::low32;
use crate::ondisk::group::BitmapKind;
use crate::units::{BlockNo, GroupNo, Ino, Run};

/// A run of this many blocks is taken at once: no longer run is looked for elsewhere.
const GOOD_ENOUGH: u32 = 256;
/// Groups that a search looks at before it takes a shorter run. A look may be a read, and there are
/// 160,000 groups on 20 TB.
const LOOKS_MOST: u32 = 16;

/// A search for a run of free blocks.
struct Search {
    /// A run of this length ends the search.
    wanted: u32,
    /// The longest run that was found.
    best: Option<Run>,
    looks: u32,
}

impl Search {
    /// Whether the best run so far is taken.
    fn is_over(&self) -> bool {
        let many = self.looks >= LOOKS_MOST && !is(Bug::Ext4SearchEverywhere);
        self.best.is_some_and(|best| many || best.blocks >= self.wanted)
    }
}

impl Metadata {
    /// Claims at most `most` consecutive blocks, at or behind `goal` if possible. The caller holds
    /// the tree lock.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no block is free; if some are held back, a commit helps.
    pub(crate) async fn claim(
        &self,
        goal: BlockNo,
        most: u32,
        what_for: ClaimedFor,
    ) -> Result<Claim> {
        let run = self.pick(goal, most).await?;
        Ok(self.space.claim(run, what_for))
    }

    /// Takes one block into use for the tables and trees that map blocks.
    ///
    /// # Errors
    /// As [`Metadata::claim`].
    pub(crate) async fn take_block(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockNo,
    ) -> Result<BlockNo> {
        let run = self.pick(goal, 1).await?;
        self.mark(handle, run, true).await?;
        handle.note_used(1);
        Ok(run.start)
    }

    /// Takes one block that a program asks for. Blocks that are promised to data, or kept from the
    /// program, are not given away.
    ///
    /// # Errors
    /// As [`Metadata::claim`], and if all free blocks are promised or kept.
    pub(crate) async fn take_free_block(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockNo,
    ) -> Result<BlockNo> {
        self.space.check_room(1, handle.kept)?;
        self.take_block(handle, goal).await
    }

    /// Marks claimed blocks as in use.
    pub(crate) async fn use_claim(&self, handle: &mut Handle<'_>, claim: Claim) -> Result<()> {
        self.mark(handle, claim.run(), true).await?;
        handle.note_claimed(claim);
        Ok(())
    }

    /// Gives blocks of `owner` back; `metadata` says that they were in the cache.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are not the owner's to give.
    pub(crate) async fn free(
        &self,
        handle: &mut Handle<'_>,
        owner: Ino,
        run: Run,
        metadata: bool,
    ) -> Result<()> {
        if !self.geometry.is_data(run) {
            return Err(Corruption::inode(owner, "its blocks lie where no file can be").into());
        }
        self.mark(handle, run, false).await?;
        handle.note_freed(run, metadata);
        Ok(())
    }

    /// A place of at most `most` blocks at the end of a free run of a group: of the last run with
    /// `most` blocks, else of the longest run if it has `least` blocks. The caller holds the tree
    /// lock.
    pub(crate) async fn last_free_run(
        &self,
        group: GroupNo,
        most: u32,
        least: u32,
    ) -> Result<Option<Run>> {
        let bits = self.bits(group, BitmapKind::Blocks).await?;
        let runs = self.allowed(group, &bits, 0..self.geometry.blocks_in(group));
        let best = runs.max_by_key(|run| run.blocks.min(most));
        Ok(best.filter(|run| run.blocks >= least.max(1)).map(|run| {
            let blocks = run.blocks.min(most);
            let start = BlockNo(run.range().end - u64::from(blocks));
            Run { start, blocks }
        }))
    }

    /// The free runs of a group with at least so many blocks, in order. The caller holds the tree
    /// lock.
    pub(crate) async fn free_runs(&self, group: GroupNo, least: u32) -> Result<Vec<Run>> {
        if self.group(group, |group| group.free_blocks()) < least {
            return Ok(Vec::new());
        }
        let bits = self.bits(group, BitmapKind::Blocks).await?;
        let runs = self.allowed(group, &bits, 0..self.geometry.blocks_in(group));
        Ok(runs.filter(|run| run.blocks >= least).collect())
    }

    /// Searches the group of `goal`, then those behind it that may have a run that is long enough,
    /// then any with free blocks. Each look may read a bitmap: after [`LOOKS_MOST`] looks the
    /// longest run found so far is taken.
    async fn pick(&self, goal: BlockNo, most: u32) -> Result<Run> {
        let goal = if goal.0 < self.geometry.blocks { goal } else { BlockNo(0) };
        let (first, offset) = self.geometry.group_of(goal);
        let wanted = most.min(GOOD_ENOUGH);
        let mut search = Search { wanted, best: None, looks: 0 };
        let blocks = self.geometry.blocks_in(first);
        // The part before the goal comes last.
        self.look_at(&mut search, first, offset..blocks).await?;
        for least in [wanted, 1] {
            let groups = self.geometry.groups;
            for group in (1..groups).map(|step| GroupNo((first.0 + step) % groups)) {
                let free = self.group(group, |group| group.free_blocks());
                if search.is_over() {
                    break;
                }
                // Groups with more free blocks were looked at before.
                if free >= least && (least == wanted || free < wanted) {
                    self.look_at(&mut search, group, 0..self.geometry.blocks_in(group)).await?;
                }
            }
        }
        if !search.is_over() {
            self.look_at(&mut search, first, 0..offset).await?;
        }
        search.best.map(|run| Run { blocks: run.blocks.min(most), ..run }).ok_or(Error::NoSpace)
    }

    async fn look_at(&self, search: &mut Search, group: GroupNo, range: Range<u32>) -> Result<()> {
        if range.is_empty() || self.group(group, |group| group.free_blocks()) == 0 {
            return Ok(());
        }
        search.looks += 1;
        let bits = self.bits(group, BitmapKind::Blocks).await?;
        for run in self.allowed(group, &bits, range) {
            let longest = search.best.is_none_or(|best| best.blocks < run.blocks);
            if longest {
                search.best = Some(run);
            }
            if run.blocks >= search.wanted {
                break;
            }
        }
        Ok(())
    }

    /// The runs of a group that may be picked, in order.
    fn allowed(&self, group: GroupNo, bits: &[u8], range: Range<u32>) -> impl Iterator<Item = Run> {
        let base = self.geometry.first_block(group).0;
        let free = bitmap::free_runs(bits, range);
        free.flat_map(move |run| {
            let mut rest = base + u64::from(run.start)..base + u64::from(run.end);
            std::iter::from_fn(move || {
                let allowed = self.space.first_allowed(rest.clone())?;
                rest.start = allowed.end;
                let blocks = low32(allowed.end - allowed.start);
                Some(Run { start: BlockNo(allowed.start), blocks })
            })
        })
    }
}
