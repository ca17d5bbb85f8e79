//! blktrace, binary: 48-byte records in the byte order of the machine that wrote them.
//!
//! magic u32 (0x65617400 | version 7), sequence u32, time u64 (ns), sector u64, bytes u32,
//! action u32, pid u32, device u32, cpu u32, error u16, pdu_len u16, then pdu_len bytes.

use manylogs_block::{Sectors, Time};

use crate::error::{Fault, TraceError, fault};
use crate::format::blkparse;
use crate::format::rwbs::Rwbs;
use crate::input::Input;
use crate::lines::{Decoded, is_empty_transfer};
use crate::open::{BlockEvent, OpenOptions};
use crate::request::{SourceCounts, TraceOp, TraceRequest, TraceSource};
use crate::text;

pub(crate) const RECORD_BYTES: usize = 48;
/// The magic number with version 7 in its low byte.
pub(crate) const MAGIC: u32 = 0x6561_7407;

/// Categories, the high half of the action.
pub(crate) mod category {
    pub(crate) const READ: u32 = 0x1;
    pub(crate) const WRITE: u32 = 0x2;
    pub(crate) const FLUSH: u32 = 0x4;
    pub(crate) const PC: u32 = 0x200;
    pub(crate) const NOTIFY: u32 = 0x400;
    pub(crate) const DISCARD: u32 = 0x2000;
    pub(crate) const FUA: u32 = 0x8000;
}

pub(crate) const ACTION_QUEUE: u32 = 1;
const ACTION_ISSUE: u32 = 7;
/// Bit 8 of the action marks a cgroup in the payload.
const ACTION_MASK: u32 = 0xff;

/// The CPU whose records a file may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cpu {
    /// Any CPU: the file's name has no number.
    Any,
    /// Only this CPU, the number in the file's name.
    Number(u32),
}

/// The requests of one blktrace file, in the order and on the clock of the file.
pub(crate) struct BlktraceFile {
    input: Input,
    cpu: Cpu,
    action: u32,
    skip_bad: bool,
    counts: SourceCounts,
    pending: Option<TraceRequest>,
    done: bool,
}

impl BlktraceFile {
    pub(crate) fn new(input: Input, cpu: Cpu, options: &OpenOptions) -> Self {
        let action = match options.event {
            BlockEvent::Queue => ACTION_QUEUE,
            BlockEvent::Issue => ACTION_ISSUE,
        };
        let counts = SourceCounts::default();
        let skip_bad = options.skip_bad;
        Self { input, cpu, action, skip_bad, counts, pending: None, done: false }
    }

    /// The next record; `Ok(None)` at the end of the file.
    fn step(&mut self) -> Result<Option<Decoded>, TraceError> {
        let offset = self.input.offset();
        let record = self.input.peek(RECORD_BYTES)?;
        let have = record.len();
        let Some(record) = Record::parse(record) else {
            return match have {
                0 => Ok(None),
                1..RECORD_BYTES => {
                    self.input.consume(have);
                    self.done = true;
                    Err(self.input.cut_short(offset, "a whole blktrace record", have))
                }
                _ => {
                    let found = fault("the magic number of a blktrace record", &record[..4]);
                    Err(self.input.bad_bytes(offset, found))
                }
            };
        };
        self.input.consume(RECORD_BYTES);
        let payload = u64::from(record.pdu_len);
        if self.input.skip(payload)? < payload {
            self.done = true;
            return Err(self.input.cut_short(offset, "the payload behind the record", 0));
        }
        let decoded = self.decode(&record);
        decoded.map(Some).map_err(|fault| self.input.bad_bytes(offset, fault))
    }

