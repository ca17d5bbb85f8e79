//! The content that a chain may have after a crash: the content after some change by clients that
//! is no older than the last change promised to be durable.

use manylogs_block::{Extent, Payload, Sector, Sectors, to_usize};
use manylogs_sim::Wrong;

/// The tag that stands for a sector that cannot be read, because a drive was lost. No client writes
/// it.
pub(super) const LOST: u64 = u64::MAX - 1;

/// The number of a change, in the order of submission; zero is the state before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change(u64);

/// The changes so far, and the promises about them.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    /// The versions of each sector, oldest first.
    sectors: Vec<Vec<(Change, Sector)>>,
    /// A longer write counts as several changes of this length.
    longest: Sectors,
    submitted: Change,
    /// The newest change that was answered.
    answered: Change,
    /// The newest durable change: no crash may go back before it.
    durable: Change,
}

impl Changes {
    /// A device of `sectors` zero sectors that keeps writes of up to `longest` as a whole.
    pub(super) fn new(sectors: usize, longest: Sectors) -> Self {
        let zero = vec![(Change(0), Sector::Zero)];
        let none = Change::default();
        let sectors = vec![zero; sectors];
        Self { sectors, longest, submitted: none, answered: none, durable: none }
    }

    /// Submits a change; returns the number of its last part.
    pub(super) fn submit(&mut self, extent: Extent, content: &Payload) -> Change {
        let longest = if content.is_zero() { extent.len } else { self.longest };
        let mut left = 0;
        for (lba, sector) in extent.range().zip(content.sectors()) {
            if left == 0 {
                self.submitted.0 += 1;
                left = longest.0;
            }
            left -= 1;
            self.sectors[to_usize(lba)].push((self.submitted, sector.unwrap_or_default()));
        }
        self.submitted
    }

    /// Records the answer to a change.
    pub(super) fn answer(&mut self, change: Change, fua: bool) {
        self.answered = self.answered.max(change);
        if fua {
            self.durable = self.durable.max(change);
        }
    }

    /// The newest change that a flush submitted now makes durable.
    pub(super) const fn flush(&self) -> Change {
        self.answered
    }

    /// Records the answer to that flush.
    pub(super) fn flushed(&mut self, change: Change) {
        self.durable = self.durable.max(change);
    }

    /// The newest change after which the device held `content`.
    ///
    /// # Errors
    /// If there is no such change that is as new as the durable one.
    pub(super) fn check(&self, content: &Payload) -> Result<Change, String> {
        let span = to_usize(self.submitted.0 - self.durable.0) + 1;
        // By how many the number of fitting sectors rises, or falls, at each change.
        let mut steps = vec![0_i64; span + 1];
        for ((lba, versions), found) in (0..).zip(&self.sectors).zip(content.sectors()) {
            let Some(found) = found else {
                return Err(format!("sector {lba} cannot be read"));
            };
            if found == Sector::Tag(LOST) {
                // It tells nothing about the changes.
                (steps[0], steps[span]) = (steps[0] + 1, steps[span] - 1);
            } else if !self.add(versions, &found, &mut steps) {
                let allowed = self.allowed(versions);
                let found = Some(found);
                return Err(Wrong { lba, found, allowed }.to_string());
            }
        }
        let (mut fit, mut newest) = (0, None);
        for (change, step) in (self.durable.0..).zip(&steps[..span]) {
            fit += step;
            if fit == self.sectors.len() as i64 {
                newest = Some(Change(change));
            }
        }
        newest.ok_or_else(|| {
            let (durable, submitted) = (self.durable, self.submitted);
            format!("it holds a mixture of states: none from {durable:?} to {submitted:?} is it")
        })
    }

    /// Adds the changes after which a sector held `found`. Returns false if there are none.
    fn add(&self, versions: &[(Change, Sector)], found: &Sector, steps: &mut [i64]) -> bool {
        let mut any = false;
        for (index, (from, sector)) in versions.iter().enumerate() {
            let until = versions.get(index + 1).map_or(self.submitted.0 + 1, |next| next.0.0);
            if sector != found || until <= self.durable.0 {
                continue;
            }
            let from = from.0.max(self.durable.0);
            if from < until {
                any = true;
                steps[to_usize(from - self.durable.0)] += 1;
                steps[to_usize(until - self.durable.0)] -= 1;
            }
        }
        any
    }

    fn allowed(&self, versions: &[(Change, Sector)]) -> Vec<Sector> {
        let newer = |index: usize| versions.get(index + 1).is_none_or(|n| n.0 > self.durable);
        let all = versions.iter().enumerate();
        all.filter(|(index, _)| newer(*index)).map(|(_, (_, sector))| sector.clone()).collect()
    }

    /// Continues from the state after `change`, which is durable now.
    pub(super) fn go_on_from(&mut self, change: Change) {
        for versions in &mut self.sectors {
            versions.retain(|(of, _)| *of <= change);
            let last = versions.len().saturating_sub(1);
            versions.drain(..last);
        }
        (self.submitted, self.answered, self.durable) = (change, change, change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(first: u64, len: u64) -> Payload {
        Payload::tags(first, Sectors(len))
    }

    #[test]
    fn only_a_suffix_may_be_lost() {
        let mut changes = Changes::new(2, Sectors(8));
        let first = changes.submit(Extent::new(0, 1), &tags(7, 1));
        changes.submit(Extent::new(1, 1), &tags(8, 1));
        let state = |a: Option<u64>, b: Option<u64>| {
            let mut all = Payload::default();
            for tag in [a, b] {
                all.append(tag.map_or(Payload::zeroes(Sectors(1)), |tag| tags(tag, 1)));
            }
            all
        };
        assert_eq!(changes.check(&state(None, None)), Ok(Change(0)));
        assert_eq!(changes.check(&state(Some(7), None)), Ok(Change(1)));
        assert_eq!(changes.check(&state(Some(7), Some(8))), Ok(Change(2)));
        assert!(changes.check(&state(None, Some(8))).is_err(), "the first is lost, not the second");
        changes.answer(first, true);
        assert!(changes.check(&state(None, None)).is_err(), "the first was promised");
        changes.go_on_from(Change(1));
        assert_eq!(changes.check(&state(Some(7), None)), Ok(Change(1)));
        assert!(changes.check(&state(Some(7), Some(8))).is_err(), "that state was left");
    }

    #[test]
    fn a_lost_sector_fits_any_state_and_an_older_version_does_not() {
        let mut changes = Changes::new(2, Sectors(8));
        let first = changes.submit(Extent::new(0, 2), &tags(7, 2));
        changes.answer(first, true);
        let mut lost = tags(LOST, 1);
        lost.append(tags(8, 1));
        assert_eq!(changes.check(&lost), Ok(Change(1)));
        let mut older = Payload::zeroes(Sectors(1));
        older.append(tags(8, 1));
        assert!(changes.check(&older).is_err());
    }

    #[test]
    fn a_long_write_is_several() {
        let mut changes = Changes::new(4, Sectors(2));
        assert_eq!(changes.submit(Extent::new(0, 4), &tags(1, 4)), Change(2));
        let mut half = tags(1, 2);
        half.append(Payload::zeroes(Sectors(2)));
        assert_eq!(changes.check(&half), Ok(Change(1)));
    }
}
