//! Some blocks of a run.

use std::ops::Range;

use manylogs_block::to_usize;

use crate::units::{BlockNo, Run};

/// Bits of a word.
const BITS: u64 = u64::BITS as u64;

/// Some blocks of a run: a bit for each block says whether it is one of them.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    run: Run,
    words: Vec<u64>,
}

impl Chosen {
    /// No block of `run`.
    pub(super) fn none(run: Run) -> Self {
        Self { run, words: vec![0; to_usize(u64::from(run.blocks).div_ceil(BITS))] }
    }

    /// Those blocks of `run` that lie in `range`.
    pub(super) fn within(run: Run, range: &Range<u64>) -> Self {
        let mut chosen = Self::none(run);
        chosen.add(range);
        chosen
    }

    /// The bits of `range`, as far as it lies in the run: a word's index, and its bits.
    fn bits(&self, range: &Range<u64>) -> impl Iterator<Item = (usize, u64)> + use<> {
        let Range { start, end } = self.run.range();
        let (from, to) = (range.start.max(start) - start, range.end.min(end).saturating_sub(start));
        let words = if from < to { from / BITS..to.div_ceil(BITS) } else { 0..0 };
        words.map(move |word| {
            let (low, high) = (from.max(word * BITS), to.min((word + 1) * BITS));
            (to_usize(word), (u64::MAX >> (BITS - (high - low))) << (low - word * BITS))
        })
    }

    /// Adds the blocks of the run that lie in `range`.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        self.bits(range).for_each(|(word, bits)| self.words[word] |= bits);
    }

    /// Takes the blocks in `range` out.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        self.bits(range).for_each(|(word, bits)| self.words[word] &= !bits);
    }

    /// Takes those out that are in `others`, which are of the same run.
    pub(super) fn remove_all(&mut self, others: &Self) {
        debug_assert_eq!(self.run, others.run);
        self.words.iter_mut().zip(&others.words).for_each(|(word, bits)| *word &= !bits);
    }

    /// Whether `block` is one of them.
    pub(super) fn has(&self, block: BlockNo) -> bool {
        self.bits(&(block.0..block.0 + 1)).any(|(word, bits)| self.words[word] & bits != 0)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_run_and_cross_words() {
        let run = Run { start: BlockNo(1000), blocks: 200 };
        for range in [0..900, 900..1001, 1063..1065, 1064..1128, 1190..9000, 1200..1300, 0..9000] {
            let chosen = Chosen::within(run, &range);
            let expected = |block: &u64| run.range().contains(block) && range.contains(block);
            let found: Vec<u64> = (990..1210).filter(|it| chosen.has(BlockNo(*it))).collect();
            assert_eq!(found, (990..1210).filter(expected).collect::<Vec<u64>>(), "{range:?}");
            let mut rest = Chosen::within(run, &run.range());
            rest.remove(&range);
            let left = (990..1210).filter(|it| rest.has(BlockNo(*it))).count();
            assert_eq!(left, 200 - found.len());
            rest.remove_all(&rest.clone());
            assert!(rest.is_empty() && chosen.is_empty() == found.is_empty());
        }
    }
}
