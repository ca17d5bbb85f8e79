//! SPC: `ASU,LBA,Size,Opcode,Timestamp[,...]`.
//!
//! LBA in 512-byte blocks of its ASU, size in bytes, timestamp in seconds.

use manylogs_block::Sectors;

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
        let asu = fields.number_u32("an ASU number as field 1")?;
        let lba = fields.number("an LBA as field 2")?;
        let size = Sectors::from_bytes_ceil(fields.number("a size in bytes as field 3")?);
        let op = match fields.field("r or w as field 4")? {
            b"r" | b"R" => TraceOp::Read,
            b"w" | b"W" => TraceOp::Write,
            other => return Err(fault("r or w as field 4", other)),
        };
        let at = fields.time(TimeUnit::Seconds, "a time in seconds as field 5")?;
        plain(at, op, text::sector_extent(lba, size.0)?, asu)
    }
}
