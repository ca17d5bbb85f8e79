//! When the drive does work of its own, and which.

use manylogs_block::{Extent, Nanos, Sectors, Time};

#[cfg(test)]
use crate::planted::{Bug, is};

use super::cache::Pieces;
use super::cleaner::Step;
use super::{Band, BandCleaning, BandMapping, Job, Purpose, Shingled};

/// Per cent of a log: at or above this its content moves to another log.
const SWAP_FULL: u64 = 80;
/// Per cent of a log: up to this it may take the content of another.
const SWAP_EMPTY: u64 = 10;
/// Time without a command after which a log's content moves. Far shorter than for a band, because a
/// move takes little time.
const SWAP_IDLE: Nanos = Nanos::from_millis(100);

impl Shingled {
    /// Time from which on the drive may work for itself, if there is such work.
    pub(crate) fn due(&self) -> Option<Time> {
        let swaps = matches!(&self.job, Some(Job { purpose: Purpose::Swap { .. }, .. }));
        let idle_since = self.last_command;
        #[cfg(test)]
        let idle_since = if is(Bug::SwapsBesideWork) { Time(0) } else { idle_since };
        let swap = (swaps || self.full.is_some()).then(|| idle_since + SWAP_IDLE);
        [swap, self.cleaning_due()].into_iter().flatten().min()
    }

    /// Time from which on a band may be cleaned, if one is dirty.
    fn cleaning_due(&self) -> Option<Time> {
        if self.cache.dirty_bands() == 0 && self.job.is_none() {
            return None;
        }
        if self.is_pressed() {
            return Some(Time(0));
        }
        let idle_after = Nanos::from_secs_f64(self.table.idle_after_ms / 1e3);
        match self.table.cleaning {
            BandCleaning::Idle => Some(self.last_command + idle_after),
            BandCleaning::Constant => Some(Time(0)),
        }
    }

    /// Whether cleaning takes turns with commands: the cache is nearly full, or the drive cleans
    /// all the time.
    pub(crate) fn takes_turns(&self) -> bool {
        let constant = self.table.cleaning == BandCleaning::Constant;
        self.is_pressed() || (constant && self.cache.dirty_bands() > 0)
    }

    /// Whether the cache had no room for the last write, or has less than a fiftieth of its room
    /// left.
    fn is_pressed(&self) -> bool {
        let (used, all) = (self.cache.used_sectors(), self.figures.cache.0);
        self.refused
            || used * 50 >= all * 49
            || self.cache.extents() * 50 >= self.cache.extents_max() * 49
    }

    /// The next access of the drive's own work at `now`; `None` if there is no such work.
    pub(crate) fn next_step(&mut self, now: Time) -> Option<Step> {
        if self.job.is_none() {
            self.job = self.next_job(now);
        }
        self.job.as_mut()?.next()
    }

    /// Records that a step has taken `spent` of the mechanism's time.
    pub(crate) fn step_done(&mut self, spent: Nanos) {
        self.figures.cleaning += spent;
        let Some(job) = &mut self.job else { return };
        job.spent += spent;
        if job.is_done()
            && let Some(job) = self.job.take()
        {
            self.finish(&job);
        }
    }

    fn next_job(&mut self, now: Time) -> Option<Job> {
        let swap = self.swap_job();
        if swap.is_some() || self.cleaning_due().is_none_or(|due| due > now) {
            return swap;
        }
        self.victim().map(|band| self.cleaning_job(band))
    }

    /// Chooses the band to clean. With a static mapping it is the band of the oldest entry in the
    /// fullest log (first in, first out), with a dynamic mapping the band that frees most.
    fn victim(&self) -> Option<Band> {
        if self.table.mapping == BandMapping::Dynamic {
            return self.cache.fullest_band();
        }
        let logs = self.cache.logs().iter().enumerate();
        let fullest = logs.max_by_key(|(index, log)| {
            (log.used() * 1000 / log.medium().len.0.max(1), usize::MAX - index)
        })?;
        self.cache.oldest_band(fullest.0).or_else(|| self.cache.fullest_band())
    }

    fn cleaning_job(&self, band: Band) -> Job {
        let from = self.slot_of(band);
        let free = self.free.front().copied();
        let to = if self.table.mapping == BandMapping::Dynamic { free } else { None };
        let to = to.unwrap_or(from);
        let mut job = Job::new(Purpose::Clean { band, to }, self.cache.next_entry());
        let mut cached = Pieces::new();
        let addresses = band.extent(self.table.band_sectors);
        self.cache.parts(addresses, &mut |part, at| {
            cached.extend(at.map(|start| Extent { start, len: part.len }));
        });
        cached.sort_unstable_by_key(|piece| piece.start);
        cached.into_iter().for_each(|piece| job.add(piece, false));
        let (old, new) = (self.layout.extent(from), self.layout.extent(to));
        job.add(old, false);
        if from == to
            && let Some(scratch) = free
        {
            job.add(self.layout.extent(scratch), true);
        }
        job.add(new, true);
        job
    }

    /// Remembers the log under the head if it is nearly full.
    pub(super) fn note_full(&mut self, log: usize) {
        if self.share_of(log) >= SWAP_FULL {
            self.full = Some(log);
        }
    }

    fn share_of(&self, log: usize) -> u64 {
        let log = &self.cache.logs()[log];
        log.used() * 100 / log.medium().len.0.max(1)
    }

    /// Plans to move the content of the full log near the head. It goes to the nearest log that is
    /// nearly empty and is not offered entries, so that it does not take room from those that are.
    fn swap_job(&mut self) -> Option<Job> {
        // The log may have become emptier since it was noted.
        let from = self.full.take().filter(|log| self.share_of(*log) >= SWAP_FULL)?;
        let len = self.cache.logs()[from].used();
        let takes_it = |log: &usize| {
            *log != from
                && self.share_of(*log) <= SWAP_EMPTY
                && self.cache.logs()[*log].room(len).is_some()
        };
        let to = self.near.beyond().find(takes_it)?;
        let mut job = Job::new(Purpose::Swap { from, to }, self.cache.next_entry());
        job.add(Extent { len: Sectors(len), ..self.cache.logs()[from].medium() }, false);
        job.add(Extent { start: self.cache.logs()[to].position(), len: Sectors(len) }, true);
        Some(job)
    }

    fn finish(&mut self, job: &Job) {
        match job.purpose {
            Purpose::Clean { band, to } => {
                self.figures.band_clean.push(job.spent);
                let addresses = band.extent(self.table.band_sectors);
                self.cache.forget_before(addresses, job.before);
                let from = self.slot_of(band);
                if from != to {
                    self.free.pop_front();
                    self.free.push_back(from);
                    self.moved.insert(band, to);
                }
            }
            Purpose::Swap { from, to } => {
                self.figures.log_swaps += 1;
                self.cache.move_log(from, to, job.before);
            }
        }
    }

    /// Ends the cleaning of a band to which a stream writes: the data read for it is old.
    pub(super) fn abandon(&mut self, extent: Extent) {
        let Some(Job { purpose: Purpose::Clean { band, .. }, .. }) = self.job else { return };
        if extent.overlaps(band.extent(self.table.band_sectors)) {
            self.job = None;
        }
    }
}
