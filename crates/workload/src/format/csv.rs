//! CSV whose first line names the columns, among them the Q-event export `t_us,op,dev,offset,size`.
//!
//! Needed: a time, an operation, an address and a size. A device and a FUA column are used if
//! there. Which names are known, and their units, is the table below.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank};
use crate::open::TimeUnit;
use crate::request::{TraceOp, TraceRequest};
use crate::text::{self, commas};

use manylogs_block::{SECTOR_BYTES, Time};

/// What a column means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Time(TimeUnit),
    Op,
    OffsetBytes,
    OffsetSectors,
    SizeBytes,
    SizeSectors,
    Device,
    Fua,
}

const NAMES: &[(Column, &[&str])] = &[
    (Column::Time(TimeUnit::Seconds), &["t_s", "time_s", "timestamp_s", "time", "timestamp", "t"]),
    (Column::Time(TimeUnit::Milliseconds), &["t_ms", "time_ms", "timestamp_ms", "ts_ms"]),
    (Column::Time(TimeUnit::Microseconds), &["t_us", "time_us", "timestamp_us", "ts_us"]),
    (Column::Time(TimeUnit::Nanoseconds), &["t_ns", "time_ns", "timestamp_ns", "ts_ns"]),
    (Column::Op, &["op", "rw", "rw_flag", "type", "opcode", "iotype", "io_type", "action"]),
    (Column::OffsetBytes, &["offset", "offset_bytes", "byte_offset", "byteoffset"]),
    (Column::OffsetSectors, &["lba", "lbn", "sector", "offset_sectors"]),
    (Column::SizeBytes, &["size", "size_bytes", "length", "length_bytes", "len", "bytes"]),
    (Column::SizeSectors, &["sectors", "nr_sectors", "size_sectors", "length_sectors"]),
    (Column::Device, &["dev", "device", "device_id", "disk", "lun", "volume", "volume_id", "asu"]),
    (Column::Fua, &["fua"]),
];

/// The columns used lie among the first so many.
const MAX_COLUMNS: usize = 32;

fn column(name: &[u8]) -> Option<Column> {
    NAMES.iter().find_map(|&(column, names)| {
        names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name)).then_some(column)
    })
}

/// Where the columns are, by their position in the line.
#[derive(Clone, Copy)]
struct Columns {
    time: (usize, TimeUnit),
    op: usize,
    /// Position, and the bytes in its unit.
    offset: (usize, u64),
    size: (usize, u64),
    device: Option<usize>,
    fua: Option<usize>,
}

impl Columns {
    fn of(header: &[u8]) -> Option<Self> {
        let header = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(header);
        let named: Vec<Option<Column>> = commas(header).take(MAX_COLUMNS).map(column).collect();
        let place = |wanted| named.iter().position(|&column| column == Some(wanted));
        let either = |bytes, sectors| {
            let in_bytes = place(bytes).map(|place| (place, 1));
            in_bytes.or(place(sectors).map(|place| (place, SECTOR_BYTES)))
        };
        let time = named.iter().enumerate().find_map(|(place, column)| match column {
            Some(Column::Time(unit)) => Some((place, *unit)),
            _ => None,
        });
        Some(Self {
            time: time?,
            op: place(Column::Op)?,
            offset: either(Column::OffsetBytes, Column::OffsetSectors)?,
            size: either(Column::SizeBytes, Column::SizeSectors)?,
            device: place(Column::Device),
            fua: place(Column::Fua),
        })
    }
}

/// Whether `line` names enough columns.
pub(crate) fn probe(line: &[u8]) -> bool {
    Columns::of(line).is_some()
}

pub(crate) struct NamedCsv {
    unit: Option<TimeUnit>,
    columns: Option<Columns>,
}

impl NamedCsv {
    pub(crate) const fn new(unit: Option<TimeUnit>) -> Self {
        Self { unit, columns: None }
    }

    fn header(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        const EXPECTED: &str = "a first line that names time, op, offset and size columns \
             (for example t_us,op,device,offset_bytes,size_bytes)";
        let mut columns = Columns::of(line).ok_or_else(|| fault(EXPECTED, line))?;
        if let Some(unit) = self.unit {
            columns.time.1 = unit;
        }
        self.columns = Some(columns);
        Ok(Decoded::Nothing)
    }
}

impl LineDecoder for NamedCsv {
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault> {
        if is_blank(line) {
            return Ok(Decoded::Nothing);
        }
        let Some(columns) = self.columns else { return self.header(line) };
        let mut found = [None; MAX_COLUMNS];
        for (slot, field) in found.iter_mut().zip(commas(line)) {
            *slot = Some(field);
        }
        let get = |place: usize, expected| found[place].ok_or_else(|| fault(expected, line));
        let at = get(columns.time.0, "a time column")?;
        let at = text::time(at, columns.time.1, "a time in the unit of its column")?;
        let op = op_of(get(columns.op, "an operation column")?)?;
        let device = match columns.device {
            Some(place) => text::number_u32(get(place, "a device column")?, "a device number")?,
            None => 0,
        };
        if op == TraceOp::Flush {
            return Ok(Decoded::Request(TraceRequest::flush(Time(at), device)));
        }
        let bytes = |(place, unit): (usize, u64), expected| {
            let field = get(place, expected)?;
            let value = text::number(field, expected)?;
            value.checked_mul(unit).ok_or_else(|| fault(expected, field))
        };
        let offset = bytes(columns.offset, "an offset")?;
        let size = bytes(columns.size, "a size")?;
        let extent = text::checked(op, text::byte_extent(offset, size)?)?;
        let fua = columns.fua.and_then(|place| found[place]) == Some(b"1");
        Ok(Decoded::Request(TraceRequest { at: Time(at), op, extent, fua, device }))
    }
}

/// The operation by its usual names; numbers are refused, for traces disagree about them.
fn op_of(field: &[u8]) -> Result<TraceOp, Fault> {
    let is = |names: &[&str]| names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(field));
    match field {
        b"R" => Ok(TraceOp::Read),
        b"W" => Ok(TraceOp::Write),
        _ if is(&["r", "read"]) => Ok(TraceOp::Read),
        _ if is(&["w", "write"]) => Ok(TraceOp::Write),
        _ if is(&["d", "discard", "trim", "unmap"]) => Ok(TraceOp::Discard),
        _ if is(&["z", "wz", "write_zeroes", "zero"]) => Ok(TraceOp::WriteZeroes),
        _ if is(&["f", "flush", "sync"]) => Ok(TraceOp::Flush),
        other => {
            Err(fault("read, write, discard, write_zeroes or flush (or R, W, D, Z, F)", other))
        }
    }
}