    fn decode(&self, record: &Record) -> Result<Decoded, Fault> {
        if let Cpu::Number(cpu) = self.cpu
            && cpu != record.cpu
        {
            let found = format!("a record of CPU {}", record.cpu);
            return Err(fault("records of the CPU in the file's name", found.as_bytes()));
        }
        let category = record.action >> 16;
        // Notifications and driver commands reuse the low numbers.
        let foreign = category & (category::NOTIFY | category::PC) != 0;
        if foreign || record.action & ACTION_MASK != self.action {
            return Ok(Decoded::Nothing);
        }
        let has = |bit: u32| category & bit != 0;
        let op = if has(category::DISCARD) {
            TraceOp::Discard
        } else if has(category::WRITE) {
            TraceOp::Write
        } else if has(category::READ) {
            TraceOp::Read
        } else if has(category::FLUSH) {
            TraceOp::Flush
        } else {
            return Ok(Decoded::Nothing);
        };
        let (pre_flush, fua) = (has(category::FLUSH), has(category::FUA));
        let rwbs = Rwbs { op: Some(op), pre_flush, fua };
        let sectors = Sectors::from_bytes_ceil(u64::from(record.bytes));
        let extent = text::sector_extent(record.sector, sectors.0)?;
        let at = Time(record.time);
        let request = TraceRequest { at, op, extent, fua, device: record.device };
        Ok(blkparse::event(op, rwbs, request))
    }

    /// Counts the damage and looks for the next record, or ends the trace with the error.
    #[cold]
    fn stop_or_skip(&mut self, error: TraceError) -> Option<TraceError> {
        if !self.skip_bad || matches!(error, TraceError::Io(_)) {
            self.done = true;
            return Some(error);
        }
        self.counts.skipped += 1;
        if matches!(error, TraceError::Malformed(_)) {
            self.find_record();
        }
        None
    }

    /// Skips to the next magic number.
    fn find_record(&mut self) {
        const WINDOW: usize = 64 << 10;
        loop {
            let Ok(window) = self.input.peek(WINDOW) else {
                self.done = true;
                return;
            };
            let have = window.len();
            let found = window.windows(4).position(|word| byte_order(word).is_some());
            if let Some(found) = found {
                self.input.consume(found);
                return;
            }
            if have < 4 {
                self.input.consume(have);
                self.done = true;
                return;
            }
            self.input.consume(have - 3);
        }
    }
}

impl TraceSource for BlktraceFile {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if let Some(request) = self.pending.take() {
            return Some(Ok(request));
        }
        while !self.done {
            match self.step() {
                Ok(Some(Decoded::Request(request))) if is_empty_transfer(&request) => {
                    self.counts.empty += 1;
                }
                Ok(Some(Decoded::Request(request))) => return Some(Ok(request)),
                Ok(Some(Decoded::FlushThen(request))) => {
                    self.pending = Some(request);
                    return Some(Ok(TraceRequest::flush(request.at, request.device)));
                }
                Ok(Some(Decoded::Nothing | Decoded::End)) => {}
                Ok(None) => break,
                Err(error) => {
                    if let Some(error) = self.stop_or_skip(error) {
                        return Some(Err(error));
                    }
                }
            }
        }
        None
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }
}

/// The fields of a record that concern us.
struct Record {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    cpu: u32,
    pdu_len: u16,
}

/// The byte order in which `word` is the magic number, if it is.
#[derive(Clone, Copy)]
enum ByteOrder {
    Little,
    Big,
}

fn byte_order(word: &[u8]) -> Option<ByteOrder> {
    if word.starts_with(&MAGIC.to_le_bytes()) {
        Some(ByteOrder::Little)
    } else if word.starts_with(&MAGIC.to_be_bytes()) {
        Some(ByteOrder::Big)
    } else {
        None
    }
}

/// Whether `beginning` is that of a blktrace file.
pub(crate) fn probe(beginning: &[u8]) -> bool {
    byte_order(beginning).is_some()
}

impl Record {
    /// The record that `bytes` begin with; `None` if too short or of another magic number.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let order = byte_order(bytes)?;
        let bytes = bytes.get(..RECORD_BYTES)?;
        let number = |offset: usize, len: usize| -> u64 {
            let field = bytes[offset..offset + len].iter();
            let push = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
            match order {
                ByteOrder::Little => field.rev().fold(0, push),
                ByteOrder::Big => field.fold(0, push),
            }
        };
        let word = |offset| u32::try_from(number(offset, 4)).ok();
        Some(Self {
            time: number(8, 8),
            sector: number(16, 8),
            bytes: word(24)?,
            action: word(28)?,
            device: word(36)?,
            cpu: word(40)?,
            pdu_len: u16::try_from(number(46, 2)).ok()?,
        })
    }
}
