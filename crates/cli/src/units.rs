//! Values with units on the command line.

use manylogs_block::{Nanos, Sectors};

/// Parses a size as `10G`, `256K`, `512` (bytes); K, M, G, T are powers of 1024.
pub(crate) fn size(text: &str) -> Result<Sectors, String> {
    let expected =
        || format!("expected a size such as 512, 256K, 10M, 1.5G or 20T, found {text:?}");
    let (number, unit) = split(text);
    let factor = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 1.0,
        "K" | "k" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(expected()),
    };
    let bytes = number.parse::<f64>().map_err(|_| expected())? * factor;
    if !(1.0..1e18).contains(&bytes) {
        return Err(expected());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
    let bytes = bytes.round() as u64;
    Ok(Sectors::from_bytes_ceil(bytes))
}

/// Parses a duration as `300`, `300s`, `5m`, `1h`, `250ms`.
pub(crate) fn duration(text: &str) -> Result<Nanos, String> {
    let expected = || format!("expected a duration such as 250ms, 300s, 5m or 1h, found {text:?}");
    let (number, unit) = split(text);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(expected()),
    };
    let seconds = number.parse::<f64>().map_err(|_| expected())? * seconds;
    if !(0.0..1e9).contains(&seconds) {
        return Err(expected());
    }
    Ok(Nanos::from_secs_f64(seconds))
}

/// How fast arrivals come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// So many times as fast as recorded.
    Factor(f64),
    /// So that the drive is as busy as asked for.
    Auto,
}

/// Parses a rate as `auto`, `0.5` or `0.5x`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    if text == "auto" {
        return Ok(Rate::Auto);
    }
    let number = text.trim_end_matches('x').parse::<f64>();
    match number {
        Ok(factor) if (1e-6..=1e6).contains(&factor) => Ok(Rate::Factor(factor)),
        _ => Err(format!("expected auto or a factor such as 0.5 or 2x, found {text:?}")),
    }
}

/// Parses a share as `0.5` or `50%`; more than none and less than all.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, percent) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.parse::<f64>().map(|n| n / percent) {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(format!("expected a share between 0 and 1 such as 0.5 or 50%, found {text:?}")),
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("256K"), Ok(Sectors(512)));
        assert_eq!(size("1.5GiB"), Ok(Sectors(3 << 20)));
        assert_eq!(size("513"), Ok(Sectors(2)));
        for bad in ["", "K", "-1K", "5X", "0", "1e99"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("5m"), Ok(Nanos::from_secs(300)));
        assert_eq!(duration("250ms"), Ok(Nanos::from_millis(250)));
        assert!(duration("5 parsecs").is_err());
    }

    #[test]
    fn rates_and_shares() {
        assert_eq!(rate("auto"), Ok(Rate::Auto));
        assert_eq!(rate("0.5x"), Ok(Rate::Factor(0.5)));
        assert!(rate("0").is_err() && rate("fast").is_err());
        assert_eq!(share("50%"), Ok(0.5));
        assert!(share("1.5").is_err());
    }
}
