//! The mapping table in non-volatile RAM (the Manylogs paper, section III-E): it holds the headers
//! of records, and the logs hold payload only.
//!
//! A half of the memory begins with a snapshot of the table; a journal of record headers follows.
//! When the half is full it is replayed, as recovery would do it. The result becomes the snapshot
//! of the other half. So there is only one way from bytes to a table.

mod keep;

use std::rc::Rc;

use crate::{DataSequence, Floors, Log, Record, VolumeId};
use manylogs_block::{IoError, Nvram, to_usize};

use crate::NvramError;
use crate::ondisk::nvram::{
    Entry, Journal, Selector, encode_entry, half_len, read_selector, selector_at, size_for,
};
use crate::ondisk::snapshot::{decode, encode};
use crate::store::Logs;
use crate::store::Room;
use crate::store::Versions;
use manylogs_plant::{self as plant, Bug};

/// A byte of the journal adds at most this many to the next snapshot. An entry of 32 bytes and its
/// share of the record become an extent; the entry may also split a second extent and change the
/// differences of a third.
const GROWTH: u64 = 3;
/// Bytes that a snapshot needs at most for a log without content.
const LOG_BYTES: usize = 48;
/// Number of records of the largest size for which there is always room.
const RECORDS_LEAST: usize = 8;
/// Bytes that are always left for a floor.
const FLOOR_BYTES: u64 = 64;
/// Bytes wiped at a time.
const WIPE: usize = 1 << 16;
/// Reason why a volume is read-only.
const FAILED: &str = "the table's non-volatile RAM failed";

/// The table's memory and how far it is filled.
#[derive(Debug)]
pub struct NvTable {
    nvram: Rc<dyn Nvram>,
    selector: Selector,
    /// The slot that holds the newest selector.
    slot: usize,
    /// Where in the half the next entry goes.
    tail: usize,
    /// End of the persisted part of the half.
    durable: usize,
    /// Bytes that records under way will need in the journal.
    in_flight: u64,
    /// The snapshot takes more than half of the room: a checkpoint should begin.
    crowded: bool,
    /// No more is stored, because earlier stores may not have become durable.
    failed: bool,
    rewrites: u64,
}

/// Content of the memory.
#[derive(Debug)]
pub struct Replayed {
    /// Versions that the memory describes.
    pub versions: Versions,
    /// Entries below it are dead.
    pub floor: DataSequence,
    /// Records in the journal.
    pub records: u64,
    /// Where in the half the journal ends.
    end: usize,
}

/// Least number of bytes for the table of a volume with these logs.
pub fn least_size(logs: &Logs, largest: Room) -> usize {
    let records = RECORDS_LEAST * to_usize(GROWTH * largest.apart_bytes);
    size_for((logs.count() * LOG_BYTES + records + 1024) / 7 * 8)
}

/// Wipes the memory and begins the table of a volume in which nothing is logged.
pub fn create(
    nvram: Rc<dyn Nvram>,
    volume: VolumeId,
    logs: &Logs,
    largest: Room,
    floor: DataSequence,
    incarnation: u32,
) -> Result<NvTable, NvramError> {
    let (size, need) = (nvram.size(), least_size(logs, largest));
    if size < need {
        return Err(NvramError::TooSmall { have: size, need });
    }
    // Entries of an earlier table must not count in this one.
    let zeroes = vec![0; WIPE];
    for at in (0..size).step_by(WIPE) {
        nvram.store(at, &zeroes[..WIPE.min(size - at)]);
    }
    nvram.persist(0..size).map_err(|_| NvramError::Damaged(FAILED))?;
    let selector = Selector {
        volume,
        generation: 0,
        first_generation: 0,
        size,
        half: 1,
        snapshot_bytes: 0,
        snapshot_checksum: 0,
        floor,
        incarnation,
    };
    let mut table = NvTable::new(nvram, selector, 1, 0);
    let empty = encode(0, std::iter::empty(), std::iter::empty());
    table.begin(&empty, floor, incarnation)?;
    Ok(table)
}

/// Makes the stores of a killed process durable: recovery must not believe them and lose them
/// later.
pub fn settle(memory: &dyn Nvram) -> Result<(), NvramError> {
    if plant::is(Bug::NvramNotPersistedAtOpen) {
        return Ok(());
    }
    memory.persist(0..memory.size()).map_err(|_| NvramError::Damaged(FAILED))
}

