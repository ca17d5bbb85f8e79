//! The geometry of an array in the superblock: a run of its own before the runs of logs. And what
//! follows from it for records.

use manylogs_block::{Geometry, Sectors};
use manylogs_logstore::RecordShape;
use zerocopy::little_endian::{U32, U64};

use super::{COLUMNS, PLACES_GIVEN, ROWS, Raw, RawRun, Superblock};
use crate::error::VolumeError;

impl Superblock {
    /// Parameters of the lengths of records.
    pub(crate) fn shape(&self) -> RecordShape {
        let unit = self.record_unit();
        if self.nvram {
            RecordShape::apart(unit)
        } else if self.short_headers {
            RecordShape::short_headers(unit)
        } else {
            RecordShape::in_log(unit)
        }
    }

    /// Records are whole multiples of this length: see [`Layout::record_unit`].
    pub(crate) fn record_unit(&self) -> Sectors {
        self.layout.record_unit(self.physical)
    }
}

/// The run that stands for `geometry`: sectors before the first stripe, chunk, copies, columns,
/// parities.
pub(super) fn raw(geometry: Geometry) -> RawRun {
    RawRun {
        first: U64::new(geometry.first.0),
        stride: U64::new(geometry.chunk.0),
        len: U64::new(geometry.copies.into()),
        count: U32::new(geometry.columns.into()),
        reserved: U32::new(geometry.parity.into()),
    }
}

/// Removes the geometry from the list of runs, if there is one.
pub(super) fn take(raw: &Raw, runs: &mut Vec<RawRun>) -> Result<Option<Geometry>, VolumeError> {
    let features = raw.features_incompatible.get();
    let wrong = VolumeError::Impossible("geometry of its array");
    match features & (COLUMNS | ROWS) {
        0 => return Ok(None),
        ROWS => return Err(wrong),
        _ => {}
    }
    let index = if features & PLACES_GIVEN == 0 { 0 } else { 2 };
    if runs.len() <= index {
        return Err(wrong);
    }
    let run = runs.remove(index);
    let (Ok(copies), Ok(columns)) = (run.len.get().try_into(), run.count.get().try_into()) else {
        return Err(wrong);
    };
    let (chunk, first) = (Sectors(run.stride.get()), Sectors(run.first.get()));
    let parity = if features & ROWS == 0 { 0 } else { run.reserved.get() };
    let Ok(parity) = parity.try_into() else { return Err(wrong) };
    let geometry = Geometry { chunk, columns, copies, parity, first };
    if (features & ROWS != 0) != (parity > 0) {
        return Err(wrong);
    }
    geometry.check().map_err(VolumeError::Impossible)?;
    Ok(Some(geometry))
}
