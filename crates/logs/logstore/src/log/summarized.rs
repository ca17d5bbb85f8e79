//! Summaries of logs, and logs that are held until the summary of their last epoch counts no more.

use super::Log;
use crate::Summary;

impl Log {
    /// From the next epoch on the log keeps a summary of at most so many bytes; from now on if
    /// nothing was appended.
    pub fn keep_summary(&mut self, most: usize) {
        if self.summary.is_none() && self.tail.0 == 0 {
            self.summary = Some(Summary::new(most));
        }
    }

    /// What the log holds in this epoch, if it keeps that. Records that failed are left out.
    #[must_use]
    pub const fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Drops the summary, which is on a device now, or does not say all.
    pub fn drop_summary(&mut self) {
        self.summary = None;
    }

    /// The log keeps no summary in this epoch.
    pub fn forgo_summary(&mut self) {
        self.summary.iter_mut().for_each(Summary::spoil);
    }

    /// From now on no epoch begins, and no record is appended, before [`Log::release`].
    pub const fn hold(&mut self) {
        self.held = true;
    }

    /// Ends a [`Log::hold`].
    pub const fn release(&mut self) {
        self.held = false;
    }

    /// Whether the log is held: see [`Log::hold`].
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.held
    }
}
