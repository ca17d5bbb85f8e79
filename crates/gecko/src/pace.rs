//! How far cleaning is: the next drive is to be empty when the tail comes to it, and not much
//! earlier, since blocks die with time.

use manylogs_block::Sectors;
use manylogs_logstore::LogId;
use manylogs_logstore::store::Logs;

use crate::state::{Inner, State};
use crate::tail::is_blank;

/// Clients may be ahead of cleaning by so many segments.
const LEAD_SEGMENTS: u64 = 2;

/// What is left to do on two drives, counted when one of their segments was filled or emptied, and
/// how far the segment is that is cleaned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    counted: Option<Counted>,
    /// The segment that is cleaned, and what was live in it.
    victim: Option<(LogId, Sectors)>,
    /// What of that was appended again.
    done: Sectors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    tail: LogId,
    resets: u64,
    /// Empty segments of the tail's drive.
    blank: u64,
    /// Segments of the next drive that are not empty.
    dirty: u64,
}

impl Pace {
    /// Cleaning of a segment begins, of which so much is live.
    pub(crate) fn begin(&mut self, segment: LogId, live: Sectors) {
        (self.victim, self.done) = (Some((segment, live)), Sectors(0));
    }

    /// Content of the segment was appended again.
    pub(crate) fn advance(&mut self, content: Sectors) {
        self.done += content;
    }

    /// The segment is clean, or cleaning gave up.
    pub(crate) fn end(&mut self) {
        (self.victim, self.counted) = (None, None);
    }

    /// What was cleaned of the segment under way, as a part of its length.
    fn cleaned(&self, segment: Sectors) -> u64 {
        let Some((_, live)) = self.victim else { return 0 };
        let live = live.0.max(1);
        segment.0 * self.done.0.min(live) / live
    }
}

impl Inner {
    /// Segments of a drive.
    pub(crate) fn segments_of(&self, drive: usize) -> impl Iterator<Item = LogId> + use<> {
        let per_drive = self.geometry.per_drive;
        let first = drive as u64 * per_drive;
        (first..first + per_drive).map(|number| LogId(manylogs_block::narrow(number)))
    }

    /// The drive that the tail comes to next.
    pub(crate) fn next_drive(&self, state: &State) -> usize {
        (usize::from(state.tail_drive().0) + 1) % self.geometry.drives
    }

    fn count(&self, state: &mut State) -> Counted {
        let (tail, resets) = (state.tail, state.store.counters().log_resets);
        if let Some(counted) = state.pace.counted
            && (counted.tail, counted.resets) == (tail, resets)
        {
            return counted;
        }
        let logs = state.store.logs();
        let here = self.segments_of(state.tail_drive().0.into());
        let next = self.segments_of(self.next_drive(state));
        let blank = here.filter(|id| *id != tail && is_blank(logs, *id)).count() as u64;
        let dirty = next.filter(|id| is_dirty(logs, *id)).count() as u64;
        *state.pace.counted.insert(Counted { tail, resets, blank, dirty })
    }

    /// By how many sectors cleaning is behind: what is left to clean of the next drive, less what
    /// the tail's drive still takes.
    fn behind(&self, state: &mut State) -> i64 {
        let counted = self.count(state);
        let segment = self.geometry.segment;
        let free = state.store.logs().get(state.tail).map_or(segment, manylogs_logstore::Log::free);
        let left = counted.blank * segment.0 + free.0;
        let dirty = counted.dirty * segment.0;
        let dirty = dirty.saturating_sub(state.pace.cleaned(segment));
        dirty.cast_signed() - left.cast_signed()
    }

    /// Whether cleaning has something to do now.
    pub(crate) fn cleaning_is_due(&self, state: &mut State) -> bool {
        self.behind(state) > 0
    }

    /// Whether clients may append: cleaning is not too far behind.
    pub(crate) fn keeps_pace(&self, state: &mut State) -> bool {
        let lead = LEAD_SEGMENTS * self.geometry.segment.0;
        self.behind(state) <= lead.cast_signed()
    }
}

/// Whether there is something to clean in the segment.
pub(crate) fn is_dirty(logs: &Logs, id: LogId) -> bool {
    let live = || logs.get(id).is_some_and(|log| log.live() > 0);
    !is_blank(logs, id) && (live() || logs.get(id).is_some_and(|log| !log.is_retired()))
}
