//! The geometry of an array in the superblock: a run of its own before the runs of logs. And what
//! follows from it for records.

use manylogs_block::{Geometry, Sectors, narrow};
use manylogs_logstore::RecordShape;
use zerocopy::little_endian::{U32, U64};

use super::{COLUMNS, IMAGES, PLACES_GIVEN, ROWS, Raw, RawRun, Superblock};
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

    /// The compatible features. Those that this program does not know stay.
    pub(super) fn features_compatible(&self) -> u64 {
        let said = if self.layout.is_said() { ARRAY_SAID } else { 0 };
        self.features_compatible & !ARRAY_SAID | said
    }

    /// Records are whole multiples of this length: see [`Layout::record_unit`].
    pub(crate) fn record_unit(&self) -> Sectors {
        self.layout.record_unit(self.physical)
    }
}

/// A compatible feature: the geometry of the array is its user's word.
const ARRAY_SAID: u64 = 1;
/// Parities are in the low bits of their field, and the stripes for images of rows above.
const PARITY_BITS: u32 = 8;

/// The run that stands for `geometry`: sectors before the first stripe, chunk, copies, columns,
/// parities and the stripes of `images`.
pub(super) fn raw(geometry: Geometry, images: Sectors) -> RawRun {
    let stripes: u32 = narrow(images.0 / geometry.stripe().0);
    RawRun {
        first: U64::new(geometry.first.0),
        stride: U64::new(geometry.chunk.0),
        len: U64::new(geometry.copies.into()),
        count: U32::new(geometry.columns.into()),
        reserved: U32::new(u32::from(geometry.parity) | stripes << PARITY_BITS),
    }
}

/// Whether the geometry is its user's word.
pub(super) const fn is_said(raw: &Raw) -> bool {
    raw.features_compatible.get() & ARRAY_SAID != 0
}

/// Removes the geometry from the list of runs, if there is one. Also returns the length of the room
/// for images of rows.
pub(super) fn take(
    raw: &Raw,
    runs: &mut Vec<RawRun>,
) -> Result<(Option<Geometry>, Sectors), VolumeError> {
    let features = raw.features_incompatible.get();
    let wrong = VolumeError::Impossible("geometry of its array");
    match features & (COLUMNS | ROWS | IMAGES) {
        0 => return Ok((None, Sectors(0))),
        some if some & COLUMNS == 0 => return Err(wrong),
        some if some & (ROWS | IMAGES) == IMAGES => return Err(wrong),
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
    let field = if features & ROWS == 0 { 0 } else { run.reserved.get() };
    let (parity, stripes) = match features & IMAGES {
        0 => (field, 0),
        _ => (field % (1 << PARITY_BITS), field >> PARITY_BITS),
    };
    let Ok(parity) = parity.try_into() else { return Err(wrong) };
    let geometry = Geometry { chunk, columns, copies, parity, first };
    if (features & ROWS != 0) != (parity > 0) || (features & IMAGES != 0) != (stripes > 0) {
        return Err(wrong);
    }
    geometry.check().map_err(VolumeError::Impossible)?;
    Ok((Some(geometry), Sectors(u64::from(stripes) * geometry.stripe().0)))
}
