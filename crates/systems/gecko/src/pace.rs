//! How far cleaning is. Segments should be emptied when the tail needs them, and not much earlier,
//! because blocks die with time. Clients wait when they are too far ahead of cleaning.

use manylogs_block::Sectors;
use manylogs_logstore::store::Logs;
use manylogs_logstore::{Log, LogId};
use manylogs_plant::{self as plant, Bug};

use crate::limit::DRIVES_MOST;
use crate::state::{Inner, State};

/// Move-to-tail: segments by which clients may be ahead of cleaning.
const LEAD_SEGMENTS: u64 = 2;
/// By segment: one segment in [`BLANK_SHARE`] should be empty, but at least [`BLANK_LEAST`] and at
/// most [`BLANK_MOST`] in all. Added to these are the segments that buffered writes fill, because a
/// cleaned segment is free only when such writes are durable.
const BLANK_SHARE: u64 = 12;
const BLANK_LEAST: u64 = 4;
const BLANK_MOST: u64 = 64;
/// By segment, while halves sleep: cleaning goes on until so many times that are empty.
const BATCH: u64 = 2;
/// By segment: clients wait when fewer segments are empty, the rest of the tail counted in. One is
/// for the content that cleaning moves, and one for the tail.
const BLANK_FOR_CLIENTS: u64 = 2;

/// The work left, counted anew when a segment was filled or emptied, and the progress of the
/// segments under cleaning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    counted: Option<Counted>,
    victims: Vec<Victim>,
    /// Halves sleep: cleaning is under way in a batch, and goes on until more is empty than need
    /// be.
    is_batch: bool,
    /// No segment can be cleaned that would give room, so clients need not wait for cleaning.
    pub(crate) is_stuck: bool,
}

/// How far the cleaning of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its live content is being read.
    Read,
    /// All live content was read, and the rest of it is being appended elsewhere.
    Write,
    /// All live content was appended elsewhere, and is not durable there yet.
    Wait,
    /// The segment began anew, because clients overwrote all that was left in it. It takes records
    /// again; whoever was cleaning it has not noticed yet.
    Over,
}

/// A segment under cleaning.
#[derive(Clone, Copy, Debug)]
struct Victim {
    segment: LogId,
    /// How often the segment had begun anew when its cleaning began.
    resets: u32,
    stage: Stage,
    /// Live content when its cleaning began.
    live: Sectors,
    /// Live content that was read since then.
    read: Sectors,
    /// Live content that was appended at the tail since then.
    done: Sectors,
}

impl Victim {
    /// Whether some of its live content was not appended elsewhere yet.
    const fn is_at_work(&self) -> bool {
        matches!(self.stage, Stage::Read | Stage::Write)
    }
}

/// How often the segment began anew since the chain was opened.
fn resets_of(logs: &Logs, segment: LogId) -> u32 {
    logs.get(segment).map_or(0, Log::resets)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    tail: LogId,
    resets: u64,
    heaps: u64,
    /// Empty segments of the tail's drive; the next field counts those of all drives.
    blank: u64,
    pub(crate) blank_in_all: u64,
    /// Segments of the next drive that are not empty.
    dirty: u64,
    /// Those of them that have enough garbage to be worth cleaning.
    worth: u64,
}

impl Pace {
    /// What was counted is out of date.
    pub(crate) const fn forget_counts(&mut self) {
        self.counted = None;
    }

    /// Cleaning of a segment begins, with `live` sectors of live content.
    pub(crate) fn begin(&mut self, logs: &Logs, segment: LogId, live: Sectors) {
        let (stage, read, done) = (Stage::Read, Sectors(0), Sectors(0));
        let resets = resets_of(logs, segment);
        self.victims.push(Victim { segment, resets, stage, live, read, done });
    }

    /// Ends the cleaning of segments that began anew.
    pub(crate) fn look_for_new_epochs(&mut self, logs: &Logs) {
        let is_new = |victim: &&mut Victim| resets_of(logs, victim.segment) != victim.resets;
        if !plant::is(Bug::EmptiedSegmentTakesRecords) {
            self.victims.iter_mut().filter(is_new).for_each(|victim| victim.stage = Stage::Over);
        }
    }

    /// Move-to-tail: more content of the first segment was appended of which some is left.
    pub(crate) fn advance(&mut self, content: Sectors) {
        if let Some(victim) = self.victims.iter_mut().find(|it| it.is_at_work()) {
            victim.done += content;
        }
    }

    /// A part of the segment was read; `is_last` says that nothing is left to read.
    pub(crate) fn read(&mut self, segment: LogId, len: Sectors, is_last: bool) {
        if let Some(victim) = self.under_way_mut(segment) {
            victim.read += len;
            victim.stage = if is_last { Stage::Write } else { Stage::Read };
        }
    }

