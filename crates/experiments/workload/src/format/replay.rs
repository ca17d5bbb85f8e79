//! Replay text: `arrival_ms device offset_bytes size_bytes op`, op 1 = read, 0 = write.

use crate::error::Fault;
use crate::format::disksim::{device_of, five_numbers, op_of};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::text;

pub(crate) struct Replay {
    unit: TimeUnit,
}

impl Replay {
    pub(crate) const fn new(unit: TimeUnit) -> Self {
        Self { unit }
    }
}

impl LineDecoder for Replay {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) {
            return Ok(Decoded::Nothing);
        }
        let [at, device, offset, size, op] = five_numbers(line, self.unit)?;
        let op = op_of(op)?;
        let device = device_of(device)?;
        plain(at, op, text::byte_extent(offset, size)?, device)
    }
}
