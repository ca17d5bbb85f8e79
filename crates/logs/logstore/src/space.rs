//! Address spaces: one store may hold blocks of several devices, base volumes or file systems.

use manylogs_block::{Extent, Lba, Sectors};

/// Bits of a block address within its space: 128 PiB.
pub const LBA_BITS: u32 = 48;
const LBA_END: u64 = 1 << LBA_BITS;
/// Number of spaces: few enough that the end of every extent fits 64 bits.
const SPACES: u64 = 1 << 15;

/// The address space of an entry: it tells whose block it is. In the store's map the space stands
/// above the block address in one number, so a store with one space pays nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u16);

impl Space {
    /// Where the addresses of all spaces end.
    pub const END: Sectors = Sectors(SPACES << LBA_BITS);

    /// The space of a store that needs only one.
    pub const ONLY: Self = Self(0);

    /// The address of an extent of this space in the store's map.
    ///
    /// # Panics
    /// If the extent ends beyond 2^48 sectors, or the space is not below 2^15.
    #[must_use]
    pub fn address(self, extent: Extent) -> Extent {
        assert!(u64::from(self.0) < SPACES, "there is no address space {}", self.0);
        assert!(extent.end().0 <= LBA_END, "{extent} is beyond the end of an address space");
        let start = Lba(u64::from(self.0) << LBA_BITS | extent.start.0);
        Extent { start, len: extent.len }
    }

    /// The space of an extent of the store's map, and the extent within the space.
    #[must_use]
    pub fn of(extent: Extent) -> (Self, Extent) {
        let space = Self(manylogs_block::narrow(extent.start.0 >> LBA_BITS));
        (space, Extent { start: Lba(extent.start.0 & (LBA_END - 1)), len: extent.len })
    }

    /// The whole space, as an extent of the store's map.
    #[must_use]
    pub fn whole(self) -> Extent {
        self.address(Extent::new(0, LBA_END))
    }
}

/// Whether an extent of the store's map, as read from the disk, lies in one space.
pub(crate) fn is_in_one_space(extent: Extent) -> bool {
    let lba = extent.start.0 & (LBA_END - 1);
    extent.len.0 <= LBA_END - lba && extent.start.0 >> LBA_BITS < SPACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_comes_back_from_its_address() {
        for space in [Space::ONLY, Space(7), Space(0x7fff)] {
            for extent in [Extent::new(0, 1), Extent::new(LBA_END - 8, 8), Extent::new(5, 1 << 40)]
            {
                assert_eq!(Space::of(space.address(extent)), (space, extent));
            }
        }
        assert_eq!(Space::ONLY.address(Extent::new(9, 3)), Extent::new(9, 3));
    }
}
