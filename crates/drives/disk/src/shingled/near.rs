//! Chooses the log of the persistent cache that takes the next entry.
//!
//! Of the logs near the last read this is the one whose end comes under the head first. The end of
//! the nearest log may just have passed, and would be back a revolution later; of many logs around,
//! one is about to pass. "Manylogs", section III-I.3, takes the log at the head. That a writer with
//! a free choice takes the place that rotates by next is known from Wang, Anderson and Patterson,
//! "Virtual log based file systems for a programmable disk" (OSDI 1999).

use manylogs_block::{Lba, Nanos, Time};

use crate::geometry::Geometry;
use crate::mechanics::Mechanism;
#[cfg(test)]
use crate::planted::{Bug, is};

use super::cache::Cache;
use super::log::Log;

/// The mechanism, and the time at which a write begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) mechanism: &'a Mechanism,
    pub(crate) at: Time,
    /// A place that is reached with less time to spare counts as missed.
    pub(crate) margin: Nanos,
}

impl Head<'_> {
    /// The time until a write at `start` begins.
    fn time_to(&self, start: Lba) -> Nanos {
        let on = self.mechanism;
        // The access after the last one needs no margin: the layout makes room for it.
        let margin = if start == on.next_lba() { Nanos(0) } else { self.margin };
        on.positioning(self.at, &on.geometry().locate(start), true, margin)
    }
}

/// The place chosen for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) log: usize,
    pub(super) at: Lba,
}

/// The logs in the order of their cylinders, and the place of the last read.
#[derive(Clone, Debug)]
pub(super) struct NearLogs {
    /// Cylinder and number of each log.
    by_cylinder: Vec<(u32, usize)>,
    /// Number of logs with room, from the nearest on, that are offered an entry.
    choice: usize,
    /// Cylinder of the last read.
    last_read: u32,
}

impl NearLogs {
    pub(super) fn new(logs: &[Log], geometry: &Geometry, choice: usize) -> Self {
        let cylinder = |log: &Log| geometry.locate(log.medium().start).cylinder;
        let mut by_cylinder: Vec<_> = logs.iter().map(cylinder).zip(0..).collect();
        by_cylinder.sort_unstable();
        Self { by_cylinder, choice, last_read: 0 }
    }

    /// Notes the cylinder of a read.
    pub(super) const fn read_at(&mut self, cylinder: u32) {
        self.last_read = cylinder;
    }

    /// The distance in cylinders from the last read and the number of each log, nearest first.
    fn outward(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let behind = self.by_cylinder.partition_point(|log| log.0 <= self.last_read);
        let (below, above) = self.by_cylinder.split_at(behind);
        let (mut below, mut above) = (below.iter().rev().peekable(), above.iter().peekable());
        std::iter::from_fn(move || {
            let distance = |log: Option<&&(u32, usize)>| {
                log.map_or(u32::MAX, |log| log.0.abs_diff(self.last_read))
            };
            let (down, up) = (distance(below.peek()), distance(above.peek()));
            let (_, log) = if up < down { above.next() } else { below.next() }?;
            Some((up.min(down), *log))
        })
    }

    /// The log that is nearest to the last read.
    pub(super) fn nearest(&self) -> usize {
        self.outward().next().map_or(0, |(_, log)| log)
    }

    /// The logs, nearest first, that are too far from the last read to be offered an entry while
    /// nearer ones have room.
    pub(super) fn beyond(&self) -> impl Iterator<Item = usize> + '_ {
        self.outward().skip(self.choice).map(|(_, log)| log)
    }

    /// The place for an entry with this number of sectors of content; `None` if there is no room.
    pub(super) fn choose(&self, cache: &Cache, sectors: u64, head: &Head<'_>) -> Option<Chosen> {
        if let [(_, log)] = self.by_cylinder[..] {
            return Some(Chosen { log, at: cache.room(log, sectors)? });
        }
        let with_room = self.outward().filter_map(|(distance, log)| {
            Some((distance, Chosen { log, at: cache.room(log, sectors)? }))
        });
        let mut best = (Nanos(u64::MAX), None);
        for (distance, offered) in with_room.take(self.choice) {
            if head.mechanism.seek_time(distance) >= best.0 {
                // The seek alone takes longer, to this log and to all that follow.
                break;
            }
            let time = head.time_to(offered.at);
            #[cfg(test)]
            let time = if is(Bug::NearestLog) { Nanos(0) } else { time };
            if time < best.0 {
                best = (time, Some(offered));
            }
        }
        best.1
    }
}
