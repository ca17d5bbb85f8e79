//! What Everest and Gecko keep on a device besides volumes and the drives of chains.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use manylogs_block::{Extent, SECTOR_BYTES, Sectors, to_usize};
use manylogs_everest::{BASE_HEADER_BYTES, BaseLabel, OffloadError, StoreError, StoreLabel};
use manylogs_gecko::CacheLabel;
use manylogs_storage::{BASE_VOLUME, Contents, LENT_STORE, read_at, survey_file};
use rustix::fs::SeekFrom;
use thiserror::Error;

/// Why it is not known what lies on a device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OccupantError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a base volume, and no copy of its header is whole.
    #[error(transparent)]
    Base(OffloadError),
    /// It is a store of another format version.
    #[error(transparent)]
    Store(StoreError),
}

/// What lies on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// A base volume.
    Base(BaseLabel),
    /// A store, or a part of one.
    Store(StoreLabel),
    /// The SSD of a chain's tail cache.
    Cache(CacheLabel),
}

impl Occupant {
    /// What lies on the file or disk at `path`; `None` if it is something else. It may be in use.
    ///
    /// # Errors
    /// See [`OccupantError`].
    pub fn at(path: &Path) -> Result<Option<Self>, OccupantError> {
        let kind = fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(None);
        }
        let file = File::open(path)?;
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(io::Error::from)?;
        let sectors = Sectors(bytes / SECTOR_BYTES);
        let head = read(&file, Extent::new(0, BASE_HEADER_BYTES as u64 / SECTOR_BYTES))?;
        let base = BaseLabel::decode(&head).map_err(OccupantError::Base);
        // What was made of the device later may have left the second copy as it was.
        let is_there = !matches!(base, Ok(None));
        if is_there && (head.starts_with(&BaseLabel::MAGIC) || is_alone(&file, BASE_VOLUME)?) {
            return base.map(|label| label.map(Self::Base));
        }
        if let Some(label) = CacheLabel::decode(&head) {
            return Ok(Some(Self::Cache(label)));
        }
        if sectors < Sectors(16) {
            return Ok(None);
        }
        let mut refused = None;
        let [first, copy] = StoreLabel::places(sectors);
        for place in [first, copy] {
            let found = StoreLabel::decode(&read(&file, place)?);
            // The same holds for the copy at the end.
            if matches!(found, Ok(None)) || place == copy && !is_alone(&file, LENT_STORE)? {
                continue;
            }
            match found {
                Ok(label) => return Ok(label.map(Self::Store)),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(None), |error| Err(OccupantError::Store(error)))
    }
}

/// Whether nothing but the format of this name shows on the device.
fn is_alone(file: &File, name: &str) -> io::Result<bool> {
    Ok(matches!(survey_file(file)?, Contents::Known(names) if names == [name]))
}

/// The content of a place; less at the end of the device.
fn read(file: &File, place: Extent) -> io::Result<Vec<u8>> {
    read_at(file, Sectors(place.start.0).bytes(), to_usize(place.len.bytes()))
}
