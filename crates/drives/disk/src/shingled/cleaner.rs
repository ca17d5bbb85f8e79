//! Cleaning: what the cache has of a band is brought back to the band.
//!
//! A band can only be written whole, from its first track on. With a static mapping it is read,
//! written to a scratch band, since a power cut in the middle of overwriting it would lose it, and
//! then written in place; with a dynamic mapping it is read and written to a free slot.

use std::collections::VecDeque;

use manylogs_block::{Extent, Lba, Nanos, Sectors};

use super::layout::{Band, Slot};

/// The heads move this far before a command may come between: 2 MiB.
const STEP_SECTORS: u64 = 4096;

/// One access of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Where on the medium.
    pub(crate) extent: Extent,
    /// Whether it writes.
    pub(crate) write: bool,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Cleans a band, which lies in this slot afterwards.
    Clean { band: Band, to: Slot },
    /// Moves the content of a log to another.
    Swap { from: usize, to: usize },
}

/// A job under way.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) purpose: Purpose,
    /// Journal entries from this one on came after the job had begun.
    pub(super) before: u64,
    steps: VecDeque<Step>,
    /// Time of the mechanism that it has taken.
    pub(super) spent: Nanos,
}

impl Job {
    pub(super) const fn new(purpose: Purpose, before: u64) -> Self {
        Self { purpose, before, steps: VecDeque::new(), spent: Nanos(0) }
    }

    /// Adds an access, in steps.
    pub(super) fn add(&mut self, extent: Extent, write: bool) {
        let mut at = extent.start.0;
        while at < extent.end().0 {
            let len = (extent.end().0 - at).min(STEP_SECTORS);
            let step = Extent { start: Lba(at), len: Sectors(len) };
            self.steps.push_back(Step { extent: step, write });
            at += len;
        }
    }

    pub(super) fn next(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    pub(super) fn is_done(&self) -> bool {
        self.steps.is_empty()
    }
}
