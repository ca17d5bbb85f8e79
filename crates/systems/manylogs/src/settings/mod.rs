//! The settings that an operator may change on a volume in use, as `key=value`.

mod checkpoint;
mod columns;
pub(crate) mod config;
pub(crate) mod config_error;
pub(crate) mod durable;
pub(crate) mod keep;
pub(crate) mod policy;

use std::fmt;
use std::str::FromStr;

use manylogs_block::{
    Nanos, SECTOR_BYTES, Sectors, bytes_text, on_off, parse_bytes, parse_share, parse_span,
    span_text,
};
use thiserror::Error;

use crate::settings::config::VolumeConfig;

/// The value of settings that are switched off.
const NONE: &str = "none";
/// Destination of small writes that continue a run.
const HOME: &str = "home";
const LOGGED: &str = "logged";
/// The write hole of homes on an array with parity.
const CLOSED: &str = "closed";
const OPEN: &str = "open";
/// Shares are stored in millionths.
const MILLION: f64 = 1e6;

/// The parameters of [`VolumeConfig`] that can change while the volume is in use. The volume keeps
/// them in its superblock.
///
/// Written as `key=value`, one a line; the printed text reads back the same. Sizes are in bytes or
/// with K, M, G (powers of 1024), in whole sectors; times have ns, us, ms, s, min or h; shares are
/// written as 0.8 or 80%, and rounded to millionths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings(
    /// Parameters that are fixed at format have their defaults here and are not used.
    VolumeConfig,
);

/// Why a setting cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SettingsError {
    /// There is no such setting.
    #[error(
        "unknown setting `{key}`{}; there are: {}",
        did_you_mean(suggestion.as_deref()),
        Settings::KEYS.join(", ")
    )]
    UnknownKey {
        /// The key as given.
        key: String,
        /// The most similar setting, if one is similar.
        suggestion: Option<String>,
    },
    /// A value that cannot be read.
    #[error("{key}={value}: expected {expected}")]
    BadValue {
        /// The setting.
        key: String,
        /// The value as given.
        value: String,
        /// Description of valid values.
        expected: &'static str,
    },
    /// The text is not `key=value`.
    #[error("expected key=value, found `{text}`")]
    NoValue {
        /// The text as given.
        text: String,
    },
}

pub(crate) fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// The candidate most similar to `name`, if one is similar.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(&VolumeConfig::default())
    }
}

impl Settings {
    /// All settings, in the order in which they are listed.
    pub const KEYS: [&'static str; 20] = [
        "logging",
        "threshold",
        "adaptive",
        "record",
        "swap",
        "checkpoint",
        "checkpoint-rate",
        "watermark",
        "idle",
        "appends",
        "buffer",
        "buffer-age",
        "sequential",
        "snapshot",
        "latency",
        "hold",
        "band",
        "durable-budget",
        "durable-only",
        "hole",
    ];

    /// Settings of `config`.
    #[must_use]
    pub fn of(config: &VolumeConfig) -> Self {
        let mut own = VolumeConfig::default().changed_to(config);
        own.swap = in_millionths(own.swap);
        own.watermark = in_millionths(own.watermark);
        own.durable_budget = in_millionths(own.durable_budget);
        Self(own)
    }

    /// The defaults of a volume whose logs have this size.
    #[must_use]
    pub fn for_log(log: Sectors) -> Self {
        Self::of(&VolumeConfig::default().with_log(log))
    }

    /// Whether the settings require a volume that keeps versions in its logs.
    #[must_use]
    pub(crate) fn needs_kept_versions(&self) -> bool {
        self.0.needs_kept_versions()
    }

    /// `config` with these settings. [`VolumeConfig::validate`] tells whether they make sense for
    /// its logs.
    #[must_use]
    pub fn applied_to(&self, config: &VolumeConfig) -> VolumeConfig {
        config.changed_to(&self.0)
    }

