//! The settings of a volume as bytes in its superblock. A zero stands for the default.

use manylogs_block::{Extent, Nanos, Sectors, to_usize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::settings::Settings;
use crate::settings::config::{CheckpointPolicy, VolumeConfig};
use crate::settings::durable::DurableOnly;

/// Bits of `given`: the setting differs from the default, and its field counts.
const SWAP: u32 = 1;
const WATERMARK: u32 = 1 << 1;
const APPENDS: u32 = 1 << 2;
const CHECKPOINT: u32 = 1 << 3;
const CHECKPOINT_RATE: u32 = 1 << 4;
const IDLE: u32 = 1 << 5;
const BUFFER: u32 = 1 << 6;
const BUFFER_AGE: u32 = 1 << 7;
const SNAPSHOT: u32 = 1 << 8;
/// This bit has no field: logging is off.
const LOGGING_OFF: u32 = 1 << 9;
const LATENCY: u32 = 1 << 10;
const HOLD: u32 = 1 << 11;
/// This bit has no field: the threshold is adaptive.
const ADAPTIVE: u32 = 1 << 12;
const BAND: u32 = 1 << 13;
/// This bit has no field: small writes that continue a run are logged.
const SEQUENTIAL_LOGGED: u32 = 1 << 14;
/// This bit has no field: the write hole of homes is closed.
const HOLE_CLOSED: u32 = 1 << 15;

const OFF_HOURS: u32 = 0;
const WHEN_IDLE: u32 = 1;
const EVERY: u32 = 2;
const ON_FULL: u32 = 3;

/// All addresses and lengths are below this.
const SECTORS_END: u64 = 1 << 48;
const MILLION: f64 = 1e6;

/// Fields of settings that are not given are zero.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSettings {
    given: U32,
    swap_millionths: U32,
    watermark_millionths: U32,
    appends: U32,
    checkpoint: U32,
    from_s: U32,
    until_s: U32,
    band_sectors: U32,
    every_ns: U64,
    checkpoint_bytes_per_s: U64,
    idle_ns: U64,
    buffer_sectors: U64,
    buffer_age_ns: U64,
    snapshot_ns: U64,
    latency_ns: U64,
    hold_ns: U64,
}

const _: () = assert!(size_of::<RawSettings>() == 96);

impl RawSettings {
    /// The settings that differ from the defaults. Threshold and record have fields of their own.
    pub(crate) fn of(settings: &Settings) -> Self {
        let default = VolumeConfig::default();
        let config = settings.applied_to(&default);
        let mut raw = Self::default();
        raw.give(SWAP, config.swap != default.swap);
        raw.give(WATERMARK, config.watermark != default.watermark);
        raw.give(APPENDS, config.appends != default.appends);
        raw.give(CHECKPOINT, config.checkpoint != default.checkpoint);
        raw.give(CHECKPOINT_RATE, config.checkpoint_rate != default.checkpoint_rate);
        raw.give(IDLE, config.idle != default.idle);
        raw.give(BUFFER, config.buffer != default.buffer);
        raw.give(BUFFER_AGE, config.buffer_age != default.buffer_age);
        raw.give(SNAPSHOT, config.snapshot != default.snapshot);
        raw.give(LOGGING_OFF, !config.logging);
        raw.give(LATENCY, config.latency != default.latency);
        raw.give(ADAPTIVE, config.adaptive);
        raw.give(HOLD, config.hold != default.hold);
        raw.give(BAND, config.band != default.band);
        raw.give(SEQUENTIAL_LOGGED, config.run == Sectors(0));
        raw.give(HOLE_CLOSED, config.close_hole);
        raw.fill(&config);
        raw
    }

