//! What may lie in the device at a time, and who goes next.

use manylogs_block::{Extent, Lba, Nanos, Sectors, Time};

use crate::Class;
use crate::contention::NO_PAUSE;
use crate::estimate::{SmallDepth, StreamCost};

/// A record that arrives finds at most this share of the target ahead of it from streams.
const STREAM_SHARE: f64 = 0.15;
/// Pieces of writes that may lie in the device at least: without a cache it loses a revolution
/// where the next one is not there when the last has ended.
pub(crate) const WRITES_LEAST: usize = 2;
/// A record may take so many targets beside small reads: their order is worth that much.
const SMALL_TARGETS: f64 = 2.8;
/// Where both wait, small reads and streams take turns of so many targets.
const TURN_TARGETS: f64 = 1.0;
/// Nobody is held back for longer than so many targets without a turn.
const PATIENCE_TARGETS: f64 = 1.0;
/// ... whatever happens.
const LONGEST_TARGETS: f64 = 25.0;
/// Streams go in pieces once they have gone on for so many targets.
const STREAK_TARGETS: f64 = 10.0;
/// What waits beyond so many is a burst: the more waits, the more may lie in the device, as what
/// its order saves is saved for all of them.
const BURST: usize = 16;
/// Where more than this wait ...
const OVERWHELMED: usize = 32;
/// ... one of them for so many targets, what is scattered does not stop for records: each would
/// cost all the others the time of a movement and more.
const OVERWHELMED_TARGETS: f64 = 20.0;
/// While a record is under way so many others may pass it where no stream goes on and few wait:
/// what the device has read ahead costs the record nothing.
pub(crate) const PASSES: u32 = 4;
/// The volume's own work goes, where clients always wait, after so many targets.
const BACKGROUND_TARGETS: f64 = 10.0;

/// What a [`Scheduler`](crate::Scheduler) is to achieve, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Latency that records are to see at most from what lies ahead of them; zero to hold nothing
    /// back.
    pub latency: Nanos,
    /// How long clients keep the device busy without a pause before anything is held back.
    pub contended_after: Nanos,
}

/// The bounds that follow from the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The target; zero where nothing is held back.
    pub(crate) latency: Nanos,
    /// Of the work of streams that lies in the device.
    pub(crate) stream: Nanos,
    /// What a record may take beside small reads.
    pub(crate) small: Nanos,
    /// A turn where classes alternate.
    pub(crate) turn: Nanos,
    /// How long all are held back for one record after the other ...
    pub(crate) patience: Nanos,
    /// ... and for a single one.
    pub(crate) longest: Nanos,
    /// Streams that go on without a pause for so long go in pieces.
    pub(crate) streak: Nanos,
    /// What waits for so long shows that the device has more to do than it can.
    pub(crate) overwhelmed: Nanos,
    /// The longest that the volume's own work waits for a turn.
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
            overwhelmed: times(OVERWHELMED_TARGETS),
            background: times(BACKGROUND_TARGETS),
        }
    }
}

/// What lies in the device and was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InDevice {
    pub(crate) records: usize,
    /// Clients' requests.
    pub(crate) clients: usize,
    /// Requests that each take a movement of their own: they are limited in number.
    pub(crate) scattered: usize,
    /// The others but records: their work is limited.
    pub(crate) flowing: usize,
    /// See `flowing`.
    pub(crate) work: Nanos,
}

impl InDevice {
    /// All but records.
    pub(crate) const fn others(&self) -> usize {
        self.scattered + self.flowing
    }

    /// A request goes to the device, or comes back.
    pub(crate) fn note(&mut self, class: Class, load: Load, comes: bool) {
        let step = |count: &mut usize| *count = if comes { *count - 1 } else { *count + 1 };
        match class {
            Class::Record => return step(&mut self.records),
            Class::Small | Class::Stream => step(&mut self.clients),
            Class::Background => {}
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

/// What a request means for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// A movement and a revolution.
    Scattered,
    /// So much time, as part of a stream.
    Flowing(Nanos),
}

/// Background requests up to this long are scattered.
const SCATTERED: Sectors = Sectors(128);

impl Load {
    /// That of `extent`, when the last piece of a stream in the device ends at `last`.
    pub(crate) fn of(class: Class, extent: Extent, last: Lba, stream: StreamCost) -> Self {
        match class {
            Class::Small => Self::Scattered,
            Class::Stream if extent.start != last => Self::Scattered,
            Class::Background if extent.len <= SCATTERED => Self::Scattered,
            _ => Self::Flowing(stream.of(extent.len)),
        }
    }
}

/// Small reads in a device with priorities: of its 32 places one is left for a record.
pub(crate) const BESIDE_PRIORITY: usize = 31;

/// Since when streams have gone on without a pause. Pieces let records in between at little cost
/// to a stream that goes on anyway; what comes alone is sooner done with whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    since: Time,
    last_end: Time,
}

impl Streak {
    /// A request of a stream arrived; `any` others of streams are there.
    pub(crate) fn arrived(&mut self, now: Time, any: bool) {
        if !any && now.since(self.last_end) > NO_PAUSE {
            self.since = now;
        }
    }

    /// One has ended.
    pub(crate) fn ended(&mut self, now: Time) {
        self.last_end = now;
    }

    /// Whether streams have gone on for `long` at `now`; `any` of them are there.
    pub(crate) fn is_long(self, now: Time, long: Nanos, any: bool) -> bool {
        let goes_on = any || now.since(self.last_end) <= NO_PAUSE;
        goes_on && now.since(self.since) >= long
    }
}

/// Small reads and streams take turns where both wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    class: Class,
    ends: Time,
    /// When the last turn of the volume's own work began.
    background: Time,
}

impl Default for Turns {
    fn default() -> Self {
        Self { class: Class::Small, ends: Time(0), background: Time(0) }
    }
}

impl Turns {
    /// Whether it is the turn of the volume's own work at `now`, the oldest of which has waited
    /// since `oldest` while clients' requests went.
    pub(crate) fn background(&mut self, now: Time, oldest: Time, bounds: &Bounds) -> bool {
        let due = oldest.max(self.background + bounds.turn) + bounds.background;
        if now >= due {
            self.background = now;
        }
        now.since(self.background) < bounds.turn && self.background > Time(0)
    }

    /// Whose turn it is at `now`, when both wait.
    pub(crate) fn at(&mut self, now: Time, turn: Nanos) -> Class {
        if now >= self.ends {
            self.class = if self.class == Class::Small { Class::Stream } else { Class::Small };
            self.ends = now + turn;
        }
        self.class
    }
}

/// Requests of clients that wait: how many, and since when the oldest has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    pub(crate) requests: usize,
    pub(crate) oldest: Time,
}

impl Backlog {
    /// Scattered requests that may lie in the device, if `learned` keep records in time.
    pub(crate) fn depth(self, learned: usize) -> usize {
        learned.max(self.requests.saturating_sub(BURST))
    }

    /// Whether there is more to do than the device can.
    pub(crate) fn overwhelms(self, now: Time, bounds: &Bounds) -> bool {
        self.requests > OVERWHELMED && now.since(self.oldest) >= bounds.overwhelmed
    }

    /// Whether so few wait that they are sooner done with than held back.
    pub(crate) const fn is_small(self) -> bool {
        self.requests <= PASSES as usize
    }
}

/// What was learned of the device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Learned {
    pub(crate) stream: StreamCost,
    pub(crate) small: SmallDepth,
}
