//! CloudPhysics vSCSI, little-endian records of a fixed size.
//!
//! Version 1, 32 bytes: sn u32, len u32 (bytes), nSG u32, cmd u16, ver u16, lbn u64 (sectors),
//! ts u64 (microseconds). Version 2, 40 bytes: cmd u16, ver u16, sn u32, len u32, nSG u32,
//! lbn u64, ts u64, rt u64. The high byte of ver is the version.

use manylogs_block::{Sectors, Time};

use crate::bytes::{u32_at, u64_at};
use crate::error::{Fault, TraceError, fault};
use crate::input::Input;
use crate::request::{SourceCounts, TraceOp, TraceRequest, TraceSource};
use crate::text;

const V1_BYTES: usize = 32;
const V2_BYTES: usize = 40;

/// Offsets of the fields in a record of one version.
pub(crate) struct RecordLayout {
    pub(crate) bytes: usize,
    pub(crate) version: u8,
    pub(crate) cmd: usize,
    pub(crate) ver: usize,
    pub(crate) sn: usize,
    pub(crate) len: usize,
    pub(crate) lbn: usize,
    pub(crate) ts: usize,
}

pub(crate) const V1: RecordLayout =
    RecordLayout { bytes: V1_BYTES, version: 1, cmd: 12, ver: 14, sn: 0, len: 4, lbn: 16, ts: 24 };
pub(crate) const V2: RecordLayout =
    RecordLayout { bytes: V2_BYTES, version: 2, cmd: 0, ver: 2, sn: 4, len: 8, lbn: 16, ts: 24 };

/// The version whose records `beginning` holds, if any: 1 or 2.
pub(crate) fn probe(beginning: &[u8]) -> Option<u8> {
    const PROBED_RECORDS: usize = 8;
    [&V1, &V2].into_iter().find_map(|layout| {
        let mut records = beginning.chunks_exact(layout.bytes).take(PROBED_RECORDS).peekable();
        records.peek()?;
        let fits = records
            .all(|record| record[layout.ver + 1] == layout.version && record[layout.cmd + 1] == 0);
        fits.then_some(layout.version)
    })
}

pub(crate) struct Vscsi {
    input: Input,
    layout: &'static RecordLayout,
    skip_bad: bool,
    counts: SourceCounts,
    done: bool,
}

impl Vscsi {
    pub(crate) fn v1(input: Input, skip_bad: bool) -> Self {
        Self { input, layout: &V1, skip_bad, counts: SourceCounts::default(), done: false }
    }

    pub(crate) fn v2(input: Input, skip_bad: bool) -> Self {
        Self { input, layout: &V2, skip_bad, counts: SourceCounts::default(), done: false }
    }

    /// One record decoded; `None` for a command that is no read or write.
    fn decode(layout: &RecordLayout, record: &[u8]) -> Result<Option<TraceRequest>, Fault> {
        if record[layout.ver + 1] != layout.version {
            let expected = if layout.version == 1 {
                "a vSCSI record of version 1"
            } else {
                "a vSCSI record of version 2"
            };
            return Err(fault(expected, record));
        }
        let op = match record[layout.cmd] {
            0x08 | 0x28 | 0x88 | 0xa8 => TraceOp::Read,
            0x0a | 0x2a | 0x8a | 0xaa => TraceOp::Write,
            _ => return Ok(None),
        };
        let len = u32_at(record, layout.len);
        let lbn = u64_at(record, layout.lbn);
        let at = u64_at(record, layout.ts)
            .checked_mul(1000)
            .ok_or_else(|| fault("a time in microseconds below 2^54", record))?;
        let sectors = Sectors::from_bytes_ceil(u64::from(len));
        let extent = text::sector_extent(lbn, sectors.0)?;
        Ok(Some(TraceRequest { at: Time(at), op, extent, fua: false, device: 0 }))
    }

    /// Ends the trace with `error`, unless it is one to be skipped; true if it is.
    fn stop_or_skip(&mut self, error: TraceError) -> Option<TraceError> {
        if self.skip_bad && !matches!(error, TraceError::Io(_)) {
            self.counts.skipped += 1;
            return None;
        }
        self.done = true;
        Some(error)
    }

    /// The next record, decoded; `Ok(None)` at the end.
    fn step(&mut self) -> Result<Option<Option<TraceRequest>>, TraceError> {
        let offset = self.input.offset();
        let record = self.input.peek(self.layout.bytes)?;
        let have = record.len();
        if have < self.layout.bytes {
            self.done = true;
            self.input.consume(have);
            return match have {
                0 => Ok(None),
                _ => Err(self.input.cut_short(offset, "a whole vSCSI record", have)),
            };
        }
        let decoded = Self::decode(self.layout, record);
        self.input.consume(self.layout.bytes);
        decoded.map(Some).map_err(|fault| self.input.bad_bytes(offset, fault))
    }
}

impl TraceSource for Vscsi {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        while !self.done {
            match self.step() {
                Ok(Some(Some(request))) if crate::lines::is_empty_transfer(&request) => {
                    self.counts.empty += 1;
                }
                Ok(Some(Some(request))) => return Some(Ok(request)),
                Ok(Some(None)) => {}
                Ok(None) => break,
                Err(error) => {
                    let truncated = matches!(error, TraceError::Truncated(_));
                    if let Some(error) = self.stop_or_skip(error) {
                        return Some(Err(error));
                    }
                    self.done |= truncated;
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