/// Reads the table of a volume that was opened `incarnation` times, without changes. The versions
/// found are booked in `logs`.
pub fn look(
    memory: Rc<dyn Nvram>,
    volume: VolumeId,
    logs: Logs,
    incarnation: u32,
) -> Result<(NvTable, Replayed), NvramError> {
    let (selector, slot) = read_selector(&*memory, volume)?;
    let half = read_half(&*memory, &selector, selector.half_len());
    let replayed = replay(&selector, &half, logs)?;
    // The memory learns of an opening before the disk does. In between, nothing is logged.
    let ahead = selector.incarnation == incarnation + 1
        && selector.generation == selector.first_generation
        && replayed.end == selector.journal();
    if selector.incarnation != incarnation && !ahead {
        return Err(NvramError::Stale { table: selector.incarnation, volume: incarnation });
    }
    let end = replayed.end;
    Ok((NvTable::new(memory, selector, slot, end), replayed))
}

fn read_half(nvram: &dyn Nvram, selector: &Selector, len: usize) -> Vec<u8> {
    let mut half = vec![0; len];
    nvram.read(selector.start(), &mut half);
    half
}

fn replay(selector: &Selector, half: &[u8], logs: Logs) -> Result<Replayed, NvramError> {
    let snapshot = &half[..selector.snapshot_bytes];
    let snapshot = (crc32c::crc32c(snapshot) == selector.snapshot_checksum)
        .then(|| decode(snapshot))
        .flatten()
        .ok_or(NvramError::Damaged("its snapshot is not whole"))?;
    let mut replayed =
        Replayed { versions: Versions::new(logs), floor: selector.floor, records: 0, end: 0 };
    replayed.versions.take_snapshot(snapshot, |_| true);
    let mut journal = Journal::new(selector, half);
    while let Some(entry) = journal.next()? {
        match entry {
            Entry::Floor(floor) => replayed.floor = replayed.floor.max(floor),
            Entry::Record(bytes) => {
                let record = Record::decode_apart(&bytes)
                    .map_err(|_| NvramError::Damaged("a record is impossible"))?;
                if !follows(&record, selector.volume, &mut replayed.versions.logs) {
                    return Err(NvramError::Damaged("a record does not follow the one before"));
                }
                replayed.floor = replayed.floor.max(record.header.floor);
                let (log, floors) = (record.header.log, Floors::both(replayed.floor));
                replayed.versions.take_record(log, &record, floors, true);
                replayed.records += 1;
            }
        }
    }
    if !replayed.versions.are_of_present_epochs(replayed.floor) {
        return Err(NvramError::Damaged("a version is in a log that has begun anew since"));
    }
    replayed.end = journal.at;
    Ok(replayed)
}

/// Whether the record is the next of its log, or begins its next epoch.
fn follows(record: &Record, volume: VolumeId, logs: &mut Logs) -> bool {
    let header = &record.header;
    if header.volume != volume || header.log.0 as usize >= logs.count() {
        return false;
    }
    let begins = header.epoch == header.record_sequence.epoch();
    let offset = u64::from(header.offset.0);
    let (tail, last) = match logs.get(header.log) {
        Some(log) if log.epoch() == header.epoch => (log.used().0, log.last_checksum()),
        _ if begins => (0, 0),
        _ => return false,
    };
    let end = offset + record.record_sectors.0;
    offset == tail && header.previous_checksum == last && end <= logs.region(header.log).len.0
}

impl NvTable {
    fn new(nvram: Rc<dyn Nvram>, selector: Selector, slot: usize, tail: usize) -> Self {
        Self {
            nvram,
            selector,
            slot,
            tail,
            durable: tail,
            in_flight: 0,
            crowded: false,
            failed: false,
            rewrites: 0,
        }
    }

    /// Bytes of a half.
    pub fn half_len(&self) -> u64 {
        half_len(self.selector.size) as u64
    }

    /// Bytes of the half that are taken.
    pub const fn used(&self) -> u64 {
        self.tail as u64
    }

    /// Number of times that a half was replaced by a snapshot.
    pub const fn rewrites(&self) -> u64 {
        self.rewrites
    }

