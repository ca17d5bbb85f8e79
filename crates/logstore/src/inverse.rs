//! What a log holds, in its order: the way back from a place to its address.

use manylogs_block::{Extent, Lba, Sectors};

/// Bits of a word that hold a length; the address is above them.
const LEN_BITS: u32 = 16;
/// A word without a length: address and length follow in two words.
const LONG: u64 = 0;

/// The extents that the entries of a log name, in the order of the log: eight bytes an entry, and
/// 24 for one that is long or in another address space. What a log holds is found by it without
/// reading the log.
#[derive(Clone, Debug, Default)]
pub struct Inverse(Vec<u64>);

impl Inverse {
    /// Adds the extent of an entry behind all others.
    pub fn push(&mut self, extent: Extent) {
        let (start, len) = (extent.start.0, extent.len.0);
        if start >> (u64::BITS - LEN_BITS) == 0 && len >> LEN_BITS == 0 {
            self.0.push(start << LEN_BITS | len);
        } else {
            self.0.extend([LONG, start, len]);
        }
    }

    /// The extents in order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
        let mut words = self.0.iter().copied();
        std::iter::from_fn(move || {
            let word = words.next()?;
            if word != LONG {
                return Some(Extent::new(word >> LEN_BITS, word & ((1 << LEN_BITS) - 1)));
            }
            let start = Lba(words.next()?);
            Some(Extent { start, len: Sectors(words.next()?) })
        })
    }

    /// Bytes of memory in use.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Space;

    #[test]
    fn extents_come_back_in_order() {
        let extents = [
            Extent::new(0, 8),
            Extent::new(1, (1 << LEN_BITS) - 1),
            Extent::new(7, 1 << LEN_BITS),
            Space(3).address(Extent::new(5, 1)),
            Extent::new((1 << 48) - 1, 1),
        ];
        let mut inverse = Inverse::default();
        extents.into_iter().for_each(|extent| inverse.push(extent));
        assert_eq!(inverse.iter().collect::<Vec<_>>(), extents);
    }
}
