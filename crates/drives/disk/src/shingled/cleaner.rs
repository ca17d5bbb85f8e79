//! Cleaning: brings a band's cached data back to the band.
//!
//! A band can only be written whole, from its first track on. With a static mapping it is read,
//! written to a scratch band, and then written in place: a power cut while it is overwritten would
//! lose it otherwise. With a dynamic mapping it is read and written to a free slot.

use std::collections::VecDeque;

use manylogs_block::{Extent, Lba, Nanos, Sectors};

use super::layout::{Band, Slot};

/// Sectors of the longest step: 2 MiB. Commands may come between steps.
const STEP_SECTORS: u64 = 4096;

/// One access of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its place on the medium.
    pub(crate) extent: Extent,
    /// Whether the access writes.
    pub(crate) write: bool,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Cleans a band, which lies in slot `to` afterwards.
    Clean { band: Band, to: Slot },
    /// Moves the content of log `from` to log `to`.
    Swap { from: usize, to: usize },
}

/// A job under way.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) purpose: Purpose,
    /// Number of the next journal entry when the job began: later data is newer than the job.
    pub(super) before: u64,
    steps: VecDeque<Step>,
    /// Time of the mechanism that the job has taken so far.
    pub(super) spent: Nanos,
}

impl Job {
    pub(super) const fn new(purpose: Purpose, before: u64) -> Self {
        Self { purpose, before, steps: VecDeque::new(), spent: Nanos(0) }
    }

    /// Adds an access, cut into steps.
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
