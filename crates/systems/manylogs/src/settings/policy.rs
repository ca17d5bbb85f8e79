//! Policies as text: `nologging`, `mlb-256`, `mlb:threshold=128K,checkpoint=idle`.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Sectors, parse_share};
use thiserror::Error;

use crate::settings::config::{LogPlacement, TablePlace, VolumeConfig};
use crate::settings::config_error::size;
use crate::settings::{Settings, SettingsError, did_you_mean, nearest, sectors};

/// The layer between the clients and the drive.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// No layer: every write goes home.
    NoLogging,
    /// A volume with one log.
    SingleLog(VolumeConfig),
    /// A volume with many logs.
    Mlb(VolumeConfig),
}

/// Why a policy cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PolicyError {
    /// No policy has this name.
    #[error(
        "unknown policy `{name}`{}; there are: nologging, single-log, mlb, mlb-paper, \
         mlb-shingled, mlb-N (N in KiB, as mlb-32 and mlb-256)",
        did_you_mean(suggestion.as_deref())
    )]
    Unknown {
        /// The name as given.
        name: String,
        /// The most similar name, if one is similar.
        suggestion: Option<String>,
    },
    /// The policy has no such parameter.
    #[error(
        "policy `{policy}` has no parameter `{key}`{}; it has: {}",
        did_you_mean(suggestion.as_deref()),
        keys.join(", ")
    )]
    UnknownKey {
        /// The policy.
        policy: String,
        /// The parameter as given.
        key: String,
        /// The most similar parameter, if one is similar.
        suggestion: Option<String>,
        /// All parameters of the policy.
        keys: Vec<&'static str>,
    },
    /// A value that cannot be read.
    #[error("policy parameter {key}={value}: expected {expected}")]
    BadValue {
        /// The parameter.
        key: String,
        /// The value as given.
        value: String,
        /// Description of valid values.
        expected: &'static str,
    },
    /// Parameters that make no sense together.
    #[error("policy `{policy}`: {reason}")]
    Absurd {
        /// The policy.
        policy: String,
        /// Which parameters, and why.
        reason: String,
    },
}

/// Size of the non-volatile RAM of a replay, unless it is given.
const NVRAM_BYTES: usize = 64 << 20;

/// Parameters that are fixed at format, unlike [`Settings`].
const FIXED_KEYS: [&str; 2] = ["log", "table"];

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let mut policy = Self::named(name)?;
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').ok_or_else(|| PolicyError::BadValue {
                key: option.to_owned(),
                value: String::new(),
                expected: "key=value",
            })?;
            policy.set(name, key, value)?;
        }
        if let Some(config) = policy.config() {
            config.validate().map_err(|error| PolicyError::Absurd {
                policy: text.to_owned(),
                reason: error.to_string(),
            })?;
        }
        Ok(policy)
    }
}

impl Policy {
    /// Names of policies. `mlb-N` takes any number of KiB.
    pub const NAMES: [&str; 7] =
        ["nologging", "single-log", "mlb", "mlb-paper", "mlb-shingled", "mlb-32", "mlb-256"];

    /// The parameters of the volume, if there is one.
    #[must_use]
    pub const fn config(&self) -> Option<&VolumeConfig> {
        match self {
            Self::NoLogging => None,
            Self::SingleLog(config) | Self::Mlb(config) => Some(config),
        }
    }

    fn named(name: &str) -> Result<Self, PolicyError> {
        match name {
            "nologging" => return Ok(Self::NoLogging),
            "single-log" => return Ok(Self::SingleLog(VolumeConfig::single_log())),
            "mlb" => return Ok(Self::Mlb(VolumeConfig::default())),
            "mlb-shingled" => {
                let (device, band) = (Sectors(u64::MAX), VolumeConfig::BAND);
                return Ok(Self::Mlb(VolumeConfig::for_shingled(device, band)));
            }
            "mlb-paper" => return Ok(Self::Mlb(VolumeConfig::as_published())),
            _ => {}
        }
        let kib = name.strip_prefix("mlb-").and_then(|kib| kib.parse::<u64>().ok());
        match kib {
            Some(kib) if (1..=1 << 20).contains(&kib) => {
                let threshold = Sectors(kib * 2);
                let mut config = VolumeConfig { threshold, ..VolumeConfig::as_published() };
                config.record = config.record.max(config.threshold);
                Ok(Self::Mlb(config))
            }
            _ => Err(PolicyError::Unknown {
                name: name.to_owned(),
                suggestion: nearest(name, Self::NAMES),
            }),
        }
    }

