//! The elevator: the order in which waiting commands go to the drive.
//!
//! Requests are sorted by address and swept upwards, with deadlines, and neighbours are merged: the
//! block layer's deadline scheduler, or something like it ([`Sweep`]). The elevator holds any
//! number of requests (an overloaded server has a hundred thousand waiting) at logarithmic cost.

mod deadline;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use manylogs_block::{Extent, Lba, Nanos, Sectors, Time};
use smallvec::SmallVec;

use crate::command::{Command, CommandKind};

/// How an elevator goes over the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// One sweep for reads and writes, which restarts at the lowest address. A request that goes to
    /// the drive at once does not take part.
    Joint,
    /// As Linux' `mq-deadline`, request by request. Reads and writes have a sweep each. Every
    /// request takes part, and a sweep restarts at the request that has waited longest.
    Linux,
}

/// Settings of the elevator; the defaults are those of Linux' deadline scheduler.
#[derive(Clone, Copy, Debug)]
pub struct ElevatorOptions {
    /// How the addresses are swept.
    pub sweep: Sweep,
    /// Whether requests are sorted by address; otherwise first come, first served.
    pub sort: bool,
    /// Longest request that merging may make.
    pub merge_max: Sectors,
    /// A read that waited this long goes first.
    pub read_deadline: Nanos,
    /// A write that waited this long goes first.
    pub write_deadline: Nanos,
    /// Whether reads go before writes, as long as no write is starved.
    pub prefer_reads: bool,
    /// Number of batches of reads that may go before waiting writes.
    pub writes_starved_max: u32,
    /// Number of requests of a sweep before deadlines and the other direction are considered.
    pub batch: u32,
}

impl Default for ElevatorOptions {
    fn default() -> Self {
        Self {
            sweep: Sweep::Joint,
            sort: true,
            merge_max: Sectors(2560),
            read_deadline: Nanos::from_millis(500),
            write_deadline: Nanos::from_secs(5),
            prefer_reads: true,
            writes_starved_max: 2,
            batch: 16,
        }
    }
}

/// A request for the drive: one command, or several merged ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// Operation.
    pub kind: CommandKind,
    /// The merged extent.
    pub extent: Extent,
    /// The tags of the requests in it, in address order.
    pub tags: SmallVec<[u64; 2]>,
}

