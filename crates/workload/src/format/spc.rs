//! SPC: `ASU,LBA,Size,Opcode,Timestamp[,...]`.
//!
//! LBA in 512-byte blocks of its ASU, size in bytes, timestamp in seconds.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::request::TraceOp;
use crate::text::{self, commas};

pub(crate) struct Spc;

impl LineDecoder for Spc {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) {
            return Ok(Decoded::Nothing);
        }
        let mut fields = commas(line);
        let mut field = |expected| fields.field(expected).map(|field| (field, expected));
        let (asu, expected) = field("an ASU number as field 1")?;
        let asu = text::number_u32(asu, expected)?;
        let (lba, expected) = field("an LBA as field 2")?;
        let lba = text::number(lba, expected)?;
        let (size, expected) = field("a size in bytes as field 3")?;
        let size = manylogs_block::Sectors::from_bytes_ceil(text::number(size, expected)?);
        let op = match field("r or w as field 4")?.0 {
            b"r" | b"R" => TraceOp::Read,
            b"w" | b"W" => TraceOp::Write,
            other => return Err(fault("r or w as field 4", other)),
        };
        let (at, expected) = field("a time in seconds as field 5")?;
        let at = text::time(at, TimeUnit::Seconds, expected)?;
        plain(at, op, text::sector_extent(lba, size.0)?, asu)
    }
}
