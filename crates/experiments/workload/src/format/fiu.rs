//! FIU: `ts_ns pid process lba size_sectors W|R major minor md5`, blank-separated.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::request::TraceOp;
use crate::text::{self, blanks};

pub(crate) struct Fiu;

impl LineDecoder for Fiu {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) {
            return Ok(Decoded::Nothing);
        }
        let mut fields = blanks(line);
        let mut field = |expected| fields.field(expected).map(|field| (field, expected));
        let (at, expected) = field("a time in nanoseconds as field 1")?;
        let at = text::time(at, TimeUnit::Nanoseconds, expected)?;
        field("a process id as field 2")?;
        field("a process name as field 3")?;
        let (lba, expected) = field("a sector number as field 4")?;
        let lba = text::number(lba, expected)?;
        let (size, expected) = field("a size in sectors as field 5")?;
        let size = text::number(size, expected)?;
        let op = match field("R or W as field 6")?.0 {
            b"R" => TraceOp::Read,
            b"W" => TraceOp::Write,
            other => return Err(fault("R or W as field 6", other)),
        };
        let (major, expected) = field("a major number as field 7")?;
        let major = text::number_u32(major, expected)?;
        let (minor, expected) = field("a minor number as field 8")?;
        let minor = text::number_u32(minor, expected)?;
        plain(at, op, text::sector_extent(lba, size)?, dev_number(major, minor))
    }
}

/// The kernel's device number of a major and a minor number.
pub(crate) const fn dev_number(major: u32, minor: u32) -> u32 {
    major << 20 | minor & 0xf_ffff
}
