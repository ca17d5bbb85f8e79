//! Reading what is live in a log before it is needed.

use std::cell::RefCell;
use std::collections::BTreeSet;

use manylogs_block::IoResult;

use super::scan::{Contents, Scan};
use super::{InLog, Jbd2Sink};
use crate::error::Error;
use crate::journal::scrub::Looked;
use crate::journal::sink::{CommitSink, LogCopy};
use crate::ondisk::jbd2::Tid;
use crate::units::BlockNo;

/// Of so many blocks of a log one is looked at at a time, but 4 MiB at least, and 16 MiB at most:
/// whoever waits for room waits for the end of a part.
const PART: u32 = 64;
const PART_LEAST: u32 = 1024;
const PART_MOST: u32 = 4096;
/// Copies that are read at a time: their contents are in memory.
const AT_ONCE: usize = 512;

impl Jbd2Sink {
    /// See [`CommitSink::look`].
    pub(super) async fn look_at(&self, after: Option<Tid>) -> IoResult<Option<Looked>> {
        // No room of the part is given back meanwhile, so that nobody writes there.
        let _alone = self.checkpointing.take().await;
        let part = self.part_after(after);
        let Some((first, newest)) = part.first().zip(part.last()).map(|(a, b)| (a.tid, b.tid))
        else {
            return Ok(None);
        };
        let torn = self.torn(&part).await?;
        let copies = self.live_between(first, newest);
        let mut damaged = Vec::new();
        for some in copies.chunks(AT_ONCE) {
            let read = self.read_each(some).await?;
            let whole: BTreeSet<BlockNo> = read.into_iter().map(|(home, _)| home).collect();
            let is_bad = |(home, copy): &&(BlockNo, LogCopy)| {
                self.is_newest(*home, copy) && !whole.contains(home)
            };
            damaged.extend(some.iter().filter(is_bad));
        }
        Ok(Some(Looked { newest, live: copies.len() as u64, damaged, torn }))
    }

    /// The durable transactions behind `after` that make a part of the log; all at the beginning
    /// if there is none.
    fn part_after(&self, after: Option<Tid>) -> Vec<InLog> {
        let least = (self.place.blocks() / PART).clamp(PART_LEAST, PART_MOST);
        let state = self.state.borrow();
        let Some(durable) = state.durable else { return Vec::new() };
        let is_behind = |it: &&InLog| after.is_none_or(|after| !after.is_at_least(it.tid));
        let (mut part, mut blocks) = (Vec::new(), 0);
        for it in state.transactions.iter().filter(is_behind) {
            if blocks >= least || !durable.is_at_least(it.tid) {
                break;
            }
            blocks += it.blocks;
            part.push(*it);
        }
        part
    }

    /// The live copies of these transactions, in the order of the log.
    fn live_between(&self, first: Tid, newest: Tid) -> Vec<(BlockNo, LogCopy)> {
        let state = self.state.borrow();
        let live = state.copies.live_up_to(newest).filter(|(_, copy)| copy.tid.is_at_least(first));
        let mut found: Vec<_> = live.collect();
        found.sort_unstable_by_key(|(_, copy)| (copy.tid.0.wrapping_sub(first.0), copy.at));
        found.into_iter().map(|(home, copy)| (home, self.log_copy(&copy))).collect()
    }

    /// The newest of these transactions of which a block of the journal's own is damaged: a replay
    /// by a kernel would end there.
    async fn torn(&self, part: &[InLog]) -> IoResult<Option<Tid>> {
        let scan = Scan {
            device: &self.device,
            place: &self.place,
            format: self.format,
            blocks: u64::MAX,
            commits_early: false,
            gives_up: true,
            window: RefCell::default(),
        };
        let mut torn = None;
        for it in part {
            match scan.transaction(it.tid, it.start, it.blocks, Contents::Skipped).await {
                Ok(Some(_)) => {}
                Err(Error::Io(error)) => return Err(error),
                Ok(None) | Err(_) => torn = Some(it.tid),
            }
        }
        Ok(torn)
    }
}
