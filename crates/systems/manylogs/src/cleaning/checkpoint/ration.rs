//! Room that a checkpoint gives out as it advances, while the logs are nearly full.
//!
//! A pass frees logs only at its end. Without a ration, clients could take all the room left at its
//! beginning, and would then wait for the rest of the pass: minutes on a shingled drive. So at any
//! time the clients' share of that room is the share of the pass that is done. Within a batch it
//! grows at the pace of the last batches.

use manylogs_block::{Nanos, Sectors, Time};
use manylogs_logstore::store::Room;

use crate::state::State;

/// Weight of one batch in the moving mean of the pace, as a divisor.
const RECENT: f64 = 4.0;
/// Share of the room that clients may take at once, so that bursts need not wait.
const BURST: f64 = 1.0 / 8.0;
/// The pace before it is measured: 100 versions a second, one random read for each.
pub(crate) const PACE: f64 = 100.0;
/// Requests that wait for room check this often whether more is given out.
pub(crate) const LOOK: Nanos = Nanos::from_millis(5);

/// The ration of one pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ration {
    /// Sectors of room when the ration began.
    room: f64,
    /// Versions that the pass had to bring home at that time.
    versions: f64,
    /// Versions brought home since then, up to the beginning of the present batch.
    done: f64,
    /// Versions of the present batch, and the time at which it began.
    batch: f64,
    began: Time,
    /// Versions a second.
    pace: f64,
}

impl Ration {
    /// A ration of `room`, of which only the share for bursts is given out yet. The pass has
    /// `versions` versions to bring home, at a pace of `pace` versions a second as far as is known.
    pub(crate) const fn new(room: Sectors, versions: u64, pace: f64, now: Time) -> Self {
        let (room, versions) = (room.0 as f64, versions as f64);
        Self { room, versions, done: 0.0, batch: 0.0, began: now, pace }
    }

    /// Versions that come home in a second.
    pub(crate) const fn pace(&self) -> f64 {
        self.pace
    }

    /// Notes that the present batch is home, and that one of `versions` versions begins.
    pub(crate) fn next_batch(&mut self, versions: u64, now: Time) {
        let span_s = now.since(self.began).as_secs_f64();
        if self.batch > 0.0 && span_s > 0.0 {
            self.pace += (self.batch / span_s - self.pace) / RECENT;
        }
        self.done += self.batch;
        (self.batch, self.began) = (versions as f64, now);
    }

    /// Sectors that must be left for the rest of the pass.
    fn kept(&self, now: Time) -> Sectors {
        let of_batch = self.pace * now.since(self.began).as_secs_f64();
        let done = self.done + of_batch.min(self.batch);
        let left = 1.0 - done / self.versions.max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
        let kept = (self.room * (1.0 - BURST) * left.max(0.0)) as u64;
        Sectors(kept)
    }
}

impl State {
    /// Whether there is room for a client's entry that needs `needed` for a record of its own. The
    /// ration counts waiting entries by their length. The room set aside for each of them is far
    /// more, and becomes free again when they share a record.
    pub(crate) fn fits(&mut self, needed: Room, now: Time) -> bool {
        let kept = self.ration.as_ref().map_or(Sectors(0), |ration| ration.kept(now));
        let taken = needed.log.0 + self.store.entries().volatile_sectors;
        self.store.fits(needed)
            && (kept == Sectors(0) || taken + kept.0 <= self.store.logs().room())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(0) + Nanos::from_millis(ms)
    }

    #[test]
    fn room_is_given_out_as_the_pass_advances() {
        let mut ration = Ration::new(Sectors(1600), 40, 10.0, at(0));
        ration.next_batch(10, at(0));
        assert_eq!(ration.kept(at(0)), Sectors(1400), "all but the share for bursts");
        assert_eq!(ration.kept(at(500)), Sectors(1225), "half of a second");
        ration.next_batch(10, at(1000));
        assert_eq!(ration.kept(at(1000)), Sectors(1050));
        assert_eq!(ration.kept(at(2000)), Sectors(700));
        assert_eq!(ration.kept(at(9000)), Sectors(700), "the batch takes longer");
        ration.next_batch(20, at(9000));
        assert!(ration.pace() < 8.0, "and so may the next");
        ration.next_batch(10, at(12_000));
        assert_eq!(ration.kept(at(12_000)), Sectors(0));
        assert_eq!(ration.kept(at(99_000)), Sectors(0), "versions came while the pass went on");
    }

    #[test]
    fn a_pass_with_nothing_to_do_keeps_nothing_for_long() {
        let mut ration = Ration::new(Sectors(u64::MAX), 0, PACE, at(0));
        ration.next_batch(1, at(0));
        ration.next_batch(1, at(1));
        assert_eq!(ration.kept(at(1)), Sectors(0));
    }
}
