//! Chooses a shingled drive's next task: as [`super::dispatch`], with a translation layer.

use std::collections::VecDeque;

use manylogs_block::{Extent, Nanos, Time};

use super::{Drive, Pending};
use crate::cache::write::Destage;
use crate::mechanics::Access;
#[cfg(test)]
use crate::planted::{Bug, is};
use crate::queue::Waiting;
use crate::shingled::{Head, Pieces, Shingled, ShingledFigures};

/// Number of cached writes that one entry of the persistent cache's journal takes.
const BATCH_WRITES: usize = 128;
/// Number of sectors that such an entry takes: 1 MiB.
const BATCH_SECTORS: u64 = 2048;

/// The parts that only a shingled drive has.
#[derive(Clone, Debug)]
pub(super) struct Translated {
    pub(super) layer: Shingled,
    /// Writes that wait for room in the persistent cache.
    stalled: VecDeque<Waiting>,
    /// Whether the drive's own work goes next, because commands have had their turn.
    own_work_next: bool,
    /// Whether a stream goes next, because the persistent cache has had its turn.
    stream_next: bool,
}

impl Translated {
    pub(super) const fn new(layer: Shingled) -> Self {
        Self { layer, stalled: VecDeque::new(), own_work_next: false, stream_next: false }
    }
}

impl Drive {
    /// What the translation layer of a shingled drive did.
    #[must_use]
    pub fn shingled(&self) -> Option<ShingledFigures> {
        self.translated.as_ref().map(|translated| translated.layer.figures())
    }

    /// Fills the persistent cache of a shingled drive up to `share` of its capacity, 0 to 1, with
    /// small writes at places drawn from `seed`, as if earlier work had ended at `now`. Takes no
    /// time. Does nothing on a conventional drive.
    pub fn fill_persistent_cache(&mut self, share: f64, seed: u64, now: Time) {
        if let Some(translated) = &mut self.translated {
            translated.layer.fill(share, seed, now);
            // Before `now` there was nothing to clean, so the drive did not clean.
            self.free_at = self.free_at.max(now);
        }
    }

    /// As [`Drive::dispatch_time`], for a shingled drive.
    pub(super) fn translated_time(&self, of: &Translated) -> Option<Time> {
        let own = of.layer.due();
        let own = own.map(|due| if of.stalled.is_empty() { due } else { Time(0) });
        let times = [self.queue.earliest_ready(), self.dirty_due(of), own];
        let earliest = times.into_iter().flatten().min()?;
        Some(earliest.max(self.free_at))
    }

    /// Time from which on a cached write may go to the medium.
    fn dirty_due(&self, of: &Translated) -> Option<Time> {
        if self.writes.is_clean() {
            return None;
        }
        let may_wait = !self.is_buffer_short() && self.flushes.is_empty();
        let held_back = of.layer.held_back().filter(|_| may_wait);
        match held_back {
            Some((extent, until)) if self.writes.lies_in(extent) => Some(until),
            _ => Some(self.dirty_since),
        }
    }

    /// Carries out the next task. `translated` is the drive's own, taken out for the call.
    pub(super) fn dispatch_translated(&mut self, at: Time, translated: &mut Translated) {
        if translated.layer.takes_turns() && std::mem::take(&mut translated.own_work_next) {
            return self.work_for_itself(at, translated);
        }
        translated.own_work_next = true;
        if self.resume_stalled(at, translated) {
            return;
        }
        let dirty = self.dirty_due(translated).is_some_and(|due| due <= at);
        if dirty && self.destages_next(at) {
            self.destage_next = false;
            if self.destage_translated(at, translated) {
                return;
            }
        }
        self.destage_next = true;
        if let Some(write) = self.queue.first_write() {
            let start = translated.layer.next_write(write.extent.len, &self.head(at));
            self.queue.writes_go_to(start, self.mechanism.geometry().locate(start));
        }
        match self.queue.take(at, &self.mechanism, &self.reads) {
            Some(waiting) if waiting.write => self.write_translated(at, waiting, translated),
            Some(waiting) => self.read_translated(at, &waiting, translated),
            None if dirty && self.destage_translated(at, translated) => (),
            None => self.work_for_itself(at, translated),
        }
    }