    /// Changes one setting. A threshold above the longest record also lengthens the record.
    ///
    /// # Errors
    /// If there is no such setting or the value cannot be read; then nothing changes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let config = &mut self.0;
        let bad = |expected| SettingsError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let size = || sectors(value).ok_or_else(|| bad("whole sectors such as 512, 64K or 10M"));
        let span = || parse_span(value).ok_or_else(|| bad("a time such as 50ms, 30s, 10min or 8h"));
        let share = || parse_share(value).map(in_millionths).ok_or_else(|| bad(SHARE));
        match key {
            "logging" => config.logging = switch(value).ok_or_else(|| bad("on or off"))?,
            "threshold" => {
                config.threshold = size()?;
                config.record = config.record.max(config.threshold);
            }
            "adaptive" => config.adaptive = switch(value).ok_or_else(|| bad("on or off"))?,
            "record" => config.record = size()?,
            "swap" => config.swap = share()?,
            "checkpoint" => config.checkpoint = value.parse().map_err(bad)?,
            "checkpoint-rate" => {
                let rate = if value == NONE { Some(0) } else { parse_bytes(value) };
                config.checkpoint_rate = rate.ok_or_else(|| bad(RATE))?;
            }
            "watermark" => config.watermark = share()?,
            "idle" => config.idle = span()?,
            "appends" => {
                config.appends = value.parse().map_err(|_| bad("a number from 1 to 64"))?;
            }
            "buffer" => config.buffer = size()?,
            "buffer-age" => config.buffer_age = span()?,
            "sequential" => {
                config.run = match value {
                    HOME => VolumeConfig::RUN,
                    LOGGED => Sectors(0),
                    _ => return Err(bad("home or logged")),
                };
            }
            "snapshot" => config.snapshot = if value == NONE { Nanos(0) } else { span()? },
            "latency" => config.latency = if value == NONE { Nanos(0) } else { span()? },
            "hold" => config.hold = if value == NONE { Nanos(0) } else { span()? },
            "durable-budget" => config.durable_budget = share()?,
            "durable-only" => config.durable_only = value.parse().map_err(bad)?,
            "hole" => {
                config.close_hole = match value {
                    CLOSED => true,
                    OPEN => false,
                    _ => return Err(bad("closed or open")),
                };
            }
            "band" => config.band = if value == NONE { Sectors(0) } else { size()? },
            _ => {
                let (key, suggestion) = (key.to_owned(), nearest(key, Self::KEYS));
                return Err(SettingsError::UnknownKey { key, suggestion });
            }
        }
        Ok(())
    }

    /// Changes one setting, given as `key=value`.
    ///
    /// # Errors
    /// As [`Settings::set`], and if there is no `=`.
    pub fn assign(&mut self, text: &str) -> Result<(), SettingsError> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| SettingsError::NoValue { text: text.to_owned() })?;
        self.set(key, value)
    }

    /// All settings with their values, in the order of [`Settings::KEYS`].
    #[must_use]
    pub fn list(&self) -> [(&'static str, String); Self::KEYS.len()] {
        Self::KEYS.map(|key| (key, self.value(key)))
    }

    /// Settings that differ in `other`, with their value in `self`.
    #[must_use]
    pub fn unlike(&self, other: &Self) -> Vec<(&'static str, String)> {
        let pairs = self.list().into_iter().zip(other.list());
        pairs.filter(|(own, other)| own != other).map(|(own, _)| own).collect()
    }

    fn value(&self, key: &str) -> String {
        let config = &self.0;
        match key {
            "logging" => on_or_off(config.logging),
            "adaptive" => on_or_off(config.adaptive),
            "threshold" => bytes_text(config.threshold.bytes()),
            "record" => bytes_text(config.record.bytes()),
            "swap" => config.swap.to_string(),
            "checkpoint" => config.checkpoint.to_string(),
            "checkpoint-rate" if config.checkpoint_rate == 0 => NONE.to_owned(),
            "checkpoint-rate" => bytes_text(config.checkpoint_rate),
            "watermark" => config.watermark.to_string(),
            "idle" => span_text(config.idle),
            "appends" => config.appends.to_string(),
            "buffer" => bytes_text(config.buffer.bytes()),
            "buffer-age" => span_text(config.buffer_age),
            "sequential" if config.run == Sectors(0) => LOGGED.to_owned(),
            "sequential" => HOME.to_owned(),
            "snapshot" if config.snapshot == Nanos(0) => NONE.to_owned(),
            "snapshot" => span_text(config.snapshot),
            "latency" if config.latency == Nanos(0) => NONE.to_owned(),
            "latency" => span_text(config.latency),
            "hold" if config.hold == Nanos(0) => NONE.to_owned(),
            "hold" => span_text(config.hold),
            "durable-budget" => config.durable_budget.to_string(),
            "durable-only" => config.durable_only.to_string(),
            "hole" => if config.close_hole { CLOSED } else { OPEN }.to_owned(),
            "band" if config.band == Sectors(0) => NONE.to_owned(),
            "band" => bytes_text(config.band.bytes()),
            _ => String::new(),
        }
    }
}

const SHARE: &str = "a share such as 0.8 or 80%";
const RATE: &str = "bytes a second such as 500K or 20M, or none";

impl FromStr for Settings {
    type Err = SettingsError;

    /// The defaults, changed by each `key=value` in the text; white space separates them.
    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        text.split_whitespace().try_for_each(|pair| settings.assign(pair))?;
        Ok(settings)
    }
}

impl fmt::Display for Settings {
    /// Writes one `key=value` in each line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list().iter().try_for_each(|(key, value)| writeln!(f, "{key}={value}"))
    }
}

/// A share rounded to millionths, as stored in the superblock. A value above zero stays above zero.
pub(crate) fn in_millionths(share: f64) -> f64 {
    let rounded = (share * MILLION).round() / MILLION;
    if share > 0.0 { rounded.max(1.0 / MILLION) } else { rounded }
}

