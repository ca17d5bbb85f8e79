//! Which settings a volume may be found with: those of the last change that returned, or of one
//! that was under way since.

use manylogs::Settings;

/// A change of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change(u64);

#[derive(Clone, Debug)]
struct Possible {
    change: Change,
    settings: Settings,
    under_way: bool,
}

/// Settings that a history may find kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    possible: Vec<Possible>,
    changes: u64,
    /// Grows whenever anything changes here.
    pub(crate) moment: u64,
}

impl Kept {
    /// The volume is made, with these.
    pub(crate) fn create(&mut self, settings: Settings) {
        let change = self.begin(settings);
        self.end(change, true);
    }

    /// A change is asked for.
    pub(crate) fn begin(&mut self, settings: Settings) -> Change {
        self.moment += 1;
        self.changes += 1;
        let change = Change(self.changes);
        self.possible.push(Possible { change, settings, under_way: true });
        change
    }

    /// It has returned. One that failed may have taken effect or not.
    pub(crate) fn end(&mut self, change: Change, done: bool) {
        self.moment += 1;
        for possible in &mut self.possible {
            possible.under_way &= possible.change != change;
        }
        if done {
            self.possible.retain(|other| other.change == change || other.under_way);
        }
    }

    /// The results of changes under way will not be known any more.
    pub(crate) fn crash(&mut self) {
        self.moment += 1;
        for possible in &mut self.possible {
            possible.under_way = false;
        }
    }

    /// Whether a volume may be found with these.
    pub(crate) fn check(&self, found: &Settings) -> Result<(), String> {
        if self.possible.iter().any(|possible| possible.settings.unlike(found).is_empty()) {
            return Ok(());
        }
        let allowed: Vec<_> =
            self.possible.iter().map(|possible| possible.settings.unlike(found)).collect();
        Err(format!("settings {:?}; allowed ones differ by {allowed:?}", found.list()))
    }
}
