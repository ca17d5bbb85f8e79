//! A long list of extents in eight bytes each.

use manylogs_block::Extent;

const LEN_BITS: u32 = 16;

/// Extents in order of insertion, but for the few that are too long for eight bytes, which come
/// last.
#[derive(Clone, Debug, Default)]
pub struct ExtentList {
    /// Address and length in one word.
    packed: Vec<u64>,
    long: Vec<Extent>,
}

impl ExtentList {
    /// Adds an extent.
    pub fn push(&mut self, extent: Extent) {
        let fits = extent.len.0 < 1 << LEN_BITS && extent.start.0 < 1 << (u64::BITS - LEN_BITS);
        if fits {
            self.packed.push(extent.start.0 << LEN_BITS | extent.len.0);
        } else {
            self.long.push(extent);
        }
    }

    /// Number of extents.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.packed.len() + self.long.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every extent.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
        let unpack = |word: &u64| Extent::new(word >> LEN_BITS, word & ((1 << LEN_BITS) - 1));
        self.packed.iter().map(unpack).chain(self.long.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_extents_come_back() {
        let all = [(0, 1), (7, 65_535), ((1 << 48) - 1, 8), (5, 65_536), (1 << 48, 1)];
        let mut list = ExtentList::default();
        for (start, len) in all {
            list.push(Extent::new(start, len));
        }
        let expected: Vec<Extent> = all.iter().map(|(s, l)| Extent::new(*s, *l)).collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), expected);
        assert_eq!(list.len(), 5);
    }
}
