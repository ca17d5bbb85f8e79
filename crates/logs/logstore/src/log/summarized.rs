//! What logs keep of their entries: extents and summaries. Logs are held until the summary of their
//! last epoch counts no more.

use super::Log;
use crate::{Inverse, Summary};

impl Log {
    /// From the next epoch on the log keeps the extents of its entries; from now on if it is empty.
    pub fn keep_inverse(&mut self) {
        if self.inverse.is_none() && self.is_empty() {
            self.inverse = Some(Inverse::default());
        }
    }

    /// The extents of its entries, if the log keeps them. Some may be of an earlier epoch, and
    /// those of dead versions may be left out.
    #[must_use]
    pub const fn inverse(&self) -> Option<&Inverse> {
        self.inverse.as_ref()
    }

    /// From the next epoch on the log keeps a summary of at most so many bytes; from now on if
    /// nothing was appended.
    pub fn keep_summary(&mut self, most: usize) {
        if self.summary.is_none() && self.tail.0 == 0 {
            self.summary = Some(Summary::new(most));
        }
    }

    /// What the log holds in this epoch, if it keeps that.
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
