//! When versions were given, as far as it takes to tell the age of the oldest.

use std::cell::RefCell;
use std::collections::BTreeMap;

use manylogs_block::{Nanos, Time};

use crate::versions::Version;

/// Versions that are given within this time share a note.
const STEP: Nanos = Nanos::from_secs(1);
/// Most notes. Of more, those go that a version needs least: without them it counts as older than
/// it is by an eighth of its age at most. So many notes are enough for years.
const NOTES_MAX: usize = 512;
/// The share of a version's age by which it may count as older, as a divisor.
const OLDER_SHARE: u64 = 8;

/// The times at which some versions were given. A version without a note counts as old as the one
/// before it that has one.
#[derive(Debug)]
pub(crate) struct Written {
    /// The opening: all versions of earlier openings count from then.
    from: Time,
    notes: RefCell<BTreeMap<Version, Time>>,
}

impl Written {
    pub(crate) const fn from(from: Time) -> Self {
        Self { from, notes: RefCell::new(BTreeMap::new()) }
    }

    /// Notes that a version was given now.
    pub(crate) fn note(&self, version: Version, now: Time) {
        let mut notes = self.notes.borrow_mut();
        if notes.last_key_value().is_some_and(|(_, last)| now.since(*last) < STEP) {
            return;
        }
        notes.insert(version, now);
        if notes.len() > NOTES_MAX {
            thin(&mut notes, now);
        }
    }

    /// When a version was given, or some time before that.
    pub(crate) fn when(&self, version: Version) -> Time {
        let notes = self.notes.borrow();
        notes.range(..=version).next_back().map_or(self.from, |(_, at)| *at)
    }
}

/// Drops notes between two that are close to each other for their age.
fn thin(notes: &mut BTreeMap<Version, Time>, now: Time) {
    let mut times = notes.values().copied().collect::<Vec<_>>().into_iter().skip(1);
    let mut next = times.next();
    let mut before: Option<Time> = None;
    notes.retain(|_, at| {
        let behind = std::mem::replace(&mut next, times.next());
        let close = before.zip(behind).is_some_and(|(before, behind)| {
            OLDER_SHARE * behind.since(before).0 <= now.since(behind).0
        });
        if !close {
            before = Some(*at);
        }
        !close
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn a_version_is_never_taken_for_younger_than_it_is() {
        let written = Written::from(at(3));
        assert_eq!(written.when(Version(9)), at(3), "of an earlier opening");
        for second in 0..100_000 {
            written.note(Version(1000 + second), at(10 + second));
            written.note(Version(1000 + second), at(10 + second) + Nanos::from_millis(500));
        }
        assert!(written.notes.borrow().len() <= NOTES_MAX);
        let now = 10 + 100_000;
        for second in (0..100_000).step_by(97) {
            let (age, said) = (now - (10 + second), written.when(Version(1000 + second)));
            let said = at(now).since(said).0 / 1_000_000_000;
            assert!(said >= age && said <= age + 1 + age / 4, "{said} s instead of {age}");
        }
    }
}
