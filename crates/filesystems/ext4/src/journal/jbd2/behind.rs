//! What lies behind a place where a log is not whole: nothing that counts, or proof of damage.
//!
//! A transaction is written when the one before it is durable, and its commit block when all its
//! other blocks are. Numbers of transactions only grow. So behind a transaction that a crash tore
//! there is no commit block of it, and no block of a later one. If there is one, the transaction
//! was durable, and is damaged.

use manylogs_plant::{Bug, is};

use super::place::LogPlace;
use super::replay::Journalled;
use super::scan::{Contents, Found, Scan};
use super::{LARGEST_MOST, needed};
use crate::error::Result;
use crate::ondisk::jbd2::{self, BlockKind, Format, Tid};
use crate::units::{BLOCK_BYTES, Timestamp};

impl LogPlace {
    /// A number for the next transaction that no block of the log can have, and none before it, if
    /// `tid` is expected where the log ends.
    pub(super) const fn beyond(&self, tid: Tid) -> Tid {
        Tid(tid.0.wrapping_add(self.blocks()).wrapping_add(2))
    }
}

impl Journalled {
    /// The number of the next transaction of a log that is empty. If another program emptied it,
    /// its replay may have ended at damage: later transactions may lie in the log then, which must
    /// not be taken for what was written behind ours.
    pub(crate) fn next_if_empty(&self) -> Tid {
        let next = self.superblock.sequence();
        if self.superblock.is_emptied_here() {
            return next;
        }
        self.place.beyond(next)
    }
}

/// A place of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// The transaction that is expected there.
    pub(super) tid: Tid,
    /// The block of the journal.
    pub(super) at: u32,
    /// How many blocks of the log were not looked at yet.
    pub(super) left: u32,
}

impl Spot {
    /// The place behind a transaction.
    pub(super) const fn behind(self, found: &Found, next: Tid) -> Self {
        Self { tid: next, at: found.behind, left: self.left.saturating_sub(found.blocks) }
    }
}

/// Proof that a transaction that is not whole was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// What lies behind it is newer.
    Newer,
    /// What lies behind it is older than what lies before: somebody else's replay ended at some
    /// damage earlier, and the log was used from there on.
    Older,
}

/// A transaction that was durable and is damaged.
pub(super) struct Damaged {
    /// What is whole of it.
    pub(super) found: Found,
    /// Blocks of the journal of which nothing says what they held: the first of each gap.
    pub(super) unknown: Vec<u32>,
    /// The next transaction of which there is a whole block, or might be.
    pub(super) next: Tid,
}

