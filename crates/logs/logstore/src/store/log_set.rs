//! A set of logs as bits. The member next to a number is found by looking at a word or two, and a
//! log is added or removed with every record.

use std::ops::{Bound, RangeBounds};

use crate::LogId;

/// A set of logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSet {
    words: Vec<u64>,
}

/// Members in order, from both ends.
#[derive(Clone, Debug)]
struct Members<'a> {
    words: &'a [u64],
    /// Remaining numbers: from `next` up to `end`, without `end`.
    next: u32,
    end: u32,
}

impl LogSet {
    /// An empty set of logs whose numbers are below `count`.
    pub(crate) fn none_of(count: usize) -> Self {
        Self { words: vec![0; count.div_ceil(u64::BITS as usize)] }
    }

    pub(crate) fn contains(&self, log: LogId) -> bool {
        self.words[word_of(log.0)] & bit_of(log.0) != 0
    }

    /// Adds the log, or removes it.
    pub(crate) fn set(&mut self, log: LogId, member: bool) {
        let word = &mut self.words[word_of(log.0)];
        *word = if member { *word | bit_of(log.0) } else { *word & !bit_of(log.0) };
    }

    /// Members among `numbers`, in order.
    pub(crate) fn within(
        &self,
        numbers: impl RangeBounds<u32>,
    ) -> impl DoubleEndedIterator<Item = LogId> {
        let next = match numbers.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match numbers.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u32::MAX,
        };
        let capacity = u32::try_from(self.words.len()).map_or(u32::MAX, |n| n * u64::BITS);
        Members { words: &self.words, next, end: end.min(capacity) }
    }
}

const fn word_of(number: u32) -> usize {
    (number / u64::BITS) as usize
}

const fn bit_of(number: u32) -> u64 {
    1 << (number % u64::BITS)
}

impl Iterator for Members<'_> {
    type Item = LogId;

    fn next(&mut self) -> Option<LogId> {
        while self.next < self.end {
            let begin = self.next / u64::BITS * u64::BITS;
            let here = self.words[word_of(begin)] & !(bit_of(self.next) - 1);
            if here == 0 {
                self.next = begin.saturating_add(u64::BITS);
                continue;
            }
            let found = begin + here.trailing_zeros();
            self.next = found.saturating_add(1);
            return (found < self.end).then_some(LogId(found));
        }
        None
    }
}

impl DoubleEndedIterator for Members<'_> {
    fn next_back(&mut self) -> Option<LogId> {
        while self.next < self.end {
            let last = self.end - 1;
            let begin = last / u64::BITS * u64::BITS;
            let up_to = bit_of(last) | (bit_of(last) - 1);
            let here = self.words[word_of(begin)] & up_to;
            if here == 0 {
                self.end = begin;
                continue;
            }
            let found = begin + (u64::BITS - 1 - here.leading_zeros());
            self.end = found;
            return (found >= self.next).then_some(LogId(found));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The reference model is a tree of numbers.
        #[test]
        fn agrees_with_a_plain_set(
            changes in prop::collection::vec((0..300u32, any::<bool>()), 0..200),
            ends in prop::collection::vec((0..320u32, 0..320u32), 20),
        ) {
            let (mut set, mut model) = (LogSet::none_of(300), BTreeSet::new());
            for (log, member) in changes {
                set.set(LogId(log), member);
                if member { model.insert(log); } else { model.remove(&log); }
                prop_assert_eq!(set.contains(LogId(log)), member);
            }
            for (a, b) in ends {
                let range = a.min(b)..a.max(b);
                let expected: Vec<LogId> = model.range(range.clone()).copied().map(LogId).collect();
                prop_assert_eq!(&set.within(range.clone()).collect::<Vec<_>>(), &expected);
                let mut back: Vec<LogId> = set.within(range).rev().collect();
                back.reverse();
                prop_assert_eq!(back, expected);
            }
            prop_assert_eq!(set.within(..).count(), model.len());
        }
    }
}
