//! Checks that every profile must pass, with or without a recording: sustained rates and the gain
//! from queueing.

use manylogs_block::{Extent, Lba, Nanos, SECTOR_BYTES, Time};
use serde::Serialize;

use crate::command::{Command, CommandKind, Event};
use crate::drive::{Drive, Options};
use crate::profile::Profile;
use manylogs_block::Rng;

/// Sectors of the requests of a sequential read: 256 KiB.
const SEQUENTIAL_SECTORS: u64 = 512;
/// The most requests of a sequential read: 2 GiB.
const SEQUENTIAL_READS: u64 = 8_192;
/// Sectors of a random read: 4 KiB.
const RANDOM_SECTORS: u64 = 8;
/// Number of random reads that are measured.
const RANDOM_READS: u64 = 20_000;

/// Figures of a drive that follow from its profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gates {
    /// Sequential read from the first sector on, MB/s (10^6 bytes).
    pub sequential_outer_mb_s: f64,
    /// Sequential read in the last zone, MB/s.
    pub sequential_inner_mb_s: f64,
    /// Random 4 KiB reads a second, one at a time.
    pub random_read_iops_depth_1: f64,
    /// Random 4 KiB reads a second, 32 at a time, shortest positioning time first.
    pub random_read_iops_depth_32: f64,
    /// Ratio of the two.
    pub queueing_gain: f64,
}

/// Measures the figures of the drive that `profile` describes.
#[must_use]
pub fn gates(profile: &Profile, seed: u64) -> Gates {
    let drive = Drive::new(profile, &Options::of(profile));
    let zones: Vec<Extent> = drive.mechanism().geometry().zones().collect();
    let outer = zones.first().copied().unwrap_or_default();
    let mut inner = zones.last().copied().unwrap_or_default();
    if profile.shingled.is_some() {
        // On a shingled medium the last addresses are not in the last zone.
        inner.len.0 = inner.len.0.min(SEQUENTIAL_READS * SEQUENTIAL_SECTORS);
        inner.start.0 = drive.capacity().0.saturating_sub(inner.len.0);
    }
    let one = random_read_iops(profile, seed, 1);
    let many = random_read_iops(profile, seed, 32);
    Gates {
        sequential_outer_mb_s: sequential_mb_s(profile, seed, outer),
        sequential_inner_mb_s: sequential_mb_s(profile, seed, inner),
        random_read_iops_depth_1: one,
        random_read_iops_depth_32: many,
        queueing_gain: many / one,
    }
}

/// Rate of a sequential read of up to 2 GiB in `zone`, two requests in flight.
fn sequential_mb_s(profile: &Profile, seed: u64, zone: Extent) -> f64 {
    let options = Options { seed, depth: 2, ..Options::of(profile) };
    let requests = (zone.len.0 / SEQUENTIAL_SECTORS).min(SEQUENTIAL_READS);
    let mut next = zone.start.0;
    let elapsed = elapsed(profile, &options, requests, || {
        let extent = Extent::new(next, SEQUENTIAL_SECTORS);
        next += SEQUENTIAL_SECTORS;
        extent
    });
    (requests * SEQUENTIAL_SECTORS * SECTOR_BYTES) as f64 / 1e6 / elapsed.as_secs_f64()
}

/// Random 4 KiB reads a second of the profile's drive, with `depth` of them in the queue.
#[must_use]
pub fn random_read_iops(profile: &Profile, seed: u64, depth: u32) -> f64 {
    let options = Options { seed, depth, ..Options::of(profile) };
    let mut rng = Rng::new(seed);
    let places = profile.capacity().0 / RANDOM_SECTORS;
    let elapsed = elapsed(profile, &options, RANDOM_READS, || Extent {
        start: Lba(rng.below(places) * RANDOM_SECTORS),
        ..Extent::new(0, RANDOM_SECTORS)
    });
    RANDOM_READS as f64 / elapsed.as_secs_f64()
}

/// Time to read `requests` extents with the drive's queue always full.
pub(crate) fn elapsed(
    profile: &Profile,
    options: &Options,
    requests: u64,
    mut next: impl FnMut() -> Extent,
) -> Nanos {
    let mut drive = Drive::new(profile, options);
    let mut now = Time(0);
    let mut submitted = 0;
    loop {
        while submitted < requests && drive.has_room() {
            let command = Command { tag: submitted, kind: CommandKind::Read, extent: next() };
            submitted += 1;
            if drive.submit(now, command).is_err() {
                break;
            }
        }
        let Some(at) = drive.next_event() else { return now.since(Time(0)) };
        drive.advance(at, &mut |event| {
            if let Event::Completed(completion) = event {
                now = completion.at;
            }
        });
    }
}
