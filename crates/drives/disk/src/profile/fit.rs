//! Makes a drive of another size with the times of this one.

use manylogs_block::Sectors;

use super::{Profile, ProfileError, ShingledTable, check};

/// Free bands that a small drive keeps, if the original has as many.
const SPARE_BANDS_MIN: u32 = 8;
/// The fewest cylinders of a fitted drive: with fewer no distances can be told apart.
const CYLINDERS_MIN: u64 = 16;

impl Profile {
    /// This drive with `capacity` instead of its own and the same behaviour over its whole span.
    /// Tracks, heads, rotation and rates stay. The number of cylinders changes, and a seek over a
    /// share of them takes as long as over that share before. So a small image behaves like a large
    /// drive.
    ///
    /// A shingled drive keeps its bands, and gets a share of the persistent cache and of its table.
    ///
    /// Two things differ. The shortest seek of the small drive stands for a longer one and takes as
    /// long as that. And the small drive has no slipped defects.
    ///
    /// # Errors
    /// When such a drive cannot be modelled: the capacity is less than 16 cylinders or far above
    /// that of any drive, or a zone would be smaller than a band.
    pub fn fitted(&self, capacity: Sectors) -> Result<Self, ProfileError> {
        self.check_room(capacity)?;
        let mut fitted = self.clone();
        fitted.model = format!("{}, fitted to {} bytes", self.model, capacity.bytes());
        fitted.geometry.slips.clear();
        fitted.shingled = self.shingled.as_ref().map(|own| fit_shingled(own, capacity.0));
        let medium = fitted.shingled.as_ref().map(ShingledTable::medium_sectors);
        fitted.geometry.capacity_sectors = medium.unwrap_or(capacity.0);
        self.fit_zones(&mut fitted);
        let share = f64::from(fitted.geometry.cylinders) / f64::from(self.geometry.cylinders);
        fitted.seek.knots_ms = fit_knots(&self.seek.knots_ms, share);
        fitted.seek.correction_ms = fit_knots(&self.seek.correction_ms, share);
        check::values(&fitted.model, &fitted)?;
        Ok(fitted)
    }

    fn check_room(&self, capacity: Sectors) -> Result<(), ProfileError> {
        let outermost = self.geometry.zones.first().map_or(1, |zone| zone.1);
        let least = CYLINDERS_MIN * u64::from(self.geometry.heads) * u64::from(outermost);
        if capacity.0 >= least {
            return Ok(());
        }
        Err(ProfileError::Value {
            origin: self.name.clone(),
            key: "geometry.capacity_sectors".to_owned(),
            expected: format!("a fitted drive needs {least} sectors, found {}", capacity.0),
        })
    }

    /// Gives each zone its share of the sectors, and as many cylinders as hold them.
    fn fit_zones(&self, fitted: &mut Self) {
        let (own, physical) =
            (&self.geometry, u64::from(self.geometry.physical_sector_bytes / 512));
        let capacity = fitted.geometry.capacity_sectors;
        let scaled = |lba: u64| share(lba, capacity, own.capacity_sectors) / physical * physical;
        let mut zones = Vec::new();
        let mut cylinders = 0_u64;
        for (index, &(_, sectors_per_track, first)) in own.zones.iter().enumerate() {
            let begin = scaled(first);
            let end = own.zones.get(index + 1).map_or(capacity, |next| scaled(next.2));
            if begin < end {
                let first_cylinder = u32::try_from(cylinders).unwrap_or(u32::MAX);
                zones.push((first_cylinder, sectors_per_track, begin));
                let a_cylinder = u64::from(own.heads) * u64::from(sectors_per_track);
                cylinders += (end - begin).div_ceil(a_cylinder);
            }
        }
        fitted.geometry.zones = zones;
        fitted.geometry.cylinders = u32::try_from(cylinders).unwrap_or(u32::MAX);
    }
}

/// `value` scaled by `part` / `whole`.
fn share(value: u64, part: u64, whole: u64) -> u64 {
    let exact = u128::from(value) * u128::from(part) / u128::from(whole);
    u64::try_from(exact).unwrap_or(u64::MAX)
}

