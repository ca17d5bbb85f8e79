//! The settings that a volume may be found with: those of the last change that returned, or of a
//! change under way since.

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
    /// Grows with every change here.
    pub(crate) moment: u64,
}

impl Kept {
    /// Records that the volume is made with `settings`.
    pub(crate) fn create(&mut self, settings: Settings) {
        let change = self.begin(settings);
        self.end(change, true);
    }

    /// Records that a change was requested.
    pub(crate) fn begin(&mut self, settings: Settings) -> Change {
        self.moment += 1;
        self.changes += 1;
        let change = Change(self.changes);
        self.possible.push(Possible { change, settings, under_way: true });
        change
    }

    /// Records that a change returned. A failed change may have taken effect or not.
    pub(crate) fn end(&mut self, change: Change, done: bool) {
        self.moment += 1;
        for possible in &mut self.possible {
            possible.under_way &= possible.change != change;
        }
        if done {
            self.possible.retain(|other| other.change == change || other.under_way);
        }
    }

    /// Records a crash: the results of changes under way will never be known.
    pub(crate) fn crash(&mut self) {
        self.moment += 1;
        for possible in &mut self.possible {
            possible.under_way = false;
        }
    }

    /// Checks that a volume may be found with these settings.
    pub(crate) fn check(&self, found: &Settings) -> Result<(), String> {
        if self.possible.iter().any(|possible| possible.settings.unlike(found).is_empty()) {
            return Ok(());
        }
        let allowed: Vec<_> =
            self.possible.iter().map(|possible| possible.settings.unlike(found)).collect();
        Err(format!("settings {:?}; allowed ones differ by {allowed:?}", found.list()))
    }
}
