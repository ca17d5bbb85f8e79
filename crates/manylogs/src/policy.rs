//! Policies as people write them: `nologging`, `mlb-256`, `mlb:threshold=128K,checkpoint=idle`.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Nanos, Sectors};
use thiserror::Error;

use crate::config::{CheckpointPolicy, EngineConfig, LogPlacement, TablePlace, size};

/// What stands between the clients and the drive.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Nothing: every write goes home.
    NoLogging,
    /// The engine with one log.
    SingleLog(EngineConfig),
    /// The engine with many logs.
    Mlb(EngineConfig),
}

/// Why a policy cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PolicyError {
    /// No policy has this name.
    #[error(
        "unknown policy `{name}`{}; there are: nologging, single-log, mlb, mlb-N (N in KiB, as \
         mlb-32 and mlb-256)",
        did_you_mean(suggestion.as_deref())
    )]
    Unknown {
        /// As given.
        name: String,
        /// The nearest name, if one is near.
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
        /// As given.
        key: String,
        /// The nearest parameter, if one is near.
        suggestion: Option<String>,
        /// All there are.
        keys: Vec<&'static str>,
    },
    /// A value that cannot be read.
    #[error("policy parameter {key}={value}: expected {expected}")]
    BadValue {
        /// The parameter.
        key: String,
        /// As given.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// Parameters that make no sense together.
    #[error("policy `{policy}`: {reason}")]
    Absurd {
        /// The policy.
        policy: String,
        /// Which and why.
        reason: String,
    },
}

/// Non-volatile RAM of a replay, where its size is not given.
const NVRAM_BYTES: usize = 64 << 20;

const COMMON_KEYS: [&str; 12] = [
    "threshold",
    "log",
    "swap",
    "checkpoint",
    "idle",
    "watermark",
    "checkpoint-rate",
    "appends",
    "record",
    "buffer",
    "snapshot",
    "table",
];

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}

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
            config
                .validate()
                .map_err(|reason| PolicyError::Absurd { policy: text.to_owned(), reason })?;
        }
        Ok(policy)
    }
}

impl Policy {
    /// The engine's parameters, if there is an engine.
    #[must_use]
    pub const fn config(&self) -> Option<&EngineConfig> {
        match self {
            Self::NoLogging => None,
            Self::SingleLog(config) | Self::Mlb(config) => Some(config),
        }
    }

    fn named(name: &str) -> Result<Self, PolicyError> {
        match name {
            "nologging" => return Ok(Self::NoLogging),
            "single-log" => return Ok(Self::SingleLog(EngineConfig::single_log())),
            "mlb" => return Ok(Self::Mlb(EngineConfig::default())),
            _ => {}
        }
        let kib = name.strip_prefix("mlb-").and_then(|kib| kib.parse::<u64>().ok());
        match kib {
            Some(kib) if (1..=1 << 20).contains(&kib) => {
                let mut config = EngineConfig::with_threshold(Sectors(kib * 2));
                config.record = config.record.max(config.threshold);
                Ok(Self::Mlb(config))
            }
            _ => Err(PolicyError::Unknown {
                name: name.to_owned(),
                suggestion: nearest(name, ["nologging", "single-log", "mlb", "mlb-32", "mlb-256"]),
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
        let length = || parse_size(value).ok_or_else(|| bad("a size such as 128K, 10M or 5G"));
        let span = || parse_span(value).ok_or_else(|| bad("a time such as 50ms, 30s, 10m or 8h"));
        let share = || parse_share(value).ok_or_else(|| bad("a share such as 0.8 or 80%"));
        match key {
            "threshold" => {
                config.threshold = length()?;
                config.record = config.record.max(config.threshold);
            }
            "log" => config.log = length()?,
            "group" if own_key == "group" => config.placement = LogPlacement::EveryGroup(length()?),
            "place" if own_key == "place" => config.placement = LogPlacement::Single(share()?),
            "swap" => config.swap = share()?,
            "checkpoint" => {
                config.checkpoint = parse_checkpoint(value).ok_or_else(|| {
                    bad("offhours, offhours:22-6, idle, every:SECONDS or on-full")
                })?;
            }
            "idle" => config.idle = span()?,
            "watermark" => config.watermark = share()?,
            "checkpoint-rate" => config.checkpoint_rate = length()?.bytes(),
            "appends" => {
                config.appends = value.parse().map_err(|_| bad("a number from 1 to 64"))?;
            }
            "record" => config.record = length()?,
            "buffer" => config.buffer = length()?,
            "snapshot" => config.snapshot = span()?,
            "table" => {
                config.table = parse_table(value).ok_or_else(|| bad("logs, nvram or nvram:64M"))?;
            }
            _ => {
                let mut keys = COMMON_KEYS.to_vec();
                keys.push(own_key);
                return Err(unknown_key(policy, key, keys));
            }
        }
        Ok(())
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

fn parse_size(text: &str) -> Option<Sectors> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "KiB" | "k" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    bytes.is_multiple_of(512).then_some(Sectors(bytes / 512))
}

fn parse_table(text: &str) -> Option<TablePlace> {
    match text {
        "logs" => Some(TablePlace::Logs),
        "nvram" => Some(TablePlace::Nvram(NVRAM_BYTES)),
        _ => {
            let size = parse_size(text.strip_prefix("nvram:")?)?;
            Some(TablePlace::Nvram(manylogs_block::to_usize(size.bytes())))
        }
    }
}

fn parse_span(text: &str) -> Option<Nanos> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).map(Nanos)
}

fn parse_share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.parse::<f64>().ok()?,
    };
    share.is_finite().then_some(share)
}

