//! The recovery scan: finds the records that a log surely holds, and the damaged parts.
//!
//! The work is linear in the length of the log, whatever the log holds: see [`ScanWork`].

mod look_ahead;
mod window;

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Payload, Sectors, narrow};

use manylogs_plant::{self as plant, Bug};

use self::look_ahead::LookAhead;
use self::window::{Window, same};
use crate::{
    DataSequence, Entry, Epoch, LogId, LogOffset, Record, RecordError, RecordSequence, VolumeId,
    units_of,
};

/// The longest physical sector of a drive.
pub const PHYSICAL_MOST: Sectors = Sectors(8);
/// A log that begins with this many zeroes counts as never used. It may instead have lost a first
/// record of that length, but to search every such log would take minutes on a large disk.
pub const BLANK: Sectors = Sectors(512);
/// Longest payload of a record.
pub const RECORD_PAYLOAD_MAX: Sectors = Sectors(4096);
/// Longest record, header included. Behind a damaged record the next one begins within this
/// distance.
pub(crate) const RECORD_SECTORS_MAX: Sectors =
    Sectors(RECORD_PAYLOAD_MAX.0 + crate::record::HEADER_SECTORS_MAX.0);
/// At most 64 records of clients and 64 of moved content are in flight together. So a record whose
/// durable tail lies beyond a given record follows it within this many records.
const PROVEN_WITHIN: u64 = 2 * 64 + 1;
/// Longest distance at which a record that proves a place durable is searched for.
const LOOK_AHEAD_MAX: Sectors = Sectors(PROVEN_WITHIN * RECORD_SECTORS_MAX.0);
/// Payload checksums are computed over at most this many times the length of the log. The records
/// of a volume do not overlap, so each is checked once, or twice if it lies behind a damaged place.
const CHECKED_TIMES: u64 = 4;

/// The records of one log, from its start to the first place where no record follows.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// Records in order. If `damage` names a record, its header is whole and its payload damaged.
    pub records: Vec<Record>,
    /// Why the scan ended; `None` when the log is full.
    pub end: Option<RecordError>,
    /// Places that had been durable, or may have been, and are no longer whole.
    pub damage: Vec<Damage>,
    /// Sectors that the medium could not return.
    pub unreadable: Vec<LogOffset>,
    /// Whether the log begins with sectors without known content: a modelled device keeps none, so
    /// no record can be found.
    pub begins_absent: bool,
    /// Work of the scan.
    pub work: ScanWork,
}

impl Scanned {
    /// Whether a record that the scan found is whole, payload included.
    #[must_use]
    pub fn is_whole(&self, record: &Record) -> bool {
        self.damage.iter().all(|damage| damage.offset != record.header.offset)
    }
}

/// What a scan cost. Let a log have `n` sectors, and a physical sector `p`. Then at most
/// `3 * n / p` headers are decoded, and `4 * n` sectors and one more record are checked. If the
/// device is intact, at most `3 * n` sectors are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanWork {
    /// Places where a record header was looked for.
    pub headers: u64,
    /// Payload whose checksums were compared.
    pub checked: Sectors,
    /// Sectors read in chunks. Each sector of a chunk that fails is read once more, uncounted.
    pub read: Sectors,
}

/// A damaged place in a log that had been durable. Either a later record proves it, or the medium
/// cannot return the content and nothing disproves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First sector.
    pub offset: LogOffset,
    /// Length.
    pub sectors: Sectors,
    /// Whether the header is whole. If it is, the lost blocks are known and reads of them fail. If
    /// not, it is unknown which blocks the record held.
    pub known: bool,
}

/// Describes the log to scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanOf {
    /// The volume.
    pub volume: VolumeId,
    /// The log.
    pub log: LogId,
    /// Place on the device.
    pub region: Extent,
    /// Records begin at multiples of this: a physical sector, which is never torn, or a row of an
    /// array with parity, which is longer and can be.
    pub physical: Sectors,
    /// Entries below the floor are dead, so damage to them does not count.
    pub floor: DataSequence,
    /// Capacity of the volume: no entry reaches beyond.
    pub capacity: Sectors,
}

impl ScanOf {
    /// Whether records fill rows of an array with parity. A row that a crash tears may read as
    /// anything if a drive is missing: neither as the old content nor as the new one. The first row
    /// of a log is in flight alone when the log begins anew over records that are not below the
    /// floor. So garbage in front of such records is no damage there.
    fn is_in_rows(&self) -> bool {
        self.physical > PHYSICAL_MOST
    }
}

