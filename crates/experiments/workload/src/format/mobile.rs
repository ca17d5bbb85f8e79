//! The mobile traces: `proces,device,rw_flag,sector,size,timestamp`, spelled so.
//!
//! Sector and size are in sectors, the timestamp is in seconds since boot. Process names may
//! hold commas, so fields are taken from the right.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use manylogs_block::{Nanos, Time};

use crate::error::{Fault, TraceError, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::{Echoes, MobileDiscards, TimeUnit};
use crate::request::{BoxedSource, SourceCounts, TraceOp, TraceRequest, TraceSource};
use crate::text;

/// The first line of every file.
pub(crate) const HEADER: &[u8] = b"proces,device,rw_flag,sector,size,timestamp";

/// Threads of this name issue discards, which the trace calls reads.
const DISCARD_THREAD: &[u8] = b"f2fs_discard";
/// No real request is larger than 512 KiB; "reads" above it are discards under another name.
const MAX_READ_SECTORS: u64 = 1024;

/// Decodes a line; discards are recognised by thread name and size.
pub(crate) struct MobileCsv;

impl LineDecoder for MobileCsv {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        let fields = match from_the_left(line) {
            Some(fields) => fields,
            // A comma in the process name, the header, or damage.
            None if is_blank(line) || line.starts_with(b"proces,") => return Ok(Decoded::Nothing),
            None => from_the_right(line)?,
        };
        let Fields { process, device, flag, sector, size, timestamp } = fields;
        const TIME: &str = "a timestamp in seconds as field 6";
        let at = text::time(text::trim(timestamp), TimeUnit::Seconds, TIME)?;
        let op = match flag {
            b"W" => TraceOp::Write,
            b"R" if size > MAX_READ_SECTORS || process.starts_with(DISCARD_THREAD) => {
                TraceOp::Discard
            }
            b"R" => TraceOp::Read,
            other => return Err(fault("R or W as field 3", other)),
        };
        plain(at, op, text::sector_extent(sector, size)?, device)
    }
}

/// A line taken apart.
struct Fields<'a> {
    process: &'a [u8],
    device: u32,
    flag: &'a [u8],
    sector: u64,
    size: u64,
    timestamp: &'a [u8],
}

/// The fields of a line whose process name holds no comma: one quick pass.
fn from_the_left(line: &[u8]) -> Option<Fields<'_>> {
    let comma = memchr::memchr(b',', line)?;
    let (process, mut rest) = (&line[..comma], &line[comma + 1..]);
    let device = u32::try_from(text::take_number(&mut rest)?).ok()?;
    let (flag, after) = rest.split_at_checked(1)?;
    rest = after.strip_prefix(b",")?;
    let sector = text::take_number(&mut rest)?;
    let size = text::take_number(&mut rest)?;
    Some(Fields { process, device, flag, sector, size, timestamp: rest })
}

/// The fields of any line, or the fault in the line.
fn from_the_right(line: &[u8]) -> Result<Fields<'_>, Fault> {
    let mut rest = line;
    let timestamp = last_field(&mut rest);
    let size = text::number(last_field(&mut rest), "a size in sectors as field 5")?;
    let sector = text::number(last_field(&mut rest), "a sector number as field 4")?;
    let flag = last_field(&mut rest);
    let device = text::number_u32(last_field(&mut rest), "a device number as field 2")?;
    Ok(Fields { process: rest, device, flag, sector, size, timestamp })
}

/// Removes and returns the part of `rest` after the last comma.
fn last_field<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    match memchr::memrchr(b',', rest) {
        Some(comma) => {
            let field = &rest[comma + 1..];
            *rest = &rest[..comma];
            field
        }
        None => std::mem::take(rest),
    }
}

/// An echo follows its original within this time.
const ECHO_WINDOW: Nanos = Nanos::from_millis(50);
/// Originals remembered at most: the window never holds more in practice.
const MAX_REMEMBERED: usize = 1 << 16;

/// What makes an echo the same as its original: operation, sector and size.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sector: u64,
    size_and_op: u64,
}

impl Key {
    fn of(request: &TraceRequest) -> Self {
        // The file only tells writes from other operations.
        let write = u64::from(request.op == TraceOp::Write);
        Self { sector: request.extent.start.0, size_and_op: request.extent.len.0 << 1 | write }
    }
}

/// Multiplication and a fold: addresses need no more, and this runs once a request.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Original {
    at: Time,
    discard: bool,
}

/// Drops echoes, and handles discards as the options say.
pub(crate) struct MobileStage {
    source: BoxedSource,
    echoes: Echoes,
    discards: MobileDiscards,
    originals: HashMap<Key, Original, BuildHasherDefault<AddressHasher>>,
    ages: VecDeque<(Time, Key)>,
    dropped: u64,
}

impl MobileStage {
    pub(crate) fn new(source: BoxedSource, echoes: Echoes, discards: MobileDiscards) -> Self {
        Self {
            source,
            echoes,
            discards,
            originals: HashMap::default(),
            ages: VecDeque::new(),
            dropped: 0,
        }
    }

    fn forget_old(&mut self, now: Time) {
        while let Some(&(at, key)) = self.ages.front() {
            if now.since(at) <= ECHO_WINDOW && self.ages.len() < MAX_REMEMBERED {
                break;
            }
            self.ages.pop_front();
            // The key may stand for a younger original by now.
            if let Entry::Occupied(original) = self.originals.entry(key)
                && original.get().at == at
            {
                original.remove();
            }
        }
    }

    /// The original that `request` echoes, if any; else remembers `request` as an original.
    fn original_of(&mut self, request: &TraceRequest) -> Option<Original> {
        self.forget_old(request.at);
        let key = Key::of(request);
        match self.originals.entry(key) {
            Entry::Occupied(original) => Some(original.remove()),
            Entry::Vacant(place) => {
                let discard = request.op == TraceOp::Discard;
                place.insert(Original { at: request.at, discard });
                self.ages.push_back((request.at, key));
                None
            }
        }
    }

    /// The request as it should be replayed; `None` to drop it.
    fn settle(&mut self, mut request: TraceRequest) -> Option<TraceRequest> {
        if let Some(original) = self.original_of(&request) {
            if self.echoes == Echoes::Drop {
                self.dropped += 1;
                return None;
            }
            // The echo of a discard carries another thread's name.
            if original.discard {
                request.op = TraceOp::Discard;
            }
        }
        match (request.op, self.discards) {
            (TraceOp::Discard, MobileDiscards::Drop) => None,
            (TraceOp::Discard, MobileDiscards::AsRead) => {
                Some(TraceRequest { op: TraceOp::Read, ..request })
            }
            _ => Some(request),
        }
    }
}

impl TraceSource for MobileStage {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        loop {
            match self.source.next_request()? {
                Ok(request) => {
                    if let Some(request) = self.settle(request) {
                        return Some(Ok(request));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts { echoes: self.dropped, ..SourceCounts::default() }.plus(self.source.counts())
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}
