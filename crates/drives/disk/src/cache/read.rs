//! Read-ahead: after a read the drive goes on reading until it gets another command.
//!
//! This reading ahead is not simulated step by step. A segment remembers where and when it began,
//! and the sectors that have passed the head by some moment are computed on demand.

use manylogs_block::{Extent, Lba, Time};

use crate::mechanics::Mechanism;

/// Ways in which the buffer can serve a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The buffer holds the whole extent.
    Buffered,
    /// The drive is reading the extent ahead and will have it at this time.
    Streams(Time),
    /// The drive has read up to here and waits behind the last sector it read.
    Resume(Lba),
    /// The buffer holds nothing that helps.
    Miss,
}

/// One segment: its sectors and the progress of reading ahead.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// First sector held.
    begin: u64,
    /// Sectors from this one on were read ahead ...
    from: u64,
    /// ... beginning at this time ...
    since: Time,
    /// ... until this time at the latest ...
    until: Time,
    /// ... and up to, not including, this sector.
    limit: u64,
    /// Whether the segment answered a read since the replacement hand passed.
    used: bool,
}

/// The window of an empty segment: no address is in it.
const NOTHING: (u64, u64) = (u64::MAX, 0);

/// The segments of a drive.
#[derive(Clone, Debug)]
pub(crate) struct ReadCache {
    segments: Vec<Segment>,
    /// First sector and length of each segment, close together because every read looks here.
    windows: Vec<(u64, u64)>,
    segments_max: usize,
    ahead: u64,
    /// The segment that the head is reading into.
    active: Option<usize>,
    /// Index from which the search for a segment to overwrite continues.
    hand: usize,
}

impl ReadCache {
    /// `segments_max` segments that read `ahead` sectors ahead; a zero for either turns read-ahead
    /// off.
    pub(crate) fn new(segments_max: usize, ahead: u64) -> Self {
        let segments_max = if ahead == 0 { 0 } else { segments_max };
        let segments = Vec::with_capacity(segments_max);
        Self {
            segments,
            windows: Vec::with_capacity(segments_max),
            segments_max,
            ahead,
            active: None,
            hand: 0,
        }
    }

    /// How the buffer can serve a read of `extent` at `now`, and the segment concerned.
    pub(crate) fn plan(&self, now: Time, extent: Extent, mechanism: &Mechanism) -> (Plan, usize) {
        // Looks at the stream under way first: it is the likeliest, and others may overlap it.
        let index = self.stream_at(extent.start.0).or_else(|| self.window_at(extent.start.0));
        index.map_or((Plan::Miss, 0), |index| self.plan_in(index, now, extent, mechanism))
    }

    /// As [`ReadCache::plan`], from the stream under way alone: for a read that found nothing in
    /// the buffer when it arrived.
    pub(crate) fn plan_stream(&self, now: Time, extent: Extent, m: &Mechanism) -> (Plan, usize) {
        let index = self.stream_at(extent.start.0);
        index.map_or((Plan::Miss, 0), |index| self.plan_in(index, now, extent, m))
    }

    fn plan_in(&self, index: usize, now: Time, extent: Extent, m: &Mechanism) -> (Plan, usize) {
        let (start, end) = (extent.start.0, extent.end().0);
        let segment = &self.segments[index];
        let streaming = self.active == Some(index);
        let read_until = |lba: u64| segment.time_of(lba, m);
        if end <= segment.limit && read_until(end) <= now.min(segment.until) {
            return (Plan::Buffered, index);
        }
        if !streaming {
            return (Plan::Miss, 0);
        }
        let stopped = read_until(segment.limit) <= now;
        let patience = now + m.spindle().period();
        match (stopped, read_until(start) <= patience) {
            (true, _) => (Plan::Resume(Lba(start.max(segment.limit))), index),
            (false, true) => (Plan::Streams(read_until(end)), index),
            (false, false) => (Plan::Miss, 0),
        }
    }

    /// A read of `extent` was answered from segment `index` at `now`: the window moves on. If the
    /// head stopped at the window's end, it reads on.
    pub(crate) fn slide(&mut self, index: usize, now: Time, extent: Extent, m: &Mechanism) {
        let streaming = self.active == Some(index);
        let segment = &mut self.segments[index];
        segment.used = true;
        if !streaming {
            return;
        }
        let (end, capacity) = (extent.end().0, m.geometry().capacity_sectors());
        let limit = segment.limit.max((end + self.ahead).min(capacity));
        let stopped_at = segment.time_of(segment.limit, m);
        if limit > segment.limit && stopped_at <= now {
            let place = m.geometry().locate(Lba(segment.limit));
            let wait = m.spindle().wait(now, place.angle);
            *segment = Segment { from: segment.limit, since: now + wait, ..*segment };
        } else if end > segment.from && end < capacity {
            let since = segment.time_of(end, m);
            *segment = Segment { from: end, since, ..*segment };
        }
        segment.limit = limit;
        segment.begin = segment.begin.max(end.saturating_sub(self.ahead));
        self.refresh(index);
    }

