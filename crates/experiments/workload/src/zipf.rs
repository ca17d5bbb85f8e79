//! Numbers of which few are drawn often.

use manylogs_block::Rng;

/// Numbers below a bound, drawn by Zipf's law: the one of rank r as often as r to the power of
/// minus the exponent says. Ranks are dealt to numbers at random, so that neighbours have nothing
/// in common.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// How often one of the first ranks is drawn, as a sum, up to each rank.
    sums: Vec<f64>,
    /// The number of each rank.
    numbers: Vec<u32>,
}

impl Zipf {
    /// Numbers below `count`, at least one, dealt by `rng`.
    #[must_use]
    pub fn new(count: u32, exponent: f64, rng: &mut Rng) -> Self {
        let mut sum = 0.0;
        let mut up_to = |rank: u32| {
            sum += f64::from(rank).powf(-exponent);
            sum
        };
        let sums = (1..=count.max(1)).map(&mut up_to).collect();
        Self { sums, numbers: shuffled(count.max(1), rng) }
    }

    /// The next number.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let all = self.sums.last().copied().unwrap_or_default();
        let at = rng.unit() * all;
        let rank = self.sums.partition_point(|sum| *sum <= at).min(self.numbers.len() - 1);
        self.numbers[rank]
    }
}

/// The numbers below `count` in a random order.
#[must_use]
pub fn shuffled(count: u32, rng: &mut Rng) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    rng.shuffle(&mut numbers);
    numbers
}

#[cfg(test)]
mod tests {
    use manylogs_block::to_usize;

    use super::*;

    #[test]
    fn numbers_are_drawn_as_often_as_their_rank_says() {
        let mut rng = Rng::new(1);
        let zipf = Zipf::new(100, 1.0, &mut rng);
        let mut drawn = vec![0_u32; 100];
        for _ in 0..100_000 {
            drawn[to_usize(zipf.draw(&mut rng).into())] += 1;
        }
        let often = |rank: usize| f64::from(drawn[to_usize(zipf.numbers[rank].into())]);
        // The sum of 1/r up to 100 is 5.187.
        let expected = |rank: usize| 100_000.0 / 5.187 / (rank + 1) as f64;
        for rank in [0, 1, 9, 99] {
            let off = often(rank) / expected(rank);
            assert!((0.8..1.25).contains(&off), "rank {rank}: {off}");
        }
        let mut all = zipf.numbers.clone();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100), "each number has one rank");
    }
}