/// Content of one place of a log.
enum Found {
    /// A whole record.
    Whole(Record),
    /// A record with a whole header and a damaged payload.
    Damaged {
        record: Record,
        /// Whether all readable units match their checksums. Then the medium is at fault, not a
        /// crash during the write.
        unreadable: bool,
    },
    /// No record that belongs there.
    Nothing(RecordError),
}

impl Found {
    /// Returns `self` if it follows the record `last`; else there is nothing.
    fn if_follows(self, last: Option<&Record>, chained: bool) -> Self {
        let follows = match &self {
            Self::Whole(record) | Self::Damaged { record, .. } => follows(record, last, chained),
            Self::Nothing(_) => Ok(()),
        };
        follows.map_or_else(Self::Nothing, |()| self)
    }
}

/// Reads the log from its start. Each record must prove itself: volume, log, place, epoch, the
/// predecessor's checksum, header and payload.
///
/// `start` holds the first sectors of the log if the caller has read them and they are not
/// [`BLANK`]. The caller must have flushed the device: data that a killed process left in a
/// volatile cache must be durable before it is believed.
///
/// Only [`IoError::Medium`] counts as damage: the device must report it for the chunk and again for
/// the sector. An unreadable place where a record may begin is damage, too, even if nothing lies
/// behind it: the log may go on there, with unknown entries.
///
/// # Errors
/// If the device fails in another way, because the unread sectors may be whole. A torn record is no
/// error: it ends the log.
pub async fn scan(
    device: &Rc<dyn BlockDevice>,
    of: ScanOf,
    start: Payload,
) -> Result<Scanned, IoError> {
    let mut scan =
        Scan { window: Window::new(device, of, start), ahead: None, out: Scanned::default() };
    scan.run().await?;
    Ok(scan.finish())
}

struct Scan<'a> {
    window: Window<'a>,
    ahead: Option<LookAhead<'a>>,
    out: Scanned,
}