/// The table with the cache and spare bands scaled to `capacity`.
fn fit_shingled(own: &ShingledTable, capacity: u64) -> ShingledTable {
    let scaled = |value: u64| share(value, capacity, own.capacity_sectors);
    let part = |value: u32, least: u32| {
        u32::try_from(scaled(u64::from(value))).unwrap_or(u32::MAX).max(least)
    };
    let cache = scaled(own.cache_sectors).max(4 * own.band_sectors);
    let spare_min = own.spare_bands.min(SPARE_BANDS_MIN);
    ShingledTable {
        capacity_sectors: capacity,
        cache_sectors: cache.next_multiple_of(own.band_sectors),
        cache_extents_max: part(own.cache_extents_max, 1024),
        spare_bands: part(own.spare_bands, spare_min),
        ..own.clone()
    }
}

/// The knots with their distances scaled by `share`. Of knots that fall on one cylinder the last
/// stays.
fn fit_knots(knots: &[(u32, f64)], share: f64) -> Vec<(u32, f64)> {
    let mut fitted: Vec<(u32, f64)> = Vec::with_capacity(knots.len());
    for &(distance, time) in knots {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let distance = ((f64::from(distance) * share).round() as u32).max(1);
        match fitted.last_mut() {
            Some(last) if last.0 == distance => last.1 = time,
            _ => fitted.push((distance, time)),
        }
    }
    fitted
}

#[cfg(test)]
mod tests {
    use manylogs_block::{Extent, Lba, Rng, Time};

    use super::super::{drives, find};
    use super::*;
    use crate::mechanics::{Mechanism, RandomTerms};

    /// Mean time of 4 KiB reads at places with the same relative position on every drive, and the
    /// rate of a long read at the drive's start, in sectors a second.
    fn figures(profile: &Profile) -> (f64, f64) {
        let mut mechanism = Mechanism::new(profile, RandomTerms::OFF, 1);
        let capacity = profile.geometry.capacity_sectors;
        let (mut rng, mut at) = (Rng::new(5), Time(0));
        for _ in 0..2000 {
            let lba = Lba(rng.below(1000) * (capacity / 1001));
            let place = mechanism.geometry().locate(lba);
            at = mechanism.access(at, &place, Extent { start: lba, len: Sectors(8) }, false).end;
        }
        let mean = at.as_secs_f64() / 2000.0;
        let run = Extent::new(0, 20_000);
        let place = mechanism.geometry().locate(Lba(0));
        let read = mechanism.access(at, &place, run, false);
        (mean, 20_000.0 / read.transfer.as_secs_f64())
    }

    #[test]
    fn a_fitted_drive_takes_the_times_of_the_whole() {
        for name in drives() {
            let whole = find(name).unwrap().unwrap();
            let (mean, rate) = figures(&whole);
            for gigabytes in [4, 20, 40_000] {
                let capacity = Sectors(gigabytes * 1_000_000_000 / 512);
                let fitted = whole.fitted(capacity);
                let Ok(fitted) = fitted else {
                    assert!(gigabytes > 20_000, "{name} of {gigabytes} GB: {fitted:?}");
                    continue;
                };
                assert_eq!(fitted.capacity(), capacity);
                let (fitted_mean, fitted_rate) = figures(&fitted);
                let (mean, rate) = (fitted_mean / mean, fitted_rate / rate);
                assert!((0.95..1.05).contains(&mean), "{name} of {gigabytes} GB: mean x {mean}");
                assert!((0.98..1.02).contains(&rate), "{name} of {gigabytes} GB: rate x {rate}");
            }
        }
    }

    #[test]
    fn a_drive_of_a_few_cylinders_is_refused() {
        let cheetah = find("cheetah-15k5").unwrap().unwrap();
        for sectors in [0, 1, 64] {
            let refused = cheetah.fitted(Sectors(sectors)).unwrap_err().to_string();
            assert!(refused.contains("a fitted drive needs 76800 sectors"), "{refused}");
        }
    }
}
