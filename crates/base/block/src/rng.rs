//! A small seeded generator: a run must be repeatable from its seed alone.

use crate::to_usize;

/// `SplitMix64` (Steele, Lea and Flood, 2014): enough for schedules and jitter, not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero when `bound` is zero. The bias is below 2^-32 for small bounds.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// True once in `n` calls on average; never when `n` is zero.
    pub const fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        // 53 bits fill a double exactly.
        (self.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// A number with mean 0 and variance 1, bell-shaped, within +-3.5. It is a sum of four
    /// uniforms: near enough to a normal distribution for jitter, and bounded, like mechanics.
    pub fn bell(&mut self) -> f64 {
        let bits = self.next_u64();
        let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
        (sum as f64 / 65_535.0 - 2.0) * 1.732_050_807_568_877_2
    }

    /// Puts `items` in a random order: each is as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, to_usize(self.below(last as u64 + 1)));
        }
    }

    /// A generator for a part of the run; later draws from this one do not change it.
    pub const fn split(&mut self) -> Self {
        Self(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bell_has_mean_zero_and_variance_one() {
        let mut rng = Rng::new(7);
        let values: Vec<f64> = (0..100_000).map(|_| rng.bell()).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01, "{mean} {variance}");
    }

    #[test]
    fn each_order_is_as_likely_as_any_other() {
        let (mut rng, mut orders) = (Rng::new(7), std::collections::BTreeMap::new());
        for _ in 0..6_000 {
            let mut items = [1, 2, 3];
            rng.shuffle(&mut items);
            *orders.entry(items).or_insert(0) += 1;
        }
        assert!(orders.len() == 6 && orders.values().all(|often| (900..1_100).contains(often)));
    }

    #[test]
    fn the_seed_alone_decides() {
        let draw = |seed| (0..5).map(|_| Rng::new(seed).next_u64()).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
