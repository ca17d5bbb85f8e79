//! Recognises a member of a chain by its label, without opening the chain.

use manylogs_block::{Extent, Sectors};

use crate::error::ChainError;
use crate::ondisk::{self, Superblock};
use crate::roster::Roster;

/// Bytes of a label that [`ChainMember::decode`] needs.
pub const LABEL_BYTES: usize = ondisk::BYTES;

/// What the label of a drive says: its chain, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainMember {
    /// Id of the chain.
    pub chain: [u8; 16],
    /// The link that the drive belongs to, from 0.
    pub drive: usize,
    /// How many places the chain has: one for each link, and those of links that were removed.
    pub drives: usize,
    /// Drives of each link: two if they are mirrored, else one.
    pub halves: usize,
    /// The drive itself; the roster names drives by it.
    pub id: u64,
    /// The drives that were current when the label was written.
    pub roster: Roster,
    /// Physical sector that records fill.
    pub physical: Sectors,
    /// Length of a segment.
    pub segment: Sectors,
    /// Segments of each drive.
    pub segments: u64,
    /// Size of the exported device.
    pub export: Sectors,
    /// The drive's size when the chain was made.
    pub sectors: Sectors,
    /// The last opening of the chain that the drive took part in.
    pub opening: u32,
}

impl ChainMember {
    /// Orders labels of one chain: the roster of the greatest counts.
    #[must_use]
    pub const fn age(&self) -> (u32, u64) {
        (self.opening, self.roster.version)
    }

    /// The places of the label and its copy, on a drive with this number of sectors.
    #[must_use]
    pub fn places(drive: Sectors) -> [Extent; 2] {
        Superblock::places(drive)
    }

    /// The label at the start of `bytes`; `None` if there is none, or it is damaged.
    ///
    /// # Errors
    /// [`ChainError::Version`] if another version of the program wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, ChainError> {
        Superblock::decode(bytes).transpose().map(|found| found.map(Self::from))
    }
}

impl From<Superblock> for ChainMember {
    fn from(label: Superblock) -> Self {
        Self {
            chain: label.chain,
            drive: label.drive.into(),
            drives: label.roster.places(),
            halves: manylogs_block::to_usize(label.halves.into()),
            id: label.id,
            roster: label.roster,
            physical: label.physical,
            segment: label.segment,
            segments: label.segments,
            export: label.export,
            sectors: label.sectors,
            opening: label.opening,
        }
    }
}
