//! The commands that wait in front of a drive, and which of them may go: the rules of Linux' block
//! layer and of its drivers for SATA and SCSI disks, without any drive.

use std::collections::VecDeque;

use manylogs_block::{Extent, Time, to_usize};

use super::elevator::{Dispatched, Elevator, ElevatorOptions, Sweep};
use super::flushes::Flushes;
use crate::command::{Command, CommandKind, Completion};
use crate::link::{Link, LinkKind};
#[cfg(test)]
use crate::planted::{Bug, is};

/// Tag of a flush in the drive: there is one at a time.
const FLUSH: u64 = u64::MAX;
/// Marks the tags of merged commands, which answer several of the host's ...
const MERGED: u64 = 1 << 63;
/// ... and the tags of the data of writes that end with a flush.
const DATA: u64 = 1 << 62;
/// The host's tags lie below this.
pub(super) const TAGS: u64 = DATA;

/// The block layer of a host with one disk.
///
/// The block layer is told which commands arrive and which the drive has completed. It is asked
/// which command to issue next. It knows no drive, so the same rules hold for any order and any
/// times of completions.
///
/// With the drive's write cache off, a flush is answered at once and forced unit access is left
/// out. With it on, a FUA write becomes a write and then a flush if the host does not know that the
/// drive takes FUA ([`Link::fua`]). Flushes are shared, as in Linux. On SATA a flush waits for the
/// commands in flight and goes alone, and no later command goes before it.
#[derive(Clone, Debug)]
pub struct BlockLayer {
    link: Link,
    write_cache: bool,
    /// Number of commands that the drive takes at a time.
    depth: usize,
    elevator: Elevator,
    urgent: VecDeque<Command>,
    flushes: Flushes<Waiter>,
    next_flush: NextFlush,
    /// See [`BlockLayer::lagging`].
    lags: bool,
    /// The command that goes next after a flush on SATA; it has left the elevator already.
    held_up: Option<Command>,
    /// Commands in the drive, and whether a flush is among them.
    in_flight: usize,
    flush_in_flight: bool,
    /// Merged commands in the drive, or held up. Their tag is the index with [`MERGED`] set.
    merged: Vec<Option<Dispatched>>,
    /// Completions of commands that never went to the drive.
    answered: Vec<Completion>,
}

/// The flush that has not gone to the drive yet, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextFlush {
    None,
    /// A flush is due, but the host's worker has not put it in line: see [`BlockLayer::lagging`].
    Due,
    /// A flush goes before all waiting commands.
    InLine,
}

/// A command that waits for a flush.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    Flush(u64),
    /// A write with forced unit access, with the completion of its data.
    Write(Completion),
}

/// A command that goes to the drive next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The command. Its tag comes back with its completion and has no other meaning.
    pub command: Command,
    /// Whether the command goes before all others within a drive that has priorities.
    pub urgent: bool,
}

