//! Checks of a profile beyond its syntax: every number has a source and makes sense.

use super::{Profile, ProfileError};

/// Checks that every numeric key (also within arrays) has an entry in the `source` table beside it.
pub(super) fn sources(origin: &str, table: &toml::Table) -> Result<(), ProfileError> {
    sources_under(origin, "", table)
}

fn sources_under(origin: &str, path: &str, table: &toml::Table) -> Result<(), ProfileError> {
    for (leaf, value) in table {
        let key = if path.is_empty() { leaf.clone() } else { format!("{path}.{leaf}") };
        // The version of the form is not a figure of the drive.
        if leaf == "source" || key == "version" {
            continue;
        }
        if let toml::Value::Table(inner) = value {
            sources_under(origin, &key, inner)?;
        } else if holds_number(value) && !names_source(table, leaf) {
            return Err(Check { origin }.no_source(&key, leaf));
        }
    }
    Ok(())
}

fn holds_number(value: &toml::Value) -> bool {
    match value {
        toml::Value::Integer(_) | toml::Value::Float(_) => true,
        toml::Value::Array(items) => items.iter().any(holds_number),
        _ => false,
    }
}

fn names_source(table: &toml::Table, leaf: &str) -> bool {
    let source = table.get("source").and_then(|s| s.get(leaf)).and_then(toml::Value::as_str);
    source.is_some_and(|text| !text.trim().is_empty())
}

/// Checks that the values are within what the model can represent.
pub(super) fn values(origin: &str, profile: &Profile) -> Result<(), ProfileError> {
    let check = Check { origin };
    scalars(&check, profile)?;
    seek(&check, profile)?;
    zones(&check, profile)?;
    slips(&check, profile)?;
    super::link::check(&check, profile)?;
    super::power::check(&check, profile)?;
    super::shingled::check(&check, profile)
}

pub(super) struct Check<'a> {
    origin: &'a str,
}

impl<'a> Check<'a> {
    pub(super) const fn new(origin: &'a str) -> Self {
        Self { origin }
    }
}

impl Check<'_> {
    pub(super) fn that(&self, holds: bool, key: &str, expected: &str) -> Result<(), ProfileError> {
        if holds {
            return Ok(());
        }
        Err(ProfileError::Value {
            origin: self.origin.to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
        })
    }

    pub(super) fn no_source(&self, key: &str, leaf: &str) -> ProfileError {
        ProfileError::NoSource {
            origin: self.origin.to_owned(),
            key: key.to_owned(),
            leaf: leaf.to_owned(),
        }
    }

    pub(super) fn within(
        &self,
        value: f64,
        low: f64,
        high: f64,
        key: &str,
    ) -> Result<(), ProfileError> {
        let expected = format!("expected a number from {low} to {high}, found {value}");
        self.that((low..=high).contains(&value), key, &expected)
    }
}

fn scalars(check: &Check<'_>, p: &Profile) -> Result<(), ProfileError> {
    check.within(p.spindle.revolution_us, 100.0, 16_700.0, "spindle.revolution_us")?;
    let g = &p.geometry;
    let physical = matches!(g.physical_sector_bytes, 512 | 4096);
    check.that(physical, "geometry.physical_sector_bytes", "expected 512 or 4096")?;
    check.within(f64::from(g.heads), 1.0, 64.0, "geometry.heads")?;
    check.within(f64::from(g.cylinders), 2.0, 1e7, "geometry.cylinders")?;
    check.within(f64::from(g.band_cylinders), 1.0, 1e6, "geometry.band_cylinders")?;
    check.within(g.track_skew_rev, 0.0, 1.0, "geometry.track_skew_rev")?;
    check.within(g.head_skew_rev, 0.0, 1.0, "geometry.head_skew_rev")?;
    check.within(g.band_skew_rev, 0.0, 1.0, "geometry.band_skew_rev")?;
    check.within(p.seek.head_switch_ms, 0.0, 100.0, "seek.head_switch_ms")?;
    check.within(p.seek.write_settle_ms, 0.0, 100.0, "seek.write_settle_ms")?;
    check.within(p.seek.jitter_ms, 0.0, 1.0, "seek.jitter_ms")?;
    check.within(p.retry.read_probability, 0.0, 0.5, "retry.read_probability")?;
    check.within(p.retry.write_probability, 0.0, 0.5, "retry.write_probability")?;
    check.within(p.idle.verify_after_ms, 0.0, 1e9, "idle.verify_after_ms")?;
    check.within(f64::from(p.idle.verify_writes_max), 0.0, 1e5, "idle.verify_writes_max")?;
    let c = &p.controller;
    check.within(c.read_start_us, 0.0, 1e5, "controller.read_start_us")?;
    check.within(c.write_start_us, 0.0, 1e5, "controller.write_start_us")?;
    check.within(c.read_end_us_per_sector, 0.0, 100.0, "controller.read_end_us_per_sector")?;
    check.within(c.write_end_us, 0.0, 1e5, "controller.write_end_us")?;
    check.within(c.buffer_hit_us, 0.0, 1e5, "controller.buffer_hit_us")?;
    check.within(c.interface_mb_s, 1.0, 1e5, "controller.interface_mb_s")?;
    check.within(f64::from(p.queue.depth), 1.0, 32.0, "queue.depth")?;
    let policy = matches!(p.queue.policy.as_str(), "fcfs" | "elevator" | "sptf");
    check.that(policy, "queue.policy", "expected \"fcfs\", \"elevator\" or \"sptf\"")?;
    check.within(p.queue.age_limit_ms, 0.0, 1e7, "queue.age_limit_ms")?;
    check.within(p.queue.prediction_margin_ms, 0.0, 16.0, "queue.prediction_margin_ms")?;
    check.within(f64::from(p.cache.segments), 0.0, 4096.0, "cache.segments")
}