/// Requests that wait in front of a drive.
#[derive(Clone, Debug)]
pub struct Elevator {
    options: ElevatorOptions,
    /// Reads and writes.
    sides: [Side; 2],
    next_sequence: u64,
    /// Position from which the sweep continues.
    at: Lba,
    /// Where the last read and the last write began, for [`Sweep::Linux`].
    began: [u64; 2],
    /// Side and rest of the batch under way.
    batch: (usize, u32),
    /// Number of batches of reads that went while writes waited.
    writes_passed_over: u32,
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
struct Held {
    len: u64,
    tag: u64,
    fua: bool,
    arrived: Time,
}

#[derive(Clone, Debug, Default)]
struct Side {
    /// By first sector, then order of arrival.
    by_address: BTreeMap<(u64, u64), Held>,
    /// Order of arrival and first sector. Requests that have gone already are skipped when they
    /// come up.
    by_arrival: VecDeque<(u64, u64)>,
    /// Sequences in `by_arrival` whose requests have gone out of turn.
    gone: BTreeSet<u64>,
}

impl Elevator {
    /// An empty elevator.
    #[must_use]
    pub fn new(options: ElevatorOptions) -> Self {
        Self {
            options,
            sides: [Side::default(), Side::default()],
            next_sequence: 0,
            at: Lba(0),
            began: [0; 2],
            batch: (0, 0),
            writes_passed_over: 0,
        }
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sides.iter().map(|side| side.by_address.len()).sum()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a read or a write that arrived at `now`.
    pub fn push(&mut self, now: Time, command: Command) {
        let Command { tag, kind, extent } = command;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let fua = kind == CommandKind::Write { fua: true };
        let held = Held { len: extent.len.0, tag, fua, arrived: now };
        let side = &mut self.sides[usize::from(kind != CommandKind::Read)];
        side.by_address.insert((extent.start.0, sequence), held);
        side.by_arrival.push_back((sequence, extent.start.0));
    }

    /// Notes that a request goes at once, because no request waits.
    pub(super) fn pass(&mut self, command: &Command) {
        debug_assert!(self.is_empty(), "what waits goes first");
        if self.options.sweep == Sweep::Linux {
            self.passed(usize::from(command.kind != CommandKind::Read), command.extent.start.0);
        }
    }

    /// Takes the request to hand to the drive at `now`, merged with waiting requests that follow it
    /// without a gap; `None` if no request waits. A write with forced unit access goes alone.
    pub fn pop(&mut self, now: Time) -> Option<Dispatched> {
        let (side, key) = match self.options.sweep {
            Sweep::Linux => self.deadline(now)?,
            Sweep::Joint => {
                let side = self.choose_side(now)?;
                (side, self.choose_request(side, now)?)
            }
        };
        let dispatched = self.merge(side, key);
        self.at = dispatched.extent.end();
        Some(dispatched)
    }

    /// Chooses between reads and writes: first the current batch, then overdue requests, then
    /// reads, unless writes were passed over too often.
    fn choose_side(&mut self, now: Time) -> Option<usize> {
        let (side, left) = self.batch;
        if left > 0 && !self.sides[side].by_address.is_empty() {
            self.batch.1 = left - 1;
            return Some(side);
        }
        let waiting = [0, 1].map(|side| !self.sides[side].by_address.is_empty());
        let side = match waiting {
            [false, false] => return None,
            [true, false] => 0,
            [false, true] => 1,
            [true, true] => self.choose_between(now),
        };
        let passed_over = side == 0 && waiting[1];
        self.writes_passed_over = if passed_over { self.writes_passed_over + 1 } else { 0 };
        self.batch = (side, self.options.batch.saturating_sub(1));
        Some(side)
    }

    fn choose_between(&mut self, now: Time) -> usize {
        let starved = self.writes_passed_over >= self.options.writes_starved_max;
        if self.options.prefer_reads {
            return usize::from(starved || self.is_overdue(1, now) && !self.is_overdue(0, now));
        }
        let oldest = [0, 1].map(|side| self.sides[side].oldest().map(|key| key.1));
        usize::from(oldest[1] < oldest[0])
    }

    fn is_overdue(&mut self, side: usize, now: Time) -> bool {
        let limit = [self.options.read_deadline, self.options.write_deadline][side];
        let side = &mut self.sides[side];
        let Some(key) = side.oldest() else { return false };
        side.by_address.get(&key).is_some_and(|held| now.since(held.arrived) >= limit)
    }

    /// Chooses the oldest request if it is overdue, else the next one of the sweep.
    fn choose_request(&mut self, side: usize, now: Time) -> Option<(u64, u64)> {
        if !self.options.sort || self.is_overdue(side, now) {
            return self.sides[side].oldest();
        }
        let requests = &self.sides[side].by_address;
        let ahead = requests.range((self.at.0, 0)..).next();
        ahead.or_else(|| requests.iter().next()).map(|(key, _)| *key)
    }

    fn merge(&mut self, side: usize, key: (u64, u64)) -> Dispatched {
        let kind = if side == 1 { CommandKind::Write { fua: false } } else { CommandKind::Read };
        let mut merged = Dispatched { kind, extent: Extent::new(key.0, 0), tags: SmallVec::new() };
        let side = &mut self.sides[side];
        let mut next = Some(key);
        while let Some(held) = next.and_then(|key| side.take(key)) {
            merged.extent.len.0 += held.len;
            merged.tags.push(held.tag);
            if held.fua {
                merged.kind = CommandKind::Write { fua: true };
                break;
            }
            let room = self.options.merge_max.0.saturating_sub(merged.extent.len.0);
            let end = merged.extent.end().0;
            let follows = side.by_address.range((end, 0)..(end + 1, 0)).next();
            let fits = |held: &Held| held.len <= room && !held.fua;
            next = follows.filter(|(_, held)| fits(held)).map(|(key, _)| *key);
        }
        merged
    }
}

impl Side {
    /// Key of the request that has waited longest.
    fn oldest(&mut self) -> Option<(u64, u64)> {
        while let Some(&(sequence, start)) = self.by_arrival.front() {
            if !self.gone.remove(&sequence) {
                return Some((start, sequence));
            }
            self.by_arrival.pop_front();
        }
        None
    }

