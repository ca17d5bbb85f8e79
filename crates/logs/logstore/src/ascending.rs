//! Ascending numbers, packed: each takes about two bits more than their mean distance.

/// Bits of a byte.
const BYTE: u64 = 8;

/// Ascending numbers, packed. The distance between two of them is stored as its low bits, and as so
/// many ones as the rest says (a Rice code). The number of low bits fits the mean distance, so that
/// a number takes 17 bits if one in 32,768 is there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ascending {
    bits: Vec<u8>,
    count: u64,
    low_bits: u32,
}

impl Ascending {
    /// Packs these numbers, each of which is larger than the one before.
    pub(crate) fn pack(numbers: &[u64]) -> Self {
        let count = numbers.len() as u64;
        let mean = numbers.last().map_or(0, |last| last / count);
        let low_bits = mean.checked_ilog2().unwrap_or(0);
        let mut bits = Writer::default();
        let mut next = 0;
        for number in numbers {
            debug_assert!(*number >= next, "numbers ascend");
            let gap = number - next;
            (0..gap >> low_bits).for_each(|_| bits.push(true));
            bits.push(false);
            (0..low_bits).for_each(|bit| bits.push(gap >> bit & 1 == 1));
            next = number + 1;
        }
        bits.bytes.shrink_to_fit();
        Self { bits: bits.bytes, count, low_bits }
    }

    /// The numbers in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let mut bits = Reader { bytes: &self.bits, at: 0 };
        let mut next = 0;
        (0..self.count).map(move |_| {
            let mut gap = 0;
            while bits.take() {
                gap += 1 << self.low_bits;
            }
            for bit in 0..self.low_bits {
                gap |= u64::from(bits.take()) << bit;
            }
            let number = next + gap;
            next = number + 1;
            number
        })
    }

    /// Bytes of memory in use.
    pub(crate) const fn bytes(&self) -> usize {
        self.bits.capacity()
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    at: u64,
}

impl Writer {
    fn push(&mut self, bit: bool) {
        let within = self.at % BYTE;
        if within == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << within;
        }
        self.at += 1;
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl Reader<'_> {
    /// The next bit; false behind the end.
    fn take(&mut self) -> bool {
        let byte = usize::try_from(self.at / BYTE).ok().and_then(|at| self.bytes.get(at));
        let bit = byte.is_some_and(|byte| byte >> (self.at % BYTE) & 1 == 1);
        self.at += 1;
        bit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylogs_block::Rng;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(
            numbers in prop::collection::btree_set(any::<u64>().prop_map(|n| n >> 20), 0..99),
            near in prop::collection::btree_set(0..200u64, 0..99),
        ) {
            for numbers in [numbers, near] {
                let numbers: Vec<u64> = numbers.into_iter().collect();
                let packed = Ascending::pack(&numbers);
                prop_assert_eq!(packed.iter().collect::<Vec<_>>(), numbers);
            }
        }
    }

    /// A segment of 256 MiB full of random blocks of 8 TiB.
    #[test]
    fn a_random_block_takes_about_two_bytes() {
        let mut rng = Rng::new(1);
        let mut blocks: Vec<u64> = (0..1 << 16).map(|_| rng.below(1 << 31)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let each = Ascending::pack(&blocks).bytes() as f64 / blocks.len() as f64;
        assert!((1.9..2.15).contains(&each), "{each} bytes");
    }
}
