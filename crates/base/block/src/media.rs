//! Sector contents, kept only where something was written.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::units::to_usize;
use crate::{Extent, Payload, Piece, SECTOR_BYTES, Sectors};

/// The content of one sector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sector {
    /// Never written, or zeroed.
    #[default]
    Zero,
    /// A tag; see [`Piece::Tags`].
    Tag(u64),
    /// 512 bytes.
    Bytes(Bytes),
}

/// A sparse store of sectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Media {
    sectors: BTreeMap<u64, Sector>,
}

impl Media {
    /// Stores `payload` at `extent`. Absent content leaves what was there.
    pub fn write(&mut self, extent: Extent, payload: &Payload) {
        for (lba, sector) in extent.range().zip(sectors_of(payload)) {
            if let Some(sector) = sector {
                self.set(lba, sector);
            }
        }
    }

    /// Stores one sector.
    pub fn set(&mut self, lba: u64, sector: Sector) {
        if sector == Sector::Zero {
            self.sectors.remove(&lba);
        } else {
            self.sectors.insert(lba, sector);
        }
    }

    /// The content of one sector.
    #[must_use]
    pub fn get(&self, lba: u64) -> Sector {
        self.sectors.get(&lba).cloned().unwrap_or_default()
    }

    /// Makes the extent read as zeroes.
    pub fn zero(&mut self, extent: Extent) {
        let doomed: Vec<u64> = self.sectors.range(extent.range()).map(|(lba, _)| *lba).collect();
        for lba in doomed {
            self.sectors.remove(&lba);
        }
    }

    /// The extent's content.
    #[must_use]
    pub fn read(&self, extent: Extent) -> Payload {
        let mut out = Payload::default();
        let mut next = extent.start.0;
        for (&lba, sector) in self.sectors.range(extent.range()) {
            out.append(Payload::zeroes(Sectors(lba - next)));
            out.append(sector.clone().into());
            next = lba + 1;
        }
        out.append(Payload::zeroes(Sectors(extent.end().0 - next)));
        out
    }

    /// Every sector that is not zero, by address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Sector)> {
        self.sectors.iter().map(|(lba, sector)| (*lba, sector))
    }
}

impl From<Sector> for Payload {
    fn from(sector: Sector) -> Self {
        match sector {
            Sector::Zero => Self::zeroes(Sectors(1)),
            Sector::Tag(first) => Self::tags(first, Sectors(1)),
            Sector::Bytes(bytes) => Self::bytes(bytes),
        }
    }
}

fn sectors_of(payload: &Payload) -> impl Iterator<Item = Option<Sector>> {
    payload.pieces().iter().flat_map(|piece| {
        (0..piece.len().0).map(move |i| match piece {
            Piece::Bytes(bytes) => Some(sector_of_bytes(bytes, i)),
            Piece::Zeroes(_) => Some(Sector::Zero),
            Piece::Tags { first, .. } => Some(Sector::Tag(first + i)),
            Piece::Absent(_) => None,
        })
    })
}

fn sector_of_bytes(bytes: &Bytes, index: u64) -> Sector {
    let start = to_usize(index * SECTOR_BYTES);
    let sector = bytes.slice(start..start + to_usize(SECTOR_BYTES));
    if sector.iter().all(|byte| *byte == 0) { Sector::Zero } else { Sector::Bytes(sector) }
}

impl Payload {
    /// The payload sector by sector; `None` where the content is absent.
    pub fn sectors(&self) -> impl Iterator<Item = Option<Sector>> {
        sectors_of(self)
    }
}
