//! The work that a volume does on its own, and its times.

use std::rc::Rc;

use manylogs_block::{Nanos, Time, TimeOfDay, yield_now};

use crate::cleaning::checkpoint::{Pace, Pass};
use crate::settings::config::CheckpointPolicy;
use crate::state::Inner;

/// Wait before another try of a swap that found no place or was interrupted.
const SWAP_RETRY: Nanos = Nanos::from_millis(500);
/// Shortest time between two checks for work.
const LOOK_LEAST: Nanos = Nanos::from_millis(10);

/// Times of the last checkpoint and snapshot.
#[derive(Debug, Default)]
struct Agenda {
    last_checkpoint: Time,
    last_snapshot: Time,
    /// Whether the last attempt to swap moved a log.
    swap_again: bool,
}

impl Inner {
    /// Makes checkpoints, swaps and snapshots as long as the volume is open.
    pub(crate) async fn run_maintenance(self: Rc<Self>) {
        let now = self.engine.runtime.now();
        let mut agenda = Agenda { last_checkpoint: now, last_snapshot: now, swap_again: true };
        loop {
            let wanted = self.engine.wanted.wait();
            if self.engine.is_closed() {
                return;
            }
            if let Some(pace) = self.checkpoint_due(&agenda) {
                // The volume's state records an error; the next round tries again.
                let _ = self.checkpoint(Pass::at(pace)).await;
                agenda.last_checkpoint = self.engine.runtime.now();
                // A pass without work takes no time. Waiting writes must take room before this task
                // looks again, or it would never let them run.
                yield_now().await;
            } else if self.is_idle() && self.engine.state.borrow().has_full_logs() {
                agenda.swap_again = self.swap_one().await;
                if agenda.swap_again {
                    continue;
                }
            }
            self.snapshot_if_due(&mut agenda).await;
            match self.next_look(&agenda) {
                Some(span) => drop(self.engine.runtime.within(span, wanted).await),
                None => wanted.await,
            }
        }
    }

    /// Time until the next check for work; a signal may come earlier. `None` means to wait for one.
    fn next_look(&self, agenda: &Agenda) -> Option<Nanos> {
        let now = self.engine.runtime.now();
        let state = self.engine.state.borrow();
        if state.store.read_only().is_some() {
            // Only the end of this task is left to do, and a signal announces it.
            return None;
        }
        let until = |due: Time| Nanos(due.since(now).0.max(LOOK_LEAST.0));
        let starved = !state.starved.is_empty();
        let paused = !state.futility.allows(now, starved);
        let waits_for_idle = (state.has_full_logs() && agenda.swap_again)
            || (!paused && starved)
            || (!paused
                && self.config().checkpoint == CheckpointPolicy::Idle
                && state.store.waits_for_home());
        if waits_for_idle {
            return Some(Nanos(self.config().idle.0.max(LOOK_LEAST.0)));
        }
        let snapshot = (self.config().snapshot.0 > 0 && !state.store.is_apart())
            .then(|| until(agenda.last_snapshot + self.config().snapshot));
        let checkpoint = match self.config().checkpoint {
            CheckpointPolicy::OnFull | CheckpointPolicy::Idle => None,
            CheckpointPolicy::Every(span) => Some(until(agenda.last_checkpoint + span)),
            CheckpointPolicy::OffHours { .. } => Some(Nanos::from_secs(60)),
        };
        let swap = (state.has_full_logs()).then_some(SWAP_RETRY);
        let retry = paused.then(|| until(state.futility.not_before()));
        snapshot.into_iter().chain(checkpoint).chain(swap).chain(retry).min()
    }

    fn checkpoint_due(&self, agenda: &Agenda) -> Option<Pace> {
        let now = self.engine.runtime.now();
        let state = self.engine.state.borrow();
        if state.store.read_only().is_some()
            || !state.futility.allows(now, !state.starved.is_empty())
        {
            return None;
        }
        if state.is_pressed(self.config().watermark) {
            return Some(Pace::Urgent);
        }
        if self.keeps_too_much(&state) {
            return Some(Pace::Steady);
        }
        if state.futility.has_failed() && !state.suspects.is_empty() {
            // Copies that could not be read are tried again soon, under every policy.
            return Some(Pace::Steady);
        }
        let since = now.since(agenda.last_checkpoint);
        let due = state.store.waits_for_home()
            && match self.config().checkpoint {
                CheckpointPolicy::OnFull => false,
                CheckpointPolicy::Every(span) => since >= span,
                CheckpointPolicy::Idle => false,
                CheckpointPolicy::OffHours { from_s, until_s } => {
                    // At most once an hour, because little new is logged between passes.
                    in_window(self.engine.runtime.time_of_day(), from_s, until_s)
                        && since >= Nanos::from_secs(3600)
                }
            };
        drop(state);
        let idle = self.config().checkpoint == CheckpointPolicy::Idle
            && self.engine.state.borrow().store.waits_for_home()
            && self.is_idle();
        (due || idle).then_some(if idle { Pace::Gentle } else { Pace::Steady })
    }

    async fn snapshot_if_due(self: &Rc<Self>, agenda: &mut Agenda) {
        let now = self.engine.runtime.now();
        let due = self.config().snapshot.0 > 0
            && !self.engine.state.borrow().store.is_apart()
            && now.since(agenda.last_snapshot) >= self.config().snapshot
            && self.engine.state.borrow().store.read_only().is_none();
        if due {
            agenda.last_snapshot = now;
            let _ = self.snapshot().await;
        }
    }
}

/// Whether the time of day is in the window, which may extend over midnight.
fn in_window(now: TimeOfDay, from_s: u64, until_s: u64) -> bool {
    let second = now.seconds();
    if from_s <= until_s {
        (from_s..until_s).contains(&second)
    } else {
        second >= from_s || second < until_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_may_wrap_around_midnight() {
        let at = |hour: u64| TimeOfDay::from_seconds(hour * 3600);
        let (night, noon) = ((22 * 3600, 6 * 3600), (11 * 3600, 13 * 3600));
        let hours_in = |(from, until)| (0..24).filter(|h| in_window(at(*h), from, until)).count();
        assert_eq!(hours_in(night), 8);
        assert_eq!(hours_in(noon), 2);
        assert!(in_window(at(24 + 23), night.0, night.1));
    }
}
