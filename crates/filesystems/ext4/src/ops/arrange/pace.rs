//! How fast a walk goes that arranges metadata, and whom it lets pass.

use manylogs_block::{Nanos, yield_now};

use super::Arranging;

/// Blocks that are read at a time for a walk that nobody waits for: a commit, and each change that
/// comes behind it, waits for so many reads at most.
const STEP_MEANWHILE: usize = 8;
/// Time between two steps of a walk that nobody waits for, if the first used the device.
const PAUSE: Nanos = Nanos::from_millis(100);

/// Whom a walk waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Somebody waits for its end.
    AtOnce,
    /// Nobody does: after each step that used the device it pauses, and goes on when no request
    /// came for `idle`. It ends when the log has no room, when metadata is not arranged in idle
    /// time any more, or the file system closes.
    Meanwhile {
        /// Time without a request.
        idle: Nanos,
    },
}

impl Arranging<'_> {
    /// How much is read in a step of which `most` would do.
    pub(super) fn step(&self, most: usize) -> usize {
        match self.pace {
            Pace::AtOnce => most,
            Pace::Meanwhile { .. } => STEP_MEANWHILE,
        }
    }

    /// Lets others have the device, if nobody waits for the walk. False if the walk ends here.
    pub(super) async fn give_way(&mut self) -> bool {
        if matches!(self.pace, Pace::AtOnce) {
            return true;
        }
        let goes_on = if self.note_requests() {
            self.pause().await
        } else {
            yield_now().await;
            self.core.journal.arranges_in_idle_time()
        };
        // Those of the pause are not its own.
        self.requests = self.core.requests();
        if !goes_on {
            (self.left, self.is_cut) = (0, true);
        }
        goes_on
    }

    /// Waits for a while without requests, if nobody waits for the walk. False if the walk has to
    /// end.
    pub(super) async fn pause(&self) -> bool {
        match self.pace {
            Pace::AtOnce => true,
            Pace::Meanwhile { idle } => self.core.is_idle_soon(PAUSE.min(idle), idle).await,
        }
    }

    /// Counts the requests of a step as its own, if nobody waits for the walk: they are no sign
    /// that somebody uses the device. Those of others during a step are taken for its own, too.
    /// Returns whether there were some.
    pub(super) fn note_requests(&mut self) -> bool {
        let made = self.core.requests() - self.requests;
        self.requests += made;
        if matches!(self.pace, Pace::Meanwhile { .. }) {
            self.core.journal.note_arranging(made);
        }
        made > 0
    }
}
