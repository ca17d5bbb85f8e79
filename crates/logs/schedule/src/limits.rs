//! Limits on the work in the device, and the turns of the classes.

use manylogs_block::{Extent, Geometry, Lba, Nanos, Sectors, Time};

use crate::Class;
use crate::contention::NO_PAUSE;
use crate::estimate::{SmallDepth, StreamCost};
use crate::queue::pieces_of;
use manylogs_plant::{self as plant, Bug};

/// Work of streams in the device takes at most this share of the target.
const STREAM_SHARE: f64 = 0.15;
/// Latency of a record beside small reads, in targets. Ordering the reads is worth this much.
const SMALL_TARGETS: f64 = 2.8;
/// Length of a turn in targets, if both small reads and streams wait.
const TURN_TARGETS: f64 = 1.0;
/// A class gets a turn after this many targets ...
const PATIENCE_TARGETS: f64 = 1.0;
/// ... but at the latest after this time.
const LONGEST_TARGETS: f64 = 25.0;
/// Streams go in pieces once they have lasted this many targets.
const STREAK_TARGETS: f64 = 10.0;
/// ... or this many, if they are a run that is held back from its beginning.
const RUN_TARGETS: f64 = 2.25;
/// More waiting requests than this are a burst. Then more requests may be in the device, as its
/// ordering saves time for all of them.
const BURST: usize = 16;
/// If more requests than this wait ...
const OVERWHELMED: usize = 32;
/// ... and one of them for this many targets, scattered requests do not stop for records, because
/// each stop would delay all others by a seek and more.
const OVERWHELMED_TARGETS: f64 = 20.0;
/// Number of other requests that may pass a record in flight if no stream goes on and few requests
/// wait. Requests that the device has read ahead cost the record no time.
pub(crate) const PASSES: u32 = 4;
/// Syncs that come this often, in targets, are frequent.
const FREQUENT_TARGETS: f64 = 3.0;
/// Beside a database a stream's request goes once in this many targets for each small read.
const STREAM_TARGETS: f64 = 3.0;
/// The volume's own work gets a turn after this many targets if clients always wait.
const BACKGROUND_TARGETS: f64 = 10.0;

/// Target of a [`Scheduler`](crate::Scheduler).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Largest delay of a record by requests ahead of it. Zero switches holding back off.
    pub latency: Nanos,
    /// Time for which clients must keep the device busy without a pause before requests are held
    /// back.
    pub contended_after: Nanos,
}

/// Limits that follow from the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The target. Zero if nothing is held back.
    pub(crate) latency: Nanos,
    /// Limit of the work of streams in the device.
    pub(crate) stream: Nanos,
    /// Latency of a record that is accepted beside small reads.
    pub(crate) small: Nanos,
    /// Length of a turn.
    pub(crate) turn: Nanos,
    /// Longest time for which requests are held back for a series of records ...
    pub(crate) patience: Nanos,
    /// ... and for a single one.
    pub(crate) longest: Nanos,
    /// Streams go in pieces once they have lasted this long without a pause.
    pub(crate) streak: Nanos,
    /// A run that is held back from its beginning goes in pieces after this.
    pub(crate) run: Nanos,
    /// A request that has waited this long shows that the device is overloaded.
    pub(crate) overwhelmed: Nanos,
    /// Syncs that come this often do not go before small reads.
    pub(crate) frequent: Nanos,
    /// Time between two requests of a stream beside a database, for each small read.
    pub(crate) between: Nanos,
    /// Longest wait of the volume's own work for a turn.
    pub(crate) background: Nanos,
}

impl Bounds {
    pub(crate) fn of(latency: Nanos) -> Self {
        let times = |factor: f64| Nanos::from_secs_f64(latency.as_secs_f64() * factor);
        Self {
            latency,
            stream: times(STREAM_SHARE),
            small: times(SMALL_TARGETS),
            longest: times(LONGEST_TARGETS),
            turn: times(TURN_TARGETS),
            patience: times(PATIENCE_TARGETS),
            streak: times(STREAK_TARGETS),
            run: times(RUN_TARGETS),
            overwhelmed: times(OVERWHELMED_TARGETS),
            frequent: times(FREQUENT_TARGETS),
            between: times(STREAM_TARGETS),
            background: times(BACKGROUND_TARGETS),
        }
    }
}

/// Work in the device that the limits count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InDevice {
    pub(crate) records: usize,
    /// Number of clients' small requests and of those of streams.
    pub(crate) small: usize,
    pub(crate) streams: usize,
    /// Number of requests of the volume's own work.
    pub(crate) background: usize,
    /// Number of scattered requests, each of which needs a seek. Their number is limited.
    pub(crate) scattered: usize,
    /// Number of flowing requests: all others but records.
    pub(crate) flowing: usize,
    /// Estimated service time of the flowing requests. It is limited.
    pub(crate) work: Nanos,
}

impl InDevice {
    /// Number of clients' requests.
    pub(crate) const fn clients(&self) -> usize {
        self.small + self.streams
    }

    /// Number of all requests but records.
    pub(crate) const fn others(&self) -> usize {
        self.scattered + self.flowing
    }

