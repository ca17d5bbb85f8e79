//! The recovery scan: which records does a log hold, beyond doubt, and what of it is damaged?

use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Extent, IoError, Payload, Request, Sectors};

use crate::{
    DataSequence, Entry, Epoch, Incarnation, LogId, LogOffset, Record, RecordError, RecordSequence,
    VolumeId, units_of,
};

/// What one scan reads at a time.
const WINDOW: Sectors = Sectors(512);
/// A log that begins with so many zeroes was never used, or has lost a first record as long: to
/// look further behind each such log would take minutes on a large disk.
pub const BLANK: Sectors = Sectors(512);
/// Longest payload of a record.
pub const RECORD_PAYLOAD_MAX: Sectors = Sectors(4096);
/// A record with its header is never longer: so far behind a damaged one the next must begin.
pub(crate) const RECORD_SECTORS_MAX: Sectors = Sectors(RECORD_PAYLOAD_MAX.0 + 128);

/// The records of one log from its start to the first place where none follows.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// Records in order. Of one that `damage` names the header is whole, and some payload is not.
    pub records: Vec<Record>,
    /// Why the scan ended; `None` when the log is full.
    pub end: Option<RecordError>,
    /// What was durable once and is not whole any more.
    pub damage: Vec<Damage>,
}

/// A place in a log that was durable, as a later record proves, and is damaged now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub offset: LogOffset,
    /// How far it reaches.
    pub sectors: Sectors,
    /// Whether the header is whole: then it is known what is lost, and reads will tell. Else
    /// nobody knows what was there.
    pub known: bool,
}

/// Which log is scanned.
#[derive(Clone, Copy, Debug)]
pub struct ScanOf {
    /// The volume.
    pub volume: VolumeId,
    /// The log.
    pub log: LogId,
    /// Where it is on the device.
    pub region: Extent,
    /// Records begin at multiples of this.
    pub physical: Sectors,
    /// Entries below are dead: damage to them is none.
    pub floor: DataSequence,
    /// Sectors that the volume exports: no entry reaches beyond.
    pub capacity: Sectors,
}

/// What is at one place of a log.
enum Found {
    /// A record, whole.
    Whole(Record),
    /// A record whose payload is not.
    Damaged(Record),
    /// None that belongs there.
    Nothing(RecordError),
}

/// Reads the log from its start and proves record after record: volume, log, place, epoch, the
/// predecessor's checksum, header and payload.
///
/// `start` is what the caller has read of the log's first sectors already, if anything; it has
/// seen that they are not [`BLANK`]. And it has flushed the device: what a killed process left in a
/// volatile cache must be durable before it is believed.
///
/// # Errors
/// If the device fails as a whole. A record that is torn is no error but the end; sectors that
/// cannot be read count as damaged.
pub async fn scan(
    device: &Rc<dyn BlockDevice>,
    of: ScanOf,
    start: Payload,
) -> Result<Scanned, IoError> {
    let mut window = Window::new(device, of, start);
    let mut out = Scanned::default();
    let (mut offset, mut chained) = (0, true);
    while offset < of.region.len.0 {
        let found = match window.find(offset).await? {
            Found::Whole(record) => match follows(&record, out.records.last(), chained) {
                Ok(()) => {
                    offset += record.record_sectors.0;
                    chained = true;
                    out.records.push(record);
                    continue;
                }
                Err(error) => Found::Nothing(error),
            },
            Found::Damaged(record) => match follows(&record, out.records.last(), chained) {
                Ok(()) => Found::Damaged(record),
                Err(error) => Found::Nothing(error),
            },
            nothing @ Found::Nothing(_) => nothing,
        };
        let here = match &found {
            Found::Damaged(record) => Some(record),
            Found::Whole(_) | Found::Nothing(_) => None,
        };
        let last = here.or(out.records.last()).map(|record| record.header.record_sequence);
        let epoch = out.records.first().or(here).map(|record| record.header.epoch);
        let proof = window.prove_durable(offset, epoch, last).await?;
        let Some(proof) = proof else {
            let end = match found {
                Found::Nothing(error) => error,
                Found::Whole(_) | Found::Damaged(_) => RecordError::PayloadChecksum,
            };
            return Ok(Scanned { end: Some(end), ..out });
        };
        if proof.renewed {
            // What was found is of an epoch that has ended, uncovered by the loss of the next
            // one's first record.
            out.records.clear();
            out.damage.clear();
            offset = 0;
        }
        let (next, known) = match found {
            Found::Damaged(record) if proof.is_behind(&record, offset) => {
                let next = offset + record.record_sectors.0;
                out.records.push(record);
                (next, true)
            }
            _ => (proof.next, false),
        };
        if !proof.dead {
            let sectors = Sectors(next - offset);
            out.damage.push(Damage { offset: offset_of(offset), sectors, known });
        }
        (offset, chained) = (next, known);
    }
    Ok(out)
}

