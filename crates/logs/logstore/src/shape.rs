//! Lengths of records, and the parts of records that lie in the log.

use manylogs_block::{Sectors, to_usize};

use crate::{ENTRY_BYTES, Entry, HEADER_BYTES};

/// Where a volume keeps the headers of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// In front of the payload: each record proves itself.
    InLog,
    /// Elsewhere: the log holds payload only. A record without payload takes no room in it.
    Apart,
}

/// Parameters that determine the length of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordShape {
    /// Records are whole sectors of this length.
    pub physical: Sectors,
    /// Headers in the log are whole multiples of this length. A short header shares its physical
    /// sector with the first part of the payload.
    pub header_unit: Sectors,
    /// Place of the headers.
    pub headers: Headers,
}

impl RecordShape {
    /// Records with their headers in the log; each header fills physical sectors of its own.
    #[must_use]
    pub const fn in_log(physical: Sectors) -> Self {
        Self { physical, header_unit: physical, headers: Headers::InLog }
    }

    /// Records with their headers in the log; the headers are whole logical sectors only.
    #[must_use]
    pub const fn short_headers(physical: Sectors) -> Self {
        Self { header_unit: Sectors(1), ..Self::in_log(physical) }
    }

    /// Records whose headers are not in the log.
    #[must_use]
    pub const fn apart(physical: Sectors) -> Self {
        Self { headers: Headers::Apart, ..Self::in_log(physical) }
    }

    /// Lengths in the log of the header, and of the whole record, with these entries.
    #[must_use]
    pub fn measure(self, entries: &[Entry]) -> (Sectors, Sectors) {
        let data = entries.iter().map(Entry::payload_sectors);
        let payload = data.fold(Sectors(0), |sum, len| sum + len);
        self.len_of(entries.len(), units_in(entries), payload)
    }

    /// As [`RecordShape::measure`], from counts alone.
    #[must_use]
    pub fn len_of(self, entries: usize, units: u64, payload: Sectors) -> (Sectors, Sectors) {
        let header = match self.headers {
            Headers::InLog => {
                let bytes = header_bytes(entries, to_usize(units));
                let len = Sectors::from_bytes_ceil(bytes as u64);
                Sectors(len.0.next_multiple_of(self.header_unit.0))
            }
            Headers::Apart => Sectors(0),
        };
        (header, self.round_up(header + payload))
    }

    fn round_up(self, len: Sectors) -> Sectors {
        Sectors(len.0.next_multiple_of(self.physical.0))
    }
}

/// Units of payload of a record of `entries`; each has its own checksum.
#[must_use]
pub fn units_in(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.payload_sectors().0.div_ceil(8)).sum()
}

/// Bytes of a header, not padded.
#[must_use]
pub const fn header_bytes(entries: usize, units: usize) -> usize {
    HEADER_BYTES + entries * ENTRY_BYTES + units * 4
}
