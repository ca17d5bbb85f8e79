//! The recovery scan: which records does a log hold, beyond doubt?

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Lba, Payload, Request, Sectors};

use crate::{Entry, LogId, LogOffset, Record, RecordError, VolumeId, units_of};

/// What one scan reads at a time.
const WINDOW: Sectors = Sectors(2048);

/// The records of one log from its start to the first place where none follows.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// Whole records in order.
    pub records: Vec<Record>,
    /// Why the scan ended; `None` when the log is full.
    pub end: Option<RecordError>,
}

/// Reads the log in `region` from its start and proves record after record: volume, log, place,
/// epoch, the predecessor's checksum, header and payload.
///
/// The caller has flushed the device: what a killed process left in a volatile cache must be
/// durable before it is believed.
///
/// # Errors
/// If the device cannot be read. A record that is torn or damaged is no error but the end.
pub async fn scan(
    device: &Rc<dyn BlockDevice>,
    volume: VolumeId,
    log: LogId,
    region: Extent,
) -> Result<Scanned, IoError> {
    let mut window = Window { device, region, start: 0, content: Payload::default() };
    let mut records: Vec<Record> = Vec::new();
    let mut offset = 0;
    while offset < region.len.0 {
        let found = next_record(&mut window, offset).await?;
        let proved = found.and_then(|record| {
            prove_place(&record, volume, log, offset, records.last()).map(|()| record)
        });
        match proved {
            Ok(record) => {
                offset += record.record_sectors.0;
                records.push(record);
            }
            Err(end) => return Ok(Scanned { records, end: Some(end) }),
        }
    }
    Ok(Scanned { records, end: None })
}

struct Window<'a> {
    device: &'a Rc<dyn BlockDevice>,
    region: Extent,
    start: u64,
    content: Payload,
}

impl Window<'_> {
    /// The `len` sectors from `offset` of the log; less at its end.
    async fn get(&mut self, offset: u64, len: Sectors) -> Result<Payload, IoError> {
        let len = Sectors(len.0.min(self.region.len.0 - offset));
        let have = Extent { start: Lba(self.start), len: self.content.len() };
        if !have.contains(Extent { start: Lba(offset), len }) {
            let want = Sectors(WINDOW.max(len).0.min(self.region.len.0 - offset));
            let extent = Extent { start: self.region.start + Sectors(offset), len: want };
            self.content = self.device.submit(Request::Read { extent }).await?;
            self.start = offset;
        }
        Ok(self.content.slice(Sectors(offset - self.start), len))
    }
}

async fn next_record(
    window: &mut Window<'_>,
    offset: u64,
) -> Result<Result<Record, RecordError>, IoError> {
    let first = window.get(offset, Sectors(1)).await?;
    let header_len = match first.to_bytes().ok_or(RecordError::NoHeader) {
        Ok(bytes) => match Record::announced_header(&bytes) {
            Ok(len) => len,
            Err(error) => return Ok(Err(error)),
        },
        Err(error) => return Ok(Err(error)),
    };
    let header = window.get(offset, header_len).await?;
    let record = match header.to_bytes().ok_or(RecordError::HeaderChecksum) {
        Ok(bytes) => match Record::decode(&bytes) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error)),
        },
        Err(error) => return Ok(Err(error)),
    };
    if record.record_sectors.0 > window.region.len.0 - offset {
        return Ok(Err(RecordError::Impossible("record length")));
    }
    let payload_len = record.record_sectors - record.header_sectors;
    let payload = window.get(offset + record.header_sectors.0, payload_len).await?;
    Ok(prove_payload(&record, &payload).map(|()| record))
}

fn prove_payload(record: &Record, payload: &Payload) -> Result<(), RecordError> {
    let mut at = Sectors(0);
    let mut checksums = record.unit_checksums.iter();
    for len in record.entries.iter().map(Entry::payload_sectors) {
        for ((start, unit), expected) in units_of(len).zip(&mut checksums) {
            if !payload.verifies(at + start, unit, *expected) {
                return Err(RecordError::PayloadChecksum);
            }
        }
        at += len;
    }
    Ok(())
}

fn prove_place(
    record: &Record,
    volume: VolumeId,
    log: LogId,
    offset: u64,
    last: Option<&Record>,
) -> Result<(), RecordError> {
    let header = &record.header;
    let same = |same: bool, what| if same { Ok(()) } else { Err(RecordError::Misplaced(what)) };
    same(header.volume == volume, "volume")?;
    same(header.log == log, "log")?;
    same(header.offset == LogOffset(u32::try_from(offset).unwrap_or(u32::MAX)), "offset")?;
    match last {
        None => {
            same(header.epoch == header.record_sequence.epoch(), "epoch")?;
            same(header.previous_checksum == 0, "predecessor")
        }
        Some(last) => {
            same(header.epoch == last.header.epoch, "epoch")?;
            same(header.previous_checksum == last.checksum, "predecessor")?;
            same(header.record_sequence > last.header.record_sequence, "record sequence")
        }
    }
}
