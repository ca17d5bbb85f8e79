//! What happens to the halves of a mirrored chain while clients use it: they fail and are replaced.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{IoError, Request, to_usize};
use manylogs_gecko::{HalfState, ReplaceError, Standing};

use super::watch::Incarnation;
use super::world::of_plan;

/// Drives that are replaced in an incarnation, at most.
const REPLACED_MOST: u64 = 2;
/// Requests before a drive fails, at most.
const SOUND_MOST: u64 = 120;
/// The same for a drive that is copied to: it should often fail before it has joined.
const SOUND_NEW: u64 = 30;

/// The trouble of one incarnation. At most one drive fails in it, and never the last of its link:
/// clients see no error.
pub(super) struct Trouble {
    pub(super) of: Incarnation,
    pub(super) replaced: Rc<Cell<u64>>,
    pub(super) failed: Rc<Cell<u64>>,
}

impl Trouble {
    /// Lets it happen.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) async fn run(mut self) -> Result<(), String> {
        let mut may_fail = self.of.rng.one_in(2) && self.fails_somewhere();
        let used: Vec<usize> = self.halves().filter_map(|half| half.given).collect();
        let mut unused: Vec<usize> = (0..self.of.plan.drives.len())
            .filter(|number| !used.iter().any(|given| self.of.given[*given] == *number))
            .collect();
        for _ in 0..self.of.rng.below(1 + REPLACED_MOST) {
            self.of.pause().await;
            if unused.is_empty() {
                break;
            }
            let new = unused.remove(to_usize(self.of.rng.below(unused.len() as u64)));
            may_fail = self.replace(new, may_fail).await?;
        }
        Ok(())
    }

    fn halves(&self) -> impl Iterator<Item = HalfState> {
        self.of.chain.halves().into_iter()
    }

    /// The current halves of links that have two.
    fn able(&self) -> Vec<HalfState> {
        let is_current = |half: &HalfState| matches!(half.standing, Standing::Current(_));
        let current: Vec<HalfState> = self.halves().filter(is_current).collect();
        let in_link = |link| current.iter().filter(move |half| half.link == link).count();
        current.iter().filter(|half| in_link(half.link) == 2).copied().collect()
    }

    /// A drive of a link with two current drives fails, a while from now.
    fn fails_somewhere(&mut self) -> bool {
        let able: Vec<usize> = self.able().iter().filter_map(|half| half.given).collect();
        if able.is_empty() {
            return false;
        }
        let given = able[to_usize(self.of.rng.below(able.len() as u64))];
        self.fail(self.of.given[given], SOUND_MOST);
        true
    }

    /// Lets a drive fail one change or flush, or all from then on, after fewer than `sound`
    /// requests.
    fn fail(&mut self, number: usize, sound: u64) {
        let (mut left, once) = (self.of.rng.below(sound), self.of.rng.one_in(2));
        let failed = Rc::clone(&self.failed);
        self.of.drives.drive(number).fail_requests(Box::new(move |request| {
            let is_read = matches!(request, Request::Read { .. });
            if left > 0 || is_read && once {
                left = left.saturating_sub(1);
                return None;
            }
            failed.set(1);
            let extent = request.extent().unwrap_or_default();
            left = if once { u64::MAX } else { 0 };
            Some(if once { IoError::Medium { extent } } else { IoError::Gone })
        }));
    }

    /// Replaces a half by the drive `new`, which may fail if no drive `may_fail` yet. Returns
    /// whether one may fail now.
    async fn replace(&mut self, new: usize, may_fail: bool) -> Result<bool, String> {
        let links = self.of.plan.members / 2;
        let place = (to_usize(self.of.rng.below(links as u64)), to_usize(self.of.rng.below(2)));
        // It may fail after it has joined: then its twin must be there.
        let has_twin = self.able().iter().any(|half| half.link == place.0);
        let fails = !may_fail && has_twin && self.of.rng.one_in(2);
        if fails {
            self.fail(new, SOUND_NEW);
        }
        let drive = of_plan(self.of.drives.drive(new), &self.of.plan);
        match self.of.chain.replace(place, (drive, new)).await {
            Ok(_) => self.replaced.set(self.replaced.get() + 1),
            // One that joins since the last opening goes on.
            Err(ReplaceError::Busy) => {}
            // The clients have ended, and the chain was closed.
            Err(ReplaceError::Closed) => {}
            Err(_) if fails => {}
            // The half that is copied from may fail, but it has a twin.
            Err(error) => return Err(format!("drive {new} does not join {place:?}: {error}")),
        }
        Ok(may_fail || fails)
    }
}

/// Whether an opening failed because a link has no current drive.
pub(super) fn is_of_the_last(problem: &str) -> bool {
    ["left its pair", "are missing"].iter().any(|part| problem.contains(part))
}
