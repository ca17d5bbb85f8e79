//! DiskSim ascii: `arrival device lba size op`, in sectors, op 1 = read, 0 = write.
//!
//! DiskSim writes arrivals in milliseconds, SSDsim and MQSim in nanoseconds; nothing in the
//! file tells which.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::request::TraceOp;
use crate::text::{self, blanks};

pub(crate) struct DiskSim {
    unit: TimeUnit,
}

impl DiskSim {
    pub(crate) const fn new(unit: TimeUnit) -> Self {
        Self { unit }
    }
}

impl LineDecoder for DiskSim {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) {
            return Ok(Decoded::Nothing);
        }
        let [at, device, lba, size, op] = five_numbers(line, self.unit)?;
        let op = op_of(op)?;
        let device = device_of(device)?;
        plain(at, op, text::sector_extent(lba, size)?, device)
    }
}

/// The five fields that DiskSim and replay text share: the time in nanoseconds, then as written.
pub(crate) fn five_numbers(line: &[u8], unit: TimeUnit) -> Result<[u64; 5], Fault> {
    const EXPECTED: [&str; 5] = [
        "an arrival time as field 1",
        "a device number as field 2",
        "an address as field 3",
        "a size as field 4",
        "1 (read) or 0 (write) as field 5",
    ];
    let mut fields = blanks(line);
    let mut values = [0; 5];
    values[0] = text::time(fields.field(EXPECTED[0])?, unit, EXPECTED[0])?;
    for (value, expected) in values.iter_mut().zip(EXPECTED).skip(1) {
        *value = text::number(fields.field(expected)?, expected)?;
    }
    Ok(values)
}

/// The operation of an op column: 1 is a read, 0 a write.
pub(crate) fn op_of(op: u64) -> Result<TraceOp, Fault> {
    match op {
        1 => Ok(TraceOp::Read),
        0 => Ok(TraceOp::Write),
        other => Err(fault("1 (read) or 0 (write)", other.to_string().as_bytes())),
    }
}

/// A device number as 32 bits.
pub(crate) fn device_of(device: u64) -> Result<u32, Fault> {
    u32::try_from(device)
        .map_err(|_| fault("a device number below 2^32", device.to_string().as_bytes()))
}
