//! The requests of an episode.

use std::sync::Arc;

use manylogs_block::{Extent, Nanos, Rng, Sectors, Time};

use super::policy::OffloadPolicy;
use super::world::{EpisodeFailure, On, room, run};
use crate::replay::DriveSettings;

/// Volumes of the server: the first is the busy one, and the others lend.
pub(super) const VOLUMES: usize = 3;
/// Drives of a volume in the paper, each with an equal share of its requests.
pub(super) const DRIVES: u64 = 4;
/// Share of the requests that come in bursts, in thousandths.
const IN_BURSTS: u64 = 350;
/// Of those, the share that is for the busy volume.
const HOT_IN_BURSTS: u64 = 900;
const BURSTS: u64 = 2;
const MINUTE_S: u64 = 60;
const LARGE: Sectors = Sectors(1024);
/// Requests of these lengths, and how many of ten.
const LENGTHS: [(Sectors, u64); 3] = [(Sectors(8), 7), (Sectors(16), 2), (Sectors(64), 1)];
/// The part of a drive that is used, and the hot part of that, which gets three requests of ten.
const USED: u64 = 4;
const HOT_PART: u64 = 50;
const HOT_OF_TEN: u64 = 3;
/// The mean is fitted to within this share of what the paper has.
const NEAR: f64 = 0.05;
const ATTEMPTS: u32 = 14;

/// An episode of the paper: its tables 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// 1 to 3.
    pub number: u32,
    /// Requests to all volumes.
    pub requests: u64,
    /// Reads among them, in thousandths.
    pub reads: u64,
    /// Length.
    pub span: Nanos,
    /// Requests for the busy volume outside bursts, in thousandths.
    pub hot_outside: u64,
    /// Mean latency without off-loading, as the paper measured it.
    pub mean_ms: f64,
    /// 99th percentile of it.
    pub p99_ms: f64,
    /// Length of each burst.
    pub burst: Nanos,
    /// Whether a third of the writes are of 512 KiB.
    pub large: bool,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Time,
    pub(super) volume: usize,
    pub(super) is_read: bool,
    pub(super) extent: Extent,
}

/// What the clients of an episode ask for, of volumes of four drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offered {
    /// Requests to all volumes.
    pub requests: u64,
    /// Reads among them, per cent.
    pub reads_percent: f64,
    /// Requests a second in the minute that has most.
    pub peak_per_s: f64,
}

impl Episode {
    /// The three episodes, with bursts of the length that the first has on a Cheetah.
    pub const ALL: [Self; 3] = [
        Self {
            number: 1,
            requests: 444_345,
            reads: 270,
            span: Nanos::from_secs(1800),
            hot_outside: 600,
            mean_ms: 1530.0,
            p99_ms: 11_200.0,
            burst: Nanos::from_secs(48),
            large: false,
        },
        Self {
            number: 2,
            requests: 5_072_789,
            reads: 910,
            span: Nanos::from_secs(2700),
            // With more, random reads alone keep a drive busy all the time.
            hot_outside: 450,
            mean_ms: 60.0,
            p99_ms: 600.0,
            burst: Nanos::from_secs(1200),
            large: false,
        },
        Self {
            number: 3,
            requests: 620_519,
            reads: 240,
            span: Nanos::from_secs(1800),
            hot_outside: 600,
            mean_ms: 40.0,
            p99_ms: 400.0,
            burst: Nanos::from_secs(150),
            large: false,
        },
    ];

    /// The beginning of an episode's load: so much of its requests and of its time, in per cent.
    /// Its bursts are as dense as before, and shorter.
    #[must_use]
    pub fn shortened(self, percent: u64) -> Self {
        let share = |of: u64| of * percent / 100;
        Self {
            requests: share(self.requests),
            span: Nanos(share(self.span.0)),
            burst: Nanos(share(self.burst.0)),
            ..self
        }
    }

    /// The same requests in bursts that are so many times as dense.
    #[must_use]
    pub fn with_density(self, density: u64) -> Self {
        Self { burst: Nanos(self.burst.0 / density.max(1)), ..self }
    }

    /// What its clients ask for.
    #[must_use]
    pub fn offered(&self, drive: &DriveSettings, seed: u64) -> Offered {
        let arrivals = self.arrivals(room(drive), seed);
        let reads = arrivals.iter().filter(|one| one.is_read).count();
        let minute = |one: &Arrival| one.at.0 / Nanos::from_secs(MINUTE_S).0;
        let most = arrivals.chunk_by(|one, next| minute(one) == minute(next)).map(<[_]>::len);
        let most = most.max().unwrap_or(0);
        Offered {
            requests: DRIVES * arrivals.len() as u64,
            reads_percent: 100.0 * reads as f64 / arrivals.len().max(1) as f64,
            peak_per_s: (DRIVES * most as u64) as f64 / MINUTE_S as f64,
        }
    }

    /// When the last burst ends.
    #[must_use]
    pub fn last_burst_ends(&self) -> Time {
        Time(self.burst_begins(BURSTS - 1).0 + self.burst.0)
    }

