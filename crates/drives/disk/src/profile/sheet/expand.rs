//! Makes the whole profile of a drive from the figures of a sheet.

use super::{Key, Sheet};
use crate::link::{Link, LinkKind};
use crate::profile::{
    BandCleaning, BandMapping, CacheTable, ControllerTable, GeometryTable, IdleTable, LinkTable,
    Profile, QueueTable, RetryTable, SeekTable, ShingledTable, Sources, SpindleTable,
};

/// Zones of a layout. There are more if a zone would be too large for the model.
const ZONES: u32 = 28;
/// The most sectors of a zone.
const ZONE_SECTORS_MAX: u64 = 1 << 31;
/// Skews in revolutions: the least to the next track, and how much more to the next head and band.
const TRACK_SKEW_MIN: f64 = 0.12;
const TRACK_SKEW_MAX: f64 = 0.5;
const HEAD_SKEW: f64 = 0.03;
const BAND_SKEW: f64 = 0.12;
/// From 8 TB on the capacity is a multiple of this number of sectors.
const LARGE_UNIT: u64 = 1 << 21;

/// The 512-byte sectors that a drive of `gigabytes` exports, by the industry's formula; none for a
/// size that no drive has.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
pub fn idema_sectors(gigabytes: f64) -> Option<u64> {
    if !(1.0..=100_000.0).contains(&gigabytes) {
        return None;
    }
    if gigabytes > 8_000.0 {
        return Some(((gigabytes * 1e9 / 512.0) as u64).next_multiple_of(LARGE_UNIT));
    }
    if gigabytes < 50.0 {
        return Some((gigabytes * 1e9 / 512.0) as u64);
    }
    Some((97_696_368.0 + 1_953_504.0 * (gigabytes - 50.0)).round() as u64)
}

/// The angles between tracks, in revolutions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skews {
    pub(super) track: f64,
    pub(super) head: f64,
    pub(super) band: f64,
}

impl Skews {
    pub(super) fn of(track_to_track_ms: f64, rpm: f64) -> Self {
        let track = (track_to_track_ms * rpm / 60e3 + 0.01).clamp(TRACK_SKEW_MIN, TRACK_SKEW_MAX);
        Self { track, head: track + HEAD_SKEW, band: track + BAND_SKEW }
    }

    /// The mean skew over the tracks of a band.
    pub(super) fn mean(self, heads: f64, cylinders: f64) -> f64 {
        let tracks = heads * cylinders;
        (self.track * (tracks - heads) + self.head * (heads - 1.0) + self.band) / tracks
    }
}

/// Reads the figures of a complete sheet.
struct Of<'a>(&'a Sheet);

