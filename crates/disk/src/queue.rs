//! The drive's command queue: which of the waiting commands goes next.

use manylogs_block::{Nanos, Time};

use crate::command::Command;
use crate::geometry::Location;
use crate::mechanics::Mechanism;

/// Order in which a drive serves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served.
    Fcfs,
    /// Sweeps over the addresses, turning where no command lies ahead (LOOK).
    Elevator,
    /// Shortest positioning time first: least seek plus rotation.
    Sptf,
}

impl Policy {
    /// The policy called `name` in profiles.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "fcfs" => Some(Self::Fcfs),
            "elevator" => Some(Self::Elevator),
            "sptf" => Some(Self::Sptf),
            _ => None,
        }
    }
}

/// A command in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) command: Command,
    pub(crate) write: bool,
    pub(crate) place: Location,
    pub(crate) arrived: Time,
    /// When the electronics have understood it.
    pub(crate) ready: Time,
}

/// The commands that wait for the mechanism.
#[derive(Clone, Debug)]
pub(crate) struct CommandQueue {
    waiting: Vec<Waiting>,
    policy: Policy,
    age_limit: Nanos,
    margin: Nanos,
    /// Whether the elevator moves to higher addresses.
    rising: bool,
}

impl CommandQueue {
    pub(crate) fn new(policy: Policy, age_limit: Nanos, margin: Nanos) -> Self {
        Self { waiting: Vec::with_capacity(32), policy, age_limit, margin, rising: true }
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    pub(crate) fn earliest_ready(&self) -> Option<Time> {
        self.waiting.iter().map(|waiting| waiting.ready).min()
    }

    /// Removes the command to serve at `at`; `None` when none is ready.
    pub(crate) fn take(&mut self, at: Time, mechanism: &Mechanism) -> Option<Waiting> {
        let index = match self.waiting.len() {
            0 => return None,
            1 => (self.waiting[0].ready <= at).then_some(0)?,
            _ => self.choose(at, mechanism)?,
        };
        Some(self.waiting.swap_remove(index))
    }

    fn choose(&mut self, at: Time, mechanism: &Mechanism) -> Option<usize> {
        let ready = self.waiting.iter().enumerate().filter(|(_, w)| w.ready <= at);
        let (oldest, first) = ready.min_by_key(|(_, w)| (w.arrived, w.command.tag))?;
        if self.policy == Policy::Fcfs || at.since(first.arrived) >= self.age_limit {
            return Some(oldest);
        }
        match self.policy {
            Policy::Fcfs => Some(oldest),
            Policy::Elevator => self.next_on_the_way(at, mechanism),
            Policy::Sptf => self.nearest(at, mechanism),
        }
    }

    fn nearest(&self, at: Time, mechanism: &Mechanism) -> Option<usize> {
        let mut best = (Nanos(u64::MAX), None);
        for (index, waiting) in self.waiting.iter().enumerate() {
            if waiting.ready > at {
                continue;
            }
            let time = mechanism.positioning(at, &waiting.place, waiting.write, self.margin);
            if time < best.0 {
                best = (time, Some(index));
            }
        }
        best.1
    }

    fn next_on_the_way(&mut self, at: Time, mechanism: &Mechanism) -> Option<usize> {
        let here = mechanism.next_lba();
        for _ in 0..2 {
            let rising = self.rising;
            let ready = self.waiting.iter().enumerate().filter(|(_, w)| w.ready <= at);
            let ahead = ready.filter(|(_, w)| {
                let start = w.command.extent.start;
                if rising { start >= here } else { start <= here }
            });
            let next = ahead.min_by_key(|(_, w)| w.command.extent.start.distance(here));
            if let Some((index, _)) = next {
                return Some(index);
            }
            self.rising = !self.rising;
        }
        None
    }
}
