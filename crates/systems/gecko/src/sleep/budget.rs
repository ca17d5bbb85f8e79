//! Rations the starts of a drive: so many in any 24 hours.

use std::collections::VecDeque;

use manylogs_block::{Nanos, Time};

const DAY: Nanos = Nanos::from_secs(86_400);

/// The starts of one drive in the last 24 hours. A drive may sleep only while a start is left for
/// waking it, so waking it is never refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    starts: VecDeque<Time>,
    counted: u64,
}

impl Budget {
    /// Notes starts until the drive has had `total` of them.
    pub(super) fn note(&mut self, total: u64, now: Time) {
        while self.counted < total {
            self.counted += 1;
            self.starts.push_back(now);
        }
        while self.starts.front().is_some_and(|first| now.since(*first) >= DAY) {
            self.starts.pop_front();
        }
    }

    /// Starts that are left of `a_day`.
    pub(super) fn left(&self, a_day: u32) -> u64 {
        u64::from(a_day).saturating_sub(self.starts.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_left_again_after_a_day() {
        let hours = |hours: u64| Time(hours * 3600 * 1_000_000_000);
        let mut budget = Budget::default();
        budget.note(1, hours(1));
        budget.note(3, hours(2));
        assert_eq!((budget.left(3), budget.left(2), budget.left(5)), (0, 0, 2));
        budget.note(3, hours(25));
        assert_eq!(budget.left(3), 1);
        budget.note(3, hours(26));
        assert_eq!(budget.left(3), 3);
    }
}
