//! Saving the map of a log that keeps its content, so that the next opening need not read all
//! descriptors.
//!
//! The map goes into blocks of the log that no transaction takes, just before the oldest one, which
//! the head reaches last. It is never needed: an opening that does not find it whole, or finds that
//! it is of something else, reads the descriptors ([`super::restore`]).
//!
//! Commits go on while it is written. It says up to which transaction it is whole; what is newer is
//! found in the log. A block that got a newer copy meanwhile may be missing: the newer copy is one
//! of those.

use manylogs_block::{IoResult, Request, all_done, narrow};
use manylogs_plant::{Bug, is};

use super::place::write_blocks;
use super::{InLog, Jbd2Sink, State};
use crate::journal::sink::CommitSink;
use crate::memory::Part;
use crate::ondisk::jbd2::{RECORDS, Record, SavedMap, Tid, saved_block};
use crate::units::{BLOCK_BYTES, BlockNo};

#[cfg(test)]
mod tests;

/// Blocks of the map written at a time: 1 MiB.
pub(super) const AT_ONCE: usize = 256;
/// The map is saved again after so many times its own blocks of the log: 128 MiB for a million
/// blocks. An opening after a crash looks through so much.
const SAVED_EVERY: u32 = 8;
/// But not after less than 16 MiB, nor more than 256 MiB.
const SAVED_LEAST: u32 = 1 << 12;
const SAVED_MOST: u32 = 1 << 16;

/// How far a map is written.
struct Cursor {
    /// The newest transaction in it.
    newest: Option<Tid>,
    transactions: usize,
    /// The block whose copy, or one behind it, is next; `None` behind the last.
    home: Option<BlockNo>,
    /// Most records that are taken at a time.
    most: usize,
}

impl InLog {
    fn record(&self) -> Record {
        let nanos = u64::from(self.closed_at.nanos);
        [u64::from(self.blocks) << 32 | nanos, self.closed_at.seconds.cast_unsigned()]
    }
}

impl State {
    /// How many of the transactions a map has that is saved now.
    fn saveable(&self) -> usize {
        if is(Bug::LazySavedAhead) {
            return self.transactions.len();
        }
        let Some(durable) = self.durable else { return 0 };
        self.transactions.partition_point(|it| durable.is_at_least(it.tid))
    }
}

impl Jbd2Sink {
    /// Whether so much was logged since the map was saved that it should be saved again.
    pub(super) fn has_much_unsaved(&self) -> bool {
        let state = self.state.borrow();
        let blocks = SavedMap::blocks_of((state.transactions.len() + state.copies.len()) as u64);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let due = blocks.saturating_mul(SAVED_EVERY).clamp(SAVED_LEAST, SAVED_MOST);
        self.stays() && state.unsaved >= due
    }

    /// Saves the map durably, if the log has room for it. `is_left` if nothing will be committed
    /// before the next opening. So many blocks of it are written at a time.
    pub(super) async fn save(&self, is_left: bool, at_once: usize) -> IoResult<()> {
        // The tail stays where it is, and the superblock as it is.
        let _alone = self.checkpointing.take().await;
        if self.is_saved() {
            return if is_left { self.note_left(true).await } else { Ok(()) };
        }
        let Some(mut saved) = self.planned() else { return Ok(()) };
        self.state.borrow_mut().unsaved = 0;
        self.write_map(&mut saved, at_once).await?;
        self.device.submit(Request::Flush).await?;
        if !self.is_free(saved.start) {
            return Ok(());
        }
        self.note(SavedMap { is_left, ..saved }).await
    }

    /// Writes the note of a map that is durable.
    async fn note(&self, saved: SavedMap) -> IoResult<()> {
        {
            let state = &mut *self.state.borrow_mut();
            state.superblock.set_saved(Some(&saved));
            state.generation = saved.generation;
        }
        self.put_superblock().await
    }

    /// Notes durably whether nothing will be committed before the next opening, if there is a saved
    /// map.
    pub(super) async fn note_left(&self, is_left: bool) -> IoResult<()> {
        let saved = self.state.borrow().superblock.saved();
        let Some(saved) = saved.filter(|saved| saved.is_left != is_left) else { return Ok(()) };
        self.note(SavedMap { is_left, ..saved }).await
    }

    /// Whether the map that is saved is that of now.
    fn is_saved(&self) -> bool {
        let state = self.state.borrow();
        state.superblock.saved().is_some_and(|saved| saved.next() == state.next)
    }