fn seek(check: &Check<'_>, p: &Profile) -> Result<(), ProfileError> {
    let knots = &p.seek.knots_ms;
    let figures = [p.seek.track_to_track_ms, p.seek.average_ms, p.seek.full_stroke_ms];
    if knots.is_empty() {
        let [Some(one), Some(mean), Some(full)] = figures else {
            let all = "expected knots_ms, or track_to_track_ms, average_ms and full_stroke_ms";
            return check.that(false, "seek", all);
        };
        return check.that(
            0.0 < one && one <= mean && mean <= full && full < 1000.0,
            "seek.average_ms",
            "expected 0 < track_to_track_ms <= average_ms <= full_stroke_ms < 1000",
        );
    }
    check.that(figures == [None; 3], "seek", "expected knots_ms or three figures, not both")?;
    let rising = knots.windows(2).all(|pair| pair[0].0 < pair[1].0) && knots[0].0 > 0;
    check.that(rising, "seek.knots_ms", "expected distances that rise from 1 on")?;
    let sane = knots.iter().all(|knot| (0.0..1000.0).contains(&knot.1));
    check.that(sane, "seek.knots_ms", "expected times from 0 to 1000 ms")
}

fn zones(check: &Check<'_>, p: &Profile) -> Result<(), ProfileError> {
    let (g, key) = (&p.geometry, "geometry.zones");
    let from_zero = g.zones.first().is_some_and(|zone| (zone.0, zone.2) == (0, 0));
    check.that(from_zero, key, "expected a first zone at cylinder 0, LBA 0")?;
    for (index, &(first_cylinder, spt, first_lba)) in g.zones.iter().enumerate() {
        let next = g.zones.get(index + 1);
        let end_cylinder = next.map_or(g.cylinders, |zone| zone.0);
        let end_lba = next.map_or(g.capacity_sectors, |zone| zone.2);
        let key = format!("{key}[{index}]");
        let ordered = first_cylinder < end_cylinder && first_lba < end_lba && spt > 0;
        check.that(ordered, &key, "expected rising cylinders and addresses, sectors > 0")?;
        let slots = u64::from(end_cylinder - first_cylinder) * u64::from(g.heads) * u64::from(spt);
        let (used, slipped) = (end_lba - first_lba, slipped(p, index));
        let fits = used as f64 + slipped <= slots as f64 && slots < 1 << 32;
        let expected = format!(
            "expected at most {slots} sectors in the zone (and below 2^32), found {used} + \
             {slipped} slipped"
        );
        check.that(fits, &key, &expected)?;
    }
    Ok(())
}

/// The most sectors zone `index` slips.
fn slipped(p: &Profile, index: usize) -> f64 {
    let of_zone = p.geometry.slips.iter().filter(|slip| slip.0 as usize == index);
    of_zone.map(|slip| slip.2).fold(0.0, f64::max)
}

fn slips(check: &Check<'_>, p: &Profile) -> Result<(), ProfileError> {
    let (slips, key) = (&p.geometry.slips, "geometry.slips");
    let known = slips.iter().all(|slip| (slip.0 as usize) < p.geometry.zones.len());
    check.that(known, key, "expected zones that exist")?;
    let ordered = slips.windows(2).all(|pair| {
        let (a, b) = (pair[0], pair[1]);
        a.0 < b.0 || (a.0 == b.0 && a.1 < b.1 && a.2 <= b.2)
    });
    check.that(ordered, key, "expected rising zones and offsets, slips that never fall")?;
    let sane = slips.iter().all(|slip| slip.2 >= 0.0 && slip.1 < 1 << 32);
    check.that(sane, key, "expected slips of zero or more sectors")
}
