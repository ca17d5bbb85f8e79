//! CSV whose first line names the columns, among them the Q-event export `t_us,op,dev,offset,size`.
//!
//! Needed: a time, an operation, an address and a size. A device and a FUA column are used if
//! there. The table below has the known names and their units.

use crate::error::{Fault, fault};
use crate::lines::{Decoded, LineDecoder, is_blank};
use crate::open::TimeUnit;
use crate::request::{TraceOp, TraceRequest};
use crate::text::{self, Separated, commas};

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

/// Meaning of a column without its unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Time,
    Op,
    Offset,
    Size,
    Device,
    Fua,
}

impl Column {
    const fn meaning(self) -> Meaning {
        match self {
            Self::Time(_) => Meaning::Time,
            Self::Op => Meaning::Op,
            Self::OffsetBytes | Self::OffsetSectors => Meaning::Offset,
            Self::SizeBytes | Self::SizeSectors => Meaning::Size,
            Self::Device => Meaning::Device,
            Self::Fua => Meaning::Fua,
        }
    }
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

/// Only this number of leading columns is looked at.
const MAX_COLUMNS: usize = 32;

fn column(name: &[u8]) -> Option<Column> {
    NAMES.iter().find_map(|&(column, names)| {
        names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name)).then_some(column)
    })
}

/// What each field of a line is; fields without a use are `None`.
struct Columns {
    fields: Vec<Option<Column>>,
}

impl Columns {
    fn of(header: &[u8]) -> Option<Self> {
        let header = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(header);
        let mut fields: Vec<Option<Column>> = Vec::new();
        for name in commas(header).take(MAX_COLUMNS) {
            // Of two columns with the same meaning the first is used.
            let found = column(name).filter(|new| {
                let same = |old: &Column| old.meaning() == new.meaning();
                !fields.iter().flatten().any(same)
            });
            fields.push(found);
        }
        let has = |meaning| fields.iter().flatten().any(|column| column.meaning() == meaning);
        if !(has(Meaning::Time) && has(Meaning::Op) && has(Meaning::Offset) && has(Meaning::Size)) {
            return None;
        }
        while fields.last() == Some(&None) {
            fields.pop();
        }
        Some(Self { fields })
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
        for column in columns.fields.iter_mut().flatten() {
            if let (Column::Time(unit), Some(forced)) = (column, self.unit) {
                *unit = forced;
            }
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
        let Some(columns) = &self.columns else { return self.header(line) };
        let mut values = Values::default();
        let mut fields = commas(line);
        for column in &columns.fields {
            match column {
                Some(column) => values.set(*column, &mut fields)?,
                None => drop(fields.next()),
            }
        }
        values.request()
    }
}

/// Values of a line that were read so far.
#[derive(Default)]
struct Values {
    at_ns: u64,
    op: Option<TraceOp>,
    offset: u64,
    size: u64,
    device: u32,
    fua: bool,
}

impl Values {
    /// Reads the next field according to its column.
    fn set(&mut self, column: Column, fields: &mut Separated<'_>) -> Result<(), Fault> {
        match column {
            Column::Time(unit) => {
                self.at_ns = fields.time(unit, "a time in the unit of its column")?;
            }
            Column::Op => {
                self.op = Some(match fields.plain_op() {
                    Some(op) => op,
                    None => op_of(fields.field("an operation")?)?,
                });
            }
            Column::OffsetBytes => self.offset = self.address(fields, 1, "an offset in bytes")?,
            Column::OffsetSectors => {
                self.offset = self.address(fields, SECTOR_BYTES, "a sector number")?;
            }
            Column::SizeBytes => self.size = self.address(fields, 1, "a size in bytes")?,
            Column::SizeSectors => {
                self.size = self.address(fields, SECTOR_BYTES, "a size in sectors")?;
            }
            Column::Device => self.device = fields.number_u32("a device number")?,
            Column::Fua => self.fua = fields.field("a FUA column")? == b"1",
        }
        Ok(())
    }

    /// The next field in bytes; a flush may leave it empty.
    fn address(
        &self,
        fields: &mut Separated<'_>,
        unit: u64,
        expected: &'static str,
    ) -> Result<u64, Fault> {
        let before = fields.clone();
        let value = match fields.number(expected) {
            Err(_) if self.op == Some(TraceOp::Flush) => {
                // Skips a field without a use.
                *fields = before;
                fields.field(expected)?;
                0
            }
            result => result?,
        };
        value.checked_mul(unit).ok_or_else(|| fault(expected, value.to_string().as_bytes()))
    }

    fn request(self) -> Result<Decoded, Fault> {
        let op = self.op.ok_or_else(|| fault("an operation", b""))?;
        let (at, device) = (Time(self.at_ns), self.device);
        if op == TraceOp::Flush {
            return Ok(Decoded::Request(TraceRequest::flush(at, device)));
        }
        let extent = text::checked(op, text::byte_extent(self.offset, self.size)?)?;
        Ok(Decoded::Request(TraceRequest { at, op, extent, fua: self.fua, device }))
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