    /// Bursts are spread evenly.
    fn burst_begins(&self, burst: u64) -> Time {
        Time(self.span.0 / (BURSTS + 1) * (burst + 1) - self.burst.0 / 2)
    }

    /// The requests to one drive of each volume, by their time of arrival. Drives have `sectors`.
    pub(super) fn arrivals(&self, sectors: Sectors, seed: u64) -> Vec<Arrival> {
        let mut rng = Rng::new(seed ^ 0xe915_0de5 ^ u64::from(self.number) << 32);
        let all = self.requests / DRIVES;
        let bursty = all * IN_BURSTS / 1000;
        let mut arrivals = Vec::with_capacity(manylogs_block::to_usize(all));
        for number in 0..all {
            let in_burst = number < bursty;
            let at = if in_burst {
                let begins = self.burst_begins(rng.below(BURSTS));
                Time(begins.0 + rng.below(self.burst.0))
            } else {
                Time(rng.below(self.span.0))
            };
            let hot = if in_burst { HOT_IN_BURSTS } else { self.hot_outside };
            let volume = match rng.below(1000) < hot {
                true => 0,
                false => 1 + manylogs_block::to_usize(rng.below(VOLUMES as u64 - 1)),
            };
            let is_read = rng.below(1000) < self.reads;
            let mut extent = place(&mut rng, sectors);
            if self.large && !is_read && rng.one_in(3) {
                extent.len = LARGE;
            }
            arrivals.push(Arrival { at, volume, is_read, extent });
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }
}

fn place(rng: &mut Rng, sectors: Sectors) -> Extent {
    let mut of_ten = rng.below(10);
    let mut len = LENGTHS[0].0;
    for (sectors, share) in LENGTHS {
        len = sectors;
        if of_ten < share {
            break;
        }
        of_ten -= share;
    }
    let used = sectors.0 / USED;
    let part = if rng.below(10) < HOT_OF_TEN { used / HOT_PART } else { used };
    Extent::new(rng.below(part / 8 - len.0 / 8) * 8, len.0)
}

/// The episode with bursts of a length with which a plain drive takes the paper's mean, on this
/// drive and with this seed.
///
/// # Errors
/// If a drive fails, which a modelled one does not.
pub fn fitted(
    episode: Episode,
    drive: &Arc<DriveSettings>,
    seed: u64,
) -> Result<Episode, EpisodeFailure> {
    // The shorter the bursts, the longer the mean.
    let (mut least, mut most) = (Nanos::from_secs(2), Nanos(episode.span.0 / 3));
    let mut best = episode;
    let mut nearest = f64::INFINITY;
    for _ in 0..ATTEMPTS {
        let burst = Nanos(least.0.midpoint(most.0));
        let tried = Episode { burst, ..episode };
        let mean = run(&tried, drive, On::Drive, OffloadPolicy::None, seed)?.mean_ms;
        let off = (mean / episode.mean_ms).ln().abs();
        if off < nearest {
            (best, nearest) = (tried, off);
        }
        if off < NEAR {
            break;
        }
        if mean > episode.mean_ms { least = burst } else { most = burst }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use manylogs_disk::profile;

    use super::*;

    fn drive() -> DriveSettings {
        let library = profile::Library::of_user();
        let profile = library.find_or_load("cheetah-15k5").unwrap().unwrap();
        DriveSettings::new(Arc::new(profile), false)
    }

    #[test]
    fn an_episode_has_the_shares_of_the_paper() {
        let episode = Episode::ALL[0];
        let arrivals = episode.arrivals(Sectors(1 << 28), 1);
        assert_eq!(arrivals.len(), 111_086);
        let share = |count: &dyn Fn(&Arrival) -> bool| {
            arrivals.iter().filter(|one| count(one)).count() as f64 / arrivals.len() as f64
        };
        assert!((share(&|one| one.is_read) - 0.27).abs() < 0.01);
        // 35 % in bursts, 90 % of them for the busy volume, and 60 % of the rest.
        assert!((share(&|one| one.volume == 0) - 0.705).abs() < 0.01);
        assert!(share(&|one| one.extent.end().0 > 1 << 26) == 0.0);
        let offered = episode.offered(&drive(), 1);
        assert_eq!(offered.requests, 444_344);
        assert!((offered.reads_percent - 27.0).abs() < 1.0, "{offered:?}");
        // All of a burst of 48 s may lie in one minute.
        let mean = 444_344.0 / 1800.0;
        assert!((3.0 * mean..444_344.0 / 60.0).contains(&offered.peak_per_s), "{offered:?}");
        let short = episode.shortened(10);
        assert_eq!((short.requests, short.span.0), (44_434, episode.span.0 / 10));
        let (again, other) =
            (episode.arrivals(Sectors(1 << 28), 1), episode.arrivals(Sectors(1 << 28), 2));
        assert!(arrivals.iter().zip(&again).all(|(one, same)| one.extent == same.extent));
        assert!(arrivals.iter().zip(&other).any(|(one, other)| one.extent != other.extent));
    }
}
