//! How fast a drive does work in address order, according to its model.

use manylogs_block::{Extent, Nanos, Rng, Sectors};

use crate::drive::Options;
use crate::profile::Profile;
use crate::validate::elapsed;

/// Places of the sweep, and the length of the read at each.
const PLACES: u64 = 256;
const PLACE: Sectors = Sectors(8);
/// Number of reads of the stream, and the length of each.
const READS: u64 = 64;
const READ: Sectors = Sectors(2048);
/// Seed from which the places are drawn.
const SEED: u64 = 0x7061_6365;

/// Accesses all over the drive, in one sweep with a full queue, and a stream in its middle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Time from one access of the sweep to the next.
    pub step: Nanos,
    /// Rate of the stream.
    pub bytes_per_s: f64,
}

impl Pace {
    /// The pace of the drive that `profile` describes.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let options = Options::of(profile);
        let capacity = profile.capacity().0;
        let mut rng = Rng::new(SEED);
        let mut places: Vec<u64> = (0..PLACES).map(|_| rng.below(capacity / PLACE.0)).collect();
        places.sort_unstable();
        let mut places = places.into_iter().map(|place| Extent::new(place * PLACE.0, PLACE.0));
        let sweep = elapsed(profile, &options, PLACES, || places.next().unwrap_or_default());
        let mut at = capacity / 2 / READ.0 * READ.0;
        let stream = elapsed(profile, &options, READS, || {
            at += READ.0;
            Extent::new(at - READ.0, READ.0)
        });
        let bytes = READS * READ.bytes();
        Self {
            step: Nanos(sweep.0 / PLACES),
            bytes_per_s: bytes as f64 / stream.as_secs_f64().max(1e-9),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::profile;

    #[test]
    fn the_pace_lies_between_what_the_figures_of_the_drive_allow() {
        // Name; milliseconds of a step (less than a random read takes at the same depth); MB/s
        // between the inner and the outer rate.
        for (name, step_ms, rates) in [
            ("exos-x20", 2.0..4.9, 135e6..285e6),
            ("cheetah-15k5", 1.2..3.0, 80e6..135e6),
            ("wd5000ys", 2.0..6.0, 31e6..63e6),
        ] {
            let pace = Pace::of(&profile::find(name).unwrap().unwrap());
            assert!(step_ms.contains(&(pace.step.as_secs_f64() * 1e3)), "{name}: {pace:?}");
            assert!(rates.contains(&pace.bytes_per_s), "{name}: {pace:?}");
        }
    }
}