    /// The head's state for a write that begins at `at`.
    const fn head(&self, at: Time) -> Head<'_> {
        Head { mechanism: &self.mechanism, at, margin: self.queue.margin() }
    }

    /// Carries out one access of cleaning.
    fn work_for_itself(&mut self, at: Time, translated: &mut Translated) {
        let Some(step) = translated.layer.next_step(at) else { return };
        let start = self.leave(at);
        let access = self.pass(start, &[step.extent], step.write);
        // The host does not cause this work directly, so the counters leave it out.
        self.free_at = access.end;
        translated.layer.step_done(access.end.since(at));
    }

    /// Resumes a write that waited for room in the persistent cache. Returns whether there was
    /// room.
    fn resume_stalled(&mut self, at: Time, translated: &mut Translated) -> bool {
        let Some(&waiting) = translated.stalled.front() else { return false };
        let Some(written) = translated.layer.cache_write(waiting.command.extent, &self.head(at))
        else {
            return false;
        };
        translated.stalled.pop_front();
        self.write_direct(at, &waiting, &written, None);
        true
    }

    fn write_translated(&mut self, at: Time, mut waiting: Waiting, translated: &mut Translated) {
        // Older cached data beneath is written along, so that it cannot overwrite this write later.
        let overlaps =
            (!self.writes.is_clean()).then(|| self.writes.take_overlaps(waiting.command.extent));
        let extent = overlaps.as_ref().map_or(waiting.command.extent, |destage| destage.extent);
        if translated.layer.streams(extent) {
            let pieces = translated.layer.stream_write(extent);
            return self.write_direct(at, &waiting, &pieces, overlaps);
        }
        if let Some(written) = translated.layer.cache_write(extent, &self.head(at)) {
            return self.write_direct(at, &waiting, &written, overlaps);
        }
        // The union is written once there is room. Its cached part counts as written from now on.
        waiting.command.extent = extent;
        if let Some(destage) = overlaps {
            self.pending.push(at, Pending::Destaged(destage));
        }
        translated.stalled.push_back(waiting);
        self.work_for_itself(at, translated);
    }

    fn write_direct(
        &mut self,
        at: Time,
        waiting: &Waiting,
        pieces: &[Extent],
        overlaps: Option<Destage>,
    ) {
        let start = self.leave(at);
        let access = self.pass(start, pieces, true);
        self.account(at, &access);
        if let Some(destage) = overlaps {
            self.pending.push(access.end, Pending::Destaged(destage));
        }
        self.complete(at, waiting, access);
    }

    fn read_translated(&mut self, at: Time, waiting: &Waiting, translated: &mut Translated) {
        let pieces = translated.layer.pieces(waiting.command.extent);
        if let [piece] = pieces[..] {
            let place = self.mechanism.geometry().locate(piece.start);
            self.read(at, waiting, piece, &place);
        } else {
            let start = self.leave(at);
            let access = self.gather(start, pieces);
            self.account(at, &access);
            self.complete(at, waiting, access);
        }
        translated.layer.read_at(self.mechanism.position().cylinder);
    }

    /// Brings cached writes to the medium; returns whether there was room for any. Writes that may
    /// become a stream are held back as long as allowed, while others can go.
    fn destage_translated(&mut self, at: Time, translated: &mut Translated) -> bool {
        let held_back = translated.layer.held_back();
        let held_back = held_back.filter(|(_, until)| at < *until && self.flushes.is_empty());
        let candidate = held_back.map(|(extent, _)| extent);
        let turn = std::mem::replace(&mut translated.stream_next, false);
        if turn && self.destage_stream(at, translated) {
            return true;
        }
        translated.stream_next = true;
        self.destage_batch(at, candidate, translated)
            || (!turn && self.destage_stream(at, translated))
            || (candidate.is_some() && self.destage_batch(at, None, translated))
    }

    fn destage_stream(&mut self, at: Time, translated: &mut Translated) -> bool {
        let mut streams = translated.layer.stream_extents();
        let Some(destage) = streams.find_map(|stream| self.writes.take_within(stream)) else {
            return false;
        };
        drop(streams);
        let pieces = translated.layer.stream_write(destage.extent);
        self.destage_to(at, &pieces, [destage]);
        true
    }

    /// Brings cached writes to the persistent cache, except those of a stream or of `candidate`.
    fn destage_batch(
        &mut self,
        at: Time,
        candidate: Option<Extent>,
        translated: &mut Translated,
    ) -> bool {
        let mut others: Vec<Extent> = translated.layer.stream_extents().chain(candidate).collect();
        others.sort_unstable_by_key(|extent| extent.start);
        let mut writes_max = BATCH_WRITES;
        while writes_max > 0 {
            let batch = self.writes.batch(&others, writes_max, BATCH_SECTORS);
            let Some(places) = batch else { return false };
            if let Some(written) = translated.layer.cache_entry(&places, &self.head(at)) {
                let taken: Vec<_> =
                    places.iter().map(|place| self.writes.take_at(*place)).collect();
                self.destage_to(at, &[written], taken);
                return true;
            }
            // If room is short, a smaller batch may fit.
            writes_max /= 4;
        }
        false
    }

    fn destage_to(
        &mut self,
        at: Time,
        pieces: &[Extent],
        destages: impl IntoIterator<Item = Destage>,
    ) {
        let start = self.leave(at);
        let access = self.pass(start, pieces, true);
        self.counters.destages += 1;
        self.account(at, &access);
        for destage in destages {
            self.pending.push(access.end, Pending::Destaged(destage));
        }
    }

    /// Reads the pieces of one command, each time the one that comes under the head first. In
    /// address order the head would go back and forth between the bands and the cache.
    fn gather(&mut self, start: Time, mut pieces: Pieces) -> Access {
        let mut sum = Access { end: start, ..Access::default() };
        while !pieces.is_empty() {
            let time_to = |piece: &Extent| {
                let place = self.mechanism.geometry().locate(piece.start);
                self.mechanism.positioning(sum.end, &place, false, Nanos(0))
            };
            #[cfg(test)]
            let time_to =
                |piece: &Extent| if is(Bug::PiecesByAddress) { Nanos(0) } else { time_to(piece) };
            let nearest = (0..pieces.len()).min_by_key(|index| time_to(&pieces[*index]));
            let piece = pieces.remove(nearest.unwrap_or(0));
            sum = sum.then(&self.pass(sum.end, &[piece], false));
        }
        sum
    }

    /// Accesses the pieces one after the other.
    fn pass(&mut self, start: Time, pieces: &[Extent], write: bool) -> Access {
        let mut sum = Access { end: start, ..Access::default() };
        for piece in pieces {
            if write {
                self.reads.invalidate(*piece);
            }
            let place = self.mechanism.geometry().locate(piece.start);
            sum = sum.then(&self.mechanism.access(sum.end, &place, *piece, write));
        }
        sum
    }
}