/// What shows that a place in a log was durable once.
struct Proof {
    /// Where the first record behind it begins.
    next: u64,
    /// Whether all that was there is below the floor.
    dead: bool,
    /// Whether it is of a later epoch than what was found before.
    renewed: bool,
    /// What the record at `next` says of its predecessor.
    previous_checksum: u32,
}

impl Proof {
    /// Whether what follows follows on `record`. A write that was lost uncovers what was there
    /// before: the header of a record, never acknowledged, of an earlier incarnation perhaps,
    /// which tells neither what is missing nor where the next record is.
    fn is_behind(&self, record: &Record, offset: u64) -> bool {
        !self.renewed
            && self.next == offset + record.record_sectors.0
            && self.previous_checksum == record.checksum
    }
}

/// Reads a log chunk by chunk, the next one while the last is looked at.
struct Window<'a> {
    device: &'a Rc<dyn BlockDevice>,
    of: ScanOf,
    start: u64,
    content: Payload,
    /// The read of what follows.
    ahead: Option<Completion>,
    /// Sectors of it that cannot be read.
    unreadable: Vec<u64>,
}

impl<'a> Window<'a> {
    fn new(device: &'a Rc<dyn BlockDevice>, of: ScanOf, content: Payload) -> Self {
        Self { device, of, start: 0, content, ahead: None, unreadable: Vec::new() }
    }

    fn end(&self) -> u64 {
        self.start + self.content.len().0
    }

    /// The `len` sectors from `offset` of the log; `None` if one of them cannot be read.
    async fn get(&mut self, offset: u64, len: Sectors) -> Result<Option<Payload>, IoError> {
        let end = (offset + len.0).min(self.of.region.len.0);
        if offset < self.start || offset > self.end() {
            (self.start, self.content, self.ahead) = (offset, Payload::default(), None);
        }
        while self.end() < end {
            self.extend(offset).await?;
        }
        if self.unreadable.iter().any(|bad| (offset..end).contains(bad)) {
            return Ok(None);
        }
        Ok(Some(self.content.slice(Sectors(offset - self.start), Sectors(end - offset))))
    }

    /// Adds the next chunk, and lets go of what is before `offset`.
    async fn extend(&mut self, offset: u64) -> Result<(), IoError> {
        let keep = Sectors(self.end() - offset);
        self.content = self.content.slice(Sectors(offset - self.start), keep);
        self.start = offset;
        let from = self.end();
        let len = self.chunk(from);
        let read = self.ahead.take().unwrap_or_else(|| self.read(from, len));
        let chunk = match read.await {
            Ok(chunk) => chunk,
            Err(IoError::Medium { .. }) => self.read_what_can_be(from, len).await?,
            Err(error) => return Err(error),
        };
        self.content.append(chunk);
        let next = self.end();
        // The first chunk may show that there is no more to read.
        if from > 0 && next < self.of.region.len.0 {
            self.ahead = Some(self.read(next, self.chunk(next)));
        }
        Ok(())
    }

    fn chunk(&self, from: u64) -> Sectors {
        Sectors(WINDOW.0.min(self.of.region.len.0 - from))
    }

