//! Recognises a member of a chain by its label, without opening the chain.

use manylogs_block::{Extent, Sectors};

use crate::error::ChainError;
use crate::ondisk::{self, Superblock};

/// Bytes of a label that [`ChainMember::decode`] needs.
pub const LABEL_BYTES: usize = ondisk::BYTES;

/// What the label of a drive says: its chain, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainMember {
    /// Id of the chain.
    pub chain: [u8; 16],
    /// Number of the drive in the chain, from 0.
    pub drive: usize,
    /// How many drives the chain has.
    pub drives: usize,
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
            drives: label.drives.into(),
            physical: label.physical,
            segment: label.segment,
            segments: label.segments,
            export: label.export,
            sectors: label.sectors,
            opening: label.opening,
        }
    }
}
