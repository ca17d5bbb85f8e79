//! MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, no header.
//!
//! Times are Windows filetimes (100 ns), offset and size are in bytes.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::request::TraceOp;
use crate::text::{self, commas};

const NANOS_PER_FILETIME: u64 = 100;

pub(crate) struct Msr;

impl LineDecoder for Msr {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) || line.starts_with(b"Timestamp") {
            return Ok(Decoded::Nothing);
        }
        let mut fields = commas(line);
        const TIME: &str = "a Windows filetime as field 1";
        let filetime = fields.number(TIME)?;
        let at = filetime
            .checked_mul(NANOS_PER_FILETIME)
            .ok_or_else(|| fault(TIME, filetime.to_string().as_bytes()))?;
        fields.field("a host name as field 2")?;
        let device = fields.number_u32("a disk number as field 3")?;
        let op = match fields.field("Read or Write as field 4")? {
            b"Read" => TraceOp::Read,
            b"Write" => TraceOp::Write,
            other => return Err(fault("Read or Write as field 4", other)),
        };
        let offset = fields.number("an offset in bytes as field 5")?;
        let size = fields.number("a size in bytes as field 6")?;
        plain(at, op, text::byte_extent(offset, size)?, device)
    }
}
