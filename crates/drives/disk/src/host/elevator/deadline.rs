//! The order of Linux' `mq-deadline` (kernels from 6.5 on).

use manylogs_block::Time;

use super::Elevator;

impl Elevator {
    /// Chooses the request that goes next; returns its side and key.
    ///
    /// A batch goes on while requests lie ahead. Then reads go, unless writes were passed over too
    /// often. They start at the first request from where the last one of their side began, or at
    /// the oldest if none lies there or the oldest is overdue.
    pub(super) fn deadline(&mut self, now: Time) -> Option<(usize, (u64, u64))> {
        let (side, left) = self.batch;
        if left > 0
            && let Some(key) = self.ahead(side)
        {
            self.batch.1 = left - 1;
            return Some(self.goes(side, key));
        }
        let side = self.next_side()?;
        let key = match self.ahead(side) {
            Some(key) if self.options.sort && !self.is_overdue(side, now) => key,
            _ => self.sides[side].oldest()?,
        };
        self.batch = (side, self.options.batch.saturating_sub(1));
        Some(self.goes(side, key))
    }

    /// Counts one request that went without waiting, beginning at `start`, as
    /// [`Elevator::deadline`] would.
    pub(super) fn passed(&mut self, side: usize, start: u64) {
        let (of, left) = self.batch;
        if of == side && left > 0 && start >= self.began[side] {
            self.batch.1 = left - 1;
        } else {
            if side == 1 {
                self.writes_passed_over = 0;
            }
            self.batch = (side, self.options.batch.saturating_sub(1));
        }
        self.began[side] = start;
    }

    fn next_side(&mut self) -> Option<usize> {
        let [reads, writes] = [0, 1].map(|side| !self.sides[side].by_address.is_empty());
        let starved = self.writes_passed_over >= self.options.writes_starved_max;
        if reads && !(writes && starved) {
            self.writes_passed_over += u32::from(writes);
            return Some(0);
        }
        if writes {
            self.writes_passed_over = 0;
        }
        writes.then_some(1)
    }

    /// The nearest request at or above the start of the last one of its side.
    fn ahead(&self, side: usize) -> Option<(u64, u64)> {
        let requests = &self.sides[side].by_address;
        requests.range((self.began[side], 0)..).next().map(|(key, _)| *key)
    }

    fn goes(&mut self, side: usize, key: (u64, u64)) -> (usize, (u64, u64)) {
        self.began[side] = key.0;
        (side, key)
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{Extent, Nanos};

    use super::super::{ElevatorOptions, Sweep};
    use super::*;
    use crate::command::{Command, CommandKind};

    fn elevator(requests: &[(u64, bool, u64)]) -> Elevator {
        let options = ElevatorOptions { sweep: Sweep::Linux, ..ElevatorOptions::default() };
        let mut elevator = Elevator::new(options);
        for &(tag, write, start) in requests {
            let kind = if write { CommandKind::Write { fua: false } } else { CommandKind::Read };
            elevator.push(Time(tag), Command { tag, kind, extent: Extent::new(start, 8) });
        }
        elevator
    }

    fn drain(elevator: &mut Elevator, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| elevator.pop(now)).flat_map(|d| d.tags).collect()
    }

    #[test]
    fn a_sweep_begins_anew_at_the_oldest_request() {
        let mut elevator = elevator(&[(0, false, 5_000)]);
        assert_eq!(drain(&mut elevator, Time(0)), [0]);
        for (tag, start) in [(1, 900), (2, 100), (3, 7_000), (4, 950), (5, 6_000)] {
            let extent = Extent::new(start, 8);
            elevator.push(Time(tag), Command { tag, kind: CommandKind::Read, extent });
        }
        // From 5,000 upwards, then from the oldest upwards, then the rest.
        assert_eq!(drain(&mut elevator, Time(9)), [5, 3, 1, 4, 2]);
    }

    #[test]
    fn reads_and_writes_have_a_sweep_each() {
        let mut elevator = elevator(&[(0, true, 5_000), (1, false, 100)]);
        assert_eq!(drain(&mut elevator, Time(2)), [1, 0]);
        for (tag, write, start) in [(3, true, 10), (4, true, 5_500), (5, false, 50)] {
            let kind = if write { CommandKind::Write { fua: false } } else { CommandKind::Read };
            elevator.push(Time(tag), Command { tag, kind, extent: Extent::new(start, 8) });
        }
        // The batch of writes goes on while a write lies ahead.
        assert_eq!(drain(&mut elevator, Time(6)), [4, 5, 3]);
    }

    #[test]
    fn writes_are_passed_over_twice_and_an_overdue_request_goes_first() {
        let mut requests = vec![(99, true, 1_000)];
        requests.extend((0..40).map(|tag| (tag, false, 100 + tag * 100)));
        let mut waiting = elevator(&requests);
        let order = drain(&mut waiting, Time(100));
        assert_eq!(order.iter().position(|&tag| tag == 99), Some(32), "{order:?}");
        let mut waiting = elevator(&[(0, false, 9_000), (1, false, 10)]);
        let late = Time(0) + Nanos::from_millis(500);
        assert_eq!(drain(&mut waiting, late), [0, 1]);
    }
}