fn parse_checkpoint(text: &str) -> Option<CheckpointPolicy> {
    match text {
        "idle" => Some(CheckpointPolicy::Idle),
        "on-full" => Some(CheckpointPolicy::OnFull),
        "offhours" => Some(EngineConfig::default().checkpoint),
        _ => {
            if let Some(seconds) = text.strip_prefix("every:") {
                let span = parse_span(seconds)?;
                return (span.0 > 0).then_some(CheckpointPolicy::Every(span));
            }
            let (from, until) = text.strip_prefix("offhours:")?.split_once('-')?;
            let hour = |text: &str| text.parse::<u64>().ok().filter(|hour| *hour < 24);
            let (from_s, until_s) = (hour(from)? * 3600, hour(until)? * 3600);
            Some(CheckpointPolicy::OffHours { from_s, until_s })
        }
    }
}

impl fmt::Display for CheckpointPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OffHours { from_s, until_s } => {
                write!(f, "offhours:{}-{}", from_s / 3600, until_s / 3600)
            }
            Self::Idle => f.write_str("idle"),
            Self::Every(span) => write!(f, "every:{}", Span(*span)),
            Self::OnFull => f.write_str("on-full"),
        }
    }
}

struct Span(Nanos);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.0;
        match ns {
            _ if ns.is_multiple_of(1_000_000_000) => write!(f, "{}s", ns / 1_000_000_000),
            _ if ns.is_multiple_of(1_000_000) => write!(f, "{}ms", ns / 1_000_000),
            _ => write!(f, "{}us", ns / 1_000),
        }
    }
}

impl fmt::Display for Policy {
    /// Every parameter spelled out; reading it back gives the same policy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, config) = match self {
            Self::NoLogging => return f.write_str("nologging"),
            Self::SingleLog(config) => ("single-log", config),
            Self::Mlb(config) => ("mlb", config),
        };
        write!(f, "{name}:threshold={},log={}", size(config.threshold), size(config.log))?;
        match config.placement {
            LogPlacement::EveryGroup(group) => write!(f, ",group={}", size(group))?,
            LogPlacement::Single(place) => write!(f, ",place={place}")?,
        }
        write!(
            f,
            ",swap={},checkpoint={},idle={},watermark={},checkpoint-rate={},appends={},record={},\
             buffer={},snapshot={}",
            config.swap,
            config.checkpoint,
            Span(config.idle),
            config.watermark,
            size(Sectors(config.checkpoint_rate / 512)),
            config.appends,
            size(config.record),
            size(config.buffer),
            Span(config.snapshot),
        )?;
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
            "mlb:checkpoint=offhours:1-5",
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
            ("mlb:threshold=huge", "expected a size"),
            ("mlb:threshold=100", "expected a size"),
            ("single-log:place=140%", "between 0 % and 100 %"),
            ("mlb:swap", "key=value"),
            ("mlb:checkpoint=sometimes", "expected offhours"),
            ("mlb:appends=0", "between 1 and 64"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
