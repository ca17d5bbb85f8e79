//! The log-structured core: self-describing records, logs, the extent map, and the recovery scan.
//!
//! A system on top of it decides where an append goes, and when and where live blocks move. The
//! volumes of the crate `manylogs` and the stores of the crate `manylogs_everest` are such systems.
//! The byte-exact format is in `docs/format.md`.

mod append;
mod ascending;
mod content;
mod entry;
mod inverse;
mod leaf;
mod log;
mod map;
pub mod ondisk;
mod record;
mod scan;
mod sequence;
mod shape;
mod space;
pub mod store;
mod summary;
mod tree;
mod units;

pub use append::{AppendOf, AppendSlot, Offsets, Payloads, UnitChecksums};
pub use content::{LogContent, Supersede};
pub use entry::{Class, ENTRY_BYTES, Entry, EntryKind};
pub use inverse::Inverse;
pub use log::Log;
pub use map::{ExtentMap, MapValue, Mapped};
pub use ondisk::NvramError;
pub use record::{
    HEADER_BYTES, MAX_ENTRIES, Record, RecordError, RecordHeader, VolumeId, new_volume_id,
};
pub use scan::{BLANK, Damage, PHYSICAL_MOST, RECORD_PAYLOAD_MAX, ScanOf, ScanWork, Scanned, scan};
pub use sequence::{
    DataSequence, Epoch, Floors, Incarnation, LogId, LogOffset, RecordSequence, SequenceLimit,
};
pub use shape::{Headers, RecordShape, header_bytes, units_in};
pub use space::{LBA_BITS, Space};
pub use summary::{SUMMARY_HEADER, Summary, SummaryOf};
pub use units::{Unit, UnitTable, units_of};
