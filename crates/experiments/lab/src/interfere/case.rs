//! The description of a measurement: a stream, the syncs beside it, and the stack below both.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Nanos, Sectors};
use thiserror::Error;

use crate::replay::{DriveSettings, NamedPolicy};

/// The streams of a case spread over this share of the disk, counted from their first address.
/// Random reads stay within it.
const SPREAD_PERCENT: u64 = 7;

/// The access pattern of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Sequential reads.
    Read,
    /// Sequential writes without FUA.
    Write,
    /// Random reads within a part of the disk.
    Random,
    /// No stream at all: the syncs are alone.
    None,
}

/// Where on the disk a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// At the first address: on the outer tracks, which hold the most sectors.
    Outer,
    /// After 92 % of the addresses: on the inner tracks.
    Inner,
}

/// How a client makes its writes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// Each write has FUA: its data is durable when it is answered.
    Fua,
    /// Writes without FUA, then one flush.
    Flush,
    /// The requests of a journaling file system: writes, a write to the journal, a flush, the
    /// commit block, a flush.
    Journal,
    /// Reads at as many places, and no durable write: measures the cost of small reads to a stream.
    Read,
}

/// An unknown name on the command line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown {what} {name:?}; there are: {known}")]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: String,
}

/// The device has no room for the stream.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "{streams} streams with requests of {} bytes do not fit {} bytes from where they begin to the \
     end of the device: choose smaller requests, fewer streams or the outer place",
    size.bytes(), room.bytes()
)]
pub struct UnfitStream {
    /// Requests that the stream keeps in flight.
    pub streams: u32,
    /// Size of one request.
    pub size: Sectors,
    /// Sectors that the stream may use.
    pub room: Sectors,
}

/// Bursts of a stream, which pauses after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bursts {
    /// Bytes that it asks for in a second.
    pub bytes_per_second: u64,
    /// Length of one burst. Bursts begin at even intervals; if a burst is due before the one before
    /// has ended, it begins at that one's end.
    pub burst: Sectors,
}

/// How often the clients of a case sync.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SyncRate {
    /// So many syncs a second, of all clients together. Zero means no syncs.
    PerSecond(f64),
    /// In a closed loop: each client syncs again as soon as its last sync has ended.
    Closed,
}

/// The streams of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamLoad {
    /// The access pattern.
    pub kind: StreamKind,
    /// Requests that each stream keeps in flight; during a burst, if there are bursts.
    pub depth: u32,
    /// Size of a request.
    pub size: Sectors,
    /// How each stream pauses; `None` if it always goes on.
    pub bursts: Option<Bursts>,
    /// Number of streams; 0 for [`StreamKind::None`].
    pub streams: u32,
    /// Part of the disk.
    pub at: Place,
}

/// The syncs of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyncLoad {
    /// How often the clients sync.
    pub rate: SyncRate,
    /// Number of clients. At a rate, a single client syncs at even intervals, and each of several
    /// clients at a random moment within each of its intervals.
    pub clients: u32,
    /// Random 4 KiB writes in one sync.
    pub writes: u32,
    /// Requests that make up a sync.
    pub mode: SyncMode,
    /// Random writes go to the addresses of this column alone, if the device is an array that says
    /// its geometry.
    pub column: Option<u16>,
    /// Whether a checkpoint follows the measurement, so that its price counts as well.
    pub checkpoint: bool,
}

/// One measurement: streams and syncs on one drive under one policy.
#[derive(Clone, Debug)]
pub struct Case {
    /// The drive and how it is used.
    pub drive: DriveSettings,
    /// The policy between the clients and the drive.
    pub policy: NamedPolicy,
    /// The streams.
    pub stream: StreamLoad,
    /// The syncs.
    pub syncs: SyncLoad,
    /// Seed of all random choices.
    pub seed: u64,
    /// Length of the measurement, in simulated time.
    pub span: Nanos,
}

impl SyncRate {
    /// Whether there are syncs at all.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::PerSecond(0.0)
    }

    /// Syncs a second that the clients ask for; `None` in a closed loop, which has no rate.
    #[must_use]
    pub const fn per_second(self) -> Option<f64> {
        match self {
            Self::PerSecond(rate) => Some(rate),
            Self::Closed => None,
        }
    }

    /// The time after which each of so many clients syncs again.
    pub(super) fn interval(self, clients: u32) -> Nanos {
        match self {
            Self::PerSecond(rate) => Nanos::from_secs_f64(f64::from(clients) / rate),
            Self::Closed => Nanos(0),
        }
    }
}

impl fmt::Display for SyncRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => rate.fmt(f),
            Self::Closed => f.write_str("closed"),
        }
    }
}

impl StreamLoad {
    /// No stream.
    pub const NONE: Self = Self {
        kind: StreamKind::None,
        depth: 0,
        size: Sectors(0),
        bursts: None,
        streams: 0,
        at: Place::Outer,
    };

    /// The first address of stream `index`, and the number of sectors after which the stream starts
    /// again at that address.
    ///
    /// # Errors
    /// If a stream has no room for the requests that it keeps in flight.
    pub fn region(&self, index: u32, capacity: Sectors) -> Result<(u64, Sectors), UnfitStream> {
        let (streams, size) = (self.streams, self.size);
        let begin = match self.at {
            Place::Outer => 0.0,
            Place::Inner => 0.92,
        };
        let spread = SPREAD_PERCENT as f64 / 100.0;
        let fraction = begin + spread * f64::from(index) / f64::from(streams);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of capacity")]
        let start = (fraction * capacity.0 as f64) as u64 / 2048 * 2048;
        let mut room = Sectors(capacity.0.saturating_sub(start));
        if self.kind == StreamKind::Random {
            room = room.min(Sectors(capacity.0 / 100 * SPREAD_PERCENT));
        }
        if room.0 < size.0 * u64::from(self.depth) {
            return Err(UnfitStream { streams, size, room });
        }
        Ok((start, room))
    }
}

/// Names as the command line and the JSON show them.
macro_rules! named {
    ($type:ident, $what:literal, $($name:literal => $variant:ident),+) => {
        impl $type {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name on the command line and in the JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                let found = Self::ALL.iter().find(|one| one.name() == text);
                found.copied().ok_or_else(|| UnknownName {
                    what: $what,
                    name: text.to_owned(),
                    known: [$($name),+].join(", "),
                })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named!(StreamKind, "stream", "read" => Read, "write" => Write, "random" => Random,
       "none" => None);
named!(Place, "place", "outer" => Outer, "inner" => Inner);
named!(SyncMode, "sync mode", "fua" => Fua, "flush" => Flush, "journal" => Journal, "read" => Read);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let error = "fsync".parse::<SyncMode>().unwrap_err().to_string();
        assert_eq!(error, "unknown sync mode \"fsync\"; there are: fua, flush, journal, read");
    }

    #[test]
    fn streams_begin_apart_and_fit_or_say_so() {
        let mut load = StreamLoad {
            kind: StreamKind::Read,
            depth: 4,
            size: Sectors(2048),
            bursts: None,
            streams: 7,
            at: Place::Inner,
        };
        let capacity = Sectors(1 << 24);
        let starts: Vec<u64> = (0..7).map(|i| load.region(i, capacity).unwrap().0).collect();
        assert!(starts.is_sorted() && starts.windows(2).all(|pair| pair[1] - pair[0] > 100_000));
        load.size = Sectors(1 << 22);
        assert!(load.region(0, capacity).unwrap_err().to_string().contains("do not fit"));
    }
}
