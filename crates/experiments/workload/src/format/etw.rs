//! SNIA's text of Windows event traces: a header names each event's columns.
//!
//! Columns are found by name: newer recordings insert some. DiskRead, DiskWrite and DiskFlush
//! are logged at completion, so the arrival is TimeStamp - ElapsedTime (microseconds).
//! ByteOffset and IOSize are hexadecimal.

use manylogs_block::Time;

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank, plain};
use crate::open::TimeUnit;
use crate::request::{TraceOp, TraceRequest};
use crate::text::{self, commas};

/// Added to every time, so that a request that began before the trace has a positive time. Later
/// all times are made relative to the first request.
const ONE_DAY_NS: u64 = 86_400_000_000_000;
const MAX_COLUMNS: usize = 64;

/// Positions of the columns of one event type.
#[derive(Clone, Copy)]
struct Columns {
    time: usize,
    elapsed: usize,
    disk: usize,
    /// Offset and size; a flush has none.
    extent: Option<(usize, usize)>,
}

#[derive(Default)]
pub(crate) struct Etw {
    in_header: bool,
    read: Option<Columns>,
    write: Option<Columns>,
    flush: Option<Columns>,
}

impl Etw {
    fn columns_of(&mut self, event: &[u8]) -> Option<(TraceOp, &mut Option<Columns>)> {
        match event {
            b"DiskRead" => Some((TraceOp::Read, &mut self.read)),
            b"DiskWrite" => Some((TraceOp::Write, &mut self.write)),
            b"DiskFlush" => Some((TraceOp::Flush, &mut self.flush)),
            _ => None,
        }
    }

    fn header_line(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        let event = commas(line).next().unwrap_or(b"");
        let Some((op, slot)) = self.columns_of(event) else { return Ok(Decoded::Nothing) };
        let place = |name: &[u8], expected| {
            let found = commas(line).take(MAX_COLUMNS).position(|field| field == name);
            found.ok_or_else(|| fault(expected, line))
        };
        let extent = if op == TraceOp::Flush {
            None
        } else {
            let offset = place(b"ByteOffset", "a ByteOffset column")?;
            Some((offset, place(b"IOSize", "an IOSize column")?))
        };
        *slot = Some(Columns {
            time: place(b"TimeStamp", "a TimeStamp column")?,
            elapsed: place(b"ElapsedTime", "an ElapsedTime column")?,
            disk: place(b"DiskNum", "a DiskNum column")?,
            extent,
        });
        Ok(Decoded::Nothing)
    }
}

impl LineDecoder for Etw {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        let line = text::trim(line);
        if is_blank(line) {
            return Ok(Decoded::Nothing);
        }
        if line == b"BeginHeader" || line == b"EndHeader" {
            self.in_header = line == b"BeginHeader";
            return Ok(Decoded::Nothing);
        }
        if self.in_header {
            return self.header_line(line);
        }
        let event = commas(line).next().unwrap_or(b"");
        let Some((op, columns)) = self.columns_of(event) else { return Ok(Decoded::Nothing) };
        let Some(columns) = *columns else {
            return Err(fault(
                "a header (BeginHeader ... EndHeader) that names its columns",
                event,
            ));
        };
        data_line(line, op, columns)
    }
}

fn data_line(line: &[u8], op: TraceOp, columns: Columns) -> Result<Decoded, Fault> {
    let mut found = [None; MAX_COLUMNS];
    for (slot, field) in found.iter_mut().zip(commas(line)) {
        *slot = Some(field);
    }
    let get = |place: usize, expected| found[place].ok_or_else(|| fault(expected, line));
    let micros =
        |place, expected| text::time(get(place, expected)?, TimeUnit::Microseconds, expected);
    let completed = micros(columns.time, "a TimeStamp in microseconds")?;
    let elapsed = micros(columns.elapsed, "an ElapsedTime in microseconds")?;
    let at = completed.saturating_add(ONE_DAY_NS).saturating_sub(elapsed);
    const DISK: &str = "a DiskNum";
    let disk = text::number_u32(get(columns.disk, DISK)?, DISK)?;
    let Some((offset, size)) = columns.extent else {
        return Ok(Decoded::Request(TraceRequest::flush(Time(at), disk)));
    };
    const OFFSET: &str = "a hexadecimal ByteOffset";
    const SIZE: &str = "a hexadecimal IOSize";
    let offset = text::hexadecimal(get(offset, OFFSET)?, OFFSET)?;
    let size = text::hexadecimal(get(size, SIZE)?, SIZE)?;
    plain(at, op, text::byte_extent(offset, size)?, disk)
}
