//! Which segment is cleaned next, where segments are cleaned one by one.

use manylogs_logstore::store::{Device, Logs};
use manylogs_logstore::{Log, LogId};

use crate::pace::is_dirty;
use crate::state::{Inner, State};

/// A segment of which less than one part in this number is garbage is not worth cleaning.
const GARBAGE_LEAST: u64 = 16;

impl Inner {
    /// The segment whose cleaning gains most: little of it is live, and its live content is old, so
    /// that waiting would not make it less. Drives on which a segment is being read are left out. A
    /// segment of the tail's drive is taken only if hardly an empty segment is left and the body
    /// has none to clean, because reads there cost the tail a seek each.
    pub(crate) fn best_victim(&self, state: &mut State) -> Option<LogId> {
        let is_short = self.is_short(state);
        let tail = state.tail_drive();
        let in_body = self.best_where(state, |drive| drive != tail);
        if in_body.is_some() || !is_short || state.pace.under_way().next().is_some() {
            return in_body;
        }
        self.best_where(state, |_| true)
    }

    /// As [`Inner::best_victim`]; compact-in-body takes segments of the next drive first, and
    /// others only if room is short.
    pub(crate) fn best_in_turn(&self, state: &mut State) -> Option<LogId> {
        if !self.is_in_order(state) {
            return self.best_victim(state);
        }
        let next = self.next_drive(state);
        let ahead = self.best_where(state, |drive| usize::from(drive.0) == next);
        ahead.or_else(|| match self.room_is_due(state) {
            true => self.best_victim(state),
            false => None,
        })
    }

    /// Whether enough of the segment is garbage, and it takes no records now.
    pub(crate) fn is_worth_it(&self, state: &State, id: LogId) -> bool {
        let is_apart = id == state.tail || state.heaps.contains(id);
        let now = state.store.next_data().0;
        !is_apart && self.worth(state.store.logs(), id, now).is_some()
    }

    fn best_where(&self, state: &State, may: impl Fn(Device) -> bool) -> Option<LogId> {
        let logs = state.store.logs();
        let busy: Vec<_> = state.pace.being_read().map(|id| logs.device(id)).collect();
        let lost = self.keeper.lost();
        let may = |id: &LogId| {
            let drive = logs.device(*id);
            let is_free =
                *id != state.tail && state.leaving != Some(drive) && !state.heaps.contains(*id);
            let is_free = is_free && lost != Some(drive.0.into());
            let is_free = is_free && !state.pace.contains(*id) && self.may_seal(state, *id);
            is_free && !busy.contains(&drive) && may(drive)
        };
        let now = state.store.next_data().0;
        let scored = logs.ids().filter(may).filter_map(|id| Some((self.worth(logs, id, now)?, id)));
        scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, id)| id)
    }

    /// The gain for the work, times the square root of the age; `None` if there is no gain. With
    /// the age itself, cold segments would be spared for too long; without it, cold blocks would
    /// be moved again and again.
    fn worth(&self, logs: &Logs, id: LogId, now: u64) -> Option<f64> {
        let log = logs.get(id).filter(|log| !log.is_busy() && is_dirty(logs, id))?;
        let segment = self.geometry.segment.0;
        let live = log.live();
        // Zeroes count by their length, but move as entries without content. So the live length can
        // exceed the segment.
        if live > segment {
            return Some(f64::MIN_POSITIVE);
        }
        if (segment - live) * GARBAGE_LEAST < segment {
            return None;
        }
        let age = log.oldest_needed().map_or(now, |oldest| now.saturating_sub(oldest.0));
        let share = live as f64 / segment as f64;
        Some((1.0 - share) / (1.0 + share) * (age as f64 + 1.0).sqrt())
    }

    /// Move-to-tail: the segment to clean next, on the next drive; `None` unless cleaning is
    /// behind.
    pub(crate) fn victim_in_turn(&self, state: &mut State) -> Option<LogId> {
        if state.pace.being_read().next().is_some() || !self.cleaning_is_due(state) {
            return None;
        }
        let next = self.next_drive(state);
        self.segments_of(next).find(|id| self.can_be_cleaned(state, *id))
    }

    /// The segment to move away next of the link that leaves, one at a time. More than `spared`
    /// segments must be empty, so that what it holds does not take the room that clients need.
    pub(crate) fn victim_that_leaves(&self, state: &mut State, spared: u64) -> Option<LogId> {
        let leaving = state.leaving.filter(|device| state.store.logs().is_shut(*device))?;
        if state.unreadable.is_some() || self.keeper.lost() == Some(leaving.0.into()) {
            return None;
        }
        let logs = state.store.logs();
        let is_read = state.pace.being_read().any(|id| logs.device(id) == leaving);
        if is_read || self.count(state).blank_in_all <= spared {
            return None;
        }
        self.segments_of(leaving.0.into()).find(|id| self.can_be_cleaned(state, *id))
    }

    /// The segment to clean if room runs short all the same: of any drive, the tail's drive last.
    pub(crate) fn victim_in_need(&self, state: &State) -> Option<LogId> {
        if !self.is_in_need(state) {
            return None;
        }
        let links = self.links_from(state, self.next_drive(state));
        let mut all = links.flat_map(|link| self.segments_of(link));
        all.find(|id| self.can_be_cleaned(state, *id))
    }

    /// Whether hardly more room is left than cleaning itself needs.
    pub(crate) fn is_in_need(&self, state: &State) -> bool {
        let wanted = self.spared.log.0 + 4 * self.geometry.largest().log.0;
        state.store.logs().room() < wanted + state.store.reserved().log.0
    }

    fn can_be_cleaned(&self, state: &State, id: LogId) -> bool {
        let logs = state.store.logs();
        let is_at_rest = || logs.get(id).is_some_and(|log: &Log| !log.is_busy());
        let is_apart = state.heaps.contains(id) || state.pace.contains(id);
        id != state.tail
            && !is_apart
            && is_dirty(logs, id)
            && is_at_rest()
            && self.may_seal(state, id)
    }

    /// Whether the segment can be sealed: the room that is left in it is not promised. If no other
    /// segment is under cleaning, that room may be a part of what is spared for cleaning, because
    /// the segment's content needs less then.
    fn may_seal(&self, state: &State, id: LogId) -> bool {
        let logs = state.store.logs();
        let is_open = |log: &&Log| !log.is_sealed() && !logs.is_shut_for(id);
        let Some(log) = logs.get(id).filter(is_open) else { return true };
        let is_alone = state.pace.under_way().next().is_none();
        let kept = if is_alone { 0 } else { self.spared.log.0 };
        logs.room() >= state.store.reserved().log.0 + kept + log.free().0
    }
}