    /// The settings as a [`VolumeConfig`]: the defaults, changed as given. The values are checked
    /// only for what is impossible in any volume; its validation checks the rest.
    pub(crate) fn config(&self) -> Result<VolumeConfig, &'static str> {
        let mut config = VolumeConfig::default();
        self.take(SWAP, || config.swap = share(self.swap_millionths));
        self.take(WATERMARK, || config.watermark = share(self.watermark_millionths));
        self.take(APPENDS, || config.appends = to_usize(self.appends.get().into()));
        self.take(CHECKPOINT_RATE, || config.checkpoint_rate = self.checkpoint_bytes_per_s.get());
        self.take(IDLE, || config.idle = Nanos(self.idle_ns.get()));
        self.take(BUFFER, || config.buffer = Sectors(self.buffer_sectors.get()));
        self.take(BUFFER_AGE, || config.buffer_age = Nanos(self.buffer_age_ns.get()));
        self.take(SNAPSHOT, || config.snapshot = Nanos(self.snapshot_ns.get()));
        self.take(LATENCY, || config.latency = Nanos(self.latency_ns.get()));
        self.take(HOLD, || config.hold = Nanos(self.hold_ns.get()));
        self.take(LOGGING_OFF, || config.logging = false);
        self.take(ADAPTIVE, || config.adaptive = true);
        self.take(SEQUENTIAL_LOGGED, || config.run = Sectors(0));
        self.take(HOLE_CLOSED, || config.close_hole = true);
        self.take(BAND, || config.band = Sectors(self.band_sectors.get().into()));
        if self.given.get() & CHECKPOINT != 0 {
            config.checkpoint = self.policy()?;
        }
        if config.buffer.0 >= SECTORS_END {
            return Err("buffer");
        }
        Ok(config)
    }

    fn give(&mut self, bit: u32, differs: bool) {
        if differs {
            self.given |= bit;
        }
    }

    fn take(&self, bit: u32, take: impl FnOnce()) {
        if self.given.get() & bit != 0 {
            take();
        }
    }

    /// Fills in the fields of the settings that are given.
    fn fill(&mut self, config: &VolumeConfig) {
        let given = self.given.get();
        let wide = |bit, value| U64::new(if given & bit == 0 { 0 } else { value });
        let narrow = |bit, value| U32::new(if given & bit == 0 { 0 } else { saturated(value) });
        self.swap_millionths = narrow(SWAP, millionths(config.swap));
        self.watermark_millionths = narrow(WATERMARK, millionths(config.watermark));
        self.appends = narrow(APPENDS, config.appends as u64);
        self.band_sectors = narrow(BAND, config.band.0);
        self.checkpoint_bytes_per_s = wide(CHECKPOINT_RATE, config.checkpoint_rate);
        self.idle_ns = wide(IDLE, config.idle.0);
        self.buffer_sectors = wide(BUFFER, config.buffer.0);
        self.buffer_age_ns = wide(BUFFER_AGE, config.buffer_age.0);
        self.snapshot_ns = wide(SNAPSHOT, config.snapshot.0);
        self.latency_ns = wide(LATENCY, config.latency.0);
        self.hold_ns = wide(HOLD, config.hold.0);
        if given & CHECKPOINT != 0 {
            self.fill_policy(config.checkpoint);
        }
    }

    fn fill_policy(&mut self, policy: CheckpointPolicy) {
        let kind = match policy {
            CheckpointPolicy::OffHours { from_s, until_s } => {
                self.from_s = U32::new(saturated(from_s));
                self.until_s = U32::new(saturated(until_s));
                OFF_HOURS
            }
            CheckpointPolicy::Idle => WHEN_IDLE,
            CheckpointPolicy::Every(span) => {
                self.every_ns = U64::new(span.0);
                EVERY
            }
            CheckpointPolicy::OnFull => ON_FULL,
        };
        self.checkpoint = U32::new(kind);
    }

    fn policy(&self) -> Result<CheckpointPolicy, &'static str> {
        match self.checkpoint.get() {
            OFF_HOURS => Ok(CheckpointPolicy::OffHours {
                from_s: self.from_s.get().into(),
                until_s: self.until_s.get().into(),
            }),
            WHEN_IDLE => Ok(CheckpointPolicy::Idle),
            EVERY => Ok(CheckpointPolicy::Every(Nanos(self.every_ns.get()))),
            ON_FULL => Ok(CheckpointPolicy::OnFull),
            _ => Err("checkpoint policy"),
        }
    }
}

/// Settings of kept versions. They are there if the superblock says that versions may be kept.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawDurable {
    budget_millionths: U32,
    range_count: U32,
    ranges: [[U64; 2]; DurableOnly::MOST],
    reserved: [u8; 24],
}