    fn take(&mut self, key: (u64, u64)) -> Option<Held> {
        let held = self.by_address.remove(&key)?;
        if self.by_arrival.front().is_some_and(|front| front.0 == key.1) {
            self.by_arrival.pop_front();
        } else {
            self.gone.insert(key.1);
        }
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(tag: u64, write: bool, extent: Extent) -> Command {
        let kind = if write { CommandKind::Write { fua: false } } else { CommandKind::Read };
        Command { tag, kind, extent }
    }

    fn drain(elevator: &mut Elevator, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| elevator.pop(now)).flat_map(|d| d.tags).collect()
    }

    #[test]
    fn requests_go_in_address_order_from_where_the_sweep_is() {
        let mut elevator = Elevator::new(ElevatorOptions::default());
        for (tag, start) in [(1, 900), (2, 100), (3, 500)] {
            elevator.push(Time(0), command(tag, false, Extent::new(start, 8)));
        }
        assert_eq!(elevator.pop(Time(1)).unwrap().tags.as_slice(), [2]);
        elevator.push(Time(1), command(4, false, Extent::new(50, 8)));
        assert_eq!(drain(&mut elevator, Time(1)), [3, 1, 4]);
    }

    #[test]
    fn neighbours_are_merged_up_to_the_limit() {
        let options = ElevatorOptions { merge_max: Sectors(24), ..ElevatorOptions::default() };
        let mut elevator = Elevator::new(options);
        for tag in 0..5 {
            elevator.push(Time(0), command(tag, true, Extent::new(tag * 8, 8)));
        }
        let first = elevator.pop(Time(0)).unwrap();
        assert_eq!((first.extent, first.tags.len()), (Extent::new(0, 24), 3));
        assert_eq!(elevator.pop(Time(0)).unwrap().extent, Extent::new(24, 16));
        assert!(elevator.is_empty());
    }

    #[test]
    fn a_write_with_forced_unit_access_is_not_merged() {
        let mut elevator = Elevator::new(ElevatorOptions::default());
        for tag in 0..5 {
            let kind = CommandKind::Write { fua: tag == 2 };
            elevator.push(Time(0), Command { tag, kind, extent: Extent::new(tag * 8, 8) });
        }
        let parts: Vec<_> = std::iter::from_fn(|| elevator.pop(Time(0))).collect();
        let tags: Vec<&[u64]> = parts.iter().map(|part| part.tags.as_slice()).collect();
        assert_eq!(tags, [&[0, 1][..], &[2], &[3, 4]]);
        assert_eq!(parts[1].kind, CommandKind::Write { fua: true });
    }

    #[test]
    fn reads_pass_writes_but_do_not_starve_them() {
        let options = ElevatorOptions { batch: 1, ..ElevatorOptions::default() };
        let mut elevator = Elevator::new(options);
        elevator.push(Time(0), command(100, true, Extent::new(1_000, 8)));
        for tag in 0..6 {
            elevator.push(Time(0), command(tag, false, Extent::new(tag * 100, 8)));
        }
        assert_eq!(drain(&mut elevator, Time(1)), [0, 1, 100, 2, 3, 4, 5]);
    }

    #[test]
    fn an_overdue_request_goes_before_the_sweep() {
        let options = ElevatorOptions { batch: 1, ..ElevatorOptions::default() };
        let mut elevator = Elevator::new(options);
        elevator.push(Time(0), command(1, false, Extent::new(9_000, 8)));
        elevator.push(Time(1), command(2, false, Extent::new(10, 8)));
        let late = Time(0) + Nanos::from_millis(500);
        assert_eq!(drain(&mut elevator, late), [1, 2]);
    }

    #[test]
    fn a_hundred_thousand_requests_come_out_once_each() {
        let mut elevator = Elevator::new(ElevatorOptions::default());
        let mut rng = manylogs_block::Rng::new(5);
        for tag in 0..100_000 {
            let write = rng.below(2) == 0;
            elevator.push(Time(tag), command(tag, write, Extent::new(rng.below(1 << 30), 8)));
        }
        let mut tags = drain(&mut elevator, Time(100_000));
        tags.sort_unstable();
        assert_eq!(tags, (0..100_000).collect::<Vec<_>>());
        assert!(elevator.is_empty());
        assert!(elevator.sides.iter().all(|s| s.gone.len() <= s.by_arrival.len()));
    }
}
