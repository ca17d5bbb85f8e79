//! A drive: command queue, buffer and mechanism as one state machine without a clock of its own.
//!
//! The caller submits commands, asks when something will happen next, and lets the drive advance
//! to a time it chooses:
//!
//! ```
//! use manylogs_block::{Extent, Time};
//! use manylogs_disk::{Command, Drive, Event, CommandKind, Options, profile};
//!
//! let profile = profile::find("cheetah-15k5").unwrap().unwrap();
//! let mut drive = Drive::new(&profile, &Options::of(&profile));
//! let read = Command { tag: 1, kind: CommandKind::Read, extent: Extent::new(1_000_000, 8) };
//! drive.submit(Time(0), read).unwrap();
//! while let Some(at) = drive.next_event() {
//!     drive.advance(at, &mut |event| println!("{event:?}"));
//! }
//! ```

mod dispatch;
mod idle;
mod options;
mod pending;
mod power;
mod shingled;
mod submit;

use std::collections::VecDeque;

use manylogs_block::{Extent, Nanos, SECTOR_BYTES, Sectors, Time};

use crate::cache::read::ReadCache;
use crate::cache::write::WriteCache;
use crate::command::{Command, CommandKind, Completion, Counters, Event};
use crate::link::Link;
use crate::mechanics::{Access, HeadPosition, Mechanism};
#[cfg(test)]
use crate::planted::{Bug, is};
use crate::profile::Profile;
use crate::queue::CommandQueue;
use crate::shingled::Shingled;
use crate::spindle::Angle;

pub use options::Options;
use pending::{Pending, PendingEvents};

/// The queue is full: the host has to keep the command until one has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drive's queue is full")]
pub struct QueueFull(pub Command);

/// A modelled drive.
#[derive(Clone, Debug)]
pub struct Drive {
    mechanism: Mechanism,
    queue: CommandQueue,
    reads: ReadCache,
    writes: WriteCache,
    write_cache: bool,
    link: Link,
    /// Whether urgent commands are served first.
    priority: bool,
    depth: usize,
    /// Commands accepted but not yet completed.
    outstanding: usize,
    timing: Timing,
    /// Time at which the mechanism is free.
    free_at: Time,
    /// Time at which the interface has finished sending.
    interface_free: Time,
    /// Time at which a write last entered the empty cache.
    dirty_since: Time,
    /// Whether cached writes go next, because commands have had their turn.
    destage_next: bool,
    pending: PendingEvents,
    /// Flushes that wait. All writes below a flush's sequence must reach the medium first.
    flushes: VecDeque<(Command, u64)>,
    /// Writes that wait for room in the buffer.
    roomless: VecDeque<(Command, Time)>,
    verify: idle::Verify,
    power: power::Spinning,
    /// The translation layer of a shingled drive; none in a conventional drive.
    translated: Option<Box<shingled::Translated>>,
    counters: Counters,
}

/// Times of the electronics.
#[derive(Clone, Copy, Debug)]
struct Timing {
    read_start: Nanos,
    write_start: Nanos,
    read_end_per_sector: Nanos,
    read_end_sectors_max: u64,
    write_end: Nanos,
    buffer_hit: Nanos,
    interface_per_sector: Nanos,
}

impl Drive {
    /// The drive that `profile` describes: heads at LBA 0, all parts idle at time zero.
    #[must_use]
    pub fn new(profile: &Profile, options: &Options) -> Self {
        let mechanism = Mechanism::new(profile, options.terms, options.seed)
            .turned_to(Angle::from_revolutions(options.phase));
        let margin = Nanos::from_secs_f64(profile.queue.prediction_margin_ms / 1e3);
        let segments = if options.read_ahead { profile.cache.segments } else { 0 };
        let layer = Shingled::new(profile, mechanism.geometry(), options.placement);
        let queue = CommandQueue::new(options.policy, options.age_limit, margin);
        let near = layer.as_ref().is_some_and(Shingled::writes_near_head);
        Self {
            mechanism,
            queue: if near { queue.gathering() } else { queue },
            reads: ReadCache::new(segments as usize, profile.cache.segment_sectors),
            writes: WriteCache::new(profile.cache.write_buffer_sectors),
            write_cache: options.write_cache,
            link: options.link,
            priority: options.priority,
            depth: options.depth.clamp(1, 32) as usize,
            outstanding: 0,
            timing: Timing::of(profile),
            free_at: Time(0),
            interface_free: Time(0),
            dirty_since: Time(0),
            destage_next: false,
            pending: PendingEvents::default(),
            flushes: VecDeque::new(),
            roomless: VecDeque::new(),
            verify: idle::Verify::new(profile),
            power: power::Spinning::new(profile),
            translated: layer.map(|layer| Box::new(shingled::Translated::new(layer))),
            counters: Counters::default(),
        }
    }