    fn set(&mut self, policy: &str, key: &str, value: &str) -> Result<(), PolicyError> {
        let (config, own_key) = match self {
            Self::NoLogging => return Err(unknown_key(policy, key, Vec::new())),
            Self::SingleLog(config) => (config, "place"),
            Self::Mlb(config) => (config, "group"),
        };
        let bad = |expected| PolicyError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let length = || sectors(value).ok_or_else(|| bad("a size such as 128K, 10M or 5G"));
        let share = || parse_share(value).ok_or_else(|| bad("a share such as 0.8 or 80%"));
        match key {
            "log" => config.log = length()?,
            "group" if own_key == "group" => config.placement = LogPlacement::EveryGroup(length()?),
            "place" if own_key == "place" => config.placement = LogPlacement::Single(share()?),
            "table" => {
                config.table = parse_table(value).ok_or_else(|| bad("logs, nvram or nvram:64M"))?;
            }
            _ => {
                let mut settings = Settings::of(config);
                settings.set(key, value).map_err(|error| of_settings(policy, own_key, error))?;
                *config = settings.applied_to(config);
            }
        }
        Ok(())
    }
}

/// An error of a setting as an error of the policy's parameter.
fn of_settings(policy: &str, own_key: &'static str, error: SettingsError) -> PolicyError {
    match error {
        SettingsError::BadValue { key, value, expected } => {
            PolicyError::BadValue { key, value, expected }
        }
        SettingsError::UnknownKey { key, .. } | SettingsError::NoValue { text: key } => {
            let keys = [own_key].into_iter().chain(FIXED_KEYS).chain(Settings::KEYS);
            unknown_key(policy, &key, keys.collect())
        }
    }
}

fn unknown_key(policy: &str, key: &str, keys: Vec<&'static str>) -> PolicyError {
    PolicyError::UnknownKey {
        policy: policy.to_owned(),
        key: key.to_owned(),
        suggestion: nearest(key, keys.iter().copied()),
        keys,
    }
}

fn parse_table(text: &str) -> Option<TablePlace> {
    match text {
        "logs" => Some(TablePlace::Logs),
        "nvram" => Some(TablePlace::Nvram(NVRAM_BYTES)),
        _ => {
            let size = sectors(text.strip_prefix("nvram:")?)?;
            Some(TablePlace::Nvram(manylogs_block::to_usize(size.bytes())))
        }
    }
}

impl fmt::Display for Policy {
    /// Writes out all parameters; the text reads back as the same policy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, config) = match self {
            Self::NoLogging => return f.write_str("nologging"),
            Self::SingleLog(config) => ("single-log", config),
            Self::Mlb(config) => ("mlb", config),
        };
        write!(f, "{name}:log={}", size(config.log))?;
        match config.placement {
            LogPlacement::EveryGroup(group) => write!(f, ",group={}", size(group))?,
            LogPlacement::Single(place) => write!(f, ",place={place}")?,
            LogPlacement::Listed => {}
        }
        for (key, value) in Settings::of(config).list() {
            write!(f, ",{key}={value}")?;
        }
        match config.table {
            TablePlace::Logs => Ok(()),
            TablePlace::Nvram(bytes) => {
                write!(f, ",table=nvram:{}", size(Sectors::from_bytes_ceil(bytes as u64)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::config::CheckpointPolicy;

    fn parse(text: &str) -> Result<Policy, PolicyError> {
        text.parse()
    }

    #[test]
    fn the_issue_example_is_understood() {
        let policy =
            parse("mlb:threshold=128K,log=10M,group=100M,swap=0.8,checkpoint=idle").unwrap();
        let config = policy.config().unwrap();
        assert_eq!(config.threshold, Sectors(256));
        assert_eq!(config.checkpoint, CheckpointPolicy::Idle);
    }

    #[test]
    fn what_is_printed_reads_back_the_same() {
        for text in [
            "nologging",
            "single-log:log=1G,place=90%",
            "mlb-32",
            "mlb:checkpoint=every:90s,idle=100ms,checkpoint-rate=20M",
            "mlb:checkpoint=01:00-05:30,logging=off",
            "mlb-256",
            "mlb:table=nvram",
            "single-log:table=nvram:128K",
        ] {
            let policy = parse(text).unwrap();
            assert_eq!(parse(&policy.to_string()).unwrap(), policy, "{policy}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("mlp-256", "did you mean `mlb-256`"),
            ("frob", "there are: nologging"),
            ("mlb:treshold=1K", "did you mean `threshold`"),
            ("nologging:log=1M", "no parameter `log`"),
            ("mlb:log=200M", "not smaller than group"),
            ("mlb:threshold=huge", "expected whole sectors"),
            ("mlb:threshold=100", "expected whole sectors"),
            ("single-log:place=140%", "between 0 % and 100 %"),
            ("mlb:swap", "key=value"),
            ("mlb:checkpoint=sometimes", "expected HH:MM-HH:MM"),
            ("mlb:appends=0", "between 1 and 64"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