impl Of<'_> {
    fn value(&self, key: Key) -> f64 {
        self.0.value(key).unwrap_or(0.0)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: counts")]
    fn count(&self, key: Key) -> u32 {
        self.value(key).round() as u32
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: sizes")]
    fn sectors(&self, key: Key) -> u64 {
        let value = self.value(key);
        (if key == Key::Capacity { value } else { value / 512.0 }).round() as u64
    }

    fn source(&self, key: Key) -> String {
        self.0.figures.get(&key).map_or_else(String::new, |figure| figure.source.clone())
    }

    fn sources<const N: usize>(&self, keys: [(&str, Key); N], more: &[(&str, &str)]) -> Sources {
        let of_keys = keys.map(|(name, key)| (name.to_owned(), self.source(key)));
        let more = more.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        of_keys.into_iter().chain(more).collect()
    }
}

/// Makes the profile from the figures of `sheet`, which must be complete.
pub(super) fn expand(sheet: &Sheet) -> Profile {
    let of = Of(sheet);
    let shingled = sheet.shingled.then(|| shingled(&of));
    let medium = shingled.as_ref().map(ShingledTable::medium_sectors);
    let capacity = medium.unwrap_or_else(|| of.sectors(Key::Capacity));
    let model = if sheet.model.is_empty() { "a drive by its data sheet" } else { &sheet.model };
    Profile {
        name: sheet.name.clone(),
        model: model.to_owned(),
        spindle: SpindleTable {
            revolution_us: 60e6 / of.value(Key::Rpm),
            source: of.sources([("revolution_us", Key::Rpm)], &[]),
        },
        geometry: geometry(&of, capacity, shingled.as_ref().map_or(1.0, guarded)),
        seek: seek(&of),
        retry: RetryTable {
            read_probability: 0.001,
            write_probability: of.value(Key::WriteRetry),
            source: of.sources(
                [("write_probability", Key::WriteRetry)],
                &[("read_probability", "default: as fitted for cheetah-15k5")],
            ),
        },
        idle: idle(),
        controller: controller(sheet.link),
        queue: QueueTable {
            depth: of.count(Key::QueueDepth),
            policy: "sptf".to_owned(),
            age_limit_ms: 500.0,
            prediction_margin_ms: of.value(Key::Margin),
            source: of.sources(
                [("depth", Key::QueueDepth), ("prediction_margin_ms", Key::Margin)],
                &[("age_limit_ms", "default: the value that other drive models use")],
            ),
        },
        cache: cache(&of),
        link: sheet.link.map(|kind| link(sheet, kind)),
        shingled,
        power: sheet.power.clone(),
        models: sheet.models.clone(),
        serials: sheet.serials.clone(),
        not_modelled: sheet.not_modelled.clone(),
        bars: sheet.bars.clone(),
        version: None,
        sheet: None,
    }
}

/// Ratio of the sectors that pass the head to the data read: a guard region follows each band.
pub(super) fn guarded(table: &ShingledTable) -> f64 {
    1.0 + table.guard_sectors as f64 / table.band_sectors.max(1) as f64
}

/// Zones of equal width whose rates fall evenly. `passed` sectors pass the head for each sector
/// read.
fn geometry(of: &Of<'_>, capacity: u64, passed: f64) -> GeometryTable {
    let (rpm, heads) = (of.value(Key::Rpm), of.count(Key::Heads).max(1));
    let bands = of.count(Key::BandCylinders).max(1);
    let skews = Skews::of(of.value(Key::TrackToTrack), rpm);
    let overhead = passed * (1.0 + skews.mean(f64::from(heads), f64::from(bands)));
    let (outer, inner) = (of.value(Key::Outer), of.value(Key::Inner));
    let number = u32::try_from(capacity / ZONE_SECTORS_MAX).unwrap_or(ZONES).max(ZONES);
    let track = |zone: u32| {
        let mb_s = outer - (outer - inner) * f64::from(zone) / f64::from(number - 1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let sectors = (mb_s * 1e6 * 60.0 / rpm / 512.0 * overhead).round() as u32;
        sectors.max(1)
    };
    let a_cylinder: u64 = (0..number).map(|zone| u64::from(track(zone)) * u64::from(heads)).sum();
    let width = u32::try_from(capacity.div_ceil(a_cylinder)).unwrap_or(u32::MAX).max(1);
    let physical = u64::from(of.count(Key::PhysicalSector) / 512).max(1);
    let (mut zones, mut first) = (Vec::new(), 0_u64);
    for zone in 0..number {
        let end = (first + u64::from(track(zone)) * u64::from(heads) * u64::from(width)) / physical
            * physical;
        if first < capacity {
            zones.push((zone.saturating_mul(width), track(zone), first));
        }
        first = end;
    }
    let cylinders = u32::try_from(zones.len()).unwrap_or(number).saturating_mul(width);
    // The sectors lost to rounding are fewer than a cylinder's, and are added at the end.
    let missing = capacity.saturating_sub(first);
    let last = u64::from(track(number - 1)) * u64::from(heads);
    let more = u32::try_from(missing.div_ceil(last)).unwrap_or(0);
    GeometryTable {
        capacity_sectors: capacity,
        physical_sector_bytes: of.count(Key::PhysicalSector),
        heads,
        cylinders: cylinders.saturating_add(more),
        band_cylinders: bands,
        band_remainder_max: bands / 2,
        track_skew_rev: skews.track,
        head_skew_rev: skews.head,
        band_skew_rev: skews.band,
        zones,
        slips: Vec::new(),
        source: of.sources(
            [
                ("capacity_sectors", Key::Capacity),
                ("physical_sector_bytes", Key::PhysicalSector),
                ("heads", Key::Heads),
                ("band_cylinders", Key::BandCylinders),
                ("zones", Key::Outer),
            ],
            &[
                ("cylinders", "default: the capacity over the sectors of a cylinder"),
                ("band_remainder_max", "default: half a band"),
                ("track_skew_rev", "default: the time to the next track, rounded up"),
                ("head_skew_rev", "default: the time to the next head, rounded up"),
                ("band_skew_rev", "default: the time to the next head and a short seek"),
            ],
        ),
    }
}

fn seek(of: &Of<'_>) -> SeekTable {
    SeekTable {
        knots_ms: Vec::new(),
        correction_ms: Vec::new(),
        track_to_track_ms: Some(of.value(Key::TrackToTrack)),
        average_ms: Some(of.value(Key::Seek)),
        full_stroke_ms: Some(of.value(Key::FullStroke)),
        head_switch_ms: of.value(Key::HeadSwitch),
        write_settle_ms: of.value(Key::WriteSettle),
        jitter_ms: 0.1,
        source: of.sources(
            [
                ("track_to_track_ms", Key::TrackToTrack),
                ("average_ms", Key::Seek),
                ("full_stroke_ms", Key::FullStroke),
                ("head_switch_ms", Key::HeadSwitch),
                ("write_settle_ms", Key::WriteSettle),
            ],
            &[("jitter_ms", "default: as fitted for cheetah-15k5")],
        ),
    }
}

fn idle() -> IdleTable {
    let source = "default: the drive does not read writes back";
    let source = ["verify_after_ms", "verify_writes_max"].map(|key| (key.into(), source.into()));
    IdleTable { verify_after_ms: 0.0, verify_writes_max: 0, source: source.into() }
}

fn controller(link: Option<LinkKind>) -> ControllerTable {
    let (mb_s, name) = match link {
        Some(LinkKind::Sas) => (1100.0, "default: SAS of 12 Gbit/s"),
        _ => (550.0, "default: SATA of 6 Gbit/s"),
    };
    let keys = [
        "read_start_us",
        "write_start_us",
        "read_end_us_per_sector",
        "write_end_us",
        "buffer_hit_us",
    ];
    let usual = "default: some tens of microseconds, as of other drives";
    let mut source: Sources = keys.map(|key| (key.to_owned(), usual.to_owned())).into();
    source.insert("interface_mb_s".to_owned(), name.to_owned());
    ControllerTable {
        read_start_us: 30.0,
        write_start_us: 30.0,
        read_end_us_per_sector: 0.0,
        read_end_sectors_max: None,
        write_end_us: 30.0,
        buffer_hit_us: 70.0,
        interface_mb_s: mb_s,
        source,
    }
}

/// Segments and write buffer; together they are at most as large as the buffer.
fn cache(of: &Of<'_>) -> CacheTable {
    let buffer = of.sectors(Key::Cache);
    let segments = of.count(Key::Segments);
    let for_writes = of.sectors(Key::WriteBuffer).min(buffer);
    let room = (buffer - for_writes) / u64::from(segments.max(1));
    CacheTable {
        segments,
        segment_sectors: of.sectors(Key::Segment).min(room.max(8)),
        write_cache: of.0.write_cache.unwrap_or(true),
        write_buffer_sectors: for_writes,
        source: of.sources(
            [
                ("segments", Key::Segments),
                ("segment_sectors", Key::Segment),
                ("write_buffer_sectors", Key::WriteBuffer),
            ],
            &[],
        ),
    }
}

fn link(sheet: &Sheet, kind: LinkKind) -> LinkTable {
    let usual = Link::usual(kind).fua;
    let told = |key: &str, else_: &str| {
        let own = sheet.other_sources.get(key).cloned();
        (
            match key {
                "link" => "kind".to_owned(),
                _ => key.to_owned(),
            },
            own.unwrap_or_else(|| else_.to_owned()),
        )
    };
    let fua = if sheet.fua.is_some() { "data sheet" } else { "default: as Linux tells the host" };
    LinkTable {
        kind,
        fua: sheet.fua.unwrap_or(usual),
        source: [told("link", "data sheet"), told("fua", fua)].into(),
    }
}

fn shingled(of: &Of<'_>) -> ShingledTable {
    let physical = u64::from(of.count(Key::PhysicalSector) / 512).max(1);
    let whole = |key| of.sectors(key).max(physical) / physical * physical;
    let as_archive = "default: as st8000as0002";
    let usual = [
        "guard_sectors",
        "spare_bands",
        "idle_after_ms",
        "cache_extents_max",
        "stream_sectors",
        "stream_hold_ms",
        "log_sectors",
        "near_logs",
    ];
    ShingledTable {
        capacity_sectors: of.sectors(Key::Capacity),
        band_sectors: whole(Key::Band),
        guard_sectors: 3584,
        spare_bands: 1,
        mapping: BandMapping::Static,
        cleaning: BandCleaning::Idle,
        idle_after_ms: 1000.0,
        cache_sectors: whole(Key::PersistentCache),
        cache_extents_max: 250_000,
        stream_sectors: 16_384,
        stream_hold_ms: 50.0,
        log_sectors: 20_480,
        near_logs: 64,
        source: of.sources(
            [
                ("capacity_sectors", Key::Capacity),
                ("band_sectors", Key::Band),
                ("cache_sectors", Key::PersistentCache),
            ],
            &usual.map(|key| (key, as_archive)),
        ),
    }
}
