//! Flushes and the writes that they cover.
//!
//! An application waits for its writes, then flushes. Its data is durable when the flush is
//! answered. So a flush goes to the device when the writes before it are answered. The latency of a
//! sync is the time during which the flush or one of its writes was in flight. Time that the
//! application spent between them does not count.

use std::collections::VecDeque;

use manylogs_block::{Nanos, Time};

/// Syncs whose flush has not gone to the device yet.
#[derive(Debug)]
pub(super) struct Syncs {
    groups: VecDeque<Group>,
    /// Number of the first entry of `groups`.
    first: u64,
}

/// Writes that one flush covers.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Requests in flight. The flush counts once it has arrived.
    outstanding: u32,
    /// Time since which requests have been in flight without a pause.
    since: Time,
    /// Time during which requests were in flight before that.
    waited: Nanos,
    flush: Option<FlushArrived>,
}

#[derive(Clone, Copy, Debug)]
struct FlushArrived {
    at: Time,
    window: usize,
}

/// The sync that a write belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncId(u64);

/// A flush that is ready to go to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadyFlush {
    /// Arrival time.
    pub(super) arrived: Time,
    /// Subtract this from the time of the answer to get the latency of the sync.
    pub(super) counts_from: Time,
    /// Index of the part of the replay in which the flush arrived.
    pub(super) window: usize,
}

impl Default for Syncs {
    fn default() -> Self {
        Self { groups: VecDeque::from([Group::default()]), first: 0 }
    }
}

impl Syncs {
    /// A write without FUA that arrived at `arrived`: the next flush covers it.
    pub(super) fn write(&mut self, arrived: Time) -> SyncId {
        let last = self.groups.len() - 1;
        self.groups[last].begin(arrived);
        SyncId(self.first + last as u64)
    }

    /// Records that a write was answered.
    pub(super) fn answered(&mut self, id: SyncId, now: Time) {
        let index = manylogs_block::to_usize(id.0 - self.first);
        if let Some(group) = self.groups.get_mut(index) {
            group.end(now);
        }
    }

    /// Records the arrival of a flush, which covers the writes since the last flush.
    pub(super) fn flush(&mut self, arrived: Time, window: usize) {
        let last = self.groups.len() - 1;
        let group = &mut self.groups[last];
        group.begin(arrived);
        group.flush = Some(FlushArrived { at: arrived, window });
        self.groups.push_back(Group::default());
    }

    /// The oldest flush whose writes are all answered.
    pub(super) fn take_ready(&mut self) -> Option<ReadyFlush> {
        let group = self.groups.front()?;
        let flush = group.flush.filter(|_| group.outstanding == 1)?;
        let counts_from = Time(group.since.0.saturating_sub(group.waited.0));
        self.groups.pop_front();
        self.first += 1;
        Some(ReadyFlush { arrived: flush.at, counts_from, window: flush.window })
    }
}

impl Group {
    fn begin(&mut self, at: Time) {
        if self.outstanding == 0 {
            self.since = at;
        }
        self.outstanding += 1;
    }

    fn end(&mut self, at: Time) {
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.waited += at.since(self.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_takes_as_long_as_it_and_its_writes_are_under_way() {
        let mut syncs = Syncs::default();
        let (a, b) = (syncs.write(Time(100)), syncs.write(Time(120)));
        syncs.answered(a, Time(130));
        syncs.answered(b, Time(150));
        // The application thinks for 1000, flushes, and the flush takes 7.
        syncs.flush(Time(1150), 3);
        let ready = syncs.take_ready().unwrap();
        assert_eq!(Time(1157).since(ready.counts_from), Nanos(57));
        assert_eq!((ready.arrived, ready.window), (Time(1150), 3));
        assert_eq!(syncs.take_ready(), None);
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it_and_for_earlier_flushes() {
        let mut syncs = Syncs::default();
        let a = syncs.write(Time(10));
        syncs.flush(Time(20), 0);
        let b = syncs.write(Time(30));
        syncs.flush(Time(40), 0);
        syncs.answered(b, Time(50));
        assert_eq!(syncs.take_ready(), None);
        syncs.answered(a, Time(60));
        assert_eq!(syncs.take_ready().unwrap().counts_from, Time(10));
        assert_eq!(syncs.take_ready().unwrap().counts_from, Time(30));
    }
}
