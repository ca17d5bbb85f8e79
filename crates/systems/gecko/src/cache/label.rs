//! The label of a tail cache, for whoever finds one on a device.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::VolumeId;

use super::ondisk::{LABEL, Label};

/// What the label of a tail cache's SSD says. The cache holds nothing that the drives of its chain
/// do not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLabel {
    /// Id of the chain.
    pub chain: VolumeId,
    /// Size of the SSD when it became a cache.
    pub sectors: Sectors,
}

impl CacheLabel {
    /// Where the label is on a device.
    pub const PLACE: Extent = LABEL;

    /// The label in the first 4 KiB of a device; `None` if there is none that is whole and of this
    /// version.
    #[must_use]
    pub fn decode(head: &[u8]) -> Option<Self> {
        Label::decode(head).map(|Label { chain, sectors, .. }| Self { chain, sectors })
    }
}
