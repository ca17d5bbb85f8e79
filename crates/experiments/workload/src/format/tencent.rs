//! Tencent CBS: `Timestamp,Offset,Size,IOType,VolumeID`, no header.
//!
//! Times in whole seconds, offset and size in sectors, IOType **0 = read, 1 = write**.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::request::TraceOp;
use crate::text::{self, commas};

pub(crate) struct Tencent;

impl LineDecoder for Tencent {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) || line.starts_with(b"Timestamp") {
            return Ok(Decoded::Nothing);
        }
        let mut fields = commas(line);
        let at = fields.time(TimeUnit::Seconds, "a time in seconds as field 1")?;
        let offset = fields.number("an offset in sectors as field 2")?;
        let size = fields.number("a size in sectors as field 3")?;
        let op = match fields.field("0 (read) or 1 (write) as field 4")? {
            b"0" => TraceOp::Read,
            b"1" => TraceOp::Write,
            other => return Err(fault("0 (read) or 1 (write) as field 4", other)),
        };
        let volume = fields.number_u32("a volume number as field 5")?;
        plain(at, op, text::sector_extent(offset, size)?, volume)
    }
}
