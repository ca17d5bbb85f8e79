//! The part of a log that a scan has in memory, and the sectors that could not be read.

use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Extent, IoError, Payload, Piece, Request, Sectors};
use manylogs_plant::{self as plant, Bug};

use super::{RECORD_SECTORS_MAX, ScanOf, ScanWork, offset_of};
use crate::{Entry, Record, RecordError};

/// Length of one read.
const CHUNK: Sectors = Sectors(512);

/// Reads a log chunk by chunk, forwards only. The next chunk is read while the last one is decoded.
pub(super) struct Window<'a> {
    device: &'a Rc<dyn BlockDevice>,
    pub(super) of: ScanOf,
    start: u64,
    /// Content from `start` on. Unreadable sectors are zeroes here.
    content: Payload,
    /// The read of the next chunk.
    ahead: Option<Completion>,
    /// Unreadable sectors.
    unreadable: BTreeSet<u64>,
    /// Whether the log begins with sectors without known content.
    begins_absent: bool,
    pub(super) work: ScanWork,
}

impl<'a> Window<'a> {
    pub(super) fn new(device: &'a Rc<dyn BlockDevice>, of: ScanOf, content: Payload) -> Self {
        Self {
            device,
            of,
            start: 0,
            content,
            ahead: None,
            unreadable: BTreeSet::new(),
            begins_absent: false,
            work: ScanWork::default(),
        }
    }

    /// A second window at the same place. It takes over the read that is under way.
    pub(super) fn split(&mut self) -> Self {
        Self {
            device: self.device,
            of: self.of,
            start: self.start,
            content: self.content.clone(),
            ahead: self.ahead.take(),
            unreadable: self.unreadable.clone(),
            begins_absent: self.begins_absent,
            work: ScanWork::default(),
        }
    }

    fn end(&self) -> u64 {
        self.start + self.content.len().0
    }

    /// The `len` sectors from `offset` of the log, but none beyond its end.
    pub(super) async fn get(&mut self, offset: u64, len: Sectors) -> Result<Payload, IoError> {
        let end = (offset + len.0).min(self.of.region.len.0);
        if offset < self.start || offset > self.end() {
            (self.start, self.content, self.ahead) = (offset, Payload::default(), None);
        }
        while self.end() < end {
            self.extend(offset).await?;
        }
        Ok(self.content.slice(Sectors(offset - self.start), Sectors(end - offset)))
    }

    /// The end of the sectors without known content that begin at `offset`.
    pub(super) fn absent_until(&self, offset: u64) -> u64 {
        let mut at = self.start;
        for piece in self.content.pieces() {
            let end = at + piece.len().0;
            match piece {
                Piece::Absent(_) => {}
                _ if end > offset => return at.max(offset),
                _ => {}
            }
            at = end;
        }
        at.max(offset)
    }

    /// The first unreadable sector among the `len` sectors from `offset`.
    pub(super) fn first_unreadable(&self, offset: u64, len: Sectors) -> Option<u64> {
        self.unreadable.range(offset..offset + len.0).next().copied()
    }

    /// The end of the unreadable sectors that begin at `offset`.
    pub(super) fn end_of_unreadable(&self, offset: u64) -> u64 {
        let mut end = offset;
        while self.unreadable.contains(&end) {
            end += 1;
        }
        end.max(offset + 1).next_multiple_of(self.of.physical.0).min(self.of.region.len.0)
    }

    /// Whether the log begins with sectors without known content: the device keeps no content.
    pub(super) const fn begins_absent(&self) -> bool {
        self.begins_absent
    }

    /// Every unreadable sector so far.
    pub(super) const fn unreadable(&self) -> &BTreeSet<u64> {
        &self.unreadable
    }

