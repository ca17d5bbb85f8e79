//! Checkpoint policies in words: `22:00-06:00`, `idle`, `every:10min`, `full`.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{parse_span, span_text};

use crate::settings::config::CheckpointPolicy;

const EXPECTED: &str = "HH:MM-HH:MM, idle, every:10min or full";

impl FromStr for CheckpointPolicy {
    /// Description of valid values.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let found = match text {
            "idle" => Some(Self::Idle),
            "full" => Some(Self::OnFull),
            _ => match text.strip_prefix("every:") {
                Some(span) => parse_span(span).filter(|span| span.0 > 0).map(Self::Every),
                None => window(text),
            },
        };
        found.ok_or(EXPECTED)
    }
}

impl fmt::Display for CheckpointPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OffHours { from_s, until_s } => {
                write!(f, "{}-{}", clock_text(*from_s), clock_text(*until_s))
            }
            Self::Idle => f.write_str("idle"),
            Self::Every(span) => write!(f, "every:{}", span_text(*span)),
            Self::OnFull => f.write_str("full"),
        }
    }
}

fn window(text: &str) -> Option<CheckpointPolicy> {
    let (from, until) = text.split_once('-')?;
    Some(CheckpointPolicy::OffHours { from_s: clock(from)?, until_s: clock(until)? })
}

/// `HH:MM` or `HH:MM:SS`, up to 24:00, in seconds since midnight.
fn clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let mut part = |most: u64| parts.next().map(|part| number(part).filter(|n| *n <= most));
    let (hours, minutes) = (part(24)??, part(59)??);
    let seconds = part(59).unwrap_or(Some(0))?;
    let time = 3600 * hours + 60 * minutes + seconds;
    (time <= 86_400 && parts.next().is_none()).then_some(time)
}

fn number(text: &str) -> Option<u64> {
    let digits = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn clock_text(time_s: u64) -> String {
    let (hours, minutes, seconds) = (time_s / 3600, time_s / 60 % 60, time_s % 60);
    match seconds {
        0 => format!("{hours:02}:{minutes:02}"),
        _ => format!("{hours:02}:{minutes:02}:{seconds:02}"),
    }
}
