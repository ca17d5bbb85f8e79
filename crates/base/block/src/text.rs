//! Quantities as people write them: `256K`, `300ms`, `80%`.

use crate::units::Nanos;

/// Larger numbers of bytes and nanoseconds are mistakes, and their sums could exceed 64 bits.
const MOST: u64 = 1_000_000_000_000_000_000;

const BYTES: [(&str, u64); 5] =
    [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];

const SPANS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Bytes as `512`, `256K`, `1.5G` or `10MiB`; K, M, G and T are powers of 1024.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let unit = unit.trim_end_matches("iB").trim_end_matches('B');
    let unit = if unit == "k" { "K" } else { unit };
    scaled(number, factor_of(unit, &BYTES)?)
}

/// A time as `300`, `300s`, `250ms`, `5m`, `5min`, `1h` or `1d`; seconds where there is no unit.
#[must_use]
pub fn parse_span(text: &str) -> Option<Nanos> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" => 1_000_000_000,
        "m" => 60_000_000_000,
        "d" => 24 * 3_600_000_000_000,
        _ => factor_of(unit, &SPANS)?,
    };
    scaled(number, factor).map(Nanos)
}

/// A share as `0.8` or `80%`; any finite number will do.
#[must_use]
pub fn parse_share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.parse::<f64>().ok()?,
    };
    share.is_finite().then_some(share)
}

/// The text that [`parse_bytes`] reads as the same number.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    in_units(bytes, &BYTES).unwrap_or_else(|| "0".to_owned())
}

/// The text that [`parse_span`] reads as the same time.
#[must_use]
pub fn span_text(span: Nanos) -> String {
    in_units(span.0, &SPANS).unwrap_or_else(|| "0s".to_owned())
}

/// The state of a switch, as written in settings and messages.
#[must_use]
pub const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

fn factor_of(unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

fn scaled(number: &str, factor: u64) -> Option<u64> {
    let value = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor)?,
        Err(_) => rounded(number.parse::<f64>().ok()? * factor as f64),
    };
    (value < MOST).then_some(value)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// The value in the largest unit of which it is a whole number; `None` for zero.
fn in_units(value: u64, units: &[(&str, u64)]) -> Option<String> {
    let (unit, factor) = units.iter().find(|(_, factor)| value.is_multiple_of(*factor))?;
    (value > 0).then(|| format!("{}{unit}", value / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_the_same() {
        for value in [0, 1, 512, 1000, 1024, 1536, 3 << 20, 90_000_000_000, 3_600_000_000_000] {
            assert_eq!(parse_bytes(&bytes_text(value)), Some(value));
            assert_eq!(parse_span(&span_text(Nanos(value))), Some(Nanos(value)));
        }
        assert_eq!(span_text(Nanos::from_secs(600)), "10min");
        assert_eq!(bytes_text(64 << 10), "64K");
    }

    #[test]
    fn units_and_nonsense() {
        assert_eq!(parse_bytes("1.5GiB"), Some(3 << 29));
        assert_eq!(parse_span("5m"), parse_span("300"));
        assert_eq!(parse_share("80%"), Some(0.8));
        for bad in ["", "K", "-1K", "5X", "1e99", "99999999T", ".", "1.2.3"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
            assert_eq!(parse_span(bad), None, "{bad}");
        }
        assert!(parse_share("nan").is_none() && parse_share("%").is_none());
    }
}
