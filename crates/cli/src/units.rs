//! Values with units on the command line.

use std::error::Error;
use std::fmt;

use manylogs_block::{Nanos, Sectors, parse_bytes, parse_share, parse_span};

/// A value on the command line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unexpected {
    pub(crate) given: String,
    pub(crate) expected: &'static str,
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {:?}", self.expected, self.given)
    }
}

impl Error for Unexpected {}

/// Returns `value`, or the error that `given` is not `expected`.
pub(crate) fn expect<T>(
    value: Option<T>,
    given: &str,
    expected: &'static str,
) -> Result<T, Unexpected> {
    value.ok_or_else(|| Unexpected { given: given.to_owned(), expected })
}

/// Parses a size as `10G`, `256K`, `512` (bytes); K, M, G, T are powers of 1024.
pub(crate) fn size(text: &str) -> Result<Sectors, Unexpected> {
    let bytes = parse_bytes(text).filter(|bytes| *bytes > 0);
    expect(bytes, text, "a size such as 512, 256K, 10M, 1.5G or 20T").map(Sectors::from_bytes_ceil)
}

/// Parses bytes a second as `80M`; K, M, G, T are powers of 1024.
pub(crate) fn rate_bytes(text: &str) -> Result<u64, Unexpected> {
    let bytes = parse_bytes(text).filter(|bytes| *bytes > 0);
    expect(bytes, text, "bytes a second such as 500K, 80M or 1.5G")
}

/// Parses a duration as `300`, `300s`, `5m`, `1h`, `250ms`.
pub(crate) fn duration(text: &str) -> Result<Nanos, Unexpected> {
    expect(parse_span(text), text, "a duration such as 250ms, 300s, 5m or 1h")
}

/// Rate of arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// Arrivals are faster than recorded by this factor.
    Factor(f64),
    /// The rate at which the drive is as busy as the user asks.
    Auto,
}

/// Parses a rate as `auto`, `0.5` or `0.5x`.
pub(crate) fn rate(text: &str) -> Result<Rate, Unexpected> {
    if text == "auto" {
        return Ok(Rate::Auto);
    }
    let factor = text.trim_end_matches('x').parse::<f64>().ok();
    let factor = factor.filter(|factor| (1e-6..=1e6).contains(factor)).map(Rate::Factor);
    expect(factor, text, "auto or a factor such as 0.5 or 2x")
}

/// Parses a share as `0.5` or `50%`; more than 0 and less than 1.
pub(crate) fn share(text: &str) -> Result<f64, Unexpected> {
    let share = parse_share(text).filter(|share| *share > 0.0 && *share < 1.0);
    expect(share, text, "a share between 0 and 1 such as 0.5 or 50%")
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