impl Scan<'_> {
    /// Looks for proof that the transaction at `spot`, which is not whole, was durable, in the next
    /// `within` blocks; the transaction before it was closed at `last`.
    ///
    /// Blocks without checksums prove little: another file system may have left them. Of these only
    /// a commit block counts that was written after the last transaction of this log.
    ///
    /// # Errors
    /// Those of the device, unless its medium is bad.
    pub(super) async fn proof(
        &self,
        spot: Spot,
        within: u32,
        last: Option<Timestamp>,
    ) -> Result<Option<Proof>> {
        let (mut at, mut left, mut is_proven) = (spot.at, within.min(spot.left), false);
        while left > 0 {
            let (run, blocks) = self.read_run(at, left).await?;
            for number in 0..run.blocks {
                let block = match &blocks {
                    Some(all) => {
                        let from = number as usize * BLOCK_BYTES;
                        all.slice(from..from + BLOCK_BYTES)
                    }
                    None => match self.read_if_medium(at + number).await? {
                        Some(block) => block,
                        None => continue,
                    },
                };
                let Some(kind) = self.proves(&block, spot.tid, last) else { continue };
                is_proven = true;
                if kind == BlockKind::Commit {
                    let closed_at = Format::closed_at(&block);
                    let is_older = last.is_some_and(|last| closed_at < last);
                    return Ok(Some(if is_older { Proof::Older } else { Proof::Newer }));
                }
            }
            left -= run.blocks;
            at = self.place.after(at + run.blocks - 1);
        }
        Ok(is_proven.then_some(Proof::Newer))
    }

    /// The kind of a block that proves that transaction `tid` was durable.
    fn proves(&self, block: &[u8], tid: Tid, last: Option<Timestamp>) -> Option<BlockKind> {
        let (kind, of) = self.own(block)?;
        let proves = match self.distance(tid, of)? {
            0 => kind == BlockKind::Commit && !self.commits_early,
            _ => true,
        };
        let is_ours = self.format.has_checksums()
            || kind == BlockKind::Commit
                && last.is_some_and(|last| Format::closed_at(block) >= last);
        (proves && is_ours && !is(Bug::LazyDamageIsTail)).then_some(kind)
    }

    /// How many transactions `of` is behind `tid`; `None` if the log cannot have so many.
    fn distance(&self, tid: Tid, of: Tid) -> Option<u32> {
        Some(of.0.wrapping_sub(tid.0)).filter(|distance| *distance <= self.place.blocks())
    }

    /// Reads what is whole of the transaction at `spot`, which was durable; `None` if the log ends
    /// before it does.
    ///
    /// # Errors
    /// As [`Scan::transaction`].
    pub(super) async fn damaged(&self, spot: Spot) -> Result<Option<Damaged>> {
        let (tid, mut unknown) = (spot.tid, Vec::new());
        let mut found = Found { behind: spot.at, ..Found::default() };
        // The blocks since the last whole one of this transaction.
        let mut gap: Option<(u32, u32)> = None;
        while found.blocks < spot.left {
            let here = found.behind;
            let block = self.read_if_readable(here).await?.unwrap_or_default();
            let own = if block.is_empty() { None } else { self.own(&block) };
            match own.filter(|(_, of)| self.distance(tid, *of).is_some()) {
                Some((kind, of)) if of == tid => {
                    unknown.extend(gap.take().map(|(first, _)| first));
                    let fits = self.take(kind, &block, spot.left, Contents::Compared, &mut found);
                    if !fits.await? {
                        return Ok(None);
                    }
                    if kind == BlockKind::Commit {
                        self.check(&found)?;
                        return Ok(Some(Damaged { found, unknown, next: tid.next() }));
                    }
                }
                Some((_, of)) => {
                    // The block before the next transaction is the commit block of this one. If
                    // only that one is not whole, it is all that is missing.
                    let is_commit = matches!(gap, Some((_, 1)))
                        && of == tid.next()
                        && self.format.has_checksums();
                    if !is_commit {
                        unknown.push(gap.map_or(here, |(first, _)| first));
                    }
                    self.check(&found)?;
                    return Ok(Some(Damaged { found, unknown, next: of }));
                }
                None => {
                    gap = Some(gap.map_or((here, 1), |(first, blocks)| (first, blocks + 1)));
                    self.step(&mut found);
                }
            }
        }
        Ok(None)
    }

    /// Whether the transaction at `spot` has a commit block, though a block of its own before that
    /// is not whole. Here headers alone count, as in e2fsck and in the kernel: if the UUID of the
    /// journal has changed no checksum matches any more, that of the commit block included. A
    /// commit block that is torn alone proves nothing.
    ///
    /// # Errors
    /// Those of the device.
    async fn is_ended(&self, spot: Spot, last: Option<Timestamp>) -> Result<bool> {
        if !self.format.has_checksums() || self.commits_early {
            return Ok(false);
        }
        let (mut here, mut is_damaged) = (Found { behind: spot.at, ..Found::default() }, false);
        while here.blocks < spot.left {
            let Some(block) = self.read_if_medium(here.behind).await? else { return Ok(false) };
            let header = jbd2::header(&block).filter(|(_, of)| *of == spot.tid);
            let skipped = match header {
                Some((BlockKind::Commit, _)) => {
                    let is_newer = |last: Timestamp| Format::closed_at(&block) >= last;
                    return Ok(is_damaged && last.is_none_or(is_newer));
                }
                Some((BlockKind::Descriptor, _)) => self.format.tags_of(&block).len(),
                Some((BlockKind::Revoke, _)) => 0,
                None => return Ok(false),
            };
            is_damaged |= self.own(&block).is_none();
            (0..=skipped).for_each(|_| self.step(&mut here));
        }
        Ok(false)
    }

    /// As [`Scan::proof`], as far as it can lie, and by headers where no checksum matches. This
    /// crate alone goes on behind a transaction that says that it is of this crate (`is_ours`), and
    /// it makes no large ones. No program makes transactions of more than half of the log.
    ///
    /// # Errors
    /// As [`Scan::proof`].
    pub(super) async fn proof_for(
        &self,
        spot: Spot,
        last: Option<Timestamp>,
        is_ours: bool,
    ) -> Result<Option<Proof>> {
        if self.is_ended(spot, last).await? && !is(Bug::LazyDamageIsTail) {
            return Ok(Some(Proof::Newer));
        }
        let half = self.place.blocks() / 2;
        let ours = needed(self.place, self.format, LARGEST_MOST);
        let ours = u32::try_from(ours).unwrap_or(u32::MAX);
        self.proof(spot, if is_ours { ours } else { half }, last).await
    }
}
