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
        let mut field = |expected| fields.field(expected).map(|field| (field, expected));
        let (at, expected) = field("a time in seconds as field 1")?;
        let at = text::time(at, TimeUnit::Seconds, expected)?;
        let (offset, expected) = field("an offset in sectors as field 2")?;
        let offset = text::number(offset, expected)?;
        let (size, expected) = field("a size in sectors as field 3")?;
        let size = text::number(size, expected)?;
        let op = match field("0 (read) or 1 (write) as field 4")?.0 {
            b"0" => TraceOp::Read,
            b"1" => TraceOp::Write,
            other => return Err(fault("0 (read) or 1 (write) as field 4", other)),
        };
        let (volume, expected) = field("a volume number as field 5")?;
        let volume = text::number_u32(volume, expected)?;
        plain(at, op, text::sector_extent(offset, size)?, volume)
    }
}
