//! A sparse set of 4 KiB blocks.

use std::collections::HashMap;

/// Blocks of a page: 4096 bits, that is 16 MiB of address space in 512 bytes.
const PAGE_BLOCKS: u64 = 4096;
const WORDS: usize = 64;

/// The bits of one page; a full page needs no memory of its own.
enum Page {
    Full,
    Bits(Box<[u64; WORDS]>, u32),
}

/// Blocks by device and number. A page costs 512 bytes, and only if it is partly filled:
/// 20 TB touched throughout take a few tens of megabytes, touched at random 620 MB.
#[derive(Default)]
pub(super) struct BlockSet {
    pages: HashMap<(u32, u64), Page>,
    len: u64,
}

impl BlockSet {
    /// Blocks in the set.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Adds blocks `first` to `last` of a device; returns how many were new.
    pub(super) fn insert(&mut self, device: u32, first: u64, last: u64) -> u64 {
        let mut new = 0;
        for page in first / PAGE_BLOCKS..=last / PAGE_BLOCKS {
            let base = page * PAGE_BLOCKS;
            let from = first.max(base) - base;
            let to = last.min(base + PAGE_BLOCKS - 1) - base;
            let empty = || Page::Bits(Box::new([0; WORDS]), 0);
            let slot = self.pages.entry((device, page)).or_insert_with(empty);
            new += slot.insert(from, to);
        }
        self.len += new;
        new
    }
}

impl Page {
    /// Sets bits `from` to `to`; returns how many were not set.
    fn insert(&mut self, from: u64, to: u64) -> u64 {
        let Self::Bits(words, set) = self else { return 0 };
        let mut new = 0;
        for word in from / 64..=to / 64 {
            let low = from.max(word * 64) - word * 64;
            let high = to.min(word * 64 + 63) - word * 64;
            let mask = (u64::MAX >> (63 - (high - low))) << low;
            // A page has 64 words: the index is below.
            let slot = &mut words[usize::try_from(word).unwrap_or(0)];
            new += (mask & !*slot).count_ones();
            *slot |= mask;
        }
        *set += new;
        if u64::from(*set) == PAGE_BLOCKS {
            *self = Self::Full;
        }
        u64::from(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_plain_set() {
        let mut set = BlockSet::default();
        let mut plain = BTreeSet::new();
        let mut state = 7_u64;
        for _ in 0..5000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let first = (state >> 40) % 20_000;
            let last = first + (state >> 20) % 300;
            let new = (first..=last).filter(|&block| plain.insert(block)).count() as u64;
            assert_eq!(set.insert(0, first, last), new);
        }
        assert_eq!(set.len(), plain.len() as u64);
        assert_eq!(set.insert(1, 0, 0), 1, "devices have blocks of their own");
    }
}