    /// Adds a request that goes to the device, or removes one that comes back answered (`comes`).
    pub(crate) fn note(&mut self, class: Class, load: Load, comes: bool) {
        let step = |count: &mut usize| *count = if comes { *count - 1 } else { *count + 1 };
        match class {
            Class::Record => return step(&mut self.records),
            Class::Small => step(&mut self.small),
            Class::Stream => step(&mut self.streams),
            Class::Background => step(&mut self.background),
        }
        match load {
            Load::Scattered => step(&mut self.scattered),
            Load::Flowing(work) => {
                step(&mut self.flowing);
                let left = self.work.0.saturating_sub(work.0);
                self.work = if comes { Nanos(left) } else { self.work + work };
            }
        }
    }
}

/// How many pieces of a stream a device needs at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce {
    /// Pieces that go together after a record: on an array those of a stripe, so that no drive
    /// idles.
    pub(crate) first: usize,
    /// Pieces of writes that may always be in the device. Without a write cache a drive loses a
    /// revolution if the next piece is not there when the last one ends.
    pub(crate) writes: usize,
}

impl AtOnce {
    /// Of two pieces after a record a drive would begin with the wrong one.
    pub(crate) const ONE_DRIVE: Self = Self { first: 1, writes: 2 };

    /// On an array that is scheduled as one device. Its drives do not keep step, and one that is
    /// ahead needs its next piece while another still writes: so each column has as many pieces of
    /// writes as a drive alone.
    pub(crate) fn on_array(array: Geometry) -> Self {
        let one = plant::is(Bug::ArrayResumesOnOneDrive);
        let first = if one { 1 } else { pieces_of(array.stripe()) };
        Self { first, writes: Self::ONE_DRIVE.writes * usize::from(array.columns) }
    }
}

/// Load that a request puts on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// A seek and rotational latency.
    Scattered,
    /// Transfer time of a part of a stream.
    Flowing(Nanos),
}

/// Background requests up to this length count as scattered.
const SCATTERED: Sectors = Sectors(128);

impl Load {
    /// The load of `extent`, if the last piece of a stream in the device ends at `last`.
    pub(crate) fn of(class: Class, extent: Extent, last: Lba, stream: StreamCost) -> Self {
        match class {
            Class::Small => Self::Scattered,
            Class::Stream if extent.start != last => Self::Scattered,
            Class::Background if extent.len <= SCATTERED => Self::Scattered,
            _ => Self::Flowing(stream.of(extent.len)),
        }
    }
}

/// Number of small reads in a device with priorities: one of its 32 queue slots is left for a
/// record.
pub(crate) const BESIDE_PRIORITY: usize = 31;

/// Tracks how long streams have lasted without a pause. Pieces let records pass at little cost to a
/// stream that continues. A single large request ends sooner if it goes whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    since: Time,
    last_end: Time,
}

impl Streak {
    /// Records the arrival of a stream's request. `any`: other requests of streams are in the
    /// scheduler.
    pub(crate) fn arrived(&mut self, now: Time, any: bool) {
        if !any && now.since(self.last_end) > NO_PAUSE {
            self.since = now;
        }
    }

    /// Records the end of a stream's request.
    pub(crate) fn ended(&mut self, now: Time) {
        self.last_end = now;
    }

    /// Whether streams have lasted for `long` at `now`. `any`: requests of streams are in the
    /// scheduler.
    pub(crate) fn is_long(self, now: Time, long: Nanos, any: bool) -> bool {
        let goes_on = any || now.since(self.last_end) <= NO_PAUSE;
        goes_on && now.since(self.since) >= long
    }
}

/// Turns of small reads and streams, if both wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    class: Class,
    ends: Time,
    /// Beginning of the last turn of the volume's own work.
    background: Time,
}

impl Default for Turns {
    fn default() -> Self {
        Self { class: Class::Small, ends: Time(0), background: Time(0) }
    }
}

impl Turns {
    /// Whether the volume's own work has a turn at `now`. Its oldest request has waited since
    /// `oldest`, while clients' requests went to the device.
    pub(crate) fn background(&mut self, now: Time, oldest: Time, bounds: &Bounds) -> bool {
        let due = oldest.max(self.background + bounds.turn) + bounds.background;
        if now >= due {
            self.background = now;
        }
        now.since(self.background) < bounds.turn && self.background > Time(0)
    }

    /// The class that has the turn at `now`, if both wait.
    pub(crate) fn at(&mut self, now: Time, turn: Nanos) -> Class {
        if now >= self.ends {
            self.class = if self.class == Class::Small { Class::Stream } else { Class::Small };
            self.ends = now + turn;
        }
        self.class
    }
}

/// Waiting requests of clients: their number, and the arrival of the oldest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    pub(crate) requests: usize,
    pub(crate) oldest: Time,
}

impl Backlog {
    /// Number of scattered requests that may be in the device. `learned` is the number that keeps
    /// records at the target.
    pub(crate) fn depth(self, learned: usize) -> usize {
        learned.max(self.requests.saturating_sub(BURST))
    }

    /// Whether the device is overloaded.
    pub(crate) fn overwhelms(self, now: Time, bounds: &Bounds) -> bool {
        self.requests > OVERWHELMED && now.since(self.oldest) >= bounds.overwhelmed
    }

    /// Whether so few requests wait that holding them back costs more than sending them.
    pub(crate) const fn is_small(self) -> bool {
        self.requests <= PASSES as usize
    }
}

/// Values learned from the device: cost of a stream's sector, and number of small reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Learned {
    pub(crate) stream: StreamCost,
    pub(crate) small: SmallDepth,
}
