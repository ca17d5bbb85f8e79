//! The host in front of a drive. Requests wait here while the drive's queue is full. The host's
//! block layer turns the clients' requests into commands for the drive.
//!
//! Like the drive, the host is a state machine without a clock and without tasks. So it acts at the
//! very time at which the drive has room again, even on a real clock when the task that drives the
//! model runs late. [`crate::device::ModelledDrive`] is the block device over it.

mod block_layer;
mod elevator;
mod flushes;

use manylogs_block::Time;

use crate::command::{Command, Completion, Event};
use crate::drive::Drive;

pub use block_layer::{BlockLayer, Issued};
pub use elevator::{Dispatched, Elevator, ElevatorOptions, Sweep};

/// A drive behind a [`BlockLayer`]: takes any number of commands.
#[derive(Clone, Debug)]
pub struct Host {
    drive: Drive,
    layer: BlockLayer,
    /// Empty between two calls; kept to reuse their memory.
    completed: Vec<Completion>,
    answers: Vec<Completion>,
}

impl Host {
    /// A host in front of `drive`, which must have no command.
    #[must_use]
    pub fn new(drive: Drive) -> Self {
        let layer = BlockLayer::new(drive.link(), drive.has_write_cache(), drive.depth());
        Self { drive, layer, completed: Vec::new(), answers: Vec::new() }
    }

    /// The drive, for changes.
    pub(crate) const fn drive_mut(&mut self) -> &mut Drive {
        &mut self.drive
    }

    /// The drive.
    #[must_use]
    pub const fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Adds a command at `now`. Its tag must be below 2^62. An `urgent` command goes before all
    /// others, also within a drive that has priorities.
    pub fn submit(&mut self, now: Time, command: Command, urgent: bool) {
        match self.layer.pass(command, urgent) {
            Some(issued) => self.hand_over(now, issued),
            None => {
                self.layer.submit(now, command, urgent);
                self.issue(now);
            }
        }
    }

    /// Time of the next event, if there is one.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        match (self.layer.answered_at(), self.drive.next_event()) {
            (Some(answered), Some(event)) => Some(answered.min(event)),
            (answered, event) => answered.or(event),
        }
    }

    /// Lets time pass up to and including `at`, which must not be later than [`Host::next_event`].
    /// `report` is called for each completed command, after the drive has been given new ones.
    pub fn advance(&mut self, at: Time, report: &mut impl FnMut(Completion)) {
        let mut completed = std::mem::take(&mut self.completed);
        let mut answers = std::mem::take(&mut self.answers);
        self.drive.advance(at, &mut |event| {
            if let Event::Completed(completion) = event {
                completed.push(completion);
            }
        });
        answers.extend(self.layer.take_answered());
        if !completed.is_empty() {
            completed.drain(..).for_each(|ended| self.layer.completed(ended, &mut answers));
            self.issue(at);
        }
        answers.drain(..).for_each(&mut *report);
        (self.completed, self.answers) = (completed, answers);
    }

    /// Hands the drive all commands that may go.
    fn issue(&mut self, now: Time) {
        while let Some(issued) = self.layer.issue(now) {
            self.hand_over(now, issued);
        }
    }

    fn hand_over(&mut self, now: Time, Issued { command, urgent }: Issued) {
        let drive = &mut self.drive;
        let accepted =
            if urgent { drive.submit_urgent(now, command) } else { drive.submit(now, command) };
        assert!(accepted.is_ok(), "the drive has room for what the block layer issues");
    }
}

#[cfg(test)]
mod tests;