    /// All live content of the segment was appended elsewhere.
    pub(crate) fn appended(&mut self, segment: LogId) {
        if let Some(victim) = self.under_way_mut(segment) {
            victim.stage = Stage::Wait;
        }
    }

    fn under_way_mut(&mut self, segment: LogId) -> Option<&mut Victim> {
        let is_it = |it: &&mut Victim| it.segment == segment && it.stage != Stage::Over;
        self.victims.iter_mut().find(is_it)
    }

    /// The segment is clean, or cleaning gave up.
    pub(crate) fn end(&mut self, segment: LogId) {
        self.victims.retain(|victim| victim.segment != segment);
        self.counted = None;
    }

    /// Whether the segment is under cleaning, or whoever cleaned it has not noticed its new epoch.
    pub(crate) fn contains(&self, segment: LogId) -> bool {
        self.victims.iter().any(|victim| victim.segment == segment)
    }

    /// The segments under cleaning, in the order in which their cleaning began.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = LogId> {
        let is_under_way = |victim: &&Victim| victim.stage != Stage::Over;
        self.victims.iter().filter(is_under_way).map(|victim| victim.segment)
    }

    /// Whether the segment's cleaning ended because the segment began anew.
    pub(crate) fn is_over(&self, segment: LogId) -> bool {
        self.contains(segment) && !self.under_way().any(|victim| victim == segment)
    }

    /// The segments that are being read: each keeps its drive busy.
    pub(crate) fn being_read(&self) -> impl Iterator<Item = LogId> {
        let read = |victim: &&Victim| victim.stage == Stage::Read;
        self.victims.iter().filter(read).map(|victim| victim.segment)
    }

    /// Sectors by which the segments under cleaning count as clean. Content that was read and not
    /// yet appended counts by half, so that clients are let in steadily and not in bursts.
    fn cleaned(&self, logs: &Logs, segment: Sectors) -> u64 {
        let cleaned = |victim: &Victim| {
            match victim.stage {
                Stage::Read | Stage::Write => {}
                Stage::Wait => return segment.0,
                Stage::Over => return 0,
            }
            let live = victim.live.0.max(1);
            let left = logs.get(victim.segment).map_or(0, Log::live).min(live);
            let moved = (victim.read.0.min(live) + live - left) / 2;
            segment.0 * moved.max(victim.done.0.min(live)) / live
        };
        self.victims.iter().map(cleaned).sum()
    }
}

impl Inner {
    /// Segments of a drive.
    pub(crate) fn segments_of(&self, drive: usize) -> impl Iterator<Item = LogId> + use<> {
        let per_drive = self.geometry.per_drive;
        let first = drive as u64 * per_drive;
        (first..first + per_drive).map(|number| LogId(manylogs_block::narrow(number)))
    }

    /// The drive that the tail comes to next, if it takes the drives in turn.
    pub(crate) fn next_drive(&self, state: &State) -> usize {
        let tail = usize::from(state.tail_drive().0);
        self.links_from(state, tail + 1).next().unwrap_or(tail)
    }

    /// The links that stay and work, from this place on in the order of their places, and then
    /// from the first place on.
    pub(crate) fn links_from(
        &self,
        state: &State,
        first: usize,
    ) -> impl Iterator<Item = usize> + use<> {
        let (roster, lost) = (self.keeper.roster(), self.keeper.lost());
        let leaving = state.leaving.map(|device| usize::from(device.0));
        let around = (0..DRIVES_MOST).map(move |i| (first + i) % DRIVES_MOST);
        let stays = move |link: &usize| leaving != Some(*link) && lost != Some(*link);
        around.filter(move |link| roster.has(*link) && stays(link))
    }

    /// Whether segments are cleaned one by one. They are while a link is emptied, whatever the
    /// settings say.
    pub(crate) const fn is_by_segment(&self, state: &State) -> bool {
        self.settings.cleaning.is_by_segment() || state.leaving.is_some()
    }

    /// Whether the tail goes to the next drive in order, and that drive is cleaned ahead of it. Not
    /// while a link is emptied.
    pub(crate) const fn is_in_order(&self, state: &State) -> bool {
        self.settings.cleaning.is_in_order() && state.leaving.is_none()
    }

