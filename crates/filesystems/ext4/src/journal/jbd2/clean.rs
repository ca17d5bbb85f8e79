//! Which blocks of the oldest part of a log are written anew, and reading them.
//!
//! With Zipf updates of N blocks in a log of J the choice is between two costs: a block that is
//! renewed takes room of the log, so that the lap is shorter, and a block that went home and is
//! written again goes home again. A block that was written twice within a lap is renewed at most
//! twice since, and others once, if there is room for it. At most two fifths of a part are renewed,
//! so that most of its room is always gained, whatever is written.

use std::cmp::Reverse;

use bytes::Bytes;
use manylogs_block::{IoError, IoResult, Request, to_usize};

use super::Jbd2Sink;
use super::checkpoint::unescaped;
use super::copies::Copy;
use super::scan::READ_MOST;
use crate::journal::clean::{Cleaner, OldPart};
use crate::journal::sink::{CommitSink, LogCopy};
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// Most blocks between two that are read together.
const GAP_MOST: u64 = 16;
/// Of so many blocks of a log one is given back at a time, and so many at most, or one of so many
/// of a long log.
const PART: u32 = 16;
const PART_MOST: u32 = 4096;
const PART_OF_LONG: u32 = 128;

impl Jbd2Sink {
    /// How many blocks of the log are given back at a time, at least.
    pub(super) fn part_blocks(&self) -> u32 {
        let blocks = self.place.blocks();
        (blocks / PART).min(PART_MOST.max(blocks / PART_OF_LONG))
    }

    /// The most blocks of a part of `blocks` that are written anew.
    fn renewed_of(&self, blocks: u32) -> usize {
        let blocks = to_usize(blocks.into());
        match self.cleaner.get() {
            Cleaner::Own => blocks * 2 / 5,
            Cleaner::Paper => blocks * 9 / 10,
        }
    }

    /// The most blocks of a part that are written anew.
    pub(super) fn renewed_most(&self) -> usize {
        self.renewed_of(self.part_blocks())
    }

    /// The oldest part of the log; `None` if nothing of it is durable.
    pub(super) fn part(&self) -> Option<OldPart> {
        let newest = self.oldest(self.part_blocks(), |_| true)?;
        let state = self.state.borrow();
        let old = state.transactions.iter().take_while(|it| newest.is_at_least(it.tid));
        let blocks: u32 = old.map(|it| it.blocks).sum();
        let mut chosen: Vec<(BlockNo, Copy)> = state.copies.live_up_to(newest).collect();
        if self.cleaner.get() == Cleaner::Own {
            chosen.retain(|(_, copy)| copy.past.is_hot() || copy.past.is_warm());
            // Those that were written twice come first, and of these those that were renewed less.
            chosen.sort_by_key(|(_, copy)| (Reverse(copy.past.again), copy.past.renewals));
            let hot = chosen.partition_point(|(_, copy)| copy.past.is_hot());
            chosen.truncate(hot + to_usize((blocks / 8).into()));
        }
        chosen.truncate(self.renewed_of(blocks));
        let start = state.transactions.front().map_or(state.head, |oldest| oldest.start);
        chosen.sort_unstable_by_key(|(_, copy)| self.place.distance(start, copy.at));
        let renew = chosen.into_iter().map(|(home, copy)| (home, self.log_copy(&copy))).collect();
        Some(OldPart { newest, renew })
    }

    /// See [`CommitSink::read_copies`]. Neighbours are read together, with what lies between them
    /// if that is little. What cannot be read is left out, and goes home.
    pub(super) async fn read_newest(&self, copies: &[(BlockNo, LogCopy)]) -> Vec<(BlockNo, Bytes)> {
        let mut found = Vec::with_capacity(copies.len());
        for run in runs(copies) {
            found.extend(self.read_run(run).await.unwrap_or_default());
        }
        found
    }

    /// As [`Jbd2Sink::read_newest`], but only copies that are damaged, or that the medium does not
    /// give, are left out: a bad block says nothing of the others that are read with it.
    ///
    /// # Errors
    /// Those of the device, unless its medium is bad.
    pub(super) async fn read_each(
        &self,
        copies: &[(BlockNo, LogCopy)],
    ) -> IoResult<Vec<(BlockNo, Bytes)>> {
        let mut found = Vec::with_capacity(copies.len());
        for run in runs(copies) {
            match self.read_run(run).await {
                Err(IoError::Medium { .. }) => {}
                read => {
                    found.extend(read?);
                    continue;
                }
            }
            for one in run.chunks(1) {
                match self.read_run(one).await {
                    Err(IoError::Medium { .. }) => {}
                    read => found.extend(read?),
                }
            }
        }
        Ok(found)
    }

    /// Reads a run of copies with what lies between them. Those that are outdated or damaged are
    /// left out.
    async fn read_run(&self, run: &[(BlockNo, LogCopy)]) -> IoResult<Vec<(BlockNo, Bytes)>> {
        let Some(((_, first), (_, last))) = run.first().zip(run.last()) else {
            return Ok(Vec::new());
        };
        let blocks = manylogs_block::narrow(last.at.0 - first.at.0 + 1);
        let extent = Run { start: first.at, blocks }.sectors();
        let content = self.device.submit(Request::Read { extent }).await?;
        let bytes = content.to_bytes().ok_or(IoError::Unsupported)?;
        Ok(run.iter().filter_map(|it| self.content_of(it, first.at, &bytes)).collect())
    }

    /// The content of a copy in `bytes`, which were read from `start` on, if it is still the newest
    /// one of its block, and whole.
    fn content_of(
        &self,
        (home, copy): &(BlockNo, LogCopy),
        start: BlockNo,
        bytes: &Bytes,
    ) -> Option<(BlockNo, Bytes)> {
        let from = to_usize(copy.at.0 - start.0) * BLOCK_BYTES;
        // What is kept must not hold the memory of all that was read.
        let block = Bytes::copy_from_slice(&bytes[from..from + BLOCK_BYTES]);
        let is_whole = self.is_newest(*home, copy) && self.is_whole(copy, &block);
        is_whole.then(|| (*home, unescaped(block, copy.escaped)))
    }
}

/// Divides copies into runs that are read together.
fn runs(copies: &[(BlockNo, LogCopy)]) -> impl Iterator<Item = &[(BlockNo, LogCopy)]> {
    let mut rest = copies;
    std::iter::from_fn(move || {
        let (_, first) = rest.first()?;
        let mut last = first.at;
        let together = rest.iter().take_while(|(_, copy)| {
            let is_near = (last.0..=last.0 + GAP_MOST).contains(&copy.at.0);
            last = copy.at;
            is_near && copy.at.0 - first.at.0 < READ_MOST.into()
        });
        let (now, later) = rest.split_at(together.count());
        rest = later;
        Some(now)
    })
}