    /// The map that is saved next, and where: before the oldest transaction, or before the map that
    /// is there already. `None` if there is no room.
    fn planned(&self) -> Option<SavedMap> {
        let state = self.state.borrow();
        let oldest = state.transactions.front();
        let (first, first_at) =
            oldest.map_or((state.next, state.head), |oldest| (oldest.tid, oldest.start));
        let transactions = state.saveable();
        let blocks = SavedMap::blocks_of((transactions + state.copies.len()) as u64);
        let blocks = u32::try_from(blocks).ok()?;
        let before = state.superblock.saved();
        let free = self.place.blocks() - state.used;
        let mut from = free.checked_sub(blocks)?;
        if let Some(old) = &before {
            let old_from = self.place.distance(state.head, old.start);
            let is_apart = from >= old_from.saturating_add(narrow(old.blocks()));
            if old_from < free && !is_apart {
                from = old_from.checked_sub(blocks)?;
            }
        }
        Some(SavedMap {
            generation: state.generation.wrapping_add(1),
            is_left: false,
            start: self.place.ahead(state.head, from),
            first,
            first_at,
            transactions: narrow(transactions),
            copies: 0,
        })
    }

    /// Whether no transaction takes a block of the log from `at` to the oldest transaction.
    fn is_free(&self, at: u32) -> bool {
        let state = self.state.borrow();
        let is_free = self.place.distance(state.head, at) <= self.place.blocks() - state.used;
        is_free || is(Bug::LazyMapOverCommits)
    }

    /// Writes the blocks of a map, and counts its copies.
    async fn write_map(&self, saved: &mut SavedMap, at_once: usize) -> IoResult<()> {
        let seed = self.state.borrow().superblock.saved_seed(saved);
        let newest = (saved.transactions > 0).then(|| Tid(saved.next().0.wrapping_sub(1)));
        let most = at_once * RECORDS;
        let mut cursor = Cursor { newest, transactions: 0, home: Some(BlockNo(0)), most };
        let (mut rest, mut number) = (Vec::new(), 0);
        loop {
            let is_last = self.more(saved, &mut cursor, &mut rest);
            let whole = if is_last { rest.len() } else { rest.len() / RECORDS * RECORDS };
            let _held = self.memory.hold(Part::Journal, (2 * at_once * BLOCK_BYTES) as u64);
            let now: Vec<Record> = rest.drain(..whole).collect();
            let blocks = now.chunks(RECORDS).zip(number..).map(|(records, number)| {
                let at = self.place.ahead(saved.start, number);
                (self.place.home(at), saved_block(seed, number, records).into())
            });
            {
                let _alone = self.mapping.take().await;
                // Commits go on, and may have taken the room since: then the map is not believed.
                if !self.is_free(saved.start) {
                    return Ok(());
                }
                all_done(write_blocks(&self.device, blocks)).await?;
            }
            number += narrow::<_, u32>(now.len().div_ceil(RECORDS));
            if is_last {
                return Ok(());
            }
        }
    }

    /// Adds the next records of a map to `records`. Returns whether these are the last.
    fn more(&self, saved: &mut SavedMap, cursor: &mut Cursor, records: &mut Vec<Record>) -> bool {
        let most = cursor.most - records.len();
        let state = self.state.borrow();
        let left = saved.transactions as usize - cursor.transactions;
        if left > 0 {
            let some = state.transactions.range(cursor.transactions..).take(left.min(most));
            records.extend(some.map(InLog::record));
            cursor.transactions += left.min(most);
            return false;
        }
        let (Some(home), Some(newest)) = (cursor.home, cursor.newest) else { return true };
        let some = state.copies.some_from(home, most);
        cursor.home = some.last().map(|(last, _)| BlockNo(last.0 + 1));
        // A newer copy may be in a transaction whose commit block is not written yet.
        let misses = |tid| is(Bug::LazySavedMissesNewest) && tid == newest;
        let is_old = |tid: Tid| newest.is_at_least(tid) && !misses(tid);
        let old = some.into_iter().filter(|(_, copy)| is_old(copy.tid));
        let old: Vec<Record> = old.map(|(home, copy)| copy.record(home)).collect();
        saved.copies += narrow::<_, u32>(old.len());
        records.extend(old);
        cursor.home.is_none()
    }
}
