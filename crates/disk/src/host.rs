//! The host in front of a drive, in which requests wait while the drive's queue is full.
//!
//! As the drive below it, the host is a state machine without a clock and without tasks. So it acts
//! at the very time at which the drive has room again, also where the clock is a real one and the
//! task that drives the model runs late. [`crate::device::ModelledDrive`] is the block device over
//! it.

mod elevator;

use std::collections::VecDeque;

use manylogs_block::{Extent, Time, to_usize};

use crate::command::{Command, Completion, Event, Kind};
use crate::drive::Drive;

pub use elevator::{Dispatched, Elevator, ElevatorOptions};

/// A drive behind an elevator: takes any number of commands.
///
/// Urgent commands go first, then flushes, then what the [`Elevator`] chooses.
#[derive(Clone, Debug)]
pub struct Host {
    drive: Drive,
    elevator: Elevator,
    /// Tags of flushes, which have no address to sort them by.
    flushes: VecDeque<u64>,
    urgent: VecDeque<Command>,
    /// Merged commands in the drive. The drive's tag is the index with [`MERGED`] set.
    merged: Vec<Option<Dispatched>>,
    /// Empty between two calls, kept for its memory.
    completed: Vec<Completion>,
}

/// Marks tags of commands that answer several of the host's.
const MERGED: u64 = 1 << 63;

impl Host {
    /// A host in front of `drive`, which must have no command.
    #[must_use]
    pub fn new(drive: Drive, options: ElevatorOptions) -> Self {
        Self {
            drive,
            elevator: Elevator::new(options),
            flushes: VecDeque::new(),
            urgent: VecDeque::new(),
            merged: Vec::new(),
            completed: Vec::new(),
        }
    }

    /// The drive.
    #[must_use]
    pub const fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Takes in a command at `now`. Its tag must be below 2^63. An `urgent` one goes before all
    /// others, also within a drive that has priorities.
    pub fn submit(&mut self, now: Time, command: Command, urgent: bool) {
        let nothing_waits = self.elevator.is_empty() && self.flushes.is_empty();
        if (nothing_waits || urgent) && self.drive.has_room() {
            self.hand_over(now, command, urgent);
        } else if urgent {
            self.urgent.push_back(command);
        } else if command.kind == Kind::Flush {
            self.flushes.push_back(command.tag);
        } else {
            self.elevator.push(now, command);
        }
    }

    /// Time of the next event, if there is one.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    /// Lets time pass up to and including `at`, which must not be later than
    /// [`Host::next_event`]. `report` hears of the commands that have completed; by then the drive
    /// has new ones.
    pub fn advance(&mut self, at: Time, report: &mut impl FnMut(Completion)) {
        let mut completed = std::mem::take(&mut self.completed);
        self.drive.advance(at, &mut |event| {
            if let Event::Completed(completion) = event {
                completed.push(completion);
            }
        });
        if !completed.is_empty() {
            self.refill(at);
        }
        for completion in completed.drain(..) {
            self.report(completion, report);
        }
        self.completed = completed;
    }

    /// Hands waiting commands to the drive while it has room.
    fn refill(&mut self, now: Time) {
        while self.drive.has_room() {
            if let Some(command) = self.urgent.pop_front() {
                self.hand_over(now, command, true);
                continue;
            }
            if let Some(tag) = self.flushes.pop_front() {
                let extent = Extent::default();
                self.hand_over(now, Command { tag, kind: Kind::Flush, extent }, false);
                continue;
            }
            let Some(dispatched) = self.elevator.pop(now) else { return };
            let (kind, extent) = (dispatched.kind, dispatched.extent);
            let tag = match dispatched.tags.as_slice() {
                [tag] => *tag,
                _ => self.keep(dispatched),
            };
            self.hand_over(now, Command { tag, kind, extent }, false);
        }
    }

    fn hand_over(&mut self, now: Time, command: Command, urgent: bool) {
        let drive = &mut self.drive;
        let accepted =
            if urgent { drive.submit_urgent(now, command) } else { drive.submit(now, command) };
        assert!(accepted.is_ok(), "the drive said that it has room");
    }

    /// Remembers which commands a merged one answers; returns the tag of the merged one.
    fn keep(&mut self, dispatched: Dispatched) -> u64 {
        let free = self.merged.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.merged.push(None);
            self.merged.len() - 1
        });
        self.merged[index] = Some(dispatched);
        index as u64 | MERGED
    }

    /// Reports the end of a command, or of each of those that were merged into it.
    fn report(&mut self, completion: Completion, report: &mut impl FnMut(Completion)) {
        if completion.tag & MERGED == 0 {
            report(completion);
            return;
        }
        let dispatched = self.merged[to_usize(completion.tag & !MERGED)].take();
        let Some(dispatched) = dispatched else { unreachable!("a command completes once") };
        for tag in dispatched.tags {
            report(Completion { tag, ..completion });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::drive::Options;
    use crate::profile;

    /// The tags in the order in which they complete.
    fn run(host: &mut Host) -> Vec<u64> {
        let mut tags = Vec::new();
        while let Some(at) = host.next_event() {
            host.advance(at, &mut |completion| tags.push(completion.tag));
        }
        tags
    }

    fn host() -> Host {
        let profile = profile::find("cheetah-15k5").unwrap().unwrap();
        let drive = Drive::new(&profile, &Options::bare(&profile));
        Host::new(drive, ElevatorOptions::default())
    }

    #[test]
    fn each_of_the_merged_commands_completes() {
        let mut host = host();
        for tag in 0..9 {
            let kind = Kind::Write { fua: tag == 5 };
            host.submit(Time(0), Command { tag, kind, extent: Extent::new(tag * 8, 8) }, false);
        }
        assert_eq!(run(&mut host), (0..9).collect::<Vec<_>>());
        assert_eq!(host.drive().counters().writes, 2, "one at once, and the others together");
    }

    #[test]
    fn what_waits_goes_urgent_first_then_flushes_then_by_address() {
        let mut host = host();
        let read = |tag, at| Command { tag, kind: Kind::Read, extent: Extent::new(at, 8) };
        host.submit(Time(0), read(0, 0), false);
        host.submit(Time(0), read(1, 9_000), false);
        host.submit(Time(0), read(2, 5_000), false);
        let flush = Command { tag: 3, kind: Kind::Flush, extent: Extent::default() };
        host.submit(Time(0), flush, false);
        host.submit(Time(0), read(4, 90_000), true);
        assert_eq!(run(&mut host), [0, 4, 3, 2, 1]);
    }
}