    /// Whether the queue takes another command.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.outstanding < self.depth
    }

    /// Number of commands that the queue takes at a time.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Whether writes are acknowledged from the volatile cache.
    #[must_use]
    pub const fn has_write_cache(&self) -> bool {
        self.write_cache
    }

    /// The link to the host.
    #[must_use]
    pub const fn link(&self) -> Link {
        self.link
    }

    /// Commands accepted but not yet completed.
    #[must_use]
    pub const fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Location of the heads, after the access in progress if there is one.
    #[must_use]
    pub const fn position(&self) -> HeadPosition {
        self.mechanism.position()
    }

    /// The mechanism: layout, spindle and heads.
    #[must_use]
    pub const fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Number of sectors that the host can address.
    #[must_use]
    pub fn capacity(&self) -> Sectors {
        let shingled = self.translated.as_ref().map(|translated| translated.layer.capacity());
        shingled.unwrap_or(Sectors(self.mechanism.geometry().capacity_sectors()))
    }

    /// Counters of the drive.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Sectors in the volatile cache that are not on the medium.
    #[must_use]
    pub fn volatile_sectors(&self) -> Sectors {
        self.writes.volatile_sectors()
    }

    /// Hands a command to the drive at `now`, which must not be earlier than the times that the
    /// drive was advanced to. Empty extents complete at once. A sector behind the end counts as the
    /// last one.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn submit(&mut self, now: Time, command: Command) -> Result<(), QueueFull> {
        self.accept(now, command, false)
    }

    /// As [`Drive::submit`], for a command that goes before all others if the drive has
    /// [`Options::priority`].
    ///
    /// # Errors
    /// If the queue is full.
    pub fn submit_urgent(&mut self, now: Time, command: Command) -> Result<(), QueueFull> {
        self.accept(now, command, true)
    }

    fn accept(&mut self, now: Time, command: Command, urgent: bool) -> Result<(), QueueFull> {
        if !self.has_room() {
            return Err(QueueFull(command));
        }
        self.wake_for(now, &command);
        self.outstanding += 1;
        self.counters.queued_max = self.counters.queued_max.max(self.outstanding as u64);
        if let Some(translated) = &mut self.translated {
            translated.layer.command_arrives(now);
        }
        match command.kind {
            CommandKind::Flush => self.submit_flush(now, command),
            _ if command.extent.is_empty() => self.complete_from_buffer(now, command, true),
            CommandKind::Read => self.submit_read(now, command, urgent),
            CommandKind::Write { fua } => self.submit_write(now, command, fua, urgent),
        }
        Ok(())
    }

    /// Time of the drive's next event; `None` if it is idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        match (self.pending.earliest(), self.dispatch_time()) {
            (Some(reported), Some(decided)) => Some(reported.min(decided)),
            (reported, decided) => reported.or(decided),
        }
    }

    /// Lets time pass up to and including `now`. `report` is called for each event, in order of
    /// time.
    pub fn advance(&mut self, now: Time, report: &mut impl FnMut(Event)) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            match self.pending.take_until(at) {
                Some((at, pending)) => self.happened(at, pending, report),
                None => self.dispatch(at),
            }
        }
    }

    /// Answers from the buffer: after the electronics' time, once the interface is free.
    fn complete_from_buffer(&mut self, now: Time, command: Command, durable: bool) {
        let sectors = if command.kind == CommandKind::Flush { 0 } else { command.extent.len.0 };
        let begin = (now + self.timing.buffer_hit).max(self.interface_free);
        let at = begin + Nanos(sectors * self.timing.interface_per_sector.0);
        self.interface_free = at;
        let completion = Completion {
            tag: command.tag,
            at,
            durable,
            buffered: true,
            waited: Nanos(0),
            access: Access { end: now, ..Access::default() },
        };
        self.pending.push(at, Pending::Complete(completion));
    }

    fn happened(&mut self, at: Time, pending: Pending, report: &mut impl FnMut(Event)) {
        match pending {
            Pending::Complete(completion) => {
                self.outstanding -= 1;
                report(Event::Completed(completion));
            }
            Pending::Destaged(destage) => {
                self.writes.written(&destage);
                for tag in destage.tags {
                    report(Event::OnMedium { tag, at });
                }
                self.finish_flushes(at);
                self.admit_waiting(at);
            }
        }
    }

    fn admit_waiting(&mut self, now: Time) {
        while let Some(&(command, _)) = self.roomless.front() {
            if !self.writes.has_room(command.extent.len) {
                return;
            }
            self.roomless.pop_front();
            self.admit(now, command);
        }
    }

    fn finish_flushes(&mut self, now: Time) {
        while let Some(&(command, sequence)) = self.flushes.front() {
            let durable = self.writes.is_durable_before(sequence);
            #[cfg(test)]
            let durable = durable || is(Bug::FlushEarly);
            if !durable {
                return;
            }
            self.flushes.pop_front();
            self.complete_from_buffer(now, command, true);
        }
    }
}

impl Timing {
    fn of(profile: &Profile) -> Self {
        let us = |us: f64| Nanos::from_secs_f64(us / 1e6);
        let controller = &profile.controller;
        let interface_us = SECTOR_BYTES as f64 / controller.interface_mb_s;
        Self {
            read_start: us(controller.read_start_us),
            write_start: us(controller.write_start_us),
            read_end_per_sector: us(controller.read_end_us_per_sector),
            read_end_sectors_max: controller.read_end_sectors_max.map_or(u64::MAX, u64::from),
            write_end: us(controller.write_end_us),
            buffer_hit: us(controller.buffer_hit_us),
            interface_per_sector: us(interface_us),
        }
    }

    /// Time from the last sector under the head to the completion at the host.
    fn end(&self, write: bool, extent: Extent) -> Nanos {
        if write {
            return self.write_end;
        }
        Nanos(self.read_end_per_sector.0 * extent.len.0.min(self.read_end_sectors_max))
    }
}

#[cfg(test)]
mod tests;
