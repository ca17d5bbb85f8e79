//! Opening a log with the map that was saved ([`super::save`]).
//!
//! A map is believed if each of its blocks is whole and of this map, if the journal's superblock
//! names one of its transactions, or the one behind them, as the oldest, and if the commit blocks
//! of that one and of its newest are in the log as the map has them. Somebody else's replay begins
//! a new log, with other numbers and other times.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{BlockDevice, IoError};
use manylogs_plant::{Bug, is};

use super::copies::{Copies, Copy};
use super::place::LogPlace;
use super::replay::{Journalled, OnLoss, replay};
use super::scan::Scan;
use super::{InLog, Jbd2Sink, open};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::memory::{Memory, Part};
use crate::ondisk::jbd2::{BlockKind, Format, Record, SavedMap, Tid, saved_records};
use crate::units::{BLOCK_BYTES, BlockNo, Timestamp};

/// A map as it was saved, up to what was given back since.
struct Restored {
    transactions: VecDeque<InLog>,
    copies: Copies,
    /// The block behind its newest transaction.
    head: u32,
}

impl InLog {
    /// The transaction `tid` at `start`, of a record.
    fn of(record: Record, tid: Tid, start: u32) -> Self {
        let (blocks, nanos) = (record[0] >> 32, record[0] & u64::from(u32::MAX));
        let closed_at =
            Timestamp { seconds: record[1].cast_signed(), nanos: manylogs_block::narrow(nanos) };
        let blocks = manylogs_block::narrow(blocks);
        Self { tid, start, blocks, closed_at, closed_s: Self::BEFORE_MOUNT }
    }
}

/// Brings home what the log that `journal` describes holds, as [`replay`] does, or by its saved map
/// if descriptors are damaged: that does not need them. Returns the number of the next transaction.
/// The superblock is left as it is: after a crash in between, this is done again.
///
/// # Errors
/// Those of the device, [`Error::JournalLost`] if something is lost, and [`Error::Corrupt`] if a
/// transaction that was durable is not sound.
pub(crate) async fn replay_whole(
    device: &Rc<dyn BlockDevice>,
    journal: &Journalled,
    geometry: &Geometry,
    memory: &Memory,
) -> Result<Tid> {
    let lost = match replay(device, journal, geometry, OnLoss::Refuse).await {
        Ok(replayed) => return Ok(replayed.next),
        Err(error @ (Error::JournalLost(_) | Error::Io(IoError::Medium { .. }))) => error,
        Err(error) => return Err(error),
    };
    let (format, blocks) = (geometry.journal_format(), geometry.blocks);
    let opened = open(device, journal, format, blocks, memory).await?;
    let Some(sink) = opened.filter(Jbd2Sink::has_saved) else { return Err(lost) };
    match sink.write_all_home().await {
        Ok(()) => Ok(sink.place.beyond(sink.next())),
        // A copy is damaged that is the newest.
        Err(error) if error.is_damage() => Err(lost),
        Err(error) => Err(error.into()),
    }
}

impl Jbd2Sink {
    fn has_saved(&self) -> bool {
        self.state.borrow().superblock.saved().is_some()
    }

    /// Takes the saved map, if there is one that can be believed, and returns what the note says of
    /// it. `start` is where the superblock has the oldest transaction. Else the note is forgotten.
    ///
    /// # Errors
    /// Those of the device, unless its medium is bad.
    pub(super) async fn restore(&self, scan: &Scan<'_>, start: u32) -> Result<Option<SavedMap>> {
        let saved = self.state.borrow().superblock.saved();
        if let Some(saved) = &saved {
            self.state.borrow_mut().generation = saved.generation;
        }
        if let Some(saved) = saved
            && let Some(restored) = self.restored(scan, &saved, start).await?
        {
            let state = &mut *self.state.borrow_mut();
            let Restored { transactions, copies, head } = restored;
            state.used = transactions.iter().map(|transaction| transaction.blocks).sum();
            state.durable = transactions.back().map(|transaction| transaction.tid);
            (state.transactions, state.copies) = (transactions, copies);
            (state.head, state.next) = (head, saved.next());
            state.count();
            return Ok(Some(saved));
        }
        self.state.borrow_mut().superblock.set_saved(None);
        Ok(None)
    }