    pub(crate) fn count(&self, state: &mut State) -> Counted {
        let (tail, resets) = (state.tail, state.store.counters().log_resets);
        let heaps = state.heaps.changes();
        state.pace.look_for_new_epochs(state.store.logs());
        if let Some(counted) = state.pace.counted
            && (counted.tail, counted.resets, counted.heaps) == (tail, resets, heaps)
        {
            return counted;
        }
        let logs = state.store.logs();
        let blank = |id: &LogId| {
            let leaves = state.leaving == Some(logs.device(*id));
            *id != tail && logs.is_blank(*id) && !state.heaps.contains(*id) && !leaves
        };
        let here = self.segments_of(state.tail_drive().0.into());
        let next = || self.segments_of(self.next_drive(state));
        let counted = Counted {
            tail,
            resets,
            heaps,
            blank: here.filter(blank).count() as u64,
            blank_in_all: logs.ids().filter(blank).count() as u64,
            dirty: next().filter(|id| is_dirty(logs, *id)).count() as u64,
            worth: next().filter(|id| self.is_worth_it(state, *id)).count() as u64,
        };
        *state.pace.counted.insert(counted)
    }

    /// Sectors that the segment at the tail still takes.
    fn left_at_tail(&self, state: &State) -> Sectors {
        state.store.logs().get(state.tail).map_or(self.geometry.segment, Log::free)
    }

    /// Move-to-tail: sectors by which cleaning is behind. That is what is left to clean on the next
    /// drive, less the room left on the tail's drive.
    fn behind(&self, state: &mut State) -> i64 {
        let dirty = self.count(state).dirty;
        self.behind_of(state, dirty)
    }

    /// As [`Inner::behind`], where so many segments of the next drive are to be cleaned.
    fn behind_of(&self, state: &mut State, dirty: u64) -> i64 {
        let counted = self.count(state);
        let segment = self.geometry.segment;
        let left = counted.blank * segment.0 + self.left_at_tail(state).0;
        let dirty = dirty * segment.0;
        let dirty = dirty.saturating_sub(state.pace.cleaned(state.store.logs(), segment));
        dirty.cast_signed() - left.cast_signed()
    }

    /// By segment: sectors that are empty. Segments under cleaning count in part.
    fn blank(&self, state: &mut State) -> Sectors {
        let (counted, segment) = (self.count(state), self.geometry.segment);
        let blank = counted.blank_in_all * segment.0 + self.left_at_tail(state).0;
        Sectors(blank + state.pace.cleaned(state.store.logs(), segment))
    }

    /// By segment: how many segments should be empty.
    fn blank_wanted(&self) -> u64 {
        let all = self.keeper.roster().in_use().count() as u64 * self.geometry.per_drive;
        let buffered = self.settings.buffer.0.div_ceil(self.geometry.segment.0);
        (all / BLANK_SHARE).clamp(BLANK_LEAST, BLANK_MOST) + buffered
    }

    /// By segment: whether so few segments are empty that one of any drive may be cleaned.
    pub(crate) fn is_short(&self, state: &mut State) -> bool {
        self.count(state).blank_in_all <= BLANK_FOR_CLIENTS
    }

    /// By segment: whether fewer segments are empty than should be.
    pub(crate) fn room_is_due(&self, state: &mut State) -> bool {
        self.blank(state).0 < self.blank_wanted() * self.geometry.segment.0
    }

    /// Whether cleaning has something to do now.
    pub(crate) fn cleaning_is_due(&self, state: &mut State) -> bool {
        if self.is_by_segment(state) {
            let wanted = self.blank_wanted() * self.geometry.segment.0;
            let blank = self.blank(state).0;
            let is_asleep = self.settings.sleep.is_some();
            if self.is_in_order(state) && !is_asleep && blank >= wanted {
                // In the body: in step with the tail, before room is short.
                let worth = self.count(state).worth;
                return self.behind_of(state, worth) > 0;
            }
            if is_asleep {
                // Each time cleaning begins it wakes halves, so it works in batches.
                let most = if state.pace.is_batch { wanted * BATCH } else { wanted };
                state.pace.is_batch = blank < most;
                return state.pace.is_batch;
            }
            return blank < wanted;
        }
        self.behind(state) > 0
    }

    /// Whether clients may append: cleaning is not too far behind.
    pub(crate) fn keeps_pace(&self, state: &mut State) -> bool {
        let segment = self.geometry.segment;
        if self.is_by_segment(state) {
            let least = BLANK_FOR_CLIENTS * segment.0;
            return state.pace.is_stuck || self.blank(state).0 >= least;
        }
        self.behind(state) <= (LEAD_SEGMENTS * segment.0).cast_signed()
    }
}

/// Whether there is something to clean in the segment.
pub(crate) fn is_dirty(logs: &Logs, id: LogId) -> bool {
    let is_used = |log: &Log| !log.is_retired() && !log.is_empty();
    logs.get(id).is_some_and(|log| log.live() > 0 || is_used(log))
}
