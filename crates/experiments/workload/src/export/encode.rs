//! The trait of encoders, and the encoder of each format.

use manylogs_block::{SECTOR_BYTES, Sectors, Time};

use super::binary::{Blktrace, Vscsi};
use super::text;
use crate::format::Format;
use crate::request::{TraceOp, TraceRequest};

/// The properties of requests that a format can hold.
pub(super) struct Holds {
    /// The operations it knows.
    pub(super) ops: &'static [TraceOp],
    /// Whether it marks writes that are durable when they are answered.
    pub(super) fua: bool,
    /// The longest request.
    pub(super) longest: Sectors,
}

/// Time and device of a request as they are written.
pub(super) struct Kept {
    pub(super) at: Time,
    pub(super) device: u32,
}

/// A format as a sequence of records behind a head.
pub(super) trait Encode {
    /// The bytes before the first record.
    fn head(&self) -> &'static [u8] {
        b""
    }

    /// The properties that the format can hold.
    fn holds(&self) -> &'static Holds;

    /// Appends the request's record to `out`. The format knows the operation and the length.
    fn encode(&mut self, request: &TraceRequest, out: &mut Vec<u8>) -> Kept;
}

pub(super) const READS_AND_WRITES: &[TraceOp] = &[TraceOp::Read, TraceOp::Write];
pub(super) const ALL_BUT_ZEROES: &[TraceOp] =
    &[TraceOp::Read, TraceOp::Write, TraceOp::Discard, TraceOp::Flush];
/// No limit: readers take any length.
pub(super) const ANY_LENGTH: Sectors = Sectors(u64::MAX);
/// The longest length that 32 bits can hold in bytes.
pub(super) const LENGTH_OF_32_BITS: Sectors = Sectors(u32::MAX as u64 / SECTOR_BYTES);

/// The encoder of this format; `None` for one that is only read, and for our own.
pub(super) fn encoder(format: Format) -> Option<Box<dyn Encode + Send>> {
    let line = |line| -> Option<Box<dyn Encode + Send>> { Some(Box::new(line)) };
    match format {
        Format::Blktrace => Some(Box::<Blktrace>::default()),
        Format::Vscsi1 => Some(Box::new(Vscsi::v1())),
        Format::Vscsi2 => Some(Box::new(Vscsi::v2())),
        Format::FioIolog2 => Some(Box::<text::Iolog2>::default()),
        Format::FioIolog3 => Some(Box::<text::Iolog3>::default()),
        Format::Csv => line(text::CSV),
        Format::Blkparse => line(text::BLKPARSE),
        Format::Msr => line(text::MSR),
        Format::Spc => line(text::SPC),
        Format::DiskSim => line(text::DISKSIM),
        Format::Replay => line(text::REPLAY),
        Format::Alibaba => line(text::ALIBABA),
        Format::Tencent => line(text::TENCENT),
        Format::Fiu => line(text::FIU),
        Format::Manylogs | Format::Etw | Format::Mobile => None,
    }
}