    async fn restored(
        &self,
        scan: &Scan<'_>,
        saved: &SavedMap,
        start: u32,
    ) -> Result<Option<Restored>> {
        let place = scan.place;
        let oldest = self.state.borrow().superblock.sequence();
        let fits = place.contains(saved.start)
            && place.contains(saved.first_at)
            && saved.blocks() <= u64::from(place.blocks())
            && oldest.0.wrapping_sub(saved.first.0) <= saved.transactions;
        if !fits && !is(Bug::LazySavedStale) {
            return Ok(None);
        }
        let _held = self.memory.hold(Part::Journal, saved.blocks() * BLOCK_BYTES as u64);
        let Some(records) = self.records_of(scan, saved).await? else { return Ok(None) };
        let (of_log, of_copies) = records.split_at(saved.transactions as usize);
        let Some((mut transactions, head)) = transactions_of(place, saved, of_log) else {
            return Ok(None);
        };
        let copies = copies_of(place, &transactions, of_copies, oldest);
        let gone = transactions.partition_point(|it| !it.tid.is_at_least(oldest));
        transactions.drain(..gone);
        let begins = transactions.front().map_or(head, |oldest| oldest.start);
        let is_same = begins == start && self.is_in_log(scan, &transactions).await?;
        let is_same = is_same || is(Bug::LazySavedStale);
        Ok(copies.filter(|_| is_same).map(|copies| Restored { transactions, copies, head }))
    }

    /// The records of the map; `None` if a block is not whole, or not of this map.
    async fn records_of(&self, scan: &Scan<'_>, saved: &SavedMap) -> Result<Option<Vec<Record>>> {
        let seed = self.state.borrow().superblock.saved_seed(saved);
        let blocks: u32 = manylogs_block::narrow(saved.blocks());
        let (mut records, mut number) = (Vec::new(), 0);
        while number < blocks {
            let at = scan.place.ahead(saved.start, number);
            let (_, content) = scan.read_run(at, blocks - number).await?;
            let Some(bytes) = content else { return Ok(None) };
            for block in bytes.chunks(BLOCK_BYTES) {
                let Some(some) = saved_records(seed, number, block) else { return Ok(None) };
                records.extend(some);
                number += 1;
            }
        }
        records.truncate(saved.transactions as usize + saved.copies as usize);
        Ok(Some(records))
    }

    /// Whether the oldest and the newest of these transactions are in the log: their commit blocks
    /// say when they were closed.
    async fn is_in_log(&self, scan: &Scan<'_>, all: &VecDeque<InLog>) -> Result<bool> {
        for it in all.front().into_iter().chain(all.back()) {
            let at = scan.place.ahead(it.start, it.blocks.saturating_sub(1));
            let Some(block) = scan.read_if_medium(at).await? else { return Ok(false) };
            let is_it = scan.own(&block) == Some((BlockKind::Commit, it.tid));
            if !is_it || Format::closed_at(&block) != it.closed_at {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The transactions of a map, and the block behind the newest; `None` if they do not fit the log.
fn transactions_of(
    place: &LogPlace,
    saved: &SavedMap,
    records: &[Record],
) -> Option<(VecDeque<InLog>, u32)> {
    let (mut tid, mut at, mut used) = (saved.first, saved.first_at, 0_u64);
    let mut transactions = VecDeque::with_capacity(records.len());
    for record in records {
        let found = InLog::of(*record, tid, at);
        used += u64::from(found.blocks);
        if found.blocks == 0 || used > u64::from(place.blocks()) {
            return None;
        }
        transactions.push_back(found);
        (tid, at) = (tid.next(), place.ahead(at, found.blocks));
    }
    Some((transactions, at))
}

/// The copies of a map in transactions from `oldest` on; `None` if one lies in no transaction.
fn copies_of(
    place: &LogPlace,
    transactions: &VecDeque<InLog>,
    records: &[Record],
    oldest: Tid,
) -> Option<Copies> {
    let mut copies = Copies::default();
    let first_at = transactions.front().map_or(0, |first| first.start);
    for record in records {
        let (home, copy): (BlockNo, Copy) = Copy::of_record(*record);
        if !place.contains(copy.at) {
            return None;
        }
        let offset = place.distance(first_at, copy.at);
        let behind =
            transactions.partition_point(|it| place.distance(first_at, it.start) <= offset);
        let holder = transactions.get(behind.checked_sub(1)?)?;
        if place.distance(holder.start, copy.at) >= holder.blocks {
            return None;
        }
        if holder.tid.is_at_least(oldest) || is(Bug::LazySavedKeepsGone) {
            copies.insert(home, Copy { tid: holder.tid, ..copy }, None);
        }
    }
    Some(copies)
}
