//! Room is set aside for an entry before the entry is accepted. So an accepted entry never waits
//! for room.

use std::ops::{Add, AddAssign, SubAssign};

use crate::{DataSequence, Entry, EntryKind, Headers, RecordShape, header_bytes, units_in};
use manylogs_block::{Extent, Sectors, to_usize};

use crate::ondisk::nvram::entry_len;

/// Room for records: in the logs, and in non-volatile RAM if headers are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room {
    /// Sectors in a log, header and padding included.
    pub log: Sectors,
    /// Bytes for headers in non-volatile RAM, if they are kept apart.
    pub apart_bytes: u64,
}

impl Room {
    /// Room of a record with these entries.
    pub fn of(entries: &[Entry], shape: RecordShape) -> Self {
        let log = shape.measure(entries).1;
        let apart_bytes = match shape.headers {
            Headers::InLog => 0,
            Headers::Apart => {
                entry_len(header_bytes(entries.len(), to_usize(units_in(entries)))) as u64
            }
        };
        Self { log, apart_bytes }
    }

    /// Room of an entry in a record of its own.
    pub fn of_one(kind: EntryKind, extent: Extent, shape: RecordShape) -> Self {
        Self::of(&[Entry::new(extent, DataSequence(0), kind)], shape)
    }
}

impl Add for Room {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { log: self.log + other.log, apart_bytes: self.apart_bytes + other.apart_bytes }
    }
}

impl AddAssign for Room {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Room {
    fn sub_assign(&mut self, other: Self) {
        self.log = self.log - other.log;
        self.apart_bytes -= other.apart_bytes;
    }
}