    async fn read_what_can_be(&mut self, from: u64, len: Sectors) -> Result<Payload, IoError> {
        let mut content = Payload::default();
        for sector in from..from + len.0 {
            match self.read(sector, Sectors(1)).await {
                Ok(payload) => content.append(payload),
                Err(IoError::Medium { .. }) => {
                    self.unreadable.push(sector);
                    content.append(Payload::zeroes(Sectors(1)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(content)
    }

    fn read(&self, offset: u64, len: Sectors) -> Completion {
        let extent = Extent { start: self.of.region.start + Sectors(offset), len };
        self.device.submit(Request::Read { extent })
    }

    /// The record header at `offset`, if one is there that belongs there.
    async fn header(&mut self, offset: u64) -> Result<Result<Record, RecordError>, IoError> {
        let first = self.get(offset, Sectors(1)).await?;
        let Some(first) = first.and_then(|payload| payload.to_bytes()) else {
            return Ok(Err(RecordError::NoHeader));
        };
        let len = match Record::announced_header(&first) {
            Ok(len) => len,
            Err(error) => return Ok(Err(error)),
        };
        let header = self.get(offset, len).await?.and_then(|payload| payload.to_bytes());
        let record = header.ok_or(RecordError::HeaderChecksum).and_then(|b| Record::decode(&b));
        Ok(record.and_then(|record| self.in_place(&record, offset).map(|()| record)))
    }

    fn in_place(&self, record: &Record, offset: u64) -> Result<(), RecordError> {
        let header = &record.header;
        same(header.volume == self.of.volume, "volume")?;
        same(header.log == self.of.log, "log")?;
        same(header.offset == offset_of(offset), "offset")?;
        let lengths = [record.header_sectors.0, record.record_sectors.0];
        let whole = lengths.iter().all(|len| len.is_multiple_of(self.of.physical.0));
        if !whole || record.record_sectors.0 > self.of.region.len.0 - offset {
            return Err(RecordError::Impossible("record length"));
        }
        self.sane(record)
    }

    /// Whether what it says is what a volume could have written: a right checksum does not show it.
    fn sane(&self, record: &Record) -> Result<(), RecordError> {
        let header = &record.header;
        let (data, record_sequence) = (header.next_data.0, header.record_sequence.0);
        if Incarnation::of(data) != Incarnation::of(record_sequence) || header.floor.0 > data {
            return Err(RecordError::Impossible("sequence"));
        }
        let sane = |entry: &Entry| {
            entry.extent.end().0 <= self.of.capacity.0 && entry.data_sequence < header.next_data
        };
        if record.entries.iter().all(sane) { Ok(()) } else { Err(RecordError::Impossible("entry")) }
    }

    async fn find(&mut self, offset: u64) -> Result<Found, IoError> {
        let record = match self.header(offset).await? {
            Ok(record) => record,
            Err(error) => return Ok(Found::Nothing(error)),
        };
        let payload_len = record.record_sectors - record.header_sectors;
        if payload_len.0 == 0 {
            return Ok(Found::Whole(record));
        }
        let payload = self.get(offset + record.header_sectors.0, payload_len).await?;
        let whole = payload.is_some_and(|payload| payload_is_whole(&record, &payload));
        Ok(if whole { Found::Whole(record) } else { Found::Damaged(record) })
    }

    /// Whether a later record of the same epoch says that what belongs at `offset` was durable, or
    /// one of a later epoch says so of the start of the log. After a crash records behind a hole
    /// are normal: they were in flight together. But they say so themselves: none was written when
    /// what came before the hole was all that was durable.
    async fn prove_durable(
        &mut self,
        offset: u64,
        epoch: Option<Epoch>,
        last: Option<RecordSequence>,
    ) -> Result<Option<Proof>, IoError> {
        let mut at = offset;
        let mut end = offset + RECORD_SECTORS_MAX.0;
        let (mut epoch, mut renewed) = (epoch, false);
        let mut first = None::<(u64, DataSequence, u32)>;
        while at < end.min(self.of.region.len.0) {
            let here = at;
            at += self.of.physical.0;
            let Ok(record) = self.header(here).await? else { continue };
            let header = record.header;
            let newer = epoch.is_some_and(|epoch| header.epoch > epoch);
            let later = last.is_none_or(|last| header.record_sequence > last);
            let ended = epoch.is_some_and(|epoch| header.epoch < epoch);
            // What begins at the place in question is what did not follow.
            if !later || ended || (here == offset && !newer) {
                continue;
            }
            if newer {
                (renewed, first) = (true, None);
            }
            epoch = Some(header.epoch);
            // What is missing came before this record.
            let first = first.get_or_insert((here, header.next_data, header.previous_checksum));
            let (next, bound, previous_checksum) = *first;
            let missing = if renewed { 0 } else { offset };
            if u64::from(header.durable_tail.0) > missing {
                let dead = bound <= self.of.floor;
                return Ok(Some(Proof { next, dead, renewed, previous_checksum }));
            }
            end = here + record.record_sectors.0 + RECORD_SECTORS_MAX.0;
        }
        Ok(None)
    }
}

fn payload_is_whole(record: &Record, payload: &Payload) -> bool {
    let mut at = Sectors(0);
    let mut checksums = record.unit_checksums.iter();
    for len in record.entries.iter().map(Entry::payload_sectors) {
        for ((start, unit), expected) in units_of(len).zip(&mut checksums) {
            if !payload.verifies(at + start, unit, *expected) {
                return false;
            }
        }
        at += len;
    }
    true
}

/// Whether `record` is the one behind `last`. Behind a damaged header nobody knows the
/// predecessor's checksum.
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
            same(!chained || header.previous_checksum == last.checksum, "predecessor")?;
            same(header.record_sequence > last.header.record_sequence, "record sequence")
        }
    }
}

fn same(same: bool, what: &'static str) -> Result<(), RecordError> {
    if same { Ok(()) } else { Err(RecordError::Misplaced(what)) }
}

fn offset_of(offset: u64) -> LogOffset {
    LogOffset(u32::try_from(offset).unwrap_or(u32::MAX))
}
