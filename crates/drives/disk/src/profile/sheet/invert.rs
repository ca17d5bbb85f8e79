//! Turns a whole profile back into the figures of a sheet.

use super::expand::{Skews, guarded};
use super::{Figure, Key, Sheet};
use crate::profile::{Profile, Sources};
use crate::seek::SeekCurve;

impl Sheet {
    /// The figures of `profile`: those it was made from, or those that a data sheet would give. The
    /// exact layout and seek curve of a measured drive have no place in a sheet.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        if let Some(sheet) = &profile.sheet {
            return (**sheet).clone();
        }
        let mut sheet = Self::new(&profile.name);
        sheet.model.clone_from(&profile.model);
        sheet.add_layout_of(profile);
        sheet.add_seeks_of(profile);
        sheet.add_electronics_of(profile);
        sheet.link = profile.link.as_ref().map(|link| link.kind);
        sheet.fua = profile.link.as_ref().map(|link| link.fua);
        sheet.write_cache = Some(profile.cache.write_cache);
        sheet.not_modelled.clone_from(&profile.not_modelled);
        if let Some(table) = &profile.shingled {
            sheet.shingled = true;
            let bytes = |sectors: u64| sectors as f64 * 512.0;
            sheet.put(Key::Band, bytes(table.band_sectors), &table.source, "band_sectors");
            let cache = bytes(table.cache_sectors);
            sheet.put(Key::PersistentCache, cache, &table.source, "cache_sectors");
        }
        sheet
    }

    fn put(&mut self, key: Key, value: f64, sources: &Sources, name: &str) {
        let source = sources.get(name).map_or("data sheet", String::as_str);
        self.figures.insert(key, Figure::stated(value, source));
    }

    fn add_layout_of(&mut self, profile: &Profile) {
        let g = &profile.geometry;
        self.put(Key::Capacity, profile.capacity().0 as f64, &g.source, "capacity_sectors");
        let physical = f64::from(g.physical_sector_bytes);
        self.put(Key::PhysicalSector, physical, &g.source, "physical_sector_bytes");
        self.put(Key::Rpm, profile.rpm(), &profile.spindle.source, "revolution_us");
        self.put(Key::Heads, f64::from(g.heads), &g.source, "heads");
        self.put(Key::BandCylinders, f64::from(g.band_cylinders), &g.source, "band_cylinders");
        let skews = Skews { track: g.track_skew_rev, head: g.head_skew_rev, band: g.band_skew_rev };
        let passed = profile.shingled.as_ref().map_or(1.0, guarded);
        let skewed = skews.mean(f64::from(g.heads), f64::from(g.band_cylinders));
        let overhead = passed * (1.0 + skewed);
        let mb_s = |zone: Option<&(u32, u32, u64)>| {
            let sectors = zone.map_or(0.0, |zone| f64::from(zone.1));
            (sectors * 512.0 / profile.spindle.revolution_us / overhead * 100.0).round() / 100.0
        };
        self.put(Key::Outer, mb_s(g.zones.first()), &g.source, "zones");
        self.put(Key::Inner, mb_s(g.zones.last()), &g.source, "zones");
    }

    fn add_seeks_of(&mut self, profile: &Profile) {
        let (seek, s) = (&profile.seek, &profile.seek.source);
        let figures = (seek.track_to_track_ms, seek.average_ms, seek.full_stroke_ms);
        if let (Some(next), Some(mean), Some(full)) = figures {
            self.put(Key::TrackToTrack, next, s, "track_to_track_ms");
            self.put(Key::Seek, mean, s, "average_ms");
            self.put(Key::FullStroke, full, s, "full_stroke_ms");
        } else {
            let curve = SeekCurve::from_knots(&seek.knots_ms);
            let ms = |distance| (curve.time(distance).0 as f64 / 1e3).round() / 1e3;
            let stroke = profile.geometry.cylinders - 1;
            self.put(Key::TrackToTrack, ms(1), s, "knots_ms");
            self.put(Key::Seek, mean_ms(&curve, stroke), s, "knots_ms");
            self.put(Key::FullStroke, ms(stroke), s, "knots_ms");
        }
        self.put(Key::HeadSwitch, seek.head_switch_ms, s, "head_switch_ms");
        self.put(Key::WriteSettle, seek.write_settle_ms, s, "write_settle_ms");
        let retry = &profile.retry;
        self.put(Key::WriteRetry, retry.write_probability, &retry.source, "write_probability");
    }

    fn add_electronics_of(&mut self, profile: &Profile) {
        let (queue, cache) = (&profile.queue, &profile.cache);
        self.put(Key::QueueDepth, f64::from(queue.depth), &queue.source, "depth");
        let margin = queue.prediction_margin_ms;
        self.put(Key::Margin, margin, &queue.source, "prediction_margin_ms");
        let bytes = |sectors: u64| sectors as f64 * 512.0;
        self.put(Key::Segments, f64::from(cache.segments), &cache.source, "segments");
        self.put(Key::Segment, bytes(cache.segment_sectors), &cache.source, "segment_sectors");
        let for_writes = bytes(cache.write_buffer_sectors);
        self.put(Key::WriteBuffer, for_writes, &cache.source, "write_buffer_sectors");
        // No profile gives the size of the whole buffer. It is at least the sum of its parts.
        let all = for_writes + f64::from(cache.segments) * bytes(cache.segment_sectors);
        self.put(Key::Cache, all, &cache.source, "segments");
    }
}

/// The mean over uniformly random pairs: the density of distance d is 2 (n - d) / n^2.
fn mean_ms(curve: &SeekCurve, stroke: u32) -> f64 {
    let n = f64::from(stroke);
    let sum: f64 = (1..=1000)
        .map(|i| {
            let x = (f64::from(i) - 0.5) / 1000.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "< n")]
            let distance = (x * n) as u32;
            2.0 * (1.0 - x) * curve.time(distance.max(1)).0 as f64 / 1e6 / 1000.0
        })
        .sum();
    (sum * 1e3).round() / 1e3
}