pub(crate) fn sectors(text: &str) -> Option<Sectors> {
    let bytes = parse_bytes(text)?;
    bytes.is_multiple_of(SECTOR_BYTES).then_some(Sectors(bytes / SECTOR_BYTES))
}

fn on_or_off(on: bool) -> String {
    on_off(on).to_owned()
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::config::CheckpointPolicy;

    fn any_policy() -> impl Strategy<Value = CheckpointPolicy> {
        let second = 0..=86_400u64;
        prop_oneof![
            Just(CheckpointPolicy::Idle),
            Just(CheckpointPolicy::OnFull),
            (1..1_000_000_000u64).prop_map(|ns| CheckpointPolicy::Every(Nanos(ns))),
            (second.clone(), second)
                .prop_map(|(from_s, until_s)| CheckpointPolicy::OffHours { from_s, until_s }),
        ]
    }

    prop_compose! {
        fn any_settings()(
            sizes in (1..4096u64, 1..4096u64, 0..1u64 << 25, 0..1u64 << 21),
            shares in (1..=1_000_000u32, 1..=1_000_000u32),
            spans in proptest::array::uniform5(0..1_000_000_000_000_000_000u64),
            checkpoint in any_policy(),
            checkpoint_rate in 0..1u64 << 40,
            appends in 1..=64usize,
            switches: (bool, bool),
        ) -> Settings {
            Settings::of(&VolumeConfig {
                threshold: Sectors(sizes.0.min(sizes.1)),
                record: Sectors(sizes.1),
                buffer: Sectors(sizes.2),
                band: Sectors(sizes.3),
                swap: f64::from(shares.0) / 1e6,
                watermark: f64::from(shares.1) / 1e6,
                idle: Nanos(spans[0]),
                buffer_age: Nanos(spans[1]),
                snapshot: Nanos(spans[2]),
                latency: Nanos(spans[3]),
                hold: Nanos(spans[4]),
                checkpoint,
                checkpoint_rate,
                appends,
                logging: switches.0,
                adaptive: switches.1,
                ..VolumeConfig::default()
            })
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_the_same(settings in any_settings()) {
            let text = settings.to_string();
            prop_assert_eq!(text.parse::<Settings>(), Ok(settings), "{}", text);
        }
    }

    #[test]
    fn the_values_of_an_operator_are_understood() {
        let text = "threshold=64K checkpoint=22:00-06:00 checkpoint-rate=20M logging=off swap=70% \
                    idle=500ms snapshot=none";
        let settings: Settings = text.parse().unwrap();
        let config = settings.applied_to(&VolumeConfig::default());
        assert_eq!(config.threshold, Sectors(128));
        assert_eq!(config.checkpoint_rate, 20 << 20);
        assert!(!config.logging && config.swap == 0.7 && config.snapshot == Nanos(0));
        let expected = [
            ("logging", "off"),
            ("threshold", "64K"),
            ("swap", "0.7"),
            ("checkpoint-rate", "20M"),
            ("idle", "500ms"),
            ("snapshot", "none"),
        ];
        let expected = expected.map(|(key, value)| (key, value.to_owned()));
        assert_eq!(settings.unlike(&Settings::default()), expected);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("treshold=1K", "did you mean `threshold`"),
            ("frob=1", "there are: logging, threshold, adaptive"),
            ("log=1M", "unknown setting `log`"),
            ("threshold", "expected key=value"),
            ("threshold=100", "whole sectors"),
            ("threshold=huge", "threshold=huge: expected whole sectors"),
            ("logging=maybe", "on or off"),
            ("swap=much", "a share"),
            ("checkpoint=sometimes", "HH:MM-HH:MM"),
            ("checkpoint=25:00-06:00", "HH:MM-HH:MM"),
            ("checkpoint=22:60-06:00", "HH:MM-HH:MM"),
            ("checkpoint=every:0s", "every:10min"),
            ("checkpoint-rate=fast", "20M, or none"),
            ("appends=-1", "a number"),
            ("idle=5 parsecs", "expected"),
        ] {
            let mut settings = Settings::default();
            let message = settings.assign(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
            assert_eq!(settings, Settings::default(), "{text}");
        }
    }

    #[test]
    fn values_that_make_no_sense_are_not_valid() {
        let with = |text: &str| {
            let settings: Settings = text.parse().unwrap();
            settings.applied_to(&VolumeConfig::default()).validate()
        };
        assert_eq!(with(""), Ok(()));
        for text in [
            "threshold=0",
            "swap=0",
            "watermark=101%",
            "appends=0",
            "buffer=1T",
            "latency=1us",
            "latency=1h",
            "hold=1min",
            "band=4K",
            "band=2G",
        ] {
            let key = text.split_once('=').unwrap().0;
            assert!(with(text).unwrap_err().to_string().contains(key), "{text}");
        }
    }
}
