//! Chooses the column of an array for the next record: the one that it disturbs least.

use manylogs_block::{Nanos, Time};

use crate::records::hold::Share;

/// A column whose records take this many times as long as those of the fastest has other work, or
/// is about to fail.
const SLOW: u64 = 2;
/// Shorter delays are no reason to prefer another column.
const SLOW_LEAST: Nanos = Nanos::from_millis(10);
/// A slow column is tried again after this time.
const SLOW_FOR: Nanos = Nanos::from_secs(5);
/// Weight of the last record in a column's mean, as a divisor.
const RECENT: u64 = 4;

/// The effects of records on each column. Empty if the device is one drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnsSeen(Vec<Column>);

#[derive(Clone, Copy, Debug, Default)]
struct Column {
    /// Records under way.
    in_flight: usize,
    /// Time at which the last record went.
    went: Time,
    /// Latency of a record: a moving mean.
    takes: Nanos,
    /// Time of the column that records took lately.
    share: Share,
}

impl ColumnsSeen {
    /// This many columns, at rest. One column means a drive.
    pub(crate) fn of(columns: usize) -> Self {
        Self(if columns > 1 { vec![Column::default(); columns] } else { Vec::new() })
    }

    /// Number of columns; 1 if the device is one drive.
    pub(crate) fn count(&self) -> usize {
        self.0.len().max(1)
    }

    /// Notes that a record goes to `column` at `now`.
    pub(crate) fn record_went(&mut self, column: usize, now: Time) {
        if let Some(column) = self.0.get_mut(column) {
            column.in_flight += 1;
            column.went = now;
        }
    }

    /// Notes that a record that went to `column` at `sent` has ended.
    pub(crate) fn record_ended(&mut self, column: usize, sent: Time, now: Time) {
        if let Some(column) = self.0.get_mut(column) {
            // Records of a recovery or a move were not counted when they went.
            column.in_flight = column.in_flight.saturating_sub(1);
            let took = now.since(sent).0;
            let mean = if column.takes.0 == 0 { took } else { column.takes.0 };
            column.takes = Nanos(mean - mean / RECENT + took / RECENT);
            column.share.note(sent, now);
        }
    }

    /// The columns, the best one for a record first, and how many of them are not slow: those come
    /// first. Within each kind those with the fewest records under way come first, then those whose
    /// streams have had their share. Of equal ones it is the one whose last record went earliest.
    pub(crate) fn by_disturbance(&self, now: Time) -> (Vec<usize>, usize) {
        let fastest = self.0.iter().map(|column| column.takes).filter(|takes| takes.0 > 0).min();
        let fastest = fastest.unwrap_or_default();
        let slow = |column: &Column| {
            let bound = Nanos(fastest.0 * SLOW).max(fastest + SLOW_LEAST);
            column.takes > bound && now.since(column.went) < SLOW_FOR
        };
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        order.sort_by_key(|index| {
            let column = &self.0[*index];
            let rests = column.share.until(now).is_some();
            (slow(column), column.in_flight, rests, column.went)
        });
        let fast = order.partition_point(|index| !slow(&self.0[*index]));
        (order, fast)
    }

    /// Time until which the next record waits, so that streams get their share: until the first
    /// column is free for it. `None` if it need not wait, or if the device is one drive.
    pub(crate) fn rests_until(&self, now: Time) -> Option<Time> {
        let until = self.0.iter().map(|column| column.share.until(now).unwrap_or(now)).min();
        until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(0) + Nanos::from_millis(ms)
    }

    #[test]
    fn records_go_round_and_two_go_to_two_columns() {
        let mut columns = ColumnsSeen::of(4);
        let mut seen = Vec::new();
        for record in 0..8 {
            if record == 4 {
                columns.record_ended(0, at(0), at(4));
            }
            let column = columns.by_disturbance(at(record)).0[0];
            columns.record_went(column, at(record));
            if record >= 4 {
                columns.record_ended(column, at(record), at(record + 1));
            }
            seen.push(column);
        }
        assert_eq!(seen, [0, 1, 2, 3, 0, 0, 0, 0], "the others have a record on their way");
    }

    #[test]
    fn a_slow_column_is_passed_over_and_tried_again() {
        let mut columns = ColumnsSeen::of(4);
        let mut to_slow = 0;
        for record in 0..1000 {
            let now = at(1000 + 50 * record);
            let (order, fast) = columns.by_disturbance(now);
            let column = order[0];
            assert!(fast >= 3 && (fast == 4 || order[3] == 2), "{order:?} {fast}");
            columns.record_went(column, now);
            let took = if column == 2 { 26 } else { 6 };
            columns.record_ended(column, now, now + Nanos::from_millis(took));
            to_slow += u32::from(column == 2);
        }
        assert!((5..20).contains(&to_slow), "{to_slow} of 1000");
    }

    #[test]
    fn a_single_drive_has_no_columns() {
        let mut one = ColumnsSeen::of(1);
        one.record_went(0, at(1));
        one.record_ended(0, at(1), at(900));
        assert_eq!((one.count(), one.rests_until(at(901))), (1, None));
        assert_eq!(one.by_disturbance(at(901)), (Vec::new(), 0));
    }
}
