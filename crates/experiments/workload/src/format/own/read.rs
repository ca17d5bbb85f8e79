//! Reading a recording.

use manylogs_block::Time;

use super::header;
use super::{
    BLOCK_HEADER_BYTES, BLOCK_MAGIC, Context, END_BYTES, END_MAGIC, MAX_PAYLOAD_BYTES, tag,
};
use crate::bytes::{u32_at, u64_at};
use crate::error::{Fault, TraceError, fault};
use crate::input::Input;
use crate::open::Format;
use crate::request::{SourceCounts, TraceOp, TraceRequest, TraceSource};
use crate::text;

/// The requests of a recording.
pub(crate) struct OwnReader {
    input: Input,
    resolution_ns: u64,
    skip_bad: bool,
    counts: SourceCounts,
    payload: Vec<u8>,
    /// Read position in the payload.
    place: usize,
    payload_offset: u64,
    block_left: u32,
    context: Context,
    records: u64,
    done: bool,
}

impl OwnReader {
    pub(crate) fn new(mut input: Input, skip_bad: bool) -> Result<Self, TraceError> {
        let info = header::read(&mut input)?;
        Ok(Self {
            input,
            resolution_ns: u64::from(info.resolution_ns),
            skip_bad,
            counts: SourceCounts::default(),
            payload: Vec::new(),
            place: 0,
            payload_offset: 0,
            block_left: 0,
            context: Context::default(),
            records: 0,
            done: false,
        })
    }

    /// Reads the next block or the end mark.
    fn next_block(&mut self) -> Result<(), TraceError> {
        let offset = self.input.offset();
        let head = self.input.peek(END_BYTES)?;
        if head.starts_with(&END_MAGIC) {
            return self.end(offset);
        }
        let Some(head) = head.get(..BLOCK_HEADER_BYTES) else {
            let have = head.len();
            self.input.consume(have);
            self.done = true;
            return Err(self.input.cut_short(offset, "a block or the end mark", have));
        };
        if !head.starts_with(&BLOCK_MAGIC) {
            let found = fault("the start of a block (MLB1) or the end mark (MLEN)", &head[..4]);
            return Err(self.input.bad_bytes(offset, found));
        }
        let (records, payload_bytes) = (u32_at(head, 4), u32_at(head, 8));
        let (first, crc) = (u64_at(head, 12), u32_at(head, 20));
        if first < self.context.at {
            let found = fault("a block no earlier than the one before", b"an earlier one");
            return Err(self.input.bad_bytes(offset, found));
        }
        let payload_bytes = usize::try_from(payload_bytes).unwrap_or(usize::MAX);
        if payload_bytes > MAX_PAYLOAD_BYTES {
            let found = fault("a block of at most 64 KiB", payload_bytes.to_string().as_bytes());
            return Err(self.input.bad_bytes(offset, found));
        }
        let block = self.input.peek(BLOCK_HEADER_BYTES + payload_bytes)?;
        let have = block.len();
        let Some(payload) = block.get(BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + payload_bytes)
        else {
            self.input.consume(have);
            self.done = true;
            return Err(self.input.cut_short(offset, "the rest of a block", have));
        };
        if crc32c::crc32c_append(crc32c::crc32c(&block[..20]), payload) != crc {
            let found = fault("a block with the right checksum", b"a wrong one");
            return Err(self.input.bad_bytes(offset, found));
        }
        self.payload.clear();
        self.payload.extend_from_slice(payload);
        self.input.consume(have);
        self.payload_offset = offset + BLOCK_HEADER_BYTES as u64;
        self.place = 0;
        self.block_left = records;
        self.context = Context { at: first, ..Context::default() };
        Ok(())
    }

    /// Checks the end mark against what was read.
    fn end(&mut self, offset: u64) -> Result<(), TraceError> {
        self.done = true;
        let mark = self.input.peek(END_BYTES)?;
        if mark.len() < END_BYTES {
            let have = mark.len();
            return Err(self.input.cut_short(offset, "the whole end mark", have));
        }
        if crc32c::crc32c(&mark[..END_BYTES - 4]) != u32_at(mark, END_BYTES - 4) {
            let found = fault("an end mark with the right checksum", b"a wrong one");
            return Err(self.input.bad_bytes(offset, found));
        }
        let (records, lost) = (u64_at(mark, 4), u64_at(mark, 12));
        self.counts.lost = self.counts.lost.saturating_add(lost);
        if records != self.records && self.counts.skipped == 0 {
            let found = format!("{} records before an end mark for {records}", self.records);
            let found = fault("as many records as the end mark says", found.as_bytes());
            return Err(self.input.bad_bytes(offset, found));
        }
        if records == 0 {
            let file = Box::new(self.input.file().to_owned());
            let skipped = self.counts.skipped;
            return Err(TraceError::Empty { file, skipped, format: Format::Manylogs });
        }
        Ok(())
    }

