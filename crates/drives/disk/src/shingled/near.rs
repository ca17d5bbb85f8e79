//! Which log of the persistent cache takes the next entry.
//!
//! Of the logs near the last read it is the one whose end comes under the head first. The end of
//! the nearest may just have passed, and would be back a revolution later; of many logs around, one
//! is about to pass. "Manylogs", section III-I.3, has the log at the head; that a writer who may
//! choose its place takes the one that rotates by next is known from Wang, Anderson and Patterson,
//! "Virtual log based file systems for a programmable disk" (OSDI 1999).

use manylogs_block::{Lba, Nanos, Time};

use crate::geometry::Geometry;
use crate::mechanics::Mechanism;
#[cfg(test)]
use crate::planted::{Bug, is};

use super::cache::Cache;
use super::log::Log;

/// Where the head is, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) mechanism: &'a Mechanism,
    pub(crate) at: Time,
    /// A place that is reached with less to spare counts as missed.
    pub(crate) margin: Nanos,
}

impl Head<'_> {
    /// The time until a write at `start` begins.
    fn time_to(&self, start: Lba) -> Nanos {
        let on = self.mechanism;
        // No sector of what follows the last access is missed: it is laid out for that.
        let margin = if start == on.next_lba() { Nanos(0) } else { self.margin };
        on.positioning(self.at, &on.geometry().locate(start), true, margin)
    }
}

/// Where an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) log: usize,
    pub(super) at: Lba,
}

/// The logs in the order of their cylinders, and where reads are.
#[derive(Clone, Debug)]
pub(super) struct NearLogs {
    /// Cylinder and number of each log.
    by_cylinder: Vec<(u32, usize)>,
    /// Logs with room, from the nearest on, that an entry is offered to.
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

    /// The head was there for a read.
    pub(super) const fn read_at(&mut self, cylinder: u32) {
        self.last_read = cylinder;
    }

    /// Distance in cylinders from the last read and number of each log, the nearest first.
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

    /// The logs that are too far from the last read to be offered an entry while there is room
    /// nearer to it, the nearest first.
    pub(super) fn beyond(&self) -> impl Iterator<Item = usize> + '_ {
        self.outward().skip(self.choice).map(|(_, log)| log)
    }

    /// The place for an entry with so many sectors of content; `None` if there is no room.
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
                // The way alone takes longer, to this one and to all behind it.
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
