//! The power of the drive: standby by command, and the start of the spindle that ends it.

use manylogs_block::{Extent, Nanos, PowerState, PowerTimes, Time};

use super::Drive;
use crate::command::{Command, CommandKind};
use crate::profile::Profile;

/// The state of the spindle, and what it did before.
#[derive(Clone, Debug)]
pub(super) struct Spinning {
    /// Time from standby until the drive reads and writes.
    spin_up: Nanos,
    /// Since when the spindle stands, if it does.
    stands_since: Option<Time>,
    /// Until when it starts, or started.
    ready_at: Time,
    /// Time in standby that has ended.
    stood: Nanos,
    starts: u64,
}

impl Spinning {
    pub(super) fn new(profile: &Profile) -> Self {
        let spin_up = profile.power().spin_up();
        Self { spin_up, stands_since: None, ready_at: Time(0), stood: Nanos(0), starts: 0 }
    }

    /// Whether the drive can begin no work.
    pub(super) const fn stands(&self) -> bool {
        self.stands_since.is_some()
    }
}

impl Drive {
    /// Stops the spindle. False if the drive still has commands, or has writes in its cache: then
    /// nothing happens. The host flushes before.
    pub fn standby(&mut self, now: Time) -> bool {
        let is_at_work = self.outstanding > 0 || !self.writes.is_clean() || self.free_at > now;
        if is_at_work || self.power_state(now) != PowerState::Awake {
            return self.power.stands();
        }
        // The buffer is off with the rest of the electronics.
        self.reads.invalidate(Extent { len: self.capacity(), ..Extent::default() });
        self.verify.forget();
        self.power.stands_since = Some(now);
        true
    }

    /// Starts the spindle if it stands. Returns the time from which on the drive reads and writes.
    pub fn wake(&mut self, now: Time) -> Time {
        if let Some(since) = self.power.stands_since.take() {
            self.power.stood += now.since(since);
            self.power.starts += 1;
            self.power.ready_at = now + self.power.spin_up;
            self.free_at = self.power.ready_at;
            self.interface_free = self.power.ready_at;
        }
        self.power.ready_at.max(now)
    }

    /// The state of the spindle.
    #[must_use]
    pub fn power_state(&self, now: Time) -> PowerState {
        match self.power.stands_since {
            Some(_) => PowerState::Standby,
            None if self.power.ready_at > now => PowerState::SpinningUp,
            None => PowerState::Awake,
        }
    }

    /// How long the drive was in which state, from time zero on.
    #[must_use]
    pub fn power_times(&self, now: Time) -> PowerTimes {
        let Spinning { spin_up, stands_since, ready_at, stood, starts } = self.power;
        let standby = stood + stands_since.map_or(Nanos(0), |since| now.since(since));
        let begun = Nanos(spin_up.0 * starts);
        let spin_up = Nanos(begun.0.saturating_sub(ready_at.0.saturating_sub(now.0)));
        let active = self.counters.busy;
        let idle = Nanos(now.0.saturating_sub((active + spin_up + standby).0));
        PowerTimes { active, idle, spin_up, standby, starts }
    }

    /// A command arrives: it starts the spindle, if it needs it.
    pub(super) fn wake_for(&mut self, now: Time, command: &Command) {
        let needs_none = match command.kind {
            CommandKind::Flush => self.writes.is_clean(),
            CommandKind::Read | CommandKind::Write { .. } => command.extent.is_empty(),
        };
        if self.power.stands() && !needs_none {
            self.wake(now);
        }
    }
}
