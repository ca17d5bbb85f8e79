//! The drive's command queue, and the choice of the next command.

use manylogs_block::{Lba, Nanos, Time};

use crate::cache::read::ReadCache;
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

    /// All policies.
    pub const ALL: [Self; 3] = [Self::Fcfs, Self::Elevator, Self::Sptf];

    /// Name in profiles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Elevator => "elevator",
            Self::Sptf => "sptf",
        }
    }
}

/// A command in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) command: Command,
    pub(crate) write: bool,
    /// Where the command begins on the medium.
    pub(crate) start: Lba,
    pub(crate) place: Location,
    pub(crate) arrived: Time,
    /// Time at which the controller has decoded the command.
    pub(crate) ready: Time,
    /// Whether the command goes before all that are not urgent.
    pub(crate) urgent: bool,
}

/// The longest time that a write waits for others to be written with it.
const GATHER_MAX: Nanos = Nanos::from_millis(200);

/// The commands that wait for the mechanism.
#[derive(Clone, Debug)]
pub(crate) struct CommandQueue {
    waiting: Vec<Waiting>,
    /// Least `ready` and least `arrived` of the waiting commands.
    first_ready: Option<Time>,
    first_arrived: Option<Time>,
    policy: Policy,
    age_limit: Nanos,
    margin: Nanos,
    /// Whether the elevator moves to higher addresses.
    rising: bool,
    /// Number of waiting commands that are urgent.
    urgent: usize,
    /// Whether writes wait for each other while more reads wait: see
    /// [`CommandQueue::gathering`].
    gathers: bool,
}

impl CommandQueue {
    pub(crate) fn new(policy: Policy, age_limit: Nanos, margin: Nanos) -> Self {
        Self {
            waiting: Vec::with_capacity(32),
            first_ready: None,
            first_arrived: None,
            policy,
            age_limit,
            margin,
            rising: true,
            urgent: 0,
            gathers: false,
        }
    }

    /// Returns this queue for a drive whose writes cost the same wherever the head is, and several
    /// writes as much as one. Writes are then always the nearest commands. Served at once, each
    /// would cost its own head switch, and the queue would fill with reads until all of these are
    /// too old.
    pub(crate) const fn gathering(mut self) -> Self {
        self.gathers = true;
        self
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.first_ready = Some(self.first_ready.map_or(waiting.ready, |t| t.min(waiting.ready)));
        self.first_arrived =
            Some(self.first_arrived.map_or(waiting.arrived, |t| t.min(waiting.arrived)));
        self.urgent += usize::from(waiting.urgent);
        self.waiting.push(waiting);
    }

    pub(crate) fn earliest_ready(&self) -> Option<Time> {
        self.first_ready
    }

    /// Time to spare with which a command is expected to catch this revolution.
    pub(crate) const fn margin(&self) -> Nanos {
        self.margin
    }

    /// The write that arrived first.
    pub(crate) fn first_write(&self) -> Option<&Command> {
        let writes = self.waiting.iter().filter(|waiting| waiting.write);
        let first = writes.min_by_key(|waiting| (waiting.arrived, waiting.command.tag));
        first.map(|waiting| &waiting.command)
    }

