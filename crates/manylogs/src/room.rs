//! What is set aside for an entry before it is accepted, so that it never waits for room.

use std::ops::{Add, AddAssign, SubAssign};

use manylogs_block::{Extent, Sectors, to_usize};
use manylogs_logstore::{
    DataSequence, Entry, EntryKind, Headers, RecordShape, header_bytes, units_in,
};

use crate::config::EngineConfig;
use crate::ondisk::nvram::entry_len;
use crate::state::Inner;

/// Room for records: in the logs, and where their headers are kept apart, in non-volatile RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) log: Sectors,
    /// Bytes.
    pub(crate) nvram: u64,
}

impl Room {
    /// What a record of these entries takes.
    pub(crate) fn of(entries: &[Entry], shape: RecordShape) -> Self {
        let log = shape.measure(entries).1;
        let nvram = match shape.headers {
            Headers::InLog => 0,
            Headers::Apart => {
                entry_len(header_bytes(entries.len(), to_usize(units_in(entries)))) as u64
            }
        };
        Self { log, nvram }
    }

    /// What an entry takes in a record of its own.
    pub(crate) fn of_one(kind: EntryKind, extent: Extent, shape: RecordShape) -> Self {
        Self::of(&[Entry { extent, data_sequence: DataSequence(0), kind }], shape)
    }
}

impl Add for Room {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { log: self.log + other.log, nvram: self.nvram + other.nvram }
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
        self.nvram -= other.nvram;
    }
}

impl Inner {
    /// The parameters as they are now.
    pub(crate) fn config(&self) -> EngineConfig {
        self.config.get()
    }

    /// No entry needs more than this for a record of its own.
    pub(crate) fn largest_record(&self) -> Room {
        largest_record(&self.config(), self.shape)
    }

    /// What a record with this entry alone takes: what is reserved for it.
    pub(crate) fn record_room(&self, kind: EntryKind, extent: Extent) -> Room {
        Room::of_one(kind, extent, self.shape)
    }
}

/// What the largest entry that `config` lets into a log needs for a record of its own.
pub(crate) fn largest_record(config: &EngineConfig, shape: RecordShape) -> Room {
    // The edges of an unaligned bypass are logged too, whatever the threshold.
    let longest = Sectors(config.threshold.0.max(shape.physical.0));
    Room::of_one(EntryKind::Data, Extent { len: longest, ..Extent::default() }, shape)
}