impl BlockLayer {
    /// A block layer over an idle drive that takes `depth` commands at a time.
    ///
    /// In front of a write cache the elevator is Linux' own. Without a cache the model keeps its
    /// old sweep: its figures are older than that elevator and are compared with others.
    #[must_use]
    pub fn new(link: Link, write_cache: bool, depth: usize) -> Self {
        let sweep = if write_cache { Sweep::Linux } else { Sweep::Joint };
        Self {
            link,
            write_cache,
            depth,
            elevator: Elevator::new(ElevatorOptions { sweep, ..ElevatorOptions::default() }),
            urgent: VecDeque::new(),
            flushes: Flushes::default(),
            next_flush: NextFlush::None,
            lags: false,
            held_up: None,
            in_flight: 0,
            flush_in_flight: false,
            merged: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Returns this block layer with a worker that puts a due flush in line only when
    /// [`BlockLayer::flush_in_line`] is called. Linux leaves this to a worker, too: commands that
    /// are issued before it runs go before the flush. Without this, a flush is put in line at once.
    #[must_use]
    pub const fn lagging(mut self) -> Self {
        self.lags = true;
        self
    }

    /// Runs the worker of a [`BlockLayer::lagging`] layer, which puts a due flush in line. Returns
    /// whether a flush was due.
    pub fn flush_in_line(&mut self, now: Time) -> bool {
        let due = self.next_flush == NextFlush::Due;
        if due {
            self.next_flush = NextFlush::InLine;
            self.hold_up(now);
        }
        due
    }

    /// Adds a command at `now`. Its tag must be below 2^62. An `urgent` command goes before all
    /// others, but not before a flush that holds them up.
    pub fn submit(&mut self, now: Time, command: Command, urgent: bool) {
        if command.kind == CommandKind::Flush {
            return self.submit_flush(now, command.tag);
        }
        let command = self.begin(command);
        if urgent {
            self.urgent.push_back(command);
        } else {
            self.elevator.push(now, command);
        }
        self.hold_up(now);
    }

    /// Adds a command and issues it if it can go at once and no command waits; else does not add
    /// it. Costs less than [`BlockLayer::submit`] and [`BlockLayer::issue`].
    pub fn pass(&mut self, command: Command, urgent: bool) -> Option<Issued> {
        let waits = self.next_flush != NextFlush::None
            || self.in_flight == self.depth
            || (self.flush_in_flight && self.flush_goes_alone());
        let some_wait = !self.elevator.is_empty() || !self.urgent.is_empty();
        if waits || some_wait || self.held_up.is_some() || command.kind == CommandKind::Flush {
            return None;
        }
        let command = self.begin(command);
        if !urgent {
            self.elevator.pass(&command);
        }
        Some(self.issue_data(command, urgent))
    }

    /// Changes the command to the form that the elevator gets.
    fn begin(&mut self, mut command: Command) -> Command {
        debug_assert!(command.tag < TAGS, "the rest of the tag is the block layer's");
        if !self.write_cache && command.kind == (CommandKind::Write { fua: true }) {
            command.kind = CommandKind::Write { fua: false };
        }
        if self.ends_with_flush(command.kind) {
            self.flushes.data_begins();
        }
        command
    }

    fn submit_flush(&mut self, now: Time, tag: u64) {
        if self.write_cache {
            if self.flushes.wait(now, Waiter::Flush(tag)) {
                self.flush_is_due();
                self.hold_up(now);
            }
            return;
        }
        self.answered.push(Completion::of(tag, now));
    }

    /// Returns a command to issue now; `None` if the drive has no room or no command may go. Must
    /// be called until `None` after each [`BlockLayer::submit`] and [`BlockLayer::completed`].
    pub fn issue(&mut self, now: Time) -> Option<Issued> {
        if self.in_flight == self.depth {
            return None;
        }
        if self.next_flush == NextFlush::InLine {
            if self.flush_goes_alone() && self.in_flight > 0 {
                return None;
            }
            return Some(self.issue_flush(now));
        }
        if self.flush_in_flight && self.flush_goes_alone() {
            return None;
        }
        if let Some(command) = self.held_up.take() {
            return Some(self.issue_data(command, false));
        }
        if let Some(command) = self.urgent.pop_front() {
            return Some(self.issue_data(command, true));
        }
        self.take_next(now).map(|command| self.issue_data(command, false))
    }

    /// Records that the drive has completed a command from [`BlockLayer::issue`]. Adds the
    /// completions for the host to `answers`.
    pub fn completed(&mut self, completion: Completion, answers: &mut Vec<Completion>) {
        self.in_flight -= 1;
        let Completion { tag, at, .. } = completion;
        if tag == FLUSH {
            self.flush_in_flight = false;
            let (served, again) = self.flushes.ended(at);
            answers.extend(served.iter().map(|waiter| waiter.served(completion)));
            if again {
                self.flush_is_due();
            }
        } else if tag & MERGED != 0 {
            let merged = self.merged[to_usize(tag & !MERGED)].take();
            let Some(merged) = merged else { unreachable!("a command completes once") };
            answers.extend(merged.tags.iter().map(|&tag| Completion { tag, ..completion }));
        } else if tag & DATA != 0 {
            let data = Completion { tag: tag & !DATA, ..completion };
            if self.flushes.data_ended(at, Waiter::Write(data)) {
                self.flush_is_due();
            }
        } else {
            answers.push(completion);
        }
        self.hold_up(at);
    }

    /// Takes the completions without the drive since the last call.
    pub fn take_answered(&mut self) -> std::vec::Drain<'_, Completion> {
        self.answered.drain(..)
    }

    /// Time of the first completion without the drive that was not taken yet.
    #[must_use]
    pub fn answered_at(&self) -> Option<Time> {
        self.answered.first().map(|completion| completion.at)
    }

    /// Whether a write of this kind is issued as data and then a flush.
    fn ends_with_flush(&self, kind: CommandKind) -> bool {
        #[cfg(test)]
        if is(Bug::FuaWithoutFlush) {
            return false;
        }
        self.write_cache && !self.link.fua && kind == (CommandKind::Write { fua: true })
    }

    fn flush_goes_alone(&self) -> bool {
        #[cfg(test)]
        if is(Bug::FlushOvertakes) {
            return false;
        }
        self.link.kind == LinkKind::Sata
    }

    fn flush_is_due(&mut self) {
        self.next_flush = if self.lags { NextFlush::Due } else { NextFlush::InLine };
    }

    /// Linux takes a command from the elevator while the drive has room. If the command cannot go
    /// beside a flush, Linux keeps it as the next to go and does not return it to the elevator.
    fn hold_up(&mut self, now: Time) {
        let in_line = self.next_flush == NextFlush::InLine;
        let taken = self.in_flight + usize::from(in_line);
        let first = (in_line || self.flush_in_flight) && self.flush_goes_alone();
        if first && taken < self.depth && self.held_up.is_none() {
            self.held_up = self.take_next(now);
        }
    }

    /// Takes the elevator's next command.
    fn take_next(&mut self, now: Time) -> Option<Command> {
        let dispatched = self.elevator.pop(now)?;
        let (kind, extent) = (dispatched.kind, dispatched.extent);
        let tag = match dispatched.tags.as_slice() {
            [tag] => *tag,
            _ => self.keep(dispatched),
        };
        Some(Command { tag, kind, extent })
    }

    /// Remembers which commands a merged command answers; returns the tag of the merged command.
    fn keep(&mut self, dispatched: Dispatched) -> u64 {
        let free = self.merged.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.merged.push(None);
            self.merged.len() - 1
        });
        self.merged[index] = Some(dispatched);
        index as u64 | MERGED
    }

    fn issue_data(&mut self, mut command: Command, urgent: bool) -> Issued {
        self.in_flight += 1;
        if self.ends_with_flush(command.kind) {
            command.kind = CommandKind::Write { fua: false };
            command.tag |= DATA;
        }
        Issued { command, urgent }
    }

    fn issue_flush(&mut self, now: Time) -> Issued {
        self.in_flight += 1;
        self.flush_in_flight = true;
        self.next_flush = NextFlush::None;
        self.hold_up(now);
        let command = Command { tag: FLUSH, kind: CommandKind::Flush, extent: Extent::default() };
        Issued { command, urgent: false }
    }
}

impl Waiter {
    /// The answer to the waiting command once the flush has completed.
    fn served(self, flush: Completion) -> Completion {
        match self {
            Self::Flush(tag) => Completion { tag, ..flush },
            Self::Write(data) => Completion { at: flush.at, durable: true, ..data },
        }
    }
}
