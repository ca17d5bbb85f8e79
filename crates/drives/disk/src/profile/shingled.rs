//! The table of a drive with shingled recording, and its checks.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::{Profile, ProfileError, Sources};

/// Where a band lies after it was cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BandMapping {
    /// In its old place: read, written to a scratch band, then written in place.
    Static,
    /// In a free slot: read, then written there.
    Dynamic,
}

/// When the drive cleans bands. In both cases it also cleans when the persistent cache is nearly
/// full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BandCleaning {
    /// While there are no commands.
    Idle,
    /// All the time, in turn with commands.
    Constant,
}

/// Shingled recording, managed by the drive.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShingledTable {
    /// Exported capacity in sectors of 512 bytes.
    pub capacity_sectors: u64,
    /// Sectors of each band, including the last one of the drive.
    pub band_sectors: u64,
    /// Unused sectors behind each band.
    pub guard_sectors: u64,
    /// Bands without content: scratch with a static mapping, free ones with a dynamic one.
    pub spare_bands: u32,
    /// Where a cleaned band goes.
    pub mapping: BandMapping,
    /// When bands are cleaned.
    pub cleaning: BandCleaning,
    /// With idle cleaning: time without a command after which it begins.
    pub idle_after_ms: f64,
    /// Sectors of the persistent cache, on the outermost tracks.
    pub cache_sectors: u64,
    /// Number of stretches of addresses that fit the persistent cache's table.
    pub cache_extents_max: u32,
    /// Length of a run of consecutive writes that counts as a stream, which bypasses the persistent
    /// cache.
    pub stream_sectors: u64,
    /// Time for which writes stay in the buffer because they may become a stream.
    pub stream_hold_ms: f64,
    /// Sectors of a log on the surface without shingling, if the drive has one.
    pub log_sectors: u64,
    /// Number of logs that are offered a write: the nearest to the last read that have room. The
    /// log whose end comes under the head first takes it.
    pub near_logs: u32,
    /// Sources of the numbers above.
    pub source: Sources,
}

impl ShingledTable {
    /// Number of bands that hold the exported capacity.
    #[must_use]
    pub fn bands(&self) -> u64 {
        self.capacity_sectors.div_ceil(self.band_sectors)
    }

    /// Number of sectors that the medium must have.
    #[must_use]
    pub fn medium_sectors(&self) -> u64 {
        let bands = self.bands() + u64::from(self.spare_bands);
        self.cache_sectors + bands * (self.band_sectors + self.guard_sectors)
    }
}

/// Checks that the table makes sense on this medium.
pub(super) fn check(check: &Check<'_>, p: &Profile) -> Result<(), ProfileError> {
    let Some(s) = &p.shingled else { return Ok(()) };
    let physical = u64::from(p.geometry.physical_sector_bytes / 512);
    let whole = |sectors: u64| sectors > 0 && sectors.is_multiple_of(physical);
    let expected = format!("expected a multiple of {physical} sectors, more than none");
    check.that(whole(s.band_sectors), "shingled.band_sectors", &expected)?;
    check.that(whole(s.cache_sectors), "shingled.cache_sectors", &expected)?;
    check.that(whole(s.log_sectors), "shingled.log_sectors", &expected)?;
    check.that(s.log_sectors >= 8192, "shingled.log_sectors", "expected 8192 sectors or more")?;
    check.that(s.guard_sectors.is_multiple_of(physical), "shingled.guard_sectors", &expected)?;
    check.that(s.capacity_sectors > 0, "shingled.capacity_sectors", "expected more than 0")?;
    let smallest = smallest_zone(p);
    let expected = format!(
        "expected a band that fits every zone of the drive: at most {smallest} sectors, found {}",
        s.band_sectors
    );
    check.that(s.band_sectors + s.guard_sectors <= smallest, "shingled.band_sectors", &expected)?;
    check.that(s.bands() < 1 << 31, "shingled.band_sectors", "expected fewer than 2^31 bands")?;
    let least = 4 * s.band_sectors;
    let expected = format!("expected room for 4 bands, {least} sectors, found {}", s.cache_sectors);
    check.that(s.cache_sectors >= least, "shingled.cache_sectors", &expected)?;
    check.within(f64::from(s.cache_extents_max), 1024.0, 1e8, "shingled.cache_extents_max")?;
    check.within(f64::from(s.near_logs), 1.0, 4096.0, "shingled.near_logs")?;
    check.within(f64::from(s.spare_bands), 1.0, 1e6, "shingled.spare_bands")?;
    check.within(s.idle_after_ms, 0.0, 1e7, "shingled.idle_after_ms")?;
    check.within(s.stream_hold_ms, 0.0, 1e5, "shingled.stream_hold_ms")?;
    let (needed, there) = (s.medium_sectors(), p.geometry.capacity_sectors);
    let expected = format!("expected a medium of {needed} sectors, found {there}");
    check.that(needed <= there, "geometry.capacity_sectors", &expected)?;
    let verifies = p.idle.verify_writes_max > 0;
    check.that(!verifies, "idle.verify_writes_max", "expected 0: bands are not verified")?;
    let unslipped = p.geometry.slips.is_empty();
    check.that(unslipped, "geometry.slips", "expected none: the medium has spare bands")
}

fn smallest_zone(p: &Profile) -> u64 {
    let starts = p.geometry.zones.iter().map(|zone| zone.2);
    let ends = starts.clone().skip(1).chain([p.geometry.capacity_sectors]);
    starts.zip(ends).map(|(start, end)| end.saturating_sub(start)).min().unwrap_or(0)
}
