//! blkparse text: `maj,min cpu seq time pid action rwbs sector + sectors [process]`.
//!
//! Lines of other actions are passed over; summary tables end the trace.

use crate::error::{Fault, fault};
use crate::format::fiu::dev_number;
use crate::format::rwbs::Rwbs;
use crate::lines::{Decoded, LineDecoder, is_blank};
use crate::open::{BlockEvent, TimeUnit};
use crate::request::{TraceOp, TraceRequest};
use crate::text::{self, Blanks, blanks};

use manylogs_block::{Extent, Time};

pub(crate) struct Blkparse {
    action: &'static [u8],
}

impl Blkparse {
    pub(crate) const fn new(event: BlockEvent) -> Self {
        let action: &[u8] = match event {
            BlockEvent::Queue => b"Q",
            BlockEvent::Issue => b"D",
        };
        Self { action }
    }
}

impl LineDecoder for Blkparse {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) {
            return Ok(Decoded::Nothing);
        }
        if is_summary(line) {
            return Ok(Decoded::End);
        }
        let mut fields = blanks(line);
        let device = device(fields.field("major,minor as field 1")?)?;
        fields.field("a CPU number as field 2")?;
        fields.field("a sequence number as field 3")?;
        let at = fields.field("a time in seconds as field 4")?;
        let at = text::time(at, TimeUnit::Seconds, "a time in seconds as field 4")?;
        // Messages have no process id: `8,0 1 2 0.5 m N cfq ...`.
        let pid = fields.field("a process id as field 5")?;
        if pid == b"m" || fields.field("an action letter as field 6")? != self.action {
            return Ok(Decoded::Nothing);
        }
        let rwbs = Rwbs::parse(fields.field("the operation's letters as field 7")?);
        decode_event(rwbs, Time(at), device, &mut fields)
    }
}

/// Whether the line begins the tables that blkparse prints behind the events.
fn is_summary(line: &[u8]) -> bool {
    line.starts_with(b"CPU") || line.starts_with(b"Total (") || line.starts_with(b"Throughput")
}

/// The request of an event with these letters, whose `sector + count` comes next.
pub(crate) fn decode_event(
    rwbs: Rwbs,
    at: Time,
    device: u32,
    fields: &mut Blanks<'_>,
) -> Result<Decoded, Fault> {
    let Some(op) = rwbs.op else { return Ok(Decoded::Nothing) };
    let extent = text::checked(op, extent(fields)?)?;
    if op == TraceOp::WriteZeroes && extent.is_empty() && !rwbs.pre_flush {
        // An operation of the letter N without sectors: nothing to replay.
        return Ok(Decoded::Nothing);
    }
    Ok(event(op, rwbs, TraceRequest { at, op, extent, fua: rwbs.fua, device }))
}

/// A block event as one request, or as a flush and a request.
pub(crate) fn event(op: TraceOp, rwbs: Rwbs, request: TraceRequest) -> Decoded {
    if op == TraceOp::Flush || rwbs.pre_flush && request.extent.is_empty() {
        return Decoded::Request(TraceRequest::flush(request.at, request.device));
    }
    if rwbs.pre_flush { Decoded::FlushThen(request) } else { Decoded::Request(request) }
}

/// The `sector + count` of a line; none at all means an empty extent (a flush).
fn extent(fields: &mut Blanks<'_>) -> Result<Extent, Fault> {
    let Some(sector) = fields.next().filter(|field| !field.starts_with(b"[")) else {
        return Ok(Extent::default());
    };
    let plus = fields.field("\"+ count\" behind the sector number")?;
    if plus != b"+" {
        return Err(fault("\"+ count\" behind the sector number", plus));
    }
    let count = fields.field("a count of sectors behind the +")?;
    match text::number(count, "a count of sectors behind the +")? {
        // Flushes may come with the sector number -1.
        0 => Ok(Extent::default()),
        count => text::sector_extent(text::number(sector, "a sector number")?, count),
    }
}

/// The device number of `major,minor`.
pub(crate) fn device(field: &[u8]) -> Result<u32, Fault> {
    const EXPECTED: &str = "major,minor of the device";
    let comma = memchr::memchr(b',', field).ok_or_else(|| fault(EXPECTED, field))?;
    let major = text::number_u32(&field[..comma], EXPECTED)?;
    let minor = text::number_u32(&field[comma + 1..], EXPECTED)?;
    if major > 0xfff {
        return Err(fault(EXPECTED, field));
    }
    Ok(dev_number(major, minor))
}