    /// Decodes the next record of the block.
    fn record(&mut self) -> Result<TraceRequest, TraceError> {
        let mut rest = &self.payload[self.place..];
        let decoded = decode(&mut rest, &mut self.context, self.resolution_ns);
        let offset = self.payload_offset + self.place as u64;
        self.place = self.payload.len() - rest.len();
        self.block_left -= 1;
        self.records += 1;
        decoded.map_err(|fault| {
            // Deltas depend on the records before, so the rest of the block cannot be decoded.
            self.block_left = 0;
            self.input.bad_bytes(offset, fault)
        })
    }

    /// Counts the damage and looks for the next block, or ends the trace with the error.
    #[cold]
    fn stop_or_skip(&mut self, error: TraceError) -> Option<TraceError> {
        if !self.skip_bad || matches!(error, TraceError::Io(_) | TraceError::Empty { .. }) {
            self.done = true;
            return Some(error);
        }
        self.counts.skipped += 1;
        if !self.done {
            self.find_block();
        }
        None
    }

    /// Skips to the next magic number of a block or the end mark, at least one byte on.
    fn find_block(&mut self) {
        let mut passed = 1;
        loop {
            let window = match self.input.peek(MAX_PAYLOAD_BYTES) {
                Ok(window) if window.len() > passed => window,
                _ => {
                    self.done = true;
                    return;
                }
            };
            let have = window.len();
            let is_start = |word: &[u8]| word == BLOCK_MAGIC || word == END_MAGIC;
            if let Some(found) = window[passed..].windows(4).position(is_start) {
                self.input.consume(passed + found);
                return;
            }
            self.input.consume(have.saturating_sub(3).max(1));
            passed = 0;
        }
    }
}

impl TraceSource for OwnReader {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        loop {
            let result = if self.block_left > 0 {
                self.record().map(Some)
            } else if self.done {
                return None;
            } else {
                self.next_block().map(|()| None)
            };
            match result {
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => {}
                Err(error) => {
                    if let Some(error) = self.stop_or_skip(error) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }
}

fn decode(rest: &mut &[u8], context: &mut Context, resolution: u64) -> Result<TraceRequest, Fault> {
    const RECORD: &str = "a record";
    let (&tag, after) = rest.split_first().ok_or_else(|| fault(RECORD, b""))?;
    *rest = after;
    let op = TraceOp::from_number(tag & tag::OP).filter(|_| tag & tag::RESERVED == 0);
    let op = op.ok_or_else(|| fault("a record's tag", &[tag]))?;
    let delta = varint(rest)?;
    context.at = context.at.checked_add(delta).ok_or_else(|| fault("a sane time", b"overflow"))?;
    let at = context.at.checked_mul(resolution);
    let at = Time(at.ok_or_else(|| fault("a sane time", b"overflow"))?);
    if tag & tag::DEVICE != 0 {
        let device = u32::try_from(varint(rest)?);
        context.device = device.map_err(|_| fault("a device number below 2^32", b"more"))?;
    }
    let device = context.device;
    let fua = tag & tag::FUA != 0;
    if op == TraceOp::Flush {
        return Ok(TraceRequest { fua, ..TraceRequest::flush(at, device) });
    }
    let start = match tag & tag::SEQUENTIAL {
        0 => unzigzag(varint(rest)?, context.end)?,
        _ => context.end,
    };
    let len = if tag & tag::SAME_LEN == 0 { varint(rest)? } else { context.len };
    let extent = text::checked(op, text::sector_extent(start, len)?)?;
    context.end = extent.end().0;
    context.len = len;
    Ok(TraceRequest { at, op, extent, fua, device })
}

fn unzigzag(value: u64, from: u64) -> Result<u64, Fault> {
    let distance = value >> 1;
    let to = if value & 1 == 0 { from.checked_add(distance) } else { from.checked_sub(distance) };
    to.ok_or_else(|| fault("an address on the device", b"one outside"))
}

/// A number of seven bits a byte, lowest first.
fn varint(rest: &mut &[u8]) -> Result<u64, Fault> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or_else(|| fault("a whole number", b""))?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(fault("a number of at most 64 bits", b"a longer one"))
}