    /// Whether the snapshot is so large that a checkpoint should begin.
    pub const fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whether the table surely fits once all waiting entries and `needed` bytes are durable. An
    /// eighth of the half is spared for what a checkpoint needs, unless `spared` is set.
    fn fits(&self, needed: u64, spared: bool) -> bool {
        let half = self.half_len() - FLOOR_BYTES;
        let limit = if spared { half } else { half / 8 * 7 };
        let journal = (self.tail - self.selector.journal()) as u64;
        let bound = journal + self.in_flight + needed;
        self.selector.journal() as u64 + GROWTH * bound <= limit
    }

    /// Whether a rewrite may gain much room.
    fn is_worth_rewriting(&self) -> bool {
        (self.tail - self.selector.journal()) as u64 >= self.half_len() / 16
    }

    /// Adds an entry; false if it does not fit.
    fn push(&mut self, entry: &Entry) -> bool {
        let bytes = encode_entry(&self.selector, self.durable, entry);
        if self.failed || self.tail + bytes.len() > self.selector.half_len() {
            return false;
        }
        self.nvram.store(self.selector.start() + self.tail, &bytes);
        self.tail += bytes.len();
        true
    }

    fn persist(&mut self) -> Result<(), IoError> {
        let start = self.selector.start();
        if !plant::is(Bug::NvramNotPersisted) {
            self.nvram.persist(start + self.durable..start + self.tail)?;
        }
        self.durable = self.tail;
        Ok(())
    }

    /// A snapshot of the half's content, including supersedes that recovery may still need.
    fn replayed_snapshot(&self, blank: Logs) -> Result<(Vec<u8>, DataSequence), NvramError> {
        let half = read_half(&*self.nvram, &self.selector, self.tail);
        let Replayed { mut versions, floor, .. } = replay(&self.selector, &half, blank)?;
        versions.book_live(Floors::both(floor));
        if plant::is(Bug::NvramDropsSupersedes) {
            for id in versions.logs.ids() {
                versions.logs.adjust(id, Log::clear_supersedes);
            }
        }
        Ok((encode(0, versions.logs.iter(), versions.logged(Floors::both(floor))), floor))
    }

    /// Begins an incarnation with a snapshot of the table that was just read.
    pub fn begin(
        &mut self,
        snapshot: &[u8],
        floor: DataSequence,
        incarnation: u32,
    ) -> Result<(), NvramError> {
        self.selector.incarnation = incarnation;
        self.selector.first_generation = self.selector.generation + 1;
        match self.install(snapshot, floor) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let need = size_for(snapshot.len() + snapshot.len() / 2);
                Err(NvramError::TooSmall { have: self.selector.size, need })
            }
            Err(_) => Err(NvramError::Damaged(FAILED)),
        }
    }

    /// Makes `snapshot` the table, in the other half; false if it does not fit there.
    fn install(&mut self, snapshot: &[u8], floor: DataSequence) -> Result<bool, IoError> {
        if snapshot.len() as u64 + FLOOR_BYTES > self.half_len() {
            return Ok(false);
        }
        let half = 1 - self.selector.half;
        let next = Selector {
            generation: self.selector.generation + 1,
            half,
            snapshot_bytes: snapshot.len(),
            snapshot_checksum: crc32c::crc32c(snapshot),
            floor,
            ..self.selector
        };
        let start = next.start();
        if plant::is(Bug::NvramSelectorFirst) {
            self.select(next)?;
        }
        self.nvram.store(start, snapshot);
        self.nvram.persist(start..start + snapshot.len())?;
        self.select(next)?;
        (self.tail, self.durable) = (next.journal(), next.journal());
        self.crowded = next.journal() as u64 > self.half_len() / 2;
        self.rewrites += 1;
        Ok(true)
    }

    /// Writes both copies of the selector; first the one that is not the newest.
    fn select(&mut self, next: Selector) -> Result<(), IoError> {
        let bytes = next.encode();
        let slots = [1 - self.slot, self.slot];
        for slot in slots {
            self.nvram.store(selector_at(slot).start, &bytes);
            if !plant::is(Bug::NvramTornSelector) {
                self.nvram.persist(selector_at(slot))?;
            }
        }
        if plant::is(Bug::NvramTornSelector) {
            self.nvram.persist(selector_at(0).start..selector_at(1).end)?;
        }
        self.slot = slots[0];
        self.selector = next;
        Ok(())
    }
}
