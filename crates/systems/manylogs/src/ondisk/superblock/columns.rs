//! The geometry of an array in the superblock: a run of its own before the runs of logs.

use manylogs_block::{Geometry, Sectors};
use zerocopy::little_endian::{U32, U64};

use super::{COLUMNS, PLACES_GIVEN, Raw, RawRun};
use crate::error::VolumeError;

/// The run that stands for `geometry`: sectors before the first stripe, chunk, copies, columns.
pub(super) fn raw(geometry: Geometry) -> RawRun {
    RawRun {
        first: U64::new(geometry.first.0),
        stride: U64::new(geometry.chunk.0),
        len: U64::new(geometry.copies.into()),
        count: U32::new(geometry.columns.into()),
        reserved: U32::ZERO,
    }
}

/// Removes the geometry from the list of runs, if there is one.
pub(super) fn take(raw: &Raw, runs: &mut Vec<RawRun>) -> Result<Option<Geometry>, VolumeError> {
    let features = raw.features_incompatible.get();
    if features & COLUMNS == 0 {
        return Ok(None);
    }
    let wrong = VolumeError::Impossible("geometry of its array");
    let index = if features & PLACES_GIVEN == 0 { 0 } else { 2 };
    if runs.len() <= index {
        return Err(wrong);
    }
    let run = runs.remove(index);
    let (Ok(copies), Ok(columns)) = (run.len.get().try_into(), run.count.get().try_into()) else {
        return Err(wrong);
    };
    let (chunk, first) = (Sectors(run.stride.get()), Sectors(run.first.get()));
    let geometry = Geometry { chunk, columns, copies, first };
    geometry.check().map_err(VolumeError::Impossible)?;
    Ok(Some(geometry))
}