    /// A read of `extent` from the medium ended at `at`: from there the drive reads ahead.
    pub(crate) fn start(&mut self, at: Time, extent: Extent, mechanism: &Mechanism) {
        let before = self.active.take();
        let continued = before.filter(|index| {
            let segment = &self.segments[*index];
            segment.begin <= extent.start.0 && extent.start.0 <= segment.limit
        });
        let (end, capacity) = (extent.end().0, mechanism.geometry().capacity_sectors());
        if self.segments_max == 0 || end >= capacity {
            return;
        }
        let begin = extent.start.0.max(end.saturating_sub(self.ahead));
        let segment = Segment {
            begin,
            from: end,
            since: at,
            until: Time(u64::MAX),
            limit: (end + self.ahead).min(capacity),
            used: false,
        };
        let index = self.victim(continued);
        if index == self.segments.len() {
            self.segments.push(segment);
        } else {
            self.segments[index] = segment;
        }
        self.refresh(index);
        self.active = Some(index);
    }

    /// The head leaves at `at`: read-ahead ends.
    pub(crate) fn interrupt(&mut self, at: Time) {
        if let Some(index) = self.active.take() {
            self.segments[index].until = at;
        }
    }

    /// Drops the buffered sectors that a write of `extent` overwrites.
    pub(crate) fn invalidate(&mut self, extent: Extent) {
        #[cfg(test)]
        if crate::planted::is(crate::planted::Bug::StaleReadAhead) {
            return;
        }
        // Nearly every write misses every window: one test covers all windows, without a branch for
        // each.
        let overlaps = |&(begin, len): &(u64, u64)| {
            let last = extent.end().0 - 1;
            last.wrapping_sub(begin) < len + (last - extent.start.0)
        };
        if extent.is_empty() || !self.windows.iter().fold(false, |any, w| any | overlaps(w)) {
            return;
        }
        for index in 0..self.windows.len() {
            if overlaps(&self.windows[index]) {
                let segment = &mut self.segments[index];
                segment.limit = segment.begin.max(extent.start.0);
                self.refresh(index);
            }
        }
    }

    /// The segment that is being read ahead, if it holds or will hold the sector `start`.
    fn stream_at(&self, start: u64) -> Option<usize> {
        self.active.filter(|index| {
            let segment = &self.segments[*index];
            segment.begin <= start && start <= segment.limit && segment.limit > segment.begin
        })
    }

    /// First sector and length of the window that the head is reading. A read that begins in it
    /// continues the current transfer.
    pub(crate) fn streamed(&self) -> (u64, u64) {
        self.active.map_or(NOTHING, |index| self.windows[index])
    }

    /// A segment that holds or will hold the sector `start`.
    fn window_at(&self, start: u64) -> Option<usize> {
        let mut found = None;
        for (index, window) in self.windows.iter().enumerate() {
            if start.wrapping_sub(window.0) <= window.1 {
                found = Some(index);
            }
        }
        found
    }

    /// Brings the compact copy of a segment's bounds up to date.
    fn refresh(&mut self, index: usize) {
        let Segment { begin, limit, .. } = self.segments[index];
        let window = if limit > begin { (begin, limit - begin) } else { NOTHING };
        if index == self.windows.len() {
            self.windows.push(window);
        } else {
            self.windows[index] = window;
        }
    }

    /// The segment to overwrite: the one that the stream continues, else a new one, else one that
    /// was not used lately. A used segment is passed over once.
    fn victim(&mut self, continued: Option<usize>) -> usize {
        if let Some(index) = continued {
            return index;
        }
        if self.segments.len() < self.segments_max {
            return self.segments.len();
        }
        loop {
            let index = self.hand;
            self.hand = (self.hand + 1) % self.segments_max;
            if !std::mem::take(&mut self.segments[index].used) {
                return index;
            }
        }
    }
}

impl Segment {
    /// Time at which all sectors before `lba` have been read, if the drive keeps reading.
    fn time_of(&self, lba: u64, mechanism: &Mechanism) -> Time {
        let ahead = Extent::between(Lba(self.from), Lba(lba));
        if ahead.is_empty() {
            return self.since;
        }
        let place = mechanism.geometry().locate(ahead.start);
        let rotation = mechanism.geometry().transfer(&place, ahead);
        self.since + mechanism.spindle().duration(rotation)
    }
}