const _: () = assert!(size_of::<RawDurable>() == 160);

impl RawDurable {
    /// The settings in `config`. A budget of zero stands for the default.
    pub(crate) fn of(config: &VolumeConfig) -> Self {
        let mut raw = Self::default();
        if config.durable_budget != VolumeConfig::default().durable_budget {
            raw.budget_millionths = U32::new(saturated(millionths(config.durable_budget)));
        }
        raw.range_count = U32::new(saturated(config.durable_only.iter().count() as u64));
        for (field, range) in raw.ranges.iter_mut().zip(config.durable_only.iter()) {
            *field = [U64::new(range.start.0), U64::new(range.len.0)];
        }
        raw
    }

    pub(crate) fn apply_to(&self, config: &mut VolumeConfig) -> Result<(), &'static str> {
        if self.budget_millionths.get() > 0 {
            config.durable_budget = share(self.budget_millionths);
        }
        let ranges = self.ranges.get(..to_usize(self.range_count.get().into()));
        let ranges = ranges.ok_or("number of ranges in durable-only")?;
        let extents: Vec<Extent> =
            ranges.iter().map(|[start, len]| Extent::new(start.get(), len.get())).collect();
        config.durable_only = DurableOnly::of(&extents).ok_or("range in durable-only")?;
        Ok(())
    }
}

fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
fn millionths(share: f64) -> u64 {
    (share * MILLION).round() as u64
}

fn share(millionths: U32) -> f64 {
    f64::from(millionths.get()) / MILLION
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_the_disk(settings: &Settings) -> Settings {
        let config = RawSettings::of(settings).config().unwrap();
        let VolumeConfig { threshold, record, .. } = settings.applied_to(&VolumeConfig::default());
        Settings::of(&VolumeConfig { threshold, record, ..config })
    }

    #[test]
    fn zeroes_are_the_defaults() {
        let raw = RawSettings::of(&Settings::default());
        assert_eq!(raw.as_bytes(), [0; 96]);
        assert_eq!(Settings::of(&raw.config().unwrap()), Settings::default());
    }

    #[test]
    fn every_setting_survives_by_itself_and_with_all_others() {
        let mut all = Settings::default();
        for pair in [
            "logging=off",
            "threshold=512",
            "record=64K",
            "swap=33.3333%",
            "checkpoint=idle",
            "checkpoint=every:1ns",
            "checkpoint=full",
            "checkpoint=00:00-24:00",
            "checkpoint-rate=1",
            "watermark=100%",
            "idle=0s",
            "appends=64",
            "buffer=0",
            "buffer-age=1ms",
            "snapshot=none",
            "latency=25ms",
            "hold=60ms",
            "adaptive=on",
            "band=30M",
            "sequential=logged",
            "hole=closed",
        ] {
            let mut one = Settings::default();
            one.assign(pair).unwrap();
            all.assign(pair).unwrap();
            assert_ne!(one, Settings::default(), "{pair}");
            assert_eq!(through_the_disk(&one), one, "{pair}");
            assert_eq!(through_the_disk(&all), all, "{pair}");
        }
    }

    #[test]
    fn bytes_are_where_the_format_says() {
        let text = "swap=1 watermark=0.5 appends=5 checkpoint=every:7ns checkpoint-rate=9 \
                    idle=11ns buffer=512 buffer-age=13ns snapshot=15ns logging=off \
                    latency=17ns hold=19ns adaptive=on band=10752 \
                    sequential=logged hole=closed";
        let raw = RawSettings::of(&text.parse().unwrap());
        let bytes = raw.as_bytes();
        let places = [
            (0, 0xffff),
            (4, 1_000_000),
            (8, 500_000),
            (12, 5),
            (16, 2),
            (28, 21),
            (32, 7),
            (40, 9),
            (48, 11),
            (56, 1),
            (64, 13),
            (72, 15),
            (80, 17),
            (88, 19),
        ];
        for at in (0..96).step_by(4) {
            let found = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let expected = places.iter().find(|place| place.0 == at).map_or(0, |place| place.1);
            assert_eq!(found, expected, "byte {at}");
        }
    }
}