    /// Adds the next chunk and drops the sectors before `offset`.
    async fn extend(&mut self, offset: u64) -> Result<(), IoError> {
        let keep = Sectors(self.end() - offset);
        self.content = self.content.slice(Sectors(offset - self.start), keep);
        self.start = offset;
        let from = self.end();
        let len = self.chunk(from);
        let read = self.ahead.take().unwrap_or_else(|| self.read(from, len));
        self.work.read += len;
        let chunk = match read.await {
            Ok(chunk) => chunk,
            Err(error) if is_of_medium(&error) => self.read_what_can_be(from, len).await?,
            Err(error) => return Err(error),
        };
        if from == 0 {
            self.begins_absent = matches!(chunk.pieces().first(), Some(Piece::Absent(_)));
        }
        self.content.append(chunk);
        let next = self.end();
        // The first chunk may show that the log is blank.
        if from > 0 && next < self.of.region.len.0 {
            self.ahead = Some(self.read(next, self.chunk(next)));
        }
        Ok(())
    }

    fn chunk(&self, from: u64) -> Sectors {
        Sectors(CHUNK.0.min(self.of.region.len.0 - from))
    }

    /// Reads each physical sector by itself. This also confirms the error of the chunk.
    async fn read_what_can_be(&mut self, from: u64, len: Sectors) -> Result<Payload, IoError> {
        let mut content = Payload::default();
        let (mut at, end) = (from, from + len.0);
        while at < end {
            let next = (at + 1).next_multiple_of(self.of.physical.0).min(end);
            let part = Sectors(next - at);
            match self.read(at, part).await {
                Ok(payload) => content.append(payload),
                Err(error) if is_of_medium(&error) => {
                    self.unreadable.extend(at..next);
                    content.append(Payload::zeroes(part));
                }
                Err(error) => return Err(error),
            }
            at = next;
        }
        Ok(content)
    }

    fn read(&self, offset: u64, len: Sectors) -> Completion {
        let extent = Extent { start: self.of.region.start + Sectors(offset), len };
        self.device.submit(Request::Read { extent })
    }

    /// The record header at `offset`, or why no record begins there.
    pub(super) async fn header(
        &mut self,
        offset: u64,
    ) -> Result<Result<Record, RecordError>, IoError> {
        self.work.headers += 1;
        let first = self.get(offset, Sectors(1)).await?;
        if self.first_unreadable(offset, Sectors(1)).is_some() {
            return Ok(Err(RecordError::Unreadable));
        }
        let Some(first) = first.to_bytes() else { return Ok(Err(RecordError::NoHeader)) };
        let len = match Record::announced_header(&first) {
            Ok(len) => len,
            Err(error) => return Ok(Err(error)),
        };
        let header = self.get(offset, len).await?;
        if self.first_unreadable(offset, len).is_some() {
            return Ok(Err(RecordError::Unreadable));
        }
        let header = header.to_bytes().ok_or(RecordError::HeaderChecksum);
        let record = header.and_then(|bytes| Record::decode(&bytes));
        Ok(record.and_then(|record| self.in_place(&record, offset).map(|()| record)))
    }

    fn in_place(&self, record: &Record, offset: u64) -> Result<(), RecordError> {
        let header = &record.header;
        same(header.volume == self.of.volume, "volume")?;
        same(header.log == self.of.log, "log")?;
        same(header.offset == offset_of(offset), "offset")?;
        let whole = record.record_sectors.0.is_multiple_of(self.of.physical.0);
        let room = RECORD_SECTORS_MAX.0.min(self.of.region.len.0 - offset);
        if !whole || record.record_sectors.0 > room {
            return Err(RecordError::Impossible("record length"));
        }
        self.sane(record)
    }

    /// Checks that a volume could have written these values, because a valid checksum does not
    /// prove it.
    fn sane(&self, record: &Record) -> Result<(), RecordError> {
        let header = &record.header;
        if header.floor > header.next_data {
            return Err(RecordError::Impossible("sequence"));
        }
        let sane = |entry: &Entry| {
            entry.extent.end().0 <= self.of.capacity.0 && entry.data_sequence < header.next_data
        };
        if record.entries.iter().all(sane) { Ok(()) } else { Err(RecordError::Impossible("entry")) }
    }
}

/// Whether the device says that its medium is bad.
fn is_of_medium(error: &IoError) -> bool {
    matches!(error, IoError::Medium { .. })
        || (plant::is(Bug::AnyErrorIsTheMedium) && error.is_local())
}

pub(super) fn same(same: bool, what: &'static str) -> Result<(), RecordError> {
    if same { Ok(()) } else { Err(RecordError::Misplaced(what)) }
}
