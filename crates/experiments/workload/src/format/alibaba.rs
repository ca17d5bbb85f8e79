//! Alibaba cloud (2020): `device_id,opcode,offset_bytes,length_bytes,timestamp_us`, no header.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::text::{self, commas};

pub(crate) struct Alibaba;

impl LineDecoder for Alibaba {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) || line.starts_with(b"device_id") {
            return Ok(Decoded::Nothing);
        }
        let mut fields = commas(line);
        let device = fields.number_u32("a device id as field 1")?;
        let op = match fields.plain_op() {
            Some(op) => op,
            None => return Err(fault("R or W as field 2", fields.field("R or W as field 2")?)),
        };
        let offset = fields.number("an offset in bytes as field 3")?;
        let length = fields.number("a length in bytes as field 4")?;
        let at = fields.time(TimeUnit::Microseconds, "a time in microseconds as field 5")?;
        plain(at, op, text::byte_extent(offset, length)?, device)
    }
}
