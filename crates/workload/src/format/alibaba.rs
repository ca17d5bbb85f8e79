//! Alibaba cloud (2020): `device_id,opcode,offset_bytes,length_bytes,timestamp_us`, no header.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::request::TraceOp;
use crate::text::{self, commas};

pub(crate) struct Alibaba;

impl LineDecoder for Alibaba {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) || line.starts_with(b"device_id") {
            return Ok(Decoded::Nothing);
        }
        let mut fields = commas(line);
        let mut field = |expected| fields.field(expected).map(|field| (field, expected));
        let (device, expected) = field("a device id as field 1")?;
        let device = text::number_u32(device, expected)?;
        let op = match field("R or W as field 2")?.0 {
            b"R" => TraceOp::Read,
            b"W" => TraceOp::Write,
            other => return Err(fault("R or W as field 2", other)),
        };
        let (offset, expected) = field("an offset in bytes as field 3")?;
        let offset = text::number(offset, expected)?;
        let (length, expected) = field("a length in bytes as field 4")?;
        let length = text::number(length, expected)?;
        let (at, expected) = field("a time in microseconds as field 5")?;
        let at = text::time(at, TimeUnit::Microseconds, expected)?;
        plain(at, op, text::byte_extent(offset, length)?, device)
    }
}
