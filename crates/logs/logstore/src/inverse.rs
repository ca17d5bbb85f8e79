//! The extents of a log's entries: they lead from a place to its address.

use manylogs_block::{Extent, Lba, Sectors};

use crate::ascending::Ascending;

/// Sectors of a block of file systems: most entries are one such block, aligned.
const BLOCK: u64 = 8;
/// Bits of a pair of words that hold a length; the address is above them.
const LEN_BITS: u32 = 16;
/// Not a block number: it says that a pair of words follows.
const PAIR: u32 = u32::MAX;
/// A pair without a length: two pairs follow, one with the address and one with the length.
const LONG: u64 = 0;

/// The extents of a log's entries. An entry that is a block of 4 KiB takes four bytes, others take
/// twelve, and 28 if they are long or in another address space. Once they are packed a block takes
/// about two bytes. With this list the store finds a log's live versions without reading the log.
#[derive(Clone, Debug, Default)]
pub struct Inverse {
    /// Numbers of blocks, since the extents were last packed.
    blocks: Ascending,
    /// Other extents, and all that were appended since.
    words: Vec<u32>,
    /// Whether some were appended since.
    is_loose: bool,
}

/// The number of the block that an extent is, if it is one.
fn block_of(extent: Extent) -> Option<u32> {
    let (start, len) = (extent.start.0, extent.len.0);
    let block = u32::try_from(start / BLOCK).ok().filter(|block| *block != PAIR);
    block.filter(|_| len == BLOCK && start.is_multiple_of(BLOCK))
}

impl Inverse {
    /// These extents, packed. They must be in the order of their addresses, each once.
    #[must_use]
    pub fn packed(extents: &[Extent]) -> Self {
        let (mut blocks, mut others) = (Vec::new(), Self::default());
        for extent in extents {
            match block_of(*extent) {
                Some(block) => blocks.push(u64::from(block)),
                None => others.push(*extent),
            }
        }
        others.words.shrink_to_fit();
        Self { blocks: Ascending::pack(&blocks), is_loose: false, ..others }
    }

    /// Whether extents were appended since the others were packed.
    #[must_use]
    pub const fn is_loose(&self) -> bool {
        self.is_loose
    }

    /// From now on the extents count as packed, as they are.
    pub const fn settle(&mut self) {
        self.is_loose = false;
    }

    /// Appends the extent of an entry.
    pub fn push(&mut self, extent: Extent) {
        self.is_loose = true;
        if let Some(block) = block_of(extent) {
            self.words.push(block);
            return;
        }
        let (start, len) = (extent.start.0, extent.len.0);
        self.words.push(PAIR);
        if start >> (u64::BITS - LEN_BITS) == 0 && len >> LEN_BITS == 0 && len > 0 {
            self.push_pair(start << LEN_BITS | len);
        } else {
            [LONG, start, len].into_iter().for_each(|pair| self.push_pair(pair));
        }
    }

    fn push_pair(&mut self, pair: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let low = pair as u32;
        self.words.extend([low, (pair >> u32::BITS) as u32]);
    }

    /// The packed extents by address, and then the others in the order of the log.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
        let blocks = self.blocks.iter().map(|block| Extent::new(block * BLOCK, BLOCK));
        let mut words = self.words.iter().copied();
        blocks.chain(std::iter::from_fn(move || {
            let word = words.next()?;
            if word != PAIR {
                return Some(Extent::new(u64::from(word) * BLOCK, BLOCK));
            }
            let mut pair =
                || Some(u64::from(words.next()?) | u64::from(words.next()?) << u32::BITS);
            let short = pair()?;
            if short != LONG {
                return Some(Extent::new(short >> LEN_BITS, short & ((1 << LEN_BITS) - 1)));
            }
            let start = Lba(pair()?);
            Some(Extent { start, len: Sectors(pair()?) })
        }))
    }

    /// Bytes of memory in use.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.blocks.bytes() + self.words.capacity() * size_of::<u32>()
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
            Extent::new(8, 0),
            Extent::new(4, 8),
            Extent::new(1, (1 << LEN_BITS) - 1),
            Extent::new(7, 1 << LEN_BITS),
            Extent::new((u64::from(PAIR) - 1) * BLOCK, BLOCK),
            Extent::new(u64::from(PAIR) * BLOCK, BLOCK),
            Extent::new((u64::from(PAIR) + 1) * BLOCK, BLOCK),
            Space(3).address(Extent::new(5, 1)),
            Space(3).address(Extent::new(8, 8)),
            Extent::new((1 << 48) - 1, 1),
        ];
        let mut inverse = Inverse::default();
        extents.into_iter().for_each(|extent| inverse.push(extent));
        assert_eq!(inverse.iter().collect::<Vec<_>>(), extents);
        let mut blocks = Inverse::default();
        (0..1024).for_each(|block| blocks.push(Extent::new(block * BLOCK, BLOCK)));
        assert_eq!(blocks.bytes(), 4096);
        let mut sorted = extents.to_vec();
        sorted.sort_by_key(|extent| (extent.start, extent.len));
        let mut packed = Inverse::packed(&sorted);
        packed.push(Extent::new(3, 5));
        sorted.push(Extent::new(3, 5));
        sorted.sort_by_key(|extent| (extent.start, extent.len));
        let mut found: Vec<Extent> = packed.iter().collect();
        found.sort_by_key(|extent| (extent.start, extent.len));
        assert_eq!(found, sorted);
        let sorted: Vec<Extent> = blocks.iter().collect();
        assert!(Inverse::packed(&sorted).bytes() < 200, "a block behind another takes a bit");
    }
}