impl Scan<'_> {
    async fn run(&mut self) -> Result<(), IoError> {
        let (mut offset, mut chained) = (0, true);
        while offset < self.window.of.region.len.0 {
            let found = self.find(offset).await?.if_follows(self.out.records.last(), chained);
            if let Found::Whole(record) = found {
                offset += record.record_sectors.0;
                chained = true;
                self.out.records.push(record);
                continue;
            }
            match self.pass(offset, found).await? {
                Some((next, known)) => (offset, chained) = (next, known),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Finds the place to go on behind `offset`, where no whole record follows. Also returns
    /// whether the predecessor's checksum is known there. `None` if the log ends here.
    async fn pass(&mut self, offset: u64, found: Found) -> Result<Option<(u64, bool)>, IoError> {
        let here = match &found {
            Found::Damaged { record, .. } => Some(record),
            Found::Whole(_) | Found::Nothing(_) => None,
        };
        let last = here.or(self.out.records.last()).map(|record| record.header.record_sequence);
        let epoch = self.out.records.first().or(here).map(|record| record.header.epoch);
        let behind = self.look_ahead(offset, epoch, last).await?;
        let mut proof = behind.filter(|behind| behind.proven);
        // The sectors cannot be read, so they may have been durable.
        let unreadable = is_unreadable(&found);
        if unreadable {
            proof = proof.or(behind.filter(|behind| !behind.renewed));
        }
        let Some(proof) = proof else {
            return Ok(self.pass_unproven(offset, found));
        };
        // Behind the lost start of a log, remains of an earlier epoch may lie.
        let dead = proof.dead && !(unreadable && (offset == 0 || !proof.proven));
        let start = if proof.renewed { 0 } else { offset };
        if proof.renewed {
            // The records so far are of an epoch that had ended. They are visible again because the
            // first record of the next epoch was lost.
            self.out.records.clear();
            self.out.damage.clear();
        }
        let (next, known) = match found {
            Found::Damaged { record, .. } if proof.is_behind(&record, offset) => {
                let next = offset + record.record_sectors.0;
                self.out.records.push(record);
                (next, true)
            }
            _ => (proof.next, false),
        };
        // Nothing is in flight in a log while the record that begins its next epoch is.
        let torn_begin = start == 0
            && !known
            && !proof.renewed
            && !unreadable
            && self.window.of.is_in_rows()
            && !plant::is(Bug::TornRowIsDamage);
        if !dead && !torn_begin {
            self.damaged(start, next, known);
        }
        Ok(Some((next, known)))
    }

    /// Handles a place that no later record proves durable. It is the end of the log, because a
    /// crash tore the record there. Unless the medium is at fault: then it is damage.
    fn pass_unproven(&mut self, offset: u64, found: Found) -> Option<(u64, bool)> {
        match found {
            Found::Damaged { record, unreadable: true } => {
                let next = offset + record.record_sectors.0;
                self.out.records.push(record);
                self.damaged(offset, next, true);
                Some((next, true))
            }
            Found::Nothing(error) => {
                if is_unreadable(&found) {
                    self.damaged(offset, self.window.end_of_unreadable(offset), false);
                }
                self.out.end = Some(error);
                None
            }
            Found::Whole(_) | Found::Damaged { .. } => {
                self.out.end = Some(RecordError::PayloadChecksum);
                None
            }
        }
    }

    fn damaged(&mut self, from: u64, to: u64, known: bool) {
        let (offset, sectors) = (offset_of(from), Sectors(to - from));
        self.out.damage.push(Damage { offset, sectors, known });
    }

    async fn look_ahead(
        &mut self,
        offset: u64,
        epoch: Option<Epoch>,
        last: Option<RecordSequence>,
    ) -> Result<Option<look_ahead::Behind>, IoError> {
        let window = &mut self.window;
        let ahead = self.ahead.get_or_insert_with(|| LookAhead::new(window.split(), offset));
        ahead.behind(offset, epoch, last).await
    }

    async fn find(&mut self, offset: u64) -> Result<Found, IoError> {
        let record = match self.window.header(offset).await? {
            Ok(record) => record,
            Err(error) => return Ok(Found::Nothing(error)),
        };
        let start = offset + record.header_sectors.0;
        let len = record.record_sectors - record.header_sectors;
        if len.0 == 0 {
            return Ok(Found::Whole(record));
        }
        self.window.work.checked += len;
        let checked_max = CHECKED_TIMES * self.window.of.region.len.0 + RECORD_SECTORS_MAX.0;
        if self.window.work.checked.0 > checked_max {
            return Ok(Found::Nothing(RecordError::Impossible("overlap")));
        }
        let payload = self.window.get(start, len).await?;
        let excused =
            |at: Sectors, len: Sectors| self.window.first_unreadable(start + at.0, len).is_some();
        let right = payload_is_right(&record, &payload, excused);
        let lost = self.window.first_unreadable(start, payload_len(&record)).is_some();
        Ok(if right && !lost {
            Found::Whole(record)
        } else {
            let torn = plant::is(Bug::UnreadablePayloadIsTorn);
            Found::Damaged { record, unreadable: right && !torn }
        })
    }

    fn finish(self) -> Scanned {
        let mut work = self.window.work;
        let mut unreadable = self.window.unreadable().clone();
        if let Some(ahead) = &self.ahead {
            let (headers, read) = ahead.work();
            work.headers += headers;
            work.read += read;
            unreadable.extend(ahead.window.unreadable());
        }
        let unreadable = unreadable.into_iter().map(offset_of).collect();
        let begins_absent = self.window.begins_absent();
        Scanned { unreadable, begins_absent, work, ..self.out }
    }
}

/// Whether the place could not be read.
fn is_unreadable(found: &Found) -> bool {
    matches!(found, Found::Nothing(RecordError::Unreadable)) && !plant::is(Bug::UnreadableIsTheEnd)
}

fn payload_len(record: &Record) -> Sectors {
    Sectors(record.entries.iter().map(|entry| entry.payload_sectors().0).sum())
}

/// Whether every unit matches its checksum in the header, except those that are `excused`.
fn payload_is_right(
    record: &Record,
    payload: &Payload,
    excused: impl Fn(Sectors, Sectors) -> bool,
) -> bool {
    let mut at = Sectors(0);
    let mut checksums = record.unit_checksums.iter();
    for len in record.entries.iter().map(Entry::payload_sectors) {
        for ((start, unit), expected) in units_of(len).zip(&mut checksums) {
            let unit_at = at + start;
            if !payload.verifies(unit_at, unit, *expected) && !excused(unit_at, unit) {
                return false;
            }
        }
        at += len;
    }
    true
}

/// Checks that `record` follows `last`. Behind a damaged header (`chained` is false) the checksum
/// of the predecessor is unknown.
fn follows(record: &Record, last: Option<&Record>, chained: bool) -> Result<(), RecordError> {
    let header = &record.header;
    match last {
        None if chained => {
            same(header.epoch == header.record_sequence.epoch(), "epoch")?;
            same(header.previous_checksum == 0, "predecessor")
        }
        None => Ok(()),
        Some(last) => {
            same(header.epoch == last.header.epoch, "epoch")?;
            let ignored = !chained || plant::is(Bug::PredecessorIgnored);
            same(ignored || header.previous_checksum == last.checksum, "predecessor")?;
            same(header.record_sequence > last.header.record_sequence, "record sequence")
        }
    }
}

fn offset_of(offset: u64) -> LogOffset {
    LogOffset(narrow(offset))
}
