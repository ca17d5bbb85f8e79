//! The input of an append to a log, and its result.

use manylogs_block::{Extent, Payload};
use smallvec::SmallVec;

use crate::{DataSequence, LogOffset, Record, RecordSequence, VolumeId};

/// Where the payload of each data entry of a record begins in its log. Most records are short.
pub type Offsets = SmallVec<[LogOffset; 4]>;
/// The checksums of a record's payload, unit by unit.
pub type UnitChecksums = SmallVec<[u32; 8]>;
/// The payload of each data entry of a record.
pub type Payloads = SmallVec<[Payload; 2]>;

/// A record with its place in the log, ready to be written.
#[derive(Debug)]
pub struct AppendSlot {
    /// Where on the device to write it.
    pub target: Extent,
    /// Header, if it belongs into the log, then payload and padding.
    pub payload: Payload,
    /// The record.
    pub record: Record,
    /// Where in the log the payload of each data entry begins.
    pub offsets: Offsets,
}

/// Values of the volume and its store that go into a record's header.
#[derive(Clone, Copy, Debug)]
pub struct AppendOf {
    /// The volume.
    pub volume: VolumeId,
    /// The record's sequence.
    pub sequence: RecordSequence,
    /// The durable floor.
    pub floor: DataSequence,
    /// The durable floor of kept versions.
    pub kept_floor: DataSequence,
    /// The next data sequence of the volume.
    pub next_data: DataSequence,
}