    /// Sets the place of the waiting writes of a shingled drive to `place`, whatever their address.
    pub(crate) fn writes_go_to(&mut self, start: Lba, place: Location) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.write) {
            (waiting.start, waiting.place) = (start, place);
        }
    }

    /// Removes the command to serve at `at`; `None` if no command is ready.
    pub(crate) fn take(&mut self, at: Time, on: &Mechanism, reads: &ReadCache) -> Option<Waiting> {
        let index = match self.waiting.len() {
            0 => return None,
            1 => (self.waiting[0].ready <= at).then_some(0)?,
            _ => self.choose(at, on, reads)?,
        };
        let taken = self.waiting.swap_remove(index);
        self.urgent -= usize::from(taken.urgent);
        if Some(taken.ready) == self.first_ready {
            self.first_ready = self.waiting.iter().map(|w| w.ready).min();
        }
        if Some(taken.arrived) == self.first_arrived {
            self.first_arrived = self.waiting.iter().map(|w| w.arrived).min();
        }
        Some(taken)
    }

    fn choose(&mut self, at: Time, mechanism: &Mechanism, reads: &ReadCache) -> Option<usize> {
        if self.urgent > 0
            && let Some(index) = self.urgent_one(at)
        {
            return Some(index);
        }
        let aged = self.first_arrived.is_some_and(|first| at.since(first) >= self.age_limit);
        #[cfg(test)]
        let aged = aged && !crate::planted::is(crate::planted::Bug::NoAgeLimit);
        match self.policy {
            Policy::Elevator if !aged => self.next_on_the_way(at, mechanism),
            Policy::Sptf if !aged => self.nearest(at, mechanism, reads),
            _ => self.oldest(at),
        }
    }

    /// The urgent command that arrived first.
    fn urgent_one(&self, at: Time) -> Option<usize> {
        let ready = self.waiting.iter().enumerate().filter(|(_, w)| w.urgent && w.ready <= at);
        ready.min_by_key(|(_, w)| (w.arrived, w.command.tag)).map(|(index, _)| index)
    }

    fn oldest(&self, at: Time) -> Option<usize> {
        let ready = self.waiting.iter().enumerate().filter(|(_, w)| w.ready <= at);
        ready.min_by_key(|(_, w)| (w.arrived, w.command.tag)).map(|(index, _)| index)
    }

    fn nearest(&self, at: Time, mechanism: &Mechanism, reads: &ReadCache) -> Option<usize> {
        let (streamed, next) = (reads.streamed(), mechanism.next_lba().0);
        let gathers = self.gathers && self.writes_wait(at, mechanism.next_lba());
        #[cfg(test)]
        let gathers = gathers && !crate::planted::is(crate::planted::Bug::WritesFirst);
        let mut best = (Nanos(u64::MAX), None);
        for (index, waiting) in self.waiting.iter().enumerate() {
            if waiting.ready > at || (gathers && waiting.write) {
                continue;
            }
            let start = waiting.start.0;
            // A read of sectors that are being read ahead needs no positioning. Of several such
            // reads the one with the lowest address goes first, because the others follow it.
            let time = if !waiting.write && start.wrapping_sub(streamed.0) <= streamed.1 {
                Nanos(0)
            } else {
                // The access after the last one needs no margin: the layout makes room for it.
                let margin = if start == next { Nanos(0) } else { self.margin };
                // Far commands take no short cut: an unpredictable branch costs more than it saves.
                mechanism.positioning(at, &waiting.place, waiting.write, margin)
            };
            let first = |best: usize| start < self.waiting[best].start.0;
            if time < best.0 || (time == Nanos(0) && best.0 == time && best.1.is_some_and(first)) {
                best = (time, Some(index));
            }
        }
        best.1
    }

    /// Whether writes wait for more writes: fewer writes than reads wait, no write has waited long,
    /// and the head has not just written at their place.
    fn writes_wait(&self, at: Time, next: Lba) -> bool {
        let reads = self.waiting.iter().filter(|w| !w.write && w.ready <= at).count();
        let mut writes = self.waiting.iter().filter(|w| w.write).peekable();
        let goes_on = writes.peek().is_some_and(|write| write.start == next);
        let oldest = writes.clone().map(|write| write.arrived).min();
        let is_young = oldest.is_some_and(|arrived| at.since(arrived) < GATHER_MAX);
        is_young && !goes_on && writes.count() < reads
    }

    fn next_on_the_way(&mut self, at: Time, mechanism: &Mechanism) -> Option<usize> {
        let here = mechanism.next_lba();
        for _ in 0..2 {
            let rising = self.rising;
            let ready = self.waiting.iter().enumerate().filter(|(_, w)| w.ready <= at);
            let ahead =
                ready.filter(|(_, w)| if rising { w.start >= here } else { w.start <= here });
            let next = ahead.min_by_key(|(_, w)| w.start.distance(here));
            if let Some((index, _)) = next {
                return Some(index);
            }
            self.rising = !self.rising;
        }
        None
    }
}
